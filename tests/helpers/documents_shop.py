"""A shop for tests of declared documents: tables, documents, random statements, and the documents by hand.

The tables have every kind of relation that a document can declare: to one, to many, through a join table, a
tree, a table that refers to itself, one that is there twice, one that no foreign key can lead to, and keys of
numbers, texts, uuids and two columns. `documents_by_hand` knows nothing of the compiler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import psycopg

Conn = psycopg.Connection[tuple[Any, ...]]
Documents = dict[str, dict[Any, Any]]
"""Of each document by name: what is sent, by key."""

SCHEMA = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text NOT NULL, tier text NOT NULL,
    seen int NOT NULL DEFAULT 0);
CREATE TABLE shop.sellers (tenant_id int, id text, name text NOT NULL, PRIMARY KEY (tenant_id, id));
CREATE TABLE shop.warehouses (id uuid PRIMARY KEY, city text NOT NULL);
CREATE TABLE shop.products (id bigint PRIMARY KEY, sku text NOT NULL, name text NOT NULL,
    stock int NOT NULL DEFAULT 0, tenant_id int, seller_id text,
    FOREIGN KEY (tenant_id, seller_id) REFERENCES shop.sellers ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE shop.categories (id bigint PRIMARY KEY, name text NOT NULL,
    parent_id bigint REFERENCES shop.categories ON DELETE SET NULL);
CREATE TABLE shop.product_categories (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    product_id bigint NOT NULL REFERENCES shop.products ON DELETE CASCADE ON UPDATE CASCADE,
    category_id bigint NOT NULL REFERENCES shop.categories ON DELETE CASCADE,
    UNIQUE (product_id, category_id));
CREATE TABLE shop.orders (id bigint PRIMARY KEY,
    customer_id bigint REFERENCES shop.customers ON DELETE SET NULL,
    ship_to_id bigint REFERENCES shop.customers ON DELETE SET NULL,
    status text NOT NULL, total numeric NOT NULL DEFAULT 0, deleted_at timestamptz);
CREATE TABLE shop.order_items (id bigint PRIMARY KEY,
    order_id bigint NOT NULL REFERENCES shop.orders ON DELETE CASCADE ON UPDATE CASCADE,
    product_id bigint REFERENCES shop.products ON DELETE SET NULL ON UPDATE CASCADE,
    warehouse_id uuid REFERENCES shop.warehouses ON DELETE SET NULL,
    position int NOT NULL, quantity int NOT NULL, price numeric NOT NULL DEFAULT 1,
    cancelled boolean NOT NULL DEFAULT false);
CREATE TABLE shop.notes (id bigint PRIMARY KEY,
    order_id bigint REFERENCES shop.orders ON DELETE CASCADE ON UPDATE CASCADE,
    parent_id bigint REFERENCES shop.notes ON DELETE CASCADE, body text NOT NULL);
CREATE TABLE shop.attachments (id bigint PRIMARY KEY, owner_type text NOT NULL, owner_id bigint NOT NULL,
    url text NOT NULL);
"""
TABLES = {
    "orders": "id, customer_id, ship_to_id, status, total, deleted_at IS NOT NULL AS is_deleted",
    "customers": "id, name, tier",
    "sellers": "tenant_id, id, name",
    "warehouses": "id, city",
    "products": "id, sku, name, tenant_id, seller_id",
    "categories": "id, name, parent_id",
    "product_categories": "product_id, category_id",
    "order_items": "id, order_id, product_id, warehouse_id, position, quantity, price, cancelled",
    "notes": "id, order_id, parent_id, body",
    "attachments": "id, owner_type, owner_id, url",
}
"""What the documents use of each table."""

