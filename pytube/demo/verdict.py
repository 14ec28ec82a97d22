"""Judges what the demonstration found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytube.demo.comparison import Comparison
from pytube.demo.latency import Latency
from pytube.demo.source import Term


@dataclass(frozen=True, slots=True)
class Takeover:
    """What followed the SIGKILL of a leader."""

    victim: str
    seconds: Mapping[int, float]
    """By partition: from the kill to the first document of the next leader."""

    @property
    def slowest(self) -> float:
        """Seconds until the last of them went on."""
        return max(self.seconds.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the demonstration saw."""

    comparison: Comparison
    transactions: int
    """Of the load."""
    load_seconds: float
    touches: int
    documents: int
    peak: int
    """Documents in the best second."""
    torn: int
    """Lines at the sink that a kill has cut short."""
    stale: int
    """Lines at the sink that came after a newer one of their key."""
    parked: int
    terms: Sequence[Term]
    takeover: Takeover
    before: Latency
    """Before the kill."""
    overall: Latency
    unseen: int
    """Numbers of the probe that never came to the sink."""
    delivered: Mapping[str, int]
    """Documents by worker."""
    exits: Mapping[str, int]
    """Exit codes by worker, after SIGTERM."""


def problems(found: Findings, workers: Sequence[str]) -> list[str]:
    """What was not as it should be, a sentence each; empty when all was."""
    result: list[str] = []
    comparison = found.comparison
    if not comparison.rows:
        result.append("the source has no rows, so nothing was compared")
    if not comparison.equal:
        result.append(
            f"the sink is not equal to the source: {comparison.missing:,} rows are missing there, "
            f"{comparison.extra:,} are there only, {comparison.different:,} are different"
        )
    if found.parked:
        result.append(f"{found.parked:,} documents were set aside with an error")
    if found.unseen:
        result.append(f"{found.unseen:,} numbers of the probe never came to the sink")
    if not found.transactions:
        result.append("the load did no transaction")
    led = {term.client for term in found.terms}
    for name in workers:
        if name not in led:
            result.append(f"the worker {name} has led nothing")
        if not found.delivered.get(name):
            result.append(f"the worker {name} has delivered nothing")
        code = found.exits.get(name)
        if code != 0:
            result.append(f"the worker {name} ended with {code} after SIGTERM, not with 0")
    return result
