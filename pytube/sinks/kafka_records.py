"""Records of the sink `kafka`: produced one by one (`Stream`), or in transactions (`Lane`).

librdkafka calls back once per record, in the thread that polls. So a batch counts its reports, and wakes
the event loop once, when it has them all.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pytube.errors import SinkError, SinkTimeout, SinkUnavailable
from pytube.kafka.clients import Producers
from pytube.kafka.errors import OF_RECORDS, UNKNOWN
from pytube.model import OK, Batch, Reject, Result, Retry
from pytube.sinks.registry import KeyTemplate
from pytube.threads import Handed

_POLL = 0.1
"""Seconds that one poll waits for reports; it returns at once when there is one."""

_AT_ONCE = 250
"""Records that are produced before the event loop has its turn: a millisecond."""

_STREAM_FULL = 0.005
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
        self.over = Handed[None]()
        """Ends when every record that was produced is reported."""

    def call_off(self) -> None:
        """Records can't be called off; records that were not produced yet never are."""

    async def answer(self) -> list[Result]:
        """Produce all records, and wait for their reports; raises as `Sink.send`."""
        try:
            await self._produce_all()
        finally:
            self._is_whole = True
            self._look()
        await asyncio.wait([self.over.future])
        return self._judged()

    async def _produce_all(self) -> None:
        for number in range(len(self._records)):
            if number % _AT_ONCE == 0:
                if number:
                    await asyncio.sleep(0)
                if why := self._why_not():
                    return self._leave(number, why)
            while not self._takes(number):
                await asyncio.sleep(_STREAM_FULL)  # room comes with the reports of others
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
            self.over.end()

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


# --- transactions -------------------------------------------------------------------------------
# One producer per partition of the tube, fenced by its id: each term calls `init_transactions` before it
# writes. That ends what an earlier leader began, and the broker refuses its later records. A deposed leader
# could be late with its own call, and fence its successor. So the right to send is checked once the call has
# returned: if the leader has it then, no successor has begun to write, and the successor's call comes later.
# If not, nothing is written, and the successor, which learns that it was fenced, takes the id back for its
# next batch. Batches that wait go into one transaction together, because a commit takes milliseconds.

_STEP = 1.0
"""Seconds that one try of a commit lasts at most."""

_LANE_FULL = 0.05


class Ticket:
    """One batch that waits for its transaction."""

    def __init__(self, batch: Batch, records: Records) -> None:
        self.batch = batch
        self.records = records
        self.results: list[Result] = [OK] * len(records)
        self.refused: KafkaError | None = None
        """Why the broker refuses a record of this batch."""
        self._lock = threading.Lock()
        self._called_off = False
        self._begun = False
        self._answer = Handed[list[Result]]()
        self.over = Handed[None]()
        """Ends when the transaction is decided, or was never begun."""

    # --- for the event loop -------------------------------------------------------------------

    async def answer(self) -> list[Result]:
        """Wait for the answer; raises as `Sink.send`."""
        return await self._answer.future

    def call_off(self) -> None:
        """Take the batch back, if its transaction was not begun."""
        with self._lock:
            if not self._begun:
                self._called_off = True
                self.over.end()

    # --- for the thread -----------------------------------------------------------------------

    def begin(self) -> bool:
        """Whether the batch may be written."""
        lapsed = self.batch.has_lapsed()
        with self._lock:
            if self._called_off:
                return False
            if not lapsed:
                self._begun = True
                return True
        self.end(SinkUnavailable('sink "kafka": not written, the right to send had lapsed'))
        return False

    def tell(self, error: SinkError) -> None:
        """Answer with an error, while the transaction is not decided yet."""
        self._answer.end(error=error)

    def end(self, error: SinkError | None = None) -> None:
        """The transaction is decided: committed, or, with an error, aborted."""
        self.over.end()
        self._answer.end(self.results, error)

    def report(self, error: KafkaError | None, _: Message) -> None:
        """Called by librdkafka within a commit or poll."""
        if error is not None and error.code() in OF_RECORDS:
            self.refused = error


