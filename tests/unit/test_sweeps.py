"""Sweeps of a partition: which come together, which wait, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from pytube.config import BackfillConfig
from pytube.errors import Fenced, SinkUnavailable
from pytube.events import BackfillFinished, Parked, SweepFailed, SweepFinished
from pytube.model import Id
from pytube.testing import MemorySink
from tests.unit.rig import Rig
from tests.unit.test_control import END, live, old, refused


class Watched(MemorySink):
    """A sink whose scans are counted, also those that are open, and fail or hang in some shards."""

    def __init__(self) -> None:
        super().__init__()
        self.scans: list[tuple[int, int]] = []
        self.open_scans = 0
        self.failing: set[int] = set()
        self.hanging: set[int] = set()

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        self.scans.append((shard, below_seq))
        self.open_scans += 1
        try:
            if shard in self.failing:
                raise SinkUnavailable(f"shard {shard} can't be read")
            if shard in self.hanging:
                await asyncio.Event().wait()
            async for page in super().scan(tube, shard, below_seq):
                yield page
        finally:
            self.open_scans -= 1


async def test_ends_of_one_shard_that_wait_together_are_one_sweep() -> None:
    """Each TRUNCATE adds one; the latest start seq serves for all."""
    sink = Watched()
    rig = Rig(sink)
    old(rig, 1, 2, 3, seq=40)
    for start in (10, 50, 30):
        rig.tube.insert(op="B", payload={"type": "sweep", "start_seq": start})
    rig.tube.insert(op="B", payload=END | {"start_seq": "20"})
    rig.tube.insert(op="B", payload=END | {"sweep": False, "start_seq": "90"})
    async with rig.running():
        await rig.until_empty()
    assert live(rig) == set()
    assert sink.scans == [(0, 50)]
    assert sorted(event.start_seq for event in rig.emitted(BackfillFinished)) == [20, 90]
    assert [event.keys for event in rig.emitted(SweepFinished)] == [3]


async def test_a_key_that_a_page_gives_twice_is_touched_once() -> None:
    """As one whose document is split: the sink gives it for each of its parts."""

    class Twice(MemorySink):
        async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
            async for page in super().scan(tube, shard, below_seq):
                yield [*page, *page]

    rig = Rig(Twice())
    old(rig, 7)
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until_empty()
    assert live(rig) == set()
    assert [event.keys for event in rig.emitted(SweepFinished)] == [1]


async def test_an_end_does_not_wait_for_a_later_one() -> None:
    sink = Watched()
    rig = Rig(sink)
    rig.tube.insert(op="B", payload=END)
    rig.enricher.go.clear()
    rig.insert(1, op="B")
    later = rig.tube.insert(op="B", payload=END | {"start_seq": "60"})
    async with rig.running():
        await rig.until("the first is swept", lambda: sink.scans == [(0, 50)])
        assert later in rig.tube.pods
        rig.enricher.go.set()
        await rig.until_empty()
    assert sink.scans == [(0, 50), (0, 60)]


async def test_a_shard_that_cannot_be_swept_holds_no_other_up() -> None:
    sink = Watched()
    sink.failing = {0}
    rig = Rig(sink)
    bad = rig.tube.insert(op="B", payload=END)
    for shard in (1, 2, 3):
        old(rig, 7, shard=shard)
        rig.tube.insert(op="B", payload=END, shard=shard)
    async with rig.running():
        await rig.until("the others are swept", lambda: list(rig.tube.pods) == [bad])
        sink.failing.clear()
        await rig.until_empty()
    assert live(rig) == set()
    assert [event.shard for event in rig.emitted(SweepFailed)] == [0]
    assert sorted(event.shard for event in rig.emitted(BackfillFinished)) == [0, 1, 2, 3], "each once"


async def test_a_scan_that_hangs_is_given_up_and_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytube.worker.control._SILENCE", 0.05)
    sink = Watched()
    sink.hanging = {0}
    rig = Rig(sink)
    old(rig, 5)
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until("somebody is told", lambda: rig.emitted(SweepFailed))
        assert "without a result" in rig.emitted(SweepFailed)[0].reason
        assert sink.open_scans == 0
        sink.hanging.clear()
        await rig.until_empty()
    assert live(rig) == set()


async def test_a_sweep_that_postgres_refuses_is_parked_and_its_scan_closed() -> None:
    """A key that the database has no characters for is no reason to end one term after another."""
    sink = Watched()
    rig = Rig(sink)
    old(rig, 1, 2, 3, 4, 5)
    rig.tube.touch_refusal = refused("22P05")
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until("it is parked", lambda: rig.emitted(Parked))
        assert sink.open_scans == 0
        await rig.until_empty()
    assert ["22P05" in event.reason for event in rig.emitted(Parked)] == [True]
    assert rig.emitted(SweepFinished) == []


async def test_a_sweep_waits_while_many_backfill_pods_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytube.worker.control._POLL_INTERVAL", 0.01)
    rig = Rig(backfill=BackfillConfig(backlog=2))
    old(rig, *range(20))  # in ten pages, each of them a pod
    seq = rig.tube.insert(op="B", payload=END)
    rig.enricher.go.clear()
    async with rig.running():
        await rig.until("the sweep waits", lambda: rig.tube.backlog() == 5)
        rig.insert(100)
        await rig.until("touches are marked meanwhile", lambda: rig.worker.machine.pods == 7)
        assert rig.tube.backlog() == 5, "one for each page"
        rig.enricher.go.set()
        await rig.until_empty()
    assert seq not in rig.tube.pods
    assert live(rig) == {(0, 100)}


class Stumbling(MemorySink):
    """A sink whose first scans fail."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__()
        self.failures = list(failures)

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        async for page in super().scan(tube, shard, below_seq):
            yield page
            if self.failures:
                raise self.failures.pop(0)


