"""A worker's events: values, given to a callback and to the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from logging import ERROR, INFO, WARNING
from typing import ClassVar
from uuid import UUID

from pytube.model import Id


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    level: ClassVar[int] = INFO
    """The log's, of the standard library."""
    host: str | None = field(default=None, kw_only=True)
    """The Postgres host that the event is of; None for the only one, and for the whole process."""

    def __init_subclass__(cls, level: int | None = None) -> None:
        if level is not None:  # `dataclass` makes each class twice, the second time without its arguments
            cls.level = level


@dataclass(frozen=True, slots=True)
class PartitionEvent(Event):
    """Base of the events of one partition."""

    tube: str
    partition: int


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """The database is ready, and each sink is open or logged as `sink_not_open`; the worker joins its
    elections.
    """

    version: str
    tubes: tuple[str, ...]
    election: str
    """`lease` or `neli`."""
    sinks: tuple[str, ...]
    """The types of the sinks, in the order of `tubes`."""
    client_id: str
    outboxes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigTakenUp(Event):
    """The worker has loaded its changed file: tubes and outboxes now served, restarted, and left."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    """Their terms have ended in order, and others begin."""
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigRefused(Event, level=WARNING):
    """The file can't be loaded; the worker continues as before. Once for each reason.

    Remedy: follow the reason.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class ConfigWaits(Event, level=WARNING):
    """One of several hosts is down, so these tubes and outboxes continue as before there, or wait, until the
    worker has checked the changed file there.

    Remedy: bring the host up. The worker looks again every half minute, with `--watch` every few seconds.
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DocumentRefused(Event, level=ERROR):
    """A declared document does not fit the tables, or differs from the applied one. The tube continues with
    the old document; without one, its changes wait.

    Remedy: follow the reason, which `pytube status` shows, too. The worker looks again every half minute; for
    a changed file send SIGHUP.
    """

    tube: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerStandsBy(Event):
    """The worker has led none of the tube's `partitions` for five seconds; usually others do.

    Remedy: if all workers stand by: `pytube doctor`.
    """

    tube: str
    partitions: int
    """How many the tube has."""


@dataclass(frozen=True, slots=True)
class LeaderAcquired(PartitionEvent):
    """A term began, after waiting `waited` seconds for earlier ones."""

    leader_id: UUID
    epoch: int
    waited: float


@dataclass(frozen=True, slots=True)
class LeaderRefreshed(PartitionEvent):
    """Trust is back, in the same term."""

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRevoked(PartitionEvent):
    """A term ended in order, or was given up for this reason.

    Remedy: none; often: workers come and go, or the group rebalances.
    """

    leader_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderFenced(PartitionEvent, level=WARNING):
    """A term found that it is over.

    Remedy: none after a pause or a repartition; often: more CPU, or longer timeouts.
    """

    leader_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class TrustLapsed(PartitionEvent, level=WARNING):
    """No renewal of the term was answered in time; nothing is sent.

    Remedy: check Postgres and the network.
    """

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class MeterRead(PartitionEvent):
    """The work of a partition in `interval` seconds. An idle partition logs one at level debug, then none."""

    interval: float
    pods: int
    touches: int
    documents: int
    skipped: int
    """Documents that a transform did not want to be sent."""
    parked: int
    waiting: int
    in_flight: int
    lag: float
    """Age in seconds of the oldest pod or record that is not delivered, without backfill pods; 0 when there
    is none."""


@dataclass(frozen=True, slots=True)
class Parked(PartitionEvent, level=WARNING):
    """A document was parked.

    Remedy: see PytubeParked.
    """

    shard: int
    id: Id | None
    reason: str


@dataclass(frozen=True, slots=True)
class TubeStopped(PartitionEvent, level=ERROR):
    """The whole tube stopped: a document can't be delivered (`why=poison`), or too many keys are parked
    (`park_limit`).

    Remedy: see PytubeStopped.
    """

    why: str
    reason: str


@dataclass(frozen=True, slots=True)
class RecordParked(PartitionEvent, level=WARNING):
    """`records` records of an outbox were parked, of which the fields show the first. Without `reason`:
    behind a parked record of its key.

    Remedy: see PytubeOutboxParked.
    """

    id: int
    topic: str
    key: str | None
    reason: str
    records: int


@dataclass(frozen=True, slots=True)
class TopicDown(PartitionEvent, level=WARNING):
    """The broker refuses a topic of the outbox; other topics continue. Once.

    Remedy: follow the reason.
    """

    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionPaused(PartitionEvent):
    """The partition is at rest for a pause: it is led, and nothing is marked or sent.

    Remedy: if not intended: `pytube resume`.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class PartitionResumed(PartitionEvent):
    """The pause is over, after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class TopicUp(PartitionEvent):
    """The topic takes records again, after `seconds`."""

    topic: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TopicParked(PartitionEvent, level=WARNING):
    """An operator parked the records of a topic that had taken none for `seconds`."""

    topic: str
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TermsFail(PartitionEvent, level=ERROR):
    """`terms` terms of the partition in a row ended by the same failure. Once: at the third, or at the first
    bug of pytube.

    Remedy: see PytubeTermsFail.
    """

    reason: str
    terms: int


@dataclass(frozen=True, slots=True)
class SinkDown(PartitionEvent, level=WARNING):
    """The sink takes not even a single document; the partition waits, and parks nothing. Also after 100
    failures in a row, unless it takes an earlier document again. Once.

    Remedy: bring the sink up; `pytube status` shows the latest reason.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SinkDelays(PartitionEvent, level=WARNING):
    """The sink is up, but puts documents off; they are resent, and use up no attempt. Once a minute.

    Remedy: relieve the sink, or follow the reason.
    """

    documents: int
    """Of the last batch that was deferred."""
    reason: str
    """That it gave for one of them."""


