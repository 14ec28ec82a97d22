"""Records to Kafka without transactions, by idempotent producers.

In windowed mode many records of a key are under way, and none may be written after a lost one: consumers that
drop the records they have seen would be left with an old value. librdkafka promises that with
`enable.gapless.guarantee`, except for records that time out. So they never time out there: overdue records
are given up here, with all records of the producer at once. A producer that fails is replaced. Its records
on the wire may still be written, among its successor's records. These are repeats, and no first
occurrence is out of order, as the broker takes the records of each producer in their order.

Topics in doubt, with one record of a key under way at a time, have a separate producer, so that
their failures cost the others nothing. In strict mode all topics have two such producers: each has one
request in flight (`pytube.kafka.clients.IDEMPOTENT`), and a request has records of one partition, so with one
producer the records of a step would wait for each other's partitions. A key has always the same one, so that
no attempt that was given up comes after the next.

The event loop asks for reports now and then: much comes with each look where much is under way, and no thread
competes with the event loop for the interpreter. In strict order each key waits for its report, and with few
keys the worker waits for it, too. So threads wait within librdkafka there, and have the event loop woken when
a chunk is decided. A timer of the event loop would wake it for each look, and a millisecond late.

Everything else is called in the event loop, and does not block.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import KafkaException, Producer

from pytube.kafka.clients import Producers, destroy, purge
from pytube.outbox.messages import UNSENT, Handed, Origin, failure_of, unsendable
from pytube.outbox.partitions import Widths
from pytube.outbox.records import Chunk, EarlierTerm, Failure, Sent
from pytube.threads import in_thread

REPORT_DELAY = 1.0
"""Seconds: librdkafka looks once a second for records whose time is over."""

_HURRY = 1.0
"""Seconds for which an answer is of use: by then librdkafka has looked on its own."""

_WATCH = 1.0
"""Seconds for which a thread waits within librdkafka at most; then it looks whether the lane is closed."""


class _Lane:
    """Producers, and the chunks that were handed to them."""

    def __init__(self, producers: Sequence[Producer], on_decided: Callable[[], None] | None = None) -> None:
        """`on_decided`: threads receive the reports, until `close`, and call it in the event loop for those
        that decide a chunk; None: reports come with `decided`.
        """
        self.producers = producers
        self.handed: dict[Handed, None] = {}
        self.is_broken = False
        self._is_hurried = False
        self._is_watched = on_decided is not None
        self._has_failed = False
        """Whether a producer has failed; the reports of its chunks come anyway."""
        self._closed = threading.Event()
        if on_decided is not None:
            self._start(self._watch, on_decided, asyncio.get_running_loop())

    def _start(self, function: Callable[..., None], *arguments: object) -> None:
        """Have a thread for each producer call a function that blocks."""
        for producer in self.producers:
            threading.Thread(
                target=function, args=(producer, *arguments), name="outbox-kafka", daemon=True
            ).start()

    def hurry(self, topic: str) -> None:
        """Have new producers get their ids as soon as a broker is connected, on which the first chunk waits.

        librdkafka looks for a broker to ask once its metadata come, else every half second. The first
        metadata come by the bootstrap connection, which is closed then, so they are asked for twice.
        """
        if not self._is_hurried:
            self._is_hurried = True
            self._start(_ask_twice, topic)

    def give_up(self) -> None:
        """Drop all that is under way; its reports come later."""
        self.is_broken = True
        for producer in self.producers:
            purge(producer)

    def close(self) -> None:
        """Nothing is handed over any more, and no caller asks for reports: the producers end."""
        self._closed.set()
        destroy(self.producers)
        self.producers = ()

    def decided(self) -> list[Handed]:
        """The chunks of which all reports have come since the last call."""
        if not self._is_watched:
            for producer in self.producers:
                self._poll(producer, 0)
        over = [handed for handed in self.handed if handed.is_over]
        for handed in over:
            del self.handed[handed]
        if not self.is_broken and (self._has_failed or any(handed.is_broken for handed in over)):
            self.give_up()
        return over

    def _poll(self, producer: Producer, seconds: float) -> None:
        try:
            producer.poll(seconds)
        except KafkaException:  # a fatal one
            self._has_failed = True

    def _watch(
        self, producer: Producer, on_decided: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        while not self._closed.is_set():
            pause = 0.0
            try:
                self._poll(producer, _WATCH)
            except Exception:  # noqa: BLE001 - without the thread a chunk would never be decided
                self._has_failed = True
                pause = _WATCH  # the next call may do the same
            if self._has_failed or any(handed.is_over for handed in tuple(self.handed)):
                with suppress(RuntimeError):  # the loop may be closed by now
                    loop.call_soon_threadsafe(on_decided)
            if pause:
                self._closed.wait(pause)


def _ask_twice(producer: Producer, topic: str) -> None:
    """The records' reports show that no answer comes."""
    with suppress(KafkaException):
        producer.list_topics(topic, timeout=_HURRY)
        producer.list_topics(topic, timeout=_HURRY)


