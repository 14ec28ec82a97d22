-- The tables of the quick start, with two orders.
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text NOT NULL);
CREATE TABLE shop.products (id bigint PRIMARY KEY, sku text NOT NULL);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer_id bigint REFERENCES shop.customers, status text NOT NULL);
CREATE TABLE shop.items (
    id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES shop.orders,
    product_id bigint NOT NULL REFERENCES shop.products, quantity int NOT NULL);
CREATE INDEX ON shop.orders (customer_id);
CREATE INDEX ON shop.items (order_id);
CREATE INDEX ON shop.items (product_id);
INSERT INTO shop.customers VALUES (1, 'Ada'), (2, 'Grace');
INSERT INTO shop.products VALUES (1, 'lamp'), (2, 'chair');
INSERT INTO shop.orders VALUES (7, 1, 'new'), (8, 2, 'paid');
INSERT INTO shop.items VALUES (1, 7, 1, 2), (2, 7, 2, 1), (3, 8, 1, 1);
ANALYZE shop.customers, shop.products, shop.orders, shop.items;
