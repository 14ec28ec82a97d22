"""The sink `kafka` passes the suite at a real broker, with transactions and without."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from pytube.embedded.kafka_real import RealKafka
from pytube.model import Key
from pytube.sinks.base import Sink
from pytube.sinks.kafka import KafkaSink
from pytube.testing import SinkContract
from tests.helpers.frozen import freeze, thaw
from tests.helpers.kafka_reader import PARTITIONS, Reader

topics = (f"copies-{number}" for number in itertools.count())


class TestRecords(SinkContract):
    limit = 60.0
    transactional_id: str | None = None

    @pytest.fixture(autouse=True)
    def _topic(self, kafka_real: RealKafka) -> Iterator[None]:
        self.kafka = kafka_real
        self.topic = next(topics)
        self.readers: list[Reader] = []
        yield
        for reader in self.readers:
            reader.close()

    def options(self) -> dict[str, object]:
        return {
            "bootstrap_servers": self.kafka.bootstrap,
            "topic": self.topic,
            "key_format": "json",
            "create_topic": True,
            "partitions": PARTITIONS,
            "topic_options": {"max.message.bytes": "2000000"},
            **({"transactional_id": self.transactional_id} if self.transactional_id else {}),
        }

    def make_sink(self) -> Sink:
        return KafkaSink.from_options(self.options())

    def unopenable_sink(self) -> Sink:
        return KafkaSink.from_options({**self.options(), "topic": "nobody-made-it", "create_topic": False})

    def read_back(self) -> dict[Key, Any]:
        if not self.readers:
            self.readers.append(Reader(self.kafka.bootstrap, self.topic))
        return self.readers[0].read()

    def rejected_value(self) -> Any:
        return "x" * 2_100_000

    def stall(self) -> bool:
        freeze(self.kafka.pid)
        return True

    def unstall(self) -> None:
        thaw(self.kafka.pid)


class TestTransactions(TestRecords):
    transactional_id = "test.{tube}.{partition}"
