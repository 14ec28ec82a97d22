"""How late the event loop of a worker is: this delay must not be held against a sink.

A loop is late where the process gets too little processor time, or was stopped, and where code in it blocks.
An answer that has come then waits, and seems to have taken long.
"""

from __future__ import annotations

import asyncio
import time
from weakref import WeakKeyDictionary

from pytube.logs import Logger

_log = Logger("pytube.worker")
_INTERVAL = 0.1
"""Seconds between two looks at the clock, while there are requests."""
_WINDOW = 10.0
"""Seconds after which it is judged."""
_MUCH = 1 / 2
"""Of a window: a loop so late is reported, and one whose thread has worked so long counts as busy."""
_RECENT = 60.0
"""Seconds for which it is reported."""
_STANDSTILL = 1.0
"""Seconds, from which on a request has failed because of it, if they are most of its time."""

_OF: WeakKeyDictionary[asyncio.AbstractEventLoop, Lateness] = WeakKeyDictionary()


class Lateness:
    """Measures while `begin` was called more often than `end`. Gates of a loop share it: see `of_loop`."""

    def __init__(self) -> None:
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")
        """When the next look is due, by `time.monotonic()`."""
        self._total = 0.0
        self._measured = self._late = self._worked = 0.0
        """Of the present window: its length, the lateness in it, and the work of the loop's thread."""
        self._worked_at = 0.0
        self._why = ""
        self._since = self._until = float("-inf")
        """From when to when it is reported."""

    def begin(self) -> None:
        """A request begins."""
        self._users += 1
        if self._timer is None:
            self._await_next(time.monotonic())

    def end(self) -> None:
        """A request has ended."""
        self._users -= 1

    def total(self, now: float) -> float:
        """Seconds by which the loop was late so far, all together; only differences mean anything."""
        return self._total + max(0.0, now - self._due)

    def why(self) -> tuple[str, float] | None:
        """The reason to report, and since when; None: it has hardly been late for a minute."""
        return (self._why, self._since) if time.monotonic() < self._until else None

    def _await_next(self, now: float) -> None:
        self._due, self._worked_at = now + _INTERVAL, time.thread_time()
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._look)

    def _look(self) -> None:
        now, self._timer = time.monotonic(), None
        self.note(now - self._due, time.thread_time() - self._worked_at, now)
        if self._users:
            self._await_next(now)
        else:
            self._due = float("inf")

    def note(self, late: float, worked: float, now: float) -> None:
        """A look came so late, and the loop's thread has worked so long since the one before."""
        late = max(0.0, late)
        self._total += late
        self._late += late
        self._measured += _INTERVAL + late
        self._worked += worked
        if self._measured < _WINDOW:
            return
        if self._late >= _MUCH * self._measured:
            self._tell(now)
        self._measured = self._late = self._worked = 0.0

    def _tell(self, now: float) -> None:
        what = f"its event loop was late for {self._late:.1f} of {self._measured:.0f} s"
        if self._worked >= _MUCH * self._measured:
            self._why = (
                f"the worker has too much to do: {what}, at work for {self._worked:.1f} s; start another "
                "worker, or make transforms and other code of yours in it quicker"
            )
        else:
            self._why = (
                f"the worker gets too little processor time: {what}, at work for {self._worked:.1f} s; raise "
                "its CPU limit or its priority, or move it to a machine that is less busy; code of yours in "
                "it that waits without await has the same effect"
            )
        if now >= self._until:
            self._since = now - self._measured
            _log.warning("worker_late", reason=self._why)
        self._until = now + _RECENT

    def delays(self, since: float, total: float, now: float) -> bool:
        """Whether a request that began then, at that total, failed because of this process."""
        late = self.total(now) - total
        return late >= max(_STANDSTILL, (now - since) / 2)


def of_loop() -> Lateness:
    """The one of the running event loop."""
    return _OF.setdefault(asyncio.get_running_loop(), Lateness())
