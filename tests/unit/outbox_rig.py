"""The worker of a partition of an outbox over a fake database and a fake Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from uuid import uuid4

from pytube import clock
from pytube.config import OutboxConfig
from pytube.db.session import Queries
from pytube.errors import BrokerUnavailable, Fenced
from pytube.events import Event
from pytube.outbox import source as queries
from pytube.outbox.inflight import Rules
from pytube.outbox.records import Chunk, EarlierTerm, Failure, Fault, Record, Sent
from pytube.sources import queries as of_tubes
from pytube.sources.terms import Candidate, Term
from pytube.worker.active_term import ActiveTerm
from pytube.worker.kafka import KafkaCluster
from pytube.worker.metrics import TubeMetrics
from pytube.worker.outbox_worker import OutboxWorker
from pytube.worker.queues import Outbox
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import FakeClaim, FakeDatabase

E = TypeVar("E", bound=Event)
POISON = Failure(Fault.POISON, "too large")
UNSENT = Failure(Fault.UNSENT, "it was not sent")
UNANSWERED = Failure(Fault.UNANSWERED, "no broker")
SETTINGS = OutboxConfig(in_flight=1000, in_flight_bytes=1_000_000, mark_limit=100).model_copy(
    update={"message_timeout": -0.99}  # so that nothing is waited for
)


class FakeTable(Queries):
    """One partition of an outbox as the database has it."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.marked: set[int] = set()
        self.parked: dict[int, bool] = {}
        """Whether each parked record is behind another."""
        self.retried: list[int] = []
        self.reset: list[int] = []
        self.fenced = False
        self.limits: list[int] = []
        self.rests: list[dict[str, Any]] = []
        """The topics that rest, as the worker said last."""
        self.to_park: list[str] = []
        """Those of which an operator wants the records parked."""
        self.marked_before: list[int] = []
        """How many this term had already, at each mark."""
        self.purged_with_marks: list[int] = []
        """How many records each mark has purged."""

    def stash(self, *keys: str, size: int = 1) -> list[int]:
        """Commit records; their ids."""
        ids = range(len(self.records) + 1, len(self.records) + 1 + len(keys))
        for number, key in zip(ids, keys, strict=True):
            self.records[number] = Record(number, 1.0, "t", key, b"x" * size)
        return list(ids)

    @property
    def left(self) -> set[int]:
        """What is neither purged nor parked."""
        return {number for number, one in self.records.items() if one.created} - self.parked.keys()

    def purge(self, ids: list[int]) -> int:
        assert self.marked.issuperset(ids), "a record is purged that this term has not marked"
        for number in ids:
            self.records[number] = self.records[number]._replace(created=0.0)
        self.marked.difference_update(ids)
        return len(ids)

    def mark(self, limit: int) -> list[Record]:
        self.limits.append(limit)
        self.marked_before.append(len(self.marked))
        again, self.retried = self.retried[:limit], self.retried[limit:]
        free = sorted(self.left - self.marked - set(again) - set(self.retried))
        found = [self.records[number]._replace(retried=True) for number in again]
        found += [self.records[number] for number in free[: limit - len(again)]]
        self.marked.update(one.id for one in found)
        return found

    def park(self, items: list[dict[str, Any]]) -> list[int]:
        parked = []
        for item in items:
            key = self.records[item["id"]].key
            heads = [n for n, behind in self.parked.items() if not behind and self.records[n].key == key]
            if heads or not item["behind"]:
                self.parked[item["id"]] = item["behind"]
                parked.append(item["id"])
        self.marked.difference_update(parked)
        return parked

    def park_topic(self, topic: str, ids: list[int]) -> list[int]:
        assert self.marked.issuperset(ids)
        parked = sorted(n for n in self.left - (self.marked - set(ids)) if self.records[n].topic == topic)
        self.parked |= dict.fromkeys(parked, False)
        self.marked.difference_update(parked)
        return parked

    def purge_sent(self, ids: list[int], until: float) -> None:
        assert not self.marked, "before the first mark"
        assert until == 7.5
        for number in self.left.intersection(ids):
            self.records[number] = self.records[number]._replace(created=0.0)

    def give_back(self, ids: list[int]) -> int:
        self.reset += ids
        self.marked.difference_update(ids)
        return len(ids)

    async def rows(self, statement: str, arguments: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        await asyncio.sleep(0)
        given = dict(arguments or {})
        self._check()
        answers: dict[str, Callable[[], Any]] = {
            queries.PURGE: lambda: self.purge(given["ids"]),
            queries.PURGE_SENT: lambda: self.purge_sent(given["ids"], given["until"]),
            queries.RESET: lambda: self.give_back(given["ids"]),
            queries.PARK: lambda: self.park(given["items"].obj),
            of_tubes.SLEEP: lambda: None,
            of_tubes.WAKE: lambda: None,
        }
        if statement == queries.TOPICS_REST:
            self.rests = given["topics"].obj
            return [(topic,) for topic in self.to_park]
        if statement == queries.PARK_TOPIC:
            return [(self.park_topic(given["topic"], given["ids"]),)]
        if statement == queries.OUTBOX:
            return [(False, True, [[4, 0, 99, 7.5]], "orders/1")]
        return [(answers[statement](),)]

    async def held_rows(
        self, statements: tuple[str, ...], arguments: Mapping[str, Any], before: tuple[str, ...] = ()
    ) -> list[tuple[Any, ...]]:
        assert statements[1] == queries.MARK_DECLARE
        await asyncio.sleep(0)
        self._check()
        self.purged_with_marks.append(len(arguments["ids"]))
        if before:
            assert before == (queries.PURGE,)
            self.purge(arguments["ids"])
        return [tuple(one) for one in self.mark(arguments["limit"])]

    def _check(self) -> None:
        if self.fenced:
            raise Fenced("another term has begun")


@dataclass
class FakeKafka:
    """Decides chunks when a test says so; by itself, it writes all."""

    sent_before: frozenset[int] = frozenset()
    failing: dict[int, Failure] = field(default_factory=dict)
    paused: bool = False
    under_way: list[Chunk] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    confirmed: int = 0
    most: int = 0
    stopped: bool = False
    needs_poll: bool = True
    on_settled: Callable[[], None] = lambda: None
    decided: set[Chunk] = field(default_factory=set)
    """What the term is woken for."""
    looks: int = 0
    """How often it was asked what is settled."""
    has_room: bool = True
    why_stuck: str | None = None
    answer_due: float | None = None

    def check(self) -> None:
        if self.answer_due is not None and time.monotonic() > self.answer_due:
            raise BrokerUnavailable("librdkafka hangs")

    async def open(self, earlier: Sequence[EarlierTerm], outbox: str) -> Sequence[Sent]:
        assert outbox == "orders/1"
        assert list(earlier) == [EarlierTerm(4, 0, 99, 7.5)]
        return [Sent(self.sent_before, earlier[0].until)] if self.sent_before else []

    def send(self, chunk: Chunk) -> None:
        self.under_way.append(chunk)
        self.most = max(self.most, sum(one.size for one in self.under_way))
        if not self.needs_poll:
            asyncio.get_running_loop().call_later(0.001, self._decide, chunk)

    def _decide(self, chunk: Chunk) -> None:
        """As librdkafka does after a while, where it wakes the term."""
        self.decided.add(chunk)
        if not self.paused:
            self.on_settled()

    def settled(self) -> list[tuple[Chunk, Mapping[int, Failure]]]:
        self.looks += 1
        if self.paused:
            return []
        chunks = [one for one in self.under_way if self.needs_poll or one in self.decided]
        self.under_way = [one for one in self.under_way if one not in chunks]
        answers = []
        for chunk in chunks:
            failures: dict[int, Failure] = {}
            for one in chunk.records():
                if failures:  # nothing overtakes what failed
                    failures[one.id] = self.failing.get(one.id, UNSENT)
                elif one.id in self.failing:
                    failures[one.id] = self.failing[one.id]
                else:
                    self.written.append(one.id)
            answers.append((chunk, failures))
        return cast("list[tuple[Chunk, Mapping[int, Failure]]]", answers)

    def confirm_purged(self, chunks: int, left: Collection[int] = ()) -> None:
        assert not left
        self.confirmed = chunks

    @property
    def is_busy(self) -> bool:
        return bool(self.under_way)

    def stop_sending(self) -> None:
        self.stopped = True

    def stop(self) -> None:
        self.under_way.clear()


class Rig:
    """As much of an `Outbox` as its worker asks for, and the worker. To be made within an event loop."""

    def __init__(self, rules: Rules | None = None, *, needs_poll: bool = True, **settings: Any) -> None:
        self.table = FakeTable()
        self.kafka = FakeKafka(needs_poll=needs_poll)
        self.events: list[Event] = []
        self.candidate = Candidate(uuid4(), "tester", "lease", 15.0, 15.0)
        self.settings = SETTINGS.model_copy(update=settings)
        self.rules = rules or Rules(window=10, chunk=10)
        self.metrics = TubeMetrics()
        self.cluster: KafkaCluster | None = None
        self.claim = FakeClaim("orders")
        self.active_term = ActiveTerm(
            Term("orders", 1, 0, epoch=100),
            self.claim,
            deadline=1000.0,
            sent_at=clock.now(),
            emit=self.events.append,
        )
        self.another_worker()
        self.task: asyncio.Task[None] | None = None

    def another_worker(self) -> None:
        """A worker under the same term, as after a pause: what the last one had marked is nobody's."""
        self.database = FakeDatabase(cast("Any", self.table))
        self.kafka.under_way.clear()
        self.table.marked.clear()
        self.worker = OutboxWorker(self.active_term, cast("Outbox", self))

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def outgoing(self, active_term: ActiveTerm) -> FakeKafka:
        self.kafka.on_settled = active_term.attention.set
        return self.kafka

    def emitted(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.task = asyncio.create_task(self.worker.run())
        try:
            yield
        finally:
            self.task.cancel()
            with suppress(BaseException):
                await self.task

    async def until(self, condition: Callable[[], object], what: str) -> None:
        def holds() -> bool:
            if self.task is not None and self.task.done():
                self.task.result()
            return bool(condition())

        await wait_until_async(holds, 5, what)

    async def until_empty(self) -> None:
        await self.until(lambda: not self.table.left, "all is purged or parked")
