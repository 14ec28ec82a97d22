"""What a committed change of an attached table puts into the tube."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    Touch,
    attach,
    make_tube,
    open_session,
    ops,
    pods,
    scalar,
    set_up,
    take,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "shards.json").read_text())


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with open_session(any_dsn) as conn:
        yield conn


def test_without_a_predicate(db: Conn) -> None:
    set_up(db, shard=3)
    db.execute(f"INSERT INTO {TABLE} VALUES (1), (2)")
    assert take(db) == [Touch("I", 3, 1), Touch("I", 3, 2)]
    db.execute(f"INSERT INTO {TABLE} VALUES (3)")
    assert ops(db) == [("I", 3)]
    db.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 1")
    assert ops(db) == [("U", 1)]
    db.execute(f"UPDATE {TABLE} SET value = 'y'")
    assert ops(db) == [("U", 1), ("U", 2), ("U", 3)]
    db.execute(f"DELETE FROM {TABLE} WHERE id = 1")
    assert ops(db) == [("D", 1)]
    db.execute(f"DELETE FROM {TABLE}")
    assert ops(db) == [("D", 2), ("D", 3)]


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_enter_leave_and_stay(db: Conn, rows: int) -> None:
    set_up(db, predicate="NOT deleted")
    ids = range(1, rows + 1)

    def expect(op: str) -> None:
        assert ops(db) == [(op, key) for key in ids if op]

    db.execute(f"INSERT INTO {TABLE} SELECT g, 'x', true FROM generate_series(1, %s) AS g", (rows,))
    expect("")
    db.execute(f"UPDATE {TABLE} SET value = 'never inside'")
    expect("")
    db.execute(f"UPDATE {TABLE} SET deleted = false")
    expect("I")
    db.execute(f"UPDATE {TABLE} SET value = 'stays'")
    expect("U")
    db.execute(f"UPDATE {TABLE} SET deleted = NULL")
    expect("D")
    db.execute(f"DELETE FROM {TABLE}")
    expect("")
    db.execute(f"INSERT INTO {TABLE} SELECT g, 'x', false FROM generate_series(1, %s) AS g", (rows,))
    expect("I")
    db.execute(f"DELETE FROM {TABLE}")
    expect("D")


def test_some_enter_while_others_leave(db: Conn) -> None:
    set_up(db, predicate="NOT deleted")
    db.execute(f"INSERT INTO {TABLE} VALUES (1, 'a', true), (2, 'a', false), (3, 'a', false), (4, 'a', true)")
    assert ops(db) == [("I", 2), ("I", 3)]
    db.execute(f"UPDATE {TABLE} SET deleted = CASE id WHEN 1 THEN false WHEN 2 THEN true ELSE deleted END")
    assert ops(db) == [("D", 2), ("I", 1), ("U", 3)]


def test_a_changed_key_touches_both(db: Conn) -> None:
    set_up(db, predicate="NOT deleted")
    db.execute(f"INSERT INTO {TABLE} VALUES (1, 'x', false), (2, 'x', false), (3, 'x', true)")
    take(db)
    db.execute(f"UPDATE {TABLE} SET id = 10 WHERE id = 1")
    assert ops(db) == [("D", 1), ("I", 10)]
    db.execute(f"UPDATE {TABLE} SET id = 11, deleted = true WHERE id = 10")
    assert ops(db) == [("D", 10)]
    db.execute(f"UPDATE {TABLE} SET id = 12, deleted = false WHERE id = 11")
    assert ops(db) == [("I", 12)]
    db.execute(f"UPDATE {TABLE} SET id = 13 WHERE id = 3")
    assert ops(db) == []


def test_keys_that_are_swapped(db: Conn) -> None:
    db.execute("CREATE TABLE public.item (id int UNIQUE DEFERRABLE, value text)")
    make_tube(db)
    attach(db)
    db.execute(f"INSERT INTO {TABLE} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    take(db)
    db.execute(f"UPDATE {TABLE} SET id = CASE id WHEN 1 THEN 2 WHEN 2 THEN 1 ELSE id END")
    assert ops(db) == [("U", 1), ("U", 2), ("U", 3)]
    db.execute(f"UPDATE {TABLE} SET id = id + 1")
    assert ops(db) == [("D", 1), ("I", 4), ("U", 2), ("U", 3)]


def test_a_statement_that_touches_nothing(db: Conn) -> None:
    set_up(db)
    db.execute(f"UPDATE {TABLE} SET value = 'x'")
    db.execute(f"DELETE FROM {TABLE}")
    db.execute(f"INSERT INTO {TABLE} SELECT 1 WHERE false")
    assert pods(db) == []
    assert scalar(db, "SELECT is_called FROM tube_seq") is False
    with db.transaction():
        db.execute(f"UPDATE {TABLE} SET value = 'x'")
        assert scalar(db, "SELECT pg_current_xact_id_if_assigned()") is None


def test_ids_are_distinct_and_in_chunks(db: Conn) -> None:
    db.execute("CREATE TABLE public.item (id bigint, value text)")
    make_tube(db)
    attach(db)
    db.execute(f"INSERT INTO {TABLE} SELECT g % 1001, g FROM generate_series(1, 3003) AS g")
    for op, statement in (
        ("I", None),
        ("U", f"UPDATE {TABLE} SET value = ''"),
        ("D", f"DELETE FROM {TABLE}"),
    ):
        if statement:
            db.execute(statement)
        rows = pods(db)
        assert sorted(len(ids) for _, _, ids, _ in rows) == [1, 250, 250, 250, 250]
        assert take(db) == [Touch(op, 0, key) for key in range(1001)]


def test_a_table_that_is_spread(db: Conn) -> None:
    set_up(db, shard=100, shards=16)
    db.execute(f"INSERT INTO {TABLE} SELECT g FROM generate_series(-20, 1000) AS g")
    assert {ids and shard for _, shard, ids, _ in pods(db)} == set(range(100, 116))
    assert take(db) == sorted(Touch("I", 100 + key % 16, key) for key in range(-20, 1001))
    db.execute(f"UPDATE {TABLE} SET id = 5000 WHERE id = 1")
    assert take(db) == [Touch("D", 101, 1), Touch("I", 100 + 5000 % 16, 5000)]
    db.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = -1")
    assert take(db) == [Touch("U", 115, -1)]
    db.execute(f"DELETE FROM {TABLE} WHERE id < 3")
    assert take(db) == sorted(Touch("D", 100 + key % 16, key) for key in range(-20, 3) if key != 1)


def test_the_least_and_the_greatest_id(db: Conn) -> None:
    set_up(db, shards=7)
    least, greatest = -(2**63), 2**63 - 1
    db.execute(f"INSERT INTO {TABLE} VALUES (%s)", (least,))
    db.execute(f"INSERT INTO {TABLE} VALUES (%s)", (greatest,))
    assert take(db) == sorted([Touch("I", least % 7, least), Touch("I", greatest % 7, greatest)])


def test_shards_are_those_of_the_vectors(conn: Conn) -> None:
    for vector in VECTORS:
        shard = scalar(conn, "SELECT tube_shard_of(%(id)s::bigint, %(shard)s::int, %(shards)s::int)", vector)
        assert shard == vector["expected"], vector


def test_the_shard_function_is_inlined(conn: Conn) -> None:
    plan = conn.execute(
        "EXPLAIN (VERBOSE) SELECT tube_shard_of(g, 1, 4) FROM generate_series(1, 2) AS g"
    ).fetchall()
    assert "tube_shard_of" not in str(plan)


@pytest.mark.parametrize("rows", [1, 2, 300])
def test_backfill_sessions_make_backfill_pods(db: Conn, rows: int) -> None:
    set_up(db)
    db.execute("SET application_name = 'my backfill 7'")
    expected = [("B", key) for key in range(1, rows + 1)]
    db.execute(f"INSERT INTO {TABLE} SELECT g FROM generate_series(1, %s) AS g", (rows,))
    assert ops(db) == expected
    db.execute(f"UPDATE {TABLE} SET value = 'x'")
    assert ops(db) == expected
    db.execute(f"UPDATE {TABLE} SET id = -id WHERE id = 1")
    assert ops(db) == [("B", -1), ("B", 1)]
    db.execute(f"DELETE FROM {TABLE} WHERE id > 1")
    assert ops(db) == expected[1:]


def test_a_row_without_an_id_names_no_document(db: Conn) -> None:
    """It fails no write of the application's, and makes no touch."""
    said: list[str] = []
    db.add_notice_handler(lambda notice: said.append(f"{notice.severity} {notice.message_primary}"))
    db.execute("CREATE TABLE public.item (id int, deleted boolean)")
    make_tube(db, predicate="deleted IS NULL")
    attach(db)
    assert said == [
        "WARNING the key id of public.item may be NULL",
        "WARNING nothing proves that the key id of public.item is unique",
    ]
    db.execute(f"INSERT INTO {TABLE} (id) VALUES (NULL)")
    assert take(db) == []
    db.execute(f"INSERT INTO {TABLE} (id) VALUES (1), (NULL)")
    assert ops(db) == [("I", 1)]
    db.execute(f"UPDATE {TABLE} SET deleted = true")
    assert ops(db) == [("D", 1)]
    db.execute(f"UPDATE {TABLE} SET deleted = NULL, id = coalesce(id, 2) WHERE id IS NULL")
    assert ops(db) == [("I", 2)]
    db.execute(f"DELETE FROM {TABLE}")
    assert ops(db) == [("D", 2)]
    assert len(said) == 2