class PlainProducer:
    """Records of one term, without transactions. See `pytube.outbox.records.Outgoing`."""

    why_stuck = None
    answer_due = None

    def __init__(
        self, clients: Producers, epoch: int, *, strict: bool, on_settled: Callable[[], None] = lambda: None
    ) -> None:
        """Opens nothing.

        Args:
            clients: makes producers.
            epoch: of the term.
            strict: whether one record of a key is under way at a time.
            on_settled: is called in the event loop when `settled` has results.
        """
        self._clients = clients
        self._largest = clients.largest
        self._origin = Origin(b"", b"%d" % epoch)
        self._strict = strict
        self._on_settled = on_settled
        self._gapless: _Lane | None = None
        self._careful: _Lane | None = None
        self._leaving: list[_Lane] = []
        """Lanes that are broken, and of which reports are still to come."""
        self._widths = Widths()
        self._learning: dict[str, tuple[asyncio.Task[None], list[Chunk]]] = {}
        """Chunks that wait until the partitions of their topic are known, by topic."""
        self._refused: list[Handed] = []
        """Chunks of which nothing is under way."""
        self._cut_short: Handed | None = None
        """A chunk that was not taken as a whole; until the caller knows, nothing may overtake the rest."""

    async def open(self, earlier: Sequence[EarlierTerm], outbox: str) -> Sequence[Sent]:  # noqa: ARG002
        """Connect, ahead of the first chunk, from which is learned whether a broker is there."""
        self._origin = self._origin._replace(outbox=outbox.encode())
        self._lane(careful=self._strict)
        return ()

    def confirm_purged(self, chunks: int, left: Collection[int] = ()) -> None:
        """It makes no difference."""

    def check(self) -> None:
        """No call blocks."""

    # --- to Kafka -------------------------------------------------------------------------

    def send(self, chunk: Chunk) -> None:
        """Hand a chunk over; the caller has looked whether it may send."""
        handed = Handed(chunk, time.monotonic())
        handed.failures = unsendable(chunk, self._largest)
        if handed.failures:
            self._cut_short = handed
            self._refused.append(handed)
            self._on_settled()
            return
        if self._waits(chunk):
            return
        lane = self._lane(careful=chunk.careful or self._strict)
        is_alone = not lane.handed
        lane.handed[handed] = None
        handed.produce(lane.producers, self._origin, self._widths, self._clients)
        if handed.failures:
            self._cut_short = handed
        if handed.is_broken:
            if not is_alone:  # the others report the failure; this chunk had no part in it
                handed.failures = dict.fromkeys(handed.failures, UNSENT)
            lane.give_up()
        if handed.is_over:
            self._on_settled()
        else:
            lane.hurry(chunk.topic)

    def _waits(self, chunk: Chunk) -> bool:
        """Whether the chunk has to wait until the partitions of its topic are known, which is asked then.

        Chunks of the topic that come meanwhile wait behind it.
        """
        topic = chunk.topic
        if topic in self._learning:
            self._learning[topic][1].append(chunk)
            return True
        if self._widths.get(topic) is None and any(one.is_apart for one in chunk.records()):
            producer = self._lane(careful=True).producers[0]
            task = asyncio.create_task(in_thread(self._widths.learn, topic, producer))
            task.add_done_callback(lambda _: self._on_settled())
            self._learning[topic] = task, [chunk]
            return True
        return False

    def _lane(self, *, careful: bool) -> _Lane:
        if careful:
            if self._careful is None:
                make = self._clients.producer
                self._careful = (
                    _Lane((make(), make()), self._on_settled) if self._strict else _Lane((make(),))
                )
            return self._careful
        if self._gapless is None:
            settings: dict[str, object] = {"message.timeout.ms": 0}  # never
            if self._clients.settings["enable.idempotence"]:
                settings["enable.gapless.guarantee"] = True
            self._gapless = _Lane((self._clients.producer(settings=settings),))
        return self._gapless

    @property
    def has_room(self) -> bool:
        """Whether a chunk may be handed over: not while a lane that broke may still write its records."""
        return self._cut_short is None and not any(lane.is_broken for lane in self._lanes())

    @property
    def needs_poll(self) -> bool:
        """Whether outcomes are only seen by `settled`; else `on_settled` is called."""
        return not self._strict

    @property
    def is_busy(self) -> bool:
        """Whether chunks are under way."""
        return bool(self._refused or self._learning or any(lane.handed for lane in self._lanes()))

    # --- outcomes ------------------------------------------------------------------

    def _lanes(self) -> list[_Lane]:
        return [*self._leaving, *(lane for lane in (self._gapless, self._careful) if lane is not None)]

    def settled(self) -> list[tuple[Chunk, Mapping[int, Failure]]]:
        """Chunks that are decided since the last call, and what of them failed, by id."""
        over, self._refused = self._refused, []
        for lane in self._lanes():
            over += lane.decided()
        self._give_up_overdue()
        self._replace_broken()
        if self._cut_short in over:
            self._cut_short = None
        return [
            *((handed.chunk, handed.outcome(self._clients.say)) for handed in over),
            *self._learned(),
        ]

    def _give_up_overdue(self) -> None:
        """Give the gapless lane up when an answer is overdue."""
        lane = self._gapless
        if lane is None or not lane.handed or lane.is_broken:
            return
        limit = time.monotonic() - self._clients.timeout + REPORT_DELAY
        if next(iter(lane.handed)).at < limit:
            for handed in lane.handed:
                handed.overdue = handed.at < limit
            lane.give_up()

    def _replace_broken(self) -> None:
        if self._gapless is not None and self._gapless.is_broken:
            self._leaving.append(self._gapless)
            self._gapless = None
        if self._careful is not None and self._careful.is_broken:
            self._leaving.append(self._careful)
            self._careful = None
        for lane in self._leaving:
            if not lane.handed:
                lane.close()
        self._leaving = [lane for lane in self._leaving if lane.handed]

    def _learned(self) -> list[tuple[Chunk, Mapping[int, Failure]]]:
        """Chunks that waited for the partitions of their topic: they come again, and know them then."""
        found: list[tuple[Chunk, Mapping[int, Failure]]] = []
        for topic in [topic for topic, (task, _) in self._learning.items() if task.done()]:
            task, chunks = self._learning.pop(topic)
            failure = UNSENT
            try:
                task.result()
            except KafkaException as error:
                failure = failure_of(error.args[0], self._clients.say)
            for chunk in chunks:
                found.append((chunk, dict.fromkeys((one.id for one in chunk.records()), failure)))  # noqa: PERF401 # clearer
        return found

    def stop_sending(self) -> None:
        """Send nothing that is not on its way yet."""
        for lane in self._lanes():
            for producer in lane.producers:
                purge(producer, in_flight=False)

    def stop(self) -> None:
        """Give up unanswered records, too: they may still be written."""
        for lane in self._lanes():
            lane.give_up()
            lane.close()
        for task, _ in self._learning.values():
            task.cancel()
