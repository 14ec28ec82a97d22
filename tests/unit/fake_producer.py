"""A producer of Kafka that reports what a test says, and a `PlainProducer` over such."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self, cast

from confluent_kafka import KafkaError, KafkaException

from pytube.kafka.clients import Producers
from pytube.outbox.inflight import InFlight, Rules
from pytube.outbox.producer import PlainProducer
from pytube.outbox.records import Chunk, Fault, Record
from tests.helpers.waiting import wait_until

PURGED = KafkaError(KafkaError._PURGE_QUEUE)


class FakeMessage:
    def __init__(self, key: str | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes | None:
        return None if self._key is None else self._key.encode()

    def value(self) -> bytes | None:
        return self._value


class FakeProducer:
    """Keeps what it is given until a test reports it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.taken: list[tuple[FakeMessage, Any, int]] = []
        self.reports: list[tuple[Any, KafkaError | None, FakeMessage]] = []
        self.answers_at_once = False
        """Whether each record is written and reported before `produce` returns."""
        self.room = 1000
        self.refusal: KafkaError | Exception | None = None
        """What the next call of `produce` raises."""
        self.width = 3
        self.fatal: Exception | None = None
        self.polled_by: set[int] = set()
        """The threads that have asked for reports."""
        self._changed = threading.Condition()
        self.asked: list[str] = []
        """The topics of which it was asked for metadata."""

    def produce(
        self, _: str, value: Any, key: Any, partition: int = -1, *, on_delivery: Any, **more: Any
    ) -> None:
        assert "headers" in more
        if isinstance(self.refusal, KafkaError):
            raise KafkaException(self.refusal)
        if self.refusal is not None:
            raise self.refusal
        if len(self.taken) >= self.room:
            raise BufferError
        self.taken.append((FakeMessage(key, value), on_delivery, partition))
        if self.answers_at_once:
            self.report()
            wait_until(lambda: not self.reports, what="they are told")

    def report(self, *errors: KafkaError | None) -> None:
        """Report the first that it was given; without errors, all as written."""
        with self._changed:
            for error in errors or [None] * len(self.taken):
                message, callback, _ = self.taken.pop(0)
                self.reports.append((callback, error, message))
            self._changed.notify_all()

    def fail(self, error: Exception | None = None) -> None:
        """Have the next poll raise `error`, or a fatal one of Kafka."""
        with self._changed:
            self.fatal = error or KafkaException(KafkaError(KafkaError._FATAL, fatal=True))
            self._changed.notify_all()

    def poll(self, seconds: float) -> None:
        self.polled_by.add(threading.get_ident())
        with self._changed:
            self._changed.wait_for(lambda: self.reports or self.fatal, seconds)
            fatal, self.fatal = self.fatal, None
            for callback, error, message in self.reports:
                callback(error, message)
            self.reports = []
        if fatal is not None:
            raise fatal

    def purge(self, **options: bool) -> None:
        assert options["blocking"] is True, (
            "the event loop would wait: confluent-kafka hands the inverse over"
        )
        self.report(*[PURGED] * len(self.taken))

    def list_topics(self, topic: str, **_: float) -> Any:
        self.asked.append(topic)

        class Found:
            error = None
            partitions = range(self.width)

        return type("Metadata", (), {"topics": {topic: Found}})


class FakeClients:
    timeout = 8.0
    largest = 1000
    settings: Mapping[str, Any] = {"enable.idempotence": True}

    def __init__(self) -> None:
        self.made: list[FakeProducer] = []

    def producer(self, *, settings: Mapping[str, Any] | None = None) -> FakeProducer:
        self.made.append(FakeProducer(settings or {}))
        return self.made[-1]

    def say(self, error: KafkaError) -> str:
        return error.str()

    @property
    def gapless(self) -> list[FakeProducer]:
        return [one for one in self.made if "enable.gapless.guarantee" in one.settings]


class Rig:
    """A producer over fake clients. To be left when it is strict: then its threads end."""

    def __init__(self, *, strict: bool = False) -> None:
        self.clients = FakeClients()
        self.told_by: list[int] = []
        """The threads in which it was told that something is settled."""
        self.producer = PlainProducer(
            cast("Producers", self.clients),
            7,
            strict=strict,
            on_settled=lambda: self.told_by.append(threading.get_ident()),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.producer.stop()

    def has_room(self) -> bool:
        return self.producer.has_room

    def settled(self) -> list[tuple[list[int], dict[int, Fault]]]:
        return [
            (
                [one.id for one in chunk.records()],
                {number: failure.fault for number, failure in failures.items()},
            )
            for chunk, failures in self.producer.settled()
        ]


def chunk(
    *keys: str | None, topic: str = "t", careful: bool = False, first: int = 1, apart: str | None = None
) -> Chunk:
    machine = InFlight(Rules(window=100))
    machine.add(
        [Record(n, 0.0, topic, key, b"v%d" % n, partition_key=apart) for n, key in enumerate(keys, first)]
    )
    taken = machine.take(0.0)
    assert taken is not None
    taken.careful = careful
    return taken
