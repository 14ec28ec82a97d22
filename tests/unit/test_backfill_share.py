"""A backfill beside live changes that never end: it gets its share of reads and sends, whatever they do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pytest

from pytube.db.locks import LockListener
from pytube.db.session import Session, SessionPool, Use
from pytube.enrich import Read
from pytube.model import Id, PodClass
from pytube.testing.memory import Faults, MemorySink
from tests.unit.fakes import FakeEnricher, gate_of
from tests.unit.rig import SETTINGS, Rig
from tests.unit.test_session_pool import FakePooled
from tests.unit.virtual_time import run_in_virtual_time

_KEYS = 1000
_BATCH = 100
_EVERY = 0.2
"""Seconds between two live changes of a partition; each read, and each send, takes a second."""


class SlowReader(FakeEnricher):
    """Takes a second for each read, in a session of a pool that partitions share."""

    def __init__(self, pool: SessionPool) -> None:
        super().__init__()
        self._pool = pool

    async def read(
        self, groups: Mapping[int, Sequence[Id]], *, urgent: bool = True, locks: LockListener | None = None
    ) -> Mapping[int, Read]:
        async with self._pool.session(Use.READ if urgent else Use.BACKFILL_READ, "t"):
            await asyncio.sleep(1)
            return await super().read(groups, urgent=urgent, locks=locks)


@dataclass
class Machine:
    """What partitions share, and how slow it is."""

    partitions: int = 1
    sessions: int = 100
    requests: int | None = None
    """That a sink bears at a time."""
    live: int = 1
    """Keys of each live change."""

    def backfill(self, *, beside_live: bool) -> tuple[float, int]:
        """How long a backfill takes, in seconds; and how many live changes wait for a read at its end."""
        return run_in_virtual_time(self._backfill(beside_live=beside_live))

    async def _backfill(self, *, beside_live: bool) -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        rigs = self._rigs()
        for rig in rigs:
            for first in range(0, _KEYS, 250):
                rig.insert(*range(first, first + 250), op="B")
            await rig.sink.open()
        began, change = loop.time(), _KEYS
        tasks = [asyncio.create_task(rig.worker.run()) for rig in rigs]
        try:
            while any(rig.worker.counters.documents[PodClass.BACKFILL] < _KEYS for rig in rigs):
                assert loop.time() - began < 10 * _KEYS / _BATCH * self.partitions, "it starves"
                for rig in rigs if beside_live else ():
                    rig.insert(*range(change, change + self.live))
                change += self.live
                await asyncio.sleep(_EVERY)
            waiting = sum(rig.worker.machine.waiting(PodClass.INCREMENTAL) for rig in rigs)
            return loop.time() - began, waiting
        finally:
            for rig, task in zip(rigs, tasks, strict=True):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await rig.worker.abort(is_over=True)

    def _rigs(self) -> list[Rig]:
        async def open_session() -> Session:
            return cast("Session", FakePooled(0))

        pool = SessionPool(open_session, self.sessions)
        gate = gate_of(documents=_BATCH, requests=self.requests)
        rigs = []
        for _ in range(self.partitions):
            sink = MemorySink()
            sink.faults = Faults(slow=1.0)
            rig = Rig(sink, None, gate, batch_documents=_BATCH)
            rig.enricher = rig.served.enricher = SlowReader(pool)
            rig.another_worker()
            rig.deliverer.size.observe(1, 10)
            rigs.append(rig)
        return rigs


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(Machine(), id="sends"),
        pytest.param(Machine(requests=1), id="one request at a time"),
        pytest.param(Machine(partitions=4, requests=4), id="requests that partitions share"),
        pytest.param(Machine(partitions=4, sessions=6), id="sessions that partitions share"),
    ],
)
def test_a_backfill_goes_on_beside_live_changes_that_always_wait(machine: Machine) -> None:
    alone, _ = machine.backfill(beside_live=False)
    beside, waiting = machine.backfill(beside_live=True)
    assert beside <= alone / SETTINGS.backfill_share + 5
    assert waiting <= 5 * machine.partitions / _EVERY, "live changes are read within some seconds"


def test_a_backfill_does_not_get_more_than_its_share_of_requests_beside_a_stream() -> None:
    """Live changes come faster than the sink takes them."""
    machine = Machine(requests=1, live=200)
    alone, _ = machine.backfill(beside_live=False)
    beside, _ = machine.backfill(beside_live=True)
    assert 3.5 * alone <= beside <= 5 * alone + 5


def test_a_backfill_is_nearly_as_fast_beside_a_trickle_of_live_changes() -> None:
    """Of four sends at a time, three may be backfill's; live changes alone would fill ten."""
    alone, _ = Machine().backfill(beside_live=False)
    beside, _ = Machine().backfill(beside_live=True)
    assert beside <= 2 * alone
