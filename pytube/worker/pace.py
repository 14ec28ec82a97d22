"""When a partition's worker marks: as soon as pods are there, and no more often than that pays.

`RoundPacer` says how often rounds pay; it is pure. A round (a mark that also purges, a read, a send) costs
about as much for one document as for twenty. A worker that begins a round for each row of a stream spends
all its time, and most of the server's, on rounds. So a round that found changes puts the next one off, by a
multiple of its duration, and never by more than `latency`. Changes that come meanwhile share the
next round, and a row that changes often is sent once: the more touches there are of each key, the longer the
next round is put off.

A round that found nothing puts nothing off: a change after a quiet moment is delivered at once. Nor does a
round that was full: more is waiting, and the next round is likely to be full, too.

`Poller` says when to look for pods: at once, after a short pause, or when a writer notifies.

    busy     the last poll found pods: poll again at once (more are waiting), or after the first pause
    polling  polls found nothing: poll again after a pause; the pauses double, up to a short one just after a
             stream
    asleep   the sleeper row is committed, so writers that come later send a NOTIFY
    deep     asleep, every seq drawn before the row was visible is settled, and one more poll found
             nothing: only a writer wakes the worker

The sleeper row stays while pods arrive one by one, and is removed once they arrive in a stream. A worker
that is woken for one pod polls once and sleeps deeply again: the row was there all the time, so later
writers notify. Single pods are thus delivered at once, without polling, and the writers of a stream send no
notifications.
"""

from __future__ import annotations

import asyncio
import time

from pytube.db.session import Queries
from pytube.errors import StatementFailed
from pytube.sources import wakeup
from pytube.sources.settled import Settled
from pytube.worker.active_term import ActiveTerm

# --- rounds --------------------------------------------------------------------------------------


MULTIPLE = 4.0
"""Rounds of a stream take at most about one part in so many of a partition's time."""
_WEIGHT = 0.2
"""Of the newest measurement in the averages."""


class RoundPacer:
    """When the rounds of one partition may begin, by any monotonic clock in seconds."""

    def __init__(self, latency: float, multiple: float | None = None) -> None:
        """No round was begun. `latency`: seconds by which a round is put off at most; `multiple`: of its
        cost.
        """
        self._latency = latency
        self._multiple = MULTIPLE if multiple is None else multiple
        self._begun = float("-inf")
        self._exchange = 0.0
        self._delivery = 0.0
        self._repeats = 1.0
        self.next_at = float("-inf")
        """No round may begin before."""

    def begin(self, now: float) -> None:
        self._begun = now

    def end_exchange(self, seconds: float, found: int, *, full: bool) -> None:
        """Its mark took so many seconds, and found so many pods; `full`: as many as it could take."""
        self._exchange = _smoothed(self._exchange, seconds)
        self.next_at = self._begun + self._gap if found and not full else float("-inf")

    def note_delivery(self, seconds: float) -> None:
        self._delivery = _smoothed(self._delivery, seconds)

    def note_touches(self, touches: int, keys: int) -> None:
        """So many touches were of so many keys; touches of a waiting key add no key."""
        self._repeats = max(1.0, touches / max(1, keys))

    @property
    def _gap(self) -> float:
        return min(self._latency, self._multiple * self._repeats * (self._exchange + self._delivery))


def _smoothed(average: float, value: float) -> float:
    return value if not average else average + _WEIGHT * (value - average)


# --- polls ---------------------------------------------------------------------------------------


_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.25
_SHORT_PAUSE = 0.02
"""Longest pause, in seconds, between polls of a worker that may not sleep and must not be late: it is full of
backfill, for which incremental touches must not wait; or a stream has just ended, and may continue."""
_DEEP_PAUSE = 60.0
"""Seconds after which a worker that sleeps deeply polls, if any pod was written to any tube meanwhile. A
wake-up gets lost where the queue of notifications fills before that is known: pods are late by this then."""
_HELD_UP_PAUSE = 0.05
"""Seconds between rounds of a worker that may not poll: it has no room, or no trust."""


class LeakyBucket:
    """Distinguishes a trickle of pods from a stream: each pod fills it a little, and it leaks at `RATE`."""

    RATE = 60.0
    """Pods a second. Above this rate, polls find as many pods as a wake-up for each would. Transactions
    that notify commit one after the other: where a commit takes 10 ms, at most 100 a second commit, so a
    higher rate might never be seen."""
    CAPACITY = 8.0
    """Pods above the rate that may arrive at once."""
    _EMPTY = 1.0

    def __init__(self) -> None:
        self._level = 0.0
        self._at = 0.0

    def add(self, pods: int, now: float) -> None:
        """Count `pods` that a poll found at `now` (monotonic seconds)."""
        self._level = min(self.CAPACITY, self._level_at(now) + pods)
        self._at = now

    def is_full(self, now: float) -> bool:
        """Whether pods arrive in a stream: faster than writers should notify."""
        return self._level_at(now) >= self.CAPACITY

    def is_empty(self, now: float) -> bool:
        """Whether pods arrive so slowly, or not at all, that the worker may sleep until it is notified."""
        return self._level_at(now) < self._EMPTY

    def _level_at(self, now: float) -> float:
        return max(0.0, self._level - (now - self._at) * self.RATE)