DOCUMENTS = """
[document.orders]
table = "shop.orders"
partitions = 2
fields = ["id", "status", "total AS amount", "'order' AS type"]
where = "deleted_at IS NULL"

[document.orders.customer]
one = "shop.customers"
by = "customer_id"
fields = ["name", "tier"]

[document.orders.ship_to]
one = "shop.customers"
by = "ship_to_id"
fields = ["name AS ship_to_name"]
flatten = true

[document.orders.items]
many = "shop.order_items"
fields = ["quantity", "price"]
where = "NOT cancelled"
order_by = "position"

[document.orders.items.warehouse]
one = "shop.warehouses"
fields = ["city"]

[document.orders.items.product]
one = "shop.products"
fields = ["sku", "name"]

[document.orders.items.product.seller]
one = "shop.sellers"
fields = ["name"]

[document.orders.items.product.categories]
many = "shop.categories"
through = "shop.product_categories"
fields = ["name"]
order_by = "name"

[document.orders.items.product.categories.parent]
one = "shop.categories"
by = "parent_id"
fields = ["name"]

[document.orders.total_quantity]
many = "shop.order_items"
where = "NOT cancelled"
value = "coalesce(sum(quantity), 0)"

[document.orders.notes]
many = "shop.notes"
by = "order_id"
where = "parent_id IS NULL"
fields = ["body"]
tree = { by = "parent_id", as = "replies", depth = 3 }

[document.orders.attachments]
many = "shop.attachments"
on = { id = "owner_id" }
where = "owner_type = 'order'"
list = "url"

[document.products]
table = "shop.products"
partitions = 1
fields = ["id", "sku", "name"]

[document.products.seller]
one = "shop.sellers"
fields = ["name AS seller_name"]
flatten = true

[document.products.categories]
many = "shop.categories"
through = "shop.product_categories"
list = "name"
order_by = "name"

[document.products.sold]
many = "shop.order_items"
where = "NOT cancelled"
fields = ["quantity"]

[document.products.sold.order]
one = "shop.orders"
where = "deleted_at IS NULL"
fields = ["status"]

[document.products.sold.order.customer]
one = "shop.customers"
by = "customer_id"
fields = ["name"]

[document.products.newest]
many = "shop.order_items"
order_by = "id DESC"
limit = 2
list = "quantity"

[document.products.pictures]
many = "shop.attachments"
on = { id = "owner_id" }
where = "owner_type = 'product'"
fields = ["url"]

[document.warehouses]
table = "shop.warehouses"
partitions = 1
fields = ["id", "city"]

[document.warehouses.items]
many = "shop.order_items"
where = "NOT cancelled"
fields = ["quantity"]

[document.warehouses.items.product]
one = "shop.products"
fields = ["name"]

[document.sellers]
table = "shop.sellers"
partitions = 2
shard_by = "tenant_id"
fields = ["*"]

[document.sellers.products]
many = "shop.products"
fields = ["name"]

[document.sellers.products.categories]
many = "shop.categories"
through = "shop.product_categories"
list = "name"
order_by = "name"

[document.sellers.products.sold]
many = "shop.order_items"
where = "NOT cancelled"
fields = ["quantity"]

[document.sellers.products.sold.order]
one = "shop.orders"
where = "deleted_at IS NULL"
fields = ["status"]
"""
NAMES = ("orders", "products", "warehouses", "sellers")


# --- documents by hand -----------------------------------------------------------------------------


class _Row(dict[str, Any]):
    def pick(self, *names: str) -> dict[str, Any]:
        return {name: self[name] for name in names}


Rows = list[_Row]


