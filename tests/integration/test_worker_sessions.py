"""The sessions of a worker that serves many tubes: how few there are, and what the loss of each one does."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pytube.config import PostgresConfig, load
from pytube.election.base import Claims
from pytube.election.lease import LeaseClaim
from pytube.events import DatabaseDown, Event, LeaderAcquired, LeaderFenced, LeaderRevoked, TrustLapsed
from pytube.model import OK, Batch, Id, Result
from pytube.sources import queries
from pytube.worker import Worker, database
from pytube.worker.elections import Elections
from tests.conftest import Connect
from tests.helpers.capture import let_writers_notify, open_session
from tests.helpers.database import preparing
from tests.integration.test_worker_faults import Conn, Running

TUBES = [f"t{number:02}" for number in range(12)]
"""More than there may be sessions, and each has several partitions."""
PARTITIONS = 4
MOST_SESSIONS = 10
OURS = "datname = current_database() AND starts_with(application_name, 'pytube ')"

taken: defaultdict[str, set[Id]] = defaultdict(set)
hold: dict[Id, threading.Event] = {}
"""Who sends one of these ids waits."""
sending: set[Id] = set()
"""Those of them that were sent."""


def send(batch: Batch) -> Sequence[Result]:
    """Takes everything."""
    ids = {document.id for document in batch}
    for key in ids & hold.keys():
        sending.add(key)
        hold[key].wait(20)
    taken[batch.tube] |= ids
    return [OK] * len(batch)


def make_tubes(conn: Conn, *tubes: str) -> None:
    """Make tubes that are woken by writers, each with a table of its name, spread over all its partitions."""
    for tube in tubes:
        conn.execute(f"SELECT tube_ensure_exists('{tube}', {PARTITIONS})".encode())
        conn.execute(f"CREATE TABLE IF NOT EXISTS public.{tube} (id bigint PRIMARY KEY)".encode())
        conn.execute(f"SELECT tube_table_ensure_attached('{tube}', 'public.{tube}', 0, 4)".encode())


def insert(conn: Conn, first: int, last: int, *tubes: str) -> set[Id]:
    """Insert rows of these ids into the table of each tube."""
    for tube in tubes:
        conn.execute(f"INSERT INTO public.{tube} SELECT generate_series({first}, {last})".encode())
    return set(range(first, last + 1))


def sessions(conn: Conn, purpose: str = "%") -> list[int]:
    """The process ids of a worker's sessions."""
    query = f"SELECT pid FROM pg_stat_activity WHERE {OURS} AND application_name LIKE %s"
    return [int(str(pid)) for (pid,) in conn.execute(query.encode(), (f"pytube {purpose}%",))]


def terminate(conn: Conn, purpose: str) -> int:
    """End the sessions of one purpose; how many there were."""
    pids = sessions(conn, purpose)
    for pid in pids:
        conn.execute("SELECT pg_terminate_backend(%s)", (pid,))
    return len(pids)


def leaders(conn: Conn) -> dict[tuple[str, str], object]:
    """The term of each partition."""
    rows = conn.execute("SELECT tube, partition, leader_id FROM tube_leaders()")
    return {(str(tube), str(partition)): term for tube, partition, term in rows}


@asynccontextmanager
async def running(
    path: Path, dsn: str, *tubes: str, postgres: str = "", worker: str = "", sink: str = ""
) -> AsyncIterator[Running]:
    """A worker that serves these tubes; the last three are more lines of their sections."""
    taken.clear()
    hold.clear()
    sending.clear()
    sinks = "".join(
        f'[tube.{tube}.sink]\ntype = "callable"\ntarget = "{__name__}:send"\n{sink}\n' for tube in tubes
    )
    config = path / "pytube.toml"
    config.write_text(f'[postgres]\ndsn = "{dsn}"\n{postgres}\n[worker]\n{worker}\n{sinks}')
    events: list[Event] = []
    served = Worker(load(config), on_event=events.append)
    await served.start()
    run = Running(served, events)
    try:
        yield run
    finally:
        for event in hold.values():
            event.set()
        await served.stop()
        run.waiting.cancel()


