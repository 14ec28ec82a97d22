"""The circuit breaker: one report per outage, one probe at a time, closed for all by one success."""

from __future__ import annotations

import asyncio

import pytest

from pytube.pipeline import retry_queue
from pytube.worker.delivery import CircuitBreaker
from tests.helpers.waiting import wait_until_async


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)


class Watched:
    """A circuit breaker, and what it reported."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[float] = []
        self.breaker = CircuitBreaker(self.opened.append, self.closed.append)


async def test_a_closed_circuit_lets_pass_at_once() -> None:
    watched = Watched()
    await watched.breaker.acquire()
    watched.breaker.succeed()
    assert (watched.opened, watched.closed) == ([], [])


async def test_an_outage_is_told_once_and_so_is_its_end() -> None:
    watched = Watched()
    for reason in ("down", "still down", "down again"):
        watched.breaker.fail(reason)
        await watched.breaker.acquire()
    watched.breaker.succeed()
    watched.breaker.succeed()
    assert watched.opened == ["down"]
    assert len(watched.closed) == 1
    assert watched.closed[0] > 0


async def test_a_second_outage_is_told_again() -> None:
    watched = Watched()
    watched.breaker.fail("down")
    watched.breaker.succeed()
    watched.breaker.fail("down again")
    assert watched.opened == ["down", "down again"]
    assert not watched.breaker.is_closed


async def test_one_at_a_time_probes_and_its_success_lets_all_pass() -> None:
    watched = Watched()
    watched.breaker.fail("down")
    passed: list[int] = []

    async def pass_it(number: int) -> None:
        await watched.breaker.acquire()
        passed.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(pass_it(number))
        await wait_until_async(lambda: passed, what="somebody probes")
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(passed) == 1, "only one may probe"
        watched.breaker.succeed()
    assert sorted(passed) == list(range(5))


async def test_a_probe_that_told_nothing_leaves_its_turn_to_another() -> None:
    watched = Watched()
    watched.breaker.fail("down")
    await watched.breaker.acquire()
    second = asyncio.create_task(watched.breaker.acquire())
    await asyncio.sleep(0)
    assert not second.done()
    watched.breaker.release()
    await asyncio.wait_for(second, 5)
    assert not watched.breaker.is_closed


async def test_sends_that_failed_together_count_as_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 20.0)
    watched = Watched()
    for _ in range(50):
        watched.breaker.fail("down")
    assert watched.breaker._failures == 1


async def test_a_waiter_that_is_cancelled_holds_nothing() -> None:
    watched = Watched()
    watched.breaker.fail("down")
    await watched.breaker.acquire()
    waiter = asyncio.create_task(watched.breaker.acquire())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    watched.breaker.release()
    await asyncio.wait_for(watched.breaker.acquire(), 5)
