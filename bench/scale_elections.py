"""A fleet of workers without pipelines: the real lease election, terms and renewals against one Postgres."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import TupleRow

from bench.frame.readings import cpu_of
from bench.frame.server import connect
from pytube.db.session import Queries, Session, SessionPool
from pytube.election.base import Claim
from pytube.election.lease import LeaseElection, LeaseTick
from pytube.errors import DatabaseUnavailable, PytubeError
from pytube.sources import queries, terms
from pytube.sources.terms import Candidate, Troubles

LIMIT = 1200.0
_SESSIONS = 2
"""Of each worker: one that renews, and one for all else. Real ones keep three to four while they idle."""
_STARTS = 20
"""Sessions that are opened at the same time."""
_CALLS = """
    SELECT funcname, calls FROM pg_stat_user_functions
    WHERE funcname IN ('tube_lease_ticks', 'tube_leaders_renew')
"""
_TRIES = 300
"""Of each call: processor times are counted in hundredths of a second."""
_LEADERS = "SELECT tube, instance_id, count(*) FROM tube_leaders() WHERE NOT lost GROUP BY tube, instance_id"


class Worker:
    """Takes part in the elections of all tubes, and leads what it gets."""

    def __init__(self, dsn: str, tubes: int, number: int, timeout: float, opening: asyncio.Semaphore) -> None:
        self.instance_id = uuid4()
        self._timeout = timeout
        self._dsn = dsn
        self._tubes = tuple(f"t{number}" for number in range(1, tubes + 1))
        self._name = f"w{number}"
        self._opening = opening
        self._partitions: dict[str, int] = {}
        self._pool = SessionPool(self.open, _SESSIONS)
        self._terms: dict[UUID, Claim] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._election = LeaseElection(tubes=self._tubes, tick=self._tick, leave=self._leave)
        self._candidate = Candidate(self.instance_id, self._name, "lease", timeout * 2 / 3, timeout)
        self.lapses = 0
        """Renewals that came later than trust lasts."""

    async def open(self) -> Session:
        """A session."""
        async with self._opening:
            return await Session.open(self._dsn, "tube", f"simulated {self._name}", answer_timeout=60.0)

    async def tick(self, session: Queries) -> list[TupleRow]:
        """Say that it is there; what the database says of all tubes."""
        ttl = timedelta(seconds=self._timeout)
        arguments = {"instance_id": self.instance_id, "client_id": self._name, "ttl": ttl}
        return await session.rows(queries.LEASE_TICKS, arguments | {"tubes": list(self._tubes)})

    async def renew(self, session: Queries) -> None:
        """Renew all that it leads."""
        answers = await terms.renew(session, {leader_id: Troubles() for leader_id in self._terms})
        for leader_id, answer in answers.items():
            if answer.renewed is None and leader_id in self._terms:
                self._terms[leader_id].end_now()  # its lease had run out, and another worker took it

    async def _tick(self, _: Collection[str]) -> dict[str, LeaseTick]:
        rows = await self.tick(self._pool)
        self._partitions |= {row[0]: row[1] for row in rows}
        return {
            tube: LeaseTick(partitions, instances, frozenset(free), frozenset(mine), rank)
            for tube, partitions, instances, free, mine, rank in rows
        }

    async def _leave(self, tube: str | None) -> None:
        await self._pool.execute(queries.LEASE_LEAVE, {"tube": tube, "instance_id": self.instance_id})

    async def start(self) -> None:
        """Take part, as soon as the server has time for it."""
        while True:
            with suppress(DatabaseUnavailable):
                await self._election.start()
                break
        for service in (self._renew_always(), self._follow()):
            self._run(service)

    def _run(self, service: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(service)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _renew_always(self) -> None:
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(self._timeout / 15)
            with suppress(PytubeError):  # too late is counted
                await self.renew(self._pool)
            now = time.monotonic()
            self.lapses += now - renewed > self._timeout / 3
            renewed = now

    async def _follow(self) -> None:
        while True:
            claim = await self._election.claims.get()
            if claim.withdrawn is None:
                self._run(self._lead(claim))
            else:
                claim.handed_over()

    async def _lead(self, claim: Claim) -> None:
        where = claim.tube, self._partitions[claim.tube], claim.partition
        with suppress(PytubeError):  # another one was faster
            epoch = await terms.read_epoch(self._pool, *where)
            await claim.prove()
            term = await terms.acquire(self._pool, *where, epoch, self._candidate)
            self._terms[term.leader_id] = claim
            await claim.wait_until_withdrawn()
            del self._terms[term.leader_id]
            await terms.release(self._pool, term)
        claim.handed_over()

    async def die(self) -> None:
        """End as by SIGKILL: nothing is said to anybody."""
        if (ticking := self._election._task) is not None:  # noqa: SLF001 # as nobody but a fault ends it
            ticking.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)
        await self._pool.close()


@dataclass
class Found:
    """What the fleet costs, and how it divides the partitions."""

    workers: int
    balanced: float = 0.0
    """Seconds from the start of the first until all is led and each tube is shared fairly."""
    claims: int = 0
    """Terms that were begun until then."""
    start_cpu: float = 0.0
    """Seconds of the server until then."""
    server_cpu: float = 0.0
    """Share of a core, with nothing to do but ticks and renewals."""
    own_cpu: float = 0.0
    """The same of this process, which has all workers."""
    rates: dict[str, float] = field(default_factory=dict)
    """Calls a second, by function."""
    tick_cpu: float = 0.0
    """Milliseconds of the server's CPU, for the tick of one worker."""
    renewal_cpu: float = 0.0
    """The same, for the renewal of all that one worker leads."""
    shares: list[int] = field(default_factory=list)
    """Partitions, worker by worker."""
    dead: int = 0
    taken_over: float = 0.0
    """Seconds from the death of some until the others lead all."""
    rebalanced: float = 0.0
    """The same, until each tube is shared fairly."""
    shares_after: list[int] = field(default_factory=list)
    lapses: int = 0

    def rows(self) -> list[list[str]]:
        """For the table."""
        ticks, renewals = (self.rates[name] for name in ("tube_lease_ticks", "tube_leaders_renew"))
        return [
            [f"{self.workers} workers share all fairly after", f"{self.balanced:.0f} s"],
            ["terms begun until then", str(self.claims)],
            ["CPU of the server until then", f"{self.start_cpu:.0f} s"],
            ["partitions of a worker", _spread(self.shares)],
            ["CPU of the server, idle", f"{self.server_cpu:.1%} of a core"],
            ["ticks: each second, CPU of each", f"{ticks:.0f}, {self.tick_cpu:.2f} ms"],
            ["renewals: each second, CPU of each", f"{renewals:.0f}, {self.renewal_cpu:.2f} ms"],
            ["CPU of all workers, idle", f"{self.own_cpu:.1%} of a core"],
            [f"{self.dead} die: all are led again after", f"{self.taken_over:.1f} s"],
            ["and shared fairly after", f"{self.rebalanced:.1f} s"],
            ["partitions of a worker then", _spread(self.shares_after)],
            ["renewals that came too late", str(self.lapses)],
        ]


