"""A mock of a Kafka broker that refuses the next request to produce; no configuration asks for that."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

_PRODUCE = 0
_NOT_LEADER = 6
_OUT_OF_ORDER = 45
_BROKER = 1
_DELAY = 300
"""Milliseconds until it refuses: by then the producer has sent all that it would send meanwhile."""


class RefusingKafka:
    """A broker in this process. It takes any sequence number, as one does that does not know the producer."""

    def __init__(self, library: ctypes.CDLL, cluster: int) -> None:
        self._library = library
        self._cluster = cluster
        self.bootstrap = ctypes.string_at(library.rd_kafka_mock_cluster_bootstraps(cluster)).decode()

    def refuse_next(self) -> None:
        """Answer the next request to produce with an error after which it is tried again."""
        self._library.rd_kafka_mock_broker_push_request_error_rtts(
            self._cluster, _BROKER, ctypes.c_int16(_PRODUCE), ctypes.c_size_t(1), _NOT_LEADER, _DELAY
        )

    def fail(self, producer: Producer) -> None:
        """Raise a fatal error in an idempotent producer."""
        handle = ctypes.c_void_p.from_address(id(producer) + object.__basicsize__)  # its first field
        self._library.rd_kafka_test_fatal_error(handle, ctypes.c_int(_OUT_OF_ORDER), b"by a test")

    def count(self, topic: str, partition: int = 0) -> int:
        """The records of a partition, and markers of transactions."""
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "count"})
        try:
            _, end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        finally:
            reader.close()
        return int(end)


@contextmanager
def refusing_kafka() -> Iterator[RefusingKafka]:
    """Start one, in the library that confluent-kafka has loaded."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
    pointer = ctypes.c_void_p
    for name, arguments, result in (
        ("rd_kafka_conf_new", [], pointer),
        ("rd_kafka_new", [ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_size_t], pointer),
        ("rd_kafka_destroy", [pointer], None),
        ("rd_kafka_mock_cluster_new", [pointer, ctypes.c_int], pointer),
        ("rd_kafka_mock_cluster_destroy", [pointer], None),
        ("rd_kafka_mock_cluster_bootstraps", [pointer], pointer),
    ):
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    library.rd_kafka_mock_broker_push_request_error_rtts.argtypes = [
        pointer, ctypes.c_int32, ctypes.c_int16, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
    ]  # fmt: skip
    reason = ctypes.create_string_buffer(200)
    host = library.rd_kafka_new(0, library.rd_kafka_conf_new(), reason, len(reason))
    assert host, reason.value
    cluster = library.rd_kafka_mock_cluster_new(host, 1)
    try:
        yield RefusingKafka(library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(host)