class Lane:
    """The transactions of one partition, one after the other, in a separate thread."""

    def __init__(self, clients: Producers, topic: str, transactional_id: str) -> None:
        self._clients = clients
        self._topic = topic
        self._id = transactional_id
        self._producer: Producer | None = None
        self._epoch = -1
        self._waiting: list[Ticket] = []
        self._stopped = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name=f"kafka-{transactional_id}", daemon=True).start()

    def begin(self, batch: Batch, records: Records) -> Ticket:
        """Put the batch into the next transaction."""
        ticket = Ticket(batch, records)
        with self._changed:
            self._waiting.append(ticket)
            self._changed.notify()
        return ticket

    def stop(self) -> None:
        """Begin no more transactions; the one under way is decided first."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        while tickets := self._next():
            try:
                self._transact(tickets)
            except Exception as error:  # noqa: BLE001 # answered; the thread lives on for the next batch
                self._drop()
                for ticket in tickets:
                    ticket.end(SinkTimeout(f'sink "kafka": {type(error).__name__}: {error}'))
        self._drop()

    def _next(self) -> list[Ticket]:
        """The batches that wait; none when the lane is stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopped)
            tickets, self._waiting = self._waiting, []
            stopped = self._stopped
        if stopped:
            _end(tickets, SinkUnavailable('sink "kafka": it is closed'))
            return []
        return tickets

    def _transact(self, tickets: list[Ticket]) -> None:
        epoch = max(self._epoch, *(ticket.batch.token.epoch for ticket in tickets))
        old = [ticket for ticket in tickets if ticket.batch.token.epoch < epoch]
        _end(old, SinkUnavailable('sink "kafka": a later term of this worker writes already'))
        # What lapsed while it waited must not take the id from a successor.
        lapsed = [ticket for ticket in tickets if ticket not in old and ticket.batch.has_lapsed()]
        _end(lapsed, SinkUnavailable('sink "kafka": not written, the right to send had lapsed'))
        current = [ticket for ticket in tickets if ticket not in old and ticket not in lapsed]
        if not current:
            return
        try:
            producer = self._of(epoch)
        except KafkaException as error:
            self._drop()
            _end(current, SinkUnavailable(f'sink "kafka": {self._clients.say(error.args[0])}'))
            return
        begun = [ticket for ticket in current if ticket.begin()]
        if begun:
            self._write(producer, begun)

    def _of(self, epoch: int) -> Producer:
        """The producer of a term; it fences the producers of all earlier ones."""
        if self._producer is None or self._epoch != epoch:
            self._producer = None
            producer = self._clients.producer(self._id)
            producer.init_transactions(self._clients.timeout)
            self._producer, self._epoch = producer, epoch
        return self._producer

    def _write(self, producer: Producer, tickets: list[Ticket]) -> None:
        deadline = time.monotonic() + self._clients.timeout
        try:
            producer.begin_transaction()
            for ticket in tickets:
                for number in range(len(ticket.records)):
                    self._produce(producer, ticket, number, ticket.records[number], deadline)
        except KafkaException as error:
            self._abort(producer, tickets, error.args[0])
            return
        while not self._decided(producer, tickets, deadline):
            pass

    def _decided(self, producer: Producer, tickets: list[Ticket], deadline: float) -> bool:
        """Try to commit, for a moment; whether it is known what became of the transaction."""
        try:
            producer.commit_transaction(_STEP)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            unknown = SinkTimeout(f'sink "kafka": commit: {self._clients.say(error)}')
            if error.txn_requires_abort():
                self._abort(producer, tickets, error)
            elif error.retriable():  # only the coordinator knows
                if time.monotonic() > deadline:
                    for ticket in tickets:
                        ticket.tell(unknown)
                return False
            else:  # fenced by another producer of this id, or out of time: uncommitted records never are
                self._drop()
                _end(tickets, unknown)
            return True
        _end(tickets)
        return True

    def _produce(
        self, producer: Producer, ticket: Ticket, number: int, record: Record, deadline: float
    ) -> None:
        while True:
            try:
                producer.produce(
                    self._topic, record.value, record.key, headers=record.headers, on_delivery=ticket.report
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None  # noqa: SLF001
                producer.poll(_LANE_FULL)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                ticket.results[number] = Reject(too_large(record))
                return
            else:
                return

    def _abort(self, producer: Producer, tickets: list[Ticket], reason: KafkaError) -> None:
        """Nothing was committed. Where a record is at fault, the other batches just come again."""
        try:
            producer.abort_transaction(self._clients.timeout)
        except KafkaException:
            self._drop()  # the next producer of this id aborts it
        guilty = [ticket for ticket in tickets if ticket.refused is not None]
        if guilty:
            self._drop()  # its next transaction would be aborted, too: it has skipped sequence numbers
        for ticket in tickets:
            if ticket.refused is not None:
                ticket.end(SinkError(f"the broker refuses a record: {self._clients.say(ticket.refused)}"))
            elif guilty:
                ticket.results = [Retry(0.0, "another batch of the transaction failed")] * len(ticket.records)
                ticket.end()
            else:
                ticket.end(SinkUnavailable(f'sink "kafka": not committed: {self._clients.say(reason)}'))

    def _drop(self) -> None:
        self._producer = None


def _end(tickets: Sequence[Ticket], error: SinkError | None = None) -> None:
    for ticket in tickets:
        ticket.end(error)
