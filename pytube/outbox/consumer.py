"""For consumers of an outbox's topics: drop records that were seen before."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from pytube.outbox.message import OUTBOX_ID

_Lane: TypeAlias = tuple[str, int, bytes | str | None]


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


def outbox_id(message: Message) -> int | None:
    """The id of the record in its outbox; None for a message that no outbox has sent.

    A consumer that writes to a database can store it with its data, and so know repeats over restarts, too.
    """
    for name, value in message.headers() or ():
        if name == OUTBOX_ID and value is not None:
            return int(value)
    return None


class Deduplicator:
    """Remembers which records were handled, in bounded memory.

        deduplicator = Deduplicator()
        while True:
            message = consumer.poll(1.0)
            if message is not None and not message.error() and not deduplicator.is_repeat(message):
                handle(message)
                deduplicator.remember(message)

    It goes by exact ids, so it never drops a record that was not handled. Memory holds about 100 bytes for
    each id. The memory of one consumer ends with its process.
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
            by: what has a memory of `size` ids of its own: each partition of a topic, or each key. Repeats of
                a key are close together: by key, as many ids as the outbox's `window` are enough.
            size: ids for each partition or key.
            lanes: partitions or keys; beyond them the one that was quiet for longest is forgotten.
            compacted: for an outbox with `compact`, by key. After a crash it may send a record that a newer
                one had replaced, and then the newer one again: what is older than what was handled of its
                key counts as a repeat, or the old value would stay.
        """
        if compacted and by != "key":
            raise ValueError('compacted goes by key; give by="key", too')
        self._by_key = by == "key"
        self._size = size
        self._compacted = compacted
        self._most = lanes
        self._lanes: OrderedDict[_Lane, tuple[set[int], deque[int]]] = OrderedDict()

    def is_repeat(self, message: Message) -> bool:
        """Whether the record was handled before, as far as is remembered."""
        number = outbox_id(message)
        found = None if number is None else self._lanes.get(self._lane(message))
        if found is None or number is None:
            return False
        known, order = found
        return number <= order[-1] if self._keeps_newest(message) else number in known

    def remember(self, message: Message) -> None:
        """The record was handled. One that no outbox has sent is not remembered."""
        number = outbox_id(message)
        if number is None:
            return
        lane = self._lane(message)
        known, order = self._lanes.setdefault(lane, (set(), deque()))
        self._lanes.move_to_end(lane)
        if number not in known:
            known.add(number)
            order.append(number)
            if len(order) > (1 if self._keeps_newest(message) else self._size):
                known.discard(order.popleft())
        if len(self._lanes) > self._most:
            self._lanes.popitem(last=False)

    def forget(self, topic: str, partition: int) -> None:
        """Forget a partition that was assigned to another consumer. By key nothing is forgotten so."""
        self._lanes.pop((topic, partition, None), None)

    def _keeps_newest(self, message: Message) -> bool:
        return self._compacted and message.key() is not None  # nothing replaces a record without a key

    def _lane(self, message: Message) -> _Lane:
        topic = message.topic() or ""
        if self._by_key and (key := message.key()) is not None:
            return topic, -1, key
        return topic, message.partition() or 0, None
