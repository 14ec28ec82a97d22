"""A leaky bucket that tells a trickle of pods from a stream. Pure arithmetic; the clock is the caller's.

Each pod fills the bucket a little, and the bucket leaks at `RATE`: the rate above which wake-ups cost more
than polling. A full bucket means a stream; an empty bucket means that the stream has ended.
"""

from __future__ import annotations

RATE = 60.0
"""Pods a second. Above this rate, a poll every 10 ms finds as many pods as a wake-up for each would.
Transactions that notify commit one after the other: where a commit takes 10 ms, at most 100 a second
commit, so a higher rate might never be seen."""
CAPACITY = 8.0
"""Pods above the rate that may arrive at once."""
_EMPTY = 1.0


class LeakyBucket:
    """The recent arrival rate of one partition's pods."""

    def __init__(self) -> None:
        self._level = 0.0
        self._at = 0.0

    def add(self, pods: int, now: float) -> None:
        """Count `pods` that a poll found at `now` (monotonic seconds)."""
        self._level = min(CAPACITY, self._level_at(now) + pods)
        self._at = now

    def is_full(self, now: float) -> bool:
        """Whether pods arrive in a stream: faster than writers should notify."""
        return self._level_at(now) >= CAPACITY

    def is_empty(self, now: float) -> bool:
        """Whether pods arrive so slowly, or not at all, that the worker may sleep until it is notified."""
        return self._level_at(now) < _EMPTY

    def _level_at(self, now: float) -> float:
        return max(0.0, self._level - (now - self._at) * RATE)
