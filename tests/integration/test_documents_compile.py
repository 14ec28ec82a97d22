"""Declared documents, compiled with real tables: what is read, where paths lead, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytube.config import parse
from pytube.documents.catalogue import Catalogue
from pytube.documents.compile import compile_document
from pytube.documents.model import Document, Link
from pytube.errors import ConfigError
from tests.helpers.documents_compile import DECLARATION, SCHEMA, TABLES, ByHand, Conn, Row, fill

_POSTGRES = '[postgres]\ndsn = "dbname=x"\n'


def compiled(connection: Conn, text: str) -> Document:
    """The only document that a text declares."""
    config = parse(_POSTGRES + text)
    ((name, section),) = config.documents.items()
    return compile_document(name, section, Catalogue(connection))


def documents_of(connection: Conn, document: Document, ids: list[Any]) -> dict[Any, Any]:
    """What the query gives for the ids, by id."""
    rows = connection.execute(document.query.encode(), {"ids": ids}).fetchall()
    found = {key: json.loads(json.dumps(body), parse_float=str) for key, body in rows}
    assert len(found) == len(rows)
    return found


def touched(connection: Conn, link: Link, row: Row) -> set[Any]:
    """The keys of documents that a change of the row touches."""
    value = row[link.column]
    if value is None:
        return set()
    if link.path is None:
        return {value}
    rows = connection.execute(link.path.encode(), {"keys": [value]}).fetchall()
    found = {key for (key,) in rows}
    assert None not in found
    assert len(found) == len(rows)
    return found


@pytest.fixture
def session(any_bare_dsn: str) -> Iterator[Conn]:
    with psycopg.connect(any_bare_dsn, autocommit=True) as connection:
        # Numbers as they are written: 1.0 and 1.00 are two documents.
        psycopg.types.json.set_json_loads(lambda text: json.loads(text, parse_float=str), connection)
        connection.execute(SCHEMA.encode())
        yield connection


@pytest.mark.every_server
@pytest.mark.parametrize("seed", range(3))
def test_the_query_gives_the_documents_that_one_makes_by_hand(session: Conn, seed: int) -> None:
    fill(session, seed)
    document = compiled(session, DECLARATION)
    by_hand = ByHand(session)
    keys = [row["Id"] for row in by_hand.tables["Order"]]
    found = documents_of(session, document, [*keys, "absent"])
    for key, expected in by_hand.documents.items():
        expected["backups"] = found[key]["backups"] and str(expected["backups"])
        assert_same(found[key], expected)
    assert found.keys() == by_hand.documents.keys()


def assert_same(found: Row, expected: Row) -> None:
    numbers = ("backups",)
    for name in numbers:
        left, right = found.pop(name), expected.pop(name)
        assert (left is None) == (right is None)
        assert left is None or float(left) == float(right)
    assert list(found) == list(expected)
    assert found == expected


@pytest.mark.every_server
@pytest.mark.parametrize("seed", range(3))
def test_paths_lead_from_each_row_to_all_documents_that_hold_it(session: Conn, seed: int) -> None:
    fill(session, seed)
    document = compiled(session, DECLARATION)
    by_hand = ByHand(session)
    exact = {"items", "labels", "item_labels", "Customers"}
    for table in TABLES:
        links = [link for link in document.links if link.table.table == table]
        assert links
        for row in by_hand.tables[table]:
            holders = by_hand.holders_of(table, row)
            reached = set[Any]().union(*(touched(session, link, row) for link in links))
            assert holders <= reached, (table, row)
            if table in exact:
                assert reached & by_hand.documents.keys() == holders, (table, row)


@pytest.mark.every_server
@pytest.mark.parametrize("seed", range(2))
def test_what_changes_documents_touches_them_by_old_or_new_links(session: Conn, seed: int) -> None:
    """Each value of a row, once changed: what changes is touched by a link that has the column."""
    fill(session, seed)
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


# --- what is refused --------------------------------------------------------------------------------------

PLAIN = """
CREATE SCHEMA shop;
CREATE TABLE shop.addresses (id int PRIMARY KEY, city text);
CREATE TABLE shop.orders (id int PRIMARY KEY, status text, at timestamptz, place point,
    billing int REFERENCES shop.addresses, shipping int REFERENCES shop.addresses,
    code text COLLATE "C", note text);