@dataclass(frozen=True, slots=True)
class SinkUp(PartitionEvent):
    """The sink takes documents again, after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SinkEmptied(Event, level=WARNING):
    """The sink of a tube lost its documents, or was replaced. Once.

    Remedy: see PytubeSinkEmptied.
    """

    tube: str
    reason: str


@dataclass(frozen=True, slots=True)
class SinkRefilled(Event):
    """Backfills have refilled the sink."""

    tube: str


@dataclass(frozen=True, slots=True)
class SourceDown(PartitionEvent, level=WARNING):
    """Rows can't be read: a missing grant, a wrong query, an attached table without a query. Once.

    Remedy: follow the reason.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SourceUp(PartitionEvent):
    """Rows can be read again, after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class TableLocked(PartitionEvent, level=WARNING):
    """A table, or records of an outbox, that the partition needs have been locked for `seconds`, by session
    `pid` if it is visible. Once.

    Remedy: see PytubeTableLocked.
    """

    table: str
    seconds: float
    pid: int | None
    """Of the session that is in the way; None: it is not known."""
    reason: str


@dataclass(frozen=True, slots=True)
class TableUnlocked(PartitionEvent):
    """The lock was released or is no longer needed, after `seconds`."""

    table: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadShed(Event, level=WARNING):
    """The worker gives up the `partitions` of a tube, and leaves it to others for `seconds`, because they do
    better.

    Remedy: often: check this machine, and its way to the sink.
    """

    tube: str
    partitions: tuple[int, ...]
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadResumed(Event):
    """The worker takes its share of the tube again."""

    tube: str


@dataclass(frozen=True, slots=True)
class DatabaseDown(Event, level=WARNING):
    """Terms can't be renewed, for all tubes of the host; the worker retries. Once.

    Remedy: bring Postgres up.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class DatabaseUp(Event):
    """Terms can be renewed again, after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SourceChanged(Event, level=WARNING):
    """Another timeline or server, or a restored database: delivered commits may be gone. Logged by the first
    worker that notices.

    Remedy: see PytubeSourceChanged.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CopyDiffers(Event, level=WARNING):
    """A scheduled sample found keys that differ; `reason` names the first. Nothing is repaired.

    Remedy: see PytubeCopyDiffers.
    """

    tube: str
    checked: int
    differing: int
    reason: str


@dataclass(frozen=True, slots=True)
class BackfillStarted(PartitionEvent):
    """The partition has reached the beginning of a backfill of `shard`."""

    shard: int
    start_seq: int


@dataclass(frozen=True, slots=True)
class BackfillFinished(PartitionEvent):
    """All touches of the backfill in `shard` are delivered or parked; its sweep comes next, if it has one."""

    shard: int
    start_seq: int


@dataclass(frozen=True, slots=True)
class SweepFinished(PartitionEvent):
    """The sweep touched `keys` documents at the sink that the backfill had not written; `skipped`: why it did
    not scan.
    """

    shard: int
    start_seq: int
    keys: int
    """How many were touched; keys that the source does not have are deleted, at their turn."""
    seconds: float
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class SweepFailed(PartitionEvent, level=WARNING):
    """The sink could not be scanned, or returned nothing for five minutes; the worker retries. Once.

    Remedy: follow the reason.
    """

    shard: int
    reason: str


@dataclass(frozen=True, slots=True)
class BackfillTaken(PartitionEvent):
    """A scheduled backfill begins, with the number `backfill`; a worker runs it."""

    shard: int
    backfill: int


EventCallback = Callable[[Event], None]
"""Called in the worker's event loop, in order. It must return at once; its errors are logged."""
