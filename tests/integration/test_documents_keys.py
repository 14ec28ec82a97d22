"""Declared documents whose root table has a key of several columns: what is read, and where paths lead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytube.documents.model import Document
from pytube.keys import KeyColumn, PartType
from pytube.model import KeyType
from tests.conftest import Servers
from tests.helpers.documents_compile import Conn, compiled, documents_of, touched
from tests.helpers.documents_tenants import DECLARATION, SCHEMA, TABLES, by_hand, fill, key_of

SINK = '[tube.orders.sink]\ntype = "jsonl"\n'


@pytest.fixture
def session(any_bare_dsn: str) -> Iterator[Conn]:
    with psycopg.connect(any_bare_dsn, autocommit=True) as connection:
        connection.execute(SCHEMA.encode())
        fill(connection)
        yield connection


def keys_of(session: Conn) -> list[str]:
    return [key_of(row) for (row,) in session.execute("SELECT row_to_json(o) FROM shop.orders AS o")]


@pytest.mark.every_server
def test_documents_are_those_made_by_hand(session: Conn) -> None:
    document = compiled(session, DECLARATION + SINK)
    assert document.key_type is KeyType.TEXT
    assert document.key_columns == (KeyColumn("tenant_id", PartType.BIGINT), KeyColumn("id", PartType.TEXT))
    assert documents_of(session, document, [*keys_of(session), '[1, "absent"]', "[3]"]) == by_hand(session)


def test_tables_with_all_of_the_key_hold_it_and_others_are_relations(session: Conn) -> None:
    document = compiled(session, DECLARATION + SINK)
    assert [(link.table.table, link.by, link.shard_by) for link in document.own] == [
        ("orders", ("tenant_id", "id"), "tenant_id"),
        ("items", ("tenant_id", "order_id"), "tenant_id"),
        ("payments", ("tenant_id", "order_id"), "tenant_id"),
        ("order_tags", ("tenant_id", "order_id"), "tenant_id"),
    ]
    assert {(link.table.table, link.by, link.key_type) for link in document.relations} == {
        ("customers", ("id",), KeyType.UUID),
        ("products", ("id",), KeyType.BIGINT),
        ("item_notes", ("item_id",), KeyType.BIGINT),
        ("tags", ("id",), KeyType.BIGINT),
        ("payments", ("instead_of",), KeyType.TEXT),
    }
    assert all(set(link.by) <= set(link.columns) for link in document.links)
    assert document.missing_indexes == ()


def test_a_row_that_lacks_a_part_of_the_key_leads_to_no_document(session: Conn) -> None:
    document = compiled(session, DECLARATION + SINK)
    (notes,) = [link for link in document.relations if link.table.table == "item_notes"]
    assert len(touched(session, notes, {"item_id": 3})) == 1
    session.execute("UPDATE shop.items SET tenant_id = NULL WHERE id = 3")
    assert touched(session, notes, {"item_id": 3}) == set()


@pytest.mark.every_server
def test_what_changes_documents_touches_them(session: Conn) -> None:
    """Each value of each row, once changed: by old or new links the documents are reached that differ."""
    document = compiled(session, DECLARATION + SINK)
    keys = keys_of(session)
    before = documents_of(session, document, keys)
    changes = 0
    for table in TABLES:
        names = [name for (name,) in session.execute(_COLUMNS, [f"shop.{table}"])]
        for column in names:
            for place in _places(session, table)[:6]:
                with session.transaction(force_rollback=True):
                    rows = _changed(session, table, place, column)
                    after = documents_of(session, document, keys) if rows else before
                    different = {key for key in keys if before.get(key) != after.get(key)}
                    assert different <= _reached(session, document, table, column, rows), (column, rows)
                    changes += len(different)
    assert changes > 50


_COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum"


def _places(session: Conn, table: str) -> list[str]:
    return [place for (place,) in session.execute(f"SELECT ctid::text FROM shop.{table}".encode())]


def _reached(
    session: Conn, document: Document, table: str, column: str, rows: list[dict[str, Any]]
) -> set[str]:
    links = [link for link in document.links if link.table.table == table and column in link.columns]
    return {key for row in rows for link in links for key in touched(session, link, row)}


def _changed(session: Conn, table: str, place: str, column: str) -> list[dict[str, Any]]:
    """The row before and after it takes another row's value, whatever refers to it; nothing if it can't."""
    session.execute("SET LOCAL session_replication_role = replica")
    try:
        with session.transaction():
            row = session.execute(
                f"""WITH o AS (SELECT row_to_json(t) AS row FROM shop.{table} AS t WHERE ctid = %(place)s)
                    UPDATE shop.{table} AS t SET {column} = other.{column} FROM (
                        SELECT a.{column} FROM shop.{table} AS a, shop.{table} AS t
                        WHERE t.ctid = %(place)s AND a.{column} IS DISTINCT FROM t.{column}
                        ORDER BY a.{column}::text LIMIT 1) AS other
                    WHERE t.ctid = %(place)s RETURNING (SELECT row FROM o), row_to_json(t)""".encode(),
                {"place": place},
            ).fetchone()
    except psycopg.errors.IntegrityError:
        return []
    return [] if row is None else list(row)


EVERYTHING = """
CREATE SCHEMA shop;
CREATE TYPE shop."Kind of" AS ENUM ('plain', 'odd "one"');
CREATE DOMAIN shop.code AS varchar(9);
CREATE TABLE shop.all_types ("50% (a)" text COLLATE "C", ids smallint, shard uuid, day date, flag boolean,
    kind shop."Kind of", code shop.code, n bigint, value text,
    PRIMARY KEY ("50% (a)", ids, shard, day, flag, kind, code, n));
