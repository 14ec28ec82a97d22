"""When a worker polls again: no wake-up is lost, and nothing spins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from pytube import clock
from pytube.errors import StatementFailed
from pytube.sources import queries
from pytube.sources.settled import Settled
from pytube.sources.terms import Term
from pytube.worker import pace as module
from pytube.worker.active_term import ActiveTerm
from pytube.worker.pace import LeakyBucket, Poller
from tests.unit.fakes import FakeClaim, FakeSession, FakeTube


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
        self.session = FakeSession(self.tube)
        self.settled = Settled(self.session)
        self.active_term = ActiveTerm(
            term, FakeClaim(), deadline=1000.0, sent_at=clock.now(), emit=lambda _: None
        )
        self.poller = Poller(self.session, self.active_term)

    async def poll(self, pods: int = 0, *, more: bool = False, left_out: bool = False) -> None:
        self.poller.begin_poll(self.settled)
        await self.poller.end_poll(pods, more=more, left_out=left_out)

    async def poll_if_due(self) -> None:
        if self.poller.is_due():
            await self.poll()

    async def wait(
        self, *, idle: bool = True, may_poll: bool = True, settled: bool = True, until: float | None = None
    ) -> None:
        waiting = self.poller.wait(
            self.settled if settled else None,
            notified=self.notifications_work,
            idle=idle,
            may_poll=may_poll,
            until=until,
        )
        await asyncio.wait_for(waiting, 5)

    async def poll_and_wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Empty polls, as a worker without work makes them."""
        for step in (self.wait, self.poll_if_due) * 20:
            if condition():
                return
            await step()
        raise AssertionError(f"not after 20 rounds: {what}")

    @property
    def sleeps(self) -> bool:
        return self.active_term.sleeps

    async def sleep_deep(self) -> None:
        await self.poll_and_wait_until("deep asleep", lambda: self.sleeps and not self.poller.is_due())

    async def woken(self) -> None:
        """From a deep sleep."""
        await self.sleep_deep()
        waiting = await self.sleeping()
        self.active_term.wake()
        await asyncio.wait_for(waiting, 5)

    async def sleeping(self, *, idle: bool = True, may_poll: bool = True) -> asyncio.Task[None]:
        """A wait that is under way."""
        waiting = asyncio.create_task(self.wait(idle=idle, may_poll=may_poll))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done(), "the worker does not sleep"
        return waiting


def test_a_new_worker_polls_at_once() -> None:
    assert Sleeper().poller.is_due()


async def test_a_full_poll_is_followed_by_another_at_once() -> None:
    sleeper = Sleeper()
    await sleeper.poll(1000, more=True)
    assert sleeper.poller.is_due()


async def test_pauses_between_empty_polls_double_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 1.0)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 6.0)
    monkeypatch.setattr(module, "_SHORT_PAUSE", 3.0)
    sleeper = Sleeper()

    async def pause_after(pods: int = 0, *, left_out: bool = False) -> float:
        await sleeper.poll(pods, left_out=left_out)
        assert not sleeper.poller.is_due()
        return sleeper.poller._next_poll - time.monotonic()

    assert [await pause_after() for _ in range(5)] == pytest.approx([1.0, 2.0, 4.0, 6.0, 6.0], abs=0.5)
    assert await pause_after(1) == pytest.approx(1.0, abs=0.5), "pods came: it polls again soon"
    assert [await pause_after() for _ in range(2)] == pytest.approx([1.0, 2.0], abs=0.5)
    assert await pause_after(left_out=True) == pytest.approx(3.0, abs=0.5), "it is full of backfill"


