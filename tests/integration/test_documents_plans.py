"""Plans of declared documents do not depend on statistics: each table is read by what leads to its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.helpers.documents_compile import Conn, compiled

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer_id bigint REFERENCES shop.customers);
CREATE TABLE shop.products (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.items (id bigint PRIMARY KEY, order_id bigint REFERENCES shop.orders,
    product_id bigint REFERENCES shop.products, price numeric);
CREATE TABLE shop.categories (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.product_categories (product_id bigint REFERENCES shop.products,
    category_id bigint REFERENCES shop.categories, PRIMARY KEY (product_id, category_id));
CREATE INDEX ON shop.items (price);
CREATE INDEX ON shop.categories (name, id);
"""
DECLARATION = """
[document.orders]
table = "shop.orders"
fields = ["id"]

[document.orders.customer]
one = "shop.customers"
fields = ["name"]

[document.orders.items]
many = "shop.items"
fields = ["price"]

[document.orders.items.product]
one = "shop.products"
fields = ["name AS product"]
flatten = true

[document.orders.items.product.categories]
many = "shop.categories"
through = "shop.product_categories"
fields = ["name"]
order_by = "name"

[document.orders.dearest]
many = "shop.items"
value = "max(price)"

[document.orders.first]
one = "shop.items"
on = { id = "order_id" }
order_by = "price"
fields = ["price"]

[document.orders.last]
many = "shop.items"
list = "id"
order_by = "id DESC"
limit = 1

[tube.orders.sink]
type = "jsonl"
"""


@pytest.fixture
def session(any_bare_dsn: str) -> Iterator[Conn]:
    with psycopg.connect(any_bare_dsn, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        yield connection


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a plan that read tables."""
    if "Relation Name" in plan or "Index Name" in plan:
        yield plan
    for below in plan.get("Plans", ()):
        yield from scans(below)


def unled(connection: Conn, statement: str, parameter: str) -> list[str]:
    """The tables and indexes that the statement's generic plan reads as a whole."""
    text = statement.replace(f"%({parameter})s", "$1").replace("%%", "%")
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE documents (bigint[]) AS {text}".encode())
    row = connection.execute("EXPLAIN (FORMAT JSON) EXECUTE documents ('{1}')").fetchone()
    assert row is not None
    found = list(scans(row[0][0]["Plan"]))
    assert found
    return [
        str(scan.get("Index Name", scan.get("Relation Name")))
        for scan in found
        if "Index Cond" not in scan and scan["Node Type"] != "Bitmap Heap Scan"
    ]


@pytest.mark.every_server
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_no_table_is_read_as_a_whole_whatever_the_statistics_say(session: Conn, rows: int) -> None:
    session.execute("SELECT set_config('session_replication_role', 'replica', false)")
    for table, values in (
        ("customers", "g, 'c'"),
        ("orders", "g, g"),
        ("products", "g, 'p'"),
        ("items", "g, g, g, g"),
        ("categories", "g, 'k' || g"),
        ("product_categories", "g, g"),
    ):
        session.execute(
            f"INSERT INTO shop.{table} SELECT {values} FROM generate_series(1, {rows}) g".encode()
        )
    session.execute("ANALYZE")
    document = compiled(session, DECLARATION)
    for statement in document.missing_indexes:
        session.execute(statement.encode())
    session.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off")
    assert unled(session, document.query, "ids") == []
    for relation in document.relations:
        assert relation.path is not None
        assert unled(session, relation.path, "keys") == [], relation