"""


@pytest.mark.every_server
def test_a_key_of_every_type(any_bare_dsn: str) -> None:
    with psycopg.connect(any_bare_dsn, autocommit=True) as session:
        session.execute(EVERYTHING.encode())
        session.execute("SET DateStyle = 'German'; SET extra_float_digits = 0")
        document = compiled(
            session,
            '[document.all]\ntable = "shop.all_types"\nfields = ["value"]\n[tube.all.sink]\ntype="jsonl"',
        )
        uuid = "6f1f2a34-9c1d-4b5e-8f77-0123456789ab"
        rows: list[list[Any]] = [
            ['a"', -1, uuid, "2026-02-28", True, "plain", "x", 2**62],
            ["ü", 7, uuid, "0001-01-01 BC", False, 'odd "one"', "", 0],
        ]
        for number, row in enumerate(rows):
            session.execute(
                "INSERT INTO shop.all_types VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)", [*row, f"v{number}"]
            )
        gone = [*rows[0][:5], "no such label", *rows[0][6:]]
        keys = [json.dumps(row, ensure_ascii=False) for row in [*rows, gone]]
        assert documents_of(session, document, keys) == {
            keys[0]: {"value": "v0"},
            keys[1]: {"value": "v1"},
        }


def test_a_text_that_its_collation_finds_is_not_the_one_that_was_asked_for(servers: Servers) -> None:
    # Of our servers only the system's knows ICU.
    with (
        servers.get("system").database(installed=False) as dsn,
        psycopg.connect(dsn, autocommit=True) as session,
    ):
        session.execute("""
            CREATE SCHEMA shop;
            CREATE COLLATION shop.loose
                (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
            CREATE TABLE shop.words (n int, word text COLLATE shop.loose, PRIMARY KEY (n, word));
            INSERT INTO shop.words VALUES (1, 'A')""")
        document = compiled(
            session, '[document.d]\ntable = "shop.words"\nfields = ["word"]\n[tube.d.sink]\ntype = "jsonl"'
        )
        assert documents_of(session, document, ['[1, "a"]']) == {'[1, "A"]': {"word": "A"}}
