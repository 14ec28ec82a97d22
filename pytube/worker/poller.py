"""When a partition's worker polls for pods: at once, after a short pause, or when a writer notifies it.

    busy     the last poll found pods: poll again at once (more are waiting), or after the first pause
    polling  polls found nothing: poll again after a pause; the pauses double
    asleep   the sleeper row is committed, so writers that come later send a NOTIFY
    deep     asleep, everything drawn before the row was visible is settled, and one more poll found
             nothing: only a writer wakes the worker (or a poll every few seconds, for a writer whose
             snapshot is older than the sleeper row)

The sleeper row stays while pods arrive one by one, and is removed once they arrive in a stream (see
`leaky_bucket.py`). A worker that is woken for one pod polls once and sleeps deeply again: the row was
there all the time, so later writers notify. Single pods are thus delivered at once, without polling, and
the writers of a stream send no notifications.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from pytube.errors import StatementFailed
from pytube.sources import wakeup
from pytube.sources.session import Session
from pytube.sources.settled import Settled
from pytube.sources.terms import Term
from pytube.worker.leaky_bucket import LeakyBucket

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25
_HELD_BACK_PAUSE = 0.02
"""Longest pause, in seconds, between polls of a worker that is full of backfill: it holds keys, so it can't
sleep, and incremental touches must not wait for the backfill."""
_DEEP_PAUSE = 5.0
_HELD_UP_PAUSE = 0.05
"""Seconds between rounds of a worker that may not poll: it has no room, or no trust."""


class Poller:
    """Decides when the worker polls next, and waits until then."""

    def __init__(self, session: Session, term: Term, notifications_work: Callable[[], bool]) -> None:
        """Args:
        session: writes the sleeper row; may lose its last commits in a crash.
        term: owner of the sleeper row.
        notifications_work: whether notifications arrive at present.
        """
        self.attention = asyncio.Event()
        """Set by everything that the worker has to handle: a wake-up, a result of a delivery, a stop."""
        self._session = session
        self._term = term
        self._notifications_work = notifications_work
        self._woken = True
        self._asleep = False
        self._deep = False
        self._pause = _FIRST_PAUSE
        self._next_poll = 0.0
        self._polled_at = 0.0
        self._bucket = LeakyBucket()
        self._empty_polls = 0
        self._took_all = False

    def wake(self) -> None:
        """Pods may have arrived: poll at once."""
        self._woken = True
        self.attention.set()

    @property
    def is_deep(self) -> bool:
        """Whether only a writer wakes the worker."""
        return self._deep

    def is_due(self) -> bool:
        """Whether it is time to poll."""
        return self._woken or time.monotonic() >= self._next_poll

    def begin_poll(self) -> None:
        """A poll begins: it may miss the pods of a wake-up that comes from now on."""
        self._woken = False

    async def end_poll(self, pods: int, *, more: bool, left_out: bool = False) -> None:
        """A poll is over.

        Args:
            pods: how many it found.
            more: whether it reached its limit, so that more may be waiting.
            left_out: whether it excluded backfill pods, for lack of room.
        """
        now = time.monotonic()
        self._empty_polls = 0 if pods else self._empty_polls + 1
        self._took_all = not (more or left_out)
        self._polled_at = now
        longest = _HELD_BACK_PAUSE if left_out else _LONGEST_PAUSE
        self._pause = min(longest, self._pause * 2) if self._empty_polls > 1 else _FIRST_PAUSE
        self._next_poll = now if more else now + self._pause
        self._bucket.add(pods, now)
        if self._asleep and self._bucket.is_full(now):
            await self._remove_sleeper()

    async def wait(self, settled: Settled | None, *, idle: bool, may_poll: bool = True) -> None:
        """Wait for `attention` or until the next poll.

        Args:
            settled: tells when a sleeping worker may sleep deeply; None while it is not known.
            idle: the worker holds no key, so it may sleep after a while.
            may_poll: whether the worker would poll if it were time.
        """
        pause = self._next_poll - time.monotonic()
        if not may_poll:
            pause = _HELD_UP_PAUSE
        elif idle and self._may_sleep():
            if await self._needs_poll_before_sleep(settled):
                return
            if self._deep and not self._woken:
                self._next_poll = self._polled_at + _DEEP_PAUSE
                pause = self._next_poll - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, pause)):
                await self.attention.wait()
        self.attention.clear()

    def _may_sleep(self) -> bool:
        if self._deep and self._took_all:
            return True
        return self._empty_polls > 1 and self._bucket.is_empty(time.monotonic())

    async def _needs_poll_before_sleep(self, settled: Settled | None) -> bool:
        """Write the sleeper row, and sleep deeply if possible; whether one more poll must come first."""
        if not self._asleep:
            try:
                await wakeup.fall_asleep(self._session, self._term)
            except StatementFailed:
                return False  # an administrator has locked the tube; a worker that polls misses nothing
            self._asleep = True
        if not self._notifications_work():
            self._deep = False  # notifications sent meanwhile are lost
        elif not self._deep and settled is not None and await settled.is_quiet():
            self._deep = True
            self._woken = True  # this poll finds the pods of writers that could not see the row yet
            return True
        return False

    async def _remove_sleeper(self) -> None:
        self._asleep = self._deep = False
        await wakeup.wake_up(self._session, self._term)
