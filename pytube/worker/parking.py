"""Parks what one partition could not deliver, with the reason; unparks keys that are delivered later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pytube.events import Event, Parked
from pytube.faults import Point, fault
from pytube.model import Id, Key, Pod
from pytube.pipeline.inflight import Flight
from pytube.sources.pods import ParkItem, TubeSource
from pytube.sources.terms import Term
from pytube.worker.delivery import Outcome

MOST_KNOWN = 100_000
"""Parked keys that are remembered; with more, every outcome asks the database."""

UNKNOWN_CONTROL = "a control pod that this version of the worker does not act upon"


class Parking:
    """The parked keys of one partition, under one term."""

    def __init__(self, source: TubeSource, term: Term, emit: Callable[[Event], None]) -> None:
        self._source = source
        self._term = term
        self._emit = emit
        self._known: set[Key] | None = None

    async def open(self) -> None:
        """Learn which keys are parked already."""
        self._remember(await self._source.parked(MOST_KNOWN + 1))

    async def park(self, outcomes: Iterable[tuple[Flight, Outcome]]) -> int:
        """Park the dead letters of these outcomes; how many keys. Call it before the keys are done."""
        items = [
            ParkItem(*dead.key, "U", flight.stamp, dead.reason, dead.attempts)
            for flight, outcome in outcomes
            for dead in outcome.dead_letters
        ]
        if not items:
            return 0
        await fault(Point.BEFORE_PARK)
        await self._source.park(items)
        await fault(Point.AFTER_PARK)
        if self._known is not None:
            self._remember(self._known | {(item.shard, item.id) for item in items if item.id is not None})
        for item in items:
            self._emit_parked(item.shard, item.id, item.error)
        return len(items)

    async def unpark(self, outcomes: Iterable[tuple[Flight, Outcome]]) -> None:
        """Unpark the keys that were parked before and are delivered now."""
        if self._known is not None and not self._known:
            return
        delivered: set[Key] = set()
        for _, outcome in outcomes:
            dead = {letter.key for letter in outcome.dead_letters}
            delivered |= {(shard, key) for shard, ids in outcome.keys.items() for key in ids} - dead
        if self._known is not None:
            delivered &= self._known
            self._known -= delivered
        if delivered:
            await self._source.unpark(delivered)

    async def set_aside(self, pods: Sequence[tuple[Pod, str]]) -> None:
        """Park control pods that this worker can't act upon, for an operator or a newer worker."""
        if not pods:
            return
        await self._source.park(
            ParkItem(pod.shard, None, pod.op, pod.seq, reason, attempts=0, payload=pod.payload)
            for pod, reason in pods
        )
        for pod, reason in pods:
            self._emit_parked(pod.shard, None, reason)

    def _remember(self, keys: set[Key]) -> None:
        self._known = keys if len(keys) <= MOST_KNOWN else None

    def _emit_parked(self, shard: int, key: Id | None, reason: str) -> None:
        self._emit(Parked(self._term.tube, self._term.partition, shard, key, reason))
