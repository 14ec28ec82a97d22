"""Attaching and detaching: what is refused, what is changed, and what is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    Touch,
    attach,
    detach,
    make_item,
    make_tube,
    open_session,
    ops,
    scalar,
    set_up,
    take,
    triggers,
    unfollow,
)

OTHERS = """
CREATE TABLE public.no_key (value text);
CREATE TABLE public.two_keys (a int, b int, PRIMARY KEY (a, b));
CREATE TABLE public.unique_only (a int NOT NULL UNIQUE);
CREATE TABLE public.text_key (a text PRIMARY KEY);
CREATE TABLE public.uuid_id (id uuid PRIMARY KEY);
CREATE TABLE public.numeric_id (id numeric, a int PRIMARY KEY);
CREATE TABLE public.parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE public.part_one PARTITION OF public.parted DEFAULT;
CREATE TABLE public.parent (id int PRIMARY KEY);
CREATE TABLE public.child () INHERITS (public.parent);
CREATE VIEW public.a_view AS SELECT 1 AS id;
CREATE MATERIALIZED VIEW public.mat AS SELECT 1 AS id;
CREATE SEQUENCE public.counter;
CREATE TEMP TABLE fleeting (id int PRIMARY KEY);
CREATE FOREIGN DATA WRAPPER wrapper;
CREATE SERVER far FOREIGN DATA WRAPPER wrapper;
CREATE FOREIGN TABLE public.distant (id int) SERVER far;
CREATE TABLE public.far_parted (id int) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE public.far_part PARTITION OF public.far_parted DEFAULT SERVER far;
CREATE TYPE public.pair AS (id int, b int);
"""

REFUSED = [
    ("public.no_key", "TU104", "no column id"),
    ("public.two_keys", "TU104", "no column id"),
    ("public.unique_only", "TU104", "no column id"),
    ("public.text_key", "TU104", "type text"),
    ("public.uuid_id", "TU104", "type uuid"),
    ("public.numeric_id", "TU104", "type numeric"),
    ("public.part_one", "TU107", "it is a partition of public.parted"),
    ("public.far_parted", "TU107", "it is a foreign table"),
    ("public.parent", "TU107", "inherit"),
    ("public.child", "TU107", "inherits"),
    ("public.a_view", "TU107", "it is a view"),
    ("public.mat", "TU107", "materialized view"),
    ("public.counter", "TU107", "not a table"),
    ("public.no_key_pkey_", "42P01", "does not exist"),
    ("fleeting", "TU107", "temporary"),
    ("public.distant", "TU107", "foreign"),
    ("public.pair", "TU107", "not a table"),
    ("pg_class", "TU107", "catalogue"),
    ("information_schema.sql_features", "TU107", "catalogue"),
    ("tube.tube_registry", "TU107", "pytube's own"),
    ('tube."es-live"', "TU107", "pytube's own"),
    ("4294967294", "TU108", "no table 4294967294"),
    (None, "TU108", "no table NULL"),
]


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with open_session(any_dsn) as conn:
        yield conn


def refuse(conn: Conn, state: str, statement: str, *params: object) -> str:
    """Run what has to be refused with `state`; message and hint."""
    with pytest.raises(psycopg.Error) as refused:
        conn.execute(statement, params)
    assert refused.value.sqlstate == state, refused.value
    return f"{refused.value.diag.message_primary} / {refused.value.diag.message_hint}"


def test_what_cannot_be_attached(db: Conn) -> None:
    make_tube(db)
    db.execute(OTHERS)
    for table, state, said in REFUSED:
        answer = refuse(db, state, "SELECT tube_table_ensure_attached(%s, %s, 0)", TUBE, table)
        assert said in answer, (table, answer)
        name = str(table).split(".")[-1].strip('"').replace("far_parted", "far_part")
        assert table is None or state == "42P01" or name in answer
    assert scalar(db, "SELECT count(*) FROM tube_attachment") == 0
    assert scalar(db, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%_after_%'") == 0


def test_an_unknown_tube(conn: Conn) -> None:
    make_item(conn)
    make_tube(conn, "known")
    for statement in (
        "SELECT tube_table_ensure_attached(%s, %s, 0)",
        "SELECT tube_table_ensure_detached(%s, %s)",
    ):
        answer = refuse(conn, "TU102", statement, "nope", TABLE)
        assert answer == "there is no tube 'nope' / There are: 'known'."
    refuse(conn, "TU102", "SELECT tube_table_ensure_attached(NULL, %s, 0)", TABLE)


@pytest.mark.parametrize(
    ("shard", "shards", "said"),
    [
        (-1, 1, "the shard -1 is negative"),
        (None, 1, "no shard is given, and its schema public does not end in a number"),
        (0, 0, "spread over 0 shards"),
        (0, -4, "spread over -4 shards"),
        (0, None, "spread over NULL shards"),
        (2147483647, 2, "too large"),
    ],
)
def test_shards_that_are_refused(conn: Conn, shard: int | None, shards: int | None, said: str) -> None:
    make_item(conn)
    make_tube(conn)
    answer = refuse(
        conn, "TU106", "SELECT tube_table_ensure_attached(%s, %s, %s, %s)", TUBE, TABLE, shard, shards
    )
    assert said in answer
    assert "Give shard" in answer


def test_the_greatest_shard(conn: Conn) -> None:
    set_up(conn, shard=2147483646, shards=2)
    conn.execute(f"INSERT INTO {TABLE} VALUES (0), (1)")
    assert take(conn) == [Touch("I", 2147483646, 0), Touch("I", 2147483647, 1)]


@pytest.mark.parametrize(
    ("schema", "shard"), [("sh0042", 42), ("sh0", 0), ("7", 7), ("a1b2", 2), ("sh99999999999", None)]
)
def test_the_shard_is_taken_from_the_schema(conn: Conn, schema: str, shard: int | None) -> None:
    make_tube(conn)
    conn.execute(f'CREATE SCHEMA "{schema}"')
    table = f'"{schema}".t'
    make_item(conn, table)
    if shard is None:
        refuse(conn, "TU106", "SELECT tube_table_ensure_attached(%s, %s)", TUBE, table)
        return
    attach(conn, table, None)
    assert scalar(conn, "SELECT shard FROM tube_list()") == shard


@pytest.mark.parametrize(("shard", "shards"), [(10, 1), (5, 10), (19, 4), (0, 100), (10, 5), (15, 1)])
def test_ranges_that_overlap(conn: Conn, shard: int, shards: int) -> None:
    set_up(conn, shard=10, shards=10)
    make_item(conn, "public.other")
    answer = refuse(
        conn, "TU106", "SELECT tube_table_ensure_attached(%s, 'other', %s, %s)", TUBE, shard, shards
    )
    assert "which has 10 to 19" in answer
    own = f"shard => 20, shards => {shards}."
    related = "To relate it to public.item: shard => 10, shards => 10, id_col => the column"
    assert related in answer
    assert answer.endswith(own)
    conn.execute(f"SELECT tube_table_ensure_attached('{TUBE}', 'other', 10, 10, 'id')")
    conn.execute(f"SELECT tube_table_ensure_attached('{TUBE}', 'other', 20, {shards})")


@pytest.mark.parametrize(("shard", "shards"), [(0, 10), (20, 1), (20, 100), (10, 10)])
def test_ranges_that_do_not(conn: Conn, shard: int, shards: int) -> None:
    set_up(conn, shard=10, shards=10)
    make_item(conn, "public.other")
    attach(conn, "public.other", shard, shards)


def test_with_the_same_arguments_nothing_happens(db: Conn) -> None:
    set_up(db, shard=3, shards=2, predicate="NOT deleted")
    before = db.execute("SELECT oid, xmin FROM pg_proc WHERE oid >= 16384").fetchall()
    with db.transaction():
        attach(db, shard=3, shards=2)
        locks = db.execute(
            "SELECT mode FROM pg_locks WHERE relation = %s::regclass AND mode <> 'AccessShareLock'", (TABLE,)
        ).fetchall()
        assert locks == []
    assert db.execute("SELECT oid, xmin FROM pg_proc WHERE oid >= 16384").fetchall() == before


def test_with_other_arguments_it_is_changed(db: Conn) -> None:
    set_up(db)
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(f"{notice.severity} {notice.message_primary}"))
    version = scalar(db, "SELECT version FROM tube_registry")
    attach(db, shard=8, shards=4)
    expected = (
        f"{TABLE}, attached to tube '{TUBE}' by id with shards 0 to 0, is now attached"
        " by id with shards 8 to 11"
    )
    assert said == [f"WARNING {expected}"], "the rows have other documents now"
    assert scalar(db, "SELECT version FROM tube_registry") == version + 1
    db.execute(f"INSERT INTO {TABLE} VALUES (1), (2)")
    assert take(db) == [Touch("I", 9, 1), Touch("I", 10, 2)]
    assert len(triggers(db)) == 4
    attach(db, shard=None, shards=4)
    assert len(said) == 1, "a shard that is not given is the one that it has"
    db.execute("SELECT tube_table_ensure_attached(%s, %s, 8, 4, columns => '{value}')", (TUBE, TABLE))
    assert said[1].startswith("NOTICE"), "the documents are the same"


def test_the_names_of_triggers(conn: Conn) -> None:
    set_up(conn)
    assert triggers(conn) == [
        *(f"item_es-live_after_{what}_trigger" for what in ("delete", "insert", "update")),
        "item_es-live_before_truncate_trigger",
    ]
    conn.execute(f"CREATE TABLE public.{'t' * 63} (id int PRIMARY KEY)")
    make_tube(conn, "x" * 57)
    attach(conn, f"public.{'t' * 63}", tube="x" * 57)
    names = triggers(conn, f"public.{'t' * 63}")
    assert len(set(names)) == 4
    assert all(len(name) == 63 and name.endswith("_trigger") for name in names)
    conn.execute(f"INSERT INTO public.{'t' * 63} VALUES (1)")
    assert ops(conn, "x" * 57) == [("I", 1)]


def test_detached_from_one_and_from_all(db: Conn) -> None:
    set_up(db)
    make_tube(db, "other")
    attach(db, tube="other")
    db.execute(f"INSERT INTO {TABLE} VALUES (1)")
    detach(db)
    detach(db)
    db.execute(f"INSERT INTO {TABLE} VALUES (2)")
    assert ops(db) == [("I", 1)], "the pods that were there stay"
    assert ops(db, "other") == [("I", 1), ("I", 2)]
    attach(db)
    detach(db, tube=None)
    assert triggers(db) == []
    assert scalar(db, "SELECT to_regproc('public.item_touch')") is None
    assert scalar(db, "SELECT count(*) FROM pg_proc WHERE proname LIKE '%capture\\_' || repeat('_', 8)") == 0
    db.execute(f"INSERT INTO {TABLE} VALUES (3)")
    assert ops(db) == ops(db, "other") == []


def test_a_table_that_was_dropped(db: Conn) -> None:
    set_up(db)
    oid = scalar(db, "SELECT %s::regclass::oid", (TABLE,))
    unfollow(db)
    db.execute(f"DROP TABLE {TABLE}")
    assert scalar(db, "SELECT to_regproc('public.item_touch')") is not None
    db.execute("SELECT tube_table_ensure_detached(%s, %s::oid)", (TUBE, oid))
    assert scalar(db, "SELECT to_regproc('public.item_touch')") is None
    assert scalar(db, "SELECT count(*) FROM tube_attachment") == 0
    assert scalar(db, "SELECT count(*) FROM pg_proc WHERE proname LIKE '%capture\\_' || repeat('_', 8)") == 0


def test_a_table_that_was_dropped_and_made_anew(db: Conn) -> None:
    set_up(db)
    db.execute(f"DROP TABLE {TABLE}")
    make_item(db)
    attach(db)
    db.execute(f"INSERT INTO {TABLE} VALUES (1)")
    db.execute("SELECT public.item_touch('{2}')")
    assert ops(db) == [("I", 1), ("T", 2)]
    assert scalar(db, "SELECT count(*) FROM tube_attachment") == 1


def test_a_table_that_was_renamed_and_moved(db: Conn) -> None:
    set_up(db)
    db.execute("CREATE SCHEMA elsewhere")
    db.execute(f"ALTER TABLE {TABLE} RENAME TO thing")
    db.execute("ALTER TABLE public.thing SET SCHEMA elsewhere")
    db.execute("INSERT INTO elsewhere.thing VALUES (1)")
    assert ops(db) == [("I", 1)]
    attach(db, "elsewhere.thing")
    assert scalar(db, "SELECT to_regproc('public.item_touch')") is None
    db.execute("SELECT elsewhere.thing_touch('{2}')")
    assert ops(db) == [("T", 2)]
    detach(db, "elsewhere.thing")
    assert triggers(db, "elsewhere.thing") == []
    assert scalar(db, "SELECT to_regproc('elsewhere.thing_touch')") is None


def test_a_trigger_dropped_by_hand_is_mended(db: Conn) -> None:
    set_up(db)
    for name in triggers(db):
        db.execute(f'DROP TRIGGER "{name}" ON {TABLE}')
    attach(db)
    db.execute(f"INSERT INTO {TABLE} VALUES (1)")
    assert ops(db) == [("I", 1)]


def test_a_function_that_has_the_name_of_the_touch_function(conn: Conn) -> None:
    make_item(conn)
    make_tube(conn)
    conn.execute(
        "CREATE FUNCTION public.item_touch(bigint[], char, jsonb, int) RETURNS int LANGUAGE sql AS 'SELECT 7'"
    )
    answer = refuse(conn, "TU107", "SELECT tube_table_ensure_attached(%s, %s, 0)", TUBE, TABLE)
    assert "public.item_touch" in answer
    assert scalar(conn, "SELECT public.item_touch(NULL, NULL, NULL, NULL)") == 7
    assert triggers(conn) == []


def test_what_a_rolled_back_attach_leaves(conn: Conn) -> None:
    make_item(conn)
    make_tube(conn)
    with conn.transaction(force_rollback=True):
        attach(conn)
    assert triggers(conn) == []
    assert scalar(conn, "SELECT to_regproc('public.item_touch')") is None


def test_a_touch_function_that_was_left_over(conn: Conn) -> None:
    set_up(conn)
    conn.execute(f"CREATE TABLE public.copy AS TABLE {TABLE}")
    body = scalar(conn, "SELECT pg_get_functiondef('public.item_touch'::regproc)")
    conn.execute(body.replace("item_touch", "copy_touch").encode())
    answer = refuse(conn, "TU107", "SELECT tube_table_ensure_attached(%s, 'public.copy', 1)", TUBE)
    assert "public.copy_touch" in answer, "it touches another table"
    conn.execute("DROP FUNCTION public.copy_touch")
    attach(conn, "public.copy", 1)
    conn.execute("SELECT public.copy_touch('{3}')")
    assert take(conn) == [Touch("T", 1, 3)]
