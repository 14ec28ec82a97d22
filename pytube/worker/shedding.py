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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID

from pytube.counts import say_count
from pytube.errors import RECOVERABLE
from pytube.events import LoadResumed, LoadShed
from pytube.sources import queries
from pytube.worker.database import Database
from pytube.worker.elections import ALL, Elections
from pytube.worker.metrics import SINK_NOT_OPEN, Reading
from pytube.worker.queues import Queue, Tube
from pytube.worker.tube_worker import TubeWorker

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
          leads nothing would do, too, where the election knows of such (`processes`).
        - of a stuck one: it has delivered pods meanwhile, and the sink has refused this worker since: it is
          not down for all, and the outage is not just over.
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
                f"{complaint.seconds:.0f} s, and takes documents of {say_count(len(well), 'other worker')}"
            )
        return None

    def _is_well(self, peer: UUID, led: list[Place], complaint: Complaint, ours: float) -> bool:
        if not all(place.works for place in led):
            return False
        if complaint.verdict == "stuck":
            refused_at = self._records[complaint.partition].reading.refused_at
            return refused_at > self._delivering.get(peer, float("inf"))
        return max(place.lag for place in led) < _CLEARLY_LESS * ours


def _peers(well: int, idle: int) -> str:
    told = [f"{say_count(well, 'other worker')} {'keeps' if well == 1 else 'keep'} up"] if well else []
    if idle:
        told.append(f"{say_count(idle, 'worker')} {'leads' if idle == 1 else 'lead'} nothing of the tube")
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


class LoadShedder:
    """Watches the tubes of one host, and leaves one; or all, where their election lets no single one be left.

    All are left if one should be, and none of the others delivers, nor does an outbox that is left with
    them: a tube that delivers would be moved for nothing. So a process that is slow as a whole leaves, and a
    process that does not reach one of its sinks stays. Outboxes are not judged.
    """

    def __init__(
        self,
        database: Database,
        queues: Mapping[str, Queue],
        elections: Elections,
        away: set[str],
        instance_id: UUID,
        *,
        shed_after: float,
        shed_pause: float,
    ) -> None:
        """Begins nothing. `queues`: later additions and removals are followed; `away`: receives the tubes
        that are left.

        `shed_after`: seconds for which a partition must have been unwell; `shed_pause`: of the first absence.
        """
        self._database = database
        self._queues = queues
        self._elections = elections
        self._away = away
        self._instance_id = instance_id
        self._cycle, self._pause = shed_after / CYCLES, shed_pause
        self._delivered_beside = self._count_records()
        self._health: dict[str, TubeHealth] = {}
        self._absences: dict[str, Absences] = {}
        """By the name of the group: a tube, or all."""
        self._follow()

    def _groups(self) -> dict[str, list[str]]:
        """The tubes that can only be left together, by the name of their group."""
        if self._elections.leaves_all:
            return {ALL: list(self._health)}
        return {tube: [tube] for tube in self._health}

    def _follow(self) -> None:
        """The tubes may be others now; the state of tubes that stay is kept."""
        tubes = [name for name, queue in self._queues.items() if queue.kind == "tube"]
        for tube in self._health.keys() - set(tubes):
            del self._health[tube]
            self._away.discard(tube)
        for tube in tubes:
            if tube not in self._health:
                self._health[tube] = TubeHealth(self._instance_id)
        for group, members in self._groups().items():
            absences = self._absences.setdefault(group, Absences(self._pause))
            if absences.until is not None:
                self._away.update(members)

    def _count_records(self) -> int:
        """Records that Kafka has acknowledged of outboxes that are left together with the tubes."""
        if not self._elections.leaves_all:
            return 0
        outboxes = [queue for queue in self._queues.values() if queue.kind == "outbox"]
        return sum(sum(one.documents) for outbox in outboxes for one in outbox.metrics.partitions.values())

    def read(self) -> Readings:
        """How the partitions of tubes fare that are led here; also those whose sink is not open."""
        readings: dict[str, dict[int, Reading]] = {}
        for (name, partition), active_term in self._database.terms.items():
            tube = self._queues.get(name)
            if isinstance(worker := active_term.worker, TubeWorker):
                readings.setdefault(name, {})[partition] = worker.read_load()
            elif isinstance(tube, Tube) and worker is None and not active_term.is_resting and tube.why_closed:
                not_open = replace(SINK_NOT_OPEN, refused_at=tube.shared_sink.refused_at)
                readings.setdefault(name, {})[partition] = not_open
        return readings

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._cycle)
            try:
                await self._attend()
            except RECOVERABLE:
                continue  # the renewals report it; unknown state sheds nothing

    async def _attend(self) -> None:
        self._follow()
        readings, now = self.read(), time.time()
        due: dict[str, Complaint] = {}
        before, self._delivered_beside = self._delivered_beside, self._count_records()
        for group, tubes in self._groups().items():
            self._end_absence(group, tubes)
            complaints = {
                tube: complaint
                for tube in tubes
                if (complaint := self._health[tube].observe(readings.get(tube, {}), now)) is not None
                and self._elections.processes(tube) != 1  # where it is not known, the look shows them
            }
            if any(complaint.cycles % LOOK_EVERY == 0 for complaint in complaints.values()):
                due |= complaints
        if not due or self._delivered_beside > before:
            return
        places = await self._look(list(due))
        now = time.time()
        for group, tubes in self._groups().items():
            reasons = self._reasons(tubes, due, places, now)
            if reasons and self._absences[group].until is None:
                self._shed(group, tubes, readings, reasons)

    async def _look(self, tubes: list[str]) -> dict[str, list[Place]]:
        places: dict[str, list[Place]] = {tube: [] for tube in tubes}
        for tube, *place in await self._database.pool.rows(queries.PLACES, {"tubes": tubes}):
            places[tube].append(Place(*place))
        return places

    def _reasons(
        self, tubes: list[str], due: Mapping[str, Complaint], places: Mapping[str, list[Place]], now: float
    ) -> dict[str, str]:
        """Why tubes that are left together are left, by tube; nothing when they are not."""
        reasons: dict[str, str] = {}
        for tube in tubes:
            if tube in due:
                health = self._health[tube]
                health.look(places[tube], now)
                reason = health.why_shed(due[tube], places[tube], self._elections.processes(tube))
                if reason is not None:
                    reasons[tube] = reason
        return {} if any(self._health[tube].delivers for tube in set(tubes) - reasons.keys()) else reasons

    def _shed(self, group: str, tubes: list[str], readings: Readings, reasons: Mapping[str, str]) -> None:
        seconds = self._absences[group].begin(time.monotonic())
        cause, why = next(iter(reasons.items()))
        for tube in tubes:
            if (queue := self._queues.get(tube)) is not None:  # it may be gone since the look
                queue.metrics.sheds += 1
            self._away.add(tube)
            reason = reasons.get(tube, f"all tubes share one consumer group, and of tube {cause!r} {why}")
            self._database.emit(LoadShed(tube, tuple(sorted(readings.get(tube, {}))), reason, seconds))

    def _end_absence(self, group: str, tubes: list[str]) -> None:
        if self._absences[group].end_if_due(time.monotonic()):
            for tube in tubes:
                self._away.discard(tube)
                self._database.emit(LoadResumed(tube))
