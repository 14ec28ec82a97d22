"""The gate before a sink: limits that the partitions of a tube share, and a slow start after an outage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from pytube.config import SinkConfig, TubeConfig, WorkerConfig
from pytube.errors import SinkUnavailable
from pytube.model import Batch, PodClass, Result
from pytube.pipeline import retry_queue
from pytube.testing.memory import MemorySink
from pytube.worker.gate import SinkGate
from pytube.worker.limits import Limits
from tests.helpers.waiting import wait_until_async
from tests.unit.rig import Rig

NOW, LATER = PodClass.INCREMENTAL, PodClass.BACKFILL


def gate(
    *, rate: float | None = None, requests: int | None = None, ramp: int = 1000, share: float = 0.2
) -> SinkGate:
    return SinkGate(rate=rate, requests=requests, ramp=ramp, backfill_share=share)


class Line:
    """Requests that stand before a gate, and the order in which they passed."""

    def __init__(self, before: SinkGate) -> None:
        self.gate = before
        self.passed: list[str] = []

    async def join(self, name: str, pod_class: PodClass = NOW, documents: int = 1) -> asyncio.Task[None]:
        async def go() -> None:
            await self.gate.enter(pod_class, documents)
            self.passed.append(name)

        task = asyncio.create_task(go())
        await asyncio.sleep(0)
        return task

    async def until(self, *names: str) -> None:
        await wait_until_async(lambda: self.passed == list(names), what=f"{names} pass, not {self.passed}")


async def test_so_many_requests_at_a_time_and_the_next_when_one_has_ended() -> None:
    line = Line(gate(requests=2))
    for name in "abcd":
        await line.join(name)
    await line.until("a", "b")
    assert (line.gate.in_flight, line.gate.waiting) == (2, 2)
    line.gate.leave()
    await line.until("a", "b", "c")
    line.gate.leave()
    await line.until("a", "b", "c", "d")
    assert (line.gate.in_flight, line.gate.waiting) == (2, 0)


async def test_live_changes_pass_before_backfill_that_came_first() -> None:
    line = Line(gate(requests=1))
    for name, pod_class in (("first", LATER), ("backfill", LATER), ("live", NOW)):
        await line.join(name, pod_class)
    line.gate.leave()
    await line.until("first", "live")
    line.gate.leave()
    await line.until("first", "live", "backfill")


async def test_backfill_has_its_share_while_live_changes_never_end() -> None:
    line = Line(gate(requests=1, share=0.2))
    await line.join("first")
    await line.join("backfill", LATER)
    for number in range(12):
        await line.join(f"live {number}")
        line.gate.leave()
        await asyncio.sleep(0)
    assert "backfill" in line.passed[4:7], line.passed


async def test_a_request_that_is_called_off_holds_up_nobody() -> None:
    line = Line(gate(requests=1))
    await line.join("a")
    second = await line.join("b")
    await line.join("c")
    second.cancel()
    line.gate.leave()  # before the cancelled one has noticed
    await line.until("a", "c")
    assert (line.gate.in_flight, line.gate.waiting) == (1, 0)


async def test_one_that_is_granted_and_called_off_at_once_gives_its_place_back() -> None:
    line = Line(gate(requests=1, rate=1.0))
    await line.join("a", documents=0)
    second = await line.join("b")
    line.gate.leave()
    assert line.gate.in_flight == 1, "it is granted"
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
    assert line.gate.in_flight == 0
    await line.join("c")
    await line.until("a", "c")


async def test_documents_pass_at_the_rate() -> None:
    line = Line(gate(rate=100.0))
    began = time.monotonic()
    await line.join("a second's worth", documents=100)
    await line.join("a third of one", documents=33)
    await line.until("a second's worth", "a third of one")
    assert time.monotonic() - began >= 0.32
    assert line.gate.waited >= 0.32


class Outage(MemorySink):
    """Is down until told; notes when requests came."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = True
        self.came: list[float] = []

    async def send(self, batch: Batch) -> Sequence[Result]:
        if self.is_down:
            raise SinkUnavailable("down all night")
        self.came.append(time.monotonic())
        return await super().send(batch)


async def test_partitions_that_catch_up_after_an_outage_start_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four partitions with a backlog of 40 batches each: in the first second there are 6 requests in all."""
    monkeypatch.setattr(retry_queue, "_LONGEST_DELAY", 0.05)
    sink, shared = Outage(), gate(ramp=6)
    rigs = [Rig(sink, None, shared, batch_documents=1) for _ in range(4)]
    for number, rig in enumerate(rigs):
        for key in range(40):
            rig.insert(1000 * number + key)
    await sink.open()
    came = sink.came
    tasks = [asyncio.create_task(rig.worker.run()) for rig in rigs]
    try:
        await wait_until_async(lambda: not any(rig.worker.sink_is_up for rig in rigs), what="all know")
        sink.is_down = False
        await wait_until_async(
            lambda: came and time.monotonic() > came[0] + 1, what="the first second is over"
        )
    finally:
        for rig, task in zip(rigs, tasks, strict=True):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await rig.worker.abort()
    probe, *others = came
    assert len([moment for moment in others if moment < probe + 1]) <= 6


async def test_an_outage_of_one_partition_alone_slows_no_other() -> None:
    shared = gate(ramp=1)
    shared.note_answer()
    shared.note_outage_over(60.0)
    line = Line(shared)
    for name in "abc":
        await line.join(name)
    assert line.passed == ["a", "b", "c"]


async def test_a_limited_partition_holds_no_more_than_it_may() -> None:
    """A backlog far beyond the limits waits in the tube, not in memory."""
    shared = gate(rate=0.01)  # nothing passes after the first document
    rig = Rig(None, None, shared, keys_in_flight=20, batch_documents=1)
    for key in range(200):
        rig.insert(key)
    async with rig.running():
        await rig.until("the gate has a line", lambda: shared.waiting == rig.limits.sends)
        await rig.until("it is full", lambda: rig.worker.machine.keys >= 19)
        marks = rig.tube.marks
        await rig.until("more marks are not made", lambda: rig.tube.marks == marks)
        assert rig.worker.machine.keys <= 20
        rig.claim.revoke()
        assert await rig.until_it_ends() is None, "who waits at the gate does not hold up a hand-over"


@pytest.mark.parametrize(("rate", "documents"), [(None, 500), (2000.0, 500), (100.0, 100), (0.5, 1)])
def test_a_batch_is_no_larger_than_a_second_s_worth(rate: float | None, documents: int) -> None:
    tube = TubeConfig(sink=SinkConfig(type="jsonl", rate=rate))
    assert Limits.of(tube, WorkerConfig()).batch_documents == documents


@pytest.mark.parametrize(
    ("sink", "documents"),
    [({"parts": 8}, 62), ({"parts": ["a", "b"], "rate": 100.0}, 50), ({"parts": 1000}, 1)],
)
def test_the_limits_of_a_sink_count_parts(sink: dict[str, Any], documents: int) -> None:
    tube = TubeConfig(sink=SinkConfig(type="jsonl", **sink))
    assert Limits.of(tube, WorkerConfig()).batch_documents == documents


async def test_the_rate_of_a_sink_counts_parts() -> None:
    shared = SinkGate.of(SinkConfig(type="jsonl", rate=4.0, parts=2), 0.2)
    await shared.enter(PodClass.INCREMENTAL, 2)
    waits = asyncio.create_task(shared.enter(PodClass.INCREMENTAL, 2))
    done, _ = await asyncio.wait({waits}, timeout=0)
    assert not done, "two documents of two parts each are a second's worth"
    waits.cancel()
