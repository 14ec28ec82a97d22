"""Terms: how they begin, are renewed and end, and what is refused."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
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
    epoch_of,
    make_tube,
    release,
    renew,
    scalar,
    with_tube,
)

A_DAY_AND_MORE = "interval '25 hours'"


prepare = preparing(with_tube, "dsn")


def refused(conn: Conn, claim: Claim) -> str | None:
    with pytest.raises(psycopg.Error) as failed:
        acquire(conn, claim)
    assert failed.value.diag.message_hint
    return failed.value.sqlstate


def terms(conn: Conn, tube: str = TUBE) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT leader_id, epoch, outcome FROM tube_terms(%s)", (tube,)).fetchall()


def test_a_term_begins_with_an_epoch_of_at_least_the_unix_time(conn: Conn) -> None:
    before = int(time.time())
    term = acquire(conn)
    assert before <= term.epoch <= time.time()
    assert epoch_of(conn) == term.epoch
    row = conn.execute("SELECT leader_id, instance_id, client_id, election FROM tube_leaders()").fetchone()
    assert row == (term.leader_id, term.instance_id, "a client", "neli")


def test_epochs_grow_over_the_clock_release_and_repartition(conn: Conn) -> None:
    conn.execute("UPDATE tube_registry SET last_epoch = 5000000000")
    first = acquire(conn)
    assert first.epoch == 5_000_000_001
    assert release(conn, first)
    assert epoch_of(conn) == first.epoch, "a free partition keeps its epoch"
    second = acquire(conn)
    make_tube(conn, partitions=2)
    third = acquire(conn, Claim(partitions=2, partition=1))
    assert first.epoch < second.epoch < third.epoch


def test_the_epoch_must_be_the_one_that_was_read(conn: Conn) -> None:
    term = acquire(conn)
    assert refused(conn, Claim(expected=term.epoch - 1)) == "TU003"
    assert refused(conn, Claim(expected=term.epoch + 1)) == "TU003"
    assert terms(conn) == [(term.leader_id, term.epoch, None)]


def test_history_says_how_terms_ended(conn: Conn) -> None:
    first = acquire(conn)
    second = acquire(conn)
    assert release(conn, second)
    third = acquire(conn)
    make_tube(conn, partitions=2)
    fourth = acquire(conn, Claim(partitions=2, partition=1))
    assert terms(conn) == [
        (first.leader_id, first.epoch, "superseded"),
        (second.leader_id, second.epoch, "released"),
        (third.leader_id, third.epoch, "repartitioned"),
        (fourth.leader_id, fourth.epoch, None),
    ]


def test_old_terms_are_forgotten_unless_they_may_still_write(conn: Conn) -> None:
    acquire(conn)
    held_long = acquire(conn, Claim(hold="3 days"))
    acquire(conn)
    conn.execute(f"UPDATE tube_term SET ended_at = ended_at - {A_DAY_AND_MORE}")
    conn.execute(f"UPDATE tube_term SET renewed_at = renewed_at - {A_DAY_AND_MORE}")
    last = acquire(conn)
    kept = [row[0] for row in terms(conn)]
    assert len(kept) == 3
    assert kept[0] == held_long.leader_id
    assert kept[2] == last.leader_id


def test_a_renewal_moves_the_clock_and_tells_the_version(conn: Conn) -> None:
    term = acquire(conn)
    conn.execute("UPDATE tube_leader SET renewed_at = renewed_at - interval '1 hour'")
    version = renew(conn, term)
    assert scalar(conn, "SELECT clock_timestamp() - renewed_at < interval '1 minute' FROM tube_leaders()")
    conn.execute("UPDATE tube_registry SET version = version + 1")
    assert renew(conn, term) == version + 1


def test_renewals_are_hot(conn: Conn) -> None:
    term = acquire(conn)
    for _ in range(5):
        renew(conn, term)
    conn.execute("SELECT pg_stat_force_next_flush()")
    row = conn.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tube_leader'"
    ).fetchone()
    assert row == (6, 5), "all but the acquire"


def test_release_is_told_once(conn: Conn) -> None:
    term = acquire(conn)
    assert release(conn, term) is True
    assert release(conn, term) is False
    assert scalar(conn, "SELECT count(*) FROM tube_leaders()") == 0


def test_release_of_a_term_that_is_over_leaves_the_next_one(conn: Conn) -> None:
    old = acquire(conn)
    new = acquire(conn)
    assert release(conn, old) is False
    assert release(conn, replace(old, partitions=2)) is False
    assert release(conn, replace(old, tube="none")) is False
    assert scalar(conn, "SELECT leader_id FROM tube_leaders()") == new.leader_id


def test_the_commit_of_an_acquire_is_durable_whatever_the_session_says(conn: Conn) -> None:
    conn.execute("SET synchronous_commit = off")
    with conn.transaction():
        acquire(conn)
        assert scalar(conn, "SHOW synchronous_commit") == "on"
        assert scalar(conn, "SHOW lock_timeout") == "0"
    assert scalar(conn, "SHOW synchronous_commit") == "off"
    conn.execute("SET synchronous_commit = remote_apply")
    with conn.transaction():
        acquire(conn)
        assert scalar(conn, "SHOW synchronous_commit") == "remote_apply"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"tube": "none"}, "TU102"),
    ({"partitions": 2}, "TU002"),
    ({"partition": 1}, "TU103"),
    ({"partition": -1}, "TU103"),
    ({"partition": None}, "TU103"),
    ({"partitions": None}, "TU002"),
    ({"tube": None}, "TU102"),
    ({"election": "dice"}, "22023"),
    ({"election": None}, "22023"),
    ({"hold": "0 seconds"}, "22023"),
    ({"hold": None}, "22023"),
    ({"lease": "5 seconds"}, "22023"),
    ({"election": "lease"}, "22023"),
    ({"election": "lease", "lease": "-1 seconds"}, "22023"),
    ({"leader_id": None}, "22004"),
    ({"instance_id": None}, "22004"),
]


def test_bad_arguments_are_refused_with_a_hint(conn: Conn) -> None:
    for change, state in BAD:
        assert refused(conn, replace(Claim(expected=1), **change)) == state, change
        assert terms(conn) == [], change


@pytest.mark.parametrize("end", [True, False])
def test_a_leader_id_is_used_once(conn: Conn, end: bool) -> None:
    term = acquire(conn)
    if end:
        release(conn, term)
    assert refused(conn, Claim(leader_id=term.leader_id)) == "22023"


@pytest.mark.parametrize(
    ("place", "state"), [(("none", 1, 0), "TU102"), ((TUBE, 2, 0), "TU002"), ((TUBE, 1, 1), "TU103")]
)
def test_the_epoch_of_nothing_is_refused(conn: Conn, place: tuple[str, int, int], state: str) -> None:
    for statement, params in (
        ("SELECT tube_leader_epoch(%s, %s, %s)", place),
        ("SELECT tube_leader_renew(%s, %s, %s, %s)", (*place, uuid.uuid4())),
        ("SELECT * FROM tube_pods_mark(%s, %s, %s, %s)", (*place, uuid.uuid4())),
    ):
        with pytest.raises(psycopg.Error) as failed:
            conn.execute(statement, params)
        assert failed.value.sqlstate == state


def test_many_terms_are_renewed_at_once_and_those_that_are_over_are_not_named(conn: Conn) -> None:
    make_tube(conn, "wide", partitions=4)
    held = [acquire(conn, Claim(tube="wide", partitions=4, partition=number)) for number in range(4)]
    foreign = acquire(conn)
    release(conn, held[1])
    acquire(conn, Claim(tube="wide", partitions=4, partition=2))  # takes the third one's place
    conn.execute("UPDATE tube_leader SET renewed_at = clock_timestamp() - interval '1 hour'")
    ids = [term.leader_id for term in [*held, foreign]]
    found = conn.execute("SELECT leader_id, renewed FROM tube_leaders_renew('wide', %s)", (ids,)).fetchall()
    assert sorted(found) == sorted([(held[0].leader_id, True), (held[3].leader_id, True)])
    fresh = (
        "SELECT tube, partition FROM tube_leader WHERE renewed_at > clock_timestamp() - interval '1 minute'"
    )
    assert sorted(conn.execute(fresh).fetchall()) == [("wide", 0), ("wide", 3)]
    assert conn.execute("SELECT * FROM tube_leaders_renew('wide', '{}')").fetchall() == []
    assert conn.execute("SELECT * FROM tube_leaders_renew('none', %s)", (ids,)).fetchall() == []


def test_leaders_of_one_tube_or_of_all(conn: Conn) -> None:
    make_tube(conn, "Other 'tube' -", partitions=3)
    for partition in (2, 0):
        acquire(conn, Claim(tube="Other 'tube' -", partitions=3, partition=partition))
    acquire(conn)
    everything = conn.execute("SELECT tube, partition FROM tube_leaders()").fetchall()
    assert sorted(everything) == [("Other 'tube' -", 0), ("Other 'tube' -", 2), (TUBE, 0)]
    assert conn.execute("SELECT partition FROM tube_leaders(%s)", (TUBE,)).fetchall() == [(0,)]
    assert conn.execute("SELECT partition FROM tube_leaders('none')").fetchall() == []
    assert scalar(conn, "SELECT bool_and(runs_out = renewed_at + hold) FROM tube_leaders()")


def test_a_rebase_lets_epochs_go_on_above_what_the_sink_holds(conn: Conn) -> None:
    """And well above: other partitions may have written under later epochs than the one that was met."""
    assert scalar(conn, "SELECT tube_leader_rebase('queue', 2000000000)") == 2_000_001_000
    assert scalar(conn, "SELECT tube_leader_rebase('queue', 5)") == 2_000_001_000
    assert acquire(conn).epoch == 2_000_001_001
    assert scalar(conn, "SELECT tube_leader_rebase('queue', 2147483646)") == 2**31 - 2


@pytest.mark.parametrize(
    ("tube", "epoch", "sqlstate"), [("queue", -1, "22023"), ("queue", 2**31, "22023"), ("no", 5, "TU102")]
)
def test_a_rebase_that_makes_no_sense_is_refused(conn: Conn, tube: str, epoch: int, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("SELECT tube_leader_rebase(%s, %s)", (tube, epoch))
    assert refused.value.sqlstate == sqlstate


def troubles(conn: Conn) -> list[tuple[object, ...]]:
    return conn.execute(
        "SELECT sink_down, round(extract(epoch FROM clock_timestamp() - sink_down_since)),"
        " source_down, round(extract(epoch FROM clock_timestamp() - source_down_since)) FROM tube_leaders()"
    ).fetchall()


def renew_with(conn: Conn, term: Term, told: dict[str, object] | None) -> None:
    given = None if told is None else json.dumps({str(term.leader_id): told})
    conn.execute("SELECT tube_leaders_renew(NULL, %s, %s)", ([term.leader_id], given))


def test_a_renewal_tells_what_keeps_a_term_from_delivering(conn: Conn) -> None:
    make_tube(conn)
    term = acquire(conn)
    sink, source = {"reason": "refused", "seconds": 90}, {"reason": "no rights", "seconds": 5}
    renew_with(conn, term, {"sink": sink})
    assert troubles(conn) == [("refused", 90, None, None)]
    renew_with(conn, term, {"sink": sink, "source": source})
    assert troubles(conn) == [("refused", 90, "no rights", 5)]
    renew_with(conn, term, {"source": source})
    assert troubles(conn) == [(None, None, "no rights", 5)]
    renew_with(conn, term, None)
    assert troubles(conn) == [(None,) * 4]


def test_a_renewal_tells_the_latest_reason_and_when_that_outage_began(conn: Conn) -> None:
    make_tube(conn)
    term = acquire(conn)
    for reason, seconds in (("refused", 90), ("HTTP 401", 91), ("HTTP 401", 3)):  # the last: another outage
        renew_with(conn, term, {"sink": {"reason": reason, "seconds": seconds}})
        assert troubles(conn) == [(reason, seconds, None, None)]


def test_a_renewal_tells_when_the_next_try_is_due(conn: Conn) -> None:
    make_tube(conn)
    term = acquire(conn)

    def next_at(**left: float) -> object:
        renew_with(conn, term, {"sink": {"reason": "refused", "seconds": 90, **left}})
        return scalar(conn, "SELECT sink_next_at FROM tube_leaders()")

    first = next_at(left=3000)
    assert first is not None
    assert next_at(left=2000) == first, "a try that comes nearer is no other one"
    assert next_at() is None
    assert next_at(left=8) is not None
    assert next_at(left=9000) != next_at(left=20000)


def test_a_renewal_with_nothing_new_writes_no_trouble(conn: Conn) -> None:
    make_tube(conn)
    term = acquire(conn)
    versions = set()
    for _ in range(3):
        renew_with(conn, term, {"sink": {"reason": "refused", "seconds": 90}})
        versions |= set(conn.execute("SELECT ctid::text FROM tube_trouble").fetchall())
    assert len(versions) == 1


@pytest.mark.parametrize("how", ["released", "superseded", "repartitioned", "dropped"])
def test_troubles_end_with_their_term(conn: Conn, how: str) -> None:
    make_tube(conn)
    term = acquire(conn)
    renew_with(conn, term, {"sink": {"reason": "refused", "seconds": 0}})
    match how:
        case "released":
            release(conn, term)
        case "superseded":
            acquire(conn)
        case "repartitioned":
            make_tube(conn, partitions=2)
        case _:
            conn.execute("SELECT tube_ensure_absent(%s)", (TUBE,))
    assert scalar(conn, "SELECT count(*) FROM tube_trouble") == 0
    renew_with(conn, term, {"sink": {"reason": "refused", "seconds": 0}})
    assert scalar(conn, "SELECT count(*) FROM tube_trouble") == 0


def test_a_term_that_ran_out_is_lost_and_its_troubles_count_no_more(conn: Conn) -> None:
    make_tube(conn)
    lease = acquire(conn, Claim(election="lease", lease="1 hour", hold="1 second"))
    renew_with(conn, lease, {"sink": {"reason": "refused", "seconds": 0}})
    late = "UPDATE tube_leader SET renewed_at = renewed_at - %s::interval"
    conn.execute(late, ("59 minutes",))
    assert scalar(conn, "SELECT lost FROM tube_leaders()") is False
    conn.execute(late, ("1 minute",))
    assert scalar(conn, "SELECT lost FROM tube_leaders()") is True
    assert troubles(conn) == [(None,) * 4]
    acquire(conn, Claim(election="neli", hold="10 seconds"))
    assert scalar(conn, "SELECT lost FROM tube_leaders()") is False
    conn.execute(late, ("10 seconds",))
    assert scalar(conn, "SELECT lost FROM tube_leaders()") is True
