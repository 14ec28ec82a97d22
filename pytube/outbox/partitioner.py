"""The Kafka partition of a record whose partition key is another one than its key."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

_MASK = 0xFFFFFFFF
_FRESH = 60.0
"""Seconds for which a topic's number of partitions counts as known."""


@lru_cache(maxsize=65536)
def murmur2(key: str) -> int:
    """The hash of Java's producer, and of librdkafka's `murmur2`; not negative."""
    data = key.encode()
    length = len(data)
    value = 0x9747B28C ^ length
    for at in range(0, length - 3, 4):
        block = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & _MASK
        block = (block ^ block >> 24) * 0x5BD1E995 & _MASK
        value = (value * 0x5BD1E995 & _MASK) ^ block
    rest = data[length & ~3 :]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & _MASK
    value = (value ^ value >> 13) * 0x5BD1E995 & _MASK
    return (value ^ value >> 15) & 0x7FFFFFFF


class Widths:
    """How many partitions topics have, as far as is known."""

    def __init__(self, ask: Callable[[str], int]) -> None:
        """`ask`: asks the broker; it may block and raise."""
        self._ask = ask
        self._known: dict[str, tuple[int, float]] = {}

    def get(self, topic: str) -> int | None:
        """The number; None: it has to be learned first."""
        width, at = self._known.get(topic, (None, 0.0))
        return width if time.monotonic() - at < _FRESH else None

    def of(self, topic: str) -> int:
        """The number as it was last learned."""
        return self._known[topic][0]

    def learn(self, topic: str) -> None:
        """Ask the broker; blocks, and raises what the broker answers."""
        self._known[topic] = self._ask(topic), time.monotonic()

    def forget(self, topic: str) -> None:
        """The topic has another number now."""
        self._known.pop(topic, None)