def test_related_tables_only_update(db: Conn) -> None:
    set_up(db, shard=5, shards=4)
    db.execute("CREATE TABLE public.detail (id int, note text)")
    with_warnings: list[str] = []
    db.add_notice_handler(lambda notice: with_warnings.append(f"{notice.severity} {notice.message_primary}"))
    attach(db, "public.detail", 5, 4)
    assert len(with_warnings) == 1
    assert with_warnings[0].startswith("WARNING")
    db.execute("INSERT INTO public.detail VALUES (1, 'a')")
    assert take(db) == [Touch("U", 6, 1)]
    db.execute("INSERT INTO public.detail VALUES (2, 'a'), (NULL, 'a'), (3, 'a')")
    assert ops(db) == [("U", 2), ("U", 3)]
    db.execute("INSERT INTO public.detail VALUES (NULL, 'b')")
    db.execute("UPDATE public.detail SET id = 9 WHERE id = 1")
    assert ops(db) == [("U", 1), ("U", 9)]
    db.execute("UPDATE public.detail SET id = 7 WHERE note = 'b'")
    assert ops(db) == [("U", 7)]
    db.execute("DELETE FROM public.detail")
    assert ops(db) == [("U", 2), ("U", 3), ("U", 7), ("U", 9)]


def test_a_related_table_becomes_the_root(db: Conn) -> None:
    set_up(db)
    db.execute("CREATE TABLE public.detail (id int PRIMARY KEY)")
    attach(db, "public.detail")
    assert [row[0] for row in db.execute("SELECT root FROM tube_list()")] == [True, False]
    db.execute("SELECT tube_table_ensure_detached(%s, %s)", (TUBE, TABLE))
    db.execute("INSERT INTO public.detail VALUES (1)")
    assert ops(db) == [("I", 1)]
    attach(db)
    assert [(row[0], row[1]) for row in db.execute("SELECT tbl::text, root FROM tube_list()")] == [
        ("detail", True),
        ("item", False),
    ]