class Poller:
    """Decides when the worker of one partition polls next, and waits until then."""

    def __init__(self, session: Queries, active_term: ActiveTerm) -> None:
        self._session = session
        self._active_term = active_term
        self._asleep = False
        self._pause = _FIRST_PAUSE
        self._next_poll = 0.0
        self._polled_at = 0.0
        self._settled_at_poll = 0
        self._bucket = LeakyBucket()
        self._empty_polls = 0
        self._took_all = False

    def is_due(self) -> bool:
        return self._active_term.woken or time.monotonic() >= self._next_poll

    def begin_poll(self, settled: Settled | None) -> None:
        """A poll begins: it may miss the pods of a wake-up that comes from now on."""
        self._active_term.woken = False
        self._settled_at_poll = settled.seq if settled is not None else 0

    async def end_poll(self, pods: int, *, more: bool, left_out: bool = False) -> None:
        """A poll has found so many pods.

        `more`: it reached its limit, so that more may be waiting; `left_out`: it excluded backfill pods, as
        there was no room.
        """
        now = time.monotonic()
        self._empty_polls = 0 if pods else self._empty_polls + 1
        self._took_all = not (more or left_out)
        self._polled_at = now
        self._bucket.add(pods, now)
        longest = _SHORT_PAUSE if left_out or not self._bucket.is_empty(now) else _LONGEST_PAUSE
        self._pause = min(longest, self._pause * 2) if self._empty_polls > 1 else _FIRST_PAUSE
        self._next_poll = now if more else now + self._pause
        if self._asleep and self._bucket.is_full(now):
            self._asleep = self._active_term.sleeps = False
            await wakeup.wake_up(self._session, self._active_term.term)

    async def wait(
        self,
        settled: Settled | None,
        *,
        notified: bool,
        idle: bool,
        may_poll: bool = True,
        not_before: float = float("-inf"),
        until: float | None = None,
    ) -> None:
        """Wait until the term needs attention, or until the next poll.

        `idle`: the worker holds no key, so it may sleep after a while; `may_poll`: it would poll if it were
        time; `not_before`: no poll begins before; `until`: when there is something else to do, by
        `time.monotonic()`.
        """
        next_poll = max(not_before, float("-inf") if self._active_term.woken else self._next_poll)
        deep = False
        if not may_poll:
            next_poll = time.monotonic() + _HELD_UP_PAUSE
        elif idle and self._may_sleep():
            if await self._needs_poll_before_sleep(settled, notified):
                return
            deep = self._active_term.sleeps and not self._active_term.woken
            if deep:
                next_poll = self._next_poll = self._next_deep_poll(settled)
        pause = (next_poll if until is None else min(next_poll, until)) - time.monotonic()
        attention = self._active_term.attention
        timer = asyncio.get_running_loop().call_later(max(0.0, pause), attention.set)
        try:
            await attention.wait()
        finally:
            timer.cancel()
        attention.clear()
        if deep:
            self._next_poll = self._next_deep_poll(settled)  # later writes are known by now

    def _next_deep_poll(self, settled: Settled | None) -> float:
        """A long pause after the last poll; a pause from now if nothing was written since."""
        unchanged = settled is not None and settled.seq == self._settled_at_poll
        return (time.monotonic() if unchanged else self._polled_at) + _DEEP_PAUSE

    def _may_sleep(self) -> bool:
        if self._active_term.sleeps and self._took_all:
            return True
        return self._empty_polls > 1 and self._bucket.is_empty(time.monotonic())

    async def _needs_poll_before_sleep(self, settled: Settled | None, notified: bool) -> bool:
        """Write the sleeper row, and sleep deeply if possible; whether one more poll must come first."""
        if not self._asleep:
            try:
                await wakeup.fall_asleep(self._session, self._active_term.term)
            except StatementFailed:
                return False  # an administrator has locked the tube; a worker that polls misses nothing
            self._asleep = True
        if not notified:
            self._active_term.sleeps = False  # notifications sent meanwhile are lost
        elif not self._active_term.sleeps and settled is not None and await settled.is_quiet():
            self._active_term.sleeps = True
            self._active_term.woken = True  # this poll finds the pods of writers that could not see the row
            return True
        return False
