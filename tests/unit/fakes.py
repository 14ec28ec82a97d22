"""Small stand-ins for the database, the election and the source, for the tests of a partition's worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID, uuid4

from pytube.config import TubeConfig
from pytube.db.locks import LockListener
from pytube.db.session import Queries
from pytube.election import Claim
from pytube.election.base import Revoked
from pytube.enrich import Read
from pytube.errors import (
    DatabaseUnavailable,
    EnrichDataError,
    EnrichFailed,
    EnrichTimeout,
    Fenced,
    ParkLimitReached,
    UnknownTube,
)
from pytube.events import Event
from pytube.logs import Logger, UserFaults
from pytube.model import Id, Key, Pod
from pytube.pipeline.blame import Witnesses
from pytube.pipeline.limits import CongestionControl
from pytube.sinks.base import Sink
from pytube.sources import queries
from pytube.sources.settled import Settled
from pytube.sources.terms import Candidate
from pytube.transforms import Transforms
from pytube.worker.active_term import ActiveTerm
from pytube.worker.metrics import Tracing, TubeMetrics
from pytube.worker.queues import FailingTerms, TermLimits, Tube
from pytube.worker.shared_sink import SinkGate
from pytube.worker.tube_worker import TubeWorker


class FakeClaim(Claim):
    """A claim that is always ours, until a test revokes it or loses it."""

    def __init__(self, tube: str = "t", partition: int = 0) -> None:
        super().__init__(tube, partition)
        self.is_handed_over = False

    async def prove(self) -> None:
        """It is always ours."""

    def revoke(self) -> None:
        """The election wants the partition back."""
        self.withdraw(Revoked("others share the tube"))

    def handed_over(self) -> None:
        super().handed_over()
        self.is_handed_over = True


@dataclass
class FakeTube:
    """One partition of a tube as the database has it. Every insert is committed and settled."""

    leader_id: UUID | None = None
    pods: dict[int, Pod] = field(default_factory=dict)
    marked: set[int] = field(default_factory=set)
    purged: list[int] = field(default_factory=list)
    resets: int = 0
    parked: dict[tuple[int, Id | None], dict[str, Any]] = field(default_factory=dict)
    failed: dict[tuple[int, str], tuple[int, float]] = field(default_factory=dict)
    """Keys to be sent again: attempts, and seconds until the next one."""
    failures: list[list[str]] = field(default_factory=list)
    """The keys of each statement that kept failures."""
    stopped: str | None = None
    sleeping: bool = False
    marks: int = 0
    down: bool = False
    seq: int = 0
    source_changes: dict[int | None, str] = field(default_factory=dict)
    """How the source has changed, by the seq that a worker has read."""
    refusal: Exception | None = None
    """Why scheduled backfills are refused."""
    touch_refusal: Exception | None = None
    """Why touches of a sweep are refused."""

    def insert(self, *ids: int, op: str = "U", shard: int = 0, payload: Any = None) -> int:
        """Commit a pod; its seq."""
        self.seq += 1
        self.pods[self.seq] = Pod(self.seq, op, shard, list(ids), payload)
        return self.seq

    def mark(self, limit: int, floors: Sequence[int], *, with_backfill: bool) -> list[Pod]:
        self.marks += 1
        found: list[Pod] = []
        for pod_class in (0, 1) if with_backfill else (0,):
            found += [
                pod
                for seq, pod in sorted(self.pods.items())
                if pod.pod_class == pod_class and seq > floors[pod_class] and seq not in self.marked
            ][: limit - len(found)]
        self.marked.update(pod.seq for pod in found)
        return found

    def purge(self, seqs: Sequence[int]) -> int:
        for seq in seqs:
            assert seq in self.marked, f"pod {seq} is purged, but was not marked by this term"
            del self.pods[seq]
            self.marked.discard(seq)
        self.purged += seqs
        return len(seqs)

    def reset(self, seqs: Sequence[int]) -> int:
        assert self.marked.issuperset(seqs), "a pod is given back that this term has not marked"
        self.marked.difference_update(seqs)
        self.resets += 1
        return len(seqs)

    def fail(self, items: Sequence[dict[str, Any]]) -> int:
        self.failures.append([item["id"] for item in items])
        self.failed |= {(item["shard"], item["id"]): (item["attempts"], item["delay"]) for item in items}
        return len(items)

    def stop(self, why: str, items: Sequence[dict[str, Any]]) -> bool:
        self.fail(items)
        was_stopped, self.stopped = self.stopped, why
        return was_stopped is None

    def park(self, items: Sequence[dict[str, Any]], most: int | None) -> int:
        if most is not None and len(self.parked) + len(items) > most:
            raise ParkLimitReached(f"more than {most} keys would be parked")
        for item in items:
            key = None if item["id"] is None else int(item["id"])
            self.parked[item["shard"], key] = item
        return len(items)

    def unpark(self, keys: Sequence[Key]) -> int:
        for shard, key in keys:
            self.failed.pop((shard, str(key)), None)
        return sum(self.parked.pop(key, None) is not None for key in keys)

    def take(self, seq: int) -> int | None:
        """A scheduled backfill becomes number 1, unless a test says otherwise."""
        if self.refusal is not None:
            raise self.refusal
        return 1 if self.remove(seq) else None

    def swept(self, shard: int, ids: Sequence[int]) -> int:
        """What a sweep has found."""
        if self.touch_refusal is not None:
            raise self.touch_refusal
        return self.insert(*ids, op="B", shard=shard)

    def remove(self, seq: int) -> bool:
        assert seq in self.marked, f"pod {seq} is acted upon, but was not marked by this term"
        self.marked.discard(seq)
        return self.pods.pop(seq, None) is not None

    def may_sweep(self, shard: int, before: int) -> bool:
        return not any(
            pod.shard == shard and pod.op == "B" and pod.ids and pod.seq < before
            for pod in self.pods.values()
        )

    def backlog(self) -> int:
        return sum(pod.op == "B" and bool(pod.ids) for pod in self.pods.values())

    def sleep(self, *, sleeping: bool) -> None:
        self.sleeping = sleeping

    @property
    def is_empty(self) -> bool:
        return not self.pods


class FakeSession(Queries):
    """Answers the statements of a worker from a `FakeTube`."""

    def __init__(self, tube: FakeTube) -> None:
        self.tube = tube
        self.on_mark: asyncio.Event | None = None
        """When set, a mark takes its pods, and then waits for this before it answers."""
        self.marking = asyncio.Event()
        self.refused: dict[str, Exception] = {}
        """Statements that Postgres refuses."""

    async def rows(self, statement: str, arguments: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        await asyncio.sleep(0)
        given = dict(arguments or {})
        self._check(given)
        if statement in self.refused:
            raise self.refused[statement]
        if statement == queries.FAILED_KEYS:
            parked = [(shard, str(key), None, None) for shard, key in self.tube.parked if key is not None]
            return [(*key, *failure) for key, failure in self.tube.failed.items()] + parked
        if statement == queries.STILL_PARKED:
            asked = zip(given["shards"], map(int, given["ids"]), strict=True)
            return [(shard, str(key)) for shard, key in asked if (shard, key) in self.tube.parked]
        answer = self._answers().get(statement)
        assert answer is not None, f"a worker does not ask this: {statement}"
        return [(answer(given),)]

    def _answers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        tube = self.tube
        return {
            queries.PURGE: lambda given: tube.purge(given["seqs"]),
            queries.RESET: lambda given: tube.reset(given["seqs"]),
            queries.PARK: lambda given: tube.park(given["items"].obj, given["most"]),
            queries.FAIL: lambda given: tube.fail(given["items"].obj),
            queries.STOP: lambda given: tube.stop(given["why"], given["items"].obj),
            queries.UNPARK: lambda given: tube.unpark(
                [(shard, int(key)) for shard, key in zip(given["shards"], given["ids"], strict=True)]
            ),
            queries.BACKFILL_TAKE: lambda given: tube.take(given["seq"]),
            queries.SWEEP_READY: lambda given: tube.may_sweep(given["shard"], given["seq"]),
            queries.SWEEP_BACKLOG: lambda given: min(tube.backlog(), given["most"]),
            queries.SWEEP_TOUCH: lambda given: tube.swept(given["shard"], given["ids"]),
            queries.SWEEP_END: lambda given: tube.remove(given["seq"]),
            queries.SLEEP: lambda _: tube.sleep(sleeping=True),
            queries.WAKE: lambda _: tube.sleep(sleeping=False),
            queries.SOURCE_CHECK: lambda given: tube.source_changes.get(given["seen_seq"]),
            queries.SETTLE_SEQ: lambda _: tube.seq,
            queries.SETTLE_XID: lambda _: "7",
            queries.SETTLE_DONE: lambda _: True,
        }

    async def held_rows(
        self,
        statements: tuple[str, ...],
        arguments: Mapping[str, Any],
        before: tuple[str, ...] = (),
    ) -> list[tuple[Any, ...]]:
        assert statements[1] == queries.MARK_DECLARE, "only a mark is sent as one message"
        assert not before, "a mark purges, too"
        await asyncio.sleep(0)
        self._check(dict(arguments))
        self.tube.purge(arguments["seqs"])
        pods = self.tube.mark(
            arguments["limit"],
            (arguments["floor"], arguments["backfill_floor"]),
            with_backfill=not arguments["exclude_backfill"],
        )
        if self.on_mark is not None:
            self.marking.set()
            await self.on_mark.wait()
        return [tuple(pod) for pod in pods]

    def _check(self, arguments: Mapping[str, Any]) -> None:
        if self.tube.down:
            raise DatabaseUnavailable("the fake database is down")
        leader_id = arguments.get("leader_id")
        if leader_id is not None and leader_id != self.tube.leader_id:
            raise Fenced("another term has begun")


@dataclass
class FakeDatabase:
    """As much of a `Database` as a partition's worker and a leadership ask for."""

    pool: FakeSession
    settled: Settled | None = None
    seen_seq: int = 0
    notifications_work: bool = True
    terms: dict[tuple[str, int], ActiveTerm] = field(default_factory=dict)


