"""The worker of one partition of an outbox, for one term: mark, send, purge, in rounds, until its end.

As with tubes (`partition_worker.py`), it does not decide who leads. In each round it handles what has come
since the last one (the end of the term, chunks that Kafka has decided, marked records), and begins what
there is to do. If the process is killed between any two steps, records stay marked but not purged, and the
next term takes them over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytube.errors import BrokerUnavailable
from pytube.events import Event, MeterRead, RecordParked, SinkDown, SinkUp, TopicDown, TopicUp
from pytube.faults import Point, fault
from pytube.model import PodClass
from pytube.outbox.inflight import InFlight, Rules
from pytube.outbox.outgoing import Outgoing
from pytube.outbox.records import Chunk, Failure, Fault, Letter, Record
from pytube.outbox.source import OutboxSource
from pytube.pipeline.batches import HighAverage
from pytube.sources.terms import Candidate
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.exchange import Exchange
from pytube.worker.limits import TermLimits
from pytube.worker.metrics import Meter, TubeMetrics
from pytube.worker.poller import Poller

_CHUNKS_AT_ONCE = 4
"""Chunks that are handed over before the event loop has its turn."""
_CAUTIOUS = 100
"""Records of the first mark, when it is not known yet how large they are."""
_OPEN_PAUSE = 0.5
"""Seconds between tries to begin while no broker answers; each try has its own time limit, too."""
_FIRST_LOOK = 0.0002
_LONGEST_LOOK = 0.004
"""Seconds between looks for reports of librdkafka, while there is nothing else to do; doubled with each."""
_RECORDS = PodClass.INCREMENTAL
"""Records are counted as incremental pods are."""


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """What one partition keeps to; see `OutboxConfig`."""

    in_flight: int
    in_flight_bytes: int
    mark_limit: int
    drain: TermLimits
    hold: bool


class Means(Protocol):
    """What the partitions of an outbox share, and each of its workers uses."""

    candidate: Candidate
    outbox_limits: OutboxLimits
    rules: Rules
    metrics: TubeMetrics

    @property
    def emit(self) -> Callable[[Event], None]:
        """Receives events."""

    def outgoing(self, active_term: ActiveTerm) -> Outgoing:
        """The way of one term's records to Kafka."""


