"""How fast a backfill goes where it is to keep to a rate. Pure; the clock is the caller's."""

from __future__ import annotations

from pytube.backfill.limits import BackfillLimits

_BURST = 0.5
"""Seconds' worth of rows that are inserted at once."""
_IDS = 250
"""Ids of a pod at most."""


class Pace:
    """Chunks that fit the rate, and when the next one is due."""

    def __init__(self, limits: BackfillLimits) -> None:
        self._rate = limits.rate
        fitting = limits.chunk if self._rate is None else min(limits.chunk, self._rate * _BURST / _IDS)
        self.pods = max(1, int(fitting))
        """Pods of a chunk."""

    def due(self, rows: int, began: float) -> float:
        """When the next chunk may begin, after one of so many rows that began at `began`."""
        return began if self._rate is None else began + rows / self._rate
