"""What is still to be sent of one flight, in which groups, and when. Pure.

A group that failed as a whole is sent again in halves, down to single documents, so that one
poison document costs itself alone. Only a failure of a document that stood alone uses up one of
its attempts. Moments are of any monotonic clock, in seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from pytube.model import Key

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 30.0


@dataclass(slots=True)
class GaveUp:
    """A key to be parked."""

    key: Key
    reason: str
    attempts: int


@dataclass(slots=True)
class Redelivery:
    """The groups of one flight that are not done. `attempts`: failures alone before giving up."""

    attempts: int
    _ready: list[tuple[float, int, list[Key]]] = field(default_factory=list)
    _failures: dict[Key, int] = field(default_factory=dict)
    _delays: dict[Key, int] = field(default_factory=dict)
    _order: count[int] = field(default_factory=count)

    def push(self, keys: Sequence[Key], at: float = 0.0) -> None:
        """Send these together, not before `at`."""
        if keys:
            heapq.heappush(self._ready, (at, next(self._order), list(keys)))

    @property
    def next_at(self) -> float | None:
        """When the next group may go; None when nothing is left."""
        return self._ready[0][0] if self._ready else None

    def pop(self) -> list[Key]:
        """The next group; the caller has waited until `next_at`."""
        return heapq.heappop(self._ready)[2]

    def failed(self, keys: Sequence[Key], reason: str, now: float) -> GaveUp | None:
        """The group failed as a whole: in halves again, or one attempt less for a single key."""
        if len(keys) > 1:
            self.halve(keys, now)
            return None
        (key,) = keys
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures >= self.attempts:
            return GaveUp(key, reason, failures)
        self.push([key], now + delay(failures))
        return None

    def halve(self, keys: Sequence[Key], now: float) -> None:
        """Send the group again in two, behind what is ready; no attempt is used up."""
        middle = (len(keys) + 1) // 2
        self.push(keys[:middle], now)
        self.push(keys[middle:], now)

    def delayed(self, keys: Mapping[Key, float], now: float) -> None:
        """The sink asked for each of these to be sent again after so many seconds.

        A sink that keeps asking is asked ever more rarely; no attempt is used up.
        """
        groups: dict[float, list[Key]] = {}
        for key, after in keys.items():
            asked = self._delays[key] = self._delays.get(key, 0) + 1
            groups.setdefault(max(after, delay(asked)), []).append(key)
        for after, group in groups.items():
            self.push(group, now + after)

    def attempts_of(self, key: Key) -> int:
        """How often the document of `key` has failed alone."""
        return self._failures.get(key, 0)


def delay(tries: int) -> float:
    """Seconds to wait after the `tries`-th failure in a row (1 is the first): doubled each time."""
    return min(_LONGEST_DELAY, _FIRST_DELAY * float(2 ** min(tries - 1, 16)))
