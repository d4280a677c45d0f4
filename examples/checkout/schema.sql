CREATE TABLE IF NOT EXISTS products (
    sku   text PRIMARY KEY,
    name  text NOT NULL,
    price numeric(10, 2) NOT NULL CHECK (price > 0)
);

CREATE TABLE IF NOT EXISTS orders (
    id       serial PRIMARY KEY,
    customer text NOT NULL,
    total    numeric(10, 2) NOT NULL CHECK (total > 0),
    state    text NOT NULL DEFAULT 'new',
    charge   text,
    placed   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS order_lines (
    order_id integer NOT NULL REFERENCES orders,
    sku      text NOT NULL REFERENCES products,
    amount   integer NOT NULL CHECK (amount > 0),
    price    numeric(10, 2) NOT NULL,
    PRIMARY KEY (order_id, sku)
);

INSERT INTO products (sku, name, price) VALUES
    ('tea-1', 'Assam, 250 g', 9.90),
    ('tea-2', 'Darjeeling, 100 g', 12.50),
    ('pot-1', 'Tea pot, cast iron', 64.00),
    ('cup-1', 'Cup, stoneware', 14.00),
    ('tin-1', 'Tin, empty', 4.50)
ON CONFLICT DO NOTHING;
