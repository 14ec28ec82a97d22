"""The fence: a call under a term either commits before the next term exists, or is refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.helpers.capture import open_session
from tests.helpers.database import preparing
from tests.helpers.terms import (
    TUBE,
    Claim,
    Conn,
    Term,
    acquire,
    make_tube,
    mark,
    park,
    park_item,
    pods,
    scalar,
    touch,
)
from tests.isolation.conftest import NewSession

END = "(SELECT max(seq) FROM tube.queue WHERE payload ->> 'type' = 'backfill_end')"
SCHEDULE = "(SELECT max(seq) FROM tube.queue WHERE payload ->> 'type' = 'backfill_schedule')"
CONTROL = {
    1: '{"type": "backfill_end", "start_seq": "1"}',
    0: '{"type": "backfill_schedule", "tbl": "public.items", "order_col": "id"}',
}
"""Control pods by shard; the end is of another table's backfill than the schedule."""
CALLS = {
    "mark": "SELECT * FROM tube_pods_mark(%s, %s, %s, %s)",
    "purge": "SELECT tube_pods_purge(%s, %s, %s, %s, ARRAY(SELECT seq FROM tube.queue))",
    "reset": "SELECT tube_pods_reset(%s, %s, %s, %s, ARRAY(SELECT seq FROM tube.queue))",
    "reset all": "SELECT tube_pods_reset(%s, %s, %s, %s)",
    "park": 'SELECT tube_pods_park(%s, %s, %s, %s, \'[{"shard":0,"id":"8","op":"U","seq":1,'
    '"error":"x","attempts":1}]\')',
    "fail": 'SELECT tube_pods_fail(%s, %s, %s, %s, \'[{"shard":0,"id":"8","error":"x","attempts":1}]\')',
    "stop": "SELECT tube_pods_stop(%s, %s, %s, %s, 'poison', 'x', '[]')",
    "step take": "SELECT * FROM tube_step_take(%s, %s, %s, %s, 1)",
    "step end": "SELECT tube_step_end(%s, %s, %s, %s, 1, 'failed', 'x')",
    "unpark": "SELECT tube_pods_unpark(%s, %s, %s, %s, '{0}', '{7}')",
    "sleep": "SELECT tube_sleep(%s, %s, %s, %s)",
    "wait": "SELECT tube_leader_wait(%s, %s, %s, %s)",
    "renew": "SELECT tube_leader_renew(%s, %s, %s, %s)",
    "sweep ready": f"SELECT tube_sweep_ready(%s, %s, %s, %s, 1, {END})",
    "sweep touch": "SELECT tube_sweep_touch(%s, %s, %s, %s, 0, '{5, 6}'::bigint[])",
    "sweep end": f"SELECT tube_sweep_end(%s, %s, %s, %s, 1, {END})",
    "take": f"SELECT tube_backfill_take(%s, %s, %s, %s, 0, {SCHEDULE})",
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


def tube_of_items(dsn: str) -> None:
    with open_session(dsn) as conn:
        make_tube(conn)
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        conn.execute("SELECT tube_table_ensure_attached(%s, 'public.items', 0)", (TUBE,))


prepare = preparing(tube_of_items, "term")


@pytest.fixture
def term(conn: Conn) -> Term:
    """A term with two pods and two control pods marked, a pod not, and a key parked."""
    term = acquire(conn)
    touch(conn)
    touch(conn, op="B")
    for shard, payload in CONTROL.items():
        conn.execute("SELECT queue_touch(%s, '{}', 'B', %s)", (shard, payload))
    mark(conn, term)
    touch(conn)
    park(conn, term, park_item(7))
    return term


def state(conn: Conn) -> dict[str, Any]:
    """All that a term may change, but its own renewal."""
    return {
        "pods": pods(conn),
        "parked": conn.execute("SELECT * FROM tube_parked ORDER BY park_id").fetchall(),
        "backfills": conn.execute("SELECT * FROM tube_backfill").fetchall(),
        "sleepers": conn.execute("SELECT * FROM tube_sleeper").fetchall(),
        "leaders": conn.execute("SELECT * FROM tube_leader ORDER BY partition").fetchall(),
    }


def sqlstate(failed: pytest.ExceptionInfo[psycopg.Error]) -> str | None:
    return failed.value.sqlstate


@every_call
def test_an_open_call_keeps_the_next_term_out_until_it_commits(
    call: str, term: Term, session: NewSession
) -> None:
    old, new = session(), session()
    old.begin()
    old.run(call, term.args)
    claim = Claim(expected=term.epoch)
    acquiring = new.start(claim.statement, claim.params)
    assert acquiring.blocked(by=old)
    old.commit()
    assert acquiring.value() > term.epoch


@every_call
@pytest.mark.parametrize("how", ["superseded", "released"])
def test_a_call_under_an_ended_term_is_refused_and_touches_nothing(
    call: str, how: str, conn: Conn, term: Term
) -> None:
    if how == "superseded":
        acquire(conn)
    else:
        assert scalar(conn, "SELECT tube_leader_release(%s, %s, %s, %s)", term.args)
    before = state(conn)
    with pytest.raises(psycopg.Error) as failed:
        conn.execute(call, term.args)
    assert sqlstate(failed) == "TU001"
    assert state(conn) == before


@every_call
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_call_waits_for_an_open_acquire_and_is_refused_if_that_commits(
    call: str, end: str, conn: Conn, term: Term, session: NewSession
) -> None:
    old, new = session(), session()
    new.begin()
    claim = Claim()
    new.run(claim.statement, claim.params)
    calling = old.start(call, term.args)
    assert calling.blocked(by=new)
    if end == "rollback":
        new.rollback()
        calling.rows()
        return
    before = state(conn)
    new.commit()
    with pytest.raises(psycopg.Error) as failed:
        calling.rows()
    assert sqlstate(failed) == "TU001"
    after = state(conn)
    assert [after["pods"], after["parked"]] == [before["pods"], before["parked"]]


@every_call
def test_a_snapshot_from_before_the_next_term_does_not_get_past_the_fence(
    call: str, conn: Conn, term: Term, session: NewSession
) -> None:
    old = session()
    old.begin("ISOLATION LEVEL REPEATABLE READ")
    old.run("SELECT 1 FROM tube_leader")
    acquire(conn)
    before = state(conn)
    with pytest.raises(psycopg.errors.SerializationFailure):
        old.run(call, term.args)
    old.rollback()
    assert state(conn) == before


@every_call
def test_repartition_waits_for_an_open_call_and_ends_the_term(
    call: str, conn: Conn, term: Term, session: NewSession
) -> None:
    old, admin = session(), session()
    old.begin()
    old.run(call, term.args)
    changing = admin.start("SELECT tube_ensure_exists(%s, 2)", (TUBE,))
    assert changing.blocked(by=old)
    old.commit()
    changing.rows()
    before = state(conn)
    with pytest.raises(psycopg.Error) as failed:
        conn.execute(call, term.args)
    assert sqlstate(failed) == "TU002"
    assert state(conn) == before


def test_a_call_that_waited_for_a_repartition_is_refused(term: Term, session: NewSession) -> None:
    old, admin = session(), session()
    admin.begin()
    admin.run("SELECT tube_ensure_exists(%s, 2)", (TUBE,))
    marking = old.start(CALLS["mark"], term.args)
    assert marking.blocked(by=admin)
    admin.commit()
    with pytest.raises(psycopg.Error) as failed:
        marking.rows()
    assert sqlstate(failed) == "TU002"


def test_an_acquire_gives_up_when_the_old_call_takes_too_long(
    conn: Conn, term: Term, session: NewSession
) -> None:
    # The limit is five seconds, which no test should wait for.
    conn.execute("ALTER FUNCTION tube.tube_leader_acquire SET lock_timeout = '100ms'")
    old, new = session(), session()
    old.begin()
    old.run(CALLS["mark"], term.args)
    claim = Claim()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        new.run(claim.statement, claim.params)
    old.run(CALLS["renew"], term.args)
    old.commit()
    assert scalar(conn, "SELECT leader_id FROM tube_leaders()") == term.leader_id


def test_renewals_and_marks_do_not_wait_for_each_other(term: Term, session: NewSession) -> None:
    marker, renewer = session(), session()
    marker.begin()
    marker.run(CALLS["mark"], term.args)
    renewer.begin()
    renewer.run(CALLS["renew"], term.args)
    marker.run(CALLS["reset all"], term.args)
    renewer.commit()
    marker.commit()
    renewer.begin()
    renewer.run(CALLS["renew"], term.args)
    marker.run(CALLS["mark"], term.args)
    renewer.rollback()


@pytest.mark.each_value
@pytest.mark.parametrize("first", ["acquire", "release"])
@every_call
def test_a_term_that_begins_or_ends_does_not_hold_up_other_partitions(
    call: str, first: str, conn: Conn, session: NewSession
) -> None:
    make_tube(conn, partitions=2)
    here = acquire(conn, Claim(partitions=2, partition=0))
    there = acquire(conn, Claim(partitions=2, partition=1))
    one, other = session(), session()
    one.begin()
    if first == "acquire":
        claim = Claim(partitions=2, partition=1)
        one.run(claim.statement, claim.params)
    else:
        one.run("SELECT tube_leader_release(%s, %s, %s, %s)", there.args)
    other.begin()
    other.run(call, here.args)
    one.commit()
    other.commit()


def test_two_marks_of_one_term_return_no_pod_twice(term: Term, session: NewSession) -> None:
    one, other = session(), session()
    one.begin()
    assert len(one.run(CALLS["mark"], term.args)) == 1
    again = other.start(CALLS["mark"], term.args)
    assert again.blocked(by=one)
    one.commit()
    assert again.rows() == []


@pytest.mark.usefixtures("term")
def test_pods_of_an_earlier_term_are_taken_over(conn: Conn) -> None:
    seqs = list(pods(conn))
    new = acquire(conn)
    # Incremental pods first: all between the first and the last are of op B.
    assert [pod.seq for pod in mark(conn, new)] == [seqs[0], seqs[4], *seqs[1:4]]
    assert set(pods(conn).values()) == {new.leader_id}
