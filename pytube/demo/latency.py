"""How long it took from commit to sink."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytube.demo.probe import Arrival, Commit


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of a sample, in seconds; `count` 0 means that there was none."""

    count: int
    p50: float
    p99: float
    worst: float


def latencies(commits: Sequence[Commit], arrivals: Iterable[Arrival]) -> list[float]:
    """For each commit, in order, the seconds until the sink had its number or a later one.

    Deliveries coalesce, so not every number comes by itself. Commits that never came are left out.

    Args:
        commits: by number.
        arrivals: in order of time.
    """
    result: list[float] = []
    for number, at in arrivals:
        while len(result) < len(commits) and commits[len(result)].number <= number:
            # The document may be there before the writer hears of its own commit.
            result.append(max(0.0, at - commits[len(result)].at))
    return result


def summary(sample: Sequence[float]) -> Latency:
    """The percentiles of a sample."""
    ordered = sorted(sample)
    if not ordered:
        return Latency(0, 0.0, 0.0, 0.0)
    return Latency(len(ordered), _rank(ordered, 0.50), _rank(ordered, 0.99), ordered[-1])


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
