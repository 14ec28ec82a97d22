"""Writers, attaching and repartitioning at the same time."""

from __future__ import annotations

import itertools
import threading
import time

import psycopg
import pytest

from tests.conftest import Connect
from tests.helpers.capture import TABLE, TUBE, Conn, make_item, make_tube, ops, scalar, set_up, take, triggers
from tests.helpers.terms import Claim, acquire, mark
from tests.helpers.waiting import wait_until
from tests.isolation.conftest import NewSession

ATTACH = "SELECT tube_table_ensure_attached(%s, %s, 0)"
QUICK = "-c search_path=tube,public -c lock_timeout=4s"
"""For a writer that is let pass: it waits for one attempt to change the table, 0.1 s, not for a call, 5 s."""
UPDATE = f"UPDATE {TABLE} SET value = 'x' WHERE id = %s"


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_attach_the_same_table(conn: Conn, session: NewSession, end: str) -> None:
    make_item(conn)
    make_tube(conn)
    first, second = session(), session()
    first.begin()
    first.run(ATTACH, (TUBE, TABLE))
    late = second.start(ATTACH, (TUBE, TABLE))
    assert late.blocked(by=first)
    getattr(first, end)()
    late.rows()
    assert len(triggers(conn)) == 4
    conn.execute(f"INSERT INTO {TABLE} VALUES (1)")
    assert ops(conn) == [("I", 1)]


def test_two_tubes_get_the_same_table(conn: Conn, session: NewSession) -> None:
    make_item(conn)
    make_tube(conn)
    make_tube(conn, "other")
    first, second = session(), session()
    first.begin()
    first.run(ATTACH, (TUBE, TABLE))
    late = second.start(ATTACH, ("other", TABLE))
    assert late.blocked(by=first)
    first.commit()
    late.rows()
    conn.execute("SELECT public.item_touch('{1}')")
    assert ops(conn) == ops(conn, "other") == [("T", 1)], "the touch function knows both tubes"


def test_two_make_the_same_tube(conn: Conn, session: NewSession) -> None:
    first, second = session(), session()
    first.begin()
    first.run("SELECT tube_ensure_exists('new', 2)")
    late = second.start("SELECT tube_ensure_exists('new', 3)")
    assert late.blocked(by=first)
    first.commit()
    late.rows()
    assert conn.execute("SELECT partitions, count(*) FROM tube_leader GROUP BY 1").fetchall() == [(3, 3)]


@pytest.mark.parametrize("what", ["attach", "detach"])
def test_attaching_a_busy_table_lets_its_writers_pass(
    conn: Conn, session: NewSession, connect: Connect, what: str
) -> None:
    set_up(conn)
    if what == "attach":
        conn.execute("SELECT tube_table_ensure_detached(%s, %s)", (TUBE, TABLE))
    conn.execute(f"INSERT INTO {TABLE} VALUES (1), (2)")
    take(conn)
    slow, admin = session(), session()
    slow.begin()
    slow.run(UPDATE, (1,))
    statement = ATTACH if what == "attach" else "SELECT tube_table_ensure_detached(%s, %s)"
    changing = admin.start(statement, (TUBE, TABLE))
    assert changing.blocked(by=slow)
    # Others write while it tries: no writer waits for longer than one attempt.
    quick = connect(options=QUICK)
    for _ in range(20):
        quick.execute(UPDATE, (2,))
    slow.run(UPDATE, (1,))
    slow.commit()
    changing.rows()
    take(conn)
    conn.execute(UPDATE, (1,))
    assert ops(conn) == ([("U", 1)] if what == "attach" else [])


def test_a_predicate_changes_without_waiting_for_writers(conn: Conn, session: NewSession) -> None:
    set_up(conn)
    conn.execute(f"INSERT INTO {TABLE} VALUES (1), (20)")
    take(conn)
    writer = session()
    writer.begin()
    writer.run(UPDATE, (1,))
    make_tube(conn, predicate="id > 10")
    writer.run(UPDATE, (1,))
    writer.run(UPDATE, (20,))
    writer.commit()
    assert ops(conn) == [("U", 1), ("U", 20)], "before the change, and after it"


