"""Samples of the last hours, in memory that is bounded and allotted as they come."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

MOST_SERIES: Final = 1000
"""Partitions, tubes and outboxes that have a history: with a sample each 5 s for 6 hours, 52 kB each."""


@dataclass(frozen=True, slots=True)
class Series:
    """What a history is of: a partition of a tube or outbox, or all of it."""

    host: str | None
    name: str
    partition: int | None
    """None: of all of it, where no partition has a figure of its own."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One sample of it. NaN: not known."""

    lag: float = math.nan
    """Seconds; 0 when nothing waits."""
    throughput: float = math.nan
    """Pods or records a second that were taken away."""
    retries: float = math.nan
    """Keys that have failed and are to be sent again."""


_NAMES: Final = tuple(field.name for field in fields(Figures))
_NOTHING: Final = Figures()


class _Columns:
    """The samples of one series, and in which sample it was seen last."""

    def __init__(self, length: int) -> None:
        self.of = {name: array("f", [math.nan]) * length for name in _NAMES}
        self.seen = 0


class History:
    """A ring: when it is full, each sample takes the place of the oldest. Threads may share it."""

    def __init__(self, most: int) -> None:
        """`most` samples are kept."""
        self._most = most
        self._times = array("d")
        self._count = 0
        """Samples ever taken."""
        self._series: dict[Series, _Columns] = {}
        self._lock = threading.Lock()
        self.is_full = False
        """Whether some were left out, because there are more than `MOST_SERIES`."""

    def add(self, moment: float, figures: Mapping[Series, Figures]) -> None:
        """Keep one sample."""
        with self._lock:
            at = self._count % self._most
            _put(self._times, at, moment)
            self._forget()
            for series in figures:
                if series not in self._series and len(self._series) < MOST_SERIES:
                    self._series[series] = _Columns(min(self._count, self._most))
            self.is_full = not all(series in self._series for series in figures)
            for series, columns in self._series.items():
                sample = figures.get(series)
                if sample is not None:
                    columns.seen = self._count
                for name in _NAMES:
                    _put(columns.of[name], at, getattr(sample or _NOTHING, name))
            self._count += 1

    def times(self) -> list[float]:
        """When the samples were taken, the oldest first."""
        with self._lock:
            return self._unrolled(self._times)

    def values(
        self, name: str, of: Callable[[Series], bool], combine: Callable[[Sequence[float]], float]
    ) -> tuple[list[float], list[float]]:
        """The times, and one figure of several series in one, e.g. their sum. NaN where none is known."""
        with self._lock:
            columns = [
                self._unrolled(columns.of[name]) for series, columns in self._series.items() if of(series)
            ]
            times = self._unrolled(self._times)
        return times, [_combined(sample, combine) for sample in zip(*columns, strict=True)] or [
            math.nan for _ in times
        ]

    def _forget(self) -> None:
        """Drop what has not been seen for as long as anything is kept."""
        gone = [one for one, columns in self._series.items() if self._count - columns.seen >= self._most]
        for series in gone:
            del self._series[series]

    def _unrolled(self, ring: array[float]) -> list[float]:
        start = self._count % self._most if len(ring) == self._most else 0
        return [*ring[start:], *ring[:start]]


def _put(ring: array[float], at: int, value: float) -> None:
    if at < len(ring):
        ring[at] = value
    else:
        ring.append(value)


def _combined(sample: Sequence[float], combine: Callable[[Sequence[float]], float]) -> float:
    known = [value for value in sample if not math.isnan(value)]
    return combine(known) if known else math.nan
