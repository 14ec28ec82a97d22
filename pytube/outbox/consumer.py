"""For consumers of an outbox's topics: drop records that were seen before."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from pytube.outbox.stash import ENQUEUED, OUTBOX, OUTBOX_ID

_Lane: TypeAlias = tuple[str, int, bytes | str | None, str]


class Message(Protocol):
    """As much of a `confluent_kafka.Message` as is looked at."""

    def topic(self) -> str | None:
        """The topic that it was read from."""

    def partition(self) -> int | None:
        """The partition of the topic."""

    def key(self) -> bytes | str | None:
        """The key, if it has one."""

    def headers(self) -> Sequence[tuple[str, bytes | str | None]] | None:
        """The headers, if it has any."""


class RecordId(NamedTuple):
    """What names a record: no other one has all three, of whatever outbox, database or installation.

    A database that was restored from a backup draws ids again; records that get one of these differ in
    `enqueued`.
    """

    outbox: str
    """The header `pytube-outbox`; empty for a worker of a version that did not send it."""
    id: int
    enqueued: str
    """The header `pytube-enqueued`, as it is; empty where it is missing."""


def record_id(message: Message) -> RecordId | None:
    """What names the record of a message; None for a message that no outbox has sent.

    A consumer that writes to a database can store it with its data, and so know repeats over restarts, too.
    """
    found: dict[str, str] = {}
    for name, value in message.headers() or ():
        # The last header of a name is pytube's. Others come from a service that passes on the headers it has
        # received.
        if name in _OURS and value is not None:
            found[name] = value.decode() if isinstance(value, bytes) else value
    if OUTBOX_ID not in found:
        return None
    return RecordId(found.get(OUTBOX, ""), int(found[OUTBOX_ID]), found.get(ENQUEUED, ""))


_OURS = frozenset({OUTBOX, OUTBOX_ID, ENQUEUED})


class Deduplicator:
    """Remembers which records were handled, in bounded memory.

        deduplicator = Deduplicator()
        while True:
            message = consumer.poll(1.0)
            if message is not None and not message.error() and not deduplicator.is_repeat(message):
                handle(message)
                deduplicator.remember(message)

    It goes by what names the record (`RecordId`), so it never drops a record that was not handled. Memory
    holds about 250 bytes for each. The memory of one consumer ends with its process.
    """

    def __init__(
        self,
        *,
        by: Literal["partition", "key"] = "partition",
        size: int = 100_000,
        lanes: int = 100_000,
        compacted: bool = False,
    ) -> None:
        """Nothing is remembered yet.

        Args:
            by: which scope has a separate memory of `size` records, for each outbox: each partition of a
                topic, or each key. Repeats of a key are close together: by key, as many records as the
                outbox's `window` are enough.
            size: records for each partition or key.
            lanes: partitions or keys; beyond them the longest quiet one is forgotten.
            compacted: for an outbox with `compact`, by key. After a crash it may send a record that a newer
                one had replaced, and then the newer one again: a record older than the last handled one of
                its key counts as a repeat, or the old value would stay.
        """
        if compacted and by != "key":
            raise ValueError('compacted goes by key; give by="key", too')
        self._by_key = by == "key"
        self._size = size
        self._compacted = compacted
        self._most = lanes
        self._lanes: OrderedDict[_Lane, tuple[set[RecordId], deque[RecordId]]] = OrderedDict()

    def is_repeat(self, message: Message) -> bool:
        """Whether the record was handled before, as far as is remembered."""
        record = record_id(message)
        found = None if record is None else self._lanes.get(self._lane(message, record))
        if found is None or record is None:
            return False
        known, order = found
        return _is_older(record, order[-1]) if self._keeps_newest(message) else record in known

    def remember(self, message: Message) -> None:
        """The record was handled. A message that did not come from an outbox is not remembered."""
        record = record_id(message)
        if record is None:
            return
        lane = self._lane(message, record)
        known, order = self._lanes.setdefault(lane, (set(), deque()))
        self._lanes.move_to_end(lane)
        if record not in known:
            known.add(record)
            order.append(record)
            if len(order) > (1 if self._keeps_newest(message) else self._size):
                known.discard(order.popleft())
        if len(self._lanes) > self._most:
            self._lanes.popitem(last=False)

    def forget(self, topic: str, partition: int) -> None:
        """Forget a partition that was assigned to another consumer. By key nothing is forgotten so."""
        for lane in [lane for lane in self._lanes if lane[:3] == (topic, partition, None)]:
            del self._lanes[lane]

    def _keeps_newest(self, message: Message) -> bool:
        return self._compacted and message.key() is not None  # nothing replaces a record without a key

    def _lane(self, message: Message, record: RecordId) -> _Lane:
        topic = message.topic() or ""
        if self._by_key and (key := message.key()) is not None:
            return topic, -1, key, record.outbox
        return topic, message.partition() or 0, None, record.outbox


def _is_older(record: RecordId, handled: RecordId) -> bool:
    """Whether a record equals the handled one of its key, or is older; not if its id was reused."""
    return record.id <= handled.id and _written(record) <= _written(handled)


def _written(record: RecordId) -> float:
    return float(record.enqueued or 0)
