"""The line of one term: mark, fly, land, purge, round and round, until it is stopped.

Nothing here decides who leads; the line stops when its tenure ends. Killed between any two steps,
it leaves pods that are marked and not purged: the next term takes them over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pytube.errors import NotLeader
from pytube.events import Event
from pytube.faults import Point, fault
from pytube.model import Heartbeat, PodClass
from pytube.pipeline.inflight import Flight, InFlight
from pytube.pipeline.share import BackfillShare
from pytube.sources.pods import TubeSource
from pytube.sources.settled import Settled
from pytube.worker.delivery import Carrier, Delivery
from pytube.worker.meter import Meter
from pytube.worker.parking import Parking
from pytube.worker.rest import Rest

_FLIGHTS_AHEAD = 4
"""Flights begun beyond the free sends, so that a send never waits for a round."""

_IDS_PER_POD = 250.0
"""What pods hold at most as a rule; assumed until some were seen."""
_WEIGHT = 0.3


class Line:
    """One partition's pods on their way, under one tenure."""

    def __init__(
        self,
        source: TubeSource,
        carrier: Carrier,
        rest: Rest,
        settled: Callable[[], Settled | None],
        emit: Callable[[Event], None],
    ) -> None:
        self.tenure = carrier.tenure
        self.machine = InFlight()
        self.meter = Meter(self.tenure.term.tube, self.tenure.term.partition)
        self._source = source
        self._carrier = carrier
        self._parking = Parking(source, self.tenure.term, emit)
        self._rest = rest
        self._settled = settled
        self._emit = emit
        self._limits = carrier.limits
        self._share = BackfillShare(self._limits.backfill_share)
        self._deliveries: dict[asyncio.Task[None], Delivery] = {}
        self._stopping = False
        self._meter_at = time.monotonic() + self._limits.meter_interval
        self._ids_per_pod = _IDS_PER_POD

    # --- life -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop` is called, or the tenure ends.

        Raises:
            NotLeader: the term is over.
            DatabaseUnavailable: a session was lost.
        """
        await self._parking.open()
        while not self._stopping:
            if self.tenure.ended.done():
                raise self.tenure.ended.result()
            await self._round()

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping = True
        self._carrier.closing = True
        self._rest.news.set()

    def wake(self) -> None:
        """Pods may have come."""
        self._rest.wake()

    @property
    def is_awake(self) -> bool:
        """Whether it looks for pods by itself."""
        return not self._rest.is_deep

    def attend(self) -> None:
        """Something happened to the tenure: look at it now."""
        self._rest.news.set()

    async def _round(self) -> None:
        self._raise_failure()
        self.tenure.look()
        busy = await self._land_and_purge()
        busy |= await self._mark_if_due()
        busy |= self._launch()
        self._read_meter()
        if not busy:
            idle = not self.machine.keys
            await self._rest.wait(self._settled(), idle=idle, may_look=self._may_mark())

    # --- pods come in ---------------------------------------------------------------------

    async def _mark_if_due(self) -> bool:
        """Mark when it is time and there is room; whether pods came."""
        if not (self._rest.is_due() and self._may_mark()):
            return False
        self._rest.looking()
        limit = max(1, min(self._limits.mark_limit, int(self._room / self._ids_per_pod)))
        settled = self._settled()
        backfilled = self.machine.waiting(PodClass.BACKFILL)
        with_backfill = backfilled < self._limits.keys_in_flight // 2
        pods = await self._source.mark(
            limit,
            settled.seq if settled is not None else 0,
            with_backfill=with_backfill,
            passable=settled.passable if settled is not None else 0,
            spell=settled.spell if settled is not None else 0,
        )
        if pods:
            await fault(Point.AFTER_MARK)
            touches = sum(len(pod.ids) for pod in pods)
            self._saw_pods(touches / len(pods))
            self.meter.touches += touches
            control = self.machine.add(pods)
            await self._parking.set_aside(control)
            for pod in control:
                self.machine.finish_control(pod)
            self._launch()
        await self._rest.looked(len(pods), more=len(pods) == limit, left_out=not with_backfill)
        return bool(pods)

    @property
    def _room(self) -> int:
        """Keys that may still be held, or pods: of a key that is touched all the time there are many."""
        return self._limits.keys_in_flight - max(self.machine.keys, self.machine.pods)

    def _may_mark(self) -> bool:
        return self._room > 0 and self.tenure.is_trusted

    def _saw_pods(self, average: float) -> None:
        """Growth counts at once, shrinking slowly, so that a mark rarely brings more than fits."""
        if average < self._ids_per_pod:
            average = self._ids_per_pod + _WEIGHT * (average - self._ids_per_pod)
        self._ids_per_pod = max(1.0, average)

    # --- keys fly -------------------------------------------------------------------------

    def _launch(self) -> bool:
        """Begin flights while there is room for them; whether any was begun."""
        launched = False
        while self._under_way() < self._limits.sends + _FLIGHTS_AHEAD:
            flight = self._next_flight()
            if flight is None:
                break
            delivery = Delivery(self._carrier, flight)
            task = asyncio.create_task(delivery.run())
            self._deliveries[task] = delivery
            task.add_done_callback(lambda _: self._rest.news.set())
            launched = True
        return launched

    def _under_way(self) -> int:
        """Flights under way. Those that rest count by the keys they have left.

        So a few keys that are tried again hold nobody up, while a sink that puts everything off is
        not given ever more.
        """
        resting = [delivery.keys for delivery in self._deliveries.values() if delivery.resting]
        return len(self._deliveries) - len(resting) + sum(resting) // self._carrier.size.keys

    def _next_flight(self) -> Flight | None:
        incremental = self.machine.waiting(PodClass.INCREMENTAL)
        backfill = self.machine.waiting(PodClass.BACKFILL)
        chosen = self._share.choose(incremental=incremental, backfill=backfill)
        if chosen is None:
            return None
        flight = self.machine.take(chosen, self._carrier.size.keys)
        if flight is not None:
            self._share.took(chosen, len(flight), both_waited=bool(incremental and backfill))
        return flight

    def _raise_failure(self) -> None:
        """A delivery that failed fails the line."""
        for task in [task for task in self._deliveries if task.done()]:
            del self._deliveries[task]
            task.result()

    # --- keys land ------------------------------------------------------------------------

    async def _land_and_purge(self) -> bool:
        """Park, land and purge what deliveries reported; whether there was anything."""
        landed, self._carrier.landed = self._carrier.landed, []
        self.meter.parked += await self._parking.park(landed)
        for flight, report in landed:
            self.machine.land_keys(flight, report.keys)
            self.meter.documents += sum(map(len, report.keys.values())) - len(report.parked)
        await self._parking.unpark(landed)
        finished = self.machine.finished()
        if finished:
            await fault(Point.BEFORE_PURGE)
            await self._source.purge([pod.seq for pod in finished])
            await fault(Point.AFTER_PURGE)
            self.meter.purged(finished)
            self._beat()
        return bool(landed)

    # --- the end --------------------------------------------------------------------------

    async def drain(self, limit: float) -> None:
        """After an orderly `stop`: let sends under way finish, purge what landed, give back the rest.

        Args:
            limit: seconds for the sends.

        Raises:
            NotLeader: a send found that the term is over. Then nothing is purged.
            DatabaseUnavailable: a session was lost.
        """
        for failure in await self._end_deliveries(limit):
            if isinstance(failure, NotLeader):
                raise failure
        await fault(Point.DURING_DRAIN)
        await self._land_and_purge()
        await fault(Point.BEFORE_RESET)
        await self._source.reset(self.machine.unfinished())

    async def abort(self) -> None:
        """After the tenure or a session was lost: end all deliveries, write nothing more."""
        await self._end_deliveries(0.0)

    async def _end_deliveries(self, limit: float) -> list[BaseException]:
        """Those that are not sending end at once, the others when answered or after `limit`.

        What then may still reach the sink is waited for, as long as a request may last.

        Returns:
            What they failed with, cancellations too.
        """
        self._carrier.closing = True
        for task, delivery in self._deliveries.items():
            if not delivery.sending:
                task.cancel()
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=limit)
        for task in self._deliveries:
            task.cancel()
        outcomes = await asyncio.gather(*self._deliveries, return_exceptions=True)
        self._deliveries.clear()
        await self._carrier.clear_the_air()
        return [outcome for outcome in outcomes if outcome is not None]

    # --- what it tells --------------------------------------------------------------------

    def _read_meter(self) -> None:
        if time.monotonic() >= self._meter_at:
            self._emit(self.meter.read(self.machine))
            self._meter_at = time.monotonic() + self._limits.meter_interval

    def _beat(self) -> None:
        term = self.tenure.term
        meter = self.meter
        self.tenure.claim.beat(
            Heartbeat(self._carrier.client_id, term.leader_id, term.epoch, meter.purged_seq, meter.lag)
        )
