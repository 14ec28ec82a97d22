"""The loop of one partition for one term: mark, send, purge, in rounds, until the term is given back.

It does not decide who leads. A round takes the pods since the last one, and begins the work that is due:

    settle ─► take ─► exchange ─► hold ─► launch ─► attend ─► wait

Tubes and outboxes share it. They differ in their keys and in their sends (`TubeWorker`, `OutboxWorker`). If
the process is killed between any two steps, marked pods stay marked and are not purged, and the next term
takes them over.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pytube.events import MeterRead
from pytube.faults import Point, fault
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.metrics import Samples, TubeMetrics
from pytube.worker.pace import Poller, RoundPacer

Item = TypeVar("Item")
"""A pod, or a record of an outbox."""


@dataclass(slots=True)
class Fetched(Generic[Item]):
    """The result of one exchange."""

    done: Mapping[int, float]
    """The items that it has purged: when each was written, by number."""
    limit: int
    """How many it could mark; 0 when it only purged."""
    began: float
    seconds: float = 0.0
    """How long it took."""
    items: list[Item] = field(default_factory=list)
    """The items that it has marked."""

    @property
    def is_full(self) -> bool:
        """Whether it marked as many as it could, so that more may be waiting."""
        return 0 < self.limit == len(self.items)


class PartitionWorker(ABC, Generic[Item]):
    """Works on one partition of a queue under one term: `run`, then `drain`, or `abort` after a failure.

    Its methods raise `NotLeader` when the term is over (a drain purges nothing then), `DatabaseUnavailable`
    when a session was lost, and `BrokerUnavailable` when librdkafka hangs.
    """

    machine: Any
    """What the term holds of the partition: `InFlight` of pods, or that of records; pure."""
    _source: Any
    """The statements on it: `TubeSource`, or `OutboxSource`."""

    def __init__(
        self, active_term: ActiveTerm, database: Database, metrics: TubeMetrics, pacer: RoundPacer
    ) -> None:
        term = active_term.term
        self.counters = metrics.partition(term.partition)
        self.counters.begin_reading()
        self._where = term.tube, term.partition
        self._active_term = active_term
        self._database = database
        self._poller = Poller(database.pool, active_term)
        self._pacer = pacer
        self._exchange: asyncio.Task[Fetched[Item]] | None = None
        """The exchange under way, until its result was handled."""
        self._left_out = False
        """Whether the exchange under way looks for only a part of the waiting items."""
        self._reserved = 0
        """Room for marked items that are not in the machine yet."""

    # --- life -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until the claim is revoked or the partition is paused; the caller then calls `drain`."""
        if not await self._begin():
            return
        try:
            while self._active_term.goes_on():
                self._active_term.check_trust()
                if not await self._round():
                    await self._wait()
            if self._active_term.is_revoked:
                await fault(Point.ON_REVOKE)
            if self._exchange is not None:
                await asyncio.wait([self._exchange])
            self.machine.add(await self._take())  # for `drain` to give back
        finally:
            if self._exchange is not None:  # its effect is unknown
                self._exchange.cancel()
                await asyncio.gather(self._exchange, return_exceptions=True)

    async def _round(self) -> bool:
        """One round; whether there was anything to do."""
        busy = await self._settle()
        items = await self._take()
        busy |= await self._begin_exchange()  # Postgres works on it while we handle these
        if items:
            await self._hold(items)
            busy = True
        busy |= await self._launch()
        return await self._attend() or busy

    async def drain(self, limit: float) -> None:
        """After `run` has returned: let sends end for `limit` seconds, purge finished items, reset the rest.

        A write that is still unanswered stays in `ActiveTerm.unanswered`, so that the term is not released.
        """
        await self._end_sends(limit)
        await fault(Point.DURING_DRAIN)
        await self._settle_last()
        if done := self._finished(last=True):
            await self._purge_and_mark(list(done), 0)
            self._note_purged(done)
        await fault(Point.BEFORE_RESET)
        unfinished = self.machine.unfinished()
        self._note_reset(len(unfinished), await self._source.reset(unfinished))

    async def abort(self, *, is_over: bool) -> None:
        """After the term or a session was lost: end all sends, write nothing more.

        `is_over`: in the database, too, so that waiting for late writes gains nothing.
        """
        await self._end_sends(0.0, waits=not is_over)

    # --- marks and purges -----------------------------------------------------------------

    async def _begin_exchange(self) -> bool:
        """Begin an exchange that purges and marks, unless one is under way; whether it was begun."""
        if self._exchange is not None:
            return False
        done = self._finished()
        limit = self._mark_limit() if self._wants_mark(done) and self._may_mark() else 0
        if not (done or limit):
            return False
        if limit:
            self._poller.begin_poll(self._database.settled)
            self._pacer.begin(time.monotonic())
        self._exchange = asyncio.create_task(self._ask(done, limit))
        self._exchange.add_done_callback(lambda _: self._active_term.attention.set())
        await asyncio.sleep(0)  # the task sends: Postgres works while this continues
        return True

    async def _ask(self, done: Mapping[int, float], limit: int) -> Fetched[Item]:
        fetched = Fetched[Item](done, limit, time.monotonic())
        fetched.items = await self._purge_and_mark(list(done), limit)
        fetched.seconds = time.monotonic() - fetched.began
        return fetched

    async def _purge_and_mark(self, done: Sequence[int], limit: int) -> list[Item]:
        items: list[Item] = []
        if done:
            await fault(Point.BEFORE_PURGE)
        if limit:
            items = await self._mark(limit, done)
        else:
            await self._source.purge(done)
        if done:
            await fault(Point.AFTER_PURGE)
        if items:
            await fault(Point.AFTER_MARK)
        return items

    async def _take(self) -> Sequence[Item]:
        """What an exchange that has ended has marked; room is kept for it before the next one begins."""
        if self._exchange is None or not self._exchange.done():
            return ()
        task, self._exchange = self._exchange, None
        fetched = task.result()
        if fetched.done:
            self._note_purged(fetched.done)
        if fetched.limit:
            self._pace(fetched)
            await self._poller.end_poll(len(fetched.items), more=fetched.is_full, left_out=self._left_out)
        self._reserved += self._weigh(fetched.items)
        return await self._look_at(fetched.items)

    def _wants_mark(self, done: Mapping[int, float]) -> bool:
        """Whether to mark with this exchange, which purges `done`, if that may be.

        A purge marks, too: that costs little more, and finds the items since the last mark.
        """
        return bool(done) or self._poller.is_due()

    def _finished(self, *, last: bool = False) -> dict[int, float]:  # noqa: ARG002
        """The items to purge now; `last`: nothing is purged after it."""
        done: dict[int, float] = self.machine.finished()
        return done

    def _note_purged(self, done: Mapping[int, float]) -> None:
        """These, at least one, were to be purged."""
        self.counters.pods += len(done)

    def _pace(self, fetched: Fetched[Item]) -> None:
        """Have the next mark come when it pays."""
        self._pacer.end_exchange(fetched.seconds, len(fetched.items), full=fetched.is_full)

    async def _look_at(self, items: Sequence[Item]) -> Sequence[Item]:
        """Handle the items that an exchange has marked, before they are held; returns those still to hold."""
        return items

    def _weigh(self, items: Sequence[Item]) -> int:
        """How much room they take."""
        return len(items)

    def _note_reset(self, held: int, reset: int) -> None:
        """So many were held at the end, and so many of them were given back."""

    # --- for each kind of queue ------------------------------------------------------------

    @abstractmethod
    async def _begin(self) -> bool:
        """Learn what earlier terms have left, before the first round; False: there is to be none."""

    @abstractmethod
    async def _settle(self) -> bool:
        """Act on what sends have returned: keys are done, parked, or sent again; whether there was any."""

    @abstractmethod
    def _may_mark(self) -> bool:
        """Whether there is room for more, and trust."""

    @abstractmethod
    def _mark_limit(self) -> int:
        """How many more to mark, where that may be."""

    @abstractmethod
    async def _mark(self, limit: int, done: Sequence[int]) -> list[Item]:
        """Purge `done` and mark up to `limit` more, in one message."""

    @abstractmethod
    async def _hold(self, items: Sequence[Item]) -> None:
        """Put marked items into the machine, and free their reserved room."""

    @abstractmethod
    async def _launch(self) -> bool:
        """Begin sends, as many as there is room for; whether any was begun."""

    @abstractmethod
    async def _attend(self) -> bool:
        """Do what else is due; whether there was any."""

    @abstractmethod
    async def _wait(self) -> None:
        """Wait until there is something to do."""

    @abstractmethod
    async def _end_sends(self, limit: float, *, waits: bool = True) -> None:
        """Let sends end for `limit` seconds; then none continues, and if `waits`, none may come late."""

    @abstractmethod
    async def _settle_last(self) -> None:
        """Act on what the sends have returned that were under way at the end."""

    # --- its state --------------------------------------------------------------

    @abstractmethod
    def read_metrics(self) -> MeterRead | None:
        """The counts since the last reading; None if both are zero and nothing waits."""

    @property
    @abstractmethod
    def sink_is_up(self) -> bool:
        """Whether the target takes what this partition sends, as far as is known."""

    @abstractmethod
    def gauges(self) -> Samples:
        """The values of the metrics that show its state; labels without tube and partition."""
