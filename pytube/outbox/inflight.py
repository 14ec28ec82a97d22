"""The in-flight machine of an outbox: which records of one partition wait, fly, or are done. Pure; no I/O.

Records of one topic and ordering key form a *lane*. What must hold, whatever is called in whatever order:

- at most `window` records of a lane fly at once; with a window of 1 (strict) just one. Records that were
  written and are not purged count as if they flew: should the worker die now, they would be sent again;
- records of a lane are sent in the order of their ids. After a failure nothing more of the lane is sent until
  all of it that flies has settled; then it is sent again from the first record that failed;
- nothing is forgotten: each record is held until it is finished (to be purged) or parked; `unfinished`
  names the others.

A topic that accepts nothing cools down alone, for longer after each failure. It is reported only where the
broker refuses it: while no broker answers, that is the reason, and it is tried again as soon as one does.

A topic of which a chunk failed because of the topic is sent *carefully*: one chunk at a time, one record of a
lane in it. Chunks are halved while the broker refuses one record of many, so that in the end the record that
is at fault stands alone.

Times are of any monotonic clock, in seconds.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from operator import attrgetter

from pytube.outbox.records import (
    NO_ANSWER,
    Chunk,
    Failure,
    Fault,
    Lane,
    Letter,
    Record,
    Rest,
    Topic,
    ordering_key,
)
from pytube.pipeline.retry_queue import backoff, doubled


@dataclass(frozen=True, slots=True)
class Rules:
    """What a machine keeps to; see `OutboxConfig` for what each means."""

    window: int
    chunk: int = 500
    """Records that are handed over together."""
    attempts: int = 3
    compact: bool = False
    hold: bool = False
    repeats: bool = True
    """Whether a record that was written and not purged is sent again by the next term."""
    cooldown: float = 0.5
    cooldown_limit: float = 60.0


_CEILING_LASTS = 60.0
"""Seconds for which a topic gets no larger chunks than it took."""

_id = attrgetter("id")


class InFlight:
    """The records that one partition holds. See the module's text for what must hold."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._held: dict[int, float] = {}
        """When each record that is held was written, by id."""
        self._topics: dict[str, Topic] = {}
        self._ready: deque[Topic] = deque()
        """Topics that may have something to send."""
        self._rests: list[tuple[float, int, Topic, Lane | None]] = []
        """Topics and lanes that wait for a time."""
        self._order = count()
        self._absorbed: dict[int, list[Record]] = {}
        """Records that a newer one of their key replaces, by its id."""
        self._finished: dict[int, float] = {}
        self._unpurged: list[tuple[Lane, Sequence[Record]]] = []
        """The records of each lane that are among the finished."""
        self._being_purged: list[tuple[Lane, Sequence[Record]]] = []
        self._attempts: dict[int, int] = {}
        """How often records failed alone."""
        self._letters: list[Letter] = []
        self._behind: list[Lane] = []
        """Held lanes with records to be parked."""
        self._parking: dict[int, Lane] = {}
        self._refused: list[Lane] = []
        self._newly_down: list[tuple[str, str]] = []
        self._unanswered: dict[Topic, None] = {}
        """Topics that wait for a broker to answer."""
        self.compacted = 0
        """Records that were replaced by newer ones."""

    # --- the held records ---------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Records that are not finished: what bounds the memory of a partition."""
        return len(self._held)

    @property
    def flying(self) -> int:
        """Records that were handed over and are not settled."""
        return sum(chunk.size for topic in self._topics.values() for chunk in topic.flights)

    @property
    def oldest(self) -> float | None:
        """When the record that came first was written; None when none is held."""
        return next(iter(self._held.values()), None)

    @property
    def has_refused(self) -> bool:
        """Whether records wait for earlier ones of their key, which an operator has retried."""
        return bool(self._refused)

    @property
    def waits_for_answer(self) -> bool:
        """Whether topics wait until a broker answers: see `reached`."""
        return bool(self._unanswered)

    def unfinished(self) -> list[int]:
        """The ids of the records held, ascending."""
        return sorted(self._held)

    def resting(self) -> dict[str, float]:
        """Since when each topic that takes nothing takes nothing."""
        topics = self._topics.values()
        return {topic.name: topic.down_since for topic in topics if topic.down_since is not None}

    def rests(self) -> list[Rest]:
        """The topics that accept nothing, and the records that wait for them."""
        return [
            Rest(topic.name, topic.reason, topic.down_since, topic.until, _held(topic))
            for topic in self._topics.values()
            if topic.down_since is not None
        ]

    # --- records come in ------------------------------------------------------------------

    def add(self, records: Iterable[Record]) -> int:
        """Hold records; already held ones are ignored. How many are new."""
        held, before = self._held, len(self._held)
        topic = None
        for record in records:
            if record.id in held:
                continue
            held[record.id] = record.created
            if (topic is None or topic.name != record.topic) and (
                topic := self._topics.get(record.topic)
            ) is None:
                topic = self._topics[record.topic] = Topic(record.topic)
            lane = topic.lanes.get(key := ordering_key(record))
            if lane is None:
                lane = topic.lanes[key] = Lane(topic, key)
            waiting = lane.waiting
            if waiting and waiting[-1].id > record.id:
                insort(waiting, record, key=_id)
            else:
                waiting.append(record)
            if record.held:
                lane.held = True
            if not lane.queued:
                self._queue(lane)
        return len(held) - before

    def _queue(self, lane: Lane) -> None:
        """Have a lane looked at that has something to send, or to park."""
        if lane.held:
            self._behind.append(lane)
            return
        lane.queued = True
        lane.topic.ready.append(lane)
        self._queue_topic(lane.topic)

    def _queue_topic(self, topic: Topic) -> None:
        if not topic.queued:
            topic.queued = True
            self._ready.append(topic)

    # --- records fly ----------------------------------------------------------------------

    def take(self, now: float) -> Chunk | None:
        """The next records to be handed over, all of one topic; None when there are none now.

        Topics take turns, and so do the lanes of a topic.
        """
        self._wake(now)
        while self._ready:
            topic = self._ready.popleft()
            topic.queued = False
            if topic.until > now or (topic.limit is not None and topic.flights):
                continue  # queued again when it has cooled down, or its flight has settled
            chunk = self._fill(topic)
            if chunk is not None:
                topic.flights[chunk] = None
                if topic.ready:
                    self._queue_topic(topic)
                return chunk
        return None

    def next_at(self) -> float | None:
        """When a topic or a lane has rested; None when none rests."""
        return self._rests[0][0] if self._rests else None

    def _wake(self, now: float) -> None:
        while self._rests and self._rests[0][0] <= now:
            _, _, topic, lane = heapq.heappop(self._rests)
            if lane is not None and lane.until is not None and lane.until <= now:
                lane.until = None
                # A record that failed alone is sent alone again; others must not fail with it.
                topic.limit = 1
                self._reopen(lane)
                if lane.queued:
                    topic.ready.remove(lane)
                    topic.ready.appendleft(lane)
            if topic.ready:
                self._queue_topic(topic)

    def _fill(self, topic: Topic) -> Chunk | None:
        rules, careful = self._rules, topic.limit is not None
        room = rules.chunk if topic.limit is None else topic.limit
        window = 1 if careful else rules.window
        ready, parts, size = topic.ready, [], 0
        while ready and size < room:
            lane = ready.popleft()
            lane.queued = False
            if rules.compact and len(lane.waiting) > 1:
                self._compact(lane)
            count = min(
                room - size,
                window - lane.flying,
                rules.window - lane.flying - lane.unpurged,
                len(lane.waiting),
            )
            if count <= 0 or not lane.is_open:
                continue  # queued again when it is open, or what flies of it has settled or is purged
            part = lane.waiting[:count]
            del lane.waiting[:count]
            lane.flying += count
            size += count
            parts.append((lane, part))
            if lane.waiting and lane.flying < window and lane.flying + lane.unpurged < rules.window:
                lane.queued = True
                ready.append(lane)
        if not parts:
            return None
        sent = (one.id for _, part in parts for one in part) if self._absorbed else ()
        replaced = [older for number in sent for older in self._absorbed.get(number, ())]
        return Chunk(topic.name, parts, size, careful, replaced)

    def _compact(self, lane: Lane) -> None:
        """Of each key keep the newest record that waits; it takes the others with it when it is done."""
        newest: dict[str, Record] = {}
        kept: list[Record] = []
        for record in reversed(lane.waiting):
            later = newest.get(record.key) if record.key is not None else None
            if later is None:
                kept.append(record)
                if record.key is not None:
                    newest[record.key] = record
            else:
                self._absorbed.setdefault(later.id, []).append(record)
                self._absorbed[later.id] += self._absorbed.pop(record.id, ())
        kept.reverse()
        lane.waiting = kept

    def _unpacked(self, lane: Lane) -> list[Record]:
        """All records of a lane that wait, by id; replaced records, too, until the next look."""
        groups = ((record, *self._absorbed.pop(record.id, ())) for record in lane.waiting)
        return sorted((one for group in groups for one in group), key=_id)

    # --- outcomes ----------------------------------------------------------------

    def settle(self, chunk: Chunk, failures: Mapping[int, Failure], now: float) -> None:
        """A chunk is decided; `failures`: the records that were not, or perhaps not, written, by id."""
        chunk.failures = failures
        topic = self._topics[chunk.topic]
        if self._rules.window == 1:
            self._land(topic, chunk, now)
        else:
            # In order: a record counts as done only after all that were sent before it.
            while topic.flights and (first := next(iter(topic.flights))).failures is not None:
                self._land(topic, first, now)
        if topic.ready:
            self._queue_topic(topic)
        self._forget_if_idle(topic)

    def _forget_if_idle(self, topic: Topic) -> None:
        if not (topic.ready or topic.lanes or topic.flights or topic.limit or topic.failures):
            self._topics.pop(topic.name, None)

    def _land(self, topic: Topic, chunk: Chunk, now: float) -> None:
        del topic.flights[chunk]
        failures = chunk.failures
        assert failures is not None
        for lane, part in chunk.parts:
            lane.flying -= len(part)
            if lane.broken is not None:
                lane.broken += part
                continue
            written = part
            if failures:  # from the first that failed on, all is to be sent again
                first = next((i for i, one in enumerate(part) if one.id in failures), len(part))
                written, lane.broken = part[:first], part[first:] or None
            self._write(lane, written)
        if failures:
            self._blame(topic, chunk, failures, now)
        else:
            self._succeed(topic, now)
        for lane, _ in chunk.parts:
            self._reopen(lane)

    def _write(self, lane: Lane, records: Sequence[Record]) -> None:
        """Records of a lane were written: finish them."""
        self._finish(records)
        if self._rules.repeats and records:
            lane.unpurged += len(records)
            self._unpurged.append((lane, records))

    def _finish(self, records: Sequence[Record]) -> None:
        held, finished = self._held, self._finished
        for record in records:
            finished[record.id] = held.pop(record.id)
        if self._attempts or self._absorbed:
            for record in records:
                self._attempts.pop(record.id, None)
                absorbed = self._absorbed.pop(record.id, ())
                self.compacted += len(absorbed)
                self._finish(absorbed)

    def _reopen(self, lane: Lane) -> None:
        """Queue a lane that may send again; forget an empty one."""
        if lane.broken is not None and not lane.flying:
            lane.waiting = sorted(lane.broken + lane.waiting, key=_id)
            lane.broken = None
        if lane.is_empty:
            if lane.topic.lanes.get(lane.key) is lane:  # else it was forgotten, and the key may have another
                del lane.topic.lanes[lane.key]
        elif lane.waiting and (
            lane.held
            or (lane.is_open and not lane.queued and lane.flying + lane.unpurged < self._rules.window)
        ):
            self._queue(lane)

    # --- failures -------------------------------------------------------------------------

    def reached(self, asked_at: float, now: float) -> None:
        """A broker has answered a request of that time: topics that waited for an answer continue.

        A topic without an answer while the next question is answered counts as accepting nothing.
        """
        for topic in self._unanswered:
            if topic.unanswered_at >= asked_at or topic.flights:
                continue  # that flies was sent before, perhaps
            if topic.is_doubtful:
                topic.is_doubtful = False
                self._rest(topic, f"{NO_ANSWER}: {topic.reason}", now)
            elif not topic.is_tried:
                topic.is_tried = True
                topic.until, topic.failures = now, 1
                if topic.ready:
                    self._queue_topic(topic)

    def unreachable(self) -> None:
        """No broker answers: that a topic had no answer says nothing of it."""
        for topic in self._unanswered:
            topic.is_tried = topic.is_doubtful = False

    def _succeed(self, topic: Topic, now: float) -> None:
        self._answer(topic)
        topic.failures, topic.down_since = 0, None
        if topic.limit is not None:
            if topic.ceiling is not None and now >= topic.ceiling_until:
                topic.ceiling = None
            topic.limit *= 2
            if topic.ceiling is not None:
                topic.limit = min(topic.limit, topic.ceiling)
            elif topic.limit > self._rules.chunk:
                topic.limit = None

    def _blame(self, topic: Topic, chunk: Chunk, failures: Mapping[int, Failure], now: float) -> None:
        faults = {failure.fault for failure in failures.values()}
        for fault in (Fault.TOPIC, Fault.UNANSWERED):  # a refusal is an answer
            if fault in faults:
                reason = next(failure.reason for failure in failures.values() if failure.fault is fault)
                self._cool_down(topic, reason, now, is_refused=fault is Fault.TOPIC)
                break
        if Fault.BATCH in faults and (chunk.careful or topic.limit is None):  # others were under way with one
            topic.limit = max(1, chunk.size // 2)
            if chunk.size > 1:  # perhaps the topic takes smaller batches than librdkafka makes
                topic.ceiling, topic.ceiling_until = topic.limit, now + _CEILING_LASTS
        for lane, part in chunk.parts:
            for record in part:
                failure = failures.get(record.id)
                if failure is None:
                    continue
                if failure.fault is Fault.POISON:
                    self._attempts[record.id] = self._attempts.get(record.id, 0) + 1
                    self._give_up(lane, record, failure.reason)
                elif failure.fault is Fault.BATCH and chunk.size == 1:
                    self._fail_alone(lane, record, failure.reason, now)

    def _cool_down(self, topic: Topic, reason: str, now: float, *, is_refused: bool) -> None:
        """The topic takes nothing for a while; chunks that were under way together count as one failure."""
        rules = self._rules
        topic.limit = 1
        if is_refused:
            self._answer(topic)
            self._rest(topic, reason, now)
        else:
            self._unanswered[topic] = None
            topic.unanswered_at = now
            topic.is_doubtful |= topic.is_tried
            topic.reason = reason if topic.down_since is None else topic.reason
        if now >= topic.until:
            topic.failures += 1
            topic.until = now + doubled(topic.failures, rules.cooldown, rules.cooldown_limit)
            heapq.heappush(self._rests, (topic.until, next(self._order), topic, None))

    def _answer(self, topic: Topic) -> None:
        """It waits for no broker."""
        self._unanswered.pop(topic, None)
        topic.is_tried = topic.is_doubtful = False

    def _rest(self, topic: Topic, reason: str, now: float) -> None:
        topic.reason = reason
        if topic.down_since is None:
            topic.down_since = now
            self._newly_down.append((topic.name, reason))

    def _fail_alone(self, lane: Lane, record: Record, reason: str, now: float) -> None:
        attempts = self._attempts[record.id] = self._attempts.get(record.id, 0) + 1
        if attempts >= self._rules.attempts:
            self._give_up(lane, record, reason)
            return
        lane.until = now + backoff(attempts)
        if lane.queued:  # it rests now
            lane.topic.ready.remove(lane)
            lane.queued = False
        heapq.heappush(self._rests, (lane.until, next(self._order), lane.topic, lane))

    def _give_up(self, lane: Lane, record: Record, reason: str) -> None:
        """Have a record parked. The records that it replaced are sent in its place."""
        lane.topic.ceiling = None
        attempts = self._attempts.pop(record.id)
        again = lane.broken
        assert again is not None, "a record that failed is among the records to send again"
        again.remove(record)
        for older in self._absorbed.pop(record.id, ()):
            insort(again, older, key=_id)
        self._post(lane, Letter(record, reason, attempts, behind=False))

    def _post(self, lane: Lane, letter: Letter) -> None:
        lane.parking += 1
        if self._rules.hold and not isinstance(lane.key, int):
            lane.held = True
        self._parking[letter.record.id] = lane
        self._letters.append(letter)

    def newly_down(self) -> list[tuple[str, str]]:
        """Topics that began to take nothing since the last call, and why."""
        down, self._newly_down = self._newly_down, []
        return down

    # --- parking --------------------------------------------------------------------------

    def letters(self) -> list[Letter]:
        """Records to be parked now, to be answered by `park`.

        The records behind a parked one come after that was answered, so that the database has it.
        """
        if not self._letters and not self._parking:
            behind, self._behind = self._behind, []
            for lane in behind:
                waiting, lane.waiting = self._unpacked(lane), []
                for record in waiting:
                    self._post(lane, Letter(record, "", 0, behind=True))
        letters, self._letters = self._letters, []
        return letters

    def park(self, letters: Sequence[Letter], parked: Iterable[int]) -> None:
        """The database has parked the records of these ids; the others of `letters` it has not.

        It refuses a record that was to be parked behind another record, which an operator has retried.
        The record waits for it: see `resume`.
        """
        ids = set(parked)
        lanes: dict[Lane, None] = {}
        for letter in letters:
            record = letter.record
            lane = self._parking.pop(record.id)
            lane.parking -= 1
            lanes[lane] = None
            if record.id in ids or not letter.behind:  # or it was deleted
                del self._held[record.id]
                continue
            insort(lane.waiting, record, key=_id)
            lane.held = False
            if not lane.refused:
                lane.refused = True
                self._refused.append(lane)
        for lane in lanes:
            self._reopen(lane)

    def postpone(self, letters: Sequence[Letter]) -> None:
        """These letters could not be parked yet: they come again."""
        self._letters = [*letters, *self._letters]

    def waiting_of(self, topic: str) -> list[int] | None:
        """The ids of the records held of a topic, but those to be parked; None while one of them flies."""
        found = self._topics.get(topic)
        if found is None:
            return []
        if found.flights:
            return None
        for lane in found.lanes.values():
            lane.waiting = self._unpacked(lane)
        return [record.id for lane in found.lanes.values() for record in lane.waiting]

    def forget(self, topic: str, ids: Iterable[int]) -> None:
        """Records of a topic that `waiting_of` named were parked; without any the topic rests no more."""
        gone = set(ids)
        for number in gone:
            self._held.pop(number, None)
            self._attempts.pop(number, None)
        found = self._topics.get(topic)
        if found is None:
            return
        for lane in list(found.lanes.values()):
            lane.waiting = [record for record in self._unpacked(lane) if record.id not in gone]
            if lane.is_empty:
                found.lanes.pop(lane.key)
                if lane.queued:
                    found.ready.remove(lane)
        if not found.lanes:
            found.down_since, found.failures, found.limit = None, 0, None
            self._answer(found)
            self._forget_if_idle(found)

    def resume(self) -> None:
        """All retried records were added: the records that wait for them may continue."""
        refused, self._refused = self._refused, []
        for lane in refused:
            lane.refused = False
            self._reopen(lane)

    # --- records are done -----------------------------------------------------------------

    def finished(self) -> dict[int, float]:
        """The records that are done since the last call, to be purged: when each was written, by id."""
        finished, self._finished = self._finished, {}
        self._being_purged += self._unpurged
        self._unpurged = []
        return finished

    def confirm_purged(self, left: Collection[int] = ()) -> None:
        """What `finished` has returned is purged, but `left`: as many records of each lane may follow."""
        purged, self._being_purged = self._being_purged, []
        for lane, records in purged:
            stay = [one for one in records if one.id in left] if left else ()
            if stay:
                self._being_purged.append((lane, stay))
            lane.unpurged -= len(records) - len(stay)
        for lane, _ in purged:
            self._reopen(lane)
            self._forget_if_idle(lane.topic)


def _held(topic: Topic) -> int:
    """How many records of a topic are held."""
    return sum(
        len(one.waiting) + len(one.broken or ()) + one.flying + one.parking for one in topic.lanes.values()
    )
