"""What slows a backfill, how fast it goes, and how far it is. Pure; the clock is the caller's."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytube.config import BackfillConfig

_MB = 1024 * 1024
_WINDOW = 30.0
"""Seconds over which the rate is taken, so that a pause shows in it, and one chunk does not."""
_BURST = 0.5
"""Seconds' worth of rows that are inserted at once."""
_IDS = 250
"""Ids of a pod at most."""


class Replica(NamedTuple):
    """How far a replica is behind."""

    name: str
    lag: float | None
    """Seconds, by its own account."""
    behind: int | None
    """Bytes of WAL that it is behind."""


def reason_to_wait(limits: BackfillConfig, waiting: int, replicas: Sequence[Replica]) -> str | None:
    """Why nothing is to be inserted now, while so many pods wait; None when it may continue."""
    if waiting >= limits.backlog:
        return f"{waiting} backfill pods or more wait in the tube (limit {limits.backlog})"
    lag, name = max(((one.lag or 0.0, one.name) for one in replicas), default=(0.0, ""))
    if limits.replica_lag is not None and lag > limits.replica_lag:
        return f"the replica {name} is {lag:.1f} s behind (limit {limits.replica_lag:g} s)"
    behind, name = max(((one.behind or 0, one.name) for one in replicas), default=(0, ""))
    if limits.replica_behind is not None and behind > limits.replica_behind * _MB:
        return f"the replica {name} is {behind // _MB} MB of WAL behind (limit {limits.replica_behind} MB)"
    return None


class Pace:
    """Chunks that fit the rate, and when the next one is due."""

    def __init__(self, limits: BackfillConfig) -> None:
        self._rate = limits.rate
        fitting = limits.chunk if self._rate is None else min(limits.chunk, self._rate * _BURST / _IDS)
        self.pods = max(1, int(fitting))
        """Pods of a chunk."""

    def due(self, rows: int, began: float) -> float:
        """When the next chunk may begin, after one of so many rows that began at `began`."""
        return began if self._rate is None else began + rows / self._rate


@dataclass(frozen=True, slots=True)
class Progress:
    """A backfill at one moment."""

    backfill: int
    tube: str
    table: str
    state: str
    paused: bool
    rows_done: int
    rows_total: int | None
    rate: float | None
    """Rows a second, lately."""
    note: str | None
    rows_delivered: int | None = None
    """Of those inserted, about; None while that is not looked at."""

    @property
    def seconds_left(self) -> float | None:
        """Until all rows are inserted at this rate; None when that is not known."""
        if self.rows_total is None or not self.rate:
            return None
        return (self.rows_total - self.rows_done) / self.rate


class Rate:
    """Rows a second over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def observe(self, rows: int, now: float) -> float | None:
        """The rate, after `rows` in all were done at `now` (monotonic seconds)."""
        self._seen.append((now, rows))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        return (rows - before) / (now - began) if now > began else None
