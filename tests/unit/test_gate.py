"""The gate before a sink: limits that the partitions of a tube share, and that adapt to the sink."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from pytube.config import SinkConfig
from pytube.errors import SinkUnavailable
from pytube.model import Batch, PodClass, Result
from pytube.pipeline import limits, retry_queue
from pytube.pipeline.limits import CongestionControl
from pytube.testing.memory import MemorySink
from pytube.worker.shared_sink import SinkGate, batch_documents
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import RecordingLogger, gate_of
from tests.unit.rig import Rig

NOW, LATER = PodClass.INCREMENTAL, PodClass.BACKFILL


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
    line = Line(gate_of(requests=2))
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
    line = Line(gate_of(requests=1))
    for name, pod_class in (("first", LATER), ("backfill", LATER), ("live", NOW)):
        await line.join(name, pod_class)
    line.gate.leave()
    await line.until("first", "live")
    line.gate.leave()
    await line.until("first", "live", "backfill")


async def test_backfill_has_its_share_while_live_changes_never_end() -> None:
    line = Line(gate_of(requests=1, share=0.2))
    await line.join("first")
    await line.join("backfill", LATER, documents=100)
    await line.join("live")
    for number in range(12):
        await line.join(f"live {number}")
        line.gate.leave()
        await asyncio.sleep(0)
    assert "backfill" in line.passed[4:7], line.passed


async def test_a_stream_of_live_changes_that_comes_request_by_request_is_no_trickle() -> None:
    gate = gate_of(requests=1, share=0.2)
    await gate.enter(NOW, 100)
    live, later = [], [asyncio.create_task(gate.enter(LATER, 100)) for _ in range(9)]
    for _ in range(20):
        live.append(asyncio.create_task(gate.enter(NOW, 100, more=True)))
        await asyncio.sleep(0)
        gate.leave()
        await asyncio.sleep(0)
    assert sum(task.done() for task in later) == 4
    for task in (*live, *later):
        task.cancel()


async def test_backfill_has_its_share_again_and_again_however_few_documents_live_changes_have() -> None:
    line = Line(gate_of(requests=1, share=0.2))
    for name, pod_class in [("first", NOW), ("backfill", LATER), ("backfill", LATER), ("live", NOW)]:
        await line.join(name, pod_class, documents=1 if pod_class is NOW else 100)
    for _ in range(12):
        await line.join("live")
        line.gate.leave()
        await asyncio.sleep(0)
    assert line.passed.count("backfill") == 2, line.passed


async def test_a_request_that_is_called_off_holds_up_nobody() -> None:
    line = Line(gate_of(requests=1))
    await line.join("a")
    second = await line.join("b")
    await line.join("c")
    second.cancel()
    line.gate.leave()  # before the cancelled one has noticed
    await line.until("a", "c")
    assert (line.gate.in_flight, line.gate.waiting) == (1, 0)


async def test_one_that_is_granted_and_called_off_at_once_gives_its_place_back() -> None:
    line = Line(gate_of(requests=1, rate=1.0))
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
    line = Line(gate_of(rate=100.0))
    began = time.monotonic()
    await line.join("a second's worth", documents=100)
    await line.join("a third of one", documents=33)
    late = time.monotonic() - began
    await line.until("a second's worth", "a third of one")
    assert time.monotonic() - began >= 0.32
    assert line.gate.waited >= 0.32 - late


class Outage(MemorySink):
    """Is down until told; then it keeps requests until they may be answered."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = True
        self.came = 0
        self.may_answer = asyncio.Event()

    async def send(self, batch: Batch) -> Sequence[Result]:
        if self.is_down:
            raise SinkUnavailable("down all night")
        self.came += 1
        if self.came > 1:  # the probe ends the outage
            await self.may_answer.wait()
        return await super().send(batch)


