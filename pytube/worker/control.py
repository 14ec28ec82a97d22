"""Control pods of one partition: schedules become backfills, and ends of backfills become sweeps.

A pod `sweep` requests a sweep without a backfill: rows disappeared unseen (TRUNCATE at REPEATABLE READ, a
dropped partition).

A control pod is held, and stays in the tube, until its work is done. So a crash loses nothing: the next term
starts it again, and repeated work does no harm. A control pod that can't be processed is parked with the
reason; otherwise it would end one term after another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from pytube.errors import BackfillBusy, StatementFailed, UsageError
from pytube.events import BackfillStarted, BackfillTaken, Event
from pytube.faults import Point, fault
from pytube.model import Pod
from pytube.pipeline.inflight import InFlight
from pytube.sources.control import ControlSource
from pytube.sources.payload import is_end, start_seq_of, type_of
from pytube.sources.terms import Term
from pytube.worker.parking import UNKNOWN_CONTROL, Parking
from pytube.worker.sweep import Sweep
from pytube.worker.sweeps import Sweeps

_BUSY_PAUSE = 2.0
"""Seconds until a scheduled backfill is retried while its table is being backfilled."""
_NO_NUMBER = "a control pod whose start_seq or backfill is not the number of one"


class Control:
    """One partition's control pods, under one term."""

    def __init__(
        self,
        source: ControlSource,
        parking: Parking,
        sweep: Sweep,
        term: Term,
        emit: Callable[[Event], None],
        attention: asyncio.Event,
    ) -> None:
        """`attention` is set when a sweep is over."""
        self._source = source
        self._parking = parking
        self._term = term
        self._emit = emit
        self._sweeps = Sweeps(source, parking, sweep, term, emit, attention)
        self._scheduled: list[Pod] = []
        self._scheduled_at = 0.0

    @property
    def waits(self) -> bool:
        """Whether work is left."""
        return bool(self._scheduled) or self._sweeps.waits

    async def accept(self, pods: Sequence[Pod], machine: InFlight) -> None:
        """Accept control pods of a mark; the machine holds them."""
        strange: list[tuple[Pod, str]] = []
        for pod in pods:
            match type_of(pod):
                case "backfill_start" if (start := start_seq_of(pod)) is not None:
                    self._emit(BackfillStarted(self._term.tube, self._term.partition, pod.shard, start))
                    machine.finish_control(pod)
                case "backfill_end" | "sweep" if is_end(pod):
                    self._sweeps.add(pod)
                case "backfill_schedule":
                    self._scheduled.append(pod)
                case "backfill_start" | "backfill_end" | "sweep":
                    strange.append((pod, _NO_NUMBER))
                case _:
                    strange.append((pod, UNKNOWN_CONTROL))
        await self._set_aside(strange, machine)

    async def attend(self, machine: InFlight) -> bool:
        """Do the work that is due; whether there was any."""
        taken = False
        if self._scheduled and time.monotonic() >= self._scheduled_at:
            taken = await self._take(machine)
        return await self._sweeps.attend(machine) or taken

    async def stop(self) -> None:
        """Stop the sweep under way; its pods are not done."""
        await self._sweeps.stop()

    async def _take(self, machine: InFlight) -> bool:
        """Replace scheduled pods by backfills, unless their table is busy."""
        busy: list[Pod] = []
        wrong: list[tuple[Pod, str]] = []
        for pod in self._scheduled:
            try:
                number = await self._source.take_backfill(pod)
            except BackfillBusy:
                busy.append(pod)
            except UsageError as error:
                wrong.append((pod, str(error)))
            except StatementFailed as error:
                if not error.is_lasting:
                    raise
                wrong.append((pod, str(error)))
            else:
                await fault(Point.AFTER_TAKE)
                machine.drop_control(pod)
                if number is not None:
                    self._emit(BackfillTaken(self._term.tube, self._term.partition, pod.shard, number))
        done = len(busy) < len(self._scheduled)
        self._scheduled = busy
        self._scheduled_at = time.monotonic() + _BUSY_PAUSE
        await self._set_aside(wrong, machine)
        return done

    async def _set_aside(self, pods: Sequence[tuple[Pod, str]], machine: InFlight) -> None:
        await self._parking.set_aside(pods)
        for pod, _ in pods:
            machine.finish_control(pod)
