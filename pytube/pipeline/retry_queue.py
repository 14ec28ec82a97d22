"""The retry queue of one flight: what is still to be sent, in which groups, and when. Pure.

A group that failed as a whole is sent again in halves, down to single documents, so that one poison
document fails alone. Only a failure of a document that was sent alone uses up one of its attempts. Times
are of any monotonic clock, in seconds.
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
class DeadLetter:
    """A key to be parked, because its attempts are used up or the sink rejected it."""

    key: Key
    reason: str
    attempts: int


@dataclass(slots=True)
class RetryQueue:
    """The groups of one flight that are still to be sent.

    `attempts`: how often a document may fail alone before it becomes a dead letter.
    """

    attempts: int
    _ready: list[tuple[float, int, list[Key]]] = field(default_factory=list)
    _failures: dict[Key, int] = field(default_factory=dict)
    _delays: dict[Key, int] = field(default_factory=dict)
    _order: count[int] = field(default_factory=count)

    def push(self, keys: Sequence[Key], at: float = 0.0) -> None:
        """Send these keys together, not before `at`."""
        if keys:
            heapq.heappush(self._ready, (at, next(self._order), list(keys)))

    @property
    def next_at(self) -> float | None:
        """When the next group may be sent; None when the queue is empty."""
        return self._ready[0][0] if self._ready else None

    def pop(self) -> list[Key]:
        """The next group; the caller has waited until `next_at`."""
        return heapq.heappop(self._ready)[2]

    def fail(self, keys: Sequence[Key], reason: str, now: float) -> DeadLetter | None:
        """The group failed as a whole: halve it, or use up one attempt of a single key."""
        if len(keys) > 1:
            self.halve(keys, now)
            return None
        (key,) = keys
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures >= self.attempts:
            return DeadLetter(key, reason, failures)
        self.push([key], now + backoff(failures))
        return None

    def halve(self, keys: Sequence[Key], now: float) -> None:
        """Send the group again as two, behind the groups that are ready; no attempt is used up."""
        middle = (len(keys) + 1) // 2
        self.push(keys[:middle], now)
        self.push(keys[middle:], now)

    def delay(self, keys: Mapping[Key, float], now: float) -> None:
        """Send each of these keys again after the number of seconds that the sink asked for.

        The pause grows for a key that the sink delays repeatedly; no attempt is used up.
        """
        groups: dict[float, list[Key]] = {}
        for key, after in keys.items():
            asked = self._delays[key] = self._delays.get(key, 0) + 1
            groups.setdefault(max(after, backoff(asked)), []).append(key)
        for after, group in groups.items():
            self.push(group, now + after)

    def attempts_of(self, key: Key) -> int:
        """How often the document of `key` has failed alone."""
        return self._failures.get(key, 0)


def backoff(failures: int) -> float:
    """Seconds to wait after that many failures in a row: doubled with each, up to a limit."""
    return min(_LONGEST_DELAY, _FIRST_DELAY * float(2 ** min(failures - 1, 16)))
