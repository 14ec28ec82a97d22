"""What one line sets aside, with the reason; and what it takes back once it was delivered after all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pytube.events import Event, Parked
from pytube.faults import Point, fault
from pytube.model import Id, Key, Pod
from pytube.pipeline.inflight import Flight
from pytube.sources.pods import ParkItem, TubeSource
from pytube.sources.terms import Term
from pytube.worker.delivery import Landed

MOST_KNOWN = 100_000
"""Parked keys that are remembered; where there are more, the database is asked at each landing."""

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

    async def park(self, landed: Iterable[tuple[Flight, Landed]]) -> int:
        """Set aside what deliveries gave up; how many keys. To be done before they land."""
        items = [
            ParkItem(*gone.key, "U", flight.stamp, gone.reason, gone.attempts)
            for flight, report in landed
            for gone in report.parked
        ]
        if not items:
            return 0
        await fault(Point.BEFORE_PARK)
        await self._source.park(items)
        await fault(Point.AFTER_PARK)
        if self._known is not None:
            self._remember(self._known | {(item.shard, item.id) for item in items if item.id is not None})
        for item in items:
            self._tell(item.shard, item.id, item.error)
        return len(items)

    async def unpark(self, landed: Iterable[tuple[Flight, Landed]]) -> None:
        """A key that was parked once and is delivered now is well again."""
        if self._known is not None and not self._known:
            return
        well: set[Key] = set()
        for _, report in landed:
            sick = {gone.key for gone in report.parked}
            well |= {(shard, key) for shard, ids in report.keys.items() for key in ids} - sick
        if self._known is not None:
            well &= self._known
            self._known -= well
        if well:
            await self._source.unpark(well)

    async def set_aside(self, pods: Sequence[tuple[Pod, str]]) -> None:
        """Control pods that can't be acted upon are kept, each with the reason, for somebody who can."""
        if not pods:
            return
        await self._source.park(
            ParkItem(pod.shard, None, pod.op, pod.seq, reason, attempts=0, payload=pod.payload)
            for pod, reason in pods
        )
        for pod, reason in pods:
            self._tell(pod.shard, None, reason)

    def _remember(self, keys: set[Key]) -> None:
        self._known = keys if len(keys) <= MOST_KNOWN else None

    def _tell(self, shard: int, key: Id | None, reason: str) -> None:
        self._emit(Parked(self._term.tube, self._term.partition, shard, key, reason))