class RecordingLogger(Logger):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__("pytube.tests")
        self.lines: list[tuple[int, str, Mapping[str, object], BaseException | None]] = []

    def write(
        self, level: int, event: str, fields: Mapping[str, object], error: BaseException | None = None
    ) -> None:
        self.lines.append((level, event, fields, error))


def gate_of(
    *,
    documents: int = 100,
    requests: int | None = None,
    timeout: float = 10.0,
    rate: float | None = None,
    share: float = 0.2,
) -> SinkGate:
    """A gate that begins with all that its limits allow, without a slow start."""
    control = CongestionControl(documents=documents, requests=requests, first=1000, timeout=timeout)
    control.documents = documents
    return SinkGate(control, rate=rate, backfill_share=share)


@dataclass
class FakeServedTube:
    """As much of a `Tube` as a partition's worker and a leadership ask for."""

    settings: TubeConfig
    sink: Sink
    enricher: FakeEnricher
    database: FakeDatabase
    emit: Callable[[Event], None]
    name: str = "t"
    partitions: int = 1
    transforms: Transforms | None = None
    candidate: Candidate = field(default_factory=lambda: Candidate(uuid4(), "tester", "lease", 15.0, 15.0))
    log: RecordingLogger = field(default_factory=RecordingLogger)
    faults: UserFaults = field(default_factory=lambda: UserFaults(Logger("pytube.tests")))
    metrics: TubeMetrics = field(default_factory=TubeMetrics)
    gate: SinkGate = field(init=False)
    why_closed: str | None = None
    tracing: Tracing = field(default_factory=Tracing)
    failing: dict[int, FailingTerms] = field(default_factory=dict)
    limits: TermLimits = field(init=False)
    witnesses: Witnesses = field(default_factory=Witnesses)

    def __post_init__(self) -> None:
        sink = self.settings.sink
        self.limits = TermLimits(1000.0, 10.0, sink.request_timeout)
        self.gate = gate_of(documents=sink.batch_documents, timeout=sink.request_timeout)

    def consume(self, active_term: ActiveTerm) -> TubeWorker:
        return TubeWorker(active_term, cast("Tube", self))

    @property
    def told(self) -> list[str]:
        """The reasons that were logged."""
        return [str(fields["reason"]) for _, _, fields, _ in self.log.lines]

    async def reload_partitions(self) -> None:
        raise UnknownTube(f"there is no tube {self.name!r}")


