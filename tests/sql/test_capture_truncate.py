"""TRUNCATE touches every id that was there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    attach,
    make_tube,
    open_session,
    ops,
    pods,
    scalar,
    set_up,
    take,
)
from tests.helpers.database import preparing
from tests.helpers.roles import roles


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn, predicate="NOT deleted", shards=2)
        conn.execute(
            f"INSERT INTO {TABLE} (id, deleted) VALUES (1, false), (2, false), (3, false), (4, true)"
        )
        take(conn)


prepare = preparing(prepared)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with `item` attached, spread over two shards, and three rows in it."""
    with open_session(any_dsn) as conn:
        yield conn


def test_pg_tube_truncate_made_no_touch(db: Conn) -> None:
    db.execute(f"TRUNCATE {TABLE}")
    assert [(op, shard, ids, payload) for op, shard, ids, payload in pods(db)] == [
        ("D", 0, [2], None),
        ("D", 1, [1, 3], None),
    ]


def test_one_that_is_rolled_back(db: Conn) -> None:
    with db.transaction(force_rollback=True):
        db.execute(f"TRUNCATE {TABLE}")
    assert ops(db) == []


def test_an_empty_table(db: Conn) -> None:
    db.execute(f"DELETE FROM {TABLE}")
    take(db)
    db.execute(f"TRUNCATE {TABLE}")
    assert ops(db) == []


def test_cascade_and_restart_identity(db: Conn) -> None:
    db.execute(
        "CREATE TABLE public.part (id serial PRIMARY KEY, item bigint REFERENCES public.item,"
        " deleted boolean DEFAULT false)"
    )
    db.execute("SELECT tube_table_ensure_attached(%s, 'part', 0, 2, id_col => 'item')", (TUBE,))
    make_tube(db, "parts")
    attach(db, "public.part", 7, tube="parts")
    db.execute("INSERT INTO part (item) VALUES (1), (1), (2), (NULL)")
    take(db)
    take(db, "parts")
    db.execute(f"TRUNCATE {TABLE} RESTART IDENTITY CASCADE")
    assert ops(db) == [("D", 1), ("D", 2), ("D", 3), ("U", 1), ("U", 2)]
    assert ops(db, "parts") == [("D", 1), ("D", 2), ("D", 3), ("D", 4)]


def test_many_rows_are_many_pods(db: Conn) -> None:
    db.execute(f"INSERT INTO {TABLE} SELECT g FROM generate_series(10, 5009) AS g")
    take(db)
    db.execute(f"TRUNCATE {TABLE}")
    found = pods(db)
    assert max(len(ids) for _, _, ids, _ in found) == 250
    assert sorted(key for _, _, ids, _ in found for key in ids) == [1, 2, 3, *range(10, 5010)]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot_asks_for_a_sweep(db: Conn, any_dsn: str, level: str) -> None:
    """Such a transaction does not see what was committed after its first statement."""
    with open_session(any_dsn) as other, db.transaction():
        db.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        db.execute("SELECT 1 FROM tube_registry")
        other.execute(f"INSERT INTO {TABLE} VALUES (5)")
        take(other)
        db.execute(f"TRUNCATE {TABLE}")
    found = pods(db)
    assert {key for _, _, ids, _ in found for key in ids} == {1, 2, 3}
    sweeps = [(op, shard, payload["type"]) for op, shard, ids, payload in found if not ids]
    assert sweeps == [("B", 0, "sweep"), ("B", 1, "sweep")]
    last = db.execute("SELECT max(seq) FROM tube_seq, LATERAL (SELECT last_value AS seq) AS s").fetchone()
    starts = {int(payload["start_seq"]) for _, _, ids, payload in found if not ids}
    assert last
    assert len(starts) == 1
    assert 0 < starts.pop() < last[0]


@pytest.mark.parametrize(("owner", "touched"), [("late_owner", [("D", 1)]), ("postgres", [])])
def test_attached_after_the_snapshot(
    db: Conn, any_dsn: str, owner: str, touched: list[tuple[str, int]]
) -> None:
    """The trigger fires, and the registry can't be seen.

    Nor can it be seen whether the role that made the cluster still owns the table; then a sweep does it.
    """
    with roles(any_dsn, "late_owner"):
        db.execute("CREATE TABLE public.late (id int PRIMARY KEY, deleted boolean DEFAULT false)")
        db.execute("INSERT INTO late VALUES (1)")
        db.execute(f"ALTER TABLE late OWNER TO {owner}".encode())
        with open_session(any_dsn) as other, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            db.execute("SELECT 1 FROM tube_registry")
            attach(other, "public.late", 20)
            db.execute("TRUNCATE public.late")
        swept = """SELECT count(*) FROM "es-live" WHERE payload ->> 'type' = 'sweep'"""
        assert (scalar(db, swept), ops(db)) == (1, touched)


def test_a_backfill_session(db: Conn) -> None:
    db.execute("SET application_name = 'my backfill'")
    db.execute(f"TRUNCATE {TABLE}")
    assert ops(db) == [("B", 1), ("B", 2), ("B", 3)]
