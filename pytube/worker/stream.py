"""Whether pods come one by one or in a stream; plain arithmetic, the clock is the caller's.

A vessel that leaks at the rate from which on waking costs more than polling: each pod fills it a
little. Full, it is a stream; empty, the stream is over.
"""

from __future__ import annotations

RATE = 60.0
"""Pods a second. More than these, and a poll each 10 ms finds as much as a wake-up for each would.
Transactions that notify commit one after the other: where a commit takes 10 ms, no more than 100 a
second come through, so a higher rate might never be seen."""
BURST = 8.0
"""Pods beyond the rate that may come at once."""
_EMPTY = 1.0


class Stream:
    """The pods of one line, as they came."""

    def __init__(self) -> None:
        self._level = 0.0
        self._at = 0.0

    def came(self, pods: int, now: float) -> None:
        """So many were found at `now` (monotonic seconds)."""
        self._level = min(BURST, self._left(now) + pods)
        self._at = now

    def runs(self, now: float) -> bool:
        """Whether they come faster than a writer should notify."""
        return self._left(now) >= BURST

    def is_over(self, now: float) -> bool:
        """Whether they come so slowly again, or not at all, that the line may fall asleep."""
        return self._left(now) < _EMPTY

    def _left(self, now: float) -> float:
        return max(0.0, self._level - (now - self._at) * RATE)
