"""Records of an outbox on their way to Kafka: alone, by key (a lane), and in chunks that go together."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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


class Lane:
    """The records held of one topic and ordering key, except finished ones."""

    __slots__ = (
        "broken",
        "flying",
        "held",
        "key",
        "parking",
        "queued",
        "refused",
        "resting",
        "unpurged",
        "until",
        "waiting",
    )

    def __init__(self, key: OrderingKey) -> None:
        """Holds nothing yet."""
        self.key = key
        self.waiting: list[Record] = []
        """By id."""
        self.flying = 0
        self.unpurged = 0
        """Records that were written, and that a crash would have sent again."""
        self.broken: list[Record] | None = None
        """After a failure: the records to send again when all in flight have settled; None without one."""
        self.resting = False
        """Whether a record failed alone, and the lane backs off until `until`."""
        self.until = 0.0
        self.parking = 0
        """Records that are being parked; until the database has them, nothing more is sent."""
        self.held = False
        """Whether a record is parked and what follows is to be parked behind it."""
        self.refused = False
        """Whether the database did not park a record behind another one: the other one comes again first."""
        self.queued = False

    @property
    def is_open(self) -> bool:
        """Whether more of it may be sent."""
        return self.broken is None and not (self.parking or self.held or self.refused or self.resting)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be remembered of it."""
        busy = self.flying or self.unpurged or self.waiting or self.parking or self.held or self.resting
        return not busy and self.broken is None


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