class FakeEnricher:
    """Rows in memory. A key that is not among `rows` is deleted at the sink."""

    def __init__(self) -> None:
        self.rows: dict[Key, bytes] = {}
        self.failing: str | None = None
        """Why the source can't be read; None: it can."""
        self.lost = False
        """Whether the connection is lost."""
        self.is_wrong = False
        """Whether reads fail by a fault of ours."""
        self.bad: set[Key] = set()
        """Keys whose data make the query fail."""
        self.most = 1000
        """How many rows can be read before the statement runs out of time."""
        self.slow: set[Key] = set()
        """Keys whose rows always take too long."""
        self.orphans: set[Key] = set()
        self.reads: list[tuple[int, tuple[Id, ...]]] = []
        self.urgent: list[bool] = []
        """Whether each of the reads was."""
        self.locks: LockListener | None = None
        """What the last read tells of locks."""
        self.go = asyncio.Event()
        """While it is not set, reads hang."""
        self.go.set()

    async def read(
        self,
        groups: Mapping[int, Sequence[Id]],
        *,
        urgent: bool = True,
        locks: LockListener | None = None,
    ) -> Mapping[int, Read]:
        self.locks = locks
        self.reads += [(shard, tuple(ids)) for shard, ids in groups.items()]
        self.urgent.append(urgent)
        await self.go.wait()
        await asyncio.sleep(0)
        return {shard: self._read(shard, ids) for shard, ids in groups.items()}

    def _read(self, shard: int, ids: Sequence[Id]) -> Read:
        if self.is_wrong:
            raise TypeError("a fault of the fake source")
        if self.lost:
            raise DatabaseUnavailable("the fake source is down")
        if self.failing is not None:
            raise EnrichFailed(self.failing)
        if len(ids) > self.most or any((shard, key) in self.slow for key in ids):
            raise EnrichTimeout("the fake source took too long")
        bad = [key for key in ids if (shard, key) in self.bad]
        if bad:
            raise EnrichDataError(f"the row {bad[0]} is broken")
        return Read(
            {key: self.rows[shard, key] for key in ids if (shard, key) in self.rows},
            orphans=[key for key in ids if (shard, key) in self.orphans],
        )
