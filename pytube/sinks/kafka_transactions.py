"""Records of the sink `kafka` in transactions: a producer per partition of the tube, fenced by its id.

The id names the partition, and each term calls `init_transactions` before it writes. That ends what an
earlier leader began, and the broker refuses its later records. A deposed leader could be late with its own
call, and fence its successor. So the right to send is checked once `init_transactions` has returned: if the
leader has it then, no successor has begun to write, and the successor's call comes later. If not, nothing is
written, and the successor, which learns that it was fenced, takes the id back for its next batch.

Batches that wait go into one transaction together, because a commit takes milliseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pytube.errors import SinkError, SinkTimeout, SinkUnavailable
from pytube.kafka.clients import Producers
from pytube.kafka.errors import OF_RECORDS
from pytube.model import OK, Batch, Reject, Result, Retry
from pytube.sinks.calls import Flag
from pytube.sinks.kafka_records import Record, Records, too_large

_STEP = 1.0
"""Seconds that one try of a commit lasts at most."""

_FULL = 0.05


class Ticket:
    """One batch that waits for its transaction."""

    def __init__(self, batch: Batch, records: Records) -> None:
        self.batch = batch
        self.records = records
        self.results: list[Result] = [OK] * len(records)
        self.refused: KafkaError | None = None
        """Why the broker refuses a record of this batch."""
        self._error: SinkError | None = None
        self._lock = threading.Lock()
        self._called_off = False
        self._begun = False
        self._answered = Flag()
        self.over = Flag()
        """Whether the transaction is decided, or was never begun."""

    # --- for the event loop -------------------------------------------------------------------

    async def answer(self) -> list[Result]:
        """Wait for the answer; raises as `Sink.send`."""
        await self._answered.wait()
        if self._error is not None:
            raise self._error
        return self.results

    def call_off(self) -> None:
        """Take the batch back, if its transaction was not begun."""
        with self._lock:
            if not self._begun:
                self._called_off = True
                self.over.set()

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
        if not self._answered.is_set:
            self._error = error
            self._answered.set()

    def end(self, error: SinkError | None = None) -> None:
        """The transaction is decided: committed, or, with an error, aborted."""
        if error is not None:
            self.tell(error)
        self.over.set()
        self._answered.set()

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
                producer.poll(_FULL)
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
