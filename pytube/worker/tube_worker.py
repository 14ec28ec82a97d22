"""The pods of one partition of a tube, under one term: which keys are sent, and their outcomes.

`PartitionWorker` has the loop. Here are the keys that it holds (`InFlight`), deliveries as tasks that return
an `Outcome`, and the handling of each: keys are finished, parked, or sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pytube import clock
from pytube.errors import DatabaseUnavailable, NotLeader, ParkLimitReached
from pytube.events import MeterRead, Parked, SinkDelays, TubeStopped
from pytube.faults import Point, fault
from pytube.model import Id, Key, Pod, PodClass
from pytube.pipeline.batches import by_shard, high_average, keys_of
from pytube.pipeline.blame import Blame
from pytube.pipeline.inflight import Flight, InFlight
from pytube.pipeline.retry_queue import DeadLetter, RetryQueue, backoff
from pytube.sources.pods import FailedKey, ParkItem, TubeSource
from pytube.turns import BackfillShare
from pytube.worker.active_term import ActiveTerm
from pytube.worker.control import Control
from pytube.worker.delivery import Deliverer, Outcome
from pytube.worker.metrics import CLASSES, Reading, Samples, age
from pytube.worker.pace import RoundPacer
from pytube.worker.partition_worker import PartitionWorker

if TYPE_CHECKING:
    from pytube.worker.queues import Tube

_CLASSES = tuple(PodClass)
"""What each round looks through; to go through the class itself takes longer."""
_DELIVERIES_AHEAD = 4
"""Deliveries begun beyond the free sends, so that a send never waits for a round."""
_IDS_PER_POD = 250.0
"""What pods hold at most as a rule; assumed until some were seen."""
_DELAYS_TOLD = 60.0
"""Seconds for which it is not logged again that the sink defers documents."""
_PROBE_INTERVAL = 1.0
"""Seconds at most until a sink that failed with many documents is sent another one, which may be well."""


class TubeWorker(PartitionWorker[Pod]):
    """Delivers the pods of one partition under one term."""

    machine: InFlight
    _source: TubeSource

    def __init__(self, active_term: ActiveTerm, tube: Tube) -> None:
        super().__init__(active_term, tube.database, tube.metrics, RoundPacer(tube.settings.latency))
        self.machine = InFlight()
        self._settings = tube.settings
        self._gate = tube.gate
        self._emit = tube.emit
        self._source = TubeSource(tube.database.pool, active_term.term)
        self._traces = tube.tracing.partition(active_term.term)
        self._deliverer = Deliverer(active_term, tube, self._traces)
        self._control = Control(active_term, self._source, self.machine, tube)
        self._share = BackfillShare(tube.settings.backfill_share)
        self._retries = RetryQueue(tube.settings.attempts)
        self._has_attended = False
        """Whether the last round did anything for control pods."""
        self._deliveries: dict[asyncio.Task[Outcome], Flight] = {}
        self._launched_at = 0.0
        """When it was last looked whether deliveries may begin."""
        self._probe: asyncio.Task[Outcome] | None = None
        """The last delivery that was begun while the sink or the source was down."""
        self._ids_per_pod = _IDS_PER_POD
        self._blame = Blame(tube.witnesses)
        self._witness: Flight | None = None
        """The one of a witness that is under way."""
        self._retried_last = False
        """Whether the delivery begun last was of keys to be sent again."""
        self._delays_told_until = float("-inf")
        self._not_before: dict[Key, float] = {}
        """Keys that failed in an earlier term, and when each is to be sent again; it goes alone then."""

    # --- the round ------------------------------------------------------------------------

    async def _begin(self) -> bool:
        now = time.monotonic()
        for key, (attempts, delay) in (await self._source.load_failed()).items():
            self._not_before[key] = now + delay
            self._retries.recall(key, attempts)
        return True

    async def _hold(self, items: Sequence[Pod]) -> None:
        """Hold marked pods and count their touches; control pods have their own way."""
        touches = self._weigh(items)
        backfill = self._weigh([pod for pod in items if pod.op == "B"])
        before = self.machine.keys
        control = self.machine.add(items)
        self.counters.touches[PodClass.INCREMENTAL] += touches - backfill
        self.counters.touches[PodClass.BACKFILL] += backfill
        # A touch that adds no key has joined a waiting one.
        self.counters.coalesced += touches - (self.machine.keys - before)
        self._pacer.note_touches(touches, self.machine.keys - before)
        self._reserved -= touches
        await self._control.accept(control)

    async def _round(self) -> bool:
        """One round; whether another one may find more to do at once.

        That is so after control pods only. Whatever else a round has done, nothing is left to do before an
        exchange or a delivery has ended, which wakes the worker, or before a moment that `_wait` knows.
        """
        await super()._round()
        return self._has_attended

    async def _attend(self) -> bool:
        self._has_attended = await self._control.attend()
        return self._has_attended

    async def _wait(self) -> None:
        await self._poller.wait(
            self._database.settled,
            notified=self._database.notifications_work,
            idle=not (self.machine.keys or self.machine.has_finished or self._control.has_work),
            may_poll=self._exchange is None and self._may_mark(),
            not_before=self._pacer.next_at,
            until=self._next_moment(),
        )

    # --- marks and purges -----------------------------------------------------------------

    def _may_mark(self) -> bool:
        return self._room > 0 and self._active_term.is_trusted

    @property
    def _room(self) -> int:
        """Keys that may still be held, or pods: of a key that is touched all the time there are many.

        Control pods do not count. They are few, and may wait for a sink that can't be scanned now, which must
        not keep back the documents that it would take.
        """
        held = max(self.machine.keys, self.machine.pods - self.machine.control)
        return self._settings.keys_in_flight - held - self._reserved

    @property
    def _room_for_backfill(self) -> int:
        """Backfill may fill half of the room only: incremental pods are to be found, and to fly, at once."""
        waiting = self.machine.waiting(PodClass.BACKFILL)
        return self._settings.keys_in_flight // 2 - waiting - self._reserved  # which may be backfill, too

    async def _begin_exchange(self) -> bool:
        return time.monotonic() >= self._pacer.next_at and await super()._begin_exchange()

    def _mark_limit(self) -> int:
        room, room_for_backfill = self._room, self._room_for_backfill
        self._left_out = room_for_backfill <= 0
        if not self._left_out:
            room = min(room, room_for_backfill)
        return max(1, min(self._settings.mark_limit, int(room / max(1.0, self._ids_per_pod))))

    async def _mark(self, limit: int, done: Sequence[int]) -> list[Pod]:
        settled = self._database.settled
        return await self._source.mark(limit, settled, with_backfill=not self._left_out, done=done)

    async def _purge_and_mark(self, done: Sequence[int], limit: int) -> list[Pod]:
        return await self._traces.exchange(super()._purge_and_mark(done, limit), done)

    async def _look_at(self, items: Sequence[Pod]) -> Sequence[Pod]:
        if items:
            self._ids_per_pod = high_average(self._ids_per_pod, self._weigh(items) / len(items))
            self._database.seen_seq = max((self._database.seen_seq, *(pod.seq for pod in items)))
        return items

    def _weigh(self, items: Sequence[Pod]) -> int:
        return sum([len(pod.ids) for pod in items])

    # --- deliveries -----------------------------------------------------------------------

    async def _launch(self) -> bool:
        launched = False
        self._launched_at = time.monotonic()
        while self._active_term.is_trusted and (found := self._take_next()) is not None:
            flight, groups = found
            probes = not self._deliverer.is_up
            task = asyncio.create_task(self._deliver(flight, groups, probes=probes))
            task.add_done_callback(self._on_delivered)
            self._deliveries[task] = flight
            if probes:
                self._probe = task
            launched = True
        self._deliverer.is_awaited = any(map(self.machine.waiting, _CLASSES)) or self._retries.keys > 0
        return launched

    def _on_delivered(self, _: asyncio.Task[Outcome]) -> None:
        self._active_term.attention.set()

    async def _deliver(self, flight: Flight, groups: Mapping[int, Sequence[Id]], *, probes: bool) -> Outcome:
        """Deliver keys of a flight, except parked ones that no touch tries again."""
        if not groups:
            return Outcome(flight)  # all of them were put off
        begun = time.monotonic()
        try:
            parked = set() if self._settings.retry_on_touch else await self._source.still_parked(groups)
        except DatabaseUnavailable as error:  # a read, which can be done again
            self._deliverer.source_breaker.fail(str(error), begun)
            return Outcome(flight, unsent=[keys_of(groups)])
        if not parked:
            outcome = await self._deliverer.deliver(flight, groups, probes=probes)
            self._pacer.note_delivery(time.monotonic() - begun)
            return outcome
        left = by_shard(key for key in keys_of(groups) if key not in parked)
        outcome = await self._deliverer.deliver(flight, left, probes=probes) if left else Outcome(flight)
        outcome.held_back += parked
        return outcome

    def _has_room(self, pod_class: PodClass, waiting: int = 0) -> bool:
        """Whether another delivery of the class may begin, while so many others wait to be sent again.

        What does not begin takes up the touches that come meanwhile, and is read when it can be sent.
        """
        if not self._deliverer.is_up and (self._is_probing or self._launched_at < self._deliverer.next_probe):
            return False
        if self._blame.is_open or self._deliverer.held_up[pod_class]:
            return False
        if not self._deliverer.may_read(len(self._deliveries) - self._deliverer.arrived):
            return False
        if len(self._deliveries) + waiting >= self._settings.sink.sends + _DELIVERIES_AHEAD:
            return False
        if pod_class is not PodClass.BACKFILL:
            return True
        backfilling = sum(flight.pod_class is PodClass.BACKFILL for flight in self._deliveries.values())
        # One send at least is free for an incremental touch that comes now.
        return backfilling < max(1, self._settings.sink.sends - 1)

    @property
    def _is_probing(self) -> bool:
        """Whether a delivery is under way that asks a sink or a source that was down when it began."""
        return self._probe is not None and not self._probe.done()

    def _take_next(self) -> tuple[Flight, Mapping[int, Sequence[Id]]] | None:
        """The keys of the next delivery: by turns to be sent again, or for the first time, if both wait.

        So keys that fail again and again hold up no others. Before them goes a witness that is called.
        """
        if self._blame.is_open:
            return self._take_witness()
        first, second = self._take_retry, self._take_flight
        if self._retried_last:
            first, second = second, first
        found = first() or second()
        if found is not None:
            self._retried_last = found[0].is_retried
        return found

    def _take_witness(self) -> tuple[Flight, Mapping[int, Sequence[Id]]] | None:
        """The key of a witness, once nothing is under way; if there is none, the sink is at fault.

        No pod waits for the key, so it flies apart. Thus it must not fly with others: nothing else is sent
        before it was heard.
        """
        if self._deliveries:
            return None
        key = self._blame.call_witness()
        if key is None:
            self._charge_sink()
            return None
        self._witness = self.machine.begin(PodClass.INCREMENTAL)
        return self._witness, by_shard([key])

    def _charge_sink(self) -> None:
        self._deliverer.sink_breaker.fail(self._blame.charge_sink(), longest=_PROBE_INTERVAL)

    def _take_retry(self) -> tuple[Flight, Mapping[int, Sequence[Id]]] | None:
        """The next keys that are due to be sent again."""
        if not self._retries.keys:  # as nearly always
            return None
        now = time.monotonic()
        for pod_class in _CLASSES:
            retry = self._retries.pop(pod_class, now) if self._has_room(pod_class) else None
            if retry is not None:
                retry[0].is_retried = True
                self.counters.retries[pod_class] += len(retry[1])
                return retry[0], by_shard(retry[1])
        return None

    def _next_retry(self) -> float | None:
        """When keys are due to be sent again for which there is room; None: when a delivery has ended."""
        if not self._retries.keys:
            return None
        due = [
            at
            for pod_class in _CLASSES
            if (at := self._retries.next_at(pod_class)) is not None and self._has_room(pod_class)
        ]
        return min(due, default=None)

    def _next_moment(self) -> float | None:
        """When there is something to do besides a mark: keys to send again, or pods to purge."""
        # Keys that land while an exchange is under way are purged by the next one; the end of this one wakes.
        purges = self.machine.has_finished and self._exchange is None
        moments = [self._next_retry(), self._pacer.next_at if purges else None]
        if not self._deliverer.is_up and not self._is_probing:
            probe = self._deliverer.next_probe
            moments.append(probe if probe > self._launched_at and self.machine.keys else None)
        return min((moment for moment in moments if moment is not None), default=None)

    def _take_flight(self) -> tuple[Flight, Mapping[int, Sequence[Id]]] | None:
        # Retries that wait count, too: a sink that delays everything is not given ever more.
        waiting = self._retries.put_off // self._deliverer.size.keys
        incremental, backfill = (
            keys if (keys := self.machine.waiting(pod_class)) and self._has_room(pod_class, waiting) else 0
            for pod_class in _CLASSES
        )
        chosen = self._share.choose(incremental=incremental, backfill=backfill)
        if chosen is None:
            return None
        most = min(self._deliverer.size.keys, self._gate.control.documents)
        if self._blame.is_on_sink and not self._deliverer.is_up:
            most = 1  # which gets through unless it is itself at fault
        flight = self.machine.take(chosen, most)
        if flight is None:
            return None
        incremental, backfill = (
            min(keys, self.machine.waiting(pod_class))
            for pod_class, keys in zip(_CLASSES, (incremental, backfill), strict=True)
        )
        self._share.record(chosen, incremental=incremental, backfill=backfill)
        if not self._not_before:  # as nearly always
            return flight, flight.by_shard()
        return flight, self._put_off(flight)

    def _put_off(self, flight: Flight) -> Mapping[int, Sequence[Id]]:
        """Queue the keys that failed in an earlier term for their time; the others of the flight."""
        groups, now = flight.by_shard(), time.monotonic()
        self._not_before = {key: due for key, due in self._not_before.items() if due > now}
        for shard, key in [one for one in self._not_before if one[1] in flight.groups.get(one[0], ())]:
            groups[shard].remove(key)
            due = self._not_before.pop((shard, key))
            self._retries.push(flight, [(shard, key)], due)
        return {shard: ids for shard, ids in groups.items() if ids}

    async def _settle(self) -> bool:
        done = [task for task in self._deliveries if task.done()]
        for task in done:
            outcome = task.result()  # if it raises, `_end_sends` looks at this one and the others
            del self._deliveries[task]
            await self._handle(outcome)
        return bool(done)

    async def _handle(self, outcome: Outcome) -> None:
        """Finish the keys that are done, park those given up, and queue the others to be sent again."""
        flight, now = outcome.flight, time.monotonic()
        if outcome.taken is not None:
            self._blame.note_taken(outcome.taken)
        if flight is self._witness:
            await self._hear_witness(outcome)
            return
        await self._finish_done(outcome)
        retries = self._retries
        for keys in outcome.unsent:
            if flight.is_retried:
                retries.push(flight, keys)  # it may have been cut, to find the document that is at fault
            else:
                self.machine.put_back(flight, by_shard(keys))
        for keys in outcome.unsure:
            retries.split(flight, keys, now)  # if one document is at fault, the others get through
        retries.delay(flight, outcome.delayed, now)
        if outcome.delayed:
            self._tell_delay(outcome, now)
        orphaned = f"no table attached to tube {self._active_term.term.tube!r} has shard"
        dead = [DeadLetter(key, f"{orphaned} {key[0]}", 0) for key in outcome.orphans]
        self.counters.rejects[flight.pod_class] += len(outcome.rejected)
        for key, reason in outcome.rejected.items():
            dead.append(DeadLetter(key, reason, retries.attempts_of(key) + 1))
        if outcome.failed:
            dead += await self._count_failures(outcome, now)
        await self._park(flight, dead, outcome.documents)
        outcome.trace.delivered(outcome.counts(), self.machine)

    async def _hear_witness(self, outcome: Outcome) -> None:
        """Unless the sink has taken it, the sink is at fault, and not the documents that failed."""
        self._witness = None
        for groups in outcome.done:
            await self._source.unpark(groups)
        if outcome.unsent or outcome.unsure or outcome.delayed:  # which have their own consequences
            self._blame.adjourn()
        elif self._blame.is_open:
            self._charge_sink()
        outcome.trace.delivered(outcome.counts(), self.machine)

    async def _count_failures(self, outcome: Outcome, now: float) -> list[DeadLetter]:
        """Queue failed keys to be sent again, and store their attempts; returns the keys to park."""
        flight, retries = outcome.flight, self._retries
        dead: list[DeadLetter] = []
        failed: list[FailedKey] = []
        for keys, reason in outcome.failed:
            letter = retries.fail(flight, keys, reason, now)
            if len(keys) > 1:
                continue
            may_park = self._blame.note_failure(keys[0], reason, is_given_up=letter is not None)
            if letter is not None and may_park:
                dead.append(letter)
            elif letter is not None:
                retries.push(flight, keys, now + backoff(letter.attempts))
            else:
                attempts = retries.attempts_of(keys[0])
                failed.append(FailedKey(*keys[0], reason, attempts, backoff(attempts)))
        if failed:
            await self._source.fail(failed)
        return dead

    def _tell_delay(self, outcome: Outcome, now: float) -> None:
        """Log why documents wait: the sink is up, so no other report says it."""
        if now >= self._delays_told_until:
            self._delays_told_until = now + _DELAYS_TOLD
            term, reason = self._active_term.term, outcome.why_delayed
            self._emit(SinkDelays(term.tube, term.partition, len(outcome.delayed), reason))

    async def _finish_done(self, outcome: Outcome) -> None:
        """Finish the keys that were delivered or skipped, and the keys that stay parked."""
        flight = outcome.flight
        for groups in outcome.done:
            self._finish(flight, groups)
            await self._source.unpark(groups)
            self.counters.documents[flight.pod_class] += sum(map(len, groups.values()))
        if outcome.skipped:
            groups = by_shard(outcome.skipped)
            self._finish(flight, groups)
            await self._source.unpark(groups)
            self.counters.skipped[flight.pod_class] += len(outcome.skipped)
        if outcome.held_back:
            self._finish(flight, by_shard(outcome.held_back))

    async def _park(
        self, flight: Flight, dead: Sequence[DeadLetter], documents: Mapping[Key, bytes | None]
    ) -> None:
        """Park these keys; they are done then, and not before. Or stop the tube: then they stay in it."""
        if not dead:
            return
        if self._settings.on_poison == "stop":
            await self._stop("poison", dead)
            return
        await fault(Point.BEFORE_PARK)
        items = [
            ParkItem(
                *letter.key,
                "U",
                flight.stamp,
                letter.reason,
                letter.attempts,
                document=documents.get(letter.key),
            )
            for letter in dead
        ]
        try:
            await self._source.park(items, self._settings.park_limit)
        except ParkLimitReached:
            await self._stop("park_limit", dead)
            return
        await fault(Point.AFTER_PARK)
        term = self._active_term.term
        for letter in dead:
            self._emit(Parked(term.tube, term.partition, *letter.key, letter.reason))
        self._finish(flight, by_shard(letter.key for letter in dead))
        self.counters.parked[flight.pod_class] += len(dead)

    async def _stop(self, why: str, dead: Sequence[DeadLetter]) -> None:
        """Stop the whole tube, in the database, so that it stays stopped under any leader."""
        term = self._active_term.term
        (shard, key), error = dead[0].key, dead[0].reason
        reason = f"key {shard}/{key} can't be delivered: {error}"
        if why == "park_limit":
            reason = f"more than {self._settings.park_limit} keys would be parked; the last one: {reason}"
        items = [FailedKey(*letter.key, letter.reason, letter.attempts) for letter in dead]
        is_news = await self._source.stop(why, reason, items)
        self._active_term.note_pause(f"{why}: {reason}", None, clock.now())
        if is_news:
            self._emit(TubeStopped(term.tube, term.partition, why, reason))

    def _finish(self, flight: Flight, groups: Mapping[int, Sequence[Id]]) -> None:
        self.machine.land_keys(flight, groups)
        self._retries.forget((shard, key) for shard, ids in groups.items() for key in ids)

    # --- the end --------------------------------------------------------------------------

    async def drain(self, limit: float) -> None:
        await super().drain(limit)
        self._traces.close()

    async def abort(self, *, is_over: bool) -> None:
        await super().abort(is_over=is_over)
        self._traces.close()

    async def _end_sends(self, limit: float, *, waits: bool = True) -> None:
        """Deliveries that are not sending end at once, the others when answered or after `limit`.

        If `waits`, wait until no write can still reach the sink, for as long as a request may last.
        """
        await self._control.stop()
        _cancel(self._deliveries.keys() - self._deliverer.sending)
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=limit)
        _cancel(self._deliveries)
        await asyncio.gather(*self._deliveries, return_exceptions=True)
        if waits:
            await self._deliverer.wait_for_unanswered()

    async def _settle_last(self) -> None:
        """Handle the outcomes of deliveries under way at the end, unless they failed or were cancelled."""
        ended = {task: None if task.cancelled() else task.exception() for task in self._deliveries}
        for failure in ended.values():
            if isinstance(failure, NotLeader):
                raise failure
        for task, failure in ended.items():
            if not task.cancelled() and failure is None:
                await self._handle(task.result())
        self._deliveries.clear()

    # --- metrics --------------------------------------------------------------------------

    def read_metrics(self) -> MeterRead | None:
        machine = self.machine
        return self.counters.read(self._where, machine.keys, machine.flying, machine.oldest)

    def read_load(self) -> Reading:
        sink, source = self._deliverer.sink_breaker, self._deliverer.source_breaker
        now = time.monotonic()
        down_at = max(sink.closed_at, source.closed_at) if sink.is_closed and source.is_closed else now
        clock_began = time.time() - now
        return Reading(
            self._active_term.term.leader_id,
            self.machine.longest_waiting(PodClass.INCREMENTAL),
            sum(self.counters.documents),
            self.sink_is_up,
            clock_began + down_at,
            clock_began + sink.refused_at,
        )

    @property
    def sink_is_up(self) -> bool:
        return self._deliverer.sink_breaker.is_closed

    def gauges(self) -> Samples:
        machine = self.machine
        yield "sink_up", (), self.sink_is_up
        yield "source_up", (), self._deliverer.source_breaker.is_closed
        yield "table_locked", (), bool(self._deliverer.locked)
        yield "partition_trusted", (), self._active_term.is_trusted
        yield "keys_in_flight", (), machine.flying
        for kind, label in CLASSES.items():
            yield "lag_seconds", (label,), age(machine.oldest_of(kind))
            yield "pods", (label,), machine.held(kind)
            yield "keys_waiting", (label,), machine.waiting(kind)
        yield "pods", ("control",), machine.control


def _cancel(tasks: Iterable[asyncio.Task[Outcome]]) -> None:
    for task in tasks:
        task.cancel()