@asynccontextmanager
async def asleep(
    path: Path, dsn: str, *tubes: str, postgres: str = "", worker: str = ""
) -> AsyncIterator[Running]:
    """A worker that leads all partitions of these tubes, and sleeps."""
    async with running(path, dsn, *tubes, postgres=postgres, worker=worker) as run:
        await run.until(
            "all is led", lambda: all(len(run.worker.leads(tube)) == PARTITIONS for tube in tubes)
        )
        await run.until("all sleep", lambda: is_asleep(run.worker))
        yield run


def is_asleep(worker: Worker) -> bool:
    """Whether only notifications wake the partitions."""
    terms = worker._hosts[0].database.terms.values()
    return bool(terms) and all(term.sleeps for term in terms)


def all_tubes(dsn: str) -> None:
    with open_session(dsn) as conn:
        make_tubes(conn, *TUBES)


prepare = preparing(all_tubes, "served")


@pytest.fixture
def waking(conn: Conn) -> Conn:
    """A session to a database whose writers wake workers."""
    let_writers_notify(conn)
    return conn


@pytest.fixture
def served(waking: Conn) -> Conn:
    """As `waking`, where all tubes are there."""
    return waking


async def test_many_tubes_need_few_sessions(dsn: str, served: Conn, tmp_path: Path) -> None:
    most = 0

    def counted() -> bool:
        nonlocal most
        most = max(most, len(sessions(served)))
        return True

    async with running(tmp_path, dsn, *TUBES) as run:
        await run.until("all sleep", lambda: counted() and is_asleep(run.worker))
        expected = insert(served, 1, 100, *TUBES)
        await run.until("all is taken", lambda: counted() and all(taken[tube] == expected for tube in TUBES))
        await run.until("all sleep again", lambda: counted() and is_asleep(run.worker))
        assert 2 < most <= MOST_SESSIONS


@pytest.mark.each_value
@pytest.mark.parametrize("purpose", ["renewals", "listener", "pool"])
@pytest.mark.parametrize("busy", [False, True], ids=["asleep", "busy"])
async def test_a_session_that_is_lost_costs_no_pod_and_at_most_the_terms_that_used_it(
    dsn: str, waking: Conn, tmp_path: Path, purpose: str, busy: bool
) -> None:
    tubes = TUBES[:4]
    make_tubes(waking, *tubes)
    async with asleep(tmp_path, dsn, *tubes) as run:
        first = insert(waking, 1, 2000, *tubes) if busy else set()
        before = leaders(waking)
        lost = terminate(waking, purpose)
        assert lost
        expected = first | insert(waking, 2001, 2100, *tubes)
        await run.until("all is taken", lambda: all(taken[tube] == expected for tube in tubes))
        await run.until("all sleep again", lambda: is_asleep(run.worker))
        kept = {partition for partition, term in leaders(waking).items() if before[partition] == term}
        if purpose == "pool":
            assert len(kept) >= len(before) - lost
        else:
            assert kept == before.keys()
            assert not run.told(LeaderRevoked)
        outages = 1 if purpose == "renewals" else 0
        await run.until("the outage is told once", lambda: run.told(DatabaseDown) == outages)
        assert run.told(TrustLapsed) == 0