async def test_after_a_stream_pauses_stay_short_until_the_worker_may_sleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 1.0)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 60.0)
    monkeypatch.setattr(module, "_SHORT_PAUSE", 3.0)
    monkeypatch.setattr(LeakyBucket, "RATE", 0.0)
    sleeper = Sleeper()

    async def pause_after(pods: int) -> float:
        await sleeper.poll(pods)
        return sleeper.poller._next_poll - time.monotonic()

    pauses = [await pause_after(pods) for pods in (1000, 0, 0, 0, 0)]
    assert pauses == pytest.approx([1.0, 1.0, 2.0, 3.0, 3.0], abs=0.5)
    monkeypatch.setattr(LeakyBucket, "RATE", 1e9)
    assert await pause_after(0) == pytest.approx(6.0, abs=0.5), "the stream is over"


async def test_a_worker_without_work_leaves_its_row_and_polls_once_more_before_it_sleeps() -> None:
    sleeper = Sleeper()
    await sleeper.poll_and_wait_until("the row is there", lambda: sleeper.tube.sleeping)
    await sleeper.poll_and_wait_until("it is quiet", lambda: sleeper.sleeps)
    assert sleeper.poller.is_due(), "it would sleep without the look that sees what the row missed"
    await sleeper.poll()
    waiting = await sleeper.sleeping()
    sleeper.active_term.wake()
    await asyncio.wait_for(waiting, 5)
    assert sleeper.poller.is_due()


async def test_a_worker_that_holds_keys_does_not_fall_asleep() -> None:
    sleeper = Sleeper()
    for _ in range(5):
        await sleeper.poll()
        await sleeper.wait(idle=False)
    assert not sleeper.tube.sleeping


async def test_a_worker_that_cannot_leave_its_row_polls() -> None:
    """An administrator has locked the tube."""
    sleeper = Sleeper()
    sleeper.session.refused[queries.SLEEP] = StatementFailed("locked")
    for _ in range(5):
        await sleeper.poll()
        await sleeper.wait()
    assert not sleeper.sleeps
    del sleeper.session.refused[queries.SLEEP]
    await sleeper.sleep_deep()


async def test_a_wake_up_during_a_poll_is_not_lost() -> None:
    """The look may have begun before the pods were there."""
    sleeper = Sleeper()
    await sleeper.sleep_deep()
    sleeper.poller.begin_poll(sleeper.settled)
    sleeper.active_term.wake()
    await sleeper.poller.end_poll(0, more=False)
    await sleeper.wait()
    assert sleeper.poller.is_due(), "the worker sleeps on, though pods came"


async def test_news_between_two_waits_is_not_lost() -> None:
    sleeper = Sleeper()
    await sleeper.sleep_deep()
    sleeper.active_term.attention.set()
    await sleeper.wait()


async def test_pods_one_by_one_leave_the_row_and_a_stream_takes_it_away() -> None:
    sleeper = Sleeper()
    await sleeper.sleep_deep()
    await sleeper.poll(1)
    await sleeper.poll(1)
    assert sleeper.tube.sleeping, "the row is gone after pods one by one"
    await sleeper.poll(1000)
    assert (sleeper.tube.sleeping, sleeper.sleeps) == (False, False), "the row is still there"


async def test_a_worker_that_is_woken_for_a_pod_polls_once_and_sleeps_on() -> None:
    """The row was there all the time, so whoever came after the look began has notified."""
    sleeper = Sleeper()
    await sleeper.woken()
    await sleeper.poll(1)
    waiting = await sleeper.sleeping()
    sleeper.active_term.wake()
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
    monkeypatch.setattr(LeakyBucket, "RATE", 1e9)
    await sleeper.poll_and_wait_until("the row is there", lambda: sleeper.tube.sleeping)


async def test_where_notifications_do_not_arrive_the_worker_polls() -> None:
    sleeper = Sleeper()
    sleeper.notifications_work = False
    for _ in range(10):
        await sleeper.poll()
        await sleeper.wait()
    assert not sleeper.sleeps


async def test_a_worker_that_was_deaf_for_a_while_polls_before_it_sleeps_again() -> None:
    sleeper = Sleeper()
    await sleeper.sleep_deep()
    sleeper.notifications_work = False
    sleeper.active_term.wake()
    await sleeper.poll()
    await sleeper.wait()
    sleeper.notifications_work = True
    await sleeper.wait()
    assert sleeper.poller.is_due(), "what was notified meanwhile waits for the next wake-up"


