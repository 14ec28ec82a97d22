"""The worker of one partition, for one term: mark, deliver, purge, in rounds, until it is stopped.

It does not decide who leads; it stops when its active_term ends. If the process is killed between any two
steps, pods stay marked but not purged, and the next term takes them over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from pytube.errors import NotLeader
from pytube.events import Event
from pytube.faults import Point, fault
from pytube.model import Pod, PodClass
from pytube.pipeline.backfill_share import BackfillShare
from pytube.pipeline.inflight import Flight, InFlight
from pytube.sources.control import ControlSource
from pytube.sources.pods import TubeSource
from pytube.sources.settled import Settled
from pytube.worker.control import Control
from pytube.worker.delivery import Carrier, Delivery
from pytube.worker.exchange import Exchange
from pytube.worker.metrics import Metrics
from pytube.worker.parking import Parking
from pytube.worker.poller import Poller
from pytube.worker.sweep import Sweep

_FLIGHTS_AHEAD = 4
"""Flights begun beyond the free sends, so that a send never waits for a round."""


class PartitionWorker:
    """Delivers the pods of one partition under one active_term."""

    def __init__(
        self,
        source: TubeSource,
        carrier: Carrier,
        poller: Poller,
        control: ControlSource,
        settled: Callable[[], Settled | None],
        emit: Callable[[Event], None],
    ) -> None:
        self.active_term = carrier.active_term
        term = self.active_term.term
        self.machine = InFlight()
        self.metrics = Metrics(term.tube, term.partition)
        self._source = source
        self._carrier = carrier
        self._parking = Parking(source, term, emit)
        sweep = Sweep(carrier.sink, control, term, carrier.limits.sweep_backlog)
        self._control = Control(control, self._parking, sweep, term, emit, carrier.attention)
        self._poller = poller
        self._settled = settled
        self._emit = emit
        self._limits = carrier.limits
        self._share = BackfillShare(self._limits.backfill_share)
        self._deliveries: dict[asyncio.Task[None], Delivery] = {}
        self._exchange = Exchange(source, self.machine, carrier, poller, self.metrics, settled)
        self._stopping = False
        self._metrics_at = time.monotonic() + self._limits.meter_interval

    # --- life -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop` is called, or the active_term ends.

        Raises:
            NotLeader: the term is over.
            DatabaseUnavailable: a session was lost.
        """
        await self._parking.open()
        try:
            while not self._stopping:
                if self.active_term.ended.done():
                    raise self.active_term.ended.result()
                await self._round()
            self.machine.add(await self._exchange.finish())  # for `drain` to give back
        finally:
            await self._exchange.cancel()

    def stop(self) -> None:
        """Start nothing more."""
        self._stopping = True
        self._carrier.closing = True
        self._poller.attention.set()

    def wake(self) -> None:
        """Pods may have arrived."""
        self._poller.wake()

    @property
    def is_awake(self) -> bool:
        """Whether it polls for pods without being woken."""
        return not self._poller.is_deep

    def attend(self) -> None:
        """The active_term changed: check it now."""
        self._poller.attention.set()

    async def _round(self) -> None:
        self._raise_failure()
        self.active_term.check_trust()
        busy = await self._handle_outcomes()
        pods = self._exchange.take_result()
        busy |= await self._exchange.begin()  # Postgres works on the next exchange while we handle these
        if pods:
            await self._hold(pods)
            busy = True
        busy |= self._launch()
        busy |= await self._control.attend(self.machine)
        self._read_metrics()
        if not busy:
            may_poll = not self._exchange.under_way and self._exchange.may_mark()
            idle = not (self.machine.keys or self._control.waits)
            await self._poller.wait(self._settled(), idle=idle, may_poll=may_poll)

    async def _hold(self, pods: Sequence[Pod]) -> None:
        """Hold pods that were marked."""
        control = self.machine.add(pods)
        self._exchange.release(pods)
        await self._control.accept(control, self.machine)

    # --- flights --------------------------------------------------------------------------

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
            task.add_done_callback(lambda _: self._poller.attention.set())
            launched = True
        return launched

    def _under_way(self) -> int:
        """Flights under way. Those that back off count by the keys they have left.

        So a few keys that are retried hold up no others, and a sink that delays everything is not
        given ever more.
        """
        backing_off = [delivery.keys for delivery in self._deliveries.values() if delivery.backing_off]
        return len(self._deliveries) - len(backing_off) + sum(backing_off) // self._carrier.size.keys

    def _backfilling(self) -> int:
        """Flights of backfill under way, except those that back off."""
        return sum(
            delivery.is_backfill and not delivery.backing_off for delivery in self._deliveries.values()
        )

    def _next_flight(self) -> Flight | None:
        incremental = self.machine.waiting(PodClass.INCREMENTAL)
        backfill = self.machine.waiting(PodClass.BACKFILL)
        if self._backfilling() >= max(1, self._limits.sends - 1):
            backfill = 0  # one send at least is free for an incremental touch that comes now
        chosen = self._share.choose(incremental=incremental, backfill=backfill)
        if chosen is None:
            return None
        flight = self.machine.take(chosen, self._carrier.size.keys)
        if flight is not None:
            self._share.record(chosen, len(flight), both_waited=bool(incremental and backfill))
        return flight

    def _raise_failure(self) -> None:
        """A delivery that failed fails the worker."""
        for task in [task for task in self._deliveries if task.done()]:
            del self._deliveries[task]
            task.result()

    # --- outcomes -------------------------------------------------------------------------

    async def _handle_outcomes(self) -> bool:
        """Park dead letters and finish keys that deliveries reported; whether there were any."""
        outcomes, self._carrier.outcomes = self._carrier.outcomes, []
        self.metrics.parked += await self._parking.park(outcomes)
        for flight, outcome in outcomes:
            self.machine.land_keys(flight, outcome.keys)
            self.metrics.documents += sum(map(len, outcome.keys.values())) - len(outcome.dead_letters)
        await self._parking.unpark(outcomes)
        return bool(outcomes)

    # --- the end --------------------------------------------------------------------------

    async def drain(self, limit: float) -> None:
        """After an orderly `stop`: let sends under way finish, purge what is done, reset the rest.

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
        await self._handle_outcomes()
        await self._exchange.purge()
        await fault(Point.BEFORE_RESET)
        await self._source.reset(self.machine.unfinished())

    async def abort(self) -> None:
        """After the active_term or a session was lost: end all deliveries, write nothing more."""
        await self._end_deliveries(0.0)

    async def _end_deliveries(self, limit: float) -> list[BaseException]:
        """Those that are not sending end at once, the others when answered or after `limit`.

        What then may still reach the sink is waited for, as long as a request may last.

        Returns:
            What they failed with, cancellations too.
        """
        self._carrier.closing = True
        await self._control.stop()
        for task, delivery in self._deliveries.items():
            if not delivery.sending:
                task.cancel()
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=limit)
        for task in self._deliveries:
            task.cancel()
        outcomes = await asyncio.gather(*self._deliveries, return_exceptions=True)
        self._deliveries.clear()
        await self._carrier.wait_for_unanswered()
        return [outcome for outcome in outcomes if outcome is not None]

    # --- metrics -------------------------------------------------------------------------

    def _read_metrics(self) -> None:
        if time.monotonic() >= self._metrics_at:
            self._emit(self.metrics.read(self.machine))
            self._metrics_at = time.monotonic() + self._limits.meter_interval