def test_two_writers_of_one_row(conn: Conn, session: NewSession) -> None:
    set_up(conn, predicate="NOT deleted")
    conn.execute(f"INSERT INTO {TABLE} VALUES (1)")
    take(conn)
    first, second = session(), session()
    first.begin()
    first.run(f"UPDATE {TABLE} SET deleted = true WHERE id = 1")
    late = second.start(f"UPDATE {TABLE} SET value = 'late' WHERE id = 1")
    assert late.blocked(by=first)
    first.commit()
    late.rows()
    assert ops(conn) == [("D", 1)], "the second found a row outside, and left it there"


def test_a_repartition_waits_for_a_call_under_a_term(conn: Conn, session: NewSession) -> None:
    make_tube(conn, partitions=2)
    term = acquire(conn, Claim(TUBE, 2, 0))
    conn.execute("INSERT INTO tube.\"es-live\" (op, shard, ids) VALUES ('U', 0, '{1}')")
    worker, admin = session(), session()
    worker.begin()
    worker.run("SELECT * FROM tube_pods_mark(%s, %s, %s, %s)", term.args)
    change = admin.start("SELECT tube_ensure_exists(%s, 3)", (TUBE,))
    assert change.blocked(by=worker)
    worker.commit()
    change.rows()
    assert scalar(conn, 'SELECT leader_id FROM "es-live"') == term.leader_id
    assert [pod.seq for pod in mark(conn, acquire(conn, Claim(TUBE, 3, 0)))], "the new term takes it over"


def test_a_repartition_lets_writers_pass(conn: Conn, session: NewSession, connect: Connect) -> None:
    set_up(conn, partitions=2)
    conn.execute(f"INSERT INTO {TABLE} VALUES (1), (2)")
    slow, admin = session(), session()
    slow.begin()
    slow.run(UPDATE, (1,))
    change = admin.start("SELECT tube_ensure_exists(%s, 3)", (TUBE,))
    quick = connect(options=QUICK)
    for _ in range(10):
        quick.execute(UPDATE, (2,))
    change.rows()
    assert scalar(conn, "SELECT partitions FROM tube_registry") == 3, "while a writer stays open"
    slow.run(UPDATE, (1,))
    slow.commit()
    assert [number for number, _ in indexes(conn)] == [2]
    assert scalar(conn, "SELECT tube_index_fit()") == 1
    assert indexes(conn) == [(3, True)]
    assert len(mark(conn, acquire(conn, Claim(TUBE, 3, 0)))) == 13


OPEN = 2.0
"""Seconds that a writer below keeps its transaction open after the first of its two rows."""


class SlowWriters:
    """Writers that overlap, so that the tube's table is never without one. Each row has an id of its own."""

    def __init__(self, connect: Connect, count: int) -> None:
        self._stop = threading.Event()
        self._ids = itertools.count(1)
        self.committed: list[int] = []
        self.slowest = 0.0
        self._threads = [
            threading.Thread(target=self._write, args=(connect(options=QUICK), n * OPEN / count))
            for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, conn: Conn, first: float) -> None:
        self._stop.wait(first)
        while not self._stop.is_set():
            with conn.transaction():
                written = [next(self._ids), next(self._ids)]
                self._insert(conn, written[0])
                self._stop.wait(OPEN)
                self._insert(conn, written[1])
            self.committed += written

    def _insert(self, conn: Conn, key: int) -> None:
        began = time.monotonic()
        conn.execute(f"INSERT INTO {TABLE} VALUES (%s)", (key,))
        self.slowest = max(self.slowest, time.monotonic() - began)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def indexes(conn: Conn, tube: str = TUBE) -> list[tuple[int, bool]]:
    """The numbers of partitions for which the tube has an index, and whether it is ready."""
    return conn.execute(
        "SELECT partitions, valid FROM tube_private_indexes(%s) ORDER BY 1", (tube,)
    ).fetchall()


def marked(conn: Conn, partitions: int) -> dict[int, set[int]]:
    """What each partition's new term takes: the ids. A pod is in one partition, that of its shard."""
    found: dict[int, set[int]] = {}
    for partition in range(partitions):
        pods = mark(conn, acquire(conn, Claim(TUBE, partitions, partition)), limit=100_000)
        assert [pod.seq for pod in pods] == sorted(pod.seq for pod in pods)
        assert all(pod.shard % partitions == partition for pod in pods)
        found[partition] = {key for pod in pods for key in pod.ids}
    return found