def _spread(shares: list[int]) -> str:
    return f"{min(shares)} to {max(shares)}, standard deviation {statistics.pstdev(shares):.1f}"


class Eye:
    """Looks at the database, in a session that isn't a worker's."""

    def __init__(self, connection: psycopg.Connection, postmaster: int) -> None:
        self.connection = connection
        self._postmaster = postmaster

    def server_cpu(self) -> float:
        """Seconds."""
        return cpu_of(self._postmaster)

    def shares(self) -> dict[str, Counter[UUID]]:
        """Partitions of each worker, by tube."""
        found: dict[str, Counter[UUID]] = {}
        for tube, instance_id, count in self.connection.execute(_LEADERS):
            found.setdefault(tube, Counter())[instance_id] = count
        return found

    def calls(self) -> dict[str, int]:
        """By function."""
        return dict(self.connection.execute(_CALLS).fetchall())


async def measured(
    dsn: str, postmaster: int, workers: int, tubes: int, die: int, seconds: float, timeout: float
) -> Found:
    """Start a fleet, let it idle, and have some of it die."""
    found = Found(workers, dead=die)
    opening = asyncio.Semaphore(_STARTS)
    fleet = [Worker(dsn, tubes, number, timeout, opening) for number in range(workers)]
    with connect(dsn) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET track_functions = pl")
        eye = Eye(connection, postmaster)
        everything = eye.connection.execute("SELECT sum(partitions) FROM tube_registry").fetchone()
        assert everything is not None
        living = {one.instance_id for one in fleet}
        began, cpu = time.monotonic(), eye.server_cpu()
        await asyncio.gather(*(one.start() for one in fleet))
        await _wait(lambda: _is_fair(eye.shares(), living, everything[0]))
        found.balanced, found.start_cpu = time.monotonic() - began, eye.server_cpu() - cpu
        found.claims = _count(eye, "SELECT count(*) FROM tube_term") + everything[0]
        found.shares = _of_workers(eye.shares(), living)
        await _idle(eye, seconds, found)
        await _single_calls(fleet[0], found)
        dying = random.sample(fleet, die)
        living -= {one.instance_id for one in dying}
        died = time.monotonic()
        await asyncio.gather(*(one.die() for one in dying))
        await _wait(lambda: sum(_of_workers(eye.shares(), living)) == everything[0])
        found.taken_over = time.monotonic() - died
        await _wait(lambda: _is_fair(eye.shares(), living, everything[0]))
        found.rebalanced = time.monotonic() - died
        found.shares_after = _of_workers(eye.shares(), living)
        found.lapses = sum(one.lapses for one in fleet)
        await asyncio.gather(*(one.die() for one in fleet if one not in dying))
    return found


