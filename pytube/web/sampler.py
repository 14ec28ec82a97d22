"""What pages show: the sample taken last, and those of the last hours. Readers cost the databases nothing."""

from __future__ import annotations

import math
import threading
import time
from typing import Final

from pytube.health.fleet import FleetSample, Partition, Queue
from pytube.health.watcher import FleetWatcher
from pytube.logs import Logger
from pytube.web.history import Figures, History, Series

_HOUR: Final = 3600
_LATE: Final = 3
"""Intervals after which a sample is old, but not before `_LATEST` seconds."""
_LATEST: Final = 10.0


class Sampler:
    """Takes a sample each `interval`. One thread takes them, and any number may read."""

    def __init__(self, watcher: FleetWatcher, interval: float, hours: float, log: Logger) -> None:
        """Takes the first one. Of hosts that are down a sample tells so."""
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
            except Exception as error:  # noqa: BLE001 # or pages would show an old sample for ever, and not tell
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
        figures = {}
        for queue in sample.queues:
            figures[Series(queue.host, queue.name, None)] = Figures(throughput=_known(queue.rate_out))
            for one in queue.partitions:
                figures[Series(one.host, one.name, one.partition)] = _figures(queue, one)
        self.history.add(sample.at.timestamp(), figures)


def _figures(queue: Queue, one: Partition) -> Figures:
    is_counted = one.problem is None and not (queue.kind == "outbox" and one.waiting is None)
    lag = (one.lag or 0.0) if is_counted else math.nan
    return Figures(lag=lag, retries=_known(one.retrying))


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)
