"""Marshal's rule at work: looks how the partitions fare, and leaves a tube to others that do better.

`pytube.pipeline.shedding` decides; this gives it what it needs, and acts. It asks Postgres only while some
partition is unwell, and then once in several cycles.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from pytube.db.session import Queries
from pytube.election.base import Sheds
from pytube.errors import RECOVERABLE
from pytube.events import Event, LoadResumed, LoadShed
from pytube.pipeline.shedding import CYCLES, LOOK_EVERY, Absences, Complaint, Place, Reading, TubeHealth
from pytube.sources import queries
from pytube.worker.metrics import TubeMetrics

Readings = Mapping[str, Mapping[int, Reading]]
"""By tube and partition, of the partitions that are led."""


@dataclass(slots=True)
class _Watched:
    """One tube that could be left to others."""

    metrics: TubeMetrics
    health: TubeHealth


@dataclass(slots=True)
class _Group:
    """Tubes that can only be left together; as a rule, one."""

    absences: Absences
    tubes: dict[str, _Watched]


class LoadShedder:
    """Watches the tubes of one host, and leaves one; or all, where their election lets no single one be left.

    All are left if one should be, and none of the others delivers, nor does an outbox that is left with them:
    one that does would be moved for nothing. So a process that is slow as a whole leaves, and one that does
    not reach one of its sinks stays.
    """

    def __init__(
        self,
        metrics: Mapping[str, TubeMetrics],
        elections: Sheds,
        pool: Queries,
        *,
        together: bool,
        beside: Callable[[], int] = lambda: 0,
        instance_id: UUID,
        shed_after: float,
        shed_pause: float,
        readings: Callable[[], Readings],
        emit: Callable[[Event], None],
    ) -> None:
        """Begins nothing. Times are seconds.

        Args:
            metrics: what is counted of each tube.
            elections: of the host; tubes that they don't serve, now or at all, are not given up.
            pool: asks the host what the others do.
            together: whether who leaves one tube leaves all.
            beside: how many records were delivered of outboxes that are left together with the tubes.
            instance_id: of this process.
            shed_after: for how long a partition must have been unwell.
            shed_pause: for how long the process is away then, the first time.
            readings: how the partitions fare now.
            emit: receives events.
        """
        self._cycle = shed_after / CYCLES
        self._elections = elections
        self._pool = pool
        self._readings = readings
        self._emit = emit
        self._beside = beside
        self._delivered_beside = beside()
        watched = {tube: _Watched(counted, TubeHealth(instance_id)) for tube, counted in metrics.items()}
        parts = [watched] if together else [{tube: one} for tube, one in watched.items()]
        self._groups = [_Group(Absences(shed_pause), part) for part in parts]

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self._cycle)
            try:
                await self._attend()
            except RECOVERABLE:
                continue  # told by what renews the terms; what is not known sheds nothing

    async def _attend(self) -> None:
        readings, now = self._readings(), time.time()
        due: dict[str, Complaint] = {}
        before, self._delivered_beside = self._delivered_beside, self._beside()
        for group in self._groups:
            self._end_absence(group)
            complaints = {
                tube: complaint
                for tube, watched in group.tubes.items()
                if (complaint := watched.health.observe(readings.get(tube, {}), now)) is not None
                and self._may_have_peers(tube)
            }
            if any(complaint.cycles % LOOK_EVERY == 0 for complaint in complaints.values()):
                due |= complaints
        if not due or self._delivered_beside > before:
            return
        places = await self._look(list(due))
        for group in self._groups:
            reasons = self._reasons(group, due, places)
            if reasons and group.absences.until is None:
                self._shed(group, readings, reasons)

    def _may_have_peers(self, tube: str) -> bool:
        """To the only process nobody is a peer; where that is not known, the look tells."""
        return self._elections.serves(tube) and self._elections.processes(tube) != 1

    async def _look(self, tubes: list[str]) -> dict[str, list[Place]]:
        places: dict[str, list[Place]] = {tube: [] for tube in tubes}
        for tube, *place in await self._pool.rows(queries.PLACES, {"tubes": tubes}):
            places[tube].append(Place(*place))
        return places

    def _reasons(
        self, group: _Group, due: Mapping[str, Complaint], places: Mapping[str, list[Place]]
    ) -> dict[str, str]:
        """Why the group is left, by tube; nothing when it is not."""
        reasons: dict[str, str] = {}
        for tube, watched in group.tubes.items():
            if tube in due:
                watched.health.look(places[tube])
                reason = watched.health.why_shed(due[tube], places[tube], self._elections.processes(tube))
                if reason is not None:
                    reasons[tube] = reason
        others = group.tubes.keys() - reasons.keys()
        return {} if any(group.tubes[tube].health.delivers for tube in others) else reasons

    def _shed(self, group: _Group, readings: Readings, reasons: Mapping[str, str]) -> None:
        seconds = group.absences.begin(time.monotonic())
        cause, why = next(iter(reasons.items()))
        for tube, watched in group.tubes.items():
            watched.metrics.sheds += 1
            watched.metrics.is_away = True
            reason = reasons.get(tube, f"all tubes share one consumer group, and of tube {cause!r} {why}")
            self._emit(LoadShed(tube, tuple(sorted(readings.get(tube, {}))), reason, seconds))
            self._elections.give_up(tube)

    def _end_absence(self, group: _Group) -> None:
        if group.absences.end_if_due(time.monotonic()):
            for tube, watched in group.tubes.items():
                watched.metrics.is_away = False
                self._emit(LoadResumed(tube))
                self._elections.come_back(tube)
