"""One partition's ends of backfills, and the sweep that is under way: one at a time.

Ends of one shard that wait together are one sweep, by the latest start seq of theirs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytube.errors import SinkError, StatementFailed
from pytube.events import BackfillFinished, Event, SweepFailed, SweepFinished
from pytube.faults import Point, fault
from pytube.model import Pod
from pytube.pipeline.inflight import InFlight
from pytube.pipeline.retry_queue import backoff
from pytube.sources.control import ControlSource
from pytube.sources.payload import asks_for_sweep, start_seq_of, type_of
from pytube.sources.terms import Term
from pytube.worker.parking import Parking
from pytube.worker.sweep import Sweep, Swept

_POLL_INTERVAL = 0.25
"""Seconds between checks whether an end may be acted upon."""
_RELATED = "only the backfill of a root table sweeps"


@dataclass(slots=True)
class _BackOff:
    """A shard whose sweeps fail."""

    failures: int
    until: float


class Sweeps:
    """Under one term."""

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
        self._sweep = sweep
        self._term = term
        self._emit = emit
        self._attention = attention
        self._waiting: dict[int, list[Pod]] = {}
        self._finished: set[int] = set()
        """The seqs of those whose backfill was said to be finished."""
        self._back_offs: dict[int, _BackOff] = {}
        self._reason: str | None = None
        """Why the last one failed; None when it did not."""
        self._under_way: tuple[list[Pod], asyncio.Task[Swept]] | None = None
        self._look_at = 0.0

    @property
    def waits(self) -> bool:
        """Whether there is something left to do."""
        return bool(self._waiting or self._under_way)

    def add(self, pod: Pod) -> None:
        """Act upon this end when its time has come."""
        self._waiting.setdefault(pod.shard, []).append(pod)

    async def attend(self, machine: InFlight) -> bool:
        """Do what can be done now; whether anything was."""
        if self._under_way is not None:
            return await self._end(machine)
        if self._waiting and time.monotonic() >= self._look_at:
            return await self._begin()
        return False

    async def stop(self) -> None:
        """End the sweep that is under way; its pods are not done."""
        if self._under_way is not None:
            _, task = self._under_way
            self._under_way = None
            task.cancel()
            await asyncio.wait([task])

    # --- begin ----------------------------------------------------------------------------

    async def _begin(self) -> bool:
        """Sweep the first shard whose backfill is delivered, except those that back off after a failure."""
        for shard in list(self._waiting):
            back_off = self._back_offs.get(shard)
            if back_off is not None and time.monotonic() < back_off.until:
                continue
            pods = await self._ready(self._waiting[shard])
            if pods:
                self._start(shard, pods)
                return True
        self._look_at = time.monotonic() + _POLL_INTERVAL
        return False

    async def _ready(self, pods: Sequence[Pod]) -> list[Pod]:
        """Those that may be acted upon: all, where the last may; else the first, or none."""
        if await self._source.may_sweep(max(pods, key=_seq)):
            return list(pods)
        first = min(pods, key=_seq)
        return [first] if len(pods) > 1 and await self._source.may_sweep(first) else []

    def _start(self, shard: int, pods: list[Pod]) -> None:
        self._keep(shard, [pod for pod in self._waiting.pop(shard) if pod not in pods])
        for pod in pods:
            if type_of(pod) == "backfill_end" and pod.seq not in self._finished:
                self._finished.add(pod.seq)
                self._emit(
                    BackfillFinished(self._term.tube, self._term.partition, shard, start_seq_of(pod) or 0)
                )
        task = asyncio.create_task(self._run(shard, pods))
        task.add_done_callback(lambda _: self._attention.set())
        self._under_way = pods, task

    async def _run(self, shard: int, pods: Sequence[Pod]) -> Swept:
        starts = [start_seq_of(pod) or 0 for pod in pods if asks_for_sweep(pod)]
        if not starts:
            return Swept(0, 0.0, _RELATED)
        return await self._sweep.run(shard, max(starts))

    # --- end ------------------------------------------------------------------------------

    async def _end(self, machine: InFlight) -> bool:
        assert self._under_way is not None
        pods, task = self._under_way
        if not task.done():
            return False
        self._under_way = None
        try:
            swept = task.result()
        except SinkError as error:
            self._failed(pods, str(error))
        except StatementFailed as error:
            if not error.is_lasting:
                raise
            await self._parking.set_aside([(pod, str(error)) for pod in pods])
            await self._over(pods, machine)
        else:
            self._reason = None
            await self._over(pods, machine)
            self._emit_finished(pods, swept)
        return True

    async def _over(self, pods: Sequence[Pod], machine: InFlight) -> None:
        await fault(Point.BEFORE_SWEEP_END)
        for pod in pods:
            await self._source.end(pod)
            machine.drop_control(pod)
            self._finished.discard(pod.seq)
        self._back_offs.pop(pods[0].shard, None)

    def _failed(self, pods: Sequence[Pod], reason: str) -> None:
        """Try again later, after the others: it may be this shard only that can't be swept."""
        shard = pods[0].shard
        failures = self._back_offs[shard].failures + 1 if shard in self._back_offs else 1
        self._back_offs[shard] = _BackOff(failures, time.monotonic() + backoff(failures))
        if failures == 1 and reason != self._reason:
            self._emit(SweepFailed(self._term.tube, self._term.partition, shard, reason))
        self._reason = reason
        self._keep(shard, pods)

    def _keep(self, shard: int, pods: Sequence[Pod]) -> None:
        """These wait, before those of the shard that have come meanwhile; behind other shards."""
        if pods or shard in self._waiting:
            self._waiting[shard] = [*pods, *self._waiting.pop(shard, [])]

    def _emit_finished(self, pods: Sequence[Pod], swept: Swept) -> None:
        shard, start_seq = pods[0].shard, max(start_seq_of(pod) or 0 for pod in pods)
        found = swept.keys, swept.seconds, swept.skipped
        self._emit(SweepFinished(self._term.tube, self._term.partition, shard, start_seq, *found))


def _seq(pod: Pod) -> int:
    return pod.seq
