"""Control pods of one partition: schedules become backfills, and ends of backfills become sweeps.

A pod `sweep` requests a sweep without a backfill: rows disappeared unseen (TRUNCATE at REPEATABLE READ, a
dropped partition). One sweep is under way at a time; ends of one shard that wait together are one sweep, by
the latest of their start seqs.

A control pod is held, and stays in the tube, until its work is done. So a crash loses nothing: the next term
starts it again, and repeated work does no harm. A control pod that can't be processed is parked with the
reason; otherwise it would end one term after another.

The sweep of a shard touches what the sink holds and the backfill has not written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytube.errors import BackfillBusy, SinkError, SinkTimeout, StatementFailed, UsageError
from pytube.events import (
    BackfillFinished,
    BackfillStarted,
    BackfillTaken,
    Parked,
    SweepFailed,
    SweepFinished,
)
from pytube.faults import Point, fault
from pytube.model import Id, Pod
from pytube.pipeline.inflight import InFlight
from pytube.pipeline.retry_queue import BackOff
from pytube.sinks.base import Scanning, Sink, why_no_scan
from pytube.sources.pods import ParkItem, TubeSource, asks_for_sweep, is_end, start_seq_of, type_of
from pytube.worker.active_term import ActiveTerm

if TYPE_CHECKING:
    from pytube.worker.queues import Tube

_SILENCE = 300.0
"""Seconds that a scan may take for one page."""
_CLOSING = 5.0
"""Seconds that it may take to end."""
_POLL_INTERVAL = 0.25
"""Seconds between checks how many backfill pods wait, and whether an end may be acted upon."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep."""

    keys: int
    seconds: float
    skipped: str | None


async def sweep(sink: Sink, source: TubeSource, tube: str, shard: int, start_seq: int, backlog: int) -> Swept:
    """Touch all of the shard with a stamp below `start_seq` at the sink, page by page.

    Nothing is touched while more than `backlog` backfill pods wait in the tube.

    Raises:
        SinkError: to be begun again later; keys touched twice do no harm.
        Fenced, WrongPartitions: the term is over.
    """
    began = time.monotonic()
    skipped = why_no_scan(sink)
    keys = 0
    if skipped is None and isinstance(sink, Scanning):
        async with aclosing(_pages(sink, tube, shard, start_seq)) as pages:
            async for page in pages:
                # A key of another type is left by an earlier tube of the same name: it is not this tube's.
                ids = list(dict.fromkeys(filter(source.keys.has, page)))
                if ids:
                    while await source.count_backfill(backlog + 1) > backlog:  # noqa: ASYNC110 # a table
                        await asyncio.sleep(_POLL_INTERVAL)
                    await source.touch(shard, ids)
                    await fault(Point.DURING_SWEEP)
                keys += len(ids)
    return Swept(keys, time.monotonic() - began, skipped)


async def _pages(sink: Scanning, tube: str, shard: int, start_seq: int) -> AsyncGenerator[Sequence[Id]]:
    """What the scan gives; whatever else it raises is a `SinkError`."""
    scan = sink.scan(tube, shard, start_seq)
    try:
        while (page := await _next(scan)) is not None:
            if page:
                yield page
    except SinkError:
        raise
    except Exception as error:
        raise SinkError(f"the scan failed: {type(error).__name__}: {error}") from error
    finally:
        if isinstance(scan, AsyncGenerator):  # so that the sink frees its resources now
            with suppress(Exception):
                async with asyncio.timeout(_CLOSING):
                    await scan.aclose()


async def _next(scan: AsyncIterator[Sequence[Id]]) -> Sequence[Id] | None:
    """The next page, or None at the end; `SinkTimeout` when it does not come."""
    limit = asyncio.timeout(_SILENCE)
    try:
        async with limit:
            return await anext(scan, None)
    except TimeoutError:
        if not limit.expired():
            raise
        raise SinkTimeout(f"the sink was looked through for {_SILENCE:g} s without a result") from None


