"""Records as messages of Kafka, chunks that are under way, and what errors of librdkafka mean for them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pytube.counts import say_count
from pytube.kafka.clients import Producers
from pytube.kafka.errors import BROKEN, OF_RECORDS, PURGED, is_refusal
from pytube.outbox.partitions import Widths, kafka_partition
from pytube.outbox.records import Chunk, Failure, Fault, Record, ordering_key
from pytube.outbox.stash import ENQUEUED, EPOCH, OUTBOX, OUTBOX_ID

# ruff: noqa: SLF001 -- librdkafka's own codes begin with an underscore

UNSENT = Failure(Fault.UNSENT, "it was not sent")
OVERDUE = Failure(Fault.UNANSWERED, "the broker did not acknowledge the record in time")

Headers: TypeAlias = list[tuple[str, Any]]

_OF_BROKERS = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
"""Topics that brokers write themselves, and that they take no records for."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

_partition = lru_cache(maxsize=65536)(kafka_partition)


def failure_of(error: KafkaError, say: Callable[[KafkaError], str]) -> Failure:
    """What an error means that is not about one record."""
    if (
        error.code() == KafkaError.TOPIC_EXCEPTION
    ):  # it is not a valid topic name, or the topic is the brokers'
        return Failure(Fault.POISON, f"the broker takes no records for this topic: {say(error)}")
    return Failure(Fault.TOPIC if is_refusal(error) else Fault.UNANSWERED, say(error))


class Origin(NamedTuple):
    """Where records come from, as their headers say."""

    outbox: bytes
    epoch: bytes


def headers_of(record: Record, origin: Origin) -> Headers:
    """The record's headers, then pytube's: of a name that both have, pytube's comes last.

    They are as `unsendable` wants them.
    """
    ours: Headers = [
        (OUTBOX, origin.outbox),
        (OUTBOX_ID, b"%d" % record.id),
        (EPOCH, origin.epoch),
    ]
    if isfinite(record.created):
        ours.append((ENQUEUED, b"%.3f" % record.created))
    if record.header_keys is None and record.header_values is None:
        return ours
    return [*zip(record.header_keys or (), record.header_values or (), strict=True), *ours]


# --- records that can't be messages -----------------------------------------------------------------------


def unsendable(chunk: Chunk, limit: int) -> dict[int, Failure]:
    """What becomes of a chunk that has records of which none can ever be sent; empty: it has none.

    All of them are found at once, and the others are not sent with them: what follows one of its key must not
    overtake it. `limit`: the bytes that librdkafka takes of a record.
    """
    records = chunk.records()
    if (reason := _why_no_topic(chunk.topic)) is not None:
        return dict.fromkeys((one.id for one in records), Failure(Fault.POISON, reason))
    found = {
        one.id: Failure(Fault.POISON, reason)
        for one in records
        if (reason := _why_malformed(one, limit)) is not None
    }
    return {one.id: found.get(one.id, UNSENT) for one in records} if found else {}


def _why_malformed(record: Record, limit: int) -> str | None:
    """Why a record can't be a message of Kafka."""
    if (record.header_keys is not None or record.header_values is not None) and (
        reason := _why_no_headers(record.header_keys or (), record.header_values or ())
    ) is not None:
        return reason
    # A character has a byte or more; whatever is a little larger, librdkafka itself refuses.
    if len(record.value or b"") + len(record.key or "") > limit:
        return _too_large(record, limit)
    return None


def _why_no_headers(keys: Sequence[Any], values: Sequence[Any]) -> str | None:
    """The error in arrays that Postgres takes and a message can't have."""
    for what, texts in (("names", keys), ("values", values)):
        if any(isinstance(text, list) for text in texts):
            return f"the {what} of its headers are an array of more than one dimension"
    if len(keys) != len(values):
        names, contents = say_count(len(keys), "name"), say_count(len(values), "value")
        return f"its headers have {names} and {contents}"
    if None in keys:
        return f"the name of header {keys.index(None) + 1} of {len(keys)} is NULL"
    return None


def _too_large(record: Record, limit: int) -> str:
    texts = (record.key, *(record.header_keys or ()), *(record.header_values or ()))
    size = len(record.value or b"") + sum(len((text or "").encode()) for text in texts)
    return (
        f"the record is larger than message.max.bytes, which is {limit}: key, value and headers have "
        f"{say_count(size, 'byte')}"
    )


def _why_no_topic(name: str) -> str | None:
    """Why a topic of this name can't be written to."""
    if name in _OF_BROKERS:
        return f"Kafka's brokers take no records for the topic {name}"
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        shown = name if len(name) <= 249 else f"{name[:249]}…"
        return f"Kafka takes no topic of the name {shown!r}"
    return None


def _choose(producers: Sequence[Producer], record: Record) -> Producer:
    """Of an ordering key always the same, and of a partition where a topic's number of them is even."""
    key = ordering_key(record)
    return producers[key % len(producers) if isinstance(key, int) else _partition(key, len(producers))]


