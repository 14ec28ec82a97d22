"""Records of an outbox on their way to Kafka: alone, by key (a lane), by topic, and in chunks."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

OrderingKey: TypeAlias = str | int
"""Of a record: its partition key, else its key; its id where it has neither, as it then has no order."""


class Record(NamedTuple):
    """One message of an outbox. The fields are a mark's columns, in order."""

    id: int
    created: float
    """Unix seconds at which the record was written, by the database's clock."""
    topic: str
    key: str | None
    value: bytes | None
    header_keys: Sequence[str] | None = None
    """None instead of an empty list, which is dearer to read."""
    header_values: Sequence[str] | None = None
    partition_key: str | None = None
    retried: bool = False
    """Whether an operator has retried it."""
    held: bool = False
    """Whether an earlier record of its key is parked, and this one is to be parked behind it."""

    @property
    def is_apart(self) -> bool:
        """Whether its partition at Kafka is another one than its key's."""
        return self.partition_key is not None and self.partition_key != self.key


def ordering_key(record: Record) -> OrderingKey:
    """What orders it within its topic."""
    if record.partition_key is not None:
        return record.partition_key
    return record.id if record.key is None else record.key


class EarlierTerm(NamedTuple):
    """A term that had records of a partition, and has ended."""

    partitions: int
    partition: int
    epoch: int
    until: float
    """Unix seconds, by the database's clock, from which on it could send nothing."""


class Sent(NamedTuple):
    """What an earlier term has sent, and perhaps not purged."""

    ids: frozenset[int]
    until: float
    """Unix seconds, by the database's clock: a record that was written later has got the id of another one,
    after a restore, or after a failover that lost commits."""


NO_ANSWER = "it took nothing in time, though a broker answers"
"""How the reason begins of a topic that was not refused, and takes nothing."""


class Fault(enum.Enum):
    """Why a record was not written, as far as the machine has to know."""

    UNSENT = enum.auto()
    """Nothing speaks against the record or its topic: to be sent again at once."""
    TOPIC = enum.auto()
    """The broker refuses the topic: to be sent again after the topic has cooled down."""
    UNANSWERED = enum.auto()
    """No answer came in time: to be sent again as soon as a broker answers, or the topic has cooled down."""
    BATCH = enum.auto()
    """A record that was sent together with this one can't be written, perhaps this one."""
    POISON = enum.auto()
    """This record can never be written."""


class Failure(NamedTuple):
    """What became of a record that was not written."""

    fault: Fault
    reason: str


class Rest(NamedTuple):
    """A topic that takes nothing now. Times are of the machine's clock."""

    topic: str
    reason: str
    """Why it took nothing the last time."""
    since: float
    until: float
    """When it is tried again."""
    records: int
    """That are held, and wait for it."""


class Letter(NamedTuple):
    """A record to be parked."""

    record: Record
    reason: str
    attempts: int
    behind: bool
    """Whether only because an earlier record of its key is parked."""


