"""The data of the pages: the last sample, and samples of the last hours. Readers cost databases nothing.

The samples of the last hours are in bounded memory, allotted as they come.
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pytube.health.fleet import FleetSample
from pytube.health.watcher import FleetWatcher
from pytube.logs import Logger

MOST_SERIES: Final = 3000
"""Figures of partitions, tubes and outboxes that have a history: with a sample each 5 s for 6 hours, 17 kB
each."""


class Series(NamedTuple):
    """What a history is of: a figure of a partition of a tube or outbox, or of all of it."""

    host: str | None
    name: str
    partition: int | None
    """None: of all of it, where partitions have no separate figures."""
    figure: str
    """`lag`, in seconds, 0 when nothing waits; `throughput`, pods or records a second that were taken away;
    or `retries`, keys that have failed and are to be sent again. NaN where it is not known."""


class History:
    """A ring: when it is full, each sample takes the place of the oldest. Threads may share it."""

    def __init__(self, most: int) -> None:
        """`most` samples are kept."""
        self._most = most
        self._times = array("d")
        self._count = 0
        """Samples ever taken."""
        self._series: dict[Series, array[float]] = {}
        self._seen: dict[Series, int] = {}
        """The number of the last sample that had it."""
        self._lock = threading.Lock()
        self.is_full = False
        """Whether some were left out, because there are more than `MOST_SERIES`."""

    def add(self, moment: float, figures: Mapping[Series, float]) -> None:
        """Keep one sample."""
        with self._lock:
            at = self._count % self._most
            _put(self._times, at, moment)
            for series in [one for one, seen in self._seen.items() if self._count - seen >= self._most]:
                del self._series[series], self._seen[series]
            for series in figures:
                if series in self._series or len(self._series) < MOST_SERIES:
                    self._series.setdefault(series, array("f", [math.nan]) * min(self._count, self._most))
                    self._seen[series] = self._count
            self.is_full = any(series not in self._series for series in figures)
            for series, values in self._series.items():
                _put(values, at, figures.get(series, math.nan))
            self._count += 1

    def times(self) -> list[float]:
        """When the samples were taken, the oldest first."""
        with self._lock:
            return self._unrolled(self._times)

    def values(
        self, figure: str, of: Callable[[Series], bool], combine: Callable[[Sequence[float]], float]
    ) -> tuple[list[float], list[float]]:
        """The times, and a figure of several series in one, e.g. their sum. NaN where none is known."""
        with self._lock:
            columns = [
                self._unrolled(values)
                for series, values in self._series.items()
                if series.figure == figure and of(series)
            ]
            times = self._unrolled(self._times)
        nothing = [math.nan for _ in times]
        return times, [_combined(sample, combine) for sample in zip(*columns, strict=True)] or nothing

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


# --- the samples ------------------------------------------------------------------------------------------

_HOUR: Final = 3600
_LATE: Final = 3
"""Intervals after which a sample is old, but not before `_LATEST` seconds."""
_LATEST: Final = 10.0


class Sampler:
    """Takes a sample each `interval`. One thread takes them, and any number may read."""

    def __init__(self, watcher: FleetWatcher, interval: float, hours: float, log: Logger) -> None:
        """Takes the first one. The sample reports hosts that are down."""
        self._watcher = watcher
        self.interval = interval
        self._log = log
        self.history = History(max(2, math.ceil(hours * _HOUR / interval)))
        self._failure: str | None = None
        self.latest: FleetSample = watcher.sample()
        self._keep(self.latest)

    def take(self) -> None:
        """Take one sample."""
        sample = self._watcher.sample()
        self.latest = sample
        self._keep(sample)

    def run(self, stop: threading.Event) -> None:
        """Take them until `stop` is set."""
        while not stop.wait(self.interval):
            try:
                self.take()
            except Exception as error:  # noqa: BLE001 # or pages would show an old sample for ever, without a word
                self._failure = f"{type(error).__name__}: {error}"
                self._log.error("sample_failed", exc_info=error)
            else:
                self._failure = None
        self._watcher.close()

    def why_late(self) -> str | None:
        """Why there is no newer sample than `latest`; None when that is new."""
        if self._failure is not None:
            return self._failure
        age = time.time() - self.latest.at.timestamp()
        if age <= max(_LATE * self.interval, _LATEST):
            return None
        return f"the next sample has not come for {age:.0f} s: a database does not answer, or is slow"

    def _keep(self, sample: FleetSample) -> None:
        figures: dict[Series, float] = {}
        for queue in sample.queues:
            of_queue = Series(queue.host, queue.name, None, "throughput")
            figures[of_queue] = _known(queue.rate_out)
            for one in queue.partitions:
                is_counted = one.problem is None and not (queue.kind == "outbox" and one.waiting is None)
                of_one = of_queue._replace(partition=one.partition)
                figures[of_one._replace(figure="lag")] = (one.lag or 0.0) if is_counted else math.nan
                figures[of_one._replace(figure="retries")] = _known(one.retrying)
        self.history.add(sample.at.timestamp(), figures)


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)
