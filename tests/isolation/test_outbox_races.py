"""Records of an outbox between concurrent sessions: terms, writers, operators."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest

from tests.helpers.outbox_sql import (
    OUTBOX,
    lead,
    make_outbox,
    mark,
    marked_ids,
    park,
    parked_ids,
    purge,
    reset,
    retry,
    stash,
)
from tests.helpers.terms import Conn, Term, scalar
from tests.isolation.conftest import NewSession
from tests.isolation.settling import Settling

TERM = "(%s, %s, %s, %s"
ACQUIRE = (
    "SELECT tube_leader_acquire('orders', 1, 0, gen_random_uuid(), gen_random_uuid(), 'other',"
    " tube_leader_epoch('orders', 1, 0))"
)
STASH = "SELECT outbox_stash('orders', 't', %s, 'v', in_order => %s)"
RETRY = f"SELECT outbox_retry('{OUTBOX}')"
PARK = f"SELECT outbox_records_park{TERM}, %s, true)"


def item(id_: int, *, behind: bool = False) -> dict[str, Any]:
    return {"id": id_, "error": "e", "attempts": 1, "behind": behind}


@pytest.fixture
def term(conn: Conn) -> Term:
    """One that leads an outbox with two records of a key, and has marked them."""
    make_outbox(conn)
    stash(conn)
    stash(conn)
    return lead(conn)


@pytest.mark.parametrize(
    "call",
    [
        f"SELECT count(*) FROM outbox_records_mark{TERM})",
        f"SELECT outbox_records_purge{TERM}, '{{1}}')",
        f"SELECT outbox_records_reset{TERM})",
        f"SELECT outbox_records_park{TERM}, '[]')",
    ],
    ids=["mark", "purge", "reset", "park"],
)
@pytest.mark.parametrize(
    "change", [ACQUIRE, "SELECT outbox_ensure_exists('orders', 4)"], ids=["acquire", "repartition"]
)
def test_a_call_is_over_before_the_next_term_or_refused(
    session: NewSession, term: Term, call: str, change: str
) -> None:
    under_term, other = session(), session()
    under_term.begin()
    under_term.run(call, term.args)
    waiting = other.start(change)
    assert waiting.blocked(by=under_term)
    under_term.commit()
    waiting.rows()
    with pytest.raises(psycopg.Error) as refused:
        under_term.run(call, term.args)
    assert refused.value.sqlstate in {"TU001", "TU002"}


def test_commits_of_a_key_in_order_have_ids_in_order(conn: Conn, session: NewSession) -> None:
    make_outbox(conn)
    one, two, three = session(), session(), session()
    for writer in (one, two, three):
        writer.begin()
    first = one.value(STASH, ("k", True))
    second = two.start(STASH, ("k", True))
    assert second.blocked(by=one)
    other = three.value(STASH, ("another", True))  # another key waits for nobody
    three.commit()
    one.commit()
    late = second.value()
    two.commit()
    assert (first < late, other < late) == (True, True)


def test_two_calls_with_many_keys_can_not_block_each_other_for_ever(conn: Conn, session: NewSession) -> None:
    """Their locks are taken in one order, whatever the order of the messages."""
    make_outbox(conn)
    one, two, gate = session(), session(), session()
    keys = [str(number) for number in range(40)]
    call = (
        "SELECT outbox_stash_many('orders', array_fill('t'::text, '{40}'), %s::text[],"
        " array_fill('v'::text, '{40}'), in_order => true)"
    )
    gate.begin()
    gate.run(STASH, (keys[20], True))  # somewhere in the middle of both
    calls = [one.start(call, (keys,)), two.start(call, (keys[::-1],))]
    assert all(running.blocked() for running in calls)
    gate.commit()
    assert [len(running.value()) for running in calls] == [40, 40]


def test_a_late_commit_below_the_floor_of_others_is_found(conn: Conn, session: NewSession) -> None:
    make_outbox(conn)
    writer = session()
    writer.begin()
    early = writer.value(STASH, ("a", False))
    later = stash(conn, key="b")
    term = lead(conn)
    settling = Settling.begin(conn)
    holders = scalar(conn, "SELECT tube_settle_holders('orders')")
    assert marked_ids(conn, term) == [later]
    assert not settling.done(conn), "the writer is open, so what it drew is not settled"
    assert not scalar(conn, "SELECT tube_settle_left('orders', %s)", (holders,))
    writer.commit()
    assert settling.done(conn)
    assert scalar(conn, "SELECT tube_settle_left('orders', %s)", (holders,))
    assert marked_ids(conn, term) == [early]
    assert settling.seq >= later


def test_a_record_behind_is_left_out_when_its_key_was_freed_meanwhile(
    conn: Conn, session: NewSession, term: Term
) -> None:
    first, second = marked_ids(conn, term)
    park(conn, term, first, hold=True)
    operator, worker = session(), session()
    operator.begin()
    assert operator.value(RETRY) == 1
    parking = worker.start(PARK, (*term.args, json.dumps([item(second, behind=True)])))
    assert parking.blocked(by=operator)
    operator.commit()
    assert parking.value() == []
    assert marked_ids(conn, term, floor=second) == [first]
    assert purge(conn, term, [first, second]) == 2


def test_a_key_that_is_freed_while_marks_go_on_keeps_its_order(
    conn: Conn, session: NewSession, term: Term
) -> None:
    """Between the two statements of a mark: the later record is not free before the earlier one."""
    first, second = marked_ids(conn, term)
    park(conn, term, first, hold=True)
    reset(conn, term, [second])
    operator, worker = session(), session()
    operator.begin()
    assert operator.value(RETRY) == 1
    worker.begin()
    begin = "SELECT mark, ids FROM tube_private_begin_mark(%s, %s, %s, %s, 1000, %s)"
    text, ids = worker.run(begin, (*term.args, first))[0]
    assert ids is None
    operator.commit()
    parameters = (term.leader_id, first, OUTBOX, 1000)
    filled = re.sub(r"\$(\d)", lambda found: f"%(p{found[1]})s", text.replace("%", "%%"))
    rows = worker.run(filled, {f"p{number}": value for number, value in enumerate(parameters, 1)})
    assert [(row[0], row[-1]) for row in rows] == [(second, True)]
    worker.commit()
    assert park(conn, term, second, behind=True) == [], "its key is free"
    assert marked_ids(conn, term, floor=second) == [first]


@pytest.mark.parametrize("before", [False, True], ids=["none parked before", "others parked before"])
def test_nothing_is_parked_while_a_mark_goes_on(
    conn: Conn, session: NewSession, term: Term, before: bool
) -> None:
    """Else the mark would take it as it is, and the worker send it although an operator has mended it."""
    others = [stash(conn, key="another")] if before else []
    first, second = marked_ids(conn, term)[:2]
    park(conn, term, *others)
    third = stash(conn)
    worker, parking, gate = session(), session(), session()
    gate.begin()
    gate.run("LOCK TABLE tube.orders IN EXCLUSIVE MODE")  # the statement that marks waits for it
    marking = worker.start(f"SELECT id, held FROM outbox_records_mark{TERM})", term.args)
    assert marking.blocked(by=gate)
    parked = parking.start(PARK, (*term.args, json.dumps([item(first), item(second, behind=True)])))
    assert parked.blocked(by=worker)
    gate.commit()
    assert marking.rows() == [(third, False)]
    assert parked.value() == [first, second]
    retry(conn)
    assert marked_ids(conn, term) == [first, second, *others], "nobody has marked them meanwhile"


def test_a_mark_does_not_wait_for_who_parks(conn: Conn, session: NewSession, term: Term) -> None:
    first, _ = marked_ids(conn, term)
    other = stash(conn, key="another")
    parking, worker = session(), session()
    parking.begin()
    assert parking.value(PARK, (*term.args, json.dumps([item(first)]))) == [first]
    marking = worker.start(f"SELECT id, held FROM outbox_records_mark{TERM})", term.args)
    assert marking.rows() == [(other, False)]
    parking.commit()
    third = stash(conn)
    assert [(record.id, record.held) for record in mark(conn, term)] == [(third, True)]


def test_a_record_parked_behind_another_goes_with_it(conn: Conn, session: NewSession, term: Term) -> None:
    """The retry waits for who parks, and then sees what was parked."""
    first, second = marked_ids(conn, term)
    park(conn, term, first, hold=True)
    operator, worker = session(), session()
    worker.begin()
    assert worker.value(PARK, (*term.args, json.dumps([item(second, behind=True)]))) == [second]
    retrying = operator.start(RETRY)
    assert retrying.blocked(by=worker)
    worker.commit()
    assert retrying.value() == 2
    assert marked_ids(conn, term) == [first, second]


def test_two_operators_retry_a_record_once(conn: Conn, session: NewSession, term: Term) -> None:
    ids = marked_ids(conn, term)
    park(conn, term, *ids)
    one, two = session(), session()
    one.begin()
    assert one.value(RETRY) == 2
    dropping = two.start(f"SELECT outbox_parked_drop('{OUTBOX}', %s)", (ids,))
    assert dropping.blocked(by=one)
    one.commit()
    assert dropping.value() == 0
    assert [record.id for record in mark(conn, term)] == ids


def test_a_mark_does_not_wait_for_an_operator(conn: Conn, session: NewSession, term: Term) -> None:
    first, _ = marked_ids(conn, term)
    park(conn, term, first)
    operator = session()
    operator.begin()
    operator.run(RETRY)
    late = stash(conn, key="z")
    assert marked_ids(conn, term) == [late]
    operator.commit()
    assert marked_ids(conn, term) == [first]
    assert parked_ids(conn) == []
    assert retry(conn) == 0


def test_a_writer_wakes_a_sleeping_worker_and_so_does_a_retry(
    conn: Conn, session: NewSession, term: Term
) -> None:
    conn.execute("SET pytube.wake = 'on'")  # transactions may be prepared on this server
    ids = marked_ids(conn, term)
    park(conn, term, *ids)
    listener = session()
    channel = listener.value("SELECT tube_channel('orders')")
    listener.run(f"LISTEN {channel}")

    def told() -> list[str]:
        listener.run("SELECT 1")
        return [notice.payload for notice in listener.conn.notifies(timeout=0)]

    stash(conn)
    assert told() == [], "nobody sleeps"
    conn.execute(f"SELECT tube_sleep{TERM})", term.args)
    conn.execute("INSERT INTO orders (kafka_topic, kafka_value) VALUES ('t', 'v'), ('t', 'w')")
    assert told() == ["0"]
    retry(conn)
    assert told() == ["0"]
