"""Control pods of one line: schedules become backfills, and ends of backfills become sweeps.

A pod `sweep` asks for one without a backfill: rows went away unseen (TRUNCATE at REPEATABLE READ, a
partition that was dropped).

Until it was acted upon, a control pod is held, and stays in the tube. So a crash costs nothing: the
next term begins with it again, and whatever is done twice does no harm.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytube.errors import BackfillBusy, SinkError, UsageError
from pytube.events import BackfillFinished, BackfillStarted, BackfillTaken, Event, SweepFailed, SweepFinished
from pytube.faults import Point, fault
from pytube.model import Pod
from pytube.pipeline.inflight import InFlight
from pytube.pipeline.redelivery import delay
from pytube.sinks.base import Sink
from pytube.sources.control import ControlSource
from pytube.sources.terms import Term
from pytube.worker.parking import UNKNOWN_CONTROL, Parking
from pytube.worker.sweep import Swept, sweep

_LOOK_AGAIN = 0.25
"""Seconds between looks at whether a backfill_end may be acted upon."""
_BUSY_PAUSE = 2.0
"""Seconds until a scheduled backfill whose table is being backfilled is tried again."""


class Control:
    """The control pods that one line holds, under one term."""

    def __init__(
        self,
        source: ControlSource,
        parking: Parking,
        sink: Sink,
        term: Term,
        emit: Callable[[Event], None],
        news: asyncio.Event,
    ) -> None:
        """`news` is set when a sweep is over."""
        self._source = source
        self._parking = parking
        self._sink = sink
        self._term = term
        self._emit = emit
        self._news = news
        self._scheduled: list[Pod] = []
        self._ends: list[Pod] = []
        self._sweeping: tuple[Pod, asyncio.Task[Swept]] | None = None
        self._scheduled_at = 0.0
        self._ends_at = 0.0
        self._failures = 0

    @property
    def waits(self) -> bool:
        """Whether there is something left to do."""
        return bool(self._scheduled or self._ends or self._sweeping)

    async def came(self, pods: Sequence[Pod], machine: InFlight) -> None:
        """A mark brought these control pods, which the machine holds."""
        strange: list[tuple[Pod, str]] = []
        for pod in pods:
            match _type(pod):
                case "backfill_start" if (start := _start_seq(pod)) is not None:
                    self._emit(BackfillStarted(self._term.tube, self._term.partition, pod.shard, start))
                    machine.finish_control(pod)
                case "backfill_end" | "sweep" if _start_seq(pod) is not None:
                    self._ends.append(pod)
                case "backfill_schedule":
                    self._scheduled.append(pod)
                case _:
                    strange.append((pod, UNKNOWN_CONTROL))
        await self._set_aside(strange, machine)

    async def attend(self, machine: InFlight) -> bool:
        """Do what can be done now; whether anything was."""
        now = time.monotonic()
        done = False
        if self._scheduled and now >= self._scheduled_at:
            done = await self._take(machine)
        if self._sweeping is not None:
            done |= await self._end_sweep(machine)
        elif self._ends and now >= self._ends_at:
            done |= await self._begin_sweep()
        return done

    async def stop(self) -> None:
        """End a sweep that is under way; its pod is not done."""
        if self._sweeping is not None:
            _, task = self._sweeping
            self._sweeping = None
            task.cancel()
            await asyncio.wait([task])

    # --- schedules ------------------------------------------------------------------------

    async def _take(self, machine: InFlight) -> bool:
        """Scheduled backfills take the place of their pods, unless their table is busy."""
        busy: list[Pod] = []
        wrong: list[tuple[Pod, str]] = []
        for pod in self._scheduled:
            try:
                number = await self._source.take_backfill(pod)
            except BackfillBusy:
                busy.append(pod)
            except UsageError as error:
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

    # --- sweeps ---------------------------------------------------------------------------

    async def _begin_sweep(self) -> bool:
        """Sweep the first shard whose backfill is delivered; one at a time."""
        for pod in self._ends:
            if not await self._source.may_sweep(pod):
                continue
            start_seq = _start_seq(pod) or 0
            if not self._failures and _type(pod) == "backfill_end":
                self._emit(BackfillFinished(self._term.tube, self._term.partition, pod.shard, start_seq))
            sweeping = sweep(self._sink, self._source, self._term.tube, pod, start_seq)
            task = asyncio.create_task(sweeping)
            task.add_done_callback(lambda _: self._news.set())
            self._sweeping = (pod, task)
            self._ends.remove(pod)
            return True
        self._ends_at = time.monotonic() + _LOOK_AGAIN
        return False

    async def _end_sweep(self, machine: InFlight) -> bool:
        assert self._sweeping is not None
        pod, task = self._sweeping
        if not task.done():
            return False
        self._sweeping = None
        try:
            swept = task.result()
        except SinkError as error:
            self._failures += 1
            if self._failures == 1:
                self._emit(SweepFailed(self._term.tube, self._term.partition, pod.shard, str(error)))
            self._ends.insert(0, pod)
            self._ends_at = time.monotonic() + delay(self._failures)
            return True
        self._failures = 0
        await fault(Point.BEFORE_SWEEP_END)
        await self._source.end(pod)
        machine.drop_control(pod)
        self._emit(
            SweepFinished(
                self._term.tube,
                self._term.partition,
                pod.shard,
                _start_seq(pod) or 0,
                swept.keys,
                swept.seconds,
                swept.skipped,
            )
        )
        return True

    # --- others ---------------------------------------------------------------------------

    async def _set_aside(self, pods: Sequence[tuple[Pod, str]], machine: InFlight) -> None:
        await self._parking.set_aside(pods)
        for pod, _ in pods:
            machine.finish_control(pod)


def _type(pod: Pod) -> object:
    payload: Any = pod.payload
    return payload.get("type") if isinstance(payload, Mapping) else None


def _start_seq(pod: Pod) -> int | None:
    """The start seq of a backfill's control pod; None when it has none that can be understood."""
    try:
        return int((pod.payload or {}).get("start_seq"))  # type: ignore[arg-type] # whatever it holds is tried
    except (TypeError, ValueError):
        return None