CREATE TABLE shop.items (id int PRIMARY KEY, "order" int REFERENCES shop.orders, price numeric,
    at date, sku text);
CREATE TABLE shop.tags (item int, tag text);
CREATE TABLE shop.moments (at timestamptz PRIMARY KEY, name text);
CREATE TABLE shop.keyless (id int);
CREATE TABLE shop.wide (a int, b int, PRIMARY KEY (a, b));
CREATE VIEW shop.seen AS SELECT id FROM shop.orders;
CREATE MATERIALIZED VIEW shop.kept AS SELECT id FROM shop.orders;
CREATE TABLE shop.above (id int PRIMARY KEY);
CREATE TABLE shop.below (more int) INHERITS (shop.above);
CREATE FUNCTION shop.looks(text) RETURNS text LANGUAGE sql STABLE AS 'SELECT max(note) FROM shop.orders';
CREATE FUNCTION shop.own(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)';
"""


@pytest.fixture
def plain(any_bare_dsn: str) -> Iterator[Conn]:
    with psycopg.connect(any_bare_dsn, autocommit=True) as connection:
        connection.execute(PLAIN.encode())
        yield connection


def order_with(text: str, fields: str = '["id"]') -> str:
    """A document of orders with more in it, which may be a section of a child."""
    sink = '[tube.orders.sink]\ntype = "jsonl"\n'
    return f'[document.orders]\ntable = "shop.orders"\nfields = {fields}\n{text}\n{sink}'


ITEMS = '[document.orders.items]\nmany = "shop.items"\n'


def items_with(text: str) -> str:
    return order_with(ITEMS + text)


REFUSED = {
    "no table": (
        '[document.d]\ntable = "shop.nothing"\nfields = ["*"]',
        r"^document\.d: there is no table shop\.nothing; correct the name",
    ),
    "a view": (
        '[document.d]\ntable = "shop.seen"\nfields = ["*"]',
        r"^document\.d: shop\.seen is a view.*write a query",
    ),
    "a materialized view as a child": (
        order_with('[document.orders.x]\nmany = "shop.kept"\non = {id="id"}\nfields = ["id"]'),
        r"^document\.orders\.x: shop\.kept is a materialized view",
    ),
    "a parent of others": (
        '[document.d]\ntable = "shop.above"\nfields = ["*"]',
        r"^document\.d: other tables inherit from shop\.above.*partitioned",
    ),
    "a table of Postgres": (
        '[document.d]\ntable = "pg_catalog.pg_class"\nfields = ["*"]',
        r"^document\.d: pg_catalog\.pg_class is temporary or Postgres' own",
    ),
    "no primary key": (
        '[document.d]\ntable = "shop.keyless"\nfields = ["*"]',
        r"^document\.d: shop\.keyless has no primary key.*write a query",
    ),
    "a primary key of two columns": (
        '[document.d]\ntable = "shop.wide"\nfields = ["*"]',
        r"^document\.d: shop\.wide has a primary key of several columns, a, b,",
    ),
    "a key of another type": (
        '[document.d]\ntable = "shop.moments"\nfields = ["*"]',
        r"^document\.d: the primary key at of shop\.moments is of type timestamp with time zone",
    ),
    "no such column": (
        order_with("", '["statuss"]'),
        r'^document\.orders\.fields: \'statuss\': column "statuss" does not exist',
    ),
    "a hint names the column alone": (
        order_with("", '["statu"]'),
        r'Perhaps you meant to reference the column "status"',
    ),
    "two foreign keys": (
        order_with('[document.orders.address]\none = "shop.addresses"\nfields = ["city"]'),
        (
            r"^document\.orders\.address: there are 2 foreign keys between shop\.orders and shop\.addresses, by "
            r"billing; shipping; choose one with by"
        ),
    ),
    "by names none": (
        order_with('[document.orders.address]\none = "shop.addresses"\nby = "home"\nfields = ["city"]'),
        r"^document\.orders\.address: there is no foreign key .* by home; choose one of: billing; shipping",
    ),
    "no foreign key": (
        order_with('[document.orders.tags]\nmany = "shop.tags"\nfields = ["tag"]'),
        r"^document\.orders\.tags: there is no foreign key between shop\.orders and shop\.tags; say on = \{",
    ),
    "one where there are many": (
        order_with('[document.orders.item]\none = "shop.items"\nfields = ["id"]'),
        r"^document\.orders\.item: the foreign key is in shop\.items, by order, which is not u.*write many",
    ),
    "many where there is one": (
        items_with('fields = ["id"]\n[document.orders.items.orders]\nmany = "shop.orders"\nfields = ["id"]'),
        r"^document\.orders\.items\.orders: the foreign key is in shop\.items.*write one",
    ),
    "on without such a column": (
        order_with('[document.orders.tags]\nmany = "shop.tags"\non = { id = "itme" }\nfields = ["tag"]'),
        r"^document\.orders\.tags\.on: shop\.tags has no column itme; it has item, tag",
    ),
    "on of types that don't compare": (
        order_with('[document.orders.tags]\nmany = "shop.tags"\non = { id = "tag" }\nfields = ["tag"]'),
        (
            r"^document\.orders\.tags\.on: shop\.orders\.id is of type integer and shop\.tags\.tag of type text, "
            "which don't compare"
        ),
    ),
    "a link of another type": (
        order_with('[document.orders.m]\none = "shop.moments"\non = { at = "at" }\nfields = ["name"]'),
        r"^document\.orders\.m: shop\.moments joins shop\.orders by at \(timestamp with time zone\)",
    ),
    "a long name": (
        order_with("", f'["status AS {"x" * 64}"]'),
        r"^document\.orders\.fields: .* longer than 63 bytes",
    ),
    "a long name of a child": (
        order_with(f'[document.orders.{"x" * 64}]\nmany = "shop.items"\nfields = ["id"]'),
        r"at most 63 bytes",
    ),
    "a name twice": (
        order_with("", '["status", "note AS status"]'),
        r"^document\.orders: the field 'status' stands there twice",
    ),
    "a name of a field and a child": (
        order_with(ITEMS + 'fields = ["id"]', '["id", "note AS items"]'),
        r"^document\.orders: the field 'items' stands there twice",
    ),
    "a name of a field and a flattened one": (
        order_with(
            '[document.orders.address]\none = "shop.addresses"\nby = "billing"\nfields = ["id"]\nflatten = '
            "true"
        ),
        r"^document\.orders: the field 'id' stands there twice",
    ),
    "no name": (order_with("", '["1 + id"]'), r"^document\.orders\.fields: '1 \+ id' has no name; .* AS"),
    "two in one": (
        order_with("", '["id, status"]'),
        r"^document\.orders\.fields: 'id, status' is more than one expression",
    ),
    "more than an expression": (
        order_with("", '["id AS x FROM shop.orders AS n1, (SELECT) AS _nothing --"]'),
        r"^document\.orders\.fields: .* syntax error",
    ),
    "now": (order_with("", '["now() AS n"]'), r"^document\.orders\.fields: .* uses now\(\), whose result"),
    "the time": (order_with("", '["current_date AS n"]'), r"^document\.orders\.fields: .* uses the time"),
    "age": (order_with("", '["age(at) AS n"]'), r"^document\.orders\.fields: .* uses age\("),
    "random in where": (
        items_with('fields = ["id"]\nwhere = "random() < 0.5"'),
        r"^document\.orders\.items\.where: 'random\(\) < 0.5' uses random\(\)",
    ),
    "random in order_by": (
        items_with('fields = ["id"]\norder_by = "random()"'),
        r"^document\.orders\.items\.order_by: 'random\(\)' uses random\(\)",
    ),
    "a stable function of one's own": (
        order_with("", '["shop.looks(note) AS n"]'),
        r"^document\.orders\.fields: .* uses shop\.looks\(text\).*IMMUTABLE",
    ),
    "a subquery": (
        order_with("", '["(SELECT max(price) FROM shop.items) AS n"]'),
        r"^document\.orders\.fields: .* uses a subquery",
    ),
    "a window function": (
        order_with("", '["row_number() OVER () AS n"]'),
        r"^document\.orders\.fields: .* uses a window function",
    ),
    "several rows": (
        order_with("", '["generate_series(1, id) AS n"]'),
        r"^document\.orders\.fields: .* uses a function that returns several rows",
    ),
    "the whole row": (order_with("", '["n1 AS n"]'), r"^document\.orders\.fields: .* uses the whole row"),
    "a system column": (order_with("", '["xmin AS n"]'), r"^document\.orders\.fields: .* a system column"),
    "DISTINCT": (order_with("", '["DISTINCT id"]'), r"^document\.orders\.fields: .* uses DISTINCT"),
    "an aggregate as a field": (
        order_with("", '["max(id) AS n"]'),
        r"^document\.orders\.fields: 'max\(id\) AS n' is an aggregate",
    ),
    "an aggregate in where": (
        items_with('fields = ["id"]\nwhere = "max(id) > 1"'),
        r"^document\.orders\.items\.where: 'max\(id\) > 1': it is an aggregate",
    ),
    "an aggregate in order_by": (
        items_with('fields = ["id"]\norder_by = "max(id)"'),
        r"^document\.orders\.items\.order_by: ",
    ),
    "an aggregate as a list": (
        items_with('list = "max(id)"'),
        r"^document\.orders\.items\.list: 'max\(id\)' is an aggregate",
    ),
    "a value of many rows": (
        items_with('value = "price"'),
        r"^document\.orders\.items\.value: 'price' has a value for each of many rows; use an aggregate",
    ),
    "an aggregate with a limit": (
        items_with('value = "max(price)"\nlimit = 2'),
        r"^document\.orders\.items\.value: 'max\(price\)' is one for all rows, so order_by and limit",
    ),
    "a condition that is none": (
        items_with('fields = ["id"]\nwhere = "price"'),
        r"^document\.orders\.items\.where: 'price': argument of IS TRUE must be type boolean",
    ),
    "a name of the table above": (
        items_with('fields = ["status"]'),
        r'^document\.orders\.items\.fields: \'status\': column "status" does not exist',
    ),
    "an order that is none": (
        items_with('fields = ["id"]\norder_by = "id ROWS 1 PRECEDING"'),
        r"^document\.orders\.items\.order_by: 'id ROWS 1 PRECEDING' uses more than expressions to order by",
    ),
    "no order of such a type": (
        items_with(
            'fields = ["id"]\n[document.orders.items.orders]\none = "shop.orders"\norder_by = '
            '"place"\nfields = ["id"]'
        ),
        r"^document\.orders\.items\.orders\.order_by: 'place': could not identify an ordering operator",
    ),
    "a tree of too many tables": (
        order_with(
            "".join(
                f'[document.orders.{name}]\nmany = "shop.orders"\non = {{ id = "billing" }}\nfields = '
                f'["status"]\ntree = {{ on = {{ id = "billing" }}, as = "below", depth = 20 }}\n'
                f'[document.orders.{name}.items]\nmany = "shop.items"\nfields = ["id"]\n'
                for name in (f"t{number}" for number in range(13))
            )
        ),
        r"more than 500 tables",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_declared_is_refused_with_its_key(plain: Conn, case: str) -> None:
    text, message = REFUSED[case]
    if "[tube." not in text:
        text += '\n[tube.d.sink]\ntype = "jsonl"\n'
    with pytest.raises(ConfigError, match=message) as caught:
        compiled(plain, text)
    assert ";" in str(caught.value), "it has no remedy"
    found = plain.execute("SELECT count(*) FROM pg_class WHERE relname = '_pytube_expression'").fetchone()
    assert found == (0,)


ALLOWED = (
    "upper(note) AS n",
    "to_char(at, 'YYYY') AS n",
    "at::date AS n",
    "at + interval '1 day' AS n",
    "concat(note, status) AS n",
    "shop.own(note) AS n",
    "CASE WHEN id > 3 THEN 'a -- b' ELSE 'c'';' END AS n",
    "coalesce(note, status) -- a comment\n AS n",
    "place AS n",
    "to_jsonb(note) || to_jsonb(ARRAY[1, 2]) AS n",
    "ARRAY[id, billing] AS n",
    'id % 3 AS "n%"',
    'length(note COLLATE "C") AS n',
)


@pytest.mark.parametrize("field", ALLOWED)
def test_what_depends_on_the_row_alone_may_be_a_field(plain: Conn, field: str) -> None:
    plain.execute("INSERT INTO shop.orders (id, note, at) VALUES (7, 'x', '2020-01-02')")
    document = compiled(plain, order_with("", json.dumps(["id", field])))
    found = documents_of(plain, document, [7])
    expected = plain.execute(
        f"SELECT to_json(q) FROM (SELECT id, {field} FROM shop.orders) AS q".encode()
    ).fetchone()
    assert expected is not None
    assert found == {7: expected[0]}
