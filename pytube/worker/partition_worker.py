"""The worker of one partition, for one term: mark, deliver, purge, in rounds, until the term is given back.

It does not decide who leads. In each round it handles what has come since the last one (the end of the term,
a claim that is revoked, outcomes of deliveries, marked pods) and begins what there is to do. If the process
is killed between any two steps, pods stay marked but not purged, and the next term takes them over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from pytube import clock
from pytube.enrich import Enricher
from pytube.errors import NotLeader, ParkLimitReached
from pytube.events import Event, MeterRead, Parked, SinkDelays, TubeStopped
from pytube.faults import Point, fault
from pytube.logs import UserFaults
from pytube.model import Id, Key, Pod, PodClass
from pytube.pipeline.batches import BackfillShare, HighAverage, by_shard
from pytube.pipeline.inflight import Flight, InFlight
from pytube.pipeline.retry_queue import DeadLetter, RetryQueue, backoff
from pytube.pipeline.shedding import Reading
from pytube.sinks import Sink
from pytube.sources.pods import FailedKey, ParkItem, TubeSource
from pytube.sources.terms import Candidate
from pytube.transforms import Transforms
from pytube.worker.active_term import ActiveTerm
from pytube.worker.control import Control
from pytube.worker.database import Database
from pytube.worker.delivery import Deliverer, Outcome
from pytube.worker.exchange import Exchange
from pytube.worker.gate import SinkGate
from pytube.worker.limits import Limits
from pytube.worker.metrics import Meter, TubeMetrics
from pytube.worker.poller import Poller
from pytube.worker.tracing import Tracing

_DELIVERIES_AHEAD = 4
"""Deliveries begun beyond the free sends, so that a send never waits for a round."""
_IDS_PER_POD = 250.0
"""What pods hold at most as a rule; assumed until some were seen."""
_DELAYS_TOLD = 60.0
"""Seconds for which it is not told again that the sink puts documents off."""
_MOST_PARKED_IN_A_ROW = 100
"""Dead letters in a row, without a success, after which the sink is at fault, not the documents."""


class Means(Protocol):
    """What the partitions of a tube share, and each of its workers uses."""

    candidate: Candidate
    limits: Limits
    transforms: Transforms | None
    faults: UserFaults
    metrics: TubeMetrics
    tracing: Tracing

    @property
    def emit(self) -> Callable[[Event], None]:
        """Receives events."""

    @property
    def sink(self) -> Sink:
        """Where documents go."""

    @property
    def gate(self) -> SinkGate:
        """What each request to the sink passes."""

    @property
    def why_closed(self) -> str | None:
        """Why the sink has not been opened; None once it has."""

    @property
    def enricher(self) -> Enricher:
        """What reads them."""


class PartitionWorker:
    """Delivers the pods of one partition under one term."""

    def __init__(self, active_term: ActiveTerm, tube: Means, database: Database) -> None:
        """Starts nothing.

        Args:
            active_term: the term, and what happens to it.
            tube: sink, enricher and limits.
            database: where the pods are.
        """
        term = active_term.term
        self.machine = InFlight()
        self.counters = tube.metrics.partition(term.partition)
        self.meter = Meter(term.tube, term.partition, self.counters)
        self._active_term = active_term
        self._client_id = tube.candidate.client_id
        self._limits = tube.limits
        self._emit = tube.emit
        self._database = database
        self._source = TubeSource(database.pool, term)
        self._poller = Poller(database.pool, active_term)
        self._traces = tube.tracing.partition(term)
        self._deliverer = Deliverer(
            active_term,
            tube.enricher,
            tube.transforms,
            tube.sink,
            tube.gate,
            tube.limits,
            tube.faults,
            tube.metrics,
            self._traces,
        )
        self._control = Control(
            active_term,
            self._source,
            tube.sink,
            self.machine,
            tube.limits.sweep_backlog,
            tube.faults,
            tube.emit,
        )
        self._share = BackfillShare(tube.limits.backfill_share)
        self._retries = {pod_class: RetryQueue(tube.limits.attempts) for pod_class in PodClass}
        self._deliveries: dict[asyncio.Task[Outcome], Flight] = {}
        self._exchange = Exchange[Pod](
            active_term.attention,
            purge=self._source.purge,
            mark=self._mark,
            on_purged=self._on_purged,
            on_marked=self._on_marked,
        )
        self._ids_per_pod = HighAverage(_IDS_PER_POD)
        self._reserved = 0
        """Room for touches that were marked and are not in the machine yet."""
        self._parked_in_a_row = 0
        self._delays_told_until = float("-inf")
        self._not_before: dict[Key, float] = {}
        """Keys that failed in an earlier term, and when each is to be sent again; it goes alone then."""

    # --- life -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until the claim is revoked or the partition is paused.

        Raises:
            NotLeader: the term is over.
            DatabaseUnavailable: a session was lost.
        """
        await self._load_failed()
        try:
            while self._active_term.goes_on():
                await self._round()
            if self._active_term.is_revoked:
                await fault(Point.ON_REVOKE)
            self.machine.add(await self._exchange.finish() or ())  # for `drain` to give back
        finally:
            await self._exchange.cancel()

    async def _load_failed(self) -> None:
        """Go on with the attempts and back-offs of earlier terms."""
        now = time.monotonic()
        for key, (attempts, delay) in (await self._source.load_failed()).items():
            self._not_before[key] = now + delay
            for retries in self._retries.values():
                retries.recall(key, attempts)

    async def _round(self) -> None:
        self._active_term.check_trust()
        busy = await self._take_outcomes()
        pods = self._exchange.take()
        busy |= await self._begin_exchange()  # Postgres works on it while we handle these
        if pods:
            control = self._hold(pods)
            await self._control.accept(control)
            busy = True
        busy |= self._launch()
        busy |= await self._control.attend()
        if not busy:
            await self._poller.wait(
                self._database.settled,
                notified=self._database.notifications_work,
                idle=not (self.machine.keys or self._control.has_work),
                may_poll=not self._exchange.is_under_way and self._may_mark(),
                until=self._next_retry(),
            )

    def _hold(self, pods: Sequence[Pod]) -> list[Pod]:
        """Hold marked pods and count their touches; the control pods among them."""
        touches = _count_touches(pods)
        backfill = _count_touches([pod for pod in pods if pod.op == "B"])
        before = self.machine.keys
        control = self.machine.add(pods)
        self.counters.touches[PodClass.INCREMENTAL] += touches - backfill
        self.counters.touches[PodClass.BACKFILL] += backfill
        # A touch that adds no key has joined one that waits.
        self.counters.coalesced += touches - (self.machine.keys - before)
        self._reserved -= touches
        return control

    # --- marks and purges -----------------------------------------------------------------

    def _may_mark(self) -> bool:
        """Whether there is room for more pods, and trust."""
        return self._room > 0 and self._active_term.is_trusted

    @property
    def _room(self) -> int:
        """Keys that may still be held, or pods: of a key that is touched all the time there are many.

        Control pods do not count. They are few, and may wait for a sink that can't be scanned now,
        which is no reason to keep back what it would take.
        """
        held = max(self.machine.keys, self.machine.pods - self.machine.control)
        return self._limits.keys_in_flight - held - self._reserved

    @property
    def _room_for_backfill(self) -> int:
        """Backfill may fill half of the room only: incremental pods are to be found, and to fly, at once."""
        waiting = self.machine.waiting(PodClass.BACKFILL)
        return self._limits.keys_in_flight // 2 - waiting - self._reserved  # which may be backfill, too

    async def _begin_exchange(self) -> bool:
        """Begin to purge what is done and to mark more, unless that is under way; whether it was begun."""
        if self._exchange.is_under_way:
            return False
        done = self.machine.finished()
        limit = 0
        # A purge marks, too: that costs little more, and finds what has come since the last mark.
        if (done or self._poller.is_due()) and self._may_mark():
            room = self._room
            if self._room_for_backfill > 0:
                room = min(room, self._room_for_backfill)
            pods = int(room / max(1.0, self._ids_per_pod.value))
            limit = max(1, min(self._limits.mark_limit, pods))
        if not (done or limit):
            return False
        await self._exchange.begin(self._purge_and_mark(done, limit))
        return True

    def _purge_and_mark(self, done: Mapping[int, float], limit: int) -> Coroutine[Any, Any, list[Pod]]:
        return self._traces.exchange(self._exchange.purge_and_mark(done, limit), done)

    def _on_purged(self, done: Mapping[int, float]) -> None:
        self.meter.count_purged(done)
        self._active_term.beat(self._client_id, self.meter.purged_seq, self.meter.lag)

    def _on_marked(self, pods: Sequence[Pod]) -> None:
        touches = _count_touches(pods)
        self._reserved += touches
        self._ids_per_pod.observe(touches, len(pods))

    async def _mark(self, limit: int, done: Sequence[int]) -> list[Pod]:
        settled = self._database.settled
        with_backfill = self._room_for_backfill > 0
        self._poller.begin_poll(settled)
        pods = await self._source.mark(
            limit,
            settled.seq if settled is not None else 0,
            with_backfill=with_backfill,
            provisional=settled.provisional if settled is not None else 0,
            provisional_version=settled.provisional_version if settled is not None else 0,
            done=done,
        )
        await self._poller.end_poll(len(pods), more=len(pods) == limit, left_out=not with_backfill)
        return pods

    # --- deliveries -----------------------------------------------------------------------

    def _launch(self) -> bool:
        """Begin deliveries while there is room for them; whether any was begun."""
        launched = False
        while (found := self._take_retry() or self._take_flight()) is not None:
            flight, groups = found
            task = asyncio.create_task(self._deliver(flight, groups))
            task.add_done_callback(self._on_delivered)
            self._deliveries[task] = flight
            launched = True
        return launched

    def _on_delivered(self, _: asyncio.Task[Outcome]) -> None:
        self._active_term.attention.set()

    async def _deliver(self, flight: Flight, groups: Mapping[int, Sequence[Id]]) -> Outcome:
        """Deliver keys of a flight, but for those that are parked, unless a touch tries them again."""
        if not groups:
            return Outcome(flight)  # all of them were put off
        if self._limits.retry_on_touch or not (parked := await self._source.still_parked(groups)):
            return await self._deliverer.deliver(flight, groups)
        left = [(shard, key) for shard, ids in groups.items() for key in ids if (shard, key) not in parked]
        outcome = await self._deliverer.deliver(flight, by_shard(left)) if left else Outcome(flight)
        outcome.held_back += parked
        return outcome

    def _has_room(self, pod_class: PodClass, waiting: int = 0) -> bool:
        """Whether another delivery of the class may begin, while so many others wait to be sent again."""
        if len(self._deliveries) + waiting >= self._limits.sends + _DELIVERIES_AHEAD:
            return False
        if pod_class is not PodClass.BACKFILL:
            return True
        backfilling = sum(flight.pod_class is PodClass.BACKFILL for flight in self._deliveries.values())
        # One send at least is free for an incremental touch that comes now.
        return backfilling < max(1, self._limits.sends - 1)

    def _take_retry(self) -> tuple[Flight, Mapping[int, Sequence[Id]]] | None:
        """The next keys that are due to be sent again."""
        now = time.monotonic()
        for pod_class, retries in self._retries.items():
            retry = retries.pop(now) if self._has_room(pod_class) else None
            if retry is not None:
                self.counters.retries[pod_class] += len(retry[1])
                return retry[0], by_shard(retry[1])
        return None

    def _next_retry(self) -> float | None:
        """When keys are due to be sent again for which there is room; None: when a delivery has ended."""
        due = [
            retries.next_at
            for pod_class, retries in self._retries.items()
            if retries.next_at is not None and self._has_room(pod_class)
        ]
        return min(due, default=None)

    def _take_flight(self) -> tuple[Flight, Mapping[int, Sequence[Id]]] | None:
        """The next keys that were not sent yet."""
        # Retries that wait count, too: a sink that delays everything is not given ever more.
        waiting = sum(retries.keys for retries in self._retries.values()) // self._deliverer.size.keys
        incremental, backfill = (
            self.machine.waiting(pod_class) if self._has_room(pod_class, waiting) else 0
            for pod_class in PodClass
        )
        chosen = self._share.choose(incremental=incremental, backfill=backfill)
        if chosen is None:
            return None
        flight = self.machine.take(chosen, self._deliverer.size.keys)
        if flight is None:
            return None
        self._share.record(chosen, len(flight), both_waited=bool(incremental and backfill))
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
            self._retries[flight.pod_class].push(flight, [(shard, key)], due)
        return {shard: ids for shard, ids in groups.items() if ids}

    async def _take_outcomes(self) -> bool:
        """Handle the outcomes of deliveries, whose failure is ours; whether there were any."""
        done = [task for task in self._deliveries if task.done()]
        for task in done:
            outcome = task.result()  # if it raises, `_end_deliveries` looks at this one and the others
            del self._deliveries[task]
            await self._handle(outcome)
        return bool(done)

    async def _handle(self, outcome: Outcome) -> None:
        """Finish the keys that are done, park those given up, and queue the others to be sent again."""
        flight, now = outcome.flight, time.monotonic()
        await self._finish_done(outcome)
        retries = self._retries[flight.pod_class]
        for keys in outcome.unsent:
            retries.push(flight, keys)
        for keys in outcome.unsure:
            retries.halve(flight, keys, now)  # if one document is at fault, the others get through
        retries.delay(flight, outcome.delayed, now)
        if outcome.delayed:
            self._tell_delay(outcome, now)
        orphaned = f"no table attached to tube {self._active_term.term.tube!r} has shard"
        dead = [DeadLetter(key, f"{orphaned} {key[0]}", 0) for key in outcome.orphans]
        self.counters.rejects[flight.pod_class] += len(outcome.rejected)
        for key, reason in outcome.rejected.items():
            dead.append(DeadLetter(key, reason, retries.attempts_of(key) + 1))
        failed: list[FailedKey] = []
        for keys, reason in outcome.failed:
            letter = retries.fail(flight, keys, reason, now)
            if letter is not None and self._gives_up(flight, letter, now):
                dead.append(letter)
            elif letter is None and len(keys) == 1:
                attempts = retries.attempts_of(keys[0])
                failed.append(FailedKey(*keys[0], reason, attempts, backoff(attempts)))
        if failed:
            await self._source.fail(failed)
        await self._park(flight, dead, outcome.documents)
        outcome.trace.delivered(outcome.counts(), self.machine)

    def _tell_delay(self, outcome: Outcome, now: float) -> None:
        """The sink is up, so nothing else tells why documents wait."""
        if now >= self._delays_told_until:
            self._delays_told_until = now + _DELAYS_TOLD
            term, reason = self._active_term.term, outcome.why_delayed
            self._emit(SinkDelays(term.tube, term.partition, len(outcome.delayed), reason))

    async def _finish_done(self, outcome: Outcome) -> None:
        """Finish the keys that were delivered or skipped, and those that stay parked."""
        flight = outcome.flight
        if outcome.done:
            self._parked_in_a_row = 0
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

    def _gives_up(self, flight: Flight, letter: DeadLetter, now: float) -> bool:
        """Whether a document whose attempts are used up is parked; too many in a row are the sink's fault."""
        if self._parked_in_a_row < _MOST_PARKED_IN_A_ROW:
            self._parked_in_a_row += 1
            return True
        self._deliverer.sink_breaker.fail(
            f"{self._parked_in_a_row} documents in a row failed, so it is not their fault; "
            f"the last one: {letter.reason}"
        )
        self._retries[flight.pod_class].push(flight, [letter.key], now + backoff(letter.attempts))
        return False

    async def _park(
        self, flight: Flight, dead: Sequence[DeadLetter], documents: Mapping[Key, bytes | None]
    ) -> None:
        """Park these keys; they are done then, and not before. Or stop the tube: then they stay in it."""
        if not dead:
            return
        if self._limits.stop_on_poison:
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
            await self._source.park(items, self._limits.park_limit)
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
            reason = f"more than {self._limits.park_limit} keys would be parked; the last one: {reason}"
        items = [FailedKey(*letter.key, letter.reason, letter.attempts) for letter in dead]
        is_news = await self._source.stop(why, reason, items)
        self._active_term.note_pause(f"{why}: {reason}", None, clock.now())
        if is_news:
            self._emit(TubeStopped(term.tube, term.partition, why, reason))

    def _finish(self, flight: Flight, groups: Mapping[int, Sequence[Id]]) -> None:
        self.machine.land_keys(flight, groups)
        for retries in self._retries.values():  # those of an earlier term stand in both
            retries.forget((shard, key) for shard, ids in groups.items() for key in ids)

    # --- the end --------------------------------------------------------------------------

    async def drain(self, limit: float) -> None:
        """After `run` has returned: let sends under way finish, purge what is done, reset the rest.

        Args:
            limit: seconds for the sends.

        Raises:
            NotLeader: a send found that the term is over. Then nothing is purged.
            DatabaseUnavailable: a session was lost.
        """
        outcomes = await self._end_deliveries(limit)
        for failure in outcomes:
            if isinstance(failure, NotLeader):
                raise failure
        await fault(Point.DURING_DRAIN)
        for outcome in outcomes:
            if isinstance(outcome, Outcome):
                await self._handle(outcome)
        if done := self.machine.finished():
            await self._purge_and_mark(done, 0)
        await fault(Point.BEFORE_RESET)
        await self._source.reset(self.machine.unfinished())
        self._traces.close()

    async def abort(self) -> None:
        """After the term or a session was lost: end all deliveries, write nothing more."""
        await self._end_deliveries(0.0)
        self._traces.close()

    async def _end_deliveries(self, limit: float) -> Sequence[Outcome | BaseException]:
        """Those that are not sending end at once, the others when answered or after `limit`.

        What then may still reach the sink is waited for, as long as a request may last.

        Returns:
            What came of them, cancellations and other failures too.
        """
        await self._control.stop()
        _cancel(self._deliveries.keys() - self._deliverer.sending)
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=limit)
        _cancel(self._deliveries)
        outcomes = await asyncio.gather(*self._deliveries, return_exceptions=True)
        self._deliveries.clear()
        await self._deliverer.wait_for_unanswered()
        return outcomes

    # --- metrics --------------------------------------------------------------------------

    def read_metrics(self) -> MeterRead | None:
        """What was done since the last reading; None when nothing was, then and now, and nothing waits."""
        return self.meter.read(self.machine.keys, self.machine.flying)

    def read_load(self) -> Reading:
        """How the partition fares, for the decision whether others should have it."""
        return Reading(
            self._active_term.term.leader_id,
            self.machine.longest_waiting(PodClass.INCREMENTAL),
            sum(self.counters.documents),
            self.sink_is_up,
        )

    @property
    def sink_is_up(self) -> bool:
        """Whether the sink takes documents of this partition, as far as is known."""
        return self._deliverer.sink_breaker.is_closed

    @property
    def source_is_up(self) -> bool:
        """Whether rows of this partition can be read, as far as is known."""
        return self._deliverer.source_breaker.is_closed

    @property
    def is_trusted(self) -> bool:
        """Whether a write may begin now."""
        return self._active_term.is_trusted


def _cancel(tasks: Iterable[asyncio.Task[Outcome]]) -> None:
    for task in tasks:
        task.cancel()


def _count_touches(pods: Sequence[Pod]) -> int:
    return sum([len(pod.ids) for pod in pods])
