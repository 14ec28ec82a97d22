"""Records as messages of Kafka, chunks that are under way, and what errors of librdkafka mean for them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pytube.outbox.message import ENQUEUED, EPOCH, OUTBOX_ID
from pytube.outbox.partitions import Widths, kafka_partition
from pytube.outbox.records import Chunk, Failure, Fault, Record

# ruff: noqa: SLF001 -- librdkafka's own codes begin with an underscore

UNSENT = Failure(Fault.UNSENT, "it was not sent")
OVERDUE = Failure(Fault.UNANSWERED, "the broker did not acknowledge the record in time")

Headers: TypeAlias = list[tuple[str, Any]]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

OF_RECORDS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
    }
)
"""The broker refuses a batch for one of its records; it does not say which."""

_UNANSWERED = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""No broker may be there."""

_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_BROKEN = frozenset({KafkaError._FATAL, KafkaError._GAPLESS_GUARANTEE})


_partition = lru_cache(maxsize=65536)(kafka_partition)


def failure_of(error: KafkaError, say: Callable[[KafkaError], str]) -> Failure:
    """What an error means that is not about one record."""
    return Failure(Fault.UNANSWERED if error.code() in _UNANSWERED else Fault.TOPIC, say(error))


class Malformed(ValueError):
    """The record can't be a message of Kafka."""


def headers_of(record: Record, epoch: bytes) -> Headers:
    """The record's own headers, then ours.

    Raises:
        Malformed: names and values of the headers do not go together.
    """
    ours: Headers = [
        (OUTBOX_ID, b"%d" % record.id),
        (EPOCH, epoch),
        (ENQUEUED, b"%.3f" % record.created),
    ]
    if record.header_keys is None and record.header_values is None:
        return ours
    keys, values = record.header_keys or (), record.header_values or ()
    if len(keys) != len(values) or None in keys:
        raise Malformed(f"the record has {len(keys)} names of headers, and {len(values)} values")
    return [*zip(keys, values, strict=True), *ours]


class Handed:
    """A chunk that was handed to a producer.

    librdkafka calls `report` for each record, with a copy of its key and value. It is one function for all
    records: one for each would take as long as all else that is done for a record.
    """

    __slots__ = ("at", "chunk", "errors", "failures", "is_broken", "left", "overdue")

    def __init__(self, chunk: Chunk, at: float) -> None:
        self.chunk = chunk
        self.at = at
        """When it was handed over."""
        self.left = 0
        """Reports that are still to come."""
        self.is_broken = False
        """Whether the producer is of no more use."""
        self.overdue = False
        """Whether it was given up, because no answer came in time."""
        self.failures: dict[int, Failure] = {}
        """What was not taken, by id."""
        self.errors: list[tuple[KafkaError, bytes | None, bytes | None]] = []

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Called by librdkafka, within a poll."""
        self.left -= 1
        if error is not None:
            self.is_broken |= error.fatal() or error.code() in _BROKEN
            self.errors.append((error, message.key(), message.value()))

    def produce(
        self, producer: Producer, epoch: bytes, widths: Widths, say: Callable[[KafkaError], str]
    ) -> None:
        """Hand all records over, up to the first that is not taken: what follows must not overtake it."""
        chunk = self.chunk
        records = chunk.records()
        if not _TOPIC.fullmatch(chunk.topic) or chunk.topic in (".", ".."):
            poison = Failure(Fault.POISON, f"Kafka takes no topic of the name {chunk.topic!r}")
            self.failures = dict.fromkeys((record.id for record in records), poison)
            return
        put, topic, report = producer.produce, chunk.topic, self.report
        index = 0
        failure: Failure | None = None
        try:
            for index, record in enumerate(records):  # noqa: B007 # it tells where it stopped
                headers = headers_of(record, epoch)
                if record.partition_key is None or not record.is_apart:
                    put(topic, record.value, record.key, headers=headers, on_delivery=report)
                else:
                    at = _partition(record.partition_key, widths.of(topic))
                    put(topic, record.value, record.key, at, headers=headers, on_delivery=report)
        except BufferError:
            failure = UNSENT  # librdkafka's queue is full
        except Malformed as error:
            failure = Failure(Fault.POISON, str(error))
        except KafkaException as error:
            failure = self._refusal(records[index], error.args[0], widths, say)
        self.left += len(records) if failure is None else index
        if failure is not None:
            self.failures = dict.fromkeys((record.id for record in records[index:]), UNSENT)
            self.failures[records[index].id] = failure

    def _refusal(
        self, record: Record, error: KafkaError, widths: Widths, say: Callable[[KafkaError], str]
    ) -> Failure:
        """Why the client did not take a record."""
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            size = len((record.key or "").encode()) + len(record.value or b"")
            reason = f"the record of {size} bytes is larger than librdkafka's message.max.bytes"
            return Failure(Fault.POISON, reason)
        self.is_broken = error.fatal() or error.code() in _BROKEN
        if error.code() == KafkaError._UNKNOWN_PARTITION:
            widths.forget(self.chunk.topic)
        return failure_of(error, say)

    @property
    def is_over(self) -> bool:
        """Whether all reports have come."""
        return not self.left

    def outcome(self, say: Callable[[KafkaError], str]) -> dict[int, Failure]:
        """What was not written, or not for sure, by id.

        Records of the same key and value can't be told apart: the first of them counts as the one that
        failed, so that the others are sent again, too.
        """
        if self.errors:
            same: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
            for record in reversed(self.chunk.records()):
                if record.id not in self.failures:
                    same[(record.key or "").encode(), record.value or b""].append(record.id)
            for error, key, value in self.errors:
                self.failures[same[key or b"", value or b""].pop()] = self._failure(error, say)
        return self.failures

    def _failure(self, error: KafkaError, say: Callable[[KafkaError], str]) -> Failure:
        code = error.code()
        if code in OF_RECORDS:
            return Failure(Fault.BATCH, f"the broker refuses the record: {say(error)}")
        if code in _PURGED and self.overdue:
            return OVERDUE
        if code in _PURGED or code == KafkaError._GAPLESS_GUARANTEE:
            return UNSENT
        return failure_of(error, say)
