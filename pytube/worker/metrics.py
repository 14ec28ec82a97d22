"""Metrics of one partition, counted between two readings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytube.events import MeterRead
from pytube.pipeline.inflight import InFlight


@dataclass(slots=True)
class Metrics:
    """Counters of one partition. Pods carry the database's time, so the lag includes the clocks' offset."""

    tube: str
    partition: int
    pods: int = 0
    touches: int = 0
    documents: int = 0
    skipped: int = 0
    parked: int = 0
    purged_seq: int = 0
    lag: float = 0.0
    _since: float = field(default_factory=time.monotonic)
    _idle: bool = False

    def count_purged(self, pods: Mapping[int, float]) -> None:
        """Count purged pods, at least one: their insertion times by seq."""
        self.pods += len(pods)
        self.purged_seq = max([self.purged_seq, *pods])
        self.lag = max(0.0, time.time() - list(pods.values())[-1])

    def read(self, machine: InFlight) -> MeterRead | None:
        """The counts since the last reading; resets them.

        None when the partition is idle and was at the last reading: with many tubes nobody wants to be told
        of each of them every few seconds.
        """
        now = time.monotonic()
        event = MeterRead(
            tube=self.tube,
            partition=self.partition,
            interval=now - self._since,
            pods=self.pods,
            touches=self.touches,
            documents=self.documents,
            skipped=self.skipped,
            parked=self.parked,
            waiting=machine.keys - machine.flying,
            in_flight=machine.flying,
            lag=self.lag,
        )
        self.pods = self.touches = self.documents = self.skipped = self.parked = 0
        self._since = now
        was_idle, self._idle = self._idle, not (event.pods or event.touches or machine.keys)
        return None if was_idle and self._idle else event
