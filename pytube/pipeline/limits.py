"""How much a sink is given, and when: a rate, and a slow start after an outage. Pure; times are given.

All moments are of any one monotonic clock, in seconds.
"""

from __future__ import annotations

import math


class TokenBucket:
    """A rate that a second's worth of work may run ahead of.

    In any span of `t` seconds at most `rate * (t + 1)` units pass. A request that is larger than a second's
    worth goes when a second's worth is there, and those behind it wait the longer.
    """

    def __init__(self, rate: float) -> None:
        """`rate`: units a second, more than 0."""
        self._rate = rate
        self._most = max(1.0, rate)
        self._level = self._most
        self._at = -math.inf

    def wait(self, units: int, now: float) -> float:
        """Seconds until so many units may pass; 0 when they may now."""
        missing = min(units, self._most) - self._level_at(now)
        return max(0.0, missing / self._rate)

    def take(self, units: int, now: float) -> None:
        """So many units pass now."""
        self._level = self._level_at(now) - units
        self._at = now

    def give_back(self, units: int) -> None:
        """Units that were taken did not pass."""
        self._level = min(self._most, self._level + units)

    def _level_at(self, now: float) -> float:
        gained = 0.0 if now <= self._at else (now - self._at) * self._rate
        return min(self._most, self._level + gained)


class SlowStart:
    """After an outage: `first` requests in the first second, twice as many in each second after it.

    They are spread over the second, so that what waits does not start all at once at its begin.
    """

    SECONDS = 10.0
    """After so long it is over: it allows a thousand times the first second's requests by then."""

    def __init__(self, first: int) -> None:
        """`first`: requests in the first second, 1 or more."""
        self._first = first
        self._began = -math.inf
        self._begun = 0
        """Requests since then."""

    def begin(self, now: float) -> None:
        """The outage is over."""
        self._began, self._begun = now, 0

    def is_over(self, now: float) -> bool:
        """Whether requests may pass as they come."""
        return now >= self._began + self.SECONDS

    def wait(self, now: float) -> float:
        """Seconds until the next request may begin; 0 when it may now."""
        if self.is_over(now):
            return 0.0
        # `first * (2 ** t - 1)` requests may have begun t seconds after the outage.
        due = self._began + math.log2((self._begun + 1) / self._first + 1)
        return max(0.0, min(due, self._began + self.SECONDS) - now)

    def take(self) -> None:
        """A request begins."""
        self._begun += 1

    def give_back(self) -> None:
        """A request that was to begin did not."""
        self._begun = max(0, self._begun - 1)
