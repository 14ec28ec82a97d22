"""Plans of declared documents do not depend on statistics: each table is read by what leads to its rows.

Only among indexes that have one column in several places a table of one page leaves nothing to choose by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest

from pytube.keys import part_parameter
from tests.helpers import documents_tenants
from tests.helpers.documents_compile import Conn, compiled

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer_id bigint REFERENCES shop.customers);
CREATE TABLE shop.products (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.items (id bigint PRIMARY KEY, order_id bigint REFERENCES shop.orders,
    product_id bigint REFERENCES shop.products, price numeric);
CREATE TABLE shop.categories (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.product_categories (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    product_id bigint REFERENCES shop.products, category_id bigint REFERENCES shop.categories);
CREATE INDEX ON shop.items (price);
CREATE INDEX ON shop.categories (name);
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


def unled(connection: Conn, statement: str, parameters: Mapping[str, str]) -> list[str]:
    """The tables and indexes that the statement's generic plan reads as a whole; types by parameter."""
    text = statement
    for place, name in enumerate(parameters, 1):
        text = text.replace(f"%({name})s", f"${place}")
    text = text.replace("%%", "%")
    connection.execute("DEALLOCATE ALL", prepare=False)
    types, values = ", ".join(parameters.values()), ", ".join("'{}'" for _ in parameters)
    connection.execute(f"PREPARE documents ({types}) AS {text}".encode(), prepare=False)
    explain = f"EXPLAIN (FORMAT JSON) EXECUTE documents ({values})"
    row = connection.execute(explain.encode(), prepare=False).fetchone()
    assert row is not None
    found = list(scans(row[0][0]["Plan"]))
    assert found
    return [
        f"{scan.get('Index Name', scan.get('Relation Name'))} {scan.get('Index Cond', 'as a whole')}"
        for scan in found
        if not is_led(connection, scan)
    ]


def is_led(connection: Conn, scan: dict[str, Any]) -> bool:
    """Whether a scan begins with a value of its index' first column; by others all of it is read, too."""
    if scan["Node Type"] == "Bitmap Heap Scan":
        return True  # the scan of its index is below it
    if "Index Cond" not in scan:
        return False
    row = connection.execute(
        "SELECT pg_get_indexdef(%s::regclass, 1, true)", [f"shop.{scan['Index Name']}"], prepare=False
    ).fetchone()
    assert row is not None
    return any(f"({name} = " in scan["Index Cond"] for name in (row[0], f"({row[0]})::text"))


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
        ("product_categories (product_id, category_id)", "g, g"),
    ):
        session.execute(
            f"INSERT INTO shop.{table} SELECT {values} FROM generate_series(1, {rows}) g".encode()
        )
    session.execute("ANALYZE")
    document = compiled(session, DECLARATION)
    for statement in document.missing_indexes:
        session.execute(statement.encode())
    session.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off")
    assert unled(session, document.query, {"ids": "bigint[]"}) == []
    for relation in document.relations:
        assert relation.path is not None
        assert unled(session, relation.path, {"keys": "bigint[]"}) == [], relation


@pytest.mark.every_server
def test_nor_where_keys_have_several_columns_and_there_are_some_rows(any_bare_dsn: str) -> None:
    with psycopg.connect(any_bare_dsn, autocommit=True) as session:
        session.execute(documents_tenants.SCHEMA.encode())
        documents_tenants.fill(session)
        session.execute("ANALYZE")
        document = compiled(session, documents_tenants.DECLARATION + '[tube.orders.sink]\ntype = "jsonl"')
        session.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off")
        parts = {part_parameter(n): column.type.array for n, column in enumerate(document.key_columns)}
        assert unled(session, document.query, {"ids": "text[]", **parts}) == []
        for relation in document.relations:
            assert relation.path is not None
            if relation.table.table != "tags":  # the primary key of order_tags has its column, too: see above
                assert unled(session, relation.path, {"keys": f"{relation.key_type}[]"}) == [], relation