_BUSY_PAUSE = 2.0
"""Seconds until a scheduled backfill is retried while its table is being backfilled."""
_NO_NUMBER = "a control pod whose start_seq or backfill is not the number of one"
_UNKNOWN = "a control pod that this version of the worker does not act upon"
_RELATED = "only the backfill of a root table sweeps"


class Control:
    """One partition's control pods, under one term."""

    def __init__(self, active_term: ActiveTerm, source: TubeSource, machine: InFlight, tube: Tube) -> None:
        self._active_term = active_term
        self._source = source
        self._machine = machine
        self._sink = tube.sink
        # More than a backfill itself keeps to, so that a backfill of hours holds no sweep up.
        self._backlog = 2 * tube.settings.backfill.backlog
        self._faults = tube.faults
        self._emit = tube.emit
        self._where = active_term.term.tube, active_term.term.partition
        self._scheduled: list[Pod] = []
        self._scheduled_at = 0.0
        self._ends: dict[int, list[Pod]] = {}
        """Ends of backfills, by shard."""
        self._finished: set[int] = set()
        """The seqs of ends whose backfill was said to be finished."""
        self._back_offs: dict[int, BackOff] = {}
        """Of shards whose sweeps fail."""
        self._failure: str | None = None
        """Why the last sweep failed; None when it did not."""
        self._sweeping: tuple[list[Pod], asyncio.Task[Swept]] | None = None
        self._look_at = 0.0

    @property
    def has_work(self) -> bool:
        return bool(self._scheduled or self._ends or self._sweeping)

    async def accept(self, pods: Sequence[Pod]) -> None:
        """Accept control pods of a mark; the machine holds them."""
        strange: list[tuple[Pod, str]] = []
        for pod in pods:
            match type_of(pod):
                case "backfill_start" if (start := start_seq_of(pod)) is not None:
                    self._emit(BackfillStarted(*self._where, pod.shard, start))
                    self._machine.finish_control(pod)
                case "backfill_end" | "sweep" if is_end(pod):
                    self._ends.setdefault(pod.shard, []).append(pod)
                case "backfill_schedule":
                    self._scheduled.append(pod)
                case "backfill_start" | "backfill_end" | "sweep":
                    strange.append((pod, _NO_NUMBER))
                case _:
                    strange.append((pod, _UNKNOWN))
        await self._set_aside(strange)

    async def attend(self) -> bool:
        busy = False
        if self._scheduled and time.monotonic() >= self._scheduled_at:
            busy = await self._take_scheduled()
        if self._sweeping is not None:
            return await self._end_sweep() or busy
        if self._ends and time.monotonic() >= self._look_at:
            return await self._begin_sweep() or busy
        return busy

    async def stop(self) -> None:
        """Stop the sweep under way; its pods are not done."""
        if self._sweeping is not None:
            _, task = self._sweeping
            self._sweeping = None
            task.cancel()
            await asyncio.wait([task])

    async def _park(self, pods: Sequence[tuple[Pod, str]]) -> None:
        if not pods:
            return
        await self._source.park(
            ParkItem(pod.shard, None, pod.op, pod.seq, reason, attempts=0, payload=pod.payload)
            for pod, reason in pods
        )
        for pod, reason in pods:
            self._emit(Parked(*self._where, pod.shard, None, reason))

    async def _set_aside(self, pods: Sequence[tuple[Pod, str]]) -> None:
        await self._park(pods)
        for pod, _ in pods:
            self._machine.finish_control(pod)

    # --- schedules ------------------------------------------------------------------------

    async def _take_scheduled(self) -> bool:
        """Replace scheduled pods by backfills, unless their table is busy; whether any was replaced."""
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
                self._machine.drop_control(pod)
                if number is not None:
                    self._emit(BackfillTaken(*self._where, pod.shard, number))
        done = len(busy) < len(self._scheduled)
        self._scheduled = busy
        self._scheduled_at = time.monotonic() + _BUSY_PAUSE
        await self._set_aside(wrong)
        return done

    # --- sweeps ---------------------------------------------------------------------------

    async def _begin_sweep(self) -> bool:
        """Sweep the first shard whose backfill is delivered, except shards that back off after a failure."""
        for shard, ends in list(self._ends.items()):
            back_off = self._back_offs.get(shard)
            if back_off is not None and time.monotonic() < back_off.until:
                continue
            pods = await self._ready(ends)
            if pods:
                self._start_sweep(shard, pods)
                return True
        self._look_at = time.monotonic() + _POLL_INTERVAL
        return False

    async def _ready(self, ends: Sequence[Pod]) -> list[Pod]:
        """The ends that may be acted upon: all, where the last may; else the first, or none."""
        if await self._source.may_sweep(max(ends, key=_seq)):
            return list(ends)
        first = min(ends, key=_seq)
        return [first] if len(ends) > 1 and await self._source.may_sweep(first) else []

    def _start_sweep(self, shard: int, pods: list[Pod]) -> None:
        self._keep(shard, [pod for pod in self._ends.pop(shard) if pod not in pods])
        for pod in pods:
            if type_of(pod) == "backfill_end" and pod.seq not in self._finished:
                self._finished.add(pod.seq)
                self._emit(BackfillFinished(*self._where, shard, start_seq_of(pod) or 0))
        task = asyncio.create_task(self._sweep(shard, pods))
        task.add_done_callback(lambda _: self._active_term.attention.set())
        self._sweeping = pods, task

    async def _sweep(self, shard: int, pods: Sequence[Pod]) -> Swept:
        starts = [start_seq_of(pod) or 0 for pod in pods if asks_for_sweep(pod)]
        if not starts:
            return Swept(0, 0.0, _RELATED)
        return await sweep(self._sink, self._source, self._where[0], shard, max(starts), self._backlog)

    async def _end_sweep(self) -> bool:
        assert self._sweeping is not None
        pods, task = self._sweeping
        if not task.done():
            return False
        self._sweeping = None
        try:
            swept = task.result()
        except SinkError as error:
            self._faults.log_sink("scan", error, partition=self._where[1])
            self._retry_later(pods, str(error))
        except StatementFailed as error:
            if not error.is_lasting:
                raise
            await self._park([(pod, str(error)) for pod in pods])
            await self._delete(pods)
        else:
            self._failure = None
            await self._delete(pods)
            start_seq = max(start_seq_of(pod) or 0 for pod in pods)
            shard = pods[0].shard
            self._emit(
                SweepFinished(*self._where, shard, start_seq, swept.keys, swept.seconds, swept.skipped)
            )
        return True

    async def _delete(self, pods: Sequence[Pod]) -> None:
        """Delete ends that were acted upon; the last one of a backfill finishes it."""
        await fault(Point.BEFORE_SWEEP_END)
        for pod in pods:
            await self._source.end_sweep(pod)
            self._machine.drop_control(pod)
            self._finished.discard(pod.seq)
        self._back_offs.pop(pods[0].shard, None)

    def _retry_later(self, pods: Sequence[Pod], reason: str) -> None:
        """Try again after the other shards: it may be this one only that can't be swept."""
        shard = pods[0].shard
        back_off = self._back_offs.setdefault(shard, BackOff())
        back_off.fail(time.monotonic())
        if back_off.failures == 1 and reason != self._failure:
            self._emit(SweepFailed(*self._where, shard, reason))
        self._failure = reason
        self._keep(shard, pods)

    def _keep(self, shard: int, pods: Sequence[Pod]) -> None:
        """Put these pods before the shard's pods that have come meanwhile, behind other shards."""
        if pods or shard in self._ends:
            self._ends[shard] = [*pods, *self._ends.pop(shard, [])]


def _seq(pod: Pod) -> int:
    return pod.seq
