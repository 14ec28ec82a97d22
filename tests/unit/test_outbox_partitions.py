"""Kafka's hash of keys, against what Kafka's own tests expect."""

from __future__ import annotations

import pytest

from pytube.outbox.partitions import kafka_partition, murmur2

VECTORS = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize(("text", "expected"), VECTORS.items())
def test_keys_are_hashed_as_kafka_does(text: str, expected: int) -> None:
    assert murmur2(text.encode()) == expected & 0xFFFFFFFF
    assert kafka_partition(text, 12) == (expected & 0x7FFFFFFF) % 12