def test_several_tubes(db: Conn) -> None:
    set_up(db)
    make_tube(db, "other", predicate="id > 10")
    attach(db, shard=7, tube="other")
    db.execute(f"INSERT INTO {TABLE} VALUES (1), (11)")
    assert take(db) == [Touch("I", 0, 1), Touch("I", 0, 11)]
    assert take(db, "other") == [Touch("I", 7, 11)]


@pytest.mark.parametrize(
    "name", ["ids", "op", "shard", "id", "cap_id", "cap_shard", "side", "passes", "tg_op", "s", "o"]
)
def test_columns_with_names_that_the_trigger_uses(conn: Conn, name: str) -> None:
    key = "key" if name == "id" else "id"
    conn.execute(
        f'CREATE TABLE public.item ("{key}" int PRIMARY KEY, "{name}x" int, value boolean DEFAULT true)'
    )
    conn.execute(f'ALTER TABLE public.item RENAME "{name}x" TO "{name}"' if name != "id" else "SELECT 1")
    column = name if name != "id" else "key"
    make_tube(conn, predicate=f'"{column}" = 5')
    attach(conn)
    if column != "key":
        conn.execute(f'INSERT INTO {TABLE} (id, "{column}") VALUES (1, 5), (2, 6)')
        assert ops(conn) == [("I", 1)]
        conn.execute(f'UPDATE {TABLE} SET "{column}" = 11 - "{column}"')
        assert ops(conn) == [("D", 1), ("I", 2)]
        conn.execute(f'UPDATE {TABLE} SET "{column}" = 11 - "{column}" WHERE id = 2')
        assert ops(conn) == [("D", 2)]
    else:
        conn.execute(f"INSERT INTO {TABLE} VALUES (4), (5)")
        assert ops(conn) == [("I", 5)]


