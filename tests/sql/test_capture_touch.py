"""{tube}_touch and {table}_touch."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.helpers.capture import (
    TABLE,
    Conn,
    Touch,
    attach,
    make_item,
    make_tube,
    open_session,
    pods,
    scalar,
    set_up,
    take,
)

TUBE_TOUCH = 'SELECT tube."es-live_touch"(%s::integer, %s::bigint[], %s)'


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with open_session(any_dsn) as conn:
        yield conn


def test_touch_a_tube(db: Conn) -> None:
    make_tube(db)
    db.execute(TUBE_TOUCH, (5, [3, 1, 3, 2], "T"))
    assert pods(db) == [("T", 5, [3, 1, 2], None)], "distinct, in the order given"


def test_chunks_and_payload(db: Conn) -> None:
    make_tube(db)
    db.execute("SELECT tube.\"es-live_touch\"(1, %s, 'B', %s, 3)", (list(range(10, 0, -1)), Jsonb({"a": 1})))
    assert pods(db) == [("B", 1, ids, {"a": 1}) for ids in ([10, 9, 8], [7, 6, 5], [4, 3, 2], [1])]
    take(db)
    db.execute(TUBE_TOUCH, (1, list(range(600)), "I"))
    assert [len(row[2]) for row in pods(db)] == [250, 250, 100]


@pytest.mark.parametrize("ids", [[], None])
def test_no_ids(db: Conn, ids: list[int] | None) -> None:
    make_tube(db)
    db.execute(TUBE_TOUCH, (1, ids, "T"))
    assert pods(db) == []
    payload = {"type": "backfill_end", "start_seq": "9"}
    db.execute("SELECT tube.\"es-live_touch\"(1, %s::bigint[], 'B', %s)", (ids, Jsonb(payload)))
    assert pods(db) == [("B", 1, [], payload)]


def test_a_shard_that_is_not_the_ids(db: Conn) -> None:
    set_up(db, shard=100, shards=16)
    db.execute(TUBE_TOUCH, (101, [1, 17, -15], "T"))
    assert take(db) == [Touch("T", 101, -15), Touch("T", 101, 1), Touch("T", 101, 17)]
    with pytest.raises(psycopg.Error) as refused:
        db.execute(TUBE_TOUCH, (101, [1, 18], "T"))
    assert refused.value.sqlstate == "TU106"
    assert "the id 18 is not in the shard 101, but in 102" in str(refused.value)
    db.execute(TUBE_TOUCH, (99, [18], "T"))
    db.execute(TUBE_TOUCH, (116, [18], "T"))
    assert take(db) == [Touch("T", 99, 18), Touch("T", 116, 18)], "no table has these"
    db.execute("SELECT tube_table_ensure_detached('es-live', %s)", (TABLE,))
    db.execute(TUBE_TOUCH, (101, [18], "T"))
    assert take(db) == [Touch("T", 101, 18)]


def test_touch_a_table(db: Conn) -> None:
    set_up(db, shard=10, shards=4)
    make_tube(db, "other")
    attach(db, shard=7, tube="other")
    db.execute("SELECT public.item_touch(%s)", ([5, 4, 5],))
    assert take(db) == [Touch("T", 10, 4), Touch("T", 11, 5)]
    assert take(db, "other") == [Touch("T", 7, 4), Touch("T", 7, 5)]
    db.execute("SELECT public.item_touch(ids => '{1}', op => 'B')")
    assert take(db) == [Touch("B", 11, 1)]
    db.execute("SELECT public.item_touch('{}')")
    assert take(db) == []
    db.execute("SELECT public.item_touch('{}', payload => %s)", (Jsonb({"type": "x"}),))
    assert [row[:3] for row in pods(db)] == [("T", shard, []) for shard in (10, 11, 12, 13)]
    assert [row[:3] for row in pods(db, "other")][-1] == ("T", 7, [])


def test_a_touch_by_a_backfill_session(db: Conn) -> None:
    set_up(db)
    db.execute("SET application_name = 'backfill'")
    db.execute("SELECT public.item_touch('{1}')")
    db.execute(TUBE_TOUCH, (3, [2], "U"))
    assert take(db) == [Touch("B", 0, 1), Touch("B", 3, 2)]
    db.execute("SELECT public.item_touch('{}', 'T', %s)", (Jsonb({"type": "backfill_start"}),))
    assert pods(db)[0][0] == "T", "a control pod keeps its place"


def test_long_names(db: Conn) -> None:
    make_tube(db)
    make_item(db, f"public.{'t' * 60}")
    attach(db, f"public.{'t' * 60}")
    name = scalar(
        db, "SELECT proname FROM pg_proc WHERE proname LIKE 'ttt%' AND pronamespace = 'public'::regnamespace"
    )
    assert len(name) == 63
    db.execute(f"SELECT {name}('{{1}}')")
    assert take(db) == [Touch("T", 0, 1)]


def test_a_negative_shard_is_refused_in_every_way_in(db: Conn) -> None:
    set_up(db)
    for statement in (
        "SELECT tube_table_ensure_attached('es-live', 'public.item', -1)",
        "SELECT \"es-live_touch\"(-1, '{1}', 'T')",
        "SELECT tube_pods_insert('es-live', 'SELECT 1, 1', -1)",
        "SELECT tube_pods_put('es-live', -1, 'T', '{1}')",
    ):
        with pytest.raises(psycopg.Error) as refused:
            db.execute(statement.encode())
        assert refused.value.sqlstate == "TU106", statement
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("INSERT INTO \"es-live\" (op, shard, ids) VALUES ('T', -1, '{1}')")
    assert pods(db) == []


def test_one_table_is_worked_on_by_all_partitions_by_every_way_in(db: Conn) -> None:
    set_up(db, shard=0, shards=8, partitions=4)
    ids = list(range(1, 401))
    db.execute(f"INSERT INTO {TABLE} SELECT unnest(%s)", (ids,))
    rows = sorted((touch.shard, touch.id) for touch in take(db))
    start = scalar(db, "SELECT tube_backfill_step1()")
    for statement in (
        "SELECT public.item_touch(ARRAY(SELECT id FROM public.item))",
        "SELECT tube_pods_insert('es-live', 'SELECT id, 1 FROM public.item', 0)",
        f"SELECT tube_backfill_step3('{start}', 'es-live', 'public.item', 'id')",
    ):
        db.execute(statement.encode())
        assert sorted((touch.shard, touch.id) for touch in take(db)) == rows, statement
    assert [sum(shard % 4 == part for shard, _ in rows) for part in range(4)] == [100] * 4