def _is_fair(shares: dict[str, Counter[UUID]], living: set[UUID], everything: int) -> bool:
    """Whether the living lead all, and of no tube one leads two more than another."""
    if sum(_of_workers(shares, living)) != everything:
        return False
    counts = [[of_tube[one] for one in living] for of_tube in shares.values()]
    return all(max(one) - min(one) <= 1 for one in counts)


def _of_workers(shares: dict[str, Counter[UUID]], living: set[UUID]) -> list[int]:
    return [sum(of_tube[one] for of_tube in shares.values()) for one in living]


def _count(eye: Eye, statement: str) -> int:
    row = eye.connection.execute(statement.encode()).fetchone()
    assert row is not None
    return int(row[0])


async def _idle(eye: Eye, seconds: float, found: Found) -> None:
    calls = eye.calls()
    cpu, own, began = eye.server_cpu(), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    seconds = time.monotonic() - began
    found.server_cpu = (eye.server_cpu() - cpu) / seconds
    found.own_cpu = (time.process_time() - own) / seconds
    found.rates = {name: (number - calls.get(name, 0)) / seconds for name, number in eye.calls().items()}


async def _single_calls(one: Worker, found: Found) -> None:
    """The CPU that Postgres takes for a worker's tick, and for its renewal."""
    session = await one.open()
    backend = session.connection.info.backend_pid
    for name, call in (("tick_cpu", one.tick), ("renewal_cpu", one.renew)):
        await call(session)
        cpu = cpu_of(backend)
        for _ in range(_TRIES):
            await call(session)
        setattr(found, name, (cpu_of(backend) - cpu) / _TRIES * 1e3)
    await session.close()


async def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the fleet shares nothing fairly within {LIMIT:g} s")
        await asyncio.sleep(0.25)
