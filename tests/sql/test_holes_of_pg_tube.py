"""The holes that pg-tube has, each with a test named after it: none of them is here."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from pytube.model import Key, Pod, PodClass
from pytube.pipeline.inflight import InFlight
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
from tests.helpers.terms import Claim, acquire, mark, purge


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with open_session(any_dsn) as conn:
        yield conn


def keys_of_a_worker(conn: Conn) -> list[Key]:
    """The keys that a worker makes of the incremental pods of the tube, which has one partition."""
    machine = InFlight()
    marked = mark(conn, acquire(conn, Claim(TUBE)))
    machine.add([Pod(pod.seq, pod.op, pod.shard, pod.ids) for pod in marked])
    flight = machine.take(PodClass.INCREMENTAL, 1000)
    assert flight is not None
    keys = [(shard, key) for shard, ids in flight.by_shard().items() for key in ids]
    machine.land_keys(flight, flight.by_shard())
    assert sorted(machine.finished()) == sorted(pod.seq for pod in marked)
    return sorted(keys)


def test_an_update_that_leaves_the_predicate_makes_a_touch(db: Conn) -> None:
    set_up(db, predicate="NOT deleted")
    db.execute(f"INSERT INTO {TABLE} VALUES (1), (2)")
    take(db)
    db.execute(f"UPDATE {TABLE} SET deleted = true WHERE id = 1")
    assert ops(db) == [("D", 1)]
    db.execute(f"UPDATE {TABLE} SET deleted = NOT deleted")
    assert ops(db) == [("D", 2), ("I", 1)]


def test_a_key_change_touches_the_old_id_too(db: Conn) -> None:
    set_up(db)
    db.execute(f"INSERT INTO {TABLE} VALUES (1), (2)")
    take(db)
    db.execute(f"UPDATE {TABLE} SET id = id + 1 WHERE id = 2")
    assert ops(db) == [("D", 2), ("I", 3)]


def test_negative_shards_are_refused_and_do_not_vanish(db: Conn) -> None:
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


def test_equal_ids_of_two_shards_do_not_collapse(db: Conn) -> None:
    make_tube(db, partitions=1)
    db.execute("SELECT \"es-live_touch\"(1, '{7}', 'T'), \"es-live_touch\"(2, '{7}', 'T')")
    assert keys_of_a_worker(db) == [(1, 7), (2, 7)]


def test_duplicate_ids_in_a_pod_do_no_harm(db: Conn) -> None:
    make_tube(db, partitions=1)
    db.execute("INSERT INTO \"es-live\" (op, shard, ids) VALUES ('T', 1, '{7,7,8,7}')")
    db.execute("SELECT tube_pods_insert('es-live', 'SELECT 7, g FROM generate_series(1, 3) AS g', 1, 'T')")
    assert keys_of_a_worker(db) == [(1, 7), (1, 8)]
    db.execute('DELETE FROM "es-live"')
    db.execute("SELECT \"es-live_touch\"(1, '{7,7,8,7}', 'T')")
    assert pods(db) == [("T", 1, [7, 8], None)]


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


def test_a_tube_ensured_again_without_its_predicate_keeps_it(db: Conn) -> None:
    set_up(db, predicate="NOT deleted")
    db.execute("SELECT tube_ensure_exists('es-live', 4)")
    assert scalar(db, "SELECT predicate FROM tube_list()") == "NOT deleted"
    db.execute(f"INSERT INTO {TABLE} VALUES (1, '', true), (2, '', false)")
    assert ops(db) == [("I", 2)]
    db.execute("SELECT tube_ensure_exists('es-live', 4, '')")
    assert scalar(db, "SELECT predicate FROM tube_list()") is None


def test_prepared_transactions_do_not_slip_past_step_2(db: Conn) -> None:
    set_up(db, shard=7, partitions=1)
    gid = f"late-{uuid.uuid4()}"
    with db.transaction():
        db.execute(f"INSERT INTO {TABLE} VALUES (1)")
        db.execute(f"PREPARE TRANSACTION '{gid}'")
    start = scalar(db, "SELECT tube_backfill_step1()")
    with pytest.raises(psycopg.errors.LockNotAvailable, match=gid):
        db.execute("SELECT tube_backfill_step2('50 ms')")
    db.execute(f"COMMIT PREPARED '{gid}'")
    db.execute("SELECT tube_backfill_step2('50 ms')")
    db.execute("SELECT tube_backfill_step3(%s, 'es-live', 'public.item', 'id')", (start,))
    assert [(op, ids) for op, _, ids, _ in pods(db)] == [("I", [1]), ("T", []), ("B", [1]), ("B", [])]


def test_two_workers_do_not_both_take_and_delete(db: Conn) -> None:
    make_tube(db, partitions=1)
    db.execute("SELECT \"es-live_touch\"(1, '{7}', 'T')")
    old = acquire(db, Claim(TUBE))
    seqs = [pod.seq for pod in mark(db, old)]
    new = acquire(db, Claim(TUBE))
    for attempt in (lambda: mark(db, old), lambda: purge(db, old, seqs)):
        with pytest.raises(psycopg.Error) as fenced:
            attempt()
        assert fenced.value.sqlstate == "TU001"
    assert [pod.seq for pod in mark(db, new)] == seqs
    assert purge(db, new, seqs) == 1


def test_the_number_of_indexes_does_not_grow_with_the_partitions(db: Conn) -> None:
    def indexes(tube: str) -> int:
        return int(
            scalar(
                db,
                "SELECT count(*) FROM pg_index WHERE indrelid = format('tube.%%I', %s::text)::regclass",
                (tube,),
            )
        )

    make_tube(db, "narrow", partitions=1)
    make_tube(db, "wide", partitions=64)
    assert indexes("wide") == indexes("narrow") <= 2


def test_one_table_attached_twice_in_two_shards_of_two_tubes(db: Conn) -> None:
    """The shard belongs to the attachment, not to the table's schema alone."""
    set_up(db, shard=1)
    make_tube(db, "other")
    attach(db, shard=5, tube="other")
    db.execute(f"INSERT INTO {TABLE} VALUES (1)")
    assert [touch.shard for touch in take(db)] == [1]
    assert [touch.shard for touch in take(db, "other")] == [5]
