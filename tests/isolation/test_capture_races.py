"""Writers, attaching and repartitioning at the same time."""

from __future__ import annotations

import pytest

from tests.conftest import Connect
from tests.helpers.capture import TABLE, TUBE, Conn, make_item, make_tube, ops, scalar, set_up, take, triggers
from tests.helpers.terms import Claim, acquire, mark
from tests.isolation.conftest import NewSession

ATTACH = "SELECT tube_table_ensure_attached(%s, %s, 0)"
UPDATE = f"UPDATE {TABLE} SET value = 'x' WHERE id = %s"


def test_two_attach_the_same_table(conn: Conn, session: NewSession) -> None:
    make_item(conn)
    make_tube(conn)
    first, second = session(), session()
    first.begin()
    first.run(ATTACH, (TUBE, TABLE))
    late = second.start(ATTACH, (TUBE, TABLE))
    assert late.blocked(by=first)
    first.commit()
    late.rows()
    assert len(triggers(conn)) == 4
    conn.execute(f"INSERT INTO {TABLE} VALUES (1)")
    assert ops(conn) == [("I", 1)]


def test_two_attach_the_same_table_and_the_first_gives_up(conn: Conn, session: NewSession) -> None:
    make_item(conn)
    make_tube(conn)
    first, second = session(), session()
    first.begin()
    first.run(ATTACH, (TUBE, TABLE))
    late = second.start(ATTACH, (TUBE, TABLE))
    assert late.blocked(by=first)
    first.rollback()
    late.rows()
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
    quick = connect(options="-c search_path=tube,public -c lock_timeout=2s")
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
    assert change.blocked(by=slow)
    quick = connect(options="-c search_path=tube,public -c lock_timeout=2s")
    for _ in range(10):
        quick.execute(UPDATE, (2,))
    slow.run(UPDATE, (1,))
    slow.commit()
    change.rows()
    assert scalar(conn, "SELECT partitions FROM tube_registry") == 3


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
