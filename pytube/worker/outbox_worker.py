"""The records of one partition of an outbox, under one term: which chunks are sent, and their outcomes.

`PartitionWorker` has the loop. Here are the lanes that wait (`pytube.outbox.inflight`), chunks that are
handed to Kafka, and the handling of each record: it is finished, sent again, or parked.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytube.db.locks import PATIENCE, holders_of_outbox
from pytube.errors import BrokerUnavailable
from pytube.events import (
    MeterRead,
    RecordParked,
    TopicDown,
    TopicParked,
    TopicUp,
)
from pytube.faults import Point, fault
from pytube.model import PodClass
from pytube.outbox.inflight import InFlight
from pytube.outbox.records import Chunk, Failure, Fault, Letter, Record, Sent
from pytube.outbox.source import OutboxSource
from pytube.pipeline.batches import high_average
from pytube.worker.active_term import ActiveTerm, LockedTables
from pytube.worker.metrics import Samples, age
from pytube.worker.pace import RoundPacer
from pytube.worker.partition_worker import Fetched, PartitionWorker

if TYPE_CHECKING:
    from pytube.worker.queues import Outbox

_CHUNKS_AT_ONCE = 4
"""Chunks that are handed over before the event loop has its turn."""
_CAUTIOUS = 100
"""Records of the first mark, when it is not known yet how large they are."""
_OPEN_PAUSE = 0.5
"""Seconds between tries to begin while no broker answers; each try has its own time limit, too."""
_FIRST_LOOK = 0.0002
_LONGEST_LOOK = 0.004
"""Seconds between looks for reports of librdkafka, while there is nothing else to do."""
_LOOK_GROWTH = 1.25
"""How much longer each pause is than the one before: a report waits for a quarter of its time at most."""
_LOCK_PAUSE = 0.25
"""Seconds after which locked records are tried again."""
_LOCKED_PARK_PAUSE = 2.0
"""The same of records to be parked: each try waits for the lock, and the partition for the try."""
_REST_PAUSE = 1.0
"""Seconds between looks whether an operator wants the records of a topic parked, while it takes nothing."""
_ANSWER_PAUSE = 0.25
"""Seconds between looks whether Kafka answers again, while topics wait for that."""
_PARKED_AT_ONCE = 10_000
"""Records that one transaction parks then."""
_MARK_SHARE = 8.0
"""A mark comes no sooner than this many times what the last one took, as long as others are held: it may cost
much and find little. One of an adopted table looks at all that is held, and purges wait for it."""
_MARK_SHARE_APART = 20.0
"""The same where marks come apart from purges, and so wait for no disk."""
_MARK_PAUSE_APART = 1.0
"""Seconds at most that this puts one off: one slow exchange is not to hold up later records."""
_EVERYWHERE_PAUSE = 30.0
"""Seconds between marks that look at the whole table: an id chosen by a writer lies anywhere."""
_NUMBERS = re.compile("[0-9]+")
"""By which reasons differ that are alike."""
_RECORDS = PodClass.INCREMENTAL
"""Records are counted as incremental pods are."""


class OutboxWorker(PartitionWorker[Record]):
    """Delivers the records of one partition under one term."""

    machine: InFlight
    _source: OutboxSource
    _goes_on = False
    """Whether the round under way has left something undone."""
    _is_put_off = False
    """Whether the next exchange marks, because the last one did not."""

    def __init__(self, active_term: ActiveTerm, outbox: Outbox) -> None:
        marks_apart = outbox.rules.window == 1 and outbox.rules.repeats
        pacer = (
            RoundPacer(_MARK_PAUSE_APART, _MARK_SHARE_APART)
            if marks_apart
            else RoundPacer(float("inf"), _MARK_SHARE)
        )
        super().__init__(active_term, outbox.database, outbox.metrics, pacer)
        self._marks_apart = marks_apart
        """Whether a mark does not come with a purge while records are held: each key waits for the purge."""
        self.machine = InFlight(outbox.rules)
        self._metrics = outbox.metrics
        self._settings = outbox.settings
        self._holds_keys = outbox.rules.hold
        """Whether records behind a parked one of their key are parked, too."""
        self._emit = outbox.emit
        self._source = OutboxSource(outbox.database.pool, active_term.term)
        self._outgoing = outbox.outgoing(active_term)
        self._cluster = outbox.cluster
        self._is_woken = outbox.rules.window == 1 and not self._outgoing.needs_poll
        """Whether the term is woken for whatever a round could find that the one before could not: in strict
        order, where rounds that find nothing would be half of them."""
        self._outages = 0
        """How many of the cluster the machine knows of."""
        self._tables = LockedTables(active_term)
        self._held_up_since: float | None = None
        """Since when locks of others have been met without a break."""
        self._holders_at = 0.0
        """When it is looked next who has them."""
        self._begun: dict[Chunk, float] = {}
        """When each chunk was handed over."""
        self._done: dict[int, float] = {}
        """Records to be purged: when each was written, by id."""
        self._locked: dict[int, float] = {}
        """Records that were written and could not be purged, as another session has locked them."""
        self._locks_at: float | None = None
        """When locked records are tried again; None: there are none."""
        self._parks_at = 0.0
        """When records locked by other sessions are parked; 0: there are none."""
        self._rests = False
        """Whether topics take nothing, or the database has a report of that."""
        self._rests_at = 0.0
        """When it gets the next report."""
        self._settled_chunks = self._settled_at_exchange = 0
        """How many of them when the last exchange began: it purges their records."""
        self._was_held_up = False
        """Whether a lock had kept records back before the exchange under way."""
        self._more = False
        """Whether the last mark found as many records as it could take."""
        self._bytes_per_record: float | None = None
        self._mark_covers_refusals = False
        """Whether the mark under way began after all that the machine has had refused."""
        self._look = _FIRST_LOOK
        self._everywhere_at = time.monotonic() + _EVERYWHERE_PAUSE
        self._acknowledged_at = float("-inf")

    # --- the round ------------------------------------------------------------------------

    async def _begin(self) -> bool:
        await self._source.load()
        return await self._open()

    async def _open(self) -> bool:
        """Begin the way to Kafka; whether it has begun when the claim is revoked, or the partition paused.

        The term continues while no broker answers: its renewals report why nothing is sent.
        """
        has_failed = False
        while self._active_term.goes_on():
            self._active_term.check_trust()
            try:
                if (earlier := await self._try_open()) is None:
                    return False
            except BrokerUnavailable as error:
                has_failed = True
                self._active_term.note_down("sink", str(error))
                await asyncio.sleep(_OPEN_PAUSE)
            else:
                has_failed |= await self._purge_sent(earlier)
                if has_failed:  # else no broker may have been asked yet
                    self._active_term.note_up("sink")
                return self._active_term.goes_on()
        return False

    async def _try_open(self) -> Sequence[Sent] | None:
        """One attempt, which may take minutes; None if something stops the work meanwhile."""
        opening = asyncio.ensure_future(self._outgoing.open(self._source.earlier, self._source.identity))
        try:
            while not opening.done():
                if not self._active_term.goes_on():
                    return None
                await asyncio.wait([opening], timeout=_OPEN_PAUSE)
            return opening.result()
        finally:
            opening.cancel()

    async def _purge_sent(self, earlier: Sequence[Sent]) -> bool:
        """Delete what earlier terms have sent, before anything is marked; whether a lock was waited for."""
        waited = False
        for sent in earlier:
            while self._active_term.goes_on() and not await self._source.purge_sent(sent):
                waited = True
                self._active_term.note_down(
                    "sink", "another session has locked records that an earlier term has sent"
                )
                await asyncio.sleep(_OPEN_PAUSE)
        return waited

    async def _attend(self) -> bool:
        busy = time.monotonic() >= self._parks_at and await self._park()
        self._goes_on |= busy
        self._note_reach()
        self._tell_of_topics()
        return busy

    async def _round(self) -> bool:
        self._outgoing.check()
        self._goes_on = not self._is_woken
        busy = await super()._round()
        busy &= self._goes_on or self._active_term.attention.is_set()
        if busy:
            self._look = _FIRST_LOOK
            await asyncio.sleep(0)
        return busy

    async def _wait(self) -> None:
        moments = [self.machine.next_at(), self._outgoing.answer_due, self._parks_at or None]
        if self._exchange is None:  # else its end wakes
            rests_at = self._rests_at if self._rests else None
            moments += [rests_at, self._locks_at, self._everywhere_at]
        if self._room() > 0 and self._is_too_soon():
            moments.append(self._pacer.next_at)
        if self.machine.waits_for_answer:
            moments.append(time.monotonic() + _ANSWER_PAUSE)
        due = min((moment for moment in moments if moment is not None), default=None)
        if self._outgoing.needs_poll and self._outgoing.is_busy:
            look = time.monotonic() + self._look
            due = look if due is None else min(due, look)
            self._look = min(_LONGEST_LOOK, _LOOK_GROWTH * self._look)
        await self._poller.wait(
            self._database.settled,
            notified=self._database.notifications_work and self._source.wakes,
            idle=not self.machine.held,
            may_poll=self._exchange is None and self._may_mark(),
            until=due,
        )

    # --- marks and purges -----------------------------------------------------------------

    def _room(self) -> int:
        settings, average = self._settings, self._bytes_per_record
        held = self.machine.held + self._reserved
        if average is None:
            return _CAUTIOUS - held
        most = min(settings.in_flight, int(settings.in_flight_bytes / max(1.0, average)))
        return max(most - held, 0 if held else 1)  # with nothing held there is room for one, however large

    def _may_mark(self) -> bool:
        return self._room() > 0 and self._active_term.is_trusted and not self._is_too_soon()

    def _is_too_soon(self) -> bool:
        """Whether to continue for a while with the held records: a mark may not find much."""
        held = self.machine.held + self._reserved
        pays = self._more and self._room() >= min(self._settings.mark_limit, held)
        return held > 0 and not pays and time.monotonic() < self._pacer.next_at

    def _wants_mark(self, done: Mapping[int, float]) -> bool:
        """In strict order it is put off until the purge is over: what follows is on its way then."""
        was_put_off, self._is_put_off = self._is_put_off, False
        if was_put_off:
            return True
        self._is_put_off = self._marks_apart and bool(done) and self.machine.held > 0 and self._may_mark()
        return not self._is_put_off and super()._wants_mark(done)

    def _finished(self, *, last: bool = False) -> dict[int, float]:
        if last or (self._locks_at is not None and time.monotonic() >= self._locks_at):
            self._locks_at = None
            self._done |= self._locked
            self._locked = {}
            self._active_term.woken = True  # a mark looks for the records that were left out
        if time.monotonic() >= self._everywhere_at:
            self._everywhere_at = time.monotonic() + _EVERYWHERE_PAUSE
            self._source.look_everywhere()
            self._active_term.woken = True
        self._mark_covers_refusals = False
        self._settled_at_exchange = self._settled_chunks
        self._was_held_up = self._source.is_held_up
        done, self._done = self._done | self.machine.finished(), {}
        return done

    def _mark_limit(self) -> int:
        self._mark_covers_refusals = True
        return min(self._settings.mark_limit, self._room())

    async def _mark(self, limit: int, done: Sequence[int]) -> list[Record]:
        return await self._source.mark(limit, self._database.settled, done)

    async def _take(self) -> Sequence[Record]:
        records = await super()._take()
        is_due = self._rests and self._exchange is None and time.monotonic() >= self._rests_at
        if is_due and self._active_term.stop is None:  # a hand-over does not wait for parking
            await self._hold(records)  # an operator may want them parked
            await self._tell_rests()
            return ()
        return records

    def _pace(self, fetched: Fetched[Record]) -> None:
        self._note_locks()
        self._more = fetched.is_full
        if self._was_held_up or not (self._source.is_held_up or self._source.unpurged):
            self._pacer.end_exchange(fetched.seconds, 1, full=False)
        else:  # it waited for a lock, which says nothing of what a mark costs
            self._pacer.next_at = float("-inf")

    async def _look_at(self, items: Sequence[Record]) -> Sequence[Record]:
        """Continue with refused keys once a mark has found all of their records."""
        await self._tell_locks()
        self._note_seen()
        if self._mark_covers_refusals and self._source.returned_all_retried and self.machine.has_refused:
            await self._hold(items)
            self.machine.resume()
            return ()
        return items

    def _note_seen(self) -> None:
        """Note the greatest drawn id that was read; an id chosen by a writer does not count."""
        if (settled := self._database.settled) is not None:
            seen = min(self._source.greatest_id, settled.provisional)
            self._database.seen_seq = max(self._database.seen_seq, seen)

    def _note_purged(self, done: Mapping[int, float]) -> None:
        self._locked |= {number: done[number] for number in self._source.unpurged}
        self._note_locks()
        self._outgoing.confirm_purged(self._settled_at_exchange, self._locked)
        self.machine.confirm_purged(self._locked)
        if purged := {number: at for number, at in done.items() if number not in self._locked}:
            super()._note_purged(purged)

    def _note_locks(self) -> None:
        # Locks that are found meanwhile do not put this off.
        if self._locks_at is None and (self._source.is_held_up or self._locked):
            self._locks_at = time.monotonic() + _LOCK_PAUSE

    async def _tell_locks(self) -> None:
        """Report the locks of other sessions, once they have lasted for a while."""
        now = time.monotonic()
        if not (self._source.is_held_up or self._locked):
            self._held_up_since = None
            self._tables.free_all()
            return
        if self._held_up_since is None:
            self._held_up_since = now
        seconds = now - self._held_up_since
        if seconds >= PATIENCE and now >= self._holders_at:
            self._holders_at = now + PATIENCE
            lock = await holders_of_outbox(self._database.pool, self._where[0], seconds, self._source.locked)
            if lock is not None:
                self._tables.note(lock)

    async def _hold(self, items: Sequence[Record]) -> None:
        if not items:
            return
        self._reserved -= len(items)  # of the next mark there may be some by now
        size = sum([len(record.value or b"") for record in items])
        self._bytes_per_record = high_average(self._bytes_per_record, size / len(items))
        self.counters.touches[_RECORDS] += len(items)
        self.machine.add(items)

    # --- Kafka ----------------------------------------------------------------------------

    async def _launch(self) -> bool:
        launched = False
        for _ in range(_CHUNKS_AT_ONCE):
            if not (self._outgoing.has_room and self._active_term.is_trusted):
                return launched
            now = time.monotonic()
            chunk = self.machine.take(now)
            if chunk is None:
                return launched
            await fault(Point.BEFORE_SEND)
            self._begun[chunk] = now
            self._outgoing.send(chunk)
            await fault(Point.AFTER_HANDOVER)
            launched = True
        self._goes_on = True
        return launched

    async def _settle(self) -> bool:
        return self._take_settled()

    def _take_settled(self) -> bool:
        settled = self._outgoing.settled()
        now = time.monotonic()
        for chunk, failures in settled:
            self.machine.settle(chunk, failures, now)
            begun = self._begun.pop(chunk)
            self._metrics.sends.observe(now - begun)
            self.counters.documents[_RECORDS] += chunk.size - len(failures)
            self.counters.retries[_RECORDS] += len(failures)
            self._note_answers(begun, failures, now)
            if not failures:
                self._note_topic_up(chunk.topic)
        self._settled_chunks += len(settled)
        self.counters.coalesced += self.machine.compacted
        self.machine.compacted = 0
        if self._outgoing.why_stuck is not None:
            self._active_term.note_down("sink", self._outgoing.why_stuck)
        return bool(settled)

    def _note_answers(self, begun: float, failures: Mapping[int, Failure], now: float) -> None:
        reason = next((one.reason for one in failures.values() if one.fault is Fault.UNANSWERED), None)
        if reason is None:
            if not failures:
                self._acknowledged_at = now
                self._active_term.note_up("sink")
        elif self._acknowledged_at < begun:  # else it answers for other topics
            self._active_term.note_down("sink", reason)

    def _note_reach(self) -> None:
        """Resume topics that wait for an answer when Kafka answers."""
        cluster = self._cluster
        if cluster is None or not self.machine.waits_for_answer:
            return
        if cluster.outages != self._outages:
            self._outages = cluster.outages
            self.machine.unreachable()
        if cluster.reason is None:
            self.machine.reached(cluster.answered_at, time.monotonic())

    def _tell_of_topics(self) -> None:
        for topic, reason in self.machine.newly_down():
            self._rests, self._rests_at = True, 0.0
            self._active_term.tell_down(_topic(topic), TopicDown(*self._where, topic, reason))

    def _note_topic_up(self, topic: str) -> None:
        """Report that a topic accepts records again; perhaps it went down before a pause."""
        if self._active_term.is_told_down(_topic(topic)) and topic not in self.machine.resting():
            self._rests_at = 0.0
            self._active_term.tell_up(_topic(topic), lambda seconds: TopicUp(*self._where, topic, seconds))

    async def _tell_rests(self) -> None:
        """Report to the database which topics accept nothing, now and then, and park as operators request."""
        now = time.monotonic()
        rests = self.machine.rests()
        for topic in await self._source.tell_rests(rests, now):
            await self._park_topic(topic, next(one.reason for one in rests if one.topic == topic))
        self._rests = bool(rests)
        self._rests_at = now + _REST_PAUSE

    async def _park_topic(self, topic: str, reason: str) -> None:
        """Park the records of a topic that accepts nothing; later, if some are in flight."""
        error = f"parked by an operator while the topic took nothing: {reason}"
        total, full = 0, True
        while full and (ids := self.machine.waiting_of(topic)) is not None:
            parked = await self._source.park_topic(
                topic, error, ids, hold=self._holds_keys, limit=_PARKED_AT_ONCE
            )
            self.machine.forget(topic, parked)
            total += len(parked)
            full = len(parked) == _PARKED_AT_ONCE
        if total:
            self.counters.parked[_RECORDS] += total
            self._active_term.tell_up(
                _topic(topic), lambda seconds: TopicParked(*self._where, topic, total, seconds)
            )

    async def _park(self) -> bool:
        """Park the records that can't be sent, and those behind them; whether there were any."""
        self._parks_at = 0.0
        letters = self.machine.letters()
        if not letters:
            return False
        await fault(Point.BEFORE_PARK)
        ids, locked = await self._source.park(letters, hold=self._holds_keys)
        parked = set(ids)
        await fault(Point.AFTER_PARK)
        if locked:
            self._parks_at = time.monotonic() + _LOCKED_PARK_PAUSE
            self.machine.postpone(locked)
            letters = [letter for letter in letters if letter not in locked]
        self.machine.park(letters, parked)
        self._tell_of_parked([letter for letter in letters if letter.record.id in parked])
        if len(parked) < len(letters):  # operators retried the records ahead of them
            self._mark_covers_refusals = False
            self._active_term.wake()
        return True

    def _tell_of_parked(self, letters: Sequence[Letter]) -> None:
        alike: dict[tuple[str, str], list[Letter]] = {}
        for letter in letters:
            alike.setdefault((letter.record.topic, _NUMBERS.sub("", letter.reason)), []).append(letter)
        for several in alike.values():
            record, reason = several[0].record, several[0].reason
            told = RecordParked(*self._where, record.id, record.topic, record.key, reason, len(several))
            self._emit(told)
        self.counters.parked[_RECORDS] += len(letters)
        self.counters.rejects[_RECORDS] += sum(not letter.behind for letter in letters)

    # --- the end --------------------------------------------------------------------------

    async def drain(self, limit: float) -> None:
        await super().drain(limit)
        if self._rests:
            await self._source.tell_rests((), time.monotonic())

    async def _settle_last(self) -> None:
        await self._park()

    def _note_reset(self, held: int, reset: int) -> None:
        if (self._locked or reset < held) and not self._active_term.is_revoked:
            # A record locked by another session keeps this term's mark, which its next marks would pass over.
            self._active_term.unanswered.add(self)

    async def _end_sends(self, limit: float, *, waits: bool = True) -> None:
        await self._settle_for(limit)
        self._outgoing.stop_sending()
        await self._settle_for(self._settings.request_timeout if waits else 0.0)
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
        machine = self.machine
        return self.counters.read(self._where, machine.held, machine.flying, machine.oldest)

    @property
    def sink_is_up(self) -> bool:
        """Whether a broker takes records of this partition, as far as is known."""
        return self._active_term.troubles.reason("sink") is None

    def gauges(self) -> Samples:
        machine = self.machine
        yield "sink_up", (), self.sink_is_up
        yield "source_up", (), True  # records carry all that is sent: there is nothing to be read
        yield "table_locked", (), bool(self._tables)
        yield "partition_trusted", (), self._active_term.is_trusted
        yield "outbox_records", ("waiting",), machine.held - machine.flying
        yield "outbox_records", ("in_flight",), machine.flying
        yield "outbox_lag_seconds", (), age(machine.oldest)
        yield "outbox_topics_down", (), len(machine.resting())


def _topic(name: str) -> str:
    """How the outage of a topic is kept in the term."""
    return f"topic {name}"