class OutboxWorker:
    """Delivers the records of one partition under one term."""

    def __init__(self, active_term: ActiveTerm, outbox: Means, database: Database) -> None:
        """Starts nothing.

        Args:
            active_term: the term, and what happens to it.
            outbox: rules, limits and clients.
            database: where the records are.
        """
        term = active_term.term
        self.machine = InFlight(outbox.rules)
        self.counters = outbox.metrics.partition(term.partition)
        self.meter = Meter(term.tube, term.partition, self.counters)
        self._metrics = outbox.metrics
        self._active_term = active_term
        self._where = term.tube, term.partition
        self._client_id = outbox.candidate.client_id
        self._limits = outbox.outbox_limits
        self._emit = outbox.emit
        self._database = database
        self._source = OutboxSource(database.pool, term)
        self._poller = Poller(database.pool, active_term)
        self._outgoing = outbox.outgoing(active_term)
        self._begun: dict[Chunk, float] = {}
        """When each chunk was handed over."""
        self._done: dict[int, float] = {}
        """Records to be purged: when each was written, by id."""
        self._settled_chunks = 0
        self._settled_at_exchange = 0
        """How many of them when the last exchange began: it purges what came of them."""
        self._exchange = Exchange[Record](
            active_term.attention,
            purge=self._source.purge,
            mark=self._mark,
            on_purged=self._on_purged,
            on_marked=self._on_marked,
        )
        self._reserved = 0
        """Records that were marked and are not in the machine yet."""
        self._bytes_per_record: HighAverage | None = None
        self._mark_covers_refusals = False
        """Whether the mark under way began after all that the machine has had refused."""
        self._look = _FIRST_LOOK
        self._acknowledged_at = float("-inf")

    # --- life -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until the claim is revoked or the partition is paused.

        Raises:
            NotLeader: the term is over.
            DatabaseUnavailable: a session was lost.
            BrokerUnavailable: librdkafka hangs.
        """
        await self._source.load()
        if not await self._open():
            return
        try:
            while self._active_term.goes_on():
                await self._round()
            if self._active_term.is_revoked:
                await fault(Point.ON_REVOKE)
            self._hold(self._resume_refused(await self._exchange.finish()))  # for `drain` to give back
        finally:
            await self._exchange.cancel()

    async def _open(self) -> bool:
        """Begin the way to Kafka; whether it has begun when the claim is revoked, or the partition paused.

        The term goes on while no broker answers: its renewals tell everybody why nothing is sent.
        """
        has_failed = False
        while self._active_term.goes_on():
            self._active_term.check_trust()
            try:
                earlier = await self._outgoing.open(self._source.earlier)
            except BrokerUnavailable as error:
                has_failed = True
                self._note_down(str(error))
                await asyncio.sleep(_OPEN_PAUSE)
            else:
                for sent in earlier:
                    await self._source.purge_sent(sent)
                if has_failed:  # else nobody may have been asked yet
                    self._note_up()
                return True
        return False

    async def _round(self) -> None:
        self._active_term.check_trust()
        self._outgoing.check()
        busy = self._take_settled()
        records = self._resume_refused(self._exchange.take())
        busy |= await self._begin_exchange()  # Postgres works on it while we handle these
        busy |= self._hold(records)
        busy |= await self._launch()
        busy |= await self._park()
        self._tell_of_topics()
        if busy:
            self._look = _FIRST_LOOK
            await asyncio.sleep(0)
        else:
            await self._wait()

    async def _wait(self) -> None:
        moments = (self.machine.next_at(), self._outgoing.answer_due)
        due = min((moment for moment in moments if moment is not None), default=None)
        if self._outgoing.needs_poll and self._outgoing.is_busy:
            look = time.monotonic() + self._look
            due = look if due is None else min(due, look)
            self._look = min(_LONGEST_LOOK, 2 * self._look)
        await self._poller.wait(
            self._database.settled,
            notified=self._database.notifications_work and self._source.wakes,
            idle=not self.machine.held,
            may_poll=not self._exchange.is_under_way and self._may_mark(),
            until=due,
        )

    # --- marks and purges -----------------------------------------------------------------

    def _room(self) -> int:
        """Records that may still be held."""
        limits, average = self._limits, self._bytes_per_record
        held = self.machine.held + self._reserved
        if average is None:
            return _CAUTIOUS - held
        most = min(limits.in_flight, int(limits.in_flight_bytes / max(1.0, average.value)))
        return max(most - held, 0 if held else 1)  # with nothing held there is room for one, however large

    def _may_mark(self) -> bool:
        """Whether there is room for more records, and trust."""
        return self._room() > 0 and self._active_term.is_trusted

    async def _begin_exchange(self) -> bool:
        """Begin to purge what is done and to mark more, unless that is under way; whether it was begun."""
        if self._exchange.is_under_way:
            return False
        self._done |= self.machine.finished()
        done, self._done = self._done, {}
        limit = 0
        # A purge marks, too: that costs little more, and finds what has come since the last mark.
        if (done or self._poller.is_due()) and self._may_mark():
            limit = min(self._limits.mark_limit, self._room())
        if not (done or limit):
            return False
        self._mark_covers_refusals = limit > 0
        self._settled_at_exchange = self._settled_chunks
        await self._exchange.begin(self._exchange.purge_and_mark(done, limit))
        return True

    def _on_purged(self, done: Mapping[int, float]) -> None:
        self._outgoing.confirm_purged(self._settled_at_exchange)
        self.machine.confirm_purged(time.monotonic())
        self.meter.count_purged(done)
        self._active_term.beat(self._client_id, self.meter.purged_seq, self.meter.lag)

    def _on_marked(self, records: Sequence[Record]) -> None:
        self._reserved = len(records)

    async def _mark(self, limit: int, done: Sequence[int]) -> list[Record]:
        settled = self._database.settled
        self._poller.begin_poll(settled)
        records = await self._source.mark(limit, settled, done)
        await self._poller.end_poll(len(records), more=len(records) == limit)
        return records

    def _resume_refused(self, records: Sequence[Record] | None) -> Sequence[Record]:
        """Go on with refused keys once a mark has found all of their records; those still to be held."""
        if records is None:
            return ()
        if self._mark_covers_refusals and self._source.returned_all_retried and self.machine.has_refused:
            self._hold(records)
            self.machine.resume(time.monotonic())
            return ()
        return records

    def _hold(self, records: Sequence[Record]) -> bool:
        """Hold marked records; whether there are any."""
        if not records:
            return False
        self._reserved = 0
        size = sum([len(record.value or b"") for record in records])
        if self._bytes_per_record is None:
            self._bytes_per_record = HighAverage(size / len(records))
        self._bytes_per_record.observe(size, len(records))
        self.counters.touches[_RECORDS] += len(records)
        self.machine.add(records)
        return True

    # --- Kafka ----------------------------------------------------------------------------

    async def _launch(self) -> bool:
        """Hand chunks over while there is room for them; whether any was."""
        launched = False
        for _ in range(_CHUNKS_AT_ONCE):
            if not (self._outgoing.has_room and self._active_term.is_trusted):
                break
            now = time.monotonic()
            chunk = self.machine.take(now)
            if chunk is None:
                break
            await fault(Point.BEFORE_SEND)
            self._begun[chunk] = now
            self._outgoing.send(chunk)
            await fault(Point.AFTER_HANDOVER)
            launched = True
        return launched

    def _take_settled(self) -> bool:
        """Handle chunks that are decided; whether there were any."""
        settled = self._outgoing.settled()
        now = time.monotonic()
        for chunk, failures in settled:
            self.machine.settle(chunk, failures, now)
            begun = self._begun.pop(chunk)
            self._metrics.sends.observe(now - begun)
            self.counters.documents[_RECORDS] += chunk.size - len(failures)
            self.counters.retries[_RECORDS] += len(failures)
            self._note(begun, failures, now)
            if not failures:
                self._note_topic_up(chunk.topic)
        self._settled_chunks += len(settled)
        self.counters.coalesced += self.machine.compacted
        self.machine.compacted = 0
        if self._outgoing.why_stuck is not None:
            self._note_down(self._outgoing.why_stuck)
        return bool(settled)

    def _note(self, begun: float, failures: Mapping[int, Failure], now: float) -> None:
        """Tell once when no broker answers, and when one does again."""
        reason = next((one.reason for one in failures.values() if one.fault is Fault.UNANSWERED), None)
        if reason is None:
            if not failures:
                self._acknowledged_at = now
                self._note_up()
        elif self._acknowledged_at < begun:  # else it answers for other topics
            self._note_down(reason)

    def _note_down(self, reason: str) -> None:
        if self.sink_is_up:
            self._active_term.troubles.begin("sink", reason)
            self._active_term.tell_down("sink", SinkDown(*self._where, reason))

    def _note_up(self) -> None:
        self._active_term.troubles.end("sink")
        self._active_term.tell_up("sink", lambda seconds: SinkUp(*self._where, seconds))

    def _tell_of_topics(self) -> None:
        for change in self.machine.changes():
            if change.reason is not None:
                event = TopicDown(*self._where, change.topic, change.reason)
                self._active_term.tell_down(_topic(change.topic), event)
            else:
                self._tell_topic_up(change.topic)

    def _note_topic_up(self, topic: str) -> None:
        """Tell that a topic is back that took nothing before a pause: this machine has not seen it down."""
        if self._active_term.is_told_down(_topic(topic)) and topic not in self.machine.resting():
            self._tell_topic_up(topic)

    def _tell_topic_up(self, topic: str) -> None:
        self._active_term.tell_up(_topic(topic), lambda seconds: TopicUp(*self._where, topic, seconds))

    async def _park(self) -> bool:
        """Park what can't be sent, and what waits behind it; whether there was any."""
        letters = self.machine.letters()
        if not letters:
            return False
        await fault(Point.BEFORE_PARK)
        parked = set(await self._source.park(letters, hold=self._limits.hold))
        await fault(Point.AFTER_PARK)
        self.machine.park(letters, parked, time.monotonic())
        self._tell_of_parked([letter for letter in letters if letter.record.id in parked])
        if len(parked) < len(letters):  # operators have told to send again what they were to be behind
            self._mark_covers_refusals = False
            self._active_term.wake()
        return True

    def _tell_of_parked(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            record = letter.record
            self._emit(RecordParked(*self._where, record.id, record.topic, record.key, letter.reason))
        self.counters.parked[_RECORDS] += len(letters)
        self.counters.rejects[_RECORDS] += sum(not letter.behind for letter in letters)

    # --- the end --------------------------------------------------------------------------

    async def drain(self, limit: float) -> None:
        """After `run` has returned: let sends under way finish, purge what is done, reset the rest.

        Args:
            limit: seconds for the sends.

        Raises:
            NotLeader: the term is over.
            DatabaseUnavailable: a session was lost.
        """
        await self._end_sends(limit)
        await fault(Point.DURING_DRAIN)
        await self._park()
        self._done |= self.machine.finished()
        if self._done:
            done, self._done = self._done, {}
            self._settled_at_exchange = self._settled_chunks
            await self._exchange.purge_and_mark(done, 0)
        await fault(Point.BEFORE_RESET)
        await self._source.reset(self.machine.unfinished())

    async def abort(self) -> None:
        """After the term or a session was lost: end all sends, write nothing more."""
        await self._end_sends(0.0)

    async def _end_sends(self, limit: float) -> None:
        """Let sends end for `limit` seconds; then send nothing more, and wait as long as one may be late."""
        await self._settle_for(limit)
        self._outgoing.stop_sending()
        await self._settle_for(self._limits.drain.request_timeout)
        if self._outgoing.is_busy:
            self._active_term.unanswered.add(self)
        self._outgoing.stop()

    async def _settle_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._take_settled()
        while self._outgoing.is_busy and time.monotonic() < deadline:
            await asyncio.sleep(_LONGEST_LOOK)
            self._take_settled()

    # --- metrics --------------------------------------------------------------------------

    def read_metrics(self) -> MeterRead | None:
        """What was done since the last reading; None when nothing was, then and now, and nothing waits."""
        return self.meter.read(self.machine.held, self.machine.flying)

    @property
    def sink_is_up(self) -> bool:
        """Whether a broker takes records of this partition, as far as is known."""
        return self._active_term.troubles.reason("sink") is None

    @property
    def source_is_up(self) -> bool:
        """Records carry all that is sent: there is nothing to be read."""
        return True

    @property
    def is_trusted(self) -> bool:
        """Whether a write may begin now."""
        return self._active_term.is_trusted


def _topic(name: str) -> str:
    """How the outage of a topic is kept in the term."""
    return f"topic {name}"
