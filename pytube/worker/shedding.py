"""Marshal's rule: when a worker gives up a tube's partitions, because others would serve them better.

A worker judges each partition that it leads once in a cycle:

    stuck    its sink is down, and took no document in the cycle
    behind   the key that has waited longest has waited longer than at the last look, by a tenth of the cycle
             or more: less is delivered than comes in
    well     neither

A term's inheritance is not held against it: while the key that waits longest is of a pod from before the
term, the partition is not behind. A backlog thus moves once at most, and not from worker to worker. The same
goes for the backlog of an outage: while that key is of a pod from before the sink or the source was last
down, the worker's speed is unknown. And a sink is down for this worker alone only if it refused a request
that began after others were seen to deliver: until a back-off has passed, the end of the outage is unseen.

`CYCLES` unwell cycles of one partition in a row, and the worker gives up all partitions of the tube, if some
other process is well (see `TubeHealth.why_shed`). So the only worker never does, nor do all of them; and a
sink that is down for all makes no worker give up anything, because then none is seen to deliver. When the
worker comes back and fails again, it is away twice as long the next time, unless it was well for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from pytube.db.session import Queries
from pytube.election.base import Sheds
from pytube.errors import RECOVERABLE
from pytube.events import Event, LoadResumed, LoadShed
from pytube.sources import queries
from pytube.worker.metrics import TubeMetrics

# --- decisions -----------------------------------------------------------------------------


CYCLES = 6
"""Unwell cycles in a row before a worker gives up partitions."""
LOOK_EVERY = 3
"""Unwell cycles between two looks at what the others do: a look costs Postgres something."""
_GROWTH = 0.1
"""Of a cycle: by so much the longest wait must grow, or measuring errors would count."""
_CLEARLY_LESS = 0.5
"""Of this worker's lag: a peer that has more would not do better."""
_MOST_DOUBLINGS = 5

