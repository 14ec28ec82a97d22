"""The retry queue of one partition: the keys to send again, in which groups, and when. Pure.

A group that failed as a whole is sent again in parts, down to single documents, so that one poison document
fails alone. Eight parts find it in a third of the rounds that halves need, and where each tenth document is
poison, with no more requests. Only a failure of a document that was sent alone uses up one of its attempts.
Times are of any monotonic clock, in seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from pytube.model import Key, PodClass
from pytube.pipeline.inflight import Flight

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 30.0
_PARTS = 8
_Heap = list[tuple[float, int, Flight, list[Key]]]


@dataclass(slots=True)
class DeadLetter:
    """A key to be parked, because its attempts are used up or the sink rejected it."""

    key: Key
    reason: str
    attempts: int


class RetryQueue:
    """The groups of keys that are to be sent again; each stays in its flight until it is done."""

    def __init__(self, attempts: int) -> None:
        """`attempts`: how often a document may fail alone before it becomes a dead letter."""
        self._attempts = attempts
        self._groups: tuple[_Heap, _Heap] = ([], [])
        """By class."""
        self._failures: dict[Key, int] = {}
        self._delays: dict[Key, int] = {}
        self._order = count()
        self.keys = 0
        """How many keys wait."""
        self._alone = 0
        """How many of them have failed alone, and are to be sent alone."""

    @property
    def put_off(self) -> int:
        """How many wait, without keys that have failed alone: they hold up no others."""
        return self.keys - self._alone

    def push(self, flight: Flight, keys: Sequence[Key], at: float = 0.0) -> None:
        if keys:
            heapq.heappush(self._groups[flight.pod_class], (at, next(self._order), flight, list(keys)))
            self.keys += len(keys)
            self._alone += self._has_failed_alone(keys)

    def next_at(self, pod_class: PodClass) -> float | None:
        """When the next group of the class may be sent; None when there is none."""
        groups = self._groups[pod_class]
        return groups[0][0] if groups else None

    def pop(self, pod_class: PodClass, now: float) -> tuple[Flight, list[Key]] | None:
        """The next group of the class that is due, and its flight; None when none is."""
        groups = self._groups[pod_class]
        if not groups or groups[0][0] > now:
            return None
        _, _, flight, keys = heapq.heappop(groups)
        self.keys -= len(keys)
        self._alone -= self._has_failed_alone(keys)
        return flight, keys

    def _has_failed_alone(self, keys: Sequence[Key]) -> bool:
        return len(keys) == 1 and keys[0] in self._failures

    def fail(self, flight: Flight, keys: Sequence[Key], reason: str, now: float) -> DeadLetter | None:
        """The group failed as a whole: split it, or use up one attempt of a single key."""
        if len(keys) > 1:
            self.split(flight, keys, now, _PARTS)
            return None
        (key,) = keys
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures >= self._attempts:
            return DeadLetter(key, reason, failures)
        self.push(flight, [key], now + backoff(failures))
        return None

    def split(self, flight: Flight, keys: Sequence[Key], now: float, parts: int = 2) -> None:
        """Send the group again in parts, behind the groups that are ready; no attempt is used up."""
        size = -(-len(keys) // parts)
        for start in range(0, len(keys), size):
            self.push(flight, keys[start : start + size], now)

    def delay(self, flight: Flight, keys: Mapping[Key, float], now: float) -> None:
        """Send each of these keys again after the number of seconds that the sink asked for.

        The pause grows for a key that the sink delays repeatedly; no attempt is used up.
        """
        groups: dict[float, list[Key]] = {}
        for key, after in keys.items():
            asked = self._delays[key] = self._delays.get(key, 0) + 1
            groups.setdefault(max(after, backoff(asked)), []).append(key)
        for after, group in groups.items():
            self.push(flight, group, now + after)

    def recall(self, key: Key, attempts: int) -> None:
        """The document of `key` has failed so often in an earlier term."""
        self._failures[key] = attempts

    def attempts_of(self, key: Key) -> int:
        return self._failures.get(key, 0)

    def forget(self, keys: Iterable[Key]) -> None:
        """These keys are done: their failures count no more."""
        if self._failures or self._delays:
            for key in keys:
                self._failures.pop(key, None)
                self._delays.pop(key, None)


@dataclass(slots=True)
class BackOff:
    """A pause that grows with each failure in a row."""

    failures: int = 0
    until: float = 0.0
    """When the next try is due."""

    def fail(self, now: float) -> None:
        self.failures += 1
        self.until = now + backoff(self.failures)


def backoff(failures: int) -> float:
    """Seconds to wait after that many failures in a row, where nothing else is configured."""
    return doubled(failures, _FIRST_DELAY, _LONGEST_DELAY)


def doubled(failures: int, first: float, longest: float) -> float:
    """Seconds to wait after that many failures in a row: `first`, doubled with each, `longest` at most."""
    return min(longest, first * 2.0 ** min(failures - 1, 32))
