-- 750 merchants with a month of settled payments: what a new data directory starts with.

INSERT INTO fee_tiers (plan, from_volume, rate) VALUES
    ('standard', 0, 290), ('standard', 50000, 250), ('standard', 250000, 190),
    ('charity', 0, 120), ('charity', 250000, 90);

WITH town (name) AS (VALUES
        ('Aarhus'), ('Bilbao'), ('Cork'), ('Delft'), ('Evora'), ('Faro'), ('Ghent'), ('Graz'), ('Kaunas'), ('Lille'),
        ('Lucca'), ('Lund'), ('Malmo'), ('Narva'), ('Nice'), ('Odense'), ('Padua'), ('Porto'), ('Riga'), ('Siena'),
        ('Split'), ('Tartu'), ('Turku'), ('Vigo'), ('Zadar')),
    trade (name) AS (VALUES
        ('Antiques'), ('Bakery'), ('Barber'), ('Bike Rental'), ('Bookshop'), ('Brewery'), ('Butcher'), ('Cafe'),
        ('Cheese'), ('Cinema'), ('Cobbler'), ('Dairy'), ('Diner'), ('Fabrics'), ('Florist'), ('Food Bank'),
        ('Guitars'), ('Hostel'), ('Jazz Bar'), ('Locksmith'), ('Museum'), ('Optician'), ('Pharmacy'), ('Pottery'),
        ('Records'), ('Sailing'), ('Tailor'), ('Tea House'), ('Toys'), ('Wine Cellar'))
INSERT INTO accounts (name, plan, batch_id)
SELECT town.name || ' ' || trade.name, iif(trade.name IN ('Food Bank', 'Museum'), 'charity', 'standard'), 0
FROM town, trade;

-- One settled batch for each account, then the open one.
INSERT INTO batches (account_id) SELECT id FROM accounts;

WITH RECURSIVE day (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM day WHERE n < 54)
INSERT INTO payments (account_id, batch_id, amount, fee, reference, created)
SELECT account_id, id, 500 + (id * 7919 + n * 104729) % 9500, 60, 'opening-' || n, unixepoch() - n * 45000
FROM batches, day;

INSERT INTO settlements (batch_id, account_id, payments, net, digest, created)
SELECT batch_id, account_id, count(*), sum(amount - fee), '', unixepoch()
FROM payments GROUP BY batch_id;

INSERT INTO batches (account_id) SELECT id FROM accounts;
UPDATE accounts SET batch_id = (SELECT max(id) FROM batches WHERE account_id = accounts.id);
