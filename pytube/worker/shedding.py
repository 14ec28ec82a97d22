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
    absences: Absences


class LoadShedder:
    """Watches the tubes of one host, as far as their elections let the process leave a single tube."""

    def __init__(
        self,
        metrics: Mapping[str, TubeMetrics],
        elections: Sheds,
        pool: Queries,
        *,
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
        self._watched = {
            tube: _Watched(counted, TubeHealth(instance_id), Absences(shed_pause))
            for tube, counted in metrics.items()
        }

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
        for tube, watched in self._watched.items():
            self._end_absence(tube, watched)
            complaint = watched.health.observe(readings.get(tube, {}), now)
            if complaint is not None and complaint.cycles % LOOK_EVERY == 0 and self._may_have_peers(tube):
                due[tube] = complaint
        if not due:
            return
        places = await self._look(list(due))
        for tube, complaint in due.items():
            watched = self._watched[tube]
            watched.health.look(places[tube])
            processes = self._elections.processes(tube)
            reason = watched.health.why_shed(complaint, places[tube], processes)
            if reason is not None and watched.absences.until is None:
                self._shed(tube, watched, tuple(sorted(readings[tube])), reason)

    def _may_have_peers(self, tube: str) -> bool:
        """To the only process nobody is a peer; where that is not known, the look tells."""
        return self._elections.serves(tube) and self._elections.processes(tube) != 1

    async def _look(self, tubes: list[str]) -> dict[str, list[Place]]:
        places: dict[str, list[Place]] = {tube: [] for tube in tubes}
        for tube, *place in await self._pool.rows(queries.PLACES, {"tubes": tubes}):
            places[tube].append(Place(*place))
        return places

    def _shed(self, tube: str, watched: _Watched, partitions: tuple[int, ...], reason: str) -> None:
        seconds = watched.absences.begin(time.monotonic())
        watched.metrics.sheds += 1
        watched.metrics.is_away = True
        self._emit(LoadShed(tube, partitions, reason, seconds))
        self._elections.give_up(tube)

    def _end_absence(self, tube: str, watched: _Watched) -> None:
        if watched.absences.end_if_due(time.monotonic()):
            watched.metrics.is_away = False
            self._emit(LoadResumed(tube))
            self._elections.come_back(tube)
