"""When a worker polls again: no wake-up is lost, and nothing spins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pytube.sources.settled import Settled
from pytube.sources.terms import Term
from pytube.worker import leaky_bucket
from pytube.worker import poller as module
from pytube.worker.poller import Poller
from tests.unit.fakes import FakeSession, FakeTube


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short polls, and a sleep that only a writer ends."""
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.002)
    monkeypatch.setattr(module, "_DEEP_PAUSE", 3600.0)


class Sleeper:
    """A poller over a fake tube."""

    def __init__(self) -> None:
        self.notifications_work = True
        self.tube = FakeTube()
        term = Term("t", 1, 0, epoch=1)
        self.tube.leader_id = term.leader_id
        session = FakeSession(self.tube)
        self.settled = Settled(session, "t")
        self.poller = Poller(session, term, lambda: self.notifications_work)

    async def poll(self, pods: int = 0, *, more: bool = False, left_out: bool = False) -> None:
        self.poller.begin_poll()
        await self.poller.end_poll(pods, more=more, left_out=left_out)

    async def poll_if_due(self) -> None:
        if self.poller.is_due():
            await self.poll()

    async def wait(self, *, idle: bool = True, may_poll: bool = True) -> None:
        await asyncio.wait_for(self.poller.wait(self.settled, idle=idle, may_poll=may_poll), 5)

    async def poll_and_wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Empty polls, as a worker without work makes them."""
        for step in (self.wait, self.poll_if_due) * 20:
            if condition():
                return
            await step()
        raise AssertionError(f"not after 20 rounds: {what}")

    async def sleep_deep(self) -> None:
        await self.poll_and_wait_until(
            "deep asleep", lambda: self.poller.is_deep and not self.poller.is_due()
        )

    async def woken(self) -> None:
        """From a deep sleep."""
        await self.sleep_deep()
        waiting = await self.sleeping()
        self.poller.wake()
        await asyncio.wait_for(waiting, 5)

    async def sleeping(self) -> asyncio.Task[None]:
        """A wait that is under way."""
        waiting = asyncio.create_task(self.poller.wait(self.settled, idle=True))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done(), "the worker does not sleep"
        return waiting


def test_a_new_worker_polls_at_once() -> None:
    assert Sleeper().poller.is_due()


async def test_a_full_poll_is_followed_by_another_at_once() -> None:
    sleeper = Sleeper()
    await sleeper.poll(1000, more=True)
    assert sleeper.poller.is_due()


async def test_a_worker_without_work_leaves_its_row_and_polls_once_more_before_it_sleeps() -> None:
    sleeper = Sleeper()
    await sleeper.poll_and_wait_until("the row is there", lambda: sleeper.tube.sleeping)
    await sleeper.poll_and_wait_until("it is quiet", lambda: sleeper.poller.is_deep)
    assert sleeper.poller.is_due(), "it would sleep without the look that sees what the row missed"
    await sleeper.poll()
    waiting = await sleeper.sleeping()
    sleeper.poller.wake()
    await asyncio.wait_for(waiting, 5)
    assert sleeper.poller.is_due()


async def test_a_worker_that_holds_keys_does_not_fall_asleep() -> None:
    sleeper = Sleeper()
    for _ in range(5):
        await sleeper.poll()
        await sleeper.wait(idle=False)
    assert not sleeper.tube.sleeping


async def test_a_wake_up_during_a_poll_is_not_lost() -> None:
    """The look may have begun before the pods were there."""
    sleeper = Sleeper()
    await sleeper.sleep_deep()
    sleeper.poller.begin_poll()
    sleeper.poller.wake()
    await sleeper.poller.end_poll(0, more=False)
    await sleeper.wait()
    assert sleeper.poller.is_due(), "the worker sleeps on, though pods came"


async def test_news_between_two_waits_is_not_lost() -> None:
    sleeper = Sleeper()
    await sleeper.sleep_deep()
    sleeper.poller.attention.set()
    await sleeper.wait()


async def test_pods_one_by_one_leave_the_row_and_a_stream_takes_it_away() -> None:
    sleeper = Sleeper()
    await sleeper.sleep_deep()
    await sleeper.poll(1)
    await sleeper.poll(1)
    assert sleeper.tube.sleeping, "the row is gone after pods one by one"
    await sleeper.poll(1000)
    assert not sleeper.tube.sleeping, "the row is still there"


async def test_a_worker_that_is_woken_for_a_pod_polls_once_and_sleeps_on() -> None:
    """The row was there all the time, so whoever came after the look began has notified."""
    sleeper = Sleeper()
    await sleeper.woken()
    await sleeper.poll(1)
    waiting = await sleeper.sleeping()
    sleeper.poller.wake()
    await asyncio.wait_for(waiting, 5)
    assert sleeper.poller.is_due()


@pytest.mark.parametrize("look", [{"more": True}, {"left_out": True}])
async def test_a_worker_that_did_not_take_all_pods_polls_again(look: dict[str, bool]) -> None:
    sleeper = Sleeper()
    await sleeper.woken()
    await sleeper.poll(1, **look)
    await sleeper.wait()
    assert sleeper.poller.is_due(), "it sleeps, though pods wait"


async def test_while_a_stream_runs_the_worker_does_not_fall_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = Sleeper()
    await sleeper.poll(1000)
    for _ in range(3):
        await sleeper.poll()
        await sleeper.wait()
    assert not sleeper.tube.sleeping, "it fell asleep in a short gap"
    monkeypatch.setattr(leaky_bucket, "RATE", 1e9)
    await sleeper.poll_and_wait_until("the row is there", lambda: sleeper.tube.sleeping)


async def test_where_notifications_do_not_arrive_the_worker_polls() -> None:
    sleeper = Sleeper()
    sleeper.notifications_work = False
    for _ in range(10):
        await sleeper.poll()
        await sleeper.wait()
    assert not sleeper.poller.is_deep


async def test_a_worker_that_was_deaf_for_a_while_polls_before_it_sleeps_again() -> None:
    sleeper = Sleeper()
    await sleeper.sleep_deep()
    sleeper.notifications_work = False
    sleeper.poller.wake()
    await sleeper.poll()
    await sleeper.wait()
    sleeper.notifications_work = True
    await sleeper.wait()
    assert sleeper.poller.is_due(), "what was notified meanwhile waits for the next wake-up"


async def test_without_a_settled_seq_the_worker_does_not_sleep_deep() -> None:
    sleeper = Sleeper()
    for _ in range(5):
        await sleeper.poll()
        await asyncio.wait_for(sleeper.poller.wait(None, idle=True), 5)
    assert sleeper.tube.sleeping
    assert not sleeper.poller.is_deep


async def test_a_worker_that_may_not_poll_waits_and_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HELD_UP_PAUSE", 3600.0)
    sleeper = Sleeper()
    assert sleeper.poller.is_due()
    waiting = asyncio.create_task(sleeper.poller.wait(sleeper.settled, idle=False, may_poll=False))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not waiting.done(), "it returned at once, so the worker spins"
    sleeper.poller.attention.set()
    await asyncio.wait_for(waiting, 5)
