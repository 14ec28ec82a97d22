"""Floors driven as a worker drives them: nothing is left below one, and nothing is done twice."""

from __future__ import annotations

import random

import psycopg
import pytest

from tests.helpers.terms import Conn, acquire, fill, make_tube, pods, touch
from tests.isolation.conftest import NewSession
from tests.isolation.settling import Driver

LIMIT = 10
INSERT = "INSERT INTO tube.queue (op, shard, ids) VALUES (%s, 0, '{1}') RETURNING seq"


@pytest.fixture
def driver(conn: Conn) -> Driver:
    make_tube(conn)
    return Driver(conn, acquire(conn), LIMIT)


def drain(driver: Driver) -> list[int]:
    """Cycle until a mark gives nothing; the seqs in order of purge."""
    done: list[int] = []
    while True:
        driver.settle()
        driver.mark()
        if not driver.in_flight:
            return done
        seqs = list(driver.in_flight)
        driver.purge(seqs)
        done += seqs


def test_a_backlog_of_ten_times_the_limit_with_a_writer_left_open(
    conn: Conn, driver: Driver, session: NewSession
) -> None:
    writer = session()
    writer.begin()
    early = writer.value(INSERT, ("U",))
    fill(conn, 10 * LIMIT)
    backlog = list(pods(conn))
    assert drain(driver) == backlog
    assert driver.floors == [0, 0], "no floor passes what is still to come"
    writer.commit()
    assert drain(driver) == [early]
    assert driver.floors == [backlog[-1]] * 2


def test_floors_follow_a_backlog_that_is_settled(conn: Conn, driver: Driver) -> None:
    fill(conn, 10 * LIMIT)
    backlog = list(pods(conn))
    driver.settle()
    driver.mark()
    assert driver.floors[0] == backlog[LIMIT - 1], "a full mark reaches its last pod"
    driver.mark()
    assert driver.floors[0] == backlog[2 * LIMIT - 1], "pods in flight don't hold it"
    assert driver.floors[1] == 0, "the other class was not looked at"
    driver.purge(list(driver.in_flight))
    assert drain(driver) == backlog[2 * LIMIT :]
    assert driver.floors == [backlog[-1]] * 2


def test_backfill_pods_that_wait_are_not_passed(conn: Conn, driver: Driver) -> None:
    fill(conn, 3 * LIMIT, op="B")
    backfill = list(pods(conn))
    fill(conn, 2 * LIMIT + LIMIT // 2)
    incremental = [seq for seq in pods(conn) if seq not in backfill]
    done = drain(driver)
    assert done == incremental + backfill
    late = touch(conn, op="B")
    driver.settle()
    driver.mark()
    assert list(driver.in_flight) == [late]


def test_a_reset_lowers_the_floor(conn: Conn, driver: Driver) -> None:
    fill(conn, 2 * LIMIT)
    fill(conn, LIMIT, op="B")
    backlog = list(pods(conn))
    driver.settle()
    for _ in range(4):
        driver.mark()
    assert list(driver.in_flight) == backlog
    assert driver.floors == [backlog[-1]] * 2
    given_back = [backlog[3], backlog[7], backlog[2 * LIMIT + 4]]
    driver.reset(given_back)
    assert [pod.seq for pod in driver.mark()] == given_back
    driver.purge(list(driver.in_flight))
    assert pods(conn) == {}


@pytest.mark.parametrize("seed", range(8))
def test_any_interleaving_of_writers_and_marks_loses_nothing(
    conn: Conn, driver: Driver, session: NewSession, seed: int
) -> None:
    dice = random.Random(seed)
    writers = [session() for _ in range(4)]
    open_seqs: dict[int, list[int]] = {}
    committed: set[int] = set()
    done: list[int] = []
    driver.limit = 3
    for _ in range(150):
        one = dice.randrange(len(writers))
        what = dice.choice(["write", "write", "end", "settle", "mark", "mark", "purge", "reset"])
        if what == "write":
            if one not in open_seqs:
                writers[one].begin()
            seq = writers[one].value(INSERT, (dice.choice("UB"),))
            open_seqs.setdefault(one, []).append(seq)
        elif what == "end" and one in open_seqs:
            commit = dice.random() < 0.7
            writers[one].run("COMMIT" if commit else "ROLLBACK")
            seqs = open_seqs.pop(one)
            committed |= set(seqs) if commit else set()
        elif what == "settle":
            driver.settle()
        elif what == "mark":
            driver.mark()
        elif driver.in_flight:
            some = dice.sample(list(driver.in_flight), dice.randint(1, len(driver.in_flight)))
            if what == "purge":
                driver.purge(some)
                done += some
            else:
                driver.reset(some)
    for one, seqs in open_seqs.items():
        writers[one].commit()
        committed |= set(seqs)
    done += list(driver.in_flight)
    driver.purge(list(driver.in_flight))
    done += drain(driver)
    assert sorted(done) == sorted(committed), "each once, and none is left below a floor"
    assert pods(conn) == {}


def test_a_pod_below_a_floor_is_seen_by_the_next_term(conn: Conn, driver: Driver) -> None:
    seq = touch(conn)
    driver.settle()
    driver.mark()
    assert driver.floors == [seq, seq]
    new = Driver(conn, acquire(conn), LIMIT)
    assert [pod.seq for pod in new.mark()] == [seq]
    with pytest.raises(psycopg.Error):
        driver.mark()
