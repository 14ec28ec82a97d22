"""A partition's worker over fakes: what a test sets up, breaks, and looks at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar, cast

from pytube import clock
from pytube.config import SinkConfig, TubeConfig
from pytube.events import Event
from pytube.sources.settled import Settled
from pytube.sources.terms import Term
from pytube.testing.memory import MemorySink
from pytube.worker.active_term import ActiveTerm
from pytube.worker.delivery import Deliverer
from pytube.worker.metrics import Tracing
from pytube.worker.pace import Poller
from pytube.worker.queues import TermLimits, Tube
from pytube.worker.shared_sink import SinkGate
from pytube.worker.tube_worker import TubeWorker
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import FakeClaim, FakeDatabase, FakeEnricher, FakeServedTube, FakeSession, FakeTube

E = TypeVar("E", bound=Event)

LIMITS = TermLimits(receive_deadline=1000.0, drain_limit=10.0, request_timeout=10.0)
SETTINGS = TubeConfig(
    sink=SinkConfig(type="memory", batch_documents=100, batch_bytes=1_000_000),
    keys_in_flight=100_000,
    mark_limit=100,
    latency=0.0,
    attempts=2,
    park_limit=None,
)


class Rig:
    """One partition worker, its database, source, sink and election. To be made within an event loop."""

    def __init__(
        self,
        sink: MemorySink | None = None,
        tracing: Tracing | None = None,
        gate: SinkGate | None = None,
        /,
        **settings: object,
    ) -> None:
        """`gate`: one that partitions share; `settings` replace those of `SETTINGS`, and of its sink."""
        self.tube = FakeTube()
        self.session = FakeSession(self.tube)
        self.enricher = FakeEnricher()
        self.sink = sink or MemorySink()
        self.claim = FakeClaim()
        self.events: list[Event] = []
        of_sink = {name: settings.pop(name) for name in SinkConfig.model_fields.keys() & settings.keys()}
        sink_settings = SETTINGS.sink.model_copy(update=of_sink)
        self.settings = SETTINGS.model_copy(update={**settings, "sink": sink_settings})
        self.database = FakeDatabase(self.session, Settled(self.session))
        self.served = FakeServedTube(
            self.settings, self.sink, self.enricher, self.database, self.events.append
        )
        self.served.tracing = tracing or Tracing()
        if gate is not None:
            self.served.gate = gate
        self.term = Term("t", 1, 0, epoch=100)
        self.tube.leader_id = self.term.leader_id
        self.active_term = ActiveTerm(
            self.term,
            self.claim,
            deadline=LIMITS.receive_deadline,
            sent_at=clock.now(),
            emit=self.events.append,
        )
        self.another_worker()
        self.task: asyncio.Task[None] | None = None

    def another_worker(self) -> None:
        """A worker under the same term, as after a pause."""
        self.worker = TubeWorker(self.active_term, cast("Tube", self.served))

    @property
    def deliverer(self) -> Deliverer:
        """The worker's own."""
        return self.worker._deliverer

    @property
    def poller(self) -> Poller:
        """The worker's own."""
        return self.worker._poller

    @property
    def is_asleep(self) -> bool:
        """Whether only a writer wakes the worker."""
        return self.active_term.sleeps and not self.poller.is_due()

    def emitted(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def insert(self, *ids: int, op: str = "U", shard: int = 0) -> int:
        """Commit a pod with rows for all its ids; wakes the worker. The pod's seq."""
        for key in ids:
            self.enricher.rows[shard, key] = b'{"id": %d}' % key
        seq = self.tube.insert(*ids, op=op, shard=shard)
        self.active_term.wake()
        return seq

    async def until(self, what: str, predicate: object) -> None:
        """Wait for a condition; fail with the worker's own error when it ended, or with `what`."""
        assert callable(predicate)

        def holds() -> bool:
            if self.task is not None and self.task.done():
                self.task.result()
            return bool(predicate())

        await wait_until_async(holds, 5, what)

    async def until_empty(self) -> None:
        """Wait until all pods are purged."""
        await self.until(f"all pods are purged, left are {list(self.tube.pods)}", lambda: self.tube.is_empty)

    async def until_it_ends(self) -> BaseException | None:
        """Wait until the worker ends by itself; what it failed with."""
        assert self.task is not None
        await asyncio.wait([self.task], timeout=5)
        assert self.task.done(), "the worker goes on"
        return self.task.exception()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The worker runs within; at the end it is aborted, and nothing of it may be left."""
        before = asyncio.all_tasks()
        await self.sink.open()
        self.task = asyncio.create_task(self.worker.run())
        try:
            yield
        finally:
            self.task.cancel()
            with suppress(BaseException):
                await self.task
            await self.worker.abort(is_over=False)
            await self.sink.close()
        left = [task for task in asyncio.all_tasks() - before if not task.done()]
        assert not left, f"tasks that outlive their worker: {left}"
        assert self.sink.overlaps == [], "a key was in two sends at once"
