"""Records of the sink `kafka` without transactions: one idempotent producer, and who waits for reports.

librdkafka calls back once per record, in the thread that polls. So a batch counts its reports, and wakes
the event loop once, when it has them all.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import NamedTuple

import orjson
from confluent_kafka import KafkaError, KafkaException, Message

from pytube.errors import SinkError, SinkTimeout, SinkUnavailable
from pytube.kafka.clients import Producers
from pytube.kafka.errors import OF_RECORDS, UNKNOWN
from pytube.model import OK, Batch, Reject, Result, Retry
from pytube.sinks.calls import Flag
from pytube.sinks.registry import KeyTemplate

_POLL = 0.1
"""Seconds that one poll waits for reports; it returns at once when there is one."""

_AT_ONCE = 250
"""Records that are produced before the event loop has its turn: a millisecond."""

_FULL = 0.005
"""Seconds between two tries while librdkafka's queue is full."""

_PUT_OFF = 1.0


class Record(NamedTuple):
    """The record to produce for one document."""

    key: bytes
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


class Records:
    """The records of one batch; each is made on demand, so that none waits for all."""

    def __init__(self, batch: Batch, template: KeyTemplate | None) -> None:
        """Without a template, keys are JSON."""
        self._batch = batch
        self._template = template
        self._token = str(batch.token)

    def __len__(self) -> int:
        return len(self._batch.documents)

    def __getitem__(self, number: int) -> Record:
        document = self._batch.documents[number]
        if self._template is None:
            key = orjson.dumps({"shard": document.shard, "id": document.id})
        else:
            key = self._template.name(self._batch.tube, document.shard, document.id).encode()
        headers: list[tuple[str, str | bytes | None]] = [
            ("token", self._token),
            ("seq", str(document.seq)),
            ("shard", str(document.shard)),
            ("tube", self._batch.tube),
            ("op", "delete" if document.is_delete else "upsert"),
            ("ts", f"{time.time():.6f}"),
        ]
        return Record(key, document.body, headers)


class Stream:
    """One producer, and the thread that polls it until it is stopped and nothing is under way."""

    def __init__(self, clients: Producers, topic: str) -> None:
        """Raises `ConfigError` when librdkafka refuses an option."""
        self.topic = topic
        self.clients = clients
        self.producer = clients.producer()
        self.is_stopped = False
        self._broken = False
        threading.Thread(target=self._poll, name="kafka-poll", daemon=True).start()

    def begin(self, batch: Batch, records: Records) -> Sending:
        """Nothing is produced before the `answer` of what this returns is awaited."""
        if self._broken:
            self._renew()
        return Sending(self, batch, records)

    def stop(self) -> None:
        """Take no more records; the thread ends with the last report."""
        self.is_stopped = True

    def broke(self) -> None:
        """The producer had a fatal error: the next batch gets another one."""
        self._broken = True

    def _renew(self) -> None:
        self._broken = False
        self.producer = self.clients.producer()
        threading.Thread(target=self._poll, name="kafka-poll", daemon=True).start()

    def _poll(self) -> None:
        producer = self.producer
        while not (self.is_stopped or producer is not self.producer) or len(producer):
            producer.poll(_POLL)


class Sending:
    """One batch. Its reports come in the thread that polls."""

    def __init__(self, stream: Stream, batch: Batch, records: Records) -> None:
        self._stream = stream
        self._batch = batch
        self._records = records
        self._results: list[Result] = [OK] * len(records)
        self._produced = 0
        """How many reports there will be; counted while records are produced."""
        self._is_whole = False
        """Whether no more records will be produced."""
        self._reported = 0
        self._failed: dict[bytes | None, KafkaError] = {}
        self.over = Flag()
        """Whether every record that was produced is reported."""

    def call_off(self) -> None:
        """Records can't be called off; records that were not produced yet never are."""

    # --- producing ----------------------------------------------------------------------------

    async def answer(self) -> list[Result]:
        """Produce all records, and wait for their reports; raises as `Sink.send`."""
        try:
            await self._produce_all()
        finally:
            self._is_whole = True
            self._look()
        await self.over.wait()
        return self._judged()

    async def _produce_all(self) -> None:
        for number in range(len(self._records)):
            if number % _AT_ONCE == 0:
                if number:
                    await asyncio.sleep(0)
                if why := self._why_not():
                    return self._leave(number, why)
            while not self._takes(number):
                await asyncio.sleep(_FULL)  # room comes with the reports of others
                if why := self._why_not():
                    return self._leave(number, why)
        return None

    def _why_not(self) -> str | None:
        """Why no more may be produced."""
        if self._stream.is_stopped:
            return "the sink is closed"
        return "the right to send had lapsed" if self._batch.has_lapsed() else None

    def _leave(self, number: int, why: str) -> None:
        """Produce neither this record nor those after it."""
        if not self._produced:
            raise SinkUnavailable(f'sink "kafka": not written, {why}')
        self._results[number:] = [Retry(0.0, why)] * (len(self._records) - number)

    def _takes(self, number: int) -> bool:
        """Whether librdkafka's queue has room for the record; it is in the queue then, or refused."""
        key, value, headers = self._records[number]
        self._produced += 1  # before, since the report may come before `produce` returns
        try:
            self._stream.producer.produce(
                self._stream.topic, value, key, headers=headers, on_delivery=self._report
            )
        except BufferError:
            self._produced -= 1
            return False
        except KafkaException as error:
            self._produced -= 1
            self._refuse(number, error.args[0])
        return True

    def _refuse(self, number: int, error: KafkaError) -> None:
        """The client did not take the record."""
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._results[number] = Reject(too_large(self._records[number]))
            return
        if error.fatal():
            self._stream.broke()
        self._results[number] = Retry(_PUT_OFF, self._stream.clients.say(error))

    def _report(self, error: KafkaError | None, message: Message) -> None:
        """Called by librdkafka in the thread that polls."""
        if error is not None:
            self._failed[message.key()] = error
        self._reported += 1
        if self._is_whole:
            self._look()

    def _look(self) -> None:
        if self._reported == self._produced:
            self.over.set()

    # --- outcome ----------------------------------------------------------------------

    def _judged(self) -> list[Result]:
        if not self._failed:
            return self._results
        say = self._stream.clients.say
        errors = {error.code(): error for error in self._failed.values()}
        if any(error.fatal() for error in errors.values()):
            self._stream.broke()
        for code, error in errors.items():
            if code in UNKNOWN or error.fatal():
                raise SinkTimeout(f'sink "kafka": {say(error)}')
        for code, error in errors.items():
            if code in OF_RECORDS:
                raise SinkError(f"the broker refuses a record: {say(error)}")
        for number in range(len(self._records)):
            refused = self._failed.get(self._records[number].key)
            if refused is not None:
                self._results[number] = Retry(_PUT_OFF, say(refused))
        if OK not in self._results:
            raise SinkUnavailable(f'sink "kafka": {say(next(iter(errors.values())))}')
        return self._results


def too_large(record: Record) -> str:
    """Why a record is rejected."""
    size = len(record.key) + len(record.value or b"")
    return f"the record of {size} bytes is larger than message.max.bytes or the topic's max.message.bytes"
