"""What a partition's worker asks of its source: to purge pods that are done, and to mark more.

One exchange is under way at a time, in a task of its own and one round trip. So Postgres works on
it while the worker handles the pods of the previous exchange and the outcomes of deliveries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from pytube.faults import Point, fault
from pytube.model import Heartbeat, Pod, PodClass
from pytube.pipeline.inflight import InFlight
from pytube.sources.pods import TubeSource
from pytube.sources.settled import Settled
from pytube.worker.delivery import Carrier
from pytube.worker.metrics import Metrics
from pytube.worker.poller import Poller

_IDS_PER_POD = 250.0
"""What pods hold at most as a rule; assumed until some were seen."""
_WEIGHT = 0.3


class Exchange:
    """The exchanges of one partition."""

    def __init__(
        self,
        source: TubeSource,
        machine: InFlight,
        carrier: Carrier,
        poller: Poller,
        metrics: Metrics,
        settled: Callable[[], Settled | None],
    ) -> None:
        """Nothing is begun here.

        Args:
            source: what is asked.
            machine: says what is done, and how much is held.
            carrier: the term and its limits.
            poller: says when to poll for pods, and learns what each poll found.
            metrics: counts what was marked and purged.
            settled: the settled seq, as far as it is known.
        """
        self._source = source
        self._machine = machine
        self._active_term = carrier.active_term
        self._limits = carrier.limits
        self._client_id = carrier.client_id
        self._poller = poller
        self._metrics = metrics
        self._settled = settled
        self._task: asyncio.Task[list[Pod]] | None = None
        self._ids_per_pod = _IDS_PER_POD
        self._reserved = 0
        """Room for touches that were marked and are not in the machine yet."""

    @property
    def under_way(self) -> bool:
        """Whether an exchange was begun whose result is not taken yet."""
        return self._task is not None

    async def begin(self) -> bool:
        """Begin an exchange unless one is under way; whether there was anything to do."""
        if self._task is not None:
            return False
        limit = 0
        if self._poller.is_due() and self.may_mark():
            room = self._room
            if self._room_for_backfill > 0:
                room = min(room, self._room_for_backfill)
            limit = max(1, min(self._limits.mark_limit, int(room / self._ids_per_pod)))
            self._poller.begin_poll()
        done = self._machine.finished()
        if not (done or limit):
            return False
        self._task = asyncio.create_task(self._purge_and_mark(done, limit))
        self._task.add_done_callback(lambda _: self._poller.attention.set())
        for _ in range(2):  # the task, and the one in it that sends: Postgres is at work when we go on
            await asyncio.sleep(0)
        return True

    def take_result(self) -> Sequence[Pod]:
        """The pods of an exchange that has ended; their room stays reserved until `release` is called.

        Raises:
            NotLeader: the term is over.
            DatabaseUnavailable: the session was lost.
        """
        if self._task is None or not self._task.done():
            return ()
        task, self._task = self._task, None
        return task.result()

    def release(self, pods: Sequence[Pod]) -> None:
        """Release the room reserved for these pods: the machine holds them now."""
        self._reserved -= _touches(pods)

    async def finish(self) -> Sequence[Pod]:
        """Wait for the exchange under way; its pods, as for `take_result`."""
        if self._task is not None:
            await asyncio.wait([self._task])
        return self.take_result()

    async def cancel(self) -> None:
        """Cancel the exchange under way; whether it had any effect is then unknown."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def purge(self) -> None:
        """Purge what is done, now."""
        if done := self._machine.finished():
            await self._purge_and_mark(done, 0)

    def may_mark(self) -> bool:
        """Whether there is room for more pods, and trust."""
        return self._room > 0 and self._active_term.is_trusted

    @property
    def _room(self) -> int:
        """Keys that may still be held, or pods: of a key that is touched all the time there are many.

        Control pods do not count. They are few, and may wait for a sink that can't be looked through now,
        which is no reason to keep back what it would take.
        """
        held = max(self._machine.keys, self._machine.pods - self._machine.control)
        return self._limits.keys_in_flight - held - self._reserved

    @property
    def _room_for_backfill(self) -> int:
        """Backfill may fill half of the room only: incremental pods are to be found, and to fly, at once."""
        return self._limits.keys_in_flight // 2 - self._machine.waiting(PodClass.BACKFILL)

    # --- one exchange ---------------------------------------------------------------------

    async def _purge_and_mark(self, done: Mapping[int, float], limit: int) -> list[Pod]:
        """Purge these (when each was inserted, by seq), and mark up to `limit` others; 0: none."""
        pods: list[Pod] = []
        if done:
            await fault(Point.BEFORE_PURGE)
        if limit:
            pods = await self._mark(list(done), limit)
        else:
            await self._source.purge(list(done))
        if done:
            await fault(Point.AFTER_PURGE)
            self._metrics.count_purged(done)
            self._send_heartbeat()
        if pods:
            await fault(Point.AFTER_MARK)
            self._observe(pods)
        return pods

    async def _mark(self, done: Sequence[int], limit: int) -> list[Pod]:
        settled = self._settled()
        with_backfill = self._room_for_backfill > 0
        pods = await self._source.mark(
            limit,
            settled.seq if settled is not None else 0,
            with_backfill=with_backfill,
            provisional=settled.provisional if settled is not None else 0,
            provisional_version=settled.provisional_version if settled is not None else 0,
            done=done,
        )
        await self._poller.end_poll(len(pods), more=len(pods) == limit, left_out=not with_backfill)
        return pods

    def _observe(self, pods: Sequence[Pod]) -> None:
        """Update the average: growth at once, shrinking slowly, so that marks rarely exceed the room."""
        touches = _touches(pods)
        self._metrics.touches += touches
        self._reserved += touches
        average = touches / len(pods)
        if average < self._ids_per_pod:
            average = self._ids_per_pod + _WEIGHT * (average - self._ids_per_pod)
        self._ids_per_pod = max(1.0, average)

    def _send_heartbeat(self) -> None:
        """Tell the other workers how far the term is."""
        term = self._active_term.term
        self._active_term.claim.beat(
            Heartbeat(
                self._client_id, term.leader_id, term.epoch, self._metrics.purged_seq, self._metrics.lag
            )
        )


def _touches(pods: Sequence[Pod]) -> int:
    return sum([len(pod.ids) for pod in pods])
