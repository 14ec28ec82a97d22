"""Acquire and release, interleaved: of all that try at one epoch, exactly one begins a term."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest

from tests.conftest import Connect
from tests.helpers.database import preparing
from tests.helpers.terms import Claim, Conn, acquire, epoch_of, make_tube, release, scalar, with_tube
from tests.isolation.conftest import NewSession

RELEASE = "SELECT tube_leader_release(%s, %s, %s, %s)"


prepare = preparing(with_tube, "dsn")


def test_of_two_at_one_epoch_the_second_is_refused(conn: Conn, session: NewSession) -> None:
    one, other = session(), session()
    epoch = epoch_of(conn)
    first, second = Claim(expected=epoch), Claim(expected=epoch)
    one.begin()
    won = one.value(first.statement, first.params)
    waiting = other.start(second.statement, second.params)
    assert waiting.blocked(by=one)
    one.commit()
    with pytest.raises(psycopg.Error) as failed:
        waiting.rows()
    assert failed.value.sqlstate == "TU003"
    assert conn.execute("SELECT leader_id, epoch FROM tube_leaders()").fetchall() == [(first.leader_id, won)]


def test_the_second_wins_when_the_first_is_rolled_back(conn: Conn, session: NewSession) -> None:
    one, other = session(), session()
    epoch = epoch_of(conn)
    first, second = Claim(expected=epoch), Claim(expected=epoch)
    one.begin()
    one.run(first.statement, first.params)
    waiting = other.start(second.statement, second.params)
    assert waiting.blocked(by=one)
    one.rollback()
    waiting.rows()
    assert scalar(conn, "SELECT leader_id FROM tube_leaders()") == second.leader_id


@pytest.mark.parametrize("election", ["neli", "lease"])
def test_of_many_at_one_epoch_exactly_one_wins(conn: Conn, connect: Connect, election: str) -> None:
    epoch, racers = epoch_of(conn), 8
    line = Barrier(racers)

    def race(session: psycopg.Connection[tuple[object]]) -> str:
        lease = "1 minute" if election == "lease" else None
        claim = Claim(expected=epoch, election=election, lease=lease)
        line.wait()
        try:
            session.execute(claim.statement, claim.params)
        except psycopg.Error as error:
            return error.sqlstate or ""
        return "won"

    with ThreadPoolExecutor(racers) as threads:
        outcomes = sorted(threads.map(race, [connect() for _ in range(racers)]))
    assert outcomes == ["TU003"] * (racers - 1) + ["won"]


def test_epochs_of_partitions_that_begin_at_once_differ(conn: Conn, connect: Connect) -> None:
    make_tube(conn, "wide", partitions=6)
    line = Barrier(6)

    def begin(place: tuple[int, psycopg.Connection[tuple[object]]]) -> int:
        partition, session = place
        line.wait()
        return acquire(session, Claim(tube="wide", partitions=6, partition=partition)).epoch

    with ThreadPoolExecutor(6) as threads:
        epochs = list(threads.map(begin, enumerate([connect() for _ in range(6)])))
    assert len(set(epochs)) == 6


@pytest.mark.parametrize(("end", "outcome"), [("commit", "released"), ("rollback", "superseded")])
def test_an_acquire_waits_for_a_release_and_follows_it_at_the_same_epoch(
    conn: Conn, session: NewSession, end: str, outcome: str
) -> None:
    old = acquire(conn)
    one, other = session(), session()
    one.begin()
    assert one.value(RELEASE, old.args) is True
    claim = Claim(expected=old.epoch)
    waiting = other.start(claim.statement, claim.params)
    assert waiting.blocked(by=one)
    getattr(one, end)()
    assert waiting.value() > old.epoch
    outcomes = conn.execute("SELECT outcome FROM tube_terms('queue') ORDER BY epoch").fetchall()
    assert outcomes == [(outcome,), (None,)]


def test_a_release_that_waited_for_an_acquire_finds_itself_over(conn: Conn, session: NewSession) -> None:
    old = acquire(conn)
    one, other = session(), session()
    claim = Claim(expected=old.epoch)
    one.begin()
    one.run(claim.statement, claim.params)
    releasing = other.start(RELEASE, old.args)
    assert releasing.blocked(by=one)
    one.commit()
    assert releasing.value() is False
    assert scalar(conn, "SELECT leader_id FROM tube_leaders()") == claim.leader_id
    assert (
        scalar(conn, "SELECT outcome FROM tube_term WHERE leader_id = %s", (old.leader_id,)) == "superseded"
    )


def test_a_release_waits_for_open_calls_and_gives_up_in_time(conn: Conn, session: NewSession) -> None:
    old = acquire(conn)
    conn.execute("ALTER FUNCTION tube.tube_leader_release SET lock_timeout = '100ms'")
    marker = session()
    marker.begin()
    marker.run("SELECT * FROM tube_pods_mark(%s, %s, %s, %s)", old.args)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        release(conn, old)
    marker.commit()
    assert release(conn, old)


def test_an_acquire_that_waited_for_a_repartition_is_refused(conn: Conn, session: NewSession) -> None:
    admin, other = session(), session()
    admin.begin()
    admin.run("SELECT tube_ensure_exists('queue', 2)")
    claim = Claim(expected=epoch_of(conn))
    waiting = other.start(claim.statement, claim.params)
    assert waiting.blocked(by=admin)
    admin.commit()
    with pytest.raises(psycopg.Error) as failed:
        waiting.rows()
    assert failed.value.sqlstate == "TU002"


def test_a_lease_renewed_while_another_waits_keeps_it_out(conn: Conn, session: NewSession) -> None:
    holder = acquire(conn, Claim(election="lease", lease="1 minute"))
    conn.execute("UPDATE tube_leader SET renewed_at = clock_timestamp() - interval '1 hour'")
    one, other = session(), session()
    one.begin()
    one.run("SELECT tube_leader_renew(%s, %s, %s, %s)", holder.args)
    claim = Claim(election="lease", lease="1 minute")
    waiting = other.start(claim.statement, claim.params)
    assert waiting.blocked(by=one)
    one.commit()
    with pytest.raises(psycopg.Error) as failed:
        waiting.rows()
    assert failed.value.sqlstate == "TU004"


def test_a_term_that_is_being_ended_keeps_no_other_renewal_waiting(conn: Conn, session: NewSession) -> None:
    make_tube(conn, "wide", partitions=2)
    held = [acquire(conn, Claim(tube="wide", partitions=2, partition=number)) for number in range(2)]
    renewal = "SELECT leader_id, renewed FROM tube_leaders_renew('wide', %s)"
    ids = ([term.leader_id for term in held],)
    one = session()
    one.begin()
    one.run(RELEASE, held[0].args)
    answer = [(held[0].leader_id, False), (held[1].leader_id, True)]
    assert sorted(conn.execute(renewal, ids).fetchall()) == sorted(answer)
    one.commit()
    assert conn.execute(renewal, ids).fetchall() == answer[1:]


def test_a_tick_waits_for_the_one_that_forgot_its_process_and_comes_back(
    conn: Conn, session: NewSession
) -> None:
    tick = "SELECT instances FROM tube_lease_tick('queue', %s, 'x', '1 minute')"
    ids = [uuid.uuid4(), uuid.uuid4()]
    for instance in ids:
        conn.execute(tick, (instance,))
    conn.execute("UPDATE tube_instance SET seen_at = clock_timestamp() - interval '1 hour'")
    one, other = session(), session()
    one.begin()
    assert one.value(tick, (ids[0],)) == 1
    ticking = other.start(tick, (ids[1],))
    assert ticking.blocked(by=one)
    one.commit()
    assert ticking.value() == 2


def test_a_tick_passes_over_a_process_that_ticks(conn: Conn, session: NewSession) -> None:
    tick = "SELECT instances FROM tube_lease_tick('queue', %s, 'x', '1 minute')"
    ids = [uuid.uuid4(), uuid.uuid4()]
    for instance in ids:
        conn.execute(tick, (instance,))
    conn.execute("UPDATE tube_instance SET seen_at = clock_timestamp() - interval '1 hour'")
    # Each holds its own row and finds the other's old: were they to wait, it would be a deadlock.
    one, other = session(), session()
    one.begin()
    one.run("UPDATE tube_instance SET client_id = 'x' WHERE instance_id = %s", (ids[0],))
    other.begin()
    assert other.value(tick, (ids[1],)) == 1
    ticking = one.start(tick, (ids[0],))
    assert ticking.value() == 1
    one.commit()
    other.commit()
    assert scalar(conn, tick, (ids[0],)) == 2
