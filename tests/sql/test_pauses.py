"""Pauses, stops and steps, as the database keeps them."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.helpers.database import preparing
from tests.helpers.terms import (
    TUBE,
    Claim,
    Conn,
    Term,
    acquire,
    make_tube,
    mark,
    pods,
    scalar,
    touch,
    with_tube_of_two,
)

prepare = preparing(with_tube_of_two, "term")


@pytest.fixture
def term(conn: Conn) -> Term:
    """Partition 0 of 2."""
    return acquire(conn, Claim(partitions=2, partition=0))


def renew(conn: Conn, term: Term, *, halted: bool = False) -> tuple[str | None, int | None]:
    """Why the partition is to pause, and the step that somebody asks for."""
    told = {str(term.leader_id): {"paused": {"reason": "told", "seconds": 0}}} if halted else None
    row = conn.execute(
        "SELECT paused, step FROM tube_leaders_renew(NULL, %s, %s)",
        ([term.leader_id], None if told is None else json.dumps(told)),
    ).fetchone()
    assert row is not None
    reason, step = row
    return reason, step


def paused(conn: Conn, tube: str = TUBE) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT partition, kind, reason FROM tube_pause_list(%s)", (tube,)).fetchall()


def stop(conn: Conn, term: Term, why: str = "poison") -> bool:
    items = json.dumps([{"shard": 0, "id": "7", "error": "too bad", "attempts": 5}])
    return bool(
        scalar(conn, "SELECT tube_pods_stop(%s, %s, %s, %s, %s, 'too bad', %s)", (*term.args, why, items))
    )


def audited(conn: Conn) -> list[str]:
    return [action for (action,) in conn.execute("SELECT action FROM tube_audit ORDER BY audit_id")]


def sqlstate(conn: Conn, statement: str, *arguments: Any) -> str | None:
    with pytest.raises(psycopg.Error) as refused:
        conn.execute(statement.encode(), arguments)
    return refused.value.sqlstate


def test_a_leader_learns_of_a_pause_and_of_its_end_with_its_renewal(conn: Conn, term: Term) -> None:
    assert renew(conn, term) == (None, None)
    conn.execute("SELECT tube_pause(%s, NULL, NULL, 'the index is being moved')", (TUBE,))
    reason, _ = renew(conn, term)
    assert reason is not None
    assert reason.endswith(": the index is being moved")
    assert [partition for partition, _, _ in paused(conn)] == [0, 1]
    assert scalar(conn, "SELECT tube_resume(%s)", (TUBE,)) == 1
    assert renew(conn, term) == (None, None)
    assert scalar(conn, "SELECT tube_resume(%s)", (TUBE,)) == 0
    assert audited(conn) == ["pause", "resume"]


def test_a_pause_of_one_partition_leaves_the_others(conn: Conn, term: Term) -> None:
    conn.execute("SELECT tube_pause(%s, 1)", (TUBE,))
    assert renew(conn, term) == (None, None)
    assert [partition for partition, _, _ in paused(conn)] == [1]
    assert scalar(conn, "SELECT tube_resume(%s, 0)", (TUBE,)) == 0
    assert scalar(conn, "SELECT tube_resume(%s, 1)", (TUBE,)) == 1


@pytest.mark.usefixtures("term")
def test_a_pause_outlives_the_term_and_holds_for_the_shards_after_a_repartition(conn: Conn) -> None:
    conn.execute("SELECT tube_pause(%s, 1)", (TUBE,))
    again = acquire(conn, Claim(partitions=2, partition=1))
    assert renew(conn, again)[0] is not None
    assert scalar(conn, "SELECT tube_pause_reason(%s, 2, 1)", (TUBE,)) is not None
    make_tube(conn, partitions=4)
    assert [partition for partition, _, _ in paused(conn)] == [1, 3], "they have the shards of 1 of 2"
    make_tube(conn, partitions=3)
    assert [partition for partition, _, _ in paused(conn)] == [0, 1, 2]


def test_of_a_tube_that_is_paused_and_was_stopped_both_are_told(conn: Conn, term: Term) -> None:
    conn.execute("SELECT tube_pause(%s, 0, '1 hour', 'maintenance')", (TUBE,))
    stop(conn, term, "park_limit")
    (mine, other) = paused(conn)
    by = scalar(conn, "SELECT paused_by FROM tube_paused WHERE partition = 0")
    until = scalar(conn, "SELECT until::timestamptz(0) FROM tube_paused WHERE partition = 0")
    assert mine[:2] == (0, "park_limit")
    said = f"park_limit: too bad; also paused by {by} until "
    assert mine[2].startswith(said)
    assert mine[2].endswith(": maintenance")
    assert scalar(conn, "SELECT %s::timestamptz", (mine[2][len(said) : -len(": maintenance")],)) == until
    assert other == (1, "park_limit", "park_limit: too bad")
    assert scalar(conn, "SELECT until FROM tube_pause_list(%s) WHERE partition = 0", (TUBE,)) is None
    assert renew(conn, term)[0] == mine[2]


def test_of_several_pauses_of_operators_each_is_told_and_the_last_one_counts(conn: Conn, term: Term) -> None:
    conn.execute("SELECT tube_pause(%s, 0, '2 hours', 'the one')", (TUBE,))
    conn.execute("SELECT tube_pause(%s, NULL, '1 hour', 'the other')", (TUBE,))
    reason, _ = renew(conn, term)
    assert reason is not None
    assert reason.index("the one") < reason.index("; also paused by ") < reason.index("the other")
    until = "SELECT until > now() + interval '90 minutes' FROM tube_pause_list(%s) WHERE partition = 0"
    assert scalar(conn, until, (TUBE,)) is True


def test_a_pause_expires(conn: Conn, term: Term) -> None:
    conn.execute("SELECT tube_pause(%s, NULL, '1 hour')", (TUBE,))
    assert renew(conn, term)[0] is not None
    conn.execute("UPDATE tube_paused SET until = clock_timestamp()")
    assert renew(conn, term) == (None, None)
    assert paused(conn) == []
    assert scalar(conn, "SELECT tube_resume(%s)", (TUBE,)) == 0


def test_a_worker_says_that_it_has_come_to_rest_and_that_ends_with_its_term(conn: Conn, term: Term) -> None:
    conn.execute("SELECT tube_pause(%s, 0)", (TUBE,))
    halted = "SELECT halted_since IS NOT NULL FROM tube_pause_list(%s)"
    renew(conn, term)
    assert scalar(conn, halted, (TUBE,)) is False
    renew(conn, term, halted=True)
    renew(conn, term, halted=True)
    assert scalar(conn, halted, (TUBE,)) is True
    assert scalar(conn, "SELECT count(*) FROM tube_trouble") == 0, "nothing keeps it from delivering"
    renew(conn, term)
    assert scalar(conn, halted, (TUBE,)) is False
    renew(conn, term, halted=True)
    acquire(conn, Claim(partitions=2, partition=0))
    assert scalar(conn, "SELECT count(*) FROM tube_halted") == 0


def test_a_rest_counts_for_its_own_pause_only(conn: Conn, term: Term) -> None:
    """A leader may mark again before its next renewal says so."""
    conn.execute("SELECT tube_pause(%s)", (TUBE,))
    renew(conn, term, halted=True)
    touch(conn)
    conn.execute("SELECT tube_resume(%s)", (TUBE,))
    mark(conn, term)
    assert sqlstate(conn, "SELECT tube_pods_ack(%s)", TUBE) == "TU142"
    conn.execute("SELECT tube_pause(%s)", (TUBE,))
    assert sqlstate(conn, "SELECT tube_pods_ack(%s)", TUBE) == "TU142"
    assert scalar(conn, "SELECT count(halted_since) FROM tube_pause_list(%s)", (TUBE,)) == 0
    renew(conn, term, halted=True)
    assert scalar(conn, "SELECT tube_pods_ack(%s)", (TUBE,)) == 1


def test_a_leader_that_is_told_of_no_pause_is_not_noted_as_resting(conn: Conn, term: Term) -> None:
    """It marks as soon as it has that answer; a pause that begins meanwhile must not find it at rest."""
    conn.execute("SELECT tube_pause(%s)", (TUBE,))
    renew(conn, term, halted=True)
    conn.execute("SELECT tube_resume(%s)", (TUBE,))
    assert renew(conn, term, halted=True) == (None, None)
    assert scalar(conn, "SELECT count(*) FROM tube_halted") == 0


def test_a_worker_stops_the_tube_once_and_only_resume_ends_that(conn: Conn, term: Term) -> None:
    conn.execute("SELECT tube_pause(%s, NULL, '1 hour')", (TUBE,))
    assert stop(conn, term)
    assert not stop(conn, term)
    assert paused(conn)[0][1] == "poison"
    assert paused(conn)[0][2].startswith("poison: too bad; also paused by ")
    assert scalar(conn, "SELECT attempts FROM tube_attempt WHERE id = '7'") == 5
    assert scalar(conn, "SELECT tube_resume(%s)", (TUBE,)) == 2
    assert scalar(conn, "SELECT details FROM tube_audit WHERE action = 'stop'") == {
        "partition": 0,
        "why": "poison",
        "keys": ["0/7"],
    }
    acquire(conn, Claim(partitions=2, partition=0))
    assert sqlstate(conn, "SELECT tube_pods_stop(%s, %s, %s, %s, 'poison', '', '[]')", *term.args) == "TU001"
    assert paused(conn) == []


NONSENSE: list[tuple[str, str]] = [
    ("tube_pause('no')", "TU102"),
    ("tube_resume('no')", "TU102"),
    ("tube_pause('queue', 2)", "TU103"),
    ("tube_resume('queue', 2)", "TU103"),
    ("tube_pause('queue', NULL, '0 s')", "22023"),
    ("tube_step_ask('no', 1, 0, '1')", "TU102"),
]


@pytest.mark.usefixtures("term")
def test_what_makes_no_sense_is_refused(conn: Conn) -> None:
    for call, expected in NONSENSE:
        assert sqlstate(conn, f"SELECT {call}") == expected, call
        assert audited(conn) == [], call


@pytest.mark.usefixtures("term")
def test_secrets_in_a_reason_reach_neither_the_pause_nor_the_audit(conn: Conn) -> None:
    conn.execute("SELECT tube_pause(%s, NULL, NULL, 'see https://a:hunter2@b, password=hunter2')", (TUBE,))
    text = scalar(
        conn, "SELECT (SELECT p::text FROM tube_paused AS p) || (SELECT a::text FROM tube_audit AS a)"
    )
    assert "hunter2" not in text
    assert "password=********" in text


# --- steps ---


def ask(conn: Conn, seq: int, key: str = "1", lasts: str = "1 hour") -> int:
    return int(scalar(conn, "SELECT tube_step_ask(%s, %s, 0, %s, %s)", (TUBE, seq, key, lasts)))


def take(conn: Conn, term: Term, step: int) -> tuple[Any, ...] | None:
    return conn.execute(
        "SELECT seq, shard, key FROM tube_step_take(%s, %s, %s, %s, %s)", (*term.args, step)
    ).fetchone()


def end(conn: Conn, term: Term, step: int, outcome: str) -> None:
    conn.execute("SELECT tube_step_end(%s, %s, %s, %s, %s, %s, 'why')", (*term.args, step, outcome))


def state(conn: Conn, step: int) -> tuple[Any, ...] | None:
    return conn.execute("SELECT outcome, taken, over FROM tube_step_state(%s)", (step,)).fetchone()


@pytest.fixture
def resting(conn: Conn, term: Term) -> Term:
    """Its partition is paused, and it has come to rest."""
    conn.execute("SELECT tube_pause(%s, 0)", (TUBE,))
    renew(conn, term, halted=True)
    return term


def test_a_step_is_taken_by_the_leader_and_takes_its_key_out_of_the_pod(conn: Conn, resting: Term) -> None:
    seq = touch(conn, ids=(1, 2))
    step = ask(conn, seq)
    assert renew(conn, resting, halted=True)[1] == step
    assert state(conn, step) == (None, False, False)
    assert take(conn, resting, step) == (seq, 0, "1")
    assert take(conn, resting, step) is None, "once"
    assert renew(conn, resting, halted=True)[1] is None
    assert sqlstate(conn, "SELECT tube_pods_ack(%s)", TUBE) == "TU142"
    end(conn, resting, step, "delivered")
    assert state(conn, step) == ("delivered", True, False)
    assert conn.execute("SELECT seq, ids, leader_id FROM tube.queue").fetchall() == [(seq, [2], None)]
    last = ask(conn, seq, "2")
    take(conn, resting, last)
    end(conn, resting, last, "skipped")
    assert pods(conn) == {}


def test_a_step_that_failed_leaves_the_key(conn: Conn, resting: Term) -> None:
    seq = touch(conn)
    step = ask(conn, seq)
    take(conn, resting, step)
    end(conn, resting, step, "failed")
    assert pods(conn) == {seq: None}


def test_what_cant_be_stepped(conn: Conn, resting: Term) -> None:
    seq = touch(conn)
    statement = "SELECT tube_step_ask(%s, %s, %s, %s)"
    assert sqlstate(conn, statement, TUBE, seq, 0, "9") == "TU145"
    assert sqlstate(conn, statement, TUBE, seq + 1, 0, "1") == "TU145"
    assert sqlstate(conn, statement, TUBE, touch(conn, shard=1), 1, "1") == "TU143", "it is not paused"
    step = ask(conn, seq)
    assert sqlstate(conn, statement, TUBE, seq, 0, "1") == "TU144", "two operators at once"
    assert scalar(conn, "SELECT tube_step_cancel(%s)", (step,)) is True
    again = ask(conn, seq)
    renew(conn, resting)
    assert scalar(conn, "SELECT tube_step_cancel(%s)", (again,)) is True
    assert sqlstate(conn, statement, TUBE, seq, 0, "1") == "TU143", "its leader has not come to rest"


def test_a_step_whose_worker_died_is_over_and_the_next_worker_does_not_do_it(
    conn: Conn, resting: Term
) -> None:
    seq = touch(conn)
    step = ask(conn, seq)
    take(conn, resting, step)
    successor = acquire(conn, Claim(partitions=2, partition=0))
    assert state(conn, step) == (None, True, True)
    assert renew(conn, successor, halted=True)[1] is None
    assert take(conn, successor, step) is None
    end(conn, successor, step, "delivered")
    assert state(conn, step) == (None, True, True)
    assert [pod.seq for pod in mark(conn, successor)] == [seq]


def test_a_step_that_nobody_takes_in_time_is_taken_by_nobody(conn: Conn, resting: Term) -> None:
    seq = touch(conn)
    step = ask(conn, seq, lasts="0 s")
    assert renew(conn, resting, halted=True)[1] is None
    assert take(conn, resting, step) is None
    assert state(conn, step) == (None, False, True)
    assert ask(conn, seq) > step


def test_a_step_is_not_taken_after_the_pause(conn: Conn, resting: Term) -> None:
    step = ask(conn, touch(conn))
    conn.execute("SELECT tube_resume(%s)", (TUBE,))
    assert take(conn, resting, step) is None


def test_a_step_names_its_key_as_the_source_does(conn: Conn, resting: Term) -> None:
    """A worker that read rows by another text would find none, and delete the document."""
    number = ask(conn, touch(conn, ids=(7,)), "007")
    assert take(conn, resting, number) == (scalar(conn, "SELECT max(seq) FROM tube.queue"), 0, "7")


def test_companions_are_paused_and_resumed_with_their_tube(conn: Conn, term: Term) -> None:
    del term
    for name in ("one", "two"):
        conn.execute("SELECT tube_companion_ensure(%s, %s, 'bigint')", (TUBE, name))
    make_tube(conn, "other")
    conn.execute("SELECT tube_pause(%s, 1)", (TUBE,))
    assert [len(paused(conn, name)) for name in (TUBE, "one", "two", "other")] == [1, 0, 0, 0]
    conn.execute("SELECT tube_pause(%s, lasts => '1 hour', reason => 'moving')", (TUBE,))
    assert [len(paused(conn, name)) for name in (TUBE, "one", "two", "other")] == [2, 1, 1, 0]
    assert paused(conn, "one")[0][2].endswith(": moving")
    assert scalar(conn, "SELECT tube_resume('one')") == 1, "one of them alone"
    assert scalar(conn, "SELECT tube_resume(%s, 1)", (TUBE,)) == 1
    assert [len(paused(conn, name)) for name in (TUBE, "one", "two")] == [2, 0, 1]
    assert scalar(conn, "SELECT tube_resume(%s)", (TUBE,)) == 2
    assert [len(paused(conn, name)) for name in (TUBE, "one", "two")] == [0, 0, 0]
