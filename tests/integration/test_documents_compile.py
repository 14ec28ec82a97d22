"""Declared documents, compiled with real tables: what is read, where paths lead, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytube.documents.model import Document
from tests.helpers.documents_compile import (
    DECLARATION,
    SCHEMA,
    TABLES,
    ByHand,
    Conn,
    Row,
    compiled,
    documents_of,
    fill,
    touched,
)


@pytest.fixture
def session(any_bare_dsn: str) -> Iterator[Conn]:
    with psycopg.connect(any_bare_dsn, autocommit=True) as connection:
        # Numbers as they are written: 1.0 and 1.00 are two documents.
        psycopg.types.json.set_json_loads(lambda text: json.loads(text, parse_float=str), connection)
        connection.execute(SCHEMA.encode())
        yield connection


@pytest.mark.every_server
@pytest.mark.parametrize("seed", range(2))
def test_documents_are_those_made_by_hand_and_paths_lead_to_them(session: Conn, seed: int) -> None:
    fill(session, seed)
    document = compiled(session, DECLARATION)
    by_hand = ByHand(session)
    keys = [row["Id"] for row in by_hand.tables["Order"]]
    found = documents_of(session, document, [*keys, "absent"])
    assert found.keys() == by_hand.documents.keys()
    for key, expected in by_hand.documents.items():
        _assert_same(found[key], expected)
    for table in TABLES:
        _assert_paths_lead_to_all_holders(session, document, by_hand, table)


def _assert_same(found: Row, expected: Row) -> None:
    left, right = found.pop("backups"), expected.pop("backups")  # Postgres has more digits than a float
    assert (left is None) == (right is None)
    assert left is None or float(left) == float(right)
    assert list(found) == list(expected)
    assert found == expected


def _assert_paths_lead_to_all_holders(session: Conn, document: Document, by_hand: ByHand, table: str) -> None:
    links = [link for link in document.links if link.table.table == table]
    assert links
    for row in by_hand.tables[table]:
        holders = by_hand.holders_of(table, row)
        reached = set[Any]().union(*(touched(session, link, row) for link in links))
        assert holders <= reached, (table, row)
        if table in {"items", "labels", "item_labels", "Customers"}:  # joined by one column, without where
            assert reached & by_hand.documents.keys() == holders, (table, row)


@pytest.mark.every_server
def test_what_changes_documents_touches_them_by_old_or_new_links(session: Conn) -> None:
    """Each value of a row, once changed: what changes is touched by a link that has the column."""
    fill(session, 7)
    session.execute("SELECT setseed(0.5)")
    document = compiled(session, DECLARATION)
    keys = [key for (key,) in session.execute('SELECT "Id" FROM "My Shop"."Order"')]
    before = documents_of(session, document, keys)
    changes = 0
    for table, columns in TABLES.items():
        links = [link for link in document.links if link.table.table == table]
        for column in columns:
            for place in _places(session, table)[:8]:
                with session.transaction(force_rollback=True):
                    rows = _changed(session, table, place, column)
                    after = documents_of(session, document, keys) if rows else before
                    different = {key for key in keys if before.get(key) != after.get(key)}
                    reached = {
                        key
                        for row in rows
                        for link in links
                        if column in link.columns
                        for key in touched(session, link, row)
                    }
                    assert different <= reached, (table, column, rows)
                    changes += len(different)
    assert changes > 100


def _places(session: Conn, table: str) -> list[str]:
    return [place for (place,) in session.execute(f'SELECT ctid::text FROM "My Shop"."{table}"'.encode())]


def _changed(session: Conn, table: str, place: str, column: str) -> list[Row]:
    """The row before and after it takes another row's value; nothing when it can't."""
    name = f'"My Shop"."{table}"'
    quoted = '"' + column.replace('"', '""') + '"'
    old = session.execute(
        f"SELECT row_to_json(t) FROM {name} AS t WHERE ctid = %s".encode(), [place]
    ).fetchone()
    try:
        with session.transaction():
            new = session.execute(
                f"""UPDATE {name} AS t SET {quoted} = o.{quoted} FROM (
                        SELECT o.{quoted} FROM {name} AS o, {name} AS t
                        WHERE t.ctid = %(place)s AND o.{quoted} IS DISTINCT FROM t.{quoted}
                        ORDER BY random() LIMIT 1) AS o
                    WHERE t.ctid = %(place)s RETURNING row_to_json(t)""".encode(),
                {"place": place},
            ).fetchone()
    except (psycopg.errors.IntegrityError, psycopg.errors.ProgrammingError):
        return []
    assert old is not None
    return [] if new is None else [old[0], new[0]]


OWN_EQUALITY = """
CREATE SCHEMA shop;
CREATE SCHEMA other;
CREATE TYPE other.mail AS (address text);
CREATE FUNCTION other.compare(other.mail, other.mail) RETURNS int LANGUAGE sql IMMUTABLE STRICT
    RETURN pg_catalog.bttextcmp(lower(($1).address), lower(($2).address));