Verdict = Literal["well", "behind", "stuck"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a partition says of itself at the end of a cycle. Moments are Unix times."""

    term: UUID
    longest_waiting: float | None
    """When the pod was inserted whose key has waited longest to be sent; None when none waits."""
    documents: int
    """Documents that the sink has acknowledged, of all terms."""
    sink_is_up: bool
    down_at: float = float("-inf")
    """When the sink or the source was last down, as far as is known."""
    refused_at: float = float("-inf")
    """When the last request began that was refused, since the sink has been down."""


SINK_NOT_OPEN = Reading(UUID(int=0), None, 0, sink_is_up=False)
"""Of a partition whose sink this process could not open yet."""


@dataclass(frozen=True, slots=True)
class Place:
    """A partition as the database shows it to all workers."""

    partition: int
    instance: UUID | None
    """The process that leads it; None: none does, or it is lost."""
    works: bool
    """Whether its sink and its source are up, as far as its leader has reported."""
    lag: float
    """Age of the oldest pod that is not delivered, in seconds; 0 when there is none."""
    first_seq: int | None
    """Of that pod."""


@dataclass(slots=True)
class _Record:
    """One partition under one term."""

    reading: Reading
    at: float
    began: float
    unwell: int = 0
    """Cycles in a row."""
    unwell_since: float = 0.0
    verdict: Verdict = "well"
    delivered: bool = False
    """Whether the sink took documents in the last cycle."""

    def judge(self, reading: Reading, now: float) -> None:
        self.delivered = reading.documents > self.reading.documents
        verdict = self._verdict(reading, now)
        if verdict != self.verdict:  # the end of an outage does not begin falling behind
            self.unwell, self.unwell_since = 0, self.at
        self.verdict = verdict
        self.unwell = 0 if verdict == "well" else self.unwell + 1
        self.reading, self.at = reading, now

    def _verdict(self, reading: Reading, now: float) -> Verdict:
        if not reading.sink_is_up and reading.documents == self.reading.documents:
            return "stuck"
        before, after = self.reading.longest_waiting, reading.longest_waiting
        if before is None or after is None or after < max(self.began, reading.down_at):
            return "well"
        cycle = now - self.at
        return "behind" if cycle - (after - before) >= _GROWTH * cycle else "well"


@dataclass(frozen=True, slots=True)
class Complaint:
    """The partition that has been unwell for longest."""

    partition: int
    verdict: Verdict
    cycles: int
    seconds: float


class TubeHealth:
    """How the partitions of one tube fare in this process, and the known state of its peers."""

    def __init__(self, instance: UUID) -> None:
        """`instance`: this process."""
        self._instance = instance
        self._records: dict[int, _Record] = {}
        self._seen: dict[int, int] = {}
        """The first pod of the partitions of peers, by partition, at the last look."""
        self._delivering: dict[UUID, float] = {}
        """When peers were first seen to have delivered pods between two looks."""

    @property
    def delivers(self) -> bool:
        """Whether the sink took documents of some partition in the last cycle."""
        return any(record.delivered for record in self._records.values())

    def observe(self, readings: Mapping[int, Reading], now: float) -> Complaint | None:
        """A cycle is over. `readings`: of the partitions that are worked on; `now`: the Unix time.

        Returns:
            The partition that has been unwell for longest, if any is.
        """
        before, self._records = self._records, {}
        for partition, reading in readings.items():
            record = before.get(partition)
            if record is None or record.reading.term != reading.term:
                record = _Record(reading, now, now)
            else:
                record.judge(reading, now)
            self._records[partition] = record
        unwell = [item for item in self._records.items() if item[1].unwell]
        if not unwell:
            self._seen.clear()
            self._delivering.clear()
            return None
        partition, worst = max(unwell, key=lambda item: item[1].unwell)
        return Complaint(partition, worst.verdict, worst.unwell, now - worst.unwell_since)

    def look(self, places: Iterable[Place], now: float) -> None:
        """What the database shows `now`: a peer delivers whose first pod of the last look is gone."""
        seen: dict[int, int] = {}
        for place in places:
            if place.instance is None or place.instance == self._instance:
                continue
            first = self._seen.get(place.partition)
            if place.works and first is not None and (place.first_seq is None or place.first_seq > first):
                self._delivering.setdefault(place.instance, now)
            if place.first_seq is not None:
                seen[place.partition] = place.first_seq
        self._seen = seen

    def why_shed(self, complaint: Complaint, places: Iterable[Place], processes: int | None) -> str | None:
        """Why the tube's partitions are better given up now; None: they are kept.

        Some peer must be well: sink and source of all partitions of the tube that it leads are up, and

        - of a partition that is behind: none of its partitions lags half as much as this one. A peer that
          leads nothing would do, too, where the election knows of such.
        - of a stuck one: it has delivered pods meanwhile, and the sink has refused this worker since: it is
          not down for all, and the outage is not just over.

        Args:
            complaint: as `observe` gave it.
            places: all partitions of the tube, as `look` has just seen them.
            processes: how many share the tube, this one included; None: the election does not know.
        """
        if complaint.cycles < CYCLES:
            return None
        places = list(places)
        of_peers: dict[UUID, list[Place]] = {}
        for place in places:
            if place.instance is not None and place.instance != self._instance:
                of_peers.setdefault(place.instance, []).append(place)
        ours = next((place.lag for place in places if place.partition == complaint.partition), 0.0)
        well = [peer for peer, led in of_peers.items() if self._is_well(peer, led, complaint, ours)]
        idle = 0 if processes is None else max(0, processes - 1 - len(of_peers))
        if complaint.verdict == "behind" and (well or idle):
            return (
                f"partition {complaint.partition} has fallen behind for {complaint.seconds:.0f} s, "
                f"to a lag of {ours:.0f} s, and {_peers(len(well), idle)}"
            )
        if complaint.verdict == "stuck" and well:
            return (
                f"the sink has taken nothing of partition {complaint.partition} for "
                f"{complaint.seconds:.0f} s, and takes documents of {_count(len(well), 'other worker')}"
            )
        return None

    def _is_well(self, peer: UUID, led: list[Place], complaint: Complaint, ours: float) -> bool:
        if not all(place.works for place in led):
            return False
        if complaint.verdict == "stuck":
            refused_at = self._records[complaint.partition].reading.refused_at
            return refused_at > self._delivering.get(peer, float("inf"))
        return max(place.lag for place in led) < _CLEARLY_LESS * ours


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _peers(well: int, idle: int) -> str:
    told = [f"{_count(well, 'other worker')} {'keeps' if well == 1 else 'keep'} up"] if well else []
    if idle:
        told.append(f"{_count(idle, 'worker')} {'leads' if idle == 1 else 'lead'} nothing of the tube")
    return " and ".join(told)


@dataclass(slots=True)
class Absences:
    """For how long a worker is away from a tube: twice as long each time that it did not stay well."""

    first: float
    """Seconds of the first absence."""
    times: int = 0
    """Absences in a row."""
    until: float | None = None
    """The end of the present one; None: it is there."""
    _back_at: float = field(default=float("-inf"))

    def begin(self, now: float) -> float:
        """The worker gives the tube up; for how many seconds."""
        if now - self._back_at > self._last:
            self.times = 0
        self.times += 1
        self.until = now + self._last
        return self._last

    def end_if_due(self, now: float) -> bool:
        """Whether the worker comes back now."""
        if self.until is None or now < self.until:
            return False
        self.until, self._back_at = None, now
        return True

    @property
    def _last(self) -> float:
        """Seconds of the last absence, which is also how long it must stay well for it to be forgotten."""
        return self.first * float(2 ** min(_MOST_DOUBLINGS, max(0, self.times - 1)))


# --- actions --------------------------------------------------------------------------------


Readings = Mapping[str, Mapping[int, Reading]]
"""By tube and partition, of the partitions that are led."""


@dataclass(slots=True)
class _Group:
    """Tubes that can only be left together; as a rule, one."""

    absences: Absences
    tubes: dict[str, TubeHealth]


class LoadShedder:
    """Watches the tubes of one host, and leaves one; or all, where their election lets no single one be left.

    All are left if one should be, and none of the others delivers, nor does an outbox that is left with
    them: a tube that delivers would be moved for nothing. So a process that is slow as a whole leaves, and a
    process that does not reach one of its sinks stays.
    """

    def __init__(
        self,
        metrics: Mapping[str, TubeMetrics],
        elections: Sheds,
        away: set[str],
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
            metrics: the counts of each tube.
            elections: of the host; tubes that they don't serve, now or at all, are not given up.
            away: receives the tubes that are left, until the process comes back.
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
        self._away = away
        self._pool = pool
        self._readings = readings
        self._emit = emit
        self._beside = beside
        self._delivered_beside = beside()
        self._instance_id, self._pause = instance_id, shed_pause
        self._metrics: Mapping[str, TubeMetrics] = {}
        self._together = _Group(Absences(shed_pause), {}) if together else None
        self._groups = [] if self._together is None else [self._together]
        self.follow(metrics)

    def follow(self, metrics: Mapping[str, TubeMetrics]) -> None:
        """These are the tubes from now on; the state of tubes that stay is kept."""
        for group in self._groups:
            for tube in group.tubes.keys() - metrics.keys():
                del group.tubes[tube]
                self._away.discard(tube)
        self._groups = [group for group in self._groups if group.tubes or group is self._together]
        for tube in metrics:
            if tube in self._metrics:
                continue
            group = self._together or _Group(Absences(self._pause), {})
            group.tubes[tube] = TubeHealth(self._instance_id)
            if group is not self._together:
                self._groups.append(group)
            elif group.absences.until is not None:
                self._away.add(tube)
        self._metrics = metrics

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self._cycle)
            try:
                await self._attend()
            except RECOVERABLE:
                continue  # the renewals report it; unknown state sheds nothing

    async def _attend(self) -> None:
        readings, now = self._readings(), time.time()
        due: dict[str, Complaint] = {}
        before, self._delivered_beside = self._delivered_beside, self._beside()
        for group in self._groups:
            self._end_absence(group)
            complaints = {
                tube: complaint
                for tube, health in group.tubes.items()
                if (complaint := health.observe(readings.get(tube, {}), now)) is not None
                and self._may_have_peers(tube)
            }
            if any(complaint.cycles % LOOK_EVERY == 0 for complaint in complaints.values()):
                due |= complaints
        if not due or self._delivered_beside > before:
            return
        places = await self._look(list(due))
        now = time.time()
        for group in self._groups:
            reasons = self._reasons(group, due, places, now)
            if reasons and group.absences.until is None:
                self._shed(group, readings, reasons)

    def _may_have_peers(self, tube: str) -> bool:
        """The only process has no peers; where their number is not known, the look shows them."""
        return self._elections.serves(tube) and self._elections.processes(tube) != 1

    async def _look(self, tubes: list[str]) -> dict[str, list[Place]]:
        places: dict[str, list[Place]] = {tube: [] for tube in tubes}
        for tube, *place in await self._pool.rows(queries.PLACES, {"tubes": tubes}):
            places[tube].append(Place(*place))
        return places

    def _reasons(
        self, group: _Group, due: Mapping[str, Complaint], places: Mapping[str, list[Place]], now: float
    ) -> dict[str, str]:
        """Why the group is left, by tube; nothing when it is not."""
        reasons: dict[str, str] = {}
        for tube, health in group.tubes.items():
            if tube in due:
                health.look(places[tube], now)
                reason = health.why_shed(due[tube], places[tube], self._elections.processes(tube))
                if reason is not None:
                    reasons[tube] = reason
        others = group.tubes.keys() - reasons.keys()
        return {} if any(group.tubes[tube].delivers for tube in others) else reasons

    def _shed(self, group: _Group, readings: Readings, reasons: Mapping[str, str]) -> None:
        seconds = group.absences.begin(time.monotonic())
        cause, why = next(iter(reasons.items()))
        for tube in group.tubes:
            self._metrics[tube].sheds += 1
            self._away.add(tube)
            reason = reasons.get(tube, f"all tubes share one consumer group, and of tube {cause!r} {why}")
            self._emit(LoadShed(tube, tuple(sorted(readings.get(tube, {}))), reason, seconds))

    def _end_absence(self, group: _Group) -> None:
        if group.absences.end_if_due(time.monotonic()):
            for tube in group.tubes:
                self._away.discard(tube)
                self._emit(LoadResumed(tube))
