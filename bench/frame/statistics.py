"""Medians with their spread, and percentiles."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """Least, middle and greatest of several figures."""

    low: float
    middle: float
    high: float

    def text(self, digits: int = 2) -> str:
        """As `middle (low to high)`."""
        return f"{self.middle:,.{digits}f} ({self.low:,.{digits}f} to {self.high:,.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    """The spread of `values`, of which there is at least one."""
    return Spread(min(values), statistics.median(values), max(values))


def ratios(over: Sequence[float], under: Sequence[float]) -> Spread:
    """The spread of the quotients, round by round: what drifts in both falls out."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
