"""A worker that is late itself: what that takes is not held against the sink, and is told as what it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from pytube.errors import SinkTimeout, SinkUnavailable
from pytube.events import SinkDown
from pytube.model import Batch, Result
from pytube.pipeline.limits import CongestionControl, Sent
from pytube.testing.memory import MemorySink
from pytube.worker import shared_sink
from pytube.worker.services import Lateness
from pytube.worker.shared_sink import SinkGate
from tests.helpers.logs import capture_logs
from tests.unit.rig import Rig


def test_an_answer_that_waited_for_the_process_is_no_slow_one() -> None:
    control = CongestionControl(documents=500, requests=None, first=10, timeout=10.0)
    control.answer(Sent(0.0, 10, 1, late=3.0), 9.0, late=11.0)
    assert control.slow is None
    control.answer(Sent(0.0, 10, 1, late=3.0), 9.0, late=3.0)
    assert control.slow == "latency"


def test_a_time_out_of_a_process_that_stood_still_says_nothing() -> None:
    control = CongestionControl(documents=500, requests=None, first=10, timeout=10.0)
    before = control.documents, control.requests
    assert control.time_out(Sent(0.0, 1, 1, late=3.0), 10.0, late=9.0) == "late"
    assert (control.slow, control.documents, control.requests) == (None, *before)
    assert control.time_out(Sent(0.0, 1, 1, late=3.0), 10.0, late=7.0) == "silent"


@pytest.mark.parametrize(
    ("worked", "cause", "remedy"),
    [
        (0.01, "gets too little processor time", "raise its CPU limit"),
        (0.28, "has too much to do", "start another worker"),
    ],
)
def test_what_makes_a_worker_late_is_told_once_with_a_remedy(worked: float, cause: str, remedy: str) -> None:
    lateness, now = Lateness(), time.monotonic()
    with capture_logs() as logs:
        for _ in range(100):
            lateness.note(0.2, worked, now)
    told = lateness.why()
    assert told is not None
    reason, since = told
    assert reason.startswith(f"the worker {cause}: its event loop was late for 6.8 of 10 s")
    assert remedy in reason
    assert since < now
    assert [line["event"] for line in logs] == ["worker_late"]


def test_a_worker_that_is_busy_and_in_time_is_not_called_late() -> None:
    lateness = Lateness()
    for _ in range(1000):
        lateness.note(0.04, 0.13, time.monotonic())
    assert lateness.why() is None


class AlwaysLate(Lateness):
    """The loop is late all the time."""

    def total(self, now: float) -> float:
        return 0.9 * now


async def test_a_sink_that_never_answers_is_to_blame_after_a_minute_however_late_the_worker_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(shared_sink, "time", SimpleNamespace(monotonic=lambda: now))
    control = CongestionControl(documents=500, requests=None, first=10, timeout=10.0)
    late = AlwaysLate()
    gate = SinkGate(control, rate=None, backfill_share=0.2, lateness=late)

    def sent() -> Sent:
        return Sent(now - 10.0, 1, 1, late.total(now - 10.0))

    for _ in range(2):  # an answer in between begins another minute
        for _ in range(6):
            assert gate.note_timeout(sent()) == "late"
            assert gate.was_late(sent())
            now += 10.0
        now += 50.0
        assert gate.note_timeout(sent()) == "silent"
        assert not gate.was_late(sent())
        gate.note_answer(sent(), put_off=0)


class Standstill(MemorySink):
    """The process stands still during the first request, which then fails."""

    def __init__(self, error: type[SinkUnavailable | SinkTimeout], seconds: float) -> None:
        super().__init__()
        self.error, self.seconds = error, seconds
        self.requests = 0

    async def send(self, batch: Batch) -> Sequence[Result]:
        self.requests += 1
        if self.requests == 1:
            time.sleep(self.seconds)  # noqa: ASYNC251 # as the whole process would
            raise self.error("the connection is gone")
        return await super().send(batch)

    async def abandon(self, batch: Batch) -> None:
        """Nothing is under way."""


@pytest.mark.parametrize("error", [SinkUnavailable, SinkTimeout])
async def test_a_request_that_fails_in_a_standstill_is_no_outage_of_the_sink(
    error: type[SinkUnavailable | SinkTimeout],
) -> None:
    sink = Standstill(error, 1.3)
    rig = Rig(sink)
    async with rig.running():
        rig.insert(1)
        await rig.until_empty()
    assert sink.requests == 2
    assert rig.emitted(SinkDown) == []
    assert rig.served.gate.why_slow() is None


async def test_a_request_that_fails_without_one_is() -> None:
    rig = Rig(Standstill(SinkUnavailable, 0.0))
    async with rig.running():
        rig.insert(1)
        await rig.until_empty()
    assert rig.emitted(SinkDown)