async def test_partitions_that_catch_up_after_an_outage_start_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four partitions with a backlog of 40 batches, and 16 sends: at first there are 6 requests at a time."""
    monkeypatch.setattr(retry_queue, "_LONGEST_DELAY", 0.05)
    sink = Outage()
    shared = SinkGate.of(SinkConfig(type="jsonl", ramp=6, batch_documents=1), 0.2)
    rigs = [Rig(sink, None, shared, batch_documents=1) for _ in range(4)]
    for number, rig in enumerate(rigs):
        for key in range(40):
            rig.insert(1000 * number + key)
    await sink.open()
    tasks = [asyncio.create_task(rig.worker.run()) for rig in rigs]
    try:
        await wait_until_async(lambda: not any(rig.worker.sink_is_up for rig in rigs), what="all know")
        sink.is_down = False
        await wait_until_async(lambda: sink.came == 7 and shared.waiting == 1, what="the others wait")
        assert shared.in_flight == 6
        sink.may_answer.set()
        await wait_until_async(lambda: sink.came == 160, what="they all go on")
    finally:
        for rig, task in zip(rigs, tasks, strict=True):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await rig.worker.abort(is_over=False)


async def test_an_outage_of_one_partition_alone_slows_no_other() -> None:
    shared = gate_of(documents=100)
    shared.note_answer(await shared.enter(NOW, 100), put_off=0)
    shared.note_outage_over(60.0)
    assert shared.control.documents == 100


async def test_a_sink_that_puts_most_of_a_batch_off_is_sent_fewer_at_a_time() -> None:
    shared = gate_of()
    sent = [await shared.enter(NOW, 100) for _ in range(10)]
    shared.note_answer(sent[-1], put_off=49)
    assert shared.control.requests >= 10, "some documents have to wait, and the others are taken"
    shared.note_answer(sent[-1], put_off=50)
    assert (shared.control.slow, shared.control.requests, shared.control.documents) == ("pushback", 7, 100)


async def test_that_a_sink_is_slow_is_told_once_and_so_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_CALM", 0.0)
    log = RecordingLogger()
    control = CongestionControl(documents=1, requests=2, first=2, timeout=60.0)
    shared = SinkGate(control, rate=None, backfill_share=0.2, log=log)
    for _ in range(3):
        shared.note_answer(await shared.enter(NOW, 1), put_off=1)
        shared.leave()
    assert [line[1] for line in log.lines] == ["sink_slow"]
    assert log.lines[0][2]["reason"] == "it defers documents"
    for _ in range(9):
        shared.note_answer(await shared.enter(NOW, 1), put_off=0)
        shared.leave()
    assert [line[1] for line in log.lines] == ["sink_slow", "sink_not_slow"]


async def test_a_limited_partition_holds_no_more_than_it_may() -> None:
    """A backlog far beyond the limits waits in the tube, not in memory."""
    shared = gate_of(rate=0.01)  # nothing passes after the first document
    rig = Rig(None, None, shared, keys_in_flight=20, batch_documents=1)
    for key in range(200):
        rig.insert(key)
    async with rig.running():
        await rig.until("the gate has a line", lambda: shared.waiting)
        await rig.until("it is full", lambda: rig.worker.machine.keys >= 19)
        marks = rig.tube.marks
        await rig.until("more marks are not made", lambda: rig.tube.marks == marks)
        assert rig.worker.machine.keys <= 20
        rig.claim.revoke()
        assert await rig.until_it_ends() is None, "who waits at the gate does not hold up a hand-over"


@pytest.mark.parametrize(("rate", "documents"), [(None, 500), (2000.0, 500), (100.0, 100), (0.5, 1)])
def test_a_batch_is_no_larger_than_a_second_s_worth(rate: float | None, documents: int) -> None:
    assert batch_documents(SinkConfig(type="jsonl", rate=rate)) == documents


@pytest.mark.parametrize(
    ("sink", "documents"),
    [({"parts": 8}, 62), ({"parts": ["a", "b"], "rate": 100.0}, 50), ({"parts": 1000}, 1)],
)
def test_the_limits_of_a_sink_count_parts(sink: dict[str, Any], documents: int) -> None:
    assert batch_documents(SinkConfig(type="jsonl", **sink)) == documents


async def test_the_rate_of_a_sink_counts_parts() -> None:
    shared = SinkGate.of(SinkConfig(type="jsonl", rate=4.0, parts=2), 0.2)
    await shared.enter(PodClass.INCREMENTAL, 2)
    waits = asyncio.create_task(shared.enter(PodClass.INCREMENTAL, 2))
    done, _ = await asyncio.wait({waits}, timeout=0)
    assert not done, "two documents of two parts each are a second's worth"
    waits.cancel()


@pytest.mark.parametrize(("ago", "is_told"), [(0.0, True), (59.0, True), (61.0, False)])
def test_a_sink_that_is_quick_with_less_is_not_called_slow_for_ever(ago: float, is_told: bool) -> None:
    control = CongestionControl(documents=100, requests=1, first=1, timeout=2.0)
    gate = SinkGate(control, rate=None, backfill_share=0.5)
    now = time.monotonic()
    control.answer(control.send(now - ago - 1.5, 100, 1), now - ago)
    control.answer(control.send(now - 0.1, control.documents, 1), now)
    assert control.slow == "latency", "less is sent at a time"
    assert (gate.why_slow() is not None) is is_told