def documents_by_hand(connection: Conn) -> Documents:
    """All documents as one snapshot of the tables has them, put together in Python.

    Numbers with a fraction are texts, as `from_json` reads them: 1.0 and 1.00 are two documents.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        tables = {name: _rows(connection, name, columns) for name, columns in TABLES.items()}
    shop = _Shop(tables)
    return {
        "orders": {row["id"]: shop.order(row) for row in tables["orders"] if not row["is_deleted"]},
        "products": {row["id"]: shop.product(row) for row in tables["products"]},
        "warehouses": {str(row["id"]): shop.warehouse(row) for row in tables["warehouses"]},
        "sellers": {_key_of(row): shop.seller(row) for row in tables["sellers"]},
    }


def _key_of(row: _Row) -> str:
    return json.dumps([row["tenant_id"], row["id"]], ensure_ascii=False)


def from_json(text: str | bytes) -> Any:
    """A document as it was sent, so that it compares with those by hand."""
    return json.loads(text, parse_float=str)


def _rows(connection: Conn, name: str, columns: str) -> Rows:
    cursor = connection.execute(f"SELECT {columns} FROM shop.{name} ORDER BY 1, 2")
    names = [column.name for column in cursor.description or ()]
    return [_Row(zip(names, row, strict=True)) for row in cursor]


def _number(value: Decimal) -> Any:
    return from_json(str(value))


class _Shop:
    def __init__(self, tables: Mapping[str, Rows]) -> None:
        self.tables = tables

    def one(self, table: str, **values: Any) -> _Row | None:
        if None in values.values():
            return None
        return next(iter(self.many(table, **values)), None)

    def many(self, table: str, **values: Any) -> Rows:
        return [row for row in self.tables[table] if all(row[key] == value for key, value in values.items())]

    def order(self, row: _Row) -> dict[str, Any]:
        customer = self.one("customers", id=row["customer_id"])
        ship_to = self.one("customers", id=row["ship_to_id"])
        items = self.many("order_items", order_id=row["id"], cancelled=False)
        items.sort(key=lambda item: (item["position"], item["id"]))
        files = self.many("attachments", owner_type="order", owner_id=row["id"])
        return {
            "id": row["id"],
            "status": row["status"],
            "amount": _number(row["total"]),
            "type": "order",
            "customer": customer and customer.pick("name", "tier"),
            "ship_to_name": ship_to and ship_to["name"],
            "items": [self._item(item) for item in items],
            "total_quantity": sum(item["quantity"] for item in items),
            "notes": [
                self._note(note, 3)
                for note in self.many("notes", order_id=row["id"])
                if note["parent_id"] is None
            ],
            "attachments": [file["url"] for file in files],
        }

    def _item(self, item: _Row) -> dict[str, Any]:
        warehouse = self.one("warehouses", id=item["warehouse_id"])
        product = self.one("products", id=item["product_id"])
        return {
            "quantity": item["quantity"],
            "price": _number(item["price"]),
            "warehouse": warehouse and warehouse.pick("city"),
            "product": product
            and {
                **product.pick("sku", "name"),
                "seller": self._seller(product),
                "categories": [
                    {"name": category["name"], "parent": self._parent(category)}
                    for category in self._categories(product)
                ],
            },
        }

    def _seller(self, product: _Row) -> dict[str, Any] | None:
        seller = self.one("sellers", tenant_id=product["tenant_id"], id=product["seller_id"])
        return seller and seller.pick("name")

    def _parent(self, category: _Row) -> dict[str, Any] | None:
        parent = self.one("categories", id=category["parent_id"])
        return parent and parent.pick("name")

    def _categories(self, product: _Row) -> Rows:
        joins = self.many("product_categories", product_id=product["id"])
        found = [row for join in joins for row in self.many("categories", id=join["category_id"])]
        return sorted(found, key=lambda row: (row["name"], row["id"]))

    def _note(self, note: _Row, depth: int) -> dict[str, Any]:
        if depth == 1:
            return note.pick("body")
        replies = self.many("notes", parent_id=note["id"])
        return {**note.pick("body"), "replies": [self._note(reply, depth - 1) for reply in replies]}

    def product(self, row: _Row) -> dict[str, Any]:
        items = self.many("order_items", product_id=row["id"])
        files = self.many("attachments", owner_type="product", owner_id=row["id"])
        seller = self._seller(row)
        return {
            **row.pick("id", "sku", "name"),
            "seller_name": seller and seller["name"],
            "categories": [category["name"] for category in self._categories(row)],
            "sold": [
                {"quantity": item["quantity"], "order": self._order_of(item)}
                for item in items
                if not item["cancelled"]
            ],
            "newest": [item["quantity"] for item in reversed(items)][:2],
            "pictures": [file.pick("url") for file in files],
        }

    def _order_of(self, item: _Row) -> dict[str, Any] | None:
        order = self.one("orders", id=item["order_id"], is_deleted=False)
        if order is None:
            return None
        customer = self.one("customers", id=order["customer_id"])
        return {**order.pick("status"), "customer": customer and customer.pick("name")}

    def seller(self, row: _Row) -> dict[str, Any]:
        products = self.many("products", tenant_id=row["tenant_id"], seller_id=row["id"])
        return {
            **row,
            "products": [
                {
                    "name": product["name"],
                    "categories": [category["name"] for category in self._categories(product)],
                    "sold": [
                        {"quantity": item["quantity"], "order": self._status_of(item)}
                        for item in self.many("order_items", product_id=product["id"], cancelled=False)
                    ],
                }
                for product in products
            ],
        }

    def _status_of(self, item: _Row) -> dict[str, Any] | None:
        order = self.one("orders", id=item["order_id"], is_deleted=False)
        return order and order.pick("status")

    def warehouse(self, row: _Row) -> dict[str, Any]:
        items = self.many("order_items", warehouse_id=row["id"], cancelled=False)
        return {
            "id": str(row["id"]),
            "city": row["city"],
            "items": [
                {"quantity": item["quantity"], "product": product and product.pick("name")}
                for item in items
                for product in [self.one("products", id=item["product_id"])]
            ],
        }


# --- random statements -----------------------------------------------------------------------------

_STATEMENTS = [
    # orders
    (6, """INSERT INTO shop.orders (id, customer_id, ship_to_id, status, total)
        VALUES ({order}, {a_customer}, {a_customer}, {word}, {money})
        ON CONFLICT (id) DO UPDATE SET total = excluded.total, status = excluded.status"""),
    (2, "UPDATE shop.orders SET customer_id = {a_customer} WHERE id = {order}"),
    (2, "UPDATE shop.orders SET ship_to_id = {a_customer} WHERE id = {some_order}"),
    (2, "UPDATE shop.orders SET deleted_at = {deleted} WHERE id = {order}"),
    (1, "DELETE FROM shop.orders WHERE id = {order}"),
    (1, "UPDATE shop.orders SET id = {order} WHERE id = {order}"),
    # customers
    (3, "INSERT INTO shop.customers VALUES ({customer}, {word}, 'x') ON CONFLICT DO NOTHING"),
    (3, "UPDATE shop.customers SET name = {word}, seen = seen + 1 WHERE id = {customer}"),
    (1, "UPDATE shop.customers SET seen = seen + 1"),
    (1, "DELETE FROM shop.customers WHERE id = {customer}"),
    # items
    (10, """INSERT INTO shop.order_items
        SELECT {item}, o.id, {some_product}, {a_warehouse}, {small}, {small}, {money}
        FROM (SELECT {some_order}) AS o (id) WHERE o.id IS NOT NULL ON CONFLICT DO NOTHING"""),
    (3, """UPDATE shop.order_items SET order_id = o.id FROM (SELECT {some_order}) AS o (id)
        WHERE order_items.id = {some_item} AND o.id IS NOT NULL"""),
    (3, "UPDATE shop.order_items SET product_id = {some_product} WHERE id = {some_item}"),
    (2, "UPDATE shop.order_items SET warehouse_id = {a_warehouse} WHERE id = {item}"),
    (2, "UPDATE shop.order_items SET cancelled = NOT cancelled WHERE id = {item}"),
    (1, """UPDATE shop.order_items AS a SET quantity = b.quantity, price = b.price, position = b.position
        FROM shop.order_items AS b WHERE a.id IN ({item}, {item}) AND b.id = {item}"""),
    (2, "DELETE FROM shop.order_items WHERE id = {item}"),
    # products and their sellers
    (6, """INSERT INTO shop.products (id, sku, name, tenant_id, seller_id)
        SELECT {product}, 's', {word}, s.tenant_id, s.id FROM (SELECT 1) AS one
        LEFT JOIN shop.sellers AS s ON (s.tenant_id, s.id) = ({tenant}, {seller}) ON CONFLICT DO NOTHING"""),
    (3, "UPDATE shop.products SET name = {word} WHERE id = {some_product}"),
    (1, "UPDATE shop.products SET stock = stock + 1"),
    (2, """UPDATE shop.products SET (tenant_id, seller_id) = (SELECT tenant_id, id FROM shop.sellers
        WHERE (tenant_id, id) = ({tenant}, {seller})) WHERE id = {some_product}"""),
    (1, "DELETE FROM shop.products WHERE id = {product}"),
    (1, "UPDATE shop.products SET id = {product} WHERE id = {product}"),
    (3, "INSERT INTO shop.sellers VALUES ({tenant}, {seller}, {word}) ON CONFLICT DO NOTHING"),
    (2, "UPDATE shop.sellers SET name = {word} WHERE (tenant_id, id) = ({tenant}, {seller})"),
    (1, "UPDATE shop.sellers SET tenant_id = {tenant} WHERE (tenant_id, id) = ({tenant}, {seller})"),
    (1, "UPDATE shop.sellers SET id = {seller} WHERE (tenant_id, id) = ({tenant}, {seller})"),
    (1, "DELETE FROM shop.sellers WHERE (tenant_id, id) = ({tenant}, {seller})"),
    # warehouses
    (3, "INSERT INTO shop.warehouses VALUES ({warehouse}, {word}) ON CONFLICT DO NOTHING"),
    (2, "UPDATE shop.warehouses SET city = {word} WHERE id = {warehouse}"),
    (1, "DELETE FROM shop.warehouses WHERE id = {warehouse}"),
    # categories and the join table
    (5, """INSERT INTO shop.categories VALUES ({category}, {word}, {a_category}) ON CONFLICT DO NOTHING"""),
    (3, "UPDATE shop.categories SET name = {word} WHERE id = {some_category}"),
    (2, "UPDATE shop.categories SET parent_id = {a_category} WHERE id = {category}"),
    (1, "DELETE FROM shop.categories WHERE id = {category}"),
    (8, """INSERT INTO shop.product_categories (product_id, category_id)
        SELECT p.id, c.id FROM (SELECT {some_product}, {some_category}) AS pair (product, category)
        JOIN shop.products AS p ON p.id = pair.product JOIN shop.categories AS c ON c.id = pair.category
        ON CONFLICT DO NOTHING"""),
    (4, """UPDATE shop.product_categories SET product_id = p.id FROM (SELECT {some_product}) AS p (id)
        WHERE product_categories.id = {some_join} AND p.id IS NOT NULL"""),
    (2, """UPDATE shop.product_categories SET category_id = c.id FROM (SELECT {some_category}) AS c (id)
        WHERE product_categories.id = {some_join} AND c.id IS NOT NULL"""),
    (2, "DELETE FROM shop.product_categories WHERE id = {some_join}"),
    # notes
    (5, """INSERT INTO shop.notes VALUES ({note}, {a_order}, {some_note}, {word}) ON CONFLICT DO NOTHING"""),
    (2, "INSERT INTO shop.notes VALUES ({note}, {some_order}, NULL, {word}) ON CONFLICT DO NOTHING"),
    (2, "UPDATE shop.notes SET body = {word} WHERE id = {some_note}"),
    (3, "UPDATE shop.notes SET parent_id = {some_note} WHERE id = {some_note}"),
    (1, "UPDATE shop.notes SET order_id = {a_order} WHERE id = {note}"),
    (1, "DELETE FROM shop.notes WHERE id = {note}"),
    # attachments
    (4, """INSERT INTO shop.attachments VALUES ({attachment}, {owner}, {product}, {word})
        ON CONFLICT (id) DO UPDATE SET owner_type = excluded.owner_type, owner_id = excluded.owner_id"""),
    (1, "UPDATE shop.attachments SET url = {word} WHERE id = {attachment}"),
    (1, "DELETE FROM shop.attachments WHERE id = {attachment}"),
    # all at once
    (0.4, "TRUNCATE {truncated}"),
]  # fmt: skip
"""How often each comes, and its text. Numbers are drawn from few, so that statements meet."""
_DRAWN = [" ".join(text.split()) for weight, text in _STATEMENTS for _ in range(round(weight * 5))]
MOVES = [text for text in _DRAWN if re.match(r"UPDATE \S+ SET [^=]*_id\)? =", text)]
"""By which a row is joined to another one."""
CHANGES = [text for text in _DRAWN if text.startswith("UPDATE") and "= {word}" in text]
"""Of what others show of a row."""
_NUMBERS = {
    "order": 5, "item": 9, "product": 4, "category": 5, "note": 8, "customer": 3, "attachment": 6,
    "tenant": 2, "small": 2, "warehouse": 2,
}  # fmt: skip
_TABLE_OF = {
    "order": "orders", "item": "order_items", "product": "products", "category": "categories",
    "note": "notes", "customer": "customers", "join": "product_categories", "warehouse": "warehouses",
}  # fmt: skip
TRUNCATED = (
    "shop.product_categories", "shop.notes", "shop.order_items", "shop.attachments",
    "shop.categories CASCADE", "shop.customers CASCADE", "shop.sellers CASCADE",
    "shop.warehouses CASCADE",
)  # fmt: skip
"""Tables that a TRUNCATE names."""
_WORDS: dict[str, tuple[str, ...]] = {
    "word": tuple(f"'{letter}{letter}'" for letter in "abcdefgh"),
    "money": ("1.0", "1.00", "2"),
    "deleted": ("now()", "NULL"),
    "seller": ("'x'", "'ü\"'"),
    "owner": ("'order'", "'product'", "'other'"),
    "truncated": TRUNCATED,
}  # fmt: skip


Choice = Callable[[Sequence[Any]], Any]
"""One element, as `random.choice` draws it."""
_SALTS = 100


class Statements:
    """Draws statements; those that name a row mostly name one that is there."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._values = _Values(self._value)

    def next(self, among: Sequence[str] = _DRAWN) -> str:
        """A statement that changes rows, or would."""
        return str(self._choice(among).format_map(self._values))

    def _value(self, name: str) -> str:
        if name in _WORDS:
            return str(self._choice(_WORDS[name]))
        kind, _, of = name.partition("_")
        if kind == "some":  # a row that is there, if one is
            salt = self._choice(range(_SALTS))
            return f"(SELECT id FROM shop.{_TABLE_OF[of]} ORDER BY md5(id::text || '{salt}') LIMIT 1)"
        if kind == "a":  # that row, if it is there
            return f"(SELECT id FROM shop.{_TABLE_OF[of]} WHERE id = {self._value(of)})"
        number = self._choice(range(1, _NUMBERS[name] + 1))
        return f"'00000000-0000-4000-8000-{number:012}'::uuid" if name == "warehouse" else str(number)


class _Values(dict[str, str]):
    """What stands for the names in a text: drawn anew at each place."""

    def __init__(self, value: Callable[[str], str]) -> None:
        super().__init__()
        self._value = value

    def __missing__(self, name: str) -> str:
        return self._value(name)
