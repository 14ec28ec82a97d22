"""Records to Kafka in transactions: a producer per partition of the outbox, fenced by its id.

Readers at `read_committed` see each record once, whatever is killed, because of three things:

- The transactional id names the number of partitions and the partition, and each term calls
  `init_transactions` before its first mark: with its own id, and with the ids of earlier terms that had
  records of its partition when there were more partitions, or fewer. That ends what an earlier leader began,
  and the broker refuses its later records. A deposed leader could be late with its own call, and fence its
  successor; so the right to send is looked at again after the call.
- Each transaction also commits, as the offset of a consumer group of the same name, which records it has: the
*receipt*. When a term begins, it reads the last receipt of each of these ids. These records are purged before
  the first mark, and not sent again; nor are older ones that they replaced, which would be the newest at a
  reader then. A database that was restored from a backup, or a standby that lost commits, may give the same
  ids to other records. So the receipt of a term that the database does not know does not count, and another
  receipt counts only for records that were written before the term was over, and no later than the youngest
  record of the receipt: a standby may be promoted long before the terms of its primary are over.
- A receipt also has the records of earlier transactions that are not purged yet, or not on the disk. If that
  is too much for a receipt, the commit waits for the purge.

librdkafka's calls block, so they are made in a thread. Chunks that wait go into one transaction together.
One of the calls ignores its time-out, and after an outage may never return (librdkafka's issue 5456). Then
`check` raises, which ends the term; the next one takes the transactional id with a new producer, and the
broker refuses whatever the thread comes back to.
"""

from __future__ import annotations

import asyncio
import base64
import threading
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from pytube.errors import BrokerUnavailable
from pytube.faults import Point, fault_in_thread
from pytube.kafka.clients import Producers
from pytube.kafka.errors import PASSING
from pytube.outbox.messages import OVERDUE, UNSENT, Handed, Origin, failure_of, unsendable
from pytube.outbox.partitions import Widths
from pytube.outbox.records import Chunk, EarlierTerm, Failure, Fault, Sent
from pytube.threads import in_thread

_STEP = 1.0
"""Seconds that one try of a commit lasts at most."""

_LONGEST_RECEIPT = 4000
"""Characters; a broker takes 4096 with the offset of a group, unless it is configured otherwise."""

_MOST = 4000
"""Records in a transaction."""

_EPOCH_SHIFT = 28
"""The offset of a receipt is the epoch of its term, and the number of the transaction in these bits."""

_ALL_IDS = 1 << 64

_SOME_TIME = 1795253820.123456
"""As long as any, as a text."""

_offset = attrgetter("offset")

_NOT_READY = PASSING | {KafkaError.UNSTABLE_OFFSET_COMMIT}

_NOT_GIVEN = frozenset({KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT})  # noqa: SLF001
"""How it ends to ask for the offsets of a group that the broker holds back."""

_PATIENCE = 2.0
"""Times its time-out that a call of librdkafka may take before the producer is given up."""

_PAUSE = 0.05
"""Seconds between attempts to read a receipt while the coordinator of the group is not ready."""


# --- receipts -----------------------------------------------------------------------------------


def write_receipt(ids: Sequence[int], until: float) -> str:
    """The ids, and when the youngest of the records was written, as a short text.

    Ids below 0 count as 64 bits without a sign.
    """
    steps, last = bytearray(), 0
    for number in sorted(number % _ALL_IDS for number in ids):
        step, last = number - last, number
        while step > 127:
            steps.append(step & 127 | 128)
            step >>= 7
        steps.append(step)
    return f"{until!r} {base64.b85encode(zlib.compress(bytes(steps))).decode()}"