def _is_fatal(error: KafkaError) -> bool:
    """Whether a producer with this error is of no more use."""
    return error.fatal() or error.code() in BROKEN


class Handed:
    """A chunk that was handed to a producer.

    librdkafka calls `report` for each record, with a copy of its key and value. It is one function for all
    records: one for each would take as long as everything else per record. Each producer's reports may
    come in a thread of its own, also during `produce`. So all that `report` does is append to a list. After a
    fatal error a flush calls it with an exception set, which ends it with its first call of anything:
    a lock would be taken, and never be given back.
    """

    __slots__ = ("_is_refused", "at", "chunk", "failures", "overdue", "reports", "taken")

    def __init__(self, chunk: Chunk, at: float) -> None:
        self.chunk = chunk
        self.at = at
        """When it was handed over."""
        self.taken: int | None = 0
        """Records that the producer took, for each of which a report comes; None while it takes them."""
        self.reports: list[tuple[KafkaError, Message] | None] = []
        """Those that have come: None of a record that was written; else the error and the record."""
        self._is_refused = False
        """Whether the producer takes nothing any more."""
        self.overdue = False
        """Whether it was given up, because no answer came in time."""
        self.failures: dict[int, Failure] = {}
        """The records that were not accepted, by id."""

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Called by librdkafka, within a poll."""
        self.reports.append(None if error is None else (error, message))

    def produce(
        self, producers: Sequence[Producer], origin: Origin, widths: Widths, clients: Producers
    ) -> None:
        """Hand all records over, up to the first that is not taken: what follows must not overtake it.

        Whatever goes wrong with a record is a failure of that record: an exception that ended the term would
        meet the same record in the next one.
        """
        records = self.chunk.records()
        topic, report = self.chunk.topic, self.report
        only = producers[0].produce if len(producers) == 1 else None
        self.taken = None
        index = 0
        failure: Failure | None = None
        try:
            for index, record in enumerate(records):  # noqa: B007 # the index says where it stopped
                headers = headers_of(record, origin)
                put = only or _choose(producers, record).produce
                if record.partition_key is None or not record.is_apart:
                    put(topic, record.value, record.key, headers=headers, on_delivery=report)
                else:
                    at = _partition(record.partition_key, widths.of(topic))
                    put(topic, record.value, record.key, at, headers=headers, on_delivery=report)
        except (BufferError, MemoryError):
            failure = UNSENT  # librdkafka's queue is full
        except KafkaException as error:
            failure = self._refusal(records[index], error.args[0], widths, clients)
        except Exception as error:  # noqa: BLE001 # see above
            failure = Failure(
                Fault.POISON, f"the record is not a valid message: {type(error).__name__}: {error}"
            )
        if failure is not None:
            self.failures = dict.fromkeys((record.id for record in records[index:]), UNSENT)
            self.failures[records[index].id] = failure
        self.taken = len(records) if failure is None else index

    def _refusal(self, record: Record, error: KafkaError, widths: Widths, clients: Producers) -> Failure:
        """Why the client did not take a record."""
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return Failure(Fault.POISON, _too_large(record, clients.largest))
        if _is_fatal(error):
            self._is_refused = True
        if error.code() == KafkaError._UNKNOWN_PARTITION:
            widths.forget(self.chunk.topic)
        return failure_of(error, clients.say)

    @property
    def is_over(self) -> bool:
        """Whether all reports have come."""
        return len(self.reports) == self.taken

    @property
    def is_written(self) -> bool:
        """Whether all records were that the producer took. It may have refused others, which never left."""
        return self.is_over and not self._errors() and not self._is_refused

    @property
    def is_broken(self) -> bool:
        """Whether the producer is of no more use."""
        return self._is_refused or any(_is_fatal(error) for error, _ in self._errors())

    def _errors(self) -> list[tuple[KafkaError, Message]]:
        return [one for one in self.reports if one is not None]

    def outcome(self, say: Callable[[KafkaError], str]) -> dict[int, Failure]:
        """The records that were not, or perhaps not, written, by id.

        Records of the same key and value look the same: the first of them counts as the failed one, so that
        the others are sent again, too.
        """
        if errors := self._errors():
            same: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
            for record in reversed(self.chunk.records()):
                if record.id not in self.failures:
                    same[(record.key or "").encode(), record.value or b""].append(record.id)
            for error, message in errors:
                self.failures[same[message.key() or b"", message.value() or b""].pop()] = self._failure(
                    error, say
                )
        return self.failures

    def _failure(self, error: KafkaError, say: Callable[[KafkaError], str]) -> Failure:
        code = error.code()
        if code in OF_RECORDS:
            return Failure(Fault.BATCH, f"the broker refuses the record: {say(error)}")
        if code in PURGED and self.overdue:
            return OVERDUE
        if code in PURGED or code == KafkaError._GAPLESS_GUARANTEE:
            return UNSENT
        return failure_of(error, say)
