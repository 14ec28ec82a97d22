"""What can't be declared as a document: each is refused with the key in the file, and with what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import psycopg
import pytest

from pytube.errors import ConfigError
from tests.helpers.documents_compile import Conn, compiled, documents_of

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
CREATE TABLE shop.amounts (a int, b numeric, PRIMARY KEY (a, b));
CREATE TABLE shop.shares (a int, b real, PRIMARY KEY (a, b));
CREATE TABLE shop.padded (a char(3), b int, PRIMARY KEY (a, b));
CREATE TABLE shop.times (a int, b timestamp, PRIMARY KEY (a, b));
CREATE TABLE shop.wide (a int, b int, PRIMARY KEY (a, b));
CREATE TABLE shop.widest (a int, b int, c int, d int, e int, f int, g int, h int, i int,
    PRIMARY KEY (a, b, c, d, e, f, g, h, i));
CREATE TYPE shop.kind AS ENUM ('one', 'two');
CREATE DOMAIN shop.some_kind AS shop.kind;
CREATE TABLE shop.kinds (a int, b shop.some_kind, PRIMARY KEY (a, b));
CREATE TABLE shop.days (day date, flag bool, PRIMARY KEY (day, flag));
CREATE TABLE shop.day_notes (id int PRIMARY KEY, day date, flag bool, other_day date, other_flag bool,
    FOREIGN KEY (day, flag) REFERENCES shop.days, FOREIGN KEY (other_day, other_flag) REFERENCES shop.days);
CREATE TABLE shop.whole (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE shop.part PARTITION OF shop.whole DEFAULT;
CREATE SCHEMA tube;
CREATE TABLE tube.tube_registry ();
CREATE TABLE tube.outboxes (id int PRIMARY KEY);
CREATE FOREIGN DATA WRAPPER nowhere;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere;
CREATE TABLE shop.spread (id int) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE shop.elsewhere PARTITION OF shop.spread DEFAULT SERVER nowhere;
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
    "an heir of another": (
        '[document.d]\ntable = "shop.below"\nfields = ["*"]',
        r"^document\.d: shop\.below inherits from another table.*partitioned",
    ),
    "a table of Postgres": (
        '[document.d]\ntable = "pg_catalog.pg_class"\nfields = ["*"]',
        r"^document\.d: pg_catalog\.pg_class is temporary, or Postgres' or pytube's own",
    ),
    "a table of pytube": (
        '[document.d]\ntable = "tube.outboxes"\nfields = ["*"]',
        r"^document\.d: tube\.outboxes is temporary, or Postgres' or pytube's own; name a table of yours$",
    ),
    "a foreign partition": (
        '[document.d]\ntable = "shop.spread"\nfields = ["*"]',
        r"^document\.d: the partition shop\.elsewhere of shop\.spread is a foreign table.*; detach it$",
    ),
    "a partition": (
        '[document.d]\ntable = "shop.part"\nfields = ["*"]',
        r"^document\.d: shop\.part is a partition of shop\.whole; name that table$",
    ),
    "no primary key": (
        '[document.d]\ntable = "shop.keyless"\nfields = ["*"]',
        r"^document\.d: shop\.keyless has no primary key.*write a query",
    ),
    "a key of numerics": (
        '[document.d]\ntable = "shop.amounts"\nfields = ["*"]',
        r"^document\.d: b of the primary key of shop\.amounts is of type numeric, but a key of several",
    ),
    "a key of floats": (
        '[document.d]\ntable = "shop.shares"\nfields = ["*"]',
        r"^document\.d: b of the primary key of shop\.shares is of type real, but",
    ),
    "a key of padded texts": (
        '[document.d]\ntable = "shop.padded"\nfields = ["*"]',
        r"^document\.d: a of the primary key of shop\.padded is of type character\(3\), but",
    ),
    "a key of times": (
        '[document.d]\ntable = "shop.times"\nfields = ["*"]',
        r"^document\.d: b of the primary key of shop\.times is of type timestamp without time zone, but",
    ),
    "a key of a domain over an enum": (
        '[document.d]\ntable = "shop.kinds"\nfields = ["*"]',
        r"^document\.d: b of the primary key of shop\.kinds is of type shop\.some_kind, .*no domains over",
    ),
    "a key of nine columns": (
        '[document.d]\ntable = "shop.widest"\nfields = ["*"]',
        r"^document\.d: the primary key of shop\.widest has 9 columns, and 8 are the most",
    ),
    "shard_by is no column of the key": (
        '[document.d]\ntable = "shop.wide"\nshard_by = "c"\nfields = ["*"]',
        r"^document\.d\.shard_by: 'c' is not a column of the primary key of shop\.wide.*write one of: a, b$",
    ),
    "shard_by of a key of one column": (
        '[document.d]\ntable = "shop.orders"\nshard_by = "id"\nfields = ["id"]',
        r"^document\.d\.shard_by: the primary key of shop\.orders has one column, id, .*take it out",
    ),
    "a second way to the key without a column that can be followed alone": (
        (
            '[document.d]\ntable = "shop.days"\nfields = ["*"]\n'
            '[document.d.notes]\nmany = "shop.day_notes"\nby = ["day", "flag"]\nlist = "id"\n'
            '[document.d.others]\nmany = "shop.day_notes"\nby = ["other_day", "other_flag"]\nlist = "id"'
        ),
        r"^document\.d\.others: shop\.day_notes holds keys of documents by other_day, other_flag and in a",
    ),
    "a key of another type": (
        '[document.d]\ntable = "shop.moments"\nfields = ["*"]',
        r"^document\.d: the primary key at of shop\.moments is of type timestamp with time zone",
    ),
    "no such column": (
        order_with("", '["statuss"]'),
        r'^document\.orders\.fields: \'statuss\': column "statuss" does not exist \(.*\); correct it$',
    ),
    "a column of another name": (
        order_with("", '["total"]'),
        r"does not exist; correct it; shop\.orders has id, status, at, place, billing, shipping, code, note$",
    ),
    "a hint names the column alone": (
        order_with("", '["statu"]'),
        r'Perhaps you meant to reference the column "status"',
    ),
    "two foreign keys": (
        order_with('[document.orders.address]\none = "shop.addresses"\nfields = ["city"]'),
        (
            r"^document\.orders\.address: there are 2 foreign keys between shop\.orders and shop\.addresses, "
            r"by billing; shipping; choose one with by"
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
            r"^document\.orders\.tags\.on: shop\.orders\.id is of type integer and shop\.tags\.tag of type "
            "text, which don't compare"
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
        r"^document\.orders\.x+: a field's name has 1 to 63 bytes; give it another one$",
    ),
    "no name of a child": (
        order_with('[document.orders.""]\nmany = "shop.items"\nfields = ["id"]'),
        r'^document\.orders\."": a field\'s name has 1 to 63 bytes',
    ),
    "a long name in a tree": (
        order_with(
            '[document.orders.others]\nmany = "shop.orders"\non = { id = "billing" }\nfields = ["id"]\n'
            f'tree = {{ on = {{ id = "billing" }}, as = "{"x" * 64}", depth = 2 }}'
        ),
        r"^document\.orders\.others\.x+: a field's name has 1 to 63 bytes; give it another one$",
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
    "a text that may be now": (
        order_with("", '["note::timestamptz AS n"]'),
        r"^document\.orders\.fields: .* uses a text as timestamp with time zone, .*write to_timestamp\(text",
    ),
    "texts that may be now": (
        order_with("""where = "at > ANY (note::date[])\""""),
        r"^document\.orders\.where: .* uses a text as date\[\], .*; have a column hold it",
    ),
    "an element that may be now": (
        order_with("", "[\"string_to_array(note, ',')::time[] AS n\"]"),
        r"^document\.orders\.fields: .* uses a text as time",
    ),
    "a range that may be now": (
        order_with("", '["note::tsrange AS n"]'),
        r"^document\.orders\.fields: .* uses a text as tsrange",
    ),
    "all tables": (
        order_with("", "[\"schema_to_xml(note::name, true, false, '')::text AS x\"]"),
        r"^document\.orders\.fields: .* uses schema_to_xml",
    ),
    "all schemas": (
        order_with("", '["database_to_xml(true, false, note)::text AS x"]'),
        r"^document\.orders\.fields: .* uses database_to_xml",
    ),
    "whether a table is there": (
        order_with("", '["to_regclass(note)::text AS x"]'),
        r"^document\.orders\.fields: .* uses to_regclass",
    ),
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
    "a limit of Postgres": (
        order_with("", json.dumps([f"concat({', '.join(['id'] * 101)}) AS n"])),
        r"^document\.orders\.fields: .*: cannot pass more than 100 arguments to a function; correct it$",
    ),
    "DISTINCT": (order_with("", '["DISTINCT id"]'), r"^document\.orders\.fields: .* uses DISTINCT"),
    "UNION": (
        order_with("", '["1 AS e UNION ALL SELECT id"]'),
        r"^document\.orders\.fields: .* uses UNION, INTERSECT or EXCEPT, which is not an expression; remove",
    ),
    "UNION in where": (
        order_with('where = "true) AS e EXCEPT SELECT (true"'),
        r"^document\.orders\.where: .* uses UNION, INTERSECT or EXCEPT",
    ),
    "an aggregate as a field": (
        order_with("", '["max(id) AS n"]'),
        r"^document\.orders\.fields: 'max\(id\) AS n' is an aggregate",
    ),
    "an aggregate in where": (
        items_with('fields = ["id"]\nwhere = "max(id) > 1"'),
        r"^document\.orders\.items\.where: 'max\(id\) > 1' is an aggregate",
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
        r"^document\.orders\.items\.where: 'price' is neither true nor false",
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
    "a field that always fails": (
        order_with("", '["id", "1/0 AS x"]'),
        r"^document\.orders\.fields: '1/0 AS x': division by zero; correct it$",
    ),
    "a field that fails in a branch, which is planned, too": (
        order_with("", "[\"CASE WHEN id > 0 THEN 'a'::text::int END AS x\"]"),
        r"^document\.orders\.fields: .*: invalid input syntax for type integer: \"a\"; correct it$",
    ),
    "a text that is no number": (
        order_with("", "[\"'a'::int AS x\"]"),
        r"^document\.orders\.fields: .*: invalid input syntax for type integer: \"a\"; correct it$",
    ),
    "a condition that always fails": (
        order_with('where = "1/0 = 1"'),
        r"^document\.orders\.where: '1/0 = 1': division by zero; correct it$",
    ),
    "an order that always fails": (
        items_with('fields = ["id"]\norder_by = ["id", "1/0"]'),
        r"^document\.orders\.items\.order_by: 'id, 1/0': division by zero; correct it$",
    ),
    "a list that always fails": (
        items_with('list = "1/0"'),
        r"^document\.orders\.items\.list: '1/0': division by zero; correct it$",
    ),
    "an aggregate that always fails": (
        items_with('value = "sum(1/0)"'),
        r"^document\.orders\.items\.value: 'sum\(1/0\)': division by zero; correct it$",
    ),
    "an own function that fails for a constant": (
        order_with("", "[\"shop.own('a')::int AS x\"]"),
        r"^document\.orders\.fields: .*: invalid input syntax for type integer: \"A\"; correct it$",
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


@pytest.mark.every_server
def test_what_can_not_be_declared_is_refused_with_its_key(plain: Conn) -> None:
    wrong = {}
    for case, (text, message) in REFUSED.items():
        try:
            compiled(plain, text if "[tube." in text else f'{text}\n[tube.d.sink]\ntype = "jsonl"\n')
        except ConfigError as error:
            if re.search(message, str(error)) is None or ";" not in str(error):  # the remedy
                wrong[case] = str(error)
        else:
            wrong[case] = "is taken"
    assert wrong == {}
    left = plain.execute("SELECT count(*) FROM pg_class WHERE relname = '_pytube_expression'").fetchone()
    assert left == (0,)


SMUGGLED = "COMMIT; CREATE TABLE public.smuggled (); COMMIT; BEGIN; SELECT"
ENDS = {
    "fields": order_with("", json.dumps([f"0 AS e; {SMUGGLED} 0 AS e"])),
    "where": order_with(f'where = "true) AS e; {SMUGGLED} (true"'),
    "order_by": items_with(f'fields = ["id"]\norder_by = "id) AS e; {SMUGGLED} (0"'),
    "list": items_with(f'list = "id) AS e; {SMUGGLED} (0"'),
    "value": items_with(f'value = "max(id)) AS e; {SMUGGLED} (0"'),
}
"""By key: a text that ends the statement that it is parsed in, and goes on with others."""


@pytest.mark.parametrize("key", ENDS)
def test_what_ends_the_statement_is_refused_and_nothing_of_it_is_run(plain: Conn, key: str) -> None:
    with pytest.raises(ConfigError, match="cannot insert multiple commands into a prepared statement"):
        compiled(plain, ENDS[key])
    assert plain.execute("SELECT to_regclass('public.smuggled')").fetchone() == (None,)
    compiled(plain, order_with(""))  # the session is as it was


ALLOWED = (
    "upper(note) AS n",
    "to_char(at, 'YYYY') AS n",
    "at::date AS n",
    "to_timestamp(id::text, 'YYYY') AS n",
    "id::text::interval AS n",
    "note::bytea AS n",
    "id::text AS n",
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


@pytest.mark.parametrize("of", ["date", "timestamp", "timestamptz", "time"])
def test_what_to_write_in_place_of_a_text_that_may_be_now(plain: Conn, of: str) -> None:
    """It is taken, and gives the same."""
    plain.execute("SET timezone = 'Asia/Kolkata'")
    text = "14:15:16" if of == "time" else "2020-01-02 14:15:16"
    text = text.removesuffix(" 14:15:16") if of == "date" else text
    plain.execute("INSERT INTO shop.orders (id, note) VALUES (7, %s)", (text,))
    with pytest.raises(ConfigError) as refused:
        compiled(plain, order_with("", json.dumps(["id", f"note::{of} AS n"])))
    remedy = str(refused.value).partition("; write ")[2].partition(", by the format of your texts")[0]
    document = compiled(plain, order_with("", json.dumps(["id", f"{remedy.replace('text', 'note')} AS n"])))
    row = plain.execute(f"SELECT to_json('{text}'::{of})".encode()).fetchone()
    assert row is not None
    assert documents_of(plain, document, [7])[7]["n"] == row[0]


@pytest.mark.every_server
def test_what_depends_on_the_row_alone_may_be_a_field(plain: Conn) -> None:
    plain.execute("INSERT INTO shop.orders (id, note, at) VALUES (7, 'x', '2020-01-02')")
    for field in ALLOWED:
        document = compiled(plain, order_with("", json.dumps(["id", field])))
        row = plain.execute(
            f"SELECT to_json(q)::text FROM (SELECT id, {field} FROM shop.orders) AS q".encode()
        ).fetchone()
        assert row is not None
        assert documents_of(plain, document, [7]) == {7: json.loads(row[0], parse_float=str)}, field


def test_what_fails_for_each_row_is_known_without_the_right_to_read_them(plain: Conn) -> None:
    plain.execute("CREATE ROLE blind; GRANT USAGE ON SCHEMA shop TO blind; SET ROLE blind")
    try:
        assert compiled(plain, order_with("", '["id", "2/1 AS x"]')).name == "orders"
        with pytest.raises(ConfigError, match="division by zero"):
            compiled(plain, order_with("", '["id", "1/0 AS x"]'))
    finally:
        plain.execute("RESET ROLE; DROP OWNED BY blind; DROP ROLE blind")


def test_names_mean_what_they_meant_when_the_file_was_read(plain: Conn) -> None:
    """A function is found by the search path once; the query names it in full."""
    plain.execute("SET search_path = shop")
    document = compiled(plain, order_with("", '["id", "own(note) AS n"]'))
    plain.execute("RESET search_path")
    plain.execute("INSERT INTO shop.orders (id, note) VALUES (7, 'x')")
    assert documents_of(plain, document, [7]) == {7: {"id": 7, "n": "X"}}


def test_a_locked_table_is_named_and_not_waited_for(plain: Conn, any_bare_dsn: str) -> None:
    """Neither `plan` nor the start of a worker waits for another session for ever."""
    plain.execute("SET statement_timeout = '30s'")  # so that the test ends
    with psycopg.connect(any_bare_dsn, application_name="the month-end job") as holder:
        holder.execute("LOCK TABLE shop.addresses IN ACCESS EXCLUSIVE MODE")
        section = '[document.orders.address]\none = "shop.addresses"\nby = "billing"\nfields = ["city"]'
        with pytest.raises(ConfigError) as caught:
            compiled(plain, order_with(section))
    assert "shop.addresses is locked by pid" in str(caught.value)
    assert "(the month-end job, idle in transaction)" in str(caught.value)
