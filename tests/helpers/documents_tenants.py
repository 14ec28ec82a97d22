"""Tables of tenants, whose keys have two columns, and documents over them, put together by hand."""

from __future__ import annotations

import json
from typing import Any

import psycopg

Conn = psycopg.Connection[tuple[Any, ...]]

SCHEMA = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (tenant_id int, id uuid, name text, PRIMARY KEY (tenant_id, id));
CREATE TABLE shop.orders (tenant_id int, id text, status text, customer_id uuid, deleted boolean,
    PRIMARY KEY (tenant_id, id), FOREIGN KEY (tenant_id, customer_id) REFERENCES shop.customers);
CREATE TABLE shop.products (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.items (id bigint PRIMARY KEY, order_id varchar(20), tenant_id bigint, quantity int,
    product_id bigint REFERENCES shop.products);
CREATE TABLE shop.tags (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.order_tags (tenant_id int, order_id text, tag_id bigint REFERENCES shop.tags,
    PRIMARY KEY (tenant_id, order_id, tag_id),
    FOREIGN KEY (tenant_id, order_id) REFERENCES shop.orders ON UPDATE CASCADE);
CREATE TABLE shop.payments (id bigint PRIMARY KEY, tenant_id int, order_id text, instead_of text, amount int,
    FOREIGN KEY (tenant_id, order_id) REFERENCES shop.orders ON UPDATE CASCADE,
    FOREIGN KEY (tenant_id, instead_of) REFERENCES shop.orders ON UPDATE CASCADE);
CREATE TABLE shop.item_notes (id bigint PRIMARY KEY, item_id bigint REFERENCES shop.items, body text);
CREATE INDEX ON shop.orders (customer_id);
CREATE INDEX ON shop.orders (id);
CREATE INDEX ON shop.items (order_id, tenant_id);
CREATE INDEX ON shop.items (product_id);
CREATE INDEX ON shop.order_tags (tag_id);
CREATE INDEX ON shop.payments (tenant_id, order_id);
CREATE INDEX ON shop.payments (instead_of, tenant_id);
CREATE INDEX ON shop.item_notes (item_id);
"""
DECLARATION = """
[document.orders]
table = "shop.orders"
shards = 8
shard_by = "tenant_id"
fields = ["tenant_id", "id", "status"]
where = "deleted IS NOT TRUE"

[document.orders.customer]
one = "shop.customers"
fields = ["name AS customer_name"]
flatten = true

[document.orders.items]
many = "shop.items"
on = { id = "order_id", tenant_id = "tenant_id" }
fields = ["quantity"]

[document.orders.items.product]
one = "shop.products"
fields = ["name"]

[document.orders.items.payments]
many = "shop.payments"
on = { tenant_id = "tenant_id", order_id = "order_id" }
list = "amount"

[document.orders.items.notes]
many = "shop.item_notes"
list = "body"

[document.orders.tags]
many = "shop.tags"
through = "shop.order_tags"
list = "name"

[document.orders.paid]
many = "shop.payments"
by = ["tenant_id", "order_id"]
value = "sum(amount)"

[document.orders.replaced]
many = "shop.payments"
by = ["tenant_id", "instead_of"]
list = "amount"
"""
TABLES = ("customers", "orders", "products", "items", "tags", "order_tags", "payments", "item_notes")
CUSTOMERS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
ORDERS = ("a", 'b"', "ü\\", "a b", "[1, 2]", "\n")


def fill(connection: Conn) -> None:
    """Two tenants, whose orders and customers have the same numbers."""
    connection.execute(
        """
        INSERT INTO shop.products SELECT n, 'product ' || n FROM generate_series(1, 4) AS n;
        INSERT INTO shop.tags SELECT n, 'tag ' || n FROM generate_series(1, 3) AS n;
        """
    )
    for tenant in (1, 2):
        for customer in CUSTOMERS:
            connection.execute(
                "INSERT INTO shop.customers VALUES (%s, %s, %s)",
                (tenant, customer, f"{tenant} {customer[0]}"),
            )
        for number, order in enumerate(ORDERS):
            row = (tenant, order, "new", CUSTOMERS[number % 2] if number < 5 else None, number == 3 or None)
            connection.execute("INSERT INTO shop.orders VALUES (%s, %s, %s, %s, %s)", row)
    connection.execute(
        """
        INSERT INTO shop.items
        SELECT row_number() OVER (), o.id, o.tenant_id, n, 1 + n % 4
        FROM shop.orders AS o, generate_series(1, 3) AS n WHERE o.id <> 'a b' OR o.tenant_id = 1;
        INSERT INTO shop.item_notes SELECT id, id, 'note ' || id FROM shop.items WHERE id % 3 = 0;
        INSERT INTO shop.order_tags
        SELECT o.tenant_id, o.id, t.id FROM shop.orders AS o, shop.tags AS t
        WHERE (o.tenant_id + length(o.id) + t.id) % 2 = 0;
        INSERT INTO shop.payments
        SELECT row_number() OVER (), o.tenant_id, o.id, CASE WHEN o.id <> 'a' THEN 'a' END, length(o.id)
        FROM shop.orders AS o
        """
    )


def key_of(row: dict[str, Any]) -> str:
    """The key of an order, as tubes have it."""
    return json.dumps([row["tenant_id"], row["id"]], ensure_ascii=False)


def by_hand(connection: Conn) -> dict[str, Any]:
    """The documents of `DECLARATION` by key, put together in Python."""
    rows = {
        name: [row for (row,) in connection.execute(f"SELECT row_to_json(t) FROM shop.{name} AS t".encode())]
        for name in TABLES
    }

    def of(table: str, **values: Any) -> list[dict[str, Any]]:
        found = [
            row
            for row in rows[table]
            if all(value is not None and row[name] == value for name, value in values.items())
        ]
        return sorted(found, key=lambda row: [str(row[name]).zfill(9) for name in row if name == "id"])

    documents = {}
    for order in rows["orders"]:
        if order["deleted"]:
            continue
        tenant, number = order["tenant_id"], order["id"]
        customers = of("customers", tenant_id=tenant, id=order["customer_id"])
        joins = of("order_tags", tenant_id=tenant, order_id=number)
        tags = [of("tags", id=place)[0] for place in sorted(one["tag_id"] for one in joins)]
        amounts = [one["amount"] for one in of("payments", tenant_id=tenant, order_id=number)]
        documents[key_of(order)] = {
            "tenant_id": tenant,
            "id": number,
            "status": order["status"],
            "customer_name": customers[0]["name"] if customers else None,
            "items": [
                {
                    "quantity": item["quantity"],
                    "product": {"name": product["name"]},
                    "payments": amounts,
                    "notes": [note["body"] for note in of("item_notes", item_id=item["id"])],
                }
                for item in of("items", tenant_id=tenant, order_id=number)
                for product in of("products", id=item["product_id"])
            ],
            "tags": [tag["name"] for tag in tags],
            "paid": sum(amounts) if amounts else None,
            "replaced": [one["amount"] for one in of("payments", tenant_id=tenant, instead_of=number)],
        }
    return documents
