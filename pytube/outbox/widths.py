"""How many partitions topics have: needed for records whose partition key is another one than their key."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException, Producer

_ASK = 5.0
"""Seconds for which the broker is asked."""

_FRESH = 60.0
"""Seconds for which a topic's number of partitions counts as known."""


class Widths:
    """How many partitions topics have, as far as is known."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float]] = {}

    def get(self, topic: str) -> int | None:
        """The number; None: it has to be learned first."""
        width, at = self._known.get(topic, (None, 0.0))
        return width if time.monotonic() - at < _FRESH else None

    def of(self, topic: str) -> int:
        """The number as it was last learned."""
        return self._known[topic][0]

    def learn(self, topic: str, producer: Producer) -> None:
        """Ask the broker; blocks, and raises `KafkaException`."""
        found = producer.list_topics(topic, timeout=_ASK).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        self._known[topic] = len(found.partitions), time.monotonic()

    def forget(self, topic: str) -> None:
        """The topic has another number now."""
        self._known.pop(topic, None)
