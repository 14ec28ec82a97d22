"""The gate: told once per outage, probed by one at a time, opened for all by one success."""

from __future__ import annotations

import asyncio

import pytest

from pytube.pipeline import redelivery
from pytube.worker.gate import Gate
from tests.helpers.waiting import wait_until_async


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redelivery, "_FIRST_DELAY", 0.002)


class Watched:
    """A gate, and what it told."""

    def __init__(self) -> None:
        self.shut: list[str] = []
        self.opened: list[float] = []
        self.gate = Gate(self.shut.append, self.opened.append)


async def test_an_open_gate_lets_pass_at_once() -> None:
    watched = Watched()
    await watched.gate.passage()
    watched.gate.open()
    assert (watched.shut, watched.opened) == ([], [])


async def test_an_outage_is_told_once_and_so_is_its_end() -> None:
    watched = Watched()
    for reason in ("down", "still down", "down again"):
        watched.gate.shut(reason)
        await watched.gate.passage()
    watched.gate.open()
    watched.gate.open()
    assert watched.shut == ["down"]
    assert len(watched.opened) == 1
    assert watched.opened[0] > 0


async def test_a_second_outage_is_told_again() -> None:
    watched = Watched()
    watched.gate.shut("down")
    watched.gate.open()
    watched.gate.shut("down again")
    assert watched.shut == ["down", "down again"]
    assert not watched.gate.is_open


async def test_one_at_a_time_probes_and_its_success_lets_all_pass() -> None:
    watched = Watched()
    watched.gate.shut("down")
    passed: list[int] = []

    async def pass_it(number: int) -> None:
        await watched.gate.passage()
        passed.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(pass_it(number))
        await wait_until_async(lambda: passed, what="somebody probes")
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(passed) == 1, "only one may probe"
        watched.gate.open()
    assert sorted(passed) == list(range(5))


async def test_a_probe_that_told_nothing_leaves_its_turn_to_another() -> None:
    watched = Watched()
    watched.gate.shut("down")
    await watched.gate.passage()
    second = asyncio.create_task(watched.gate.passage())
    await asyncio.sleep(0)
    assert not second.done()
    watched.gate.left()
    await asyncio.wait_for(second, 5)
    assert not watched.gate.is_open


async def test_sends_that_failed_together_count_as_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redelivery, "_FIRST_DELAY", 20.0)
    watched = Watched()
    for _ in range(50):
        watched.gate.shut("down")
    assert watched.gate._tries == 1


async def test_a_waiter_that_is_cancelled_holds_nothing() -> None:
    watched = Watched()
    watched.gate.shut("down")
    await watched.gate.passage()
    waiter = asyncio.create_task(watched.gate.passage())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    watched.gate.left()
    await asyncio.wait_for(watched.gate.passage(), 5)