def test_columns_added_and_dropped_later(db: Conn) -> None:
    set_up(db, predicate="NOT deleted")
    db.execute(f"INSERT INTO {TABLE} VALUES (1)")
    db.execute(f"ALTER TABLE {TABLE} DROP value, ADD other int DEFAULT 3")
    db.execute(f"UPDATE {TABLE} SET other = 4")
    db.execute(f"INSERT INTO {TABLE} VALUES (2), (3)")
    assert ops(db) == [("I", 1), ("I", 2), ("I", 3), ("U", 1)]


def test_a_table_and_schema_with_strange_names(db: Conn) -> None:
    db.execute('CREATE SCHEMA "My ""sh"" 0042"')
    table = '"My ""sh"" 0042"."It\'s a <table> of %I"'
    db.execute(f'CREATE TABLE {table} ("The Key" smallint PRIMARY KEY, "a ""b""" int)')
    make_tube(db, predicate='"a ""b""" = 1')
    attach(db, table, None)
    db.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    db.execute(f'UPDATE {table} SET "The Key" = 3 WHERE "The Key" = 1')
    assert take(db) == [Touch("D", 42, 1), Touch("I", 42, 1), Touch("I", 42, 3)]
    db.execute(f"SELECT {table[:-1]}_touch\"('{{8}}')")
    assert take(db) == [Touch("T", 42, 8)]


ONE_ROW = {
    "INSERT": "INSERT INTO public.item (id) VALUES ({})",
    "UPDATE": "UPDATE public.item SET value = 'y' WHERE id = {}",
    "DELETE": "DELETE FROM public.item WHERE id = {}",
}


@pytest.mark.every_server
@pytest.mark.parametrize("op", ONE_ROW)
def test_the_plan_for_one_row_is_kept_whatever_came_before(any_dsn: str, op: str) -> None:
    """Planned anew for each statement, the trigger takes three times as long."""
    with open_session(any_dsn) as conn:
        set_up(conn)
        plans: list[str] = []
        conn.add_notice_handler(lambda notice: plans.append(str(notice.message_primary)))
        conn.execute("INSERT INTO public.item SELECT g, 'x' FROM generate_series(1, 2000) AS g")
        many = {
            "INSERT": "INSERT INTO public.item SELECT g, 'x' FROM generate_series(3001, 4000) AS g",
            "UPDATE": "UPDATE public.item SET value = 'x' WHERE id <= 1000",
            "DELETE": "DELETE FROM public.item WHERE id > 1000",
        }
        for key in range(5001, 5011):
            conn.execute("INSERT INTO public.item VALUES (%s, 'x')", (key,))
            conn.execute(ONE_ROW[op].format(key if op != "INSERT" else key + 1000))
        conn.execute(f'TRUNCATE tube."{TUBE}"'.encode())  # no plan that names it is good any more
        conn.execute(many[op])
        for key in range(1, 11):
            conn.execute(ONE_ROW[op].format(key if op != "INSERT" else key + 7000))
        conn.execute("SET debug_print_plan = on; SET client_min_messages = log")
        conn.execute(ONE_ROW[op].format(11 if op != "INSERT" else 7011))
        conn.execute("RESET client_min_messages; RESET debug_print_plan")
        assert [text for text in plans if "plan" in text] == ["plan:"], "its own, and none of the trigger"
