"""Which partition a record goes to: the outbox's own, and Kafka's."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Producer

_SLOT_BITS = 0x7FFFFFFF

# Of murmur2.
_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C

_ASK = 5.0
"""Seconds for which the broker is asked."""

_FRESH = 60.0
"""Seconds for which a topic's number of partitions counts as known."""


def slot_of(topic: str, ordering_key: str | None, record_id: int) -> int:
    """The slot of a record; modulo the partitions of its outbox, its partition.

    The same as in `sql/outbox/tables.sql`.
    Holds for databases whose encoding is UTF-8: Postgres digests the bytes of the texts.

    `ordering_key`: its partition key, else its key; of a record that has neither, its id stands for it.
    """
    text = f"{topic}\x1f{record_id if ordering_key is None else ordering_key}"
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") & _SLOT_BITS


def murmur2(data: bytes) -> int:
    """The hash of a key, 32 bits without a sign, as Kafka's clients compute it."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for place in range(0, whole, 4):
        k = int.from_bytes(data[place : place + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def kafka_partition(key: str, partitions: int) -> int:
    """The partition that Java's default partitioner, and librdkafka's `murmur2`, have for a key."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


class Widths:
    """How many partitions topics have, as far as is known.

    Needed for records whose partition key is another one than their key.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float]] = {}

    def get(self, topic: str) -> int | None:
        """The number; None: it has to be learned first."""
        width, at = self._known.get(topic, (None, 0.0))
        return width if time.monotonic() - at < _FRESH else None

    def knows(self, topic: str) -> bool:
        """Whether the number was ever learned."""
        return topic in self._known

    def of(self, topic: str) -> int:
        """The number as it was last learned."""
        return self._known[topic][0]

    def learn(self, topic: str, producer: Producer) -> None:
        """Ask the broker; blocks, and raises `KafkaException`."""
        from confluent_kafka import KafkaError, KafkaException

        found = producer.list_topics(topic, timeout=_ASK).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        if not found.partitions:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))  # it is just being made
        self._known[topic] = len(found.partitions), time.monotonic()

    def forget(self, topic: str) -> None:
        """The topic has another number now."""
        self._known.pop(topic, None)
