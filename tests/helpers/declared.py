"""Documents by hand, as the compiler would give them: what is to be done does not depend on a query."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import replace

from pytube.config.names import TableName
from pytube.documents.model import Document, Link
from pytube.model import KeyType

SCHEMA = """
    CREATE SCHEMA shop;
    CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text, tier text);
    CREATE TABLE shop.products (id bigint PRIMARY KEY, sku text, name text);
    CREATE TABLE shop.orders (
        id bigint PRIMARY KEY, customer_id bigint REFERENCES shop.customers, status text, total numeric);
    CREATE TABLE shop.order_items (
        id bigint PRIMARY KEY, order_id bigint REFERENCES shop.orders,
        product_id bigint REFERENCES shop.products,
        quantity integer, position integer);
    CREATE TABLE shop.notes (
        id bigint PRIMARY KEY, order_id bigint REFERENCES shop.orders, body text, code uuid);
    INSERT INTO shop.customers SELECT n, 'customer ' || n, 'gold' FROM generate_series(1, 3) AS n;
    INSERT INTO shop.products SELECT n, 'sku ' || n, 'product ' || n FROM generate_series(1, 5) AS n;
    INSERT INTO shop.orders SELECT n, 1 + n % 3, 'new', n FROM generate_series(1, 20) AS n;
    INSERT INTO shop.order_items SELECT n, 1 + n % 20, 1 + n % 5, 1, n FROM generate_series(1, 60) AS n;
"""
"""A shop of twenty orders."""


def link(
    table: str,
    column: str,
    *columns: str,
    path: str | None = None,
    key_type: KeyType = KeyType.BIGINT,
    documents: tuple[float, float] = (1.0, 1.0),
) -> Link:
    """A table of the shop, followed by a column; `columns` come on top of that and of the key."""
    counting = tuple(sorted({column, "id", *columns}))
    sections = (f"document.orders.{table}",)
    return Link(TableName("shop", table), (column,), key_type, counting, path, sections, documents)


ROOT = replace(link("orders", "id", "customer_id", "status"), sections=("document.orders",))
ITEMS = link("order_items", "order_id", "product_id", "quantity")
CUSTOMERS = link(
    "customers", "id", "name", path="SELECT id FROM shop.orders WHERE customer_id = ANY (%(keys)s)"
)
PRODUCTS = link(
    "products",
    "id",
    "name",
    path="SELECT DISTINCT order_id FROM shop.order_items WHERE product_id = ANY (%(keys)s)",
    documents=(12.0, 12.0),
)


def document(
    *links: Link, name: str = "orders", partitions: int = 1, shards: int = 1, query: str = ""
) -> Document:
    """A document with these links; its digest depends on all that a worker would read or follow."""
    chosen: Sequence[Link] = links or (ROOT, ITEMS, CUSTOMERS, PRODUCTS)
    said = [[str(one.table), one.by, one.columns, one.path] for one in chosen]
    text = json.dumps([name, query, said])
    query = query or "SELECT id, row_to_json(o)::text FROM shop.orders AS o WHERE id = ANY (%(ids)s)"
    return Document(
        name, KeyType.BIGINT, partitions, shards, query, tuple(chosen), (), f"{zlib.crc32(text.encode()):08x}"
    )