async def test_without_a_settled_seq_the_worker_does_not_sleep_deep() -> None:
    sleeper = Sleeper()
    for _ in range(5):
        await sleeper.poll()
        await sleeper.wait(settled=False)
    assert sleeper.tube.sleeping
    assert not sleeper.sleeps


async def test_a_worker_that_may_not_poll_waits_and_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HELD_UP_PAUSE", 3600.0)
    sleeper = Sleeper()
    assert sleeper.poller.is_due()
    waiting = await sleeper.sleeping(idle=False, may_poll=False)
    sleeper.active_term.attention.set()
    await asyncio.wait_for(waiting, 5)


async def test_a_worker_that_has_something_else_to_do_waits_no_longer_than_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_HELD_UP_PAUSE", 3600.0)
    sleeper = Sleeper()
    for pause in (-1.0, 0.0, 0.01):
        await sleeper.wait(idle=False, may_poll=False, until=time.monotonic() + pause)
    assert sleeper.poller.is_due(), "the wait was no poll"


async def test_a_worker_that_sleeps_deep_polls_after_a_while_if_pods_were_written_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No wake-up is known to get lost; if one did, its pods would be late, not lost."""
    monkeypatch.setattr(module, "_DEEP_PAUSE", 0.02)
    sleeper = Sleeper()
    await sleeper.poll_and_wait_until("deep asleep", lambda: sleeper.sleeps)
    await sleeper.poll()
    sleeper.tube.insert(1)
    await sleeper.settled.advance()
    await sleeper.wait()
    assert sleeper.poller.is_due()


async def test_a_worker_that_sleeps_deep_does_not_poll_while_no_pod_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With many tubes, nearly all are idle nearly always."""
    monkeypatch.setattr(module, "_DEEP_PAUSE", 0.01)
    sleeper = Sleeper()
    await sleeper.poll_and_wait_until("deep asleep", lambda: sleeper.sleeps)
    await sleeper.poll()
    for _ in range(3):
        await sleeper.wait()
        assert not sleeper.poller.is_due()


# --- what counts as a stream of pods ---


def _filled(pods: int, seconds: float, each: int = 1) -> tuple[LeakyBucket, float]:
    """A bucket after `pods` arrivals, evenly spread over so many seconds, and the time of the last."""
    bucket = LeakyBucket()
    now = 1000.0
    for _ in range(pods):
        now += seconds / pods
        bucket.add(each, now)
    return bucket, now


def test_without_pods_there_is_no_stream() -> None:
    bucket = LeakyBucket()
    assert not bucket.is_full(1000.0)
    assert bucket.is_empty(1000.0)


def test_fifty_pods_a_second_are_no_stream_however_long_they_come() -> None:
    bucket, now = _filled(5000, 100.0)
    assert not bucket.is_full(now)


def test_a_hundred_pods_a_second_are_a_stream_soon() -> None:
    bucket, now = _filled(100, 1.0)
    assert bucket.is_full(now)


def test_many_pods_at_once_are_a_stream_at_once() -> None:
    bucket, now = _filled(1, 0.0, each=1000)
    assert bucket.is_full(now)


def test_a_stream_is_over_within_a_moment_after_its_last_pod() -> None:
    bucket, now = _filled(100_000, 10.0)
    assert not bucket.is_empty(now + 0.02)
    assert bucket.is_empty(now + LeakyBucket.CAPACITY / LeakyBucket.RATE)


def test_a_stream_that_slows_down_is_over_though_pods_still_come() -> None:
    bucket, now = _filled(1000, 1.0)
    for _ in range(50):
        now += 0.02
        bucket.add(1, now)
        if bucket.is_empty(now + 0.01):
            return
    raise AssertionError("fifty pods a second keep it up for a second")
