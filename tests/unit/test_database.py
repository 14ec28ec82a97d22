"""What renewals prove: that the term led when they were sent, and only if they were answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import pytest
from pytube.pipeline.term_deadline import TermDeadline
from pytube.sources.session import Session

from pytube import clock
from pytube.errors import DatabaseUnavailable, Fenced, NotLeader
from pytube.events import DatabaseUp, Event
from pytube.sources import queries, terms
from pytube.sources.settled import Settled
from pytube.sources.terms import Term
from pytube.sources.wakeup import Listener
from pytube.worker import database as database_module
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import FakeClaim, FakeSession, FakeTube

LONG_AGO = -1000.0


class OpenSession(FakeSession):
    """A session that is never lost."""

    closed = cast("property", False)

    async def execute(self, statement: str, arguments: Mapping[str, Any] | None = None) -> None:
        if statement != queries.ALIVE:
            await super().execute(statement, arguments)

    async def close(self) -> None:
        """Nothing is open."""


class Renewal:
    """A term that is renewed as a test says, by a database of its own."""

    def __init__(self) -> None:
        self.sent: list[float] = []
        self.answer = asyncio.Event()
        self.error: Exception | None = None
        self.over = False
        self.locked = False
        self.told: list[Event] = []
        self.active_term = ActiveTerm(
            Term("t", 1, 0, epoch=1), FakeClaim(), TermDeadline(0.0, LONG_AGO), lambda _: None
        )
        self.database = self._make_database(3600.0)

    def _make_database(self, interval: float) -> Database:
        return Database(
            *("", "tube", "t"),
            renew_interval=interval,
            answer_timeout=10.0,
            renewal_timeout=10.0,
            active_terms=lambda: [self.active_term],
            on_wake=lambda _: None,
            awake=lambda: False,
            emit=self.told.append,
        )

    async def renew(self, _session: Session, _tube: str, leader_ids: Sequence[UUID]) -> dict[UUID, bool]:
        self.sent.append(clock.now())
        await self.answer.wait()
        if self.error is not None:
            raise self.error
        return {} if self.over else dict.fromkeys(leader_ids, not self.locked)

    async def why_over(self, _session: Session, _term: Term) -> NotLeader:
        return Fenced("over")

    @asynccontextmanager
    async def running(self, interval: float | None = None) -> AsyncIterator[asyncio.Task[None]]:
        if interval is not None:
            self.database = self._make_database(interval)
        task = asyncio.create_task(self.database._renew(OpenSession(FakeTube())))
        try:
            await wait_until_async(lambda: self.sent, what="a renewal is sent")
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def renewed_at(self) -> float:
        return self.active_term.deadline.until(float("inf"))


@pytest.fixture
async def renewal(monkeypatch: pytest.MonkeyPatch) -> Renewal:
    renewal = Renewal()
    monkeypatch.setattr(terms, "renew", renewal.renew)
    monkeypatch.setattr(terms, "why_over", renewal.why_over)
    return renewal


async def test_a_renewal_counts_from_when_it_was_sent(renewal: Renewal) -> None:
    async with renewal.running():
        assert renewal.renewed_at == LONG_AGO, "it counts before it is answered"
        renewal.answer.set()
        await wait_until_async(lambda: renewal.renewed_at != LONG_AGO, what="it counts")
    assert renewal.renewed_at <= renewal.sent[0]


async def test_a_renewal_without_an_answer_proves_nothing(renewal: Renewal) -> None:
    renewal.error = DatabaseUnavailable("cut")
    renewal.answer.set()
    async with renewal.running() as task:
        await asyncio.wait([task], timeout=5)
        assert isinstance(task.exception(), DatabaseUnavailable)
    assert renewal.renewed_at == LONG_AGO


async def test_the_database_is_back_when_terms_are_renewed_not_when_it_lets_us_in(renewal: Renewal) -> None:
    renewal.database._down_since = time.monotonic()
    async with renewal.running():
        assert renewal.database.down_for > 0
        assert renewal.told == []
        renewal.answer.set()
        await wait_until_async(lambda: renewal.told, what="the end of the outage is told")
    assert isinstance(renewal.told[0], DatabaseUp)
    assert renewal.database.down_for == 0


async def test_a_renewal_that_is_refused_ends_the_term(renewal: Renewal) -> None:
    renewal.over = True
    renewal.answer.set()
    async with renewal.running():
        await asyncio.wait_for(asyncio.shield(renewal.active_term.ended), 5)
    assert renewal.renewed_at == LONG_AGO


async def test_a_term_that_somebody_is_just_ending_is_neither_renewed_nor_over(renewal: Renewal) -> None:
    renewal.locked = True
    renewal.answer.set()
    async with renewal.running(interval=0.01):
        await wait_until_async(lambda: len(renewal.sent) > 2, what="it is tried again")
    assert renewal.renewed_at == LONG_AGO
    assert not renewal.active_term.ended.done()


async def test_while_all_lines_sleep_the_settled_seq_still_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be woken pod by pod for hours; their floors follow what is settled."""
    monkeypatch.setattr(database_module, "_SETTLE_INTERVAL", 0.001)
    monkeypatch.setattr(database_module, "_SETTLE_AT_LEAST", 0.002)
    tube = FakeTube()
    settled = Settled(OpenSession(tube), "t")
    database = Database(
        *("", "tube", "t"),
        renew_interval=3600.0,
        answer_timeout=3600.0,
        renewal_timeout=3600.0,
        active_terms=list,
        on_wake=lambda _: None,
        awake=lambda: False,
        emit=lambda _: None,
    )
    task = asyncio.create_task(database._settle(settled))
    try:
        for number in (1, 2, 3):
            tube.insert(number)
            await wait_until_async(lambda: settled.seq == tube.seq, what="the pod is settled")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_ends_though_a_session_is_lost_as_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss must not stand in for the request: sessions would be opened anew, and nobody asks twice."""
    tube = FakeTube()

    async def open_session(*_: object, **__: object) -> Session:
        return OpenSession(tube)

    async def renew(*_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise DatabaseUnavailable("cut")

    async def idle(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Database, "open_session", open_session)
    monkeypatch.setattr(Database, "_renew", renew)
    monkeypatch.setattr(Database, "_settle", idle)
    monkeypatch.setattr(Listener, "run", idle)
    database = Renewal().database
    running = asyncio.create_task(database.run())
    await asyncio.wait_for(database.control(), 5)
    running.cancel()
    await asyncio.wait([running], timeout=5)
    assert running.cancelled()
