"""A worker's events: values, given to a callback and to the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from pytube.model import Id


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    host: str | None = field(default=None, kw_only=True)
    """The Postgres host that the event is of; None for the only one, and for the whole process."""


@dataclass(frozen=True, slots=True)
class PartitionEvent(Event):
    """Base of the events of one partition."""

    tube: str
    partition: int


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """All servers that are up are in order: the worker joins its elections. Earlier events name the rest."""

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
    """The worker serves by another configuration now. Tubes and outboxes not named here continue."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    """Their terms have ended in order, and others begin."""
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigRefused(Event):
    """The file can't be taken up; all continues as before. Emitted once for each reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class DocumentRefused(Event):
    """A declared document can't be made, or differs from the applied one: all but its tube is served.

    In a running worker, a tube that was served before continues by its old section.
    """

    tube: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerStandsBy(Event):
    """The worker has led none of a tube's partitions for some seconds, nor waited for a term to begin.

    As a rule others lead them, and it takes over when one of these ends; it does not know whether they do.
    """

    tube: str
    partitions: int
    """How many the tube has."""


@dataclass(frozen=True, slots=True)
class LeaderAcquired(PartitionEvent):
    """A term began, and may mark."""

    leader_id: UUID
    epoch: int
    waited: float
    """Seconds waited until earlier terms could hold no key any more."""


@dataclass(frozen=True, slots=True)
class LeaderRefreshed(PartitionEvent):
    """Trust, once lapsed, is back within the same term."""

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class LeaderRevoked(PartitionEvent):
    """A term ended in order: drained, reset and released, or given up with `reason`."""

    leader_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderFenced(PartitionEvent):
    """A term found that it is over."""

    leader_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class TrustLapsed(PartitionEvent):
    """No renewal of the term was answered in time: nothing is sent until one is."""

    leader_id: UUID


@dataclass(frozen=True, slots=True)
class MeterRead(PartitionEvent):
    """What one partition did since the last reading, `interval` seconds ago."""

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
class Parked(PartitionEvent):
    """A document was set aside with its error."""

    shard: int
    id: Id | None
    reason: str


@dataclass(frozen=True, slots=True)
class TubeStopped(PartitionEvent):
    """The whole tube is stopped: it delivers nothing until it is resumed."""

    why: str
    """`poison`: a document can't be delivered, and the tube has `on_poison = "stop"`; or `park_limit`."""
    reason: str


@dataclass(frozen=True, slots=True)
class RecordParked(PartitionEvent):
    """Records of an outbox were set aside with their errors; `tube` is the name of the outbox.

    One event is for all that were set aside together for one topic and reason.
    """

    id: int
    """Of the first of them, as what follows."""
    topic: str
    key: str | None
    reason: str
    """Empty when it waits behind a parked record of its key."""
    records: int
    """How many they are."""


@dataclass(frozen=True, slots=True)
class TopicDown(PartitionEvent):
    """A topic takes no records of an outbox; others continue. Emitted once, not per attempt."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionPaused(PartitionEvent):
    """The partition has come to rest for a pause: it is led, and nothing is marked or sent."""

    reason: str


@dataclass(frozen=True, slots=True)
class PartitionResumed(PartitionEvent):
    """Its pause is over after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class TopicUp(PartitionEvent):
    """The topic takes records again after `seconds`."""

    topic: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TopicParked(PartitionEvent):
    """An operator had the records of a topic parked that took nothing for `seconds`."""

    topic: str
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TermsFail(PartitionEvent):
    """Terms of the partition end by the same failure, one after the other.

    Emitted once: with the third, or with the first that ends by a bug of pytube.
    """

    reason: str
    terms: int
    """How many have failed so."""


@dataclass(frozen=True, slots=True)
class SinkDown(PartitionEvent):
    """The sink accepts no documents; the worker waits. Emitted once, not per attempt.

    `SinkUp` follows, also after a pause, unless the term ends before.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SinkDelays(PartitionEvent):
    """The sink defers documents, which uses up no attempt. Emitted once a minute while it lasts."""

    documents: int
    """Of the last batch that was deferred."""
    reason: str
    """That it gave for one of them."""


@dataclass(frozen=True, slots=True)
class SinkUp(PartitionEvent):
    """The sink takes documents again after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SinkEmptied(Event):
    """The sink of a tube has lost its documents, or was replaced. Emitted by the worker that found it."""

    tube: str
    reason: str


@dataclass(frozen=True, slots=True)
class SinkRefilled(Event):
    """Backfills have finished that filled a sink again that was found emptied."""

    tube: str


@dataclass(frozen=True, slots=True)
class SourceDown(PartitionEvent):
    """Rows can't be read (a missing grant, a wrong query); the worker waits. Emitted once."""

    reason: str


@dataclass(frozen=True, slots=True)
class SourceUp(PartitionEvent):
    """Rows can be read again after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class TableLocked(PartitionEvent):
    """Another session has locked a table or outbox records that the partition waits for. Emitted once."""

    table: str
    seconds: float
    """For so long the worker has waited."""
    pid: int | None
    """Of the session that is in the way; None: it is not known."""
    reason: str


@dataclass(frozen=True, slots=True)
class TableUnlocked(PartitionEvent):
    """The partition waits for the table no more, after `seconds`."""

    table: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadShed(Event):
    """The worker gives up all partitions of a tube that it leads, because others do better."""

    tube: str
    partitions: tuple[int, ...]
    """The partitions it led."""
    reason: str
    seconds: float
    """For so long it leaves the tube to the others."""


@dataclass(frozen=True, slots=True)
class LoadResumed(Event):
    """The worker takes its part in a tube again that it had given up."""

    tube: str


@dataclass(frozen=True, slots=True)
class DatabaseDown(Event):
    """Postgres can't be reached, so that no term can be renewed; the worker keeps trying. Emitted once."""

    reason: str


@dataclass(frozen=True, slots=True)
class DatabaseUp(Event):
    """Postgres answers again after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SourceChanged(Event):
    """The database is on another timeline or server, or was restored: delivered commits may be gone.

    Emitted by the first worker that finds it.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CopyDiffers(Event):
    """A scheduled sample has found keys that differ. Nothing is repaired by that."""

    tube: str
    checked: int
    differing: int
    reason: str
    """The first of the keys."""


@dataclass(frozen=True, slots=True)
class BackfillStarted(PartitionEvent):
    """The worker has come to the beginning of a backfill of a shard."""

    shard: int
    start_seq: int


@dataclass(frozen=True, slots=True)
class BackfillFinished(PartitionEvent):
    """All keys of a backfill of a shard were delivered or parked; next comes its sweep, if it has one."""

    shard: int
    start_seq: int


@dataclass(frozen=True, slots=True)
class SweepFinished(PartitionEvent):
    """Documents of a shard that the backfill has not written were found at the sink, and touched."""

    shard: int
    start_seq: int
    keys: int
    """How many were touched; keys that the source does not have are deleted, at their turn."""
    seconds: float
    skipped: str | None = None
    """Why there was no sweep; None when there was one."""


@dataclass(frozen=True, slots=True)
class SweepFailed(PartitionEvent):
    """The sink could not be scanned; it is tried again. Emitted once."""

    shard: int
    reason: str


@dataclass(frozen=True, slots=True)
class BackfillTaken(PartitionEvent):
    """A scheduled backfill was taken over from its control pod; a worker runs it."""

    shard: int
    backfill: int


EventCallback = Callable[[Event], None]
"""Called in the worker's event loop, in order. It must return at once; its errors are logged."""
