"""The orders that `bench.pgsync` compares: their rows, their document in both languages, changes of them."""

from __future__ import annotations

from typing import Any

ORDERS_OF_PRODUCT = 25
INDEX = {"number_of_shards": 1, "number_of_replicas": 0}

TABLES = """
    CREATE SCHEMA shop;
    CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text NOT NULL, tier text NOT NULL);
    CREATE TABLE shop.products (id bigint PRIMARY KEY, sku text NOT NULL, name text NOT NULL);
    CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer_id bigint REFERENCES shop.customers,
        status text NOT NULL, total numeric NOT NULL);
    CREATE TABLE shop.items (id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES shop.orders,
        product_id bigint NOT NULL REFERENCES shop.products, quantity int NOT NULL, note text NOT NULL);
"""
# The first orders have no items, and some no customer. 25 orders have the same product.
ROWS = """
    INSERT INTO shop.customers SELECT n, 'customer ' || n, 'gold' FROM generate_series(0, {orders} / 10) AS n;
    INSERT INTO shop.products
    SELECT n, 'sku-' || n, 'product ' || n FROM generate_series(0, {products} - 1) AS n;
    INSERT INTO shop.orders
    SELECT n, CASE WHEN n % 1000 <> 7 THEN n / 10 END, 'new', n * 1.5 FROM generate_series(1, {orders}) AS n;
    INSERT INTO shop.items SELECT n, 1 + n % {orders}, n % {products}, 1 + n % 9, 'note ' || n
    FROM generate_series(1, 3 * {orders}) AS n WHERE n % {orders} >= {orders} / 1000;
    CREATE INDEX ON shop.orders (customer_id);
    CREATE INDEX ON shop.items (order_id);
    CREATE INDEX ON shop.items (product_id);
"""
DOCUMENT = """
[postgres]
dsn = "{dsn}"
[document.orders]
table = "shop.orders"
fields = ["id", "status", "total"]
[document.orders.customer]
one = "shop.customers"
fields = ["name", "tier"]
[document.orders.items]
many = "shop.items"
fields = ["id", "quantity", "note"]
[document.orders.items.product]
one = "shop.products"
fields = ["sku", "name"]
[tube.orders.sink]
type = "opensearch"
url = "{url}"
index = "pytube"
key = "{{id}}"
settings = {{ number_of_shards = 1, number_of_replicas = 0 }}
"""
WANTED = """
    SELECT o.id::text, json_build_object('id', o.id, 'status', o.status, 'total', o.total,
        'customer', (SELECT json_build_object('name', c.name, 'tier', c.tier)
            FROM shop.customers c WHERE c.id = o.customer_id),
        'items', ARRAY(SELECT json_build_object('id', i.id, 'quantity', i.quantity, 'note', i.note,
                'product', json_build_object('sku', p.sku, 'name', p.name))
            FROM shop.items i JOIN shop.products p ON p.id = i.product_id WHERE i.order_id = o.id))
    FROM shop.orders o
"""
# Each kind of change: the rows that are changed with the orders that show them, and the change.
KINDS = {
    "the order itself": (
        "SELECT id, ARRAY[id] FROM shop.orders ORDER BY md5(id::text) LIMIT %s",
        "UPDATE shop.orders SET status = %s WHERE id = %s",
    ),
    "an item": (
        "SELECT id, ARRAY[order_id] FROM shop.items ORDER BY md5(id::text) LIMIT %s",
        "UPDATE shop.items SET note = %s WHERE id = %s",
    ),
    f"a product of {ORDERS_OF_PRODUCT} orders": (
        f"""
            SELECT product_id, array_agg(order_id) FROM shop.items GROUP BY product_id
            HAVING count(DISTINCT order_id) = {ORDERS_OF_PRODUCT} ORDER BY md5(product_id::text) LIMIT %s
        """,
        "UPDATE shop.products SET name = %s WHERE id = %s",
    ),
}
# What single-row updates leave untried: customers, deletes, moves, orders that come and go.
OTHER_CHANGES = (
    "UPDATE shop.orders SET status = 'over' WHERE id = {n}",
    "UPDATE shop.customers SET name = 'renamed' WHERE id = {n} / 10 + 20",
    "DELETE FROM shop.items WHERE order_id = {n} + 1",
    "UPDATE shop.items SET order_id = {n} + 3 WHERE order_id = {n} + 2",
    "UPDATE shop.orders SET customer_id = 5 WHERE id = {n} + 4",
    "WITH i AS (DELETE FROM shop.items WHERE order_id = {n} + 5) DELETE FROM shop.orders WHERE id = {n} + 5",
    "INSERT INTO shop.orders VALUES (-{n}, 5, 'new', 1)",
    "INSERT INTO shop.items VALUES (-{n}, -{n}, 5, 1, 'late')",
)


def schema() -> list[dict[str, Any]]:
    """The document, as PGSync declares it."""

    def node(table: str, label: str, columns: list[str], kind: str, *children: Any) -> dict[str, Any]:
        return {
            "table": table,
            "schema": "shop",
            "label": label,
            "columns": columns,
            "relationship": {"variant": "object", "type": kind},
            "children": list(children),
        }

    product = node("products", "product", ["sku", "name"], "one_to_one")
    return [
        {
            "database": "plain",
            "index": "pgsync",
            "setting": INDEX,
            "nodes": {
                "table": "orders",
                "schema": "shop",
                "columns": ["id", "status", "total"],
                "children": [
                    node("customers", "customer", ["name", "tier"], "one_to_one"),
                    node("items", "items", ["id", "quantity", "note"], "one_to_many", product),
                ],
            },
        }
    ]


def plain(document: dict[str, Any]) -> dict[str, Any]:
    """Without what each tool adds for itself, arrays in the order of their ids, and never null."""
    kept = {name: value for name, value in document.items() if name not in ("_meta", "_pytube")}
    return {**kept, "items": sorted(kept.get("items") or [], key=lambda item: int(item["id"]))}
