"""What the tubes of a declared document follow: links, paths, digests, and what a change costs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytube.config.names import TableName
from pytube.documents.model import Document, Link
from pytube.errors import ConfigError
from pytube.model import KeyType
from tests.conftest import Servers
from tests.helpers.documents_compile import DECLARATION, SCHEMA, Conn, compiled, documents_of, touched
from tests.helpers.roles import as_role, database_name, roles

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer_id bigint REFERENCES shop.customers,
    parent_id bigint REFERENCES shop.orders, status text, seen int);
CREATE TABLE shop.items (id bigint PRIMARY KEY, order_id bigint REFERENCES shop.orders,
    replaces bigint REFERENCES shop.orders, product_id uuid, price numeric, seen int);
CREATE TABLE shop.products (id uuid PRIMARY KEY, name varchar(20));
"""
SINK = '[tube.orders.sink]\ntype = "jsonl"\n'
ORDERS = '[document.orders]\ntable = "shop.orders"\nfields = ["id"]\n'


@pytest.fixture
def session(any_bare_dsn: str) -> Iterator[Conn]:
    with psycopg.connect(any_bare_dsn, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        yield connection


@pytest.fixture
def icu(servers: Servers) -> Iterator[Conn]:
    # Of our servers only the system's knows ICU.
    with (
        servers.get("system").database(installed=False) as dsn,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        connection.execute("""
            CREATE SCHEMA shop;
            CREATE COLLATION shop.loose
                (provider = icu, locale = 'und-u-ks-level2', deterministic = false)""")
        yield connection


def orders(connection: Conn, *sections: str, root: str = ORDERS) -> Document:
    return compiled(connection, root + "".join(f"[document.orders.{text}\n" for text in sections) + SINK)


def followed(document: Document) -> list[tuple[str, str, bool]]:
    """Tables and columns of the links, and whether a path leads on."""
    return [(link.table.table, link.column, link.path is not None) for link in document.links]


def link_to(document: Document, table: str, column: str, *, path: bool = True) -> Link:
    return next(
        link
        for link in document.links
        if (link.table.table, link.column, link.path is not None) == (table, column, path)
    )


ITEMS = 'items]\nmany = "shop.items"\nby = "order_id"\nfields = ["price"]'
PRODUCT = 'items.product]\none = "shop.products"\non = { product_id = "id" }\nfields = ["name"]'


def test_a_table_that_holds_the_key_touches_at_once_and_others_by_a_path(session: Conn) -> None:
    document = orders(session, ITEMS, PRODUCT, 'customer]\none = "shop.customers"\nfields = ["name"]')
    assert followed(document) == [
        ("orders", "id", False),
        ("items", "order_id", False),
        ("products", "id", True),
        ("customers", "id", True),
    ]
    assert document.root is document.links[0]
    assert document.root.table == TableName("shop", "orders")
    assert [link.key_type for link in document.links] == [
        KeyType.BIGINT,
        KeyType.BIGINT,
        KeyType.UUID,
        KeyType.BIGINT,
    ]
    assert document.links[2].sections == ("document.orders.items.product",)


def test_only_columns_that_matter_count(session: Conn) -> None:
    document = orders(
        session,
        ITEMS.replace('"price"', '"price * 2 AS n"') + '\nwhere = "replaces IS NULL"',
        PRODUCT,
        'customer]\none = "shop.customers"\nfields = ["name"]',
        root=ORDERS + "where = \"status <> 'x'\"\n",
    )
    assert [link.columns for link in document.links] == [
        ("customer_id", "id", "status"),
        ("id", "order_id", "price", "product_id", "replaces"),
        ("id", "name"),
        ("id", "name"),
    ]


def test_a_table_by_two_columns_that_hold_keys_has_a_path_for_the_second(session: Conn) -> None:
    document = orders(session, ITEMS, 'replaced_by]\nmany = "shop.items"\nby = "replaces"\nfields = ["id"]')
    assert followed(document) == [
        ("orders", "id", False),
        ("items", "order_id", False),
        ("items", "replaces", True),
    ]
    assert touched(session, document.links[2], {"replaces": 7}) == {7}


def test_the_root_table_again_below_itself(session: Conn) -> None:
    session.execute("INSERT INTO shop.orders (id, parent_id) VALUES (1, NULL), (2, 1), (3, 1)")
    document = orders(
        session,
        'parent]\none = "shop.orders"\nby = "parent_id"\nfields = ["status"]',
        'parts]\nmany = "shop.orders"\nby = "parent_id"\nfields = ["seen"]',
    )
    assert followed(document) == [
        ("orders", "id", False),
        ("orders", "id", True),
        ("orders", "parent_id", True),
    ]
    assert touched(session, document.links[1], {"id": 1}) == {2, 3}
    assert touched(session, document.links[2], {"parent_id": 1}) == {1}
    assert document.root.columns == ("id", "parent_id")
    assert document.links[2].columns == ("id", "parent_id", "seen")


def test_sections_of_one_table_and_column_share_a_link(session: Conn) -> None:
    document = orders(
        session,
        ITEMS,
        'count]\nmany = "shop.items"\nby = "order_id"\nvalue = "count(*) FILTER (WHERE seen > 1)"',
    )
    assert followed(document) == [("orders", "id", False), ("items", "order_id", False)]
    assert document.links[1].columns == ("id", "order_id", "price", "seen")
    assert document.links[1].sections == ("document.orders.items", "document.orders.count")
    assert document.links[1].documents == (1.0, 1.0)


def test_a_row_that_shares_its_parent_s_link_holds_the_key_as_well(session: Conn) -> None:
    session.execute("""
        CREATE TABLE shop.details (order_id bigint PRIMARY KEY REFERENCES shop.orders, a text);
        CREATE TABLE shop.parts (id int PRIMARY KEY, order_id bigint REFERENCES shop.details, b text)""")
    details = 'details]\none = "shop.details"\nfields = ["a"]'
    parts = 'details.parts]\nmany = "shop.parts"\nlist = "b"'
    document = orders(session, details, parts)
    assert followed(document)[1:] == [("details", "order_id", False), ("parts", "order_id", False)]
    # With a condition on the row between it may lead nowhere.
    document = orders(session, f"{details}\nwhere = \"a <> 'x'\"", parts)
    assert followed(document)[1:] == [("details", "order_id", False), ("parts", "order_id", True)]


def test_of_several_columns_the_root_s_key_or_the_last_one_is_followed(session: Conn) -> None:
    session.execute("""
        CREATE TABLE shop.tenants (id bigint, at date, code text, PRIMARY KEY (id, code, at));
        ALTER TABLE shop.orders ADD tenant bigint, ADD code text, ADD at date,
            ADD FOREIGN KEY (tenant, code, at) REFERENCES shop.tenants, ADD UNIQUE (id, tenant);
        CREATE TABLE shop.lines (id int PRIMARY KEY, order_id bigint, tenant bigint,
            FOREIGN KEY (order_id, tenant) REFERENCES shop.orders (id, tenant))""")
    session.execute("""
        INSERT INTO shop.tenants
        VALUES (1, '2020-01-01', 'a'), (2, '2020-01-01', 'a'), (1, '2020-01-02', 'b');
        INSERT INTO shop.orders (id, tenant, code, at)
        VALUES (1, 1, 'a', '2020-01-01'), (2, 2, 'a', '2020-01-01'), (3, 1, 'b', '2020-01-02')""")
    document = orders(
        session,
        'tenant]\none = "shop.tenants"\nfields = ["at"]',
        'lines]\nmany = "shop.lines"\nfields = ["id"]',
    )
    assert followed(document)[1:] == [("tenants", "code", True), ("lines", "order_id", False)]
    assert touched(session, document.links[1], {"code": "a"}) == {1, 2}
    assert documents_of(session, document, [1, 2, 3]) == {
        key: {"id": key, "tenant": {"at": at}, "lines": []}
        for key, at in ((1, "2020-01-01"), (2, "2020-01-01"), (3, "2020-01-02"))
    }


def test_both_keys_of_a_join_table_to_one_table(session: Conn) -> None:
    session.execute(
        "CREATE TABLE shop.pairs (a bigint REFERENCES shop.orders, b bigint REFERENCES shop.orders)"
    )
    session.execute("INSERT INTO shop.orders (id) VALUES (1), (2), (3)")
    session.execute("INSERT INTO shop.pairs VALUES (1, 2), (1, 3), (3, 1)")
    document = orders(
        session, 'related]\nmany = "shop.orders"\nthrough = "shop.pairs"\nby = ["a", "b"]\nlist = "id"'
    )
    assert documents_of(session, document, [1, 2, 3]) == {
        1: {"id": 1, "related": [2, 3]},
        2: {"id": 2, "related": []},
        3: {"id": 3, "related": [1]},
    }
    assert followed(document)[1:] == [("pairs", "a", False), ("orders", "id", True)]
    assert touched(session, document.links[2], {"id": 1}) == {3}
    with pytest.raises(ConfigError, match=r"related\.through: there are 2 foreign keys .*, by a; b; choose"):
        orders(session, 'related]\nmany = "shop.orders"\nthrough = "shop.pairs"\nlist = "id"')


# --- keys of all types ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_name", "key_type", "keys"),
    [
        ("smallint", KeyType.BIGINT, [-1, 2]),
        ("integer", KeyType.BIGINT, [-1, 2]),
        ("uuid", KeyType.UUID, [uuid.UUID(int=1), uuid.UUID(int=2)]),
        ("varchar(9)", KeyType.TEXT, ["a", "%s"]),
        ("shop.code", KeyType.TEXT, ["a", "B "]),
    ],
)
def test_keys_of_each_type(session: Conn, type_name: str, key_type: KeyType, keys: list[Any]) -> None:
    session.execute("CREATE DOMAIN shop.short AS text; CREATE DOMAIN shop.code AS shop.short")
    session.execute(
        f"""
        CREATE TABLE shop.roots (id {type_name} PRIMARY KEY, above {type_name} REFERENCES shop.roots);
        CREATE TABLE shop.leaves (id int PRIMARY KEY, root {type_name} REFERENCES shop.roots)""".encode()
    )
    for place, key in enumerate(keys):
        session.execute("INSERT INTO shop.roots VALUES (%s, %s)", (key, keys[0]))
        session.execute("INSERT INTO shop.leaves VALUES (%s, %s)", (place, key))
    document = compiled(
        session,
        '[document.orders]\ntable = "shop.roots"\nfields = ["id"]\n'
        '[document.orders.leaves]\nmany = "shop.leaves"\nlist = "id"\n'
        '[document.orders.above]\none = "shop.roots"\nby = "above"\nfields = ["id"]\n'
        '[document.orders.above.leaves]\nmany = "shop.leaves"\nlist = "id"\n' + SINK,
    )
    assert document.key_type is key_type
    found = documents_of(session, document, keys)
    assert {key: body["leaves"] for key, body in found.items()} == {keys[0]: [0], keys[1]: [1]}
    assert touched(session, link_to(document, "roots", "id"), {"id": keys[0]}) == set(keys)
    assert touched(session, link_to(document, "leaves", "root"), {"root": keys[0]}) == set(keys)
    assert touched(session, link_to(document, "leaves", "root"), {"root": keys[1]}) == set()
    assert touched(session, link_to(document, "leaves", "root", path=False), {"root": keys[1]}) == {keys[1]}


def test_texts_that_are_equal_and_not_the_same_lead_to_each_key(icu: Conn) -> None:
    icu.execute("""
        CREATE TABLE shop.roots (id text COLLATE shop.loose PRIMARY KEY);
        CREATE TABLE shop.leaves (id int PRIMARY KEY, root text COLLATE shop.loose REFERENCES shop.roots)""")
    icu.execute("INSERT INTO shop.roots VALUES ('Abc'), ('x')")
    icu.execute("INSERT INTO shop.leaves VALUES (1, 'aBC'), (2, 'ABC')")
    root = '[document.orders]\ntable = "shop.roots"\nfields = ["id"]\n'
    document = compiled(icu, root + '[document.orders.l]\nmany = "shop.leaves"\nlist = "id"\n' + SINK)
    assert followed(document) == [("roots", "id", False), ("leaves", "root", True)]
    assert touched(icu, document.links[1], {"root": "aBC"}) == {"Abc"}
    assert documents_of(icu, document, ["Abc"]) == {"Abc": {"id": "Abc", "l": [1, 2]}}


def test_columns_of_two_collations_are_compared_where_that_is_safe(icu: Conn) -> None:
    icu.execute("""
        CREATE TABLE shop.roots (id text COLLATE "C" PRIMARY KEY, other text COLLATE "POSIX");
        CREATE TABLE shop.leaves (id int PRIMARY KEY, root text COLLATE "POSIX", name text);
        CREATE TABLE shop.names (name text COLLATE "C" PRIMARY KEY);
        CREATE TABLE shop.others (name text COLLATE shop.loose PRIMARY KEY)""")
    icu.execute("INSERT INTO shop.roots VALUES ('a', 'b'), ('b', 'b')")
    icu.execute("INSERT INTO shop.leaves VALUES (1, 'a', 'n'), (2, 'b', 'm')")
    icu.execute("INSERT INTO shop.names VALUES ('n')")
    root = '[document.orders]\ntable = "shop.roots"\nfields = ["id"]\n'
    leaves = '[document.orders.l]\nmany = "shop.leaves"\non = { id = "root" }\nfields = ["id"]\n'
    names = '[document.orders.l.n]\none = "shop.names"\non = { name = "name" }\nfields = ["name"]\n'
    document = compiled(icu, root + leaves + names + SINK)
    assert documents_of(icu, document, ["a", "b"]) == {
        "a": {"id": "a", "l": [{"id": 1, "n": {"name": "n"}}]},
        "b": {"id": "b", "l": [{"id": 2, "n": None}]},
    }
    assert touched(icu, link_to(document, "names", "name"), {"name": "n"}) == {"a"}
    other = '[document.orders.o]\none = "shop.others"\non = { other = "name" }\nfields = ["name"]\n'
    with pytest.raises(
        ConfigError, match=r"document\.orders\.o: .* different collations.*; give them the same"
    ):
        compiled(icu, root + other + SINK)


# --- tables of other kinds, and roles ---------------------------------------------------------------------


@pytest.mark.every_server
def test_partitioned_tables_are_as_others(session: Conn) -> None:
    session.execute("""
        CREATE TABLE shop.days (id bigint, order_id bigint REFERENCES shop.orders, PRIMARY KEY (id, order_id))
            PARTITION BY HASH (order_id);
        CREATE TABLE shop.days_0 PARTITION OF shop.days FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE shop.days_1 PARTITION OF shop.days FOR VALUES WITH (MODULUS 2, REMAINDER 1)""")
    session.execute(
        "INSERT INTO shop.orders (id) VALUES (1), (2); INSERT INTO shop.days VALUES (7, 1), (8, 2)"
    )
    document = orders(session, 'days]\nmany = "shop.days"\nlist = "id"')
    assert documents_of(session, document, [1, 2]) == {
        1: {"id": 1, "days": [7]},
        2: {"id": 2, "days": [8]},
    }
    assert followed(document)[1:] == [("days", "order_id", False)]


def test_of_a_virtual_column_those_count_that_it_is_computed_of(session: Conn) -> None:
    if session.info.server_version < 180000:
        pytest.skip("virtual columns came with Postgres 18")
    session.execute("ALTER TABLE shop.items ADD double numeric GENERATED ALWAYS AS (price * seen) VIRTUAL")
    document = orders(session, 'items]\nmany = "shop.items"\nby = "order_id"\nfields = ["double"]')
    assert document.links[1].columns == ("id", "order_id", "price", "seen")


def test_arrays_of_a_table_without_a_key_have_an_order_all_the_same(session: Conn) -> None:
    session.execute("CREATE TABLE shop.log (order_id bigint, entry json, level int)")
    session.execute("INSERT INTO shop.orders (id) VALUES (1)")
    document = orders(
        session, 'log]\nmany = "shop.log"\non = { id = "order_id" }\norder_by = "level"\nlist = "entry"'
    )
    entries = [(1, '{"b": 1}', 1), (1, '{"a": 1}', 1), (1, '"z"', 0)]
    for order in (entries, entries[::-1]):
        session.execute("TRUNCATE shop.log")
        for entry in order:
            session.execute("INSERT INTO shop.log VALUES (%s, %s, %s)", entry)
        assert documents_of(session, document, [1]) == {1: {"id": 1, "log": ["z", {"a": 1}, {"b": 1}]}}


def test_of_several_columns_one_that_is_unique_alone_is_the_link(session: Conn) -> None:
    """By another one a change of one row would touch the documents of many."""
    session.execute("""
        ALTER TABLE shop.customers ADD tenant int, ADD UNIQUE (id, tenant);
        ALTER TABLE shop.orders ADD tenant int, DROP CONSTRAINT orders_customer_id_fkey,
            ADD FOREIGN KEY (customer_id, tenant) REFERENCES shop.customers (id, tenant);
        CREATE TABLE shop.notes (no int PRIMARY KEY, item bigint, seen int);
        INSERT INTO shop.customers VALUES (1, 'Ada', 1), (2, 'Grace', 1);
        INSERT INTO shop.orders (id, customer_id, tenant) VALUES (7, 1, 1), (8, 2, 1)""")
    document = orders(
        session,
        'customer]\none = "shop.customers"\nfields = ["name"]',
        ITEMS,
        'items.notes]\nmany = "shop.notes"\non = { id = "item", seen = "seen" }\nfields = ["no"]',
    )
    assert followed(document)[1:] == [
        ("customers", "id", True),  # unique in its own table
        ("items", "order_id", False),
        ("notes", "item", True),  # unique in the table above
    ]
    (customers,) = [link for link in document.links if link.table.table == "customers"]
    assert touched(session, customers, {"id": 1, "tenant": 1}) == {7}


def test_foreign_keys_that_say_the_same_are_one(session: Conn) -> None:
    session.execute("""
        ALTER TABLE shop.customers ADD tenant int, ADD UNIQUE (id, tenant), ADD UNIQUE (tenant, id);
        ALTER TABLE shop.orders ADD FOREIGN KEY (customer_id) REFERENCES shop.customers;
        ALTER TABLE shop.items ADD customer bigint, ADD tenant int,
            ADD FOREIGN KEY (customer, tenant) REFERENCES shop.customers (id, tenant),
            ADD FOREIGN KEY (tenant, customer) REFERENCES shop.customers (tenant, id)""")
    document = orders(
        session,
        'customer]\none = "shop.customers"\nfields = ["name"]',
        ITEMS,
        'items.customer]\none = "shop.customers"\nfields = ["name"]',
    )
    assert ("customers", "id", True) in followed(document)


def test_a_role_that_may_not_make_temporary_views_is_told_what_to_grant(
    session: Conn, any_bare_dsn: str
) -> None:
    database = database_name(any_bare_dsn)
    session.execute(f"REVOKE TEMP ON DATABASE {database} FROM PUBLIC".encode())
    root = ORDERS.replace('"id"', '"id + 1 AS n"')
    with roles(any_bare_dsn, "reader"), psycopg.connect(as_role(any_bare_dsn, "reader")) as reader:
        session.execute("GRANT USAGE ON SCHEMA shop TO reader")
        with pytest.raises(
            ConfigError, match=rf"temporary views.*; GRANT TEMP ON DATABASE {database} TO reader"
        ):
            orders(reader, root=root)
        session.execute(f"GRANT TEMP ON DATABASE {database} TO reader".encode())
        assert orders(reader, root=root).root.columns == ("id",)
        session.execute("REVOKE USAGE ON SCHEMA shop FROM reader")
        with pytest.raises(
            ConfigError, match=r"permission denied for schema shop; grant reader the missing right"
        ):
            orders(reader, root=root)
        reader.close()


@pytest.mark.parametrize(
    ("table", "section"), [("items", "document.orders.items"), ("orders", "document.orders")]
)
def test_row_security_that_may_hide_a_row_is_refused(
    session: Conn, any_bare_dsn: str, table: str, section: str
) -> None:
    """As the worker's role: the owner of a table sees all of it."""
    session.execute(f"ALTER TABLE shop.{table} ENABLE ROW LEVEL SECURITY".encode())
    orders(session, ITEMS)
    with roles(any_bare_dsn, "reader"), psycopg.connect(as_role(any_bare_dsn, "reader")) as reader:
        session.execute("GRANT USAGE ON SCHEMA shop TO reader")
        with pytest.raises(
            ConfigError, match=rf"^{section}: row security of shop\.{table} .*; give the role BYPASSRLS"
        ):
            orders(reader, ITEMS)
        reader.close()


# --- what a change costs ----------------------------------------------------------------------------------


def test_missing_indexes_are_named_until_they_are_there(session: Conn) -> None:
    sections = (ITEMS, PRODUCT, 'customer]\none = "shop.customers"\nfields = ["name"]')
    missing = orders(session, *sections).missing_indexes
    assert missing == (
        'CREATE INDEX CONCURRENTLY ON "shop"."items" ("order_id");  -- to read document.orders.items',
        (
            'CREATE INDEX CONCURRENTLY ON "shop"."items" ("product_id");  '
            "-- to find the documents that a change of shop.products touches"
        ),
        (
            'CREATE INDEX CONCURRENTLY ON "shop"."orders" ("customer_id");  '
            "-- to find the documents that a change of shop.customers touches"
        ),
    )
    session.execute("CREATE INDEX ON shop.items (order_id) WHERE order_id > 3")
    assert orders(session, *sections).missing_indexes == missing
    for statement in missing:
        session.execute(statement.encode())
    assert orders(session, *sections).missing_indexes == ()


def test_how_many_documents_a_change_touches_is_estimated_by_statistics(session: Conn) -> None:
    session.execute("INSERT INTO shop.customers SELECT g FROM generate_series(1, 11) AS g")
    session.execute("""
        INSERT INTO shop.orders (id, customer_id)
        SELECT g, CASE WHEN g <= 500 THEN 1 ELSE 2 + g % 10 END FROM generate_series(1, 1000) AS g""")
    session.execute("ANALYZE shop.orders")
    document = orders(session, 'customer]\none = "shop.customers"\nfields = ["name"]')
    assert document.root.documents == (1.0, 1.0)
    mean, worst = link_to(document, "customers", "id").documents
    assert mean == pytest.approx(1000 / 11, rel=0.01)
    assert worst == pytest.approx(500, rel=0.01)


# --- digests ----------------------------------------------------------------------------------------------


@pytest.mark.every_server
def test_the_digest_is_the_same_on_each_server(any_bare_dsn: str, bare_dsn: str) -> None:
    digests = set()
    for dsn in (any_bare_dsn, bare_dsn):
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(SCHEMA.encode())
            digests.add(compiled(connection, DECLARATION).digest)
    assert len(digests) == 1


def test_the_digest_tells_what_is_read_and_followed_and_nothing_else(session: Conn) -> None:
    fields = 'fields = ["price"]'
    starred = ITEMS.replace(fields, 'fields = ["*"]')
    digest, starry = orders(session, ITEMS).digest, orders(session, starred).digest
    same = [
        orders(session, ITEMS, root=ORDERS + "partitions = 2\nshards = 8\n"),
        orders(session, ITEMS.replace('by = "order_id"', 'by = ["order_id"]')),
    ]
    other = [
        orders(session, starred),
        orders(session, ITEMS.replace(fields, 'fields = ["price AS p"]')),
        orders(session, ITEMS + '\nwhere = "price > 1"'),
        orders(session, ITEMS + '\norder_by = "price"'),
        orders(session, ITEMS + "\nlimit = 3"),
        orders(session, ITEMS.replace("order_id", "replaces")),
        orders(session, ITEMS.replace("items]", "things]")),
    ]
    assert {one.digest for one in same} == {digest}
    assert len({digest, *(one.digest for one in other)}) == len(other) + 1
    session.execute("ALTER TABLE shop.items ADD more int")
    assert orders(session, ITEMS).digest == digest
    assert orders(session, starred).digest != starry
    session.execute("ANALYZE; CREATE INDEX ON shop.items (order_id)")
    assert orders(session, ITEMS).digest == digest
    assert json.loads(json.dumps(digest)) == digest