async def test_no_session_of_an_earlier_server_is_used_again(
    dsn: str, waking: Conn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover may leave sessions open; whoever opens one now finds the new server."""
    make_tubes(waking, "t00")
    monkeypatch.setattr(queries, "INCARNATION", "SELECT 'the one before'")
    async with asleep(tmp_path, dsn, "t00") as run:
        before, first = set(sessions(waking)), leaders(waking)
        assert len(before) > 2
        monkeypatch.setattr(queries, "INCARNATION", "SELECT 'the one after'")
        await (await run.worker._hosts[0].database.open_session("test")).close()
        expected = insert(waking, 1, 100, "t00")
        await run.until("all is taken", lambda: taken["t00"] == expected)
        await run.until("all terms are others", lambda: not {*leaders(waking).values()} & {*first.values()})
        await run.until("all sleep again", lambda: is_asleep(run.worker))
        await run.until("all sessions are others", lambda: not before & set(sessions(waking)))


async def test_a_sequence_that_went_back_hides_no_pods(
    dsn: str, waking: Conn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the database is restored in one transaction, under the sessions of a worker."""
    monkeypatch.setattr(database, "_SETTLE_AT_LEAST", 0.5)
    make_tubes(waking, "t00")
    async with asleep(tmp_path, dsn, "t00") as run:
        rows = insert(waking, 1, 100, "t00")
        await run.until("it is settled", lambda: is_settled(run.worker, waking))
        rows |= insert(waking, 101, 110, "t00")
        await run.until("all is taken, and the floors are raised", lambda: taken["t00"] == rows)
        await run.until("all is settled", lambda: is_settled(run.worker, waking))
        waking.execute("ALTER SEQUENCE tube_seq RESTART")
        rows |= insert(waking, 111, 120, "t00")
        await run.until("they are taken, too", lambda: taken["t00"] == rows)


def is_settled(worker: Worker, conn: Conn) -> bool:
    """Whether all that was drawn is settled."""
    settled = worker._hosts[0].database.settled
    row = conn.execute("SELECT last_value FROM tube_seq").fetchone()
    return settled is not None and row == (settled.seq,)


async def test_a_tube_that_is_made_again_disturbs_no_other(dsn: str, served: Conn, tmp_path: Path) -> None:
    gone, *others = TUBES
    async with asleep(tmp_path, dsn, *TUBES) as run:
        before = {partition: term for partition, term in leaders(served).items() if partition[0] != gone}
        served.execute(f"SELECT tube_ensure_absent('{gone}')".encode())
        expected = insert(served, 1, 100, *others)
        await run.until("the others deliver", lambda: all(taken[tube] == expected for tube in others))
        await run.until("it is left", lambda: not run.worker.leads(gone))
        make_tubes(served, gone)
        back = insert(served, 7, 9, gone)
        await run.until("it is served again", lambda: taken[gone] == back)
        after = leaders(served)
        assert {partition: after[partition] for partition in before} == before
        assert {event.tube for event in run.of(LeaderRevoked)} <= {gone}


async def test_a_lock_on_one_tube_holds_up_no_other(
    dsn: str, served: Conn, connect: Connect, tmp_path: Path
) -> None:
    """Each of its partitions keeps one session of the pool waiting, and there are more."""
    locked, *others = TUBES
    # On a busy machine no session is to give up waiting, and no term to lapse, before all others delivered.
    async with asleep(tmp_path, dsn, *TUBES, postgres="answer_timeout = 100.0") as run:
        before = leaders(served)
        with connect(autocommit=False) as admin:
            admin.execute(f"LOCK TABLE tube.{locked} IN ACCESS EXCLUSIVE MODE".encode())
            wake(served, locked)
            await run.until("its partitions wait", lambda: waiting(served) == PARTITIONS)
            renewed = latest_renewals(served)
            expected = insert(served, 1, 100, *others)
            await run.until("the others deliver", lambda: all(taken[tube] == expected for tube in others))
            await run.until("all terms are renewed", lambda: min(latest_renewals(served)) > max(renewed))
            assert waiting(served) == PARTITIONS
        back = insert(served, 1, 10, locked)
        await run.until("it delivers", lambda: taken[locked] == back)
        assert leaders(served) == before
        assert run.told(TrustLapsed) == 0


async def test_a_pool_that_is_used_up_delays_all_tubes_by_answer_timeout_and_ends_no_other_term(
    dsn: str, waking: Conn, connect: Connect, tmp_path: Path
) -> None:
    """Sessions that wait for a lock come back when their time is over; the terms that used them end."""
    *locked, other = TUBES[:3]
    make_tubes(waking, *locked, other)
    postgres, worker = "answer_timeout = 2.0", "receive_deadline = 2.0"
    async with asleep(tmp_path, dsn, *locked, other, postgres=postgres, worker=worker) as run:
        before = leaders(waking)
        with connect(autocommit=False) as admin:
            for tube in locked:
                admin.execute(f"LOCK TABLE tube.{tube} IN ACCESS EXCLUSIVE MODE".encode())
                wake(waking, tube)
            await run.until(
                "the pool is used up",
                lambda: waiting(waking) == PostgresConfig.model_fields["pool_size"].default,
            )
            expected = insert(waking, 1, 100, other)
            await run.until("the other one delivers", lambda: taken[other] == expected)
            assert waiting(waking)
        rows = insert(waking, 1, 10, *locked)
        await run.until("the locked ones deliver", lambda: all(taken[tube] == rows for tube in locked))
        after = leaders(waking)
        assert all(after[partition] == term for partition, term in before.items() if partition[0] == other)
        assert run.told(TrustLapsed) == 0


def wake(conn: Conn, tube: str) -> None:
    """Have all partitions look for pods."""
    for partition in range(PARTITIONS):
        conn.execute("SELECT pg_notify(tube_channel(%s), %s)", (tube, str(partition)))


def waiting(conn: Conn) -> int:
    """Sessions of a worker that wait for a lock."""
    query = f"SELECT count(*) FROM pg_stat_activity WHERE {OURS} AND wait_event_type = 'Lock'"
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return int(str(row[0]))


def latest_renewals(conn: Conn) -> list[float]:
    """When each term was renewed last."""
    query = "SELECT extract(epoch FROM renewed_at)::float8 FROM tube_leaders()"
    return [float(str(at)) for (at,) in conn.execute(query.encode())]


class Offers:
    """An election that offers what a test puts in, as a group's leader may: at once after it took it away."""

    silence = None

    def __init__(self) -> None:
        self.claims = Claims()
        self.claims_made: list[LeaseClaim] = []

    def join(self, elections: Elections) -> Offers:
        """Be the election of a host."""
        self.claims = elections.claims
        return self

    def offer(self, tube: str) -> LeaseClaim:
        """Offer partition 0."""
        claim = LeaseClaim(tube, 0)
        self.claims_made.append(claim)
        self.claims.put_nowait(claim)
        return claim

    async def start(self) -> None:
        """There is nothing to begin."""

    async def stop(self, _why: object = None) -> None:
        for claim in self.claims_made:
            claim.end_now()


async def test_a_partition_that_comes_back_while_its_last_term_ends(
    dsn: str, waking: Conn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old term, which waits for its last write, must not take the new one's renewals with it."""
    offers = Offers()
    monkeypatch.setattr(Elections, "_make_lease", lambda elections: Offers.join(offers, elections))
    waking.execute("SELECT tube_ensure_exists('t00', 1)")
    waking.execute("CREATE TABLE public.t00 (id bigint PRIMARY KEY)")
    waking.execute("SELECT tube_table_ensure_attached('t00', 'public.t00', 0)")
    worker = "receive_deadline = 1.0\nsession_timeout = 6.0"
    async with running(tmp_path, dsn, "t00", worker=worker, sink="request_timeout = 4.0") as run:
        hold[1] = threading.Event()
        first = offers.offer("t00")
        await run.until("it is led", lambda: run.told(LeaderAcquired) == 1)
        insert(waking, 1, 1, "t00")
        await run.until("a write is under way", lambda: sending == {1})
        first.end_now()
        offers.offer("t00")
        await run.until("it is acquired again", lambda: len(terms(waking, "t00")) == 2)
        hold[1].set()
        await run.until("the first term is over", lambda: run.told(LeaderFenced) == 1)
        await run.until("the second one works", lambda: run.told(LeaderAcquired) == 2)
        insert(waking, 2, 2, "t00")
        await run.until("the rest is taken", lambda: taken["t00"] == {1, 2})
        renewed = latest_renewals(waking)
        await run.until("its term is renewed", lambda: latest_renewals(waking) > renewed)
        assert run.told(TrustLapsed) == 0


def terms(conn: Conn, tube: str) -> list[tuple[object, ...]]:
    """All terms that a tube has had."""
    return conn.execute("SELECT * FROM tube_terms(%s)", (tube,)).fetchall()
