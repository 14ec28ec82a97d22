"""Kafka's own choice of a partition, for messages whose partition key is not their key."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


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
