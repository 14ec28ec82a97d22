"""Operators at once, and beside a worker's marks: each pod and each key is acted upon by one of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pytube import admin
from pytube.admin import Parking
from pytube.admin import park as park_module
from pytube.tubes.calls import value_of
from tests.helpers.terms import TUBE, Claim, Conn, acquire, make_tube, park, park_item, pods, touch
from tests.isolation.conftest import NewSession


@pytest.mark.each_value
@pytest.mark.parametrize("key", ["", ", in_key => '7'"])
@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("tube_park_drop", "tube_park_drop", 0),
        ("tube_park_drop", "tube_park_retry", 0),
        ("tube_park_retry", "tube_park_drop", 1),
        ("tube_park_retry", "tube_park_retry", 1),
    ],
)
def test_one_of_two_operators_retries_or_drops_a_parked_key(
    conn: Conn, session: NewSession, key: str, first: str, second: str, left: int
) -> None:
    make_tube(conn)
    park(conn, acquire(conn), park_item(7))
    one, other = session(), session()
    one.begin()
    assert one.value(f"SELECT {first}('{TUBE}'{key})") == 1
    waiting = other.start(f"SELECT {second}('{TUBE}'{key})")
    assert waiting.blocked(by=one)
    one.commit()
    assert waiting.value() == 0, "the other one is told"
    assert conn.execute("SELECT count(*) FROM tube_parked").fetchone() == (left,)
    assert len(pods(conn)) == left
    acted = conn.execute("SELECT action FROM tube_audit").fetchall()
    assert acted == [("park retry" if left else "park discard",)]


def test_a_key_that_is_parked_again_meanwhile_is_not_dropped(conn: Conn, session: NewSession) -> None:
    """Who dropped it has seen another error."""
    make_tube(conn)
    term = acquire(conn)
    park(conn, term, park_item(7))
    worker, operator = session(), session()
    worker.begin()
    worker.run(
        "SELECT tube_pods_park(%s, %s, %s, %s, %s)", (*term.args, json.dumps([park_item(7, error="another")]))
    )
    waiting = operator.start(f"SELECT tube_park_drop('{TUBE}')")
    assert waiting.blocked(by=worker)
    worker.commit()
    assert waiting.value() == 0
    assert conn.execute("SELECT error FROM tube_parked").fetchone() == ("another",)


def test_a_key_whose_parking_was_under_way_when_keys_were_counted_is_left_alone(
    conn: Conn, session: NewSession
) -> None:
    """Its number and its time are of before the count, which has not seen it."""
    make_tube(conn)
    term = acquire(conn)
    worker, operator = session(), session()
    worker.begin()
    worker.run("SELECT tube_pods_park(%s, %s, %s, %s, %s)", (*term.args, json.dumps([park_item(7)])))
    count, seen = operator.run(f"SELECT count, seen FROM tube_park_count('{TUBE}')")[0]
    assert count == 0
    worker.commit()
    for act in ("retry", "drop"):
        assert operator.value(f"SELECT tube_park_{act}('{TUBE}', in_seen => '{seen}')") == 0
    assert conn.execute("SELECT id, retried_at FROM tube_parked").fetchall() == [("7", None)]


@pytest.mark.parametrize("act", [admin.retry_parked, admin.drop_parked])
def test_a_bulk_act_in_pieces_leaves_alone_what_was_parked_or_retried_since_it_began(
    conn: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch, act: Callable[..., int]
) -> None:
    """Two operators, and a worker to whom what is retried fails again at once, between any two pieces."""
    make_tube(conn)
    term = acquire(conn)
    park(conn, term, *(park_item(key) for key in range(1, 5)))
    pieces = 0

    def piece(*arguments: Any, **named: Any) -> Any:
        nonlocal pieces
        done, pieces = value_of(*arguments, **named), pieces + 1
        assert pieces < 10, "it never ends"
        park(conn, term, park_item(1, error="failed again"), park_item(4, error="failed again"))
        conn.execute(f"SELECT tube_park_retry('{TUBE}', in_key => '3')".encode())
        park(conn, term, park_item(100 + pieces, error="new"))
        return done

    monkeypatch.setattr(park_module, "AT_ONCE", 1)
    monkeypatch.setattr(park_module, "value_of", piece)
    with psycopg.connect(dsn, autocommit=True) as operator:
        assert act(operator, Parking(TUBE)) == 2, "1 and 2: the others changed"
    left = {row.id: row.error for row in admin.list_parked(conn, Parking(TUBE))}
    assert left["4"] == left["1"] == "failed again"
    assert {"3", "101", "102"} <= left.keys()
    assert ("2" in left) == (act is admin.retry_parked)


def test_two_operators_acknowledge_the_same_pod(conn: Conn, session: NewSession) -> None:
    make_tube(conn)
    touch(conn)
    one, other = session(), session()
    one.begin()
    assert one.value(f"SELECT tube_pods_ack('{TUBE}')") == 1
    waiting = other.start(f"SELECT tube_pods_ack('{TUBE}')")
    assert waiting.blocked(by=one)
    one.commit()
    assert waiting.value() == 0


def test_what_a_worker_marks_meanwhile_is_not_acknowledged(conn: Conn, session: NewSession) -> None:
    make_tube(conn)
    touch(conn)
    term = acquire(conn)
    worker, operator = session(), session()
    worker.begin()
    assert len(worker.run("SELECT * FROM tube_pods_mark(%s, %s, %s, %s)", term.args)) == 1
    waiting = operator.start(f"SELECT tube_pods_ack('{TUBE}')")
    assert waiting.blocked(by=worker)
    worker.commit()
    with pytest.raises(psycopg.Error) as refused:
        waiting.rows()
    assert refused.value.sqlstate == "TU142"
    assert len(pods(conn)) == 1


def test_what_an_operator_takes_away_meanwhile_is_not_marked(conn: Conn, session: NewSession) -> None:
    make_tube(conn)
    touch(conn, ids=(1,))
    touch(conn, ids=(1, 2))
    term = acquire(conn)
    worker, operator = session(), session()
    operator.begin()
    assert operator.value(f"SELECT tube_pods_ack('{TUBE}', in_key => '1')") == 2
    waiting = worker.start("SELECT ids FROM tube_pods_mark(%s, %s, %s, %s)", term.args)
    assert waiting.blocked(by=operator)
    operator.commit()
    assert waiting.rows() == [([2],)], "it sees the pod as it is now"


def test_two_operators_step_at_once(conn: Conn, session: NewSession) -> None:
    make_tube(conn)
    seq = touch(conn)
    term = acquire(conn, Claim())
    conn.execute("SELECT tube_pause(%s)", (TUBE,))
    conn.execute("INSERT INTO tube_halted VALUES (%s, now())", (term.leader_id,))
    one, other = session(), session()
    one.begin()
    one.run("SELECT tube_step_ask(%s, %s, 0, '1')", (TUBE, seq))
    waiting = other.start("SELECT tube_step_ask(%s, %s, 0, '1')", (TUBE, seq))
    assert waiting.blocked(by=one)
    one.commit()
    with pytest.raises(psycopg.Error) as refused:
        waiting.rows()
    assert refused.value.sqlstate == "TU144"


@pytest.mark.parametrize("still_rests", [True, False])
def test_renewals_do_not_wait_for_an_operator_who_pauses_in_an_open_transaction(
    conn: Conn, session: NewSession, still_rests: bool
) -> None:
    """All terms of a process are renewed by one statement: if it waited, none of them could send."""
    make_tube(conn)
    term = acquire(conn)
    resting = json.dumps({str(term.leader_id): {"paused": {"reason": "told", "seconds": 0}}})
    renewal = "SELECT renewed FROM tube_leaders_renew(NULL, ARRAY[%s]::uuid[], %s)"
    conn.execute("SELECT tube_pause(%s)", (TUBE,))
    conn.execute(renewal.encode(), (term.leader_id, resting))
    worker, operator = session(), session()
    operator.begin()
    operator.run("SELECT tube_pause(%s)", (TUBE,))
    worker.run("SET lock_timeout = '1s'")
    assert worker.value(renewal, (term.leader_id, resting if still_rests else None)) is True
    operator.commit()
    assert conn.execute("SELECT halted_since FROM tube_pause_list(%s)", (TUBE,)).fetchall() == [(None,)]