CREATE FUNCTION other.equals(other.mail, other.mail) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT
    RETURN other.compare($1, $2) = 0;
CREATE FUNCTION other.below(other.mail, other.mail) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT
    RETURN other.compare($1, $2) < 0;
CREATE FUNCTION other.up_to(other.mail, other.mail) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT
    RETURN other.compare($1, $2) <= 0;
CREATE OPERATOR other.= (LEFTARG = other.mail, RIGHTARG = other.mail, FUNCTION = other.equals);
CREATE OPERATOR other.< (LEFTARG = other.mail, RIGHTARG = other.mail, FUNCTION = other.below);
CREATE OPERATOR other.<= (LEFTARG = other.mail, RIGHTARG = other.mail, FUNCTION = other.up_to);
CREATE OPERATOR other.> (LEFTARG = other.mail, RIGHTARG = other.mail, FUNCTION = other.below);
CREATE OPERATOR other.>= (LEFTARG = other.mail, RIGHTARG = other.mail, FUNCTION = other.up_to);
CREATE OPERATOR CLASS other.mails DEFAULT FOR TYPE other.mail USING btree AS
    OPERATOR 1 other.<, OPERATOR 2 other.<=, OPERATOR 3 other.=, OPERATOR 4 other.>=, OPERATOR 5 other.>,
    FUNCTION 1 other.compare(other.mail, other.mail);
CREATE TABLE shop.users (tenant int, mail other.mail, name text, PRIMARY KEY (tenant, mail));
CREATE TABLE shop.orders (id int PRIMARY KEY, tenant int, mail other.mail,
    FOREIGN KEY (tenant, mail) REFERENCES shop.users);
INSERT INTO shop.users VALUES (1, '(Ada@x)', 'Ada');
INSERT INTO shop.orders VALUES (7, 1, '(Ada@x)'), (8, 1, '(ADA@x)');
"""


@pytest.mark.every_server
def test_rows_belong_together_as_foreign_keys_have_it(any_bare_dsn: str) -> None:
    """By a type whose = is not in the search path: of citext in a schema of its own that is so."""
    with psycopg.connect(any_bare_dsn, autocommit=True) as connection:
        connection.execute(OWN_EQUALITY.encode())
        document = compiled(
            connection,
            """
            [document.orders]
            table = "shop.orders"
            fields = ["id"]
            [document.orders.user]
            one = "shop.users"
            fields = ["name"]
            [tube.orders.sink]
            type = "jsonl"
            """,
        )
        names = {key: one["user"]["name"] for key, one in documents_of(connection, document, [7, 8]).items()}
        assert names == {7: "Ada", 8: "Ada"}
        (users,) = [link for link in document.links if link.table.table == "users"]
        assert touched(connection, users, {"tenant": 1, "mail": "(Ada@x)"}) == {7, 8}


HIJACKED = """
CREATE SCHEMA shop;
CREATE TABLE shop.categories (code varchar(9) PRIMARY KEY, name varchar(9));
CREATE TABLE shop.products (code varchar(9) PRIMARY KEY, category varchar(9) REFERENCES shop.categories,
    part varchar(9), maker varchar(9));
CREATE TABLE shop.parts (product varchar(9), maker varchar(9), name text);
INSERT INTO shop.categories VALUES ('c', 'chairs');
INSERT INTO shop.products VALUES ('p', 'c', 'x', 'm');
INSERT INTO shop.parts VALUES ('p', 'm', 'leg');
CREATE FUNCTION public.hijack(varchar, varchar) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RAISE 'hijacked'; END $$;
CREATE FUNCTION public.hijack(varchar, text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RAISE 'hijacked'; END $$;
CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = public.hijack);
CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = text, FUNCTION = public.hijack);
"""


@pytest.mark.every_server
def test_an_operator_in_the_search_path_is_not_taken_for_that_of_postgres(any_bare_dsn: str) -> None:
    """Whoever may create it would have it run by the roles of workers."""
    with psycopg.connect(any_bare_dsn, autocommit=True) as connection:
        connection.execute(HIJACKED.encode())
        document = compiled(
            connection,
            """
            [document.products]
            table = "shop.products"
            fields = ["code"]
            [document.products.category]
            one = "shop.categories"
            fields = ["name"]
            [document.products.parts]
            many = "shop.parts"
            on = { code = "product", maker = "maker" }
            list = "name"
            [document.products.part]
            one = "shop.parts"
            on = { part = "product", maker = "maker" }
            fields = ["name"]
            [tube.products.sink]
            type = "jsonl"
            """,
        )
        assert documents_of(connection, document, ["p"])["p"]["parts"] == ["leg"]
        for link in document.relations:
            touched(connection, link, {link.column: "c" if link.table.table == "categories" else "m"})