@dataclass(eq=False, slots=True)
class Lane:
    """The records held of one topic and ordering key, except finished ones."""

    topic: Topic
    key: OrderingKey
    waiting: list[Record] = field(default_factory=list)
    """By id."""
    flying: int = 0
    unpurged: int = 0
    """Records that were written, and that a crash would have sent again."""
    broken: list[Record] | None = None
    """After a failure: the records to send again when all in flight have settled; None without one."""
    until: float | None = None
    """When it is sent again after a record has failed alone; None: none rests."""
    parking: int = 0
    """Records that are being parked; until the database has them, nothing more is sent."""
    held: bool = False
    """Whether a record is parked and what follows is to be parked behind it."""
    refused: bool = False
    """Whether the database did not park a record behind another one: the other one comes again first."""
    queued: bool = False

    @property
    def is_open(self) -> bool:
        """Whether more of it may be sent."""
        return self.broken is None and self.until is None and not (self.parking or self.held or self.refused)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be remembered of it."""
        busy = self.flying or self.unpurged or self.waiting or self.parking or self.held
        return not busy and self.broken is None and self.until is None


@dataclass(eq=False, slots=True)
class Topic:
    """The lanes of one topic, and how it is sent."""

    name: str
    lanes: dict[OrderingKey, Lane] = field(default_factory=dict)
    ready: deque[Lane] = field(default_factory=deque)
    """Lanes that may have something to send."""
    flights: dict[Chunk, None] = field(default_factory=dict)
    """Chunks that fly, in the order of their launch."""
    limit: int | None = None
    """Records of the next chunk while the topic is sent carefully; None: it is not."""
    ceiling: int | None = None
    """Chunks of more records were refused, and no record was found to be at fault; None: none was."""
    ceiling_until: float = 0.0
    failures: int = 0
    down_since: float | None = None
    reason: str = ""
    """Why it took nothing the last time."""
    until: float = 0.0
    queued: bool = False
    unanswered_at: float = 0.0
    """When the last try had no answer, of a topic that waits for one."""
    is_tried: bool = False
    """Whether it is tried again since a broker has answered another request."""
    is_doubtful: bool = False
    """Whether that try had no answer either."""


@dataclass(eq=False, slots=True)
class Chunk:
    """Records of one topic that are handed over together."""

    topic: str
    parts: list[tuple[Lane, list[Record]]]
    size: int
    careful: bool
    """Whether no other chunk of the topic flies, and each record is of another lane."""
    replaced: Sequence[Record]
    """Older records that are done with these, by compaction."""
    failures: Mapping[int, Failure] | None = None
    """What failed, by id; None until the chunk is settled."""

    def records(self) -> list[Record]:
        """All of them; within a lane by id."""
        if len(self.parts) == 1:
            return self.parts[0][1]
        return [record for _, part in self.parts for record in part]

    def done(self) -> list[int]:
        """The ids of all records that are done when the chunk is written."""
        return [record.id for record in self.records()] + [record.id for record in self.replaced]

    def written_until(self) -> float:
        """When the youngest of these was written."""
        return max(record.created for record in (*self.records(), *self.replaced))


# --- the way to Kafka -----------------------------------------------------------------------------


class Outgoing(Protocol):
    """A way of one term's records to Kafka."""

    async def open(self, earlier: Sequence[EarlierTerm], outbox: str) -> Sequence[Sent]:
        """Begin, before the first mark; what earlier terms have sent, and perhaps purged.

        `outbox`: what the records' headers name the outbox by.

        Raises:
            BrokerUnavailable: no broker answers, or it refuses us.
        """

    def send(self, chunk: Chunk) -> None:
        """Hand a chunk over; the caller has looked whether it may send."""

    def settled(self) -> list[tuple[Chunk, Mapping[int, Failure]]]:
        """Chunks that are decided since the last call, and what of them failed, by id."""

    def confirm_purged(self, chunks: int, left: Collection[int] = ()) -> None:
        """So many chunks, the first of `settled`'s, are purged except `left`, on the disk too."""

    @property
    def is_busy(self) -> bool:
        """Whether chunks are under way."""

    @property
    def has_room(self) -> bool:
        """Whether a chunk may be handed over."""

    @property
    def needs_poll(self) -> bool:
        """Whether outcomes are only seen by `settled`; else they draw the term's attention."""

    @property
    def answer_due(self) -> float | None:
        """When, by the monotonic clock, librdkafka has to have returned from a call; None: from none."""

    def check(self) -> None:
        """Look whether it has.

        Raises:
            BrokerUnavailable: it has not: nothing more comes of this way.
        """

    @property
    def why_stuck(self) -> str | None:
        """Why what became of chunks can't be learned now; None: it can."""

    def stop_sending(self) -> None:
        """Send nothing that is not on its way yet."""

    def stop(self) -> None:
        """Give up unanswered records, too: they may still be written."""
