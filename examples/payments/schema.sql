-- Amounts are in cents, times are seconds since the epoch, rates are basis points (1/100 of a percent).

CREATE TABLE accounts (
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    plan     TEXT NOT NULL,
    batch_id INTEGER NOT NULL REFERENCES batches (id)  -- the open batch: new payments go here
);

CREATE TABLE batches (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id INTEGER NOT NULL REFERENCES accounts (id)
);

CREATE TABLE payments (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    batch_id   INTEGER NOT NULL REFERENCES batches (id),
    amount     INTEGER NOT NULL CHECK (amount > 0),
    fee        INTEGER NOT NULL CHECK (fee >= 0),
    reference  TEXT NOT NULL,
    created    REAL NOT NULL
);

CREATE TABLE settlements (
    batch_id   INTEGER PRIMARY KEY REFERENCES batches (id),
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    payments   INTEGER NOT NULL,
    net        INTEGER NOT NULL,
    digest     TEXT NOT NULL,
    created    REAL NOT NULL
);

CREATE TABLE fee_tiers (
    plan        TEXT NOT NULL,
    from_volume INTEGER NOT NULL,  -- of the last 30 days
    rate        INTEGER NOT NULL,
    PRIMARY KEY (plan, from_volume)
);
