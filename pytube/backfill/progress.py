"""How far a backfill is, how fast it goes, and how long it will take. Pure; the clock is the caller's."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_WINDOW = 30.0
"""Seconds over which the rate is taken, so that a pause shows in it, and one chunk does not."""


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
