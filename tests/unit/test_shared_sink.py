"""How a worker opens its sinks: one that is down delays nothing else, one that is wrong ends the start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pytube.config import SinkConfig
from pytube.errors import ConfigError, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import PodClass
from pytube.testing.memory import MemorySink
from pytube.worker import shared_sink
from pytube.worker.shared_sink import SharedSink
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async


class Door(MemorySink):
    """A sink that opens after it has raised these."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__()
        self.failures = list(failures)
        self.closings = 0
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.lets_one_in = False
        """Whether `may_open` has to be set anew for each attempt."""

    async def open(self) -> None:
        await self.may_open.wait()
        if self.lets_one_in:
            self.may_open.clear()
        if self.failures:
            raise self.failures.pop(0)

    async def close(self) -> None:
        self.closings += 1


@asynccontextmanager
async def shared(door: Door) -> AsyncIterator[SharedSink]:
    """A shared sink that is closed at the end."""
    one = SharedSink("t", SinkConfig(type="jsonl", options={"path": "-"}), 0.2)
    one.sink = door
    try:
        yield one
    finally:
        await one.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_sink, "backoff", lambda _tries: 0.001)


async def test_a_sink_that_is_down_is_opened_later() -> None:
    door = Door(SinkUnavailable("refused"), SinkTimeout("silent"), SinkTimeout("silent"))
    door.lets_one_in = True
    with capture_logs() as logs:
        async with shared(door) as one:
            await one.open()
            assert one.why_closed == "refused", "the start goes on after the first attempt"
            door.lets_one_in = False
            door.may_open.set()
            await wait_until_async(lambda: one.why_closed is None, what="it is open")
            assert door.closings == 3, "what each attempt left open is closed before the next one"
            passing = [asyncio.create_task(one.gate.enter(PodClass.INCREMENTAL, 1)) for _ in range(11)]
            done, _ = await asyncio.wait(passing, timeout=0.01)
            assert len(done) == 10, "its partitions do not start all at once"
            one.gate.leave()
            await asyncio.gather(*passing)
    assert [(line["event"], line.get("reason")) for line in logs] == [
        ("sink_not_open", "refused"),
        ("sink_not_open", "silent"),
        ("sink_opened", None),
    ]


async def test_a_sink_that_does_not_answer_keeps_the_start_waiting_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_sink, "PATIENCE", 0.01)
    door = Door()
    door.may_open.clear()
    async with shared(door) as one:
        await one.open()
        assert one.why_closed == "the sink has not opened within 0.01 s"
        door.may_open.set()
        await wait_until_async(lambda: one.why_closed is None, what="its first attempt has come through")
        assert door.closings == 0


async def test_an_attempt_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_sink, "_LIMIT", 0.01)
    door = Door()
    door.may_open.clear()
    async with shared(door) as one:
        await one.open()
        assert one.why_closed == "the sink has not opened within 0.01 s"
        assert door.closings == 1


async def test_a_sink_that_is_configured_wrongly_ends_the_start() -> None:
    async with shared(Door(ConfigError("no such index"))) as one:
        with pytest.raises(ConfigError, match="no such index"):
            await one.open()


async def test_what_a_sink_raises_when_it_opens_is_an_error_with_its_stack_in_the_log() -> None:
    failure = ZeroDivisionError("no door")
    with capture_logs() as logs:
        async with shared(Door(failure)) as one:
            with pytest.raises(
                SinkError, match="the sink of tube 't' can't be opened: ZeroDivisionError: no"
            ):
                await one.open()
    assert [(line["event"], line["tube"], line["call"]) for line in logs] == [
        ("user_code_raised", "t", "open")
    ]
    assert logs[0]["error"] is failure


async def test_what_turns_out_to_be_wrong_once_the_worker_runs_ends_nothing() -> None:
    door = Door(SinkUnavailable("refused"), ConfigError("no such index"), ZeroDivisionError("no door"))
    with capture_logs() as logs:
        async with shared(door) as one:
            await one.open()
            await wait_until_async(lambda: one.why_closed is None, what="it is open")
    told = [line.get("reason") for line in logs if line["event"] == "sink_not_open"]
    assert told == [
        "refused",
        "no such index",
        "the sink of tube 't' can't be opened: ZeroDivisionError: no door",
    ]


async def test_a_sink_that_is_never_opened_can_be_closed() -> None:
    door = Door()
    door.may_open.clear()
    async with shared(door) as one:
        starting = asyncio.create_task(one.open())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    assert door.closings == 1
