"""When a line looks for pods again: at once, after a short poll, or when a writer wakes it.

    busy     the last look found pods: look again at once (more waits), or after the first pause
    polling  looks found nothing: look again after a pause, later after pauses that double
    asleep   the sleeper row is committed, so that writers that come later send a NOTIFY
    deep     asleep, everything drawn before the row was seen is settled, and one more look found
             nothing: only a writer wakes the line (or a look every few seconds, for a writer whose
             snapshot was older than the sleeper row)

The row stays while pods come one by one, and is taken away once they come in a stream (see
`leaky_bucket.py`). A line that is woken for a pod looks once and is deep again: the row was there all the
time, so that whoever comes later notifies. So pods one by one are delivered at once, without polls,
and a stream's writers send no notifications.
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
"""Seconds at most between looks of a line that is full of backfill: it holds keys, so it can't fall asleep,
and incremental touches are not to wait for it."""
_DEEP_PAUSE = 5.0
_HELD_UP_PAUSE = 0.05
"""Seconds between rounds of a line that may not look: it has no room, or no trust."""


class Rest:
    """Decides when the line looks again, and waits until then."""

    def __init__(self, session: Session, term: Term, hears: Callable[[], bool]) -> None:
        """Args:
        session: where the sleeper row is written; it may lose the last commits in a crash.
        term: whose sleeper row.
        hears: whether notifications arrive at present.
        """
        self.news = asyncio.Event()
        """Set by whatever the line should attend to: a wake-up, a landing, a stop."""
        self._session = session
        self._term = term
        self._hears = hears
        self._woken = True
        self._asleep = False
        self._quiet = False
        self._pause = _FIRST_PAUSE
        self._next_look = 0.0
        self._looked_at = 0.0
        self._bucket = LeakyBucket()
        self._empty_looks = 0
        self._saw_all = False

    def wake(self) -> None:
        """Pods may have come: look at once."""
        self._woken = True
        self.news.set()

    @property
    def is_deep(self) -> bool:
        """Whether only a writer wakes the line."""
        return self._quiet

    def is_due(self) -> bool:
        """Whether it is time to look."""
        return self._woken or time.monotonic() >= self._next_look

    def looking(self) -> None:
        """A look begins: whoever wakes the line from now on may have pods that it does not see."""
        self._woken = False

    async def looked(self, pods: int, *, more: bool, left_out: bool = False) -> None:
        """A look is over.

        Args:
            pods: how many it found.
            more: whether these were as many as it could take.
            left_out: whether it passed some over, for which there was no room.
        """
        now = time.monotonic()
        self._empty_looks = 0 if pods else self._empty_looks + 1
        self._saw_all = not (more or left_out)
        self._looked_at = now
        longest = _HELD_BACK_PAUSE if left_out else _LONGEST_PAUSE
        self._pause = min(longest, self._pause * 2) if self._empty_looks > 1 else _FIRST_PAUSE
        self._next_look = now if more else now + self._pause
        self._bucket.add(pods, now)
        if self._asleep and self._bucket.is_full(now):
            await self._get_up()

    async def wait(self, settled: Settled | None, *, idle: bool, may_look: bool = True) -> None:
        """Wait for news or until the next look.

        Args:
            settled: tells when a line that fell asleep may stay asleep; None while it is not known.
            idle: no key is held: the line falls asleep after a while.
            may_look: whether the line would look if it were time.
        """
        pause = self._next_look - time.monotonic()
        if not may_look:
            pause = _HELD_UP_PAUSE
        elif idle and self._may_sleep():
            if await self._fell_asleep(settled):
                return
            if self._quiet and not self._woken:
                self._next_look = self._looked_at + _DEEP_PAUSE
                pause = self._next_look - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, pause)):
                await self.news.wait()
        self.news.clear()

    def _may_sleep(self) -> bool:
        if self._quiet and self._saw_all:
            return True
        return self._empty_looks > 1 and self._bucket.is_empty(time.monotonic())

    async def _fell_asleep(self, settled: Settled | None) -> bool:
        """Go as deep as can be; whether that takes one more look first."""
        if not self._asleep:
            try:
                await wakeup.fall_asleep(self._session, self._term)
            except StatementFailed:
                return False  # an administrator has the tube locked; a line that polls misses nothing
            self._asleep = True
        if not self._hears():
            self._quiet = False  # what is notified meanwhile is missed
        elif not self._quiet and settled is not None and await settled.is_quiet():
            self._quiet = True
            self._woken = True  # the look sees all that the row came too late for
            return True
        return False

    async def _get_up(self) -> None:
        self._asleep = self._quiet = False
        await wakeup.wake_up(self._session, self._term)