@pytest.mark.parametrize("number", [3, *(pytest.param(number, marks=pytest.mark.soak) for number in (2, 8))])
def test_a_repartition_waits_for_no_writer_of_many(conn: Conn, connect: Connect, number: int) -> None:
    set_up(conn, partitions=4, shards=16)
    old = acquire(conn, Claim(TUBE, 4, 1))
    writers = SlowWriters(connect, 6)
    try:
        wait_until(lambda: len(writers.committed) >= 12)
        assert len(mark(conn, old, limit=2)) == 2, "some pods are an old term's"
        open_writer = connect(autocommit=False)
        open_writer.execute(f"INSERT INTO {TABLE} VALUES (0)")
        conn.execute("SELECT tube_ensure_exists(%s, %s)", (TUBE, number))
        open_writer.rollback()
        assert indexes(conn) == [(4, True)]
        there, seen = set(writers.committed), marked(conn, number)
        assert there <= set().union(*seen.values())
        assert scalar(conn, "SELECT tube_index_fit()") == 0, "there never is a moment without a writer"
        # By hand, while they go on.
        assert settle(conn, number) == ["CREATE", "DROP"]
        assert indexes(conn) == [(number, True)]
    finally:
        writers.stop()
    assert writers.slowest < OPEN, "no writer waited for the end of another one's transaction"
    seen = marked(conn, number)
    assert sum(map(len, seen.values())) == len(writers.committed)
    assert set().union(*seen.values()) == set(writers.committed)


def settle(conn: Conn, partitions: int) -> list[str]:
    """Run what tube_index_sql gives until there is nothing; the first words."""
    done = []
    while statement := scalar(conn, "SELECT tube_index_sql(%s, %s)", (TUBE, partitions)):
        conn.execute(statement.encode())
        done.append(statement.split()[0])
    return done


def test_tubes_that_have_their_index_keep_the_next_one(conn: Conn) -> None:
    make_tube(conn, partitions=2)
    assert settle(conn, 3) == ["CREATE"]
    assert scalar(conn, "SELECT tube_index_fit()") == 0
    assert indexes(conn) == [(2, True), (3, True)]
    assert settle(conn, 2) == ["DROP"]


def test_a_long_tube_is_not_built_with_its_writers_held_up(conn: Conn) -> None:
    make_tube(conn, partitions=2)
    conn.execute(
        'INSERT INTO "es-live" (op, shard, ids)'
        " SELECT 'U', g % 16, ARRAY[g] FROM generate_series(1, 100000) AS g"
    )
    make_tube(conn, partitions=6)
    assert indexes(conn) == [(2, True)]
    assert scalar(conn, "SELECT tube_index_fit()") == 0
    assert sum(map(len, marked(conn, 6).values())) == 100_000
    assert settle(conn, 6) == ["CREATE", "DROP"]


def test_two_repartition_at_once(conn: Conn, session: NewSession) -> None:
    make_tube(conn, partitions=1)
    first, second = session(), session()
    first.begin()
    first.run("SELECT tube_ensure_exists(%s, 2)", (TUBE,))
    late = second.start("SELECT tube_ensure_exists(%s, 3)", (TUBE,))
    assert late.blocked(by=first)
    first.commit()
    late.rows()
    assert conn.execute("SELECT partitions, generation FROM tube_registry").fetchall() == [(3, 3)]
    assert conn.execute("SELECT count(*), min(partitions) FROM tube_leader").fetchall() == [(3, 3)]


def test_a_tube_is_dropped_under_a_writer(conn: Conn, session: NewSession) -> None:
    set_up(conn)
    conn.execute(f"INSERT INTO {TABLE} VALUES (1)")
    writer, admin = session(), session()
    writer.begin()
    writer.run(UPDATE, (1,))
    drop = admin.start("SELECT tube_ensure_absent(%s)", (TUBE,))
    assert drop.blocked(by=writer)
    writer.run(UPDATE, (1,))
    writer.commit()
    drop.rows()
    conn.execute(UPDATE, (1,))
    assert triggers(conn) == []


def test_a_pod_that_is_committed_while_its_tube_is_dropped(conn: Conn, session: NewSession) -> None:
    """The tube was empty when the drop began, which looks again under the lock that it waits for."""
    make_tube(conn)
    writer, other = session(), session()
    writer.begin()
    writer.run("SELECT \"es-live_touch\"(0, '{1}', 'T')")
    drop = other.start("SELECT tube_drop(%s)", (TUBE,))
    assert drop.blocked(by=writer)
    writer.commit()
    with pytest.raises(psycopg.Error, match="pods that wait: 1; ids in them: 1"):
        drop.rows()
    assert ops(conn) == [("T", 1)]