async def test_a_sweep_that_fails_begins_again() -> None:
    rig = Rig(Stumbling(SinkUnavailable("down"), ValueError("a fault of the sink's")))
    old(rig, 1, 2, 3)
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until_empty()
    assert live(rig) == set()
    assert [event.reason for event in rig.emitted(SweepFailed)] == ["down"]
    assert len(rig.emitted(BackfillFinished)) == 1


class Blocked(MemorySink):
    """A sink that takes documents, and can't be looked through as long as it is blocked."""

    def __init__(self) -> None:
        super().__init__()
        self.blocked = True

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        if self.blocked:
            raise SinkUnavailable("no scans today")
        async for page in super().scan(tube, shard, below_seq):
            yield page


async def test_sweeps_that_wait_hold_no_touches_up() -> None:
    """Be they more than the keys that may be in flight."""
    sink = Blocked()
    rig = Rig(sink, keys_in_flight=50, mark_limit=20)
    for shard in range(60):
        rig.tube.insert(op="B", payload=END, shard=shard)
    async with rig.running():
        await rig.until("all are held", lambda: rig.worker.machine.control == 60)
        rig.insert(1)
        rig.insert(2, op="B", shard=70)
        await rig.until("touches are delivered", lambda: live(rig) == {(0, 1), (70, 2)})
        sink.blocked = False
        await rig.until_empty()
    assert len(rig.emitted(SweepFinished)) == 60


class Hanging(MemorySink):
    """A sink whose scan never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.scanning = asyncio.Event()

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        del tube, shard, below_seq
        self.scanning.set()
        await asyncio.Event().wait()
        yield []


async def test_a_claim_that_is_revoked_ends_a_sweep_and_gives_its_pod_back() -> None:
    sink = Hanging()
    rig = Rig(sink)
    seq = rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await sink.scanning.wait()
        rig.claim.revoke()
        await rig.until("the worker ends", lambda: rig.task is not None and rig.task.done())
        await rig.worker.drain(1.0)
    assert list(rig.tube.pods) == [seq]
    assert rig.tube.marked == set()


class Slow(MemorySink):
    """A sink whose scan waits before its first page."""

    def __init__(self) -> None:
        super().__init__()
        self.scanning = asyncio.Event()
        self.go = asyncio.Event()

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        self.scanning.set()
        await self.go.wait()
        async for page in super().scan(tube, shard, below_seq):
            yield page


async def test_a_sweep_under_a_term_that_is_over_ends_the_worker() -> None:
    """Nobody touches anything then, whatever the scan finds."""
    sink = Slow()
    rig = Rig(sink)
    old(rig, 5)
    seq = rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await sink.scanning.wait()
        rig.tube.leader_id = None
        sink.go.set()
        assert isinstance(await rig.until_it_ends(), Fenced)
    assert rig.emitted(BackfillFinished)
    assert list(rig.tube.pods) == [seq]
    assert live(rig) == {(0, 5)}