def read_receipt(text: str) -> tuple[frozenset[int], float]:
    """What `write_receipt` was given.

    Raises:
        ValueError: it was not written by `write_receipt`.
    """
    until, _, packed = text.partition(" ")
    try:
        steps = zlib.decompress(base64.b85decode(packed))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    ids, number, shift, step = set(), 0, 0, 0
    for byte in steps:
        step |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            number += step
            ids.add(number if number < _ALL_IDS // 2 else number - _ALL_IDS)
            shift = step = 0
    return frozenset(ids), float(until)


def fitting(chunks: Sequence[Chunk]) -> int:
    """How many of the chunks, at least one, go into one transaction."""
    ids: list[int] = []
    for count, chunk in enumerate(chunks):
        ids += chunk.done()
        if count and (len(ids) > _MOST or len(write_receipt(ids, _SOME_TIME)) > _LONGEST_RECEIPT):
            return count
    return len(chunks)


# --- the producer -------------------------------------------------------------------------------


class _Taken(NamedTuple):
    """A transactional id that was taken."""

    producer: Producer
    group: object
    """Its metadata, as librdkafka wants it."""
    receipt: TopicPartition | None
    """The last one."""


class TransactionalProducer:
    """Records of one term, in transactions. See `pytube.outbox.records.Outgoing`."""

    needs_poll = False

    def __init__(
        self,
        clients: Producers,
        prefix: str,
        partitions: int,
        partition: int,
        epoch: int,
        *,
        may_send: Callable[[], bool],
        on_settled: Callable[[], None],
    ) -> None:
        """Opens nothing. `may_send` is called in the thread, `on_settled` in the event loop.

        `prefix`: of transactional ids, which are also names of the groups that have the receipts.
        """
        self._clients = clients
        self._prefix = prefix
        self._id = self._name(partitions, partition)
        self._origin = Origin(b"", b"%d" % epoch)
        self._next_offset = epoch << _EPOCH_SHIFT
        self._may_send = may_send
        self._on_settled = on_settled
        self._loop = asyncio.get_running_loop()
        self._widths = Widths()
        self._producer: Producer | None = None
        self._group: object = None
        self._changed = threading.Condition()
        self._waiting: list[Chunk] = []
        self._under_way = 0
        self._settled: list[tuple[Chunk, Mapping[int, Failure]]] = []
        self._given = 0
        """How many chunks `settled` has given."""
        self._unpurged: list[tuple[int, list[int], float]] = []
        """Transactions that are committed and not purged: the number of their last chunk, their ids, and when
        the youngest of their records was written."""
        self._suspects: set[str] = set()
        """Topics one of which has failed a transaction: each goes alone until it succeeds."""
        self._stopped = False
        self._has_failed = False
        """Whether a transaction has failed that `settled` has not returned yet."""
        self._last_receipt = 0
        self._commits = False
        """Whether the commit of the transaction under way has begun."""
        self.answer_due: float | None = None
        """When librdkafka has to have returned from the call that the thread is in; None: from none."""
        self.why_stuck: str | None = None
        """Why what became of chunks can't be learned now; None: it can."""

    # --- for the event loop -------------------------------------------------------------------

    async def open(self, earlier: Sequence[EarlierTerm], outbox: str) -> Sequence[Sent]:
        """Take the transactional ids of this term and of earlier ones; what those have sent last.

        Raises:
            BrokerUnavailable: no broker answers, or it refuses us, or has a receipt that can't be read.
        """
        self._origin = self._origin._replace(outbox=outbox.encode())
        self.answer_due = None  # the thread of an attempt that was given up may hang on
        is_given_up = threading.Event()
        taking = asyncio.create_task(in_thread(self._take_over, earlier, is_given_up))
        try:
            while not (await asyncio.wait([taking], timeout=self._clients.timeout))[0]:
                self.check()
            sent = taking.result()
        except KafkaException as error:
            raise BrokerUnavailable(f"Kafka: {self._clients.say(error.args[0])}") from None
        finally:
            is_given_up.set()
            taking.cancel()
        threading.Thread(target=self._run, name=f"kafka-{self._id}", daemon=True).start()
        return sent

    def send(self, chunk: Chunk) -> None:
        """Put a chunk into the next transaction; the caller has looked whether it may send."""
        with self._changed:
            if self._has_failed:  # what follows must not overtake what failed
                self._settled.append((chunk, _all([chunk], UNSENT)))
            else:
                self._waiting.append(chunk)
            self._changed.notify_all()

    def settled(self) -> list[tuple[Chunk, Mapping[int, Failure]]]:
        """Chunks that are decided since the last call, and what of them failed, by id."""
        with self._changed:
            settled, self._settled = self._settled, []
            self._given += len(settled)
            self._has_failed = False
        return settled

    def check(self) -> None:
        """Raise `BrokerUnavailable` when librdkafka hangs."""
        due = self.answer_due
        if due is not None and time.monotonic() > due:
            raise BrokerUnavailable("Kafka: librdkafka does not return from send_offsets_to_transaction")

    def confirm_purged(self, chunks: int, left: Collection[int] = ()) -> None:
        """So many chunks, the first of `settled`'s, are purged except `left`, on the disk too."""
        with self._changed:
            self._unpurged = [
                (last, stay, until)
                for last, ids, until in self._unpurged
                if (stay := ids if last > chunks else [number for number in ids if number in left])
            ]
            self._changed.notify_all()

    @property
    def is_busy(self) -> bool:
        """Whether chunks are under way."""
        with self._changed:
            return bool(self._waiting or self._under_way or self._settled)

    @property
    def has_room(self) -> bool:
        """Whether a chunk may be handed over: more than two transactions are not held."""
        with self._changed:
            return sum(chunk.size for chunk in self._waiting) < _MOST

    def stop_sending(self) -> None:
        """Begin no more transactions; the one under way is aborted, unless its commit has begun."""
        with self._changed:
            self._stopped = True
            self._fail_waiting()
            self._changed.notify_all()

    stop = stop_sending

    def _fail_waiting(self) -> None:
        self._settled += [(chunk, _all([chunk], UNSENT)) for chunk in self._waiting]
        self._waiting.clear()

    # --- for the thread -----------------------------------------------------------------------

    def _name(self, partitions: int, partition: int) -> str:
        """The transactional id of a partition."""
        return f"{self._prefix}{partitions}.{partition}"

    def _take_over(self, earlier: Sequence[EarlierTerm], is_given_up: threading.Event) -> Sequence[Sent]:
        """End the transactions of earlier terms, and take this term's id; what those have sent last."""
        try:
            return self._take_all(earlier, is_given_up)
        except (KafkaException, BrokerUnavailable) as raised:
            error = raised.with_traceback(None)
            error.__context__ = None
        # Without the frames, which have producers: these end here. See `pytube.kafka.clients.destroy`.
        raise error

    def _take_all(self, earlier: Sequence[EarlierTerm], is_given_up: threading.Event) -> Sequence[Sent]:
        terms = {(self._name(one.partitions, one.partition), one.epoch): one for one in earlier}
        names = {name for name, _ in terms} - {self._id}
        sent: list[Sent] = []
        for name in (*names, self._id):
            if is_given_up.is_set():  # by now the ids may be a successor's
                break
            taken = self._take(name)
            receipt = taken.receipt
            if receipt is not None and (term := terms.get((name, receipt.offset >> _EPOCH_SHIFT))):
                sent.append(_sent(name, receipt, term))
            if name == self._id and not is_given_up.is_set():
                self._use(taken)
        return sent

    def _use(self, own: _Taken) -> None:
        self._producer, self._group = own.producer, own.group
        self._last_receipt = 0 if own.receipt is None else own.receipt.offset

    def _take(self, name: str) -> _Taken:
        """Take a transactional id, which ends its last transaction; raises `KafkaException`."""
        producer = self._clients.producer(name)
        producer.init_transactions(self._clients.timeout)
        consumer = self._clients.reader(name)
        try:
            group = consumer.consumer_group_metadata()
            topics = list(consumer.list_topics(timeout=self._clients.timeout).topics)
            try:
                offsets = self._ask_offsets(consumer, topics)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_GIVEN or not topics:
                    raise
                self._undo_pending(producer, group, topics)
                offsets = self._ask_offsets(consumer, topics)
        finally:
            consumer.close()
        receipts = [one for one in offsets if one.metadata]
        return _Taken(producer, group, max(receipts, key=_offset, default=None))

    def _undo_pending(self, producer: Producer, group: object, topics: Sequence[str]) -> None:
        """Have the broker give up an offset of the group that it holds as pending.

        No transaction of the id is open any more, but a broker that has crashed, or has taken a request late,
        may wait for the end of one for ever, and give no offsets meanwhile. The end of any later transaction
        that names the group undoes that; this one is aborted.
        """
        producer.begin_transaction()
        try:
            self._send_offset(producer, group, TopicPartition(topics[0], 0, 0, "-"))
        finally:
            producer.abort_transaction(self._clients.timeout)

    def _ask_offsets(self, consumer: Consumer, topics: Sequence[str]) -> list[TopicPartition]:
        """The offsets of the group. For a consumer, librdkafka asks for ones that no transaction can alter.

        Not by `list_consumer_group_offsets`: where the coordinator has just moved or restarted, librdkafka
        2.16 takes the answer for that of a consumer, and ends the process (SIGSEGV in rd_kafka_cgrp_op).
        """
        timeout = self._clients.timeout
        deadline = time.monotonic() + timeout
        while True:
            try:
                found = consumer.committed([TopicPartition(topic, 0) for topic in topics], timeout)
                for one in found:
                    if one.error is not None:  # or an offset that is not known would look like none
                        raise KafkaException(one.error)
                return found
            except KafkaException as error:
                if error.args[0].code() not in _NOT_READY or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)

    def _run(self) -> None:
        while chunks := self._next():
            try:
                outcome = self._transact(chunks)
            except Exception as error:  # noqa: BLE001 # answered; the thread lives on for the next chunks
                self._producer = None  # the next one of this id aborts its transaction
                outcome = self._after(chunks, error)
            if outcome is None:
                break
            self._decide(chunks, outcome)
        self._producer = None  # see `pytube.kafka.clients.destroy`; this is its thread

    def _after(self, chunks: Sequence[Chunk], error: Exception) -> dict[int, Failure] | None:
        """What became of a transaction that an error has ended."""
        if self._commits and not isinstance(error, KafkaException):  # of those, all that are left undo it
            self.why_stuck = self._failure(error).reason
            return self._learn_fate(chunks)
        return self._suspect(chunks, error)

    def _failure(self, error: Exception) -> Failure:
        if isinstance(error, KafkaException):
            return failure_of(error.args[0], self._clients.say)
        return Failure(Fault.TOPIC, f"{type(error).__name__}: {error}")

    def _next(self) -> list[Chunk]:
        """The chunks of the next transaction; none when it is stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopped)
            if self._stopped:
                return []
            count = fitting(self._apart())
            chunks, self._waiting = self._waiting[:count], self._waiting[count:]
            self._under_way = len(chunks)
        return chunks

    def _apart(self) -> Sequence[Chunk]:
        """The first chunks that may go into one transaction: of a topic in doubt, no others with it."""
        first = self._waiting[0].topic
        others = (index for index, chunk in enumerate(self._waiting) if self._is_apart(first, chunk.topic))
        return self._waiting[: next(others, None)]

    def _is_apart(self, first: str, topic: str) -> bool:
        return topic != first and (first in self._suspects or topic in self._suspects)

    def _decide(self, chunks: Sequence[Chunk], outcome: Mapping[int, Failure]) -> None:
        with self._changed:
            self._under_way = 0
            for chunk in chunks:
                known = (record.id for record in chunk.records() if record.id in outcome)
                self._settled.append((chunk, {number: outcome[number] for number in known}))
            if outcome:
                self._has_failed = True
                self._fail_waiting()
            else:
                self._unpurged.append((self._given + len(self._settled), *_done(chunks)))
                self._suspects -= {chunk.topic for chunk in chunks}
        self._loop.call_soon_threadsafe(self._on_settled)

    def _transact(self, chunks: Sequence[Chunk]) -> dict[int, Failure] | None:
        """One transaction; the records not committed, by id: all or none. None: the outcome is unknown."""
        self._commits = False
        failures: dict[int, Failure] = {}
        for chunk in chunks:
            failures |= unsendable(chunk, self._clients.largest)
        if failures or not self._may_send():
            return _all(chunks, UNSENT) | failures
        if self._producer is None:
            self._use(self._take(self._id))
        producer = self._producer
        assert producer is not None
        for chunk in chunks:
            if self._widths.get(chunk.topic) is None and any(one.is_apart for one in chunk.records()):
                self._widths.learn(chunk.topic, producer)
        if not self._may_send():  # a successor may have taken the id, before or after
            return _all(chunks, UNSENT)
        producer.begin_transaction()
        failures = self._write(producer, chunks)
        if failures and all(failure is UNSENT for failure in failures.values()):
            failures = self._ask_why(producer, chunks) or failures
        receipt = None if failures else self._wait_for_receipt(chunks)
        if receipt is None:
            self._abort(producer)
            return _all(chunks, UNSENT) | failures
        self._next_offset += 1
        offset = TopicPartition(chunks[0].topic, 0, self._next_offset, receipt)
        self._send_offset(producer, self._group, offset)
        fault_in_thread(Point.BEFORE_COMMIT, self._loop)
        self._commits = True
        outcome = self._commit(producer, chunks)
        fault_in_thread(Point.AFTER_COMMIT, self._loop)
        return outcome

    def _ask_why(self, producer: Producer, chunks: Sequence[Chunk]) -> dict[int, Failure]:
        """Why a transaction failed whose records were dropped before they were sent: the next call shows it.

        This happens when the broker refuses this principal's records for a topic. Which one, it does not say.
        """
        try:
            # To be aborted.
            self._send_offset(producer, self._group, TopicPartition(chunks[0].topic, 0, 0, "-"))
        except KafkaException as error:
            return self._suspect(chunks, error)
        return {}

    def _suspect(self, chunks: Sequence[Chunk], error: Exception) -> dict[int, Failure]:
        """What an error of a whole transaction means: of one topic that it failed, of several that each is to
        go alone.
        """
        names = {chunk.topic for chunk in chunks}
        self._suspects |= names
        return _all(chunks, self._failure(error) if len(names) == 1 else UNSENT)

    def _abort(self, producer: Producer) -> None:
        """End a transaction without a trace. Why records of it failed is known, whatever becomes of that."""
        try:
            producer.abort_transaction(self._clients.timeout)
        except KafkaException:
            self._producer = None  # the next one of this id aborts its transaction

    def _send_offset(self, producer: Producer, group: object, offset: TopicPartition) -> None:
        due = self.answer_due = time.monotonic() + _PATIENCE * self._clients.timeout
        self._loop.call_soon_threadsafe(self._on_settled)  # for the worker to look when that is over
        try:
            producer.send_offsets_to_transaction([offset], group, self._clients.timeout)
        finally:
            if self.answer_due == due:  # else that of another attempt
                self.answer_due = None

    def _write(self, producer: Producer, chunks: Sequence[Chunk]) -> dict[int, Failure]:
        handed = [Handed(chunk, time.monotonic()) for chunk in chunks]
        failures: dict[int, Failure] = {}
        for one in handed:
            one.produce([producer], self._origin, self._widths, self._clients)
            if one.failures:
                break
        producer.flush(self._clients.timeout)
        for one in handed:
            failures |= one.outcome(self._clients.say)
        if not all(one.is_written for one in handed):
            self._producer = None  # librdkafka fails its next transaction, too: sequence numbers are missing
        if not all(one.is_over for one in handed):
            failures = _all(chunks, OVERDUE) | failures
        return failures

    def _wait_for_receipt(self, chunks: Sequence[Chunk]) -> str | None:
        """What the transaction is to leave behind; None: it is stopped while it waits for purges."""
        ids, until = _done(chunks)
        with self._changed:
            while not self._stopped:
                receipt = write_receipt(
                    [*ids, *(number for _, before, _ in self._unpurged for number in before)],
                    max((until, *(before for _, _, before in self._unpurged))),
                )
                if len(receipt) <= _LONGEST_RECEIPT or not self._unpurged:
                    return receipt
                self._changed.wait()
        return None

    def _commit(self, producer: Producer, chunks: Sequence[Chunk]) -> dict[int, Failure] | None:
        while not self._stopped:
            try:
                producer.commit_transaction(_STEP)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                self.why_stuck = f"commit: {self._clients.say(error)}"
                if error.txn_requires_abort():
                    raise
                if not error.retriable():
                    return self._learn_fate(chunks)
            else:
                self.why_stuck = None
                return {}
        return None

    def _learn_fate(self, chunks: Sequence[Chunk]) -> dict[int, Failure] | None:
        """Whether a commit of which the answer is not known took place: its receipt is there, or is not."""
        failure = Failure(Fault.UNANSWERED, self.why_stuck or "")
        while not self._stopped:
            # Without the right to send, the id may be a successor's by now, and is not to be taken from it.
            if self._may_send():
                try:
                    self._use(self._take(self._id))
                except Exception as error:  # noqa: BLE001 # to send again would be wrong, whatever it is
                    self.why_stuck = self._failure(error).reason
                else:
                    self.why_stuck = None
                    return {} if self._last_receipt == self._next_offset else _all(chunks, failure)
            with self._changed:
                self._changed.wait_for(lambda: self._stopped, _STEP)
        return None


def _all(chunks: Sequence[Chunk], failure: Failure) -> dict[int, Failure]:
    return {record.id: failure for chunk in chunks for record in chunk.records()}


def _sent(group: str, receipt: TopicPartition, term: EarlierTerm) -> Sent:
    """What a term has sent last, by its receipt."""
    try:
        ids, until = read_receipt(receipt.metadata or "")
    except ValueError as error:
        raise BrokerUnavailable(
            f"Kafka: the metadata committed in the group {group} is not a receipt ({error});"
            " delete the group: the records of the last transaction are then sent again"
        ) from None
    return Sent(ids, min(until, term.until))


def _done(chunks: Sequence[Chunk]) -> tuple[list[int], float]:
    """The ids of all records that are done with these, and when the youngest of them was written."""
    ids = [number for chunk in chunks for number in chunk.done()]
    return ids, max(chunk.written_until() for chunk in chunks)
