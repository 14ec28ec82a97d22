"""What the demonstration found: source against sink, how long it took, who did what; and the verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytube.demo.settings import WORKERS
from pytube.demo.source import Arrival, Commit, Key, Term
from pytube.demo.watch import Screen, duration

_SHOWN = 3
_LONGEST = 300


# --- source against sink ------------------------------------------------------------------


@dataclass(slots=True)
class Comparison:
    """Every row of the source compared with the sink, both ways, and what differs."""

    rows: int = 0
    missing: int = 0
    """In the source, not at the sink."""
    extra: int = 0
    """At the sink, not in the source."""
    different: int = 0
    examples: list[str] = field(default_factory=list)
    """The first few of each kind, a sentence each."""

    @property
    def equal(self) -> bool:
        """Whether every row is at the sink as in the source, and nothing else is."""
        return not (self.missing or self.extra or self.different)


def compare(source: Iterable[tuple[Key, Any]], sink: Mapping[Key, Any]) -> Comparison:
    """Compare decoded documents.

    Args:
        source: every row, once.
        sink: what it holds, without what was deleted.
    """
    found = Comparison()
    seen = set()
    for key, document in source:
        found.rows += 1
        seen.add(key)
        if key not in sink:
            found.missing += 1
            _show(found, found.missing, f"missing at the sink: {_name(key)}: {_text(document)}")
        elif sink[key] != document:
            found.different += 1
            text = f"different: {_name(key)}: source {_text(document)}, sink {_text(sink[key])}"
            _show(found, found.different, text)
    for key, document in sink.items():
        if key not in seen:
            found.extra += 1
            _show(found, found.extra, f"only at the sink: {_name(key)}: {_text(document)}")
    return found


def _show(found: Comparison, count: int, text: str) -> None:
    if count <= _SHOWN:
        found.examples.append(text)


def _name(key: Key) -> str:
    return f"shard {key[0]} id {key[1]}"


def _text(document: Any) -> str:
    text = json.dumps(document)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


# --- from commit to sink ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of a sample, in seconds; `count` 0 means that there was none."""

    count: int
    p50: float
    p99: float
    worst: float

    def __str__(self) -> str:
        if not self.count:
            return "not measured"
        return (
            f"p50 {duration(self.p50)}, p99 {duration(self.p99)}, worst {duration(self.worst)} "
            f"from commit to sink ({self.count:,} probes)"
        )


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


# --- findings and verdict -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Takeover:
    """What followed the SIGKILL of a leader."""

    victim: str
    seconds: Mapping[int, float]
    """By partition: from the kill to the first document of the next leader."""

    def __str__(self) -> str:
        slowest = duration(max(self.seconds.values(), default=0.0))
        each = ", ".join(f"partition {p}: {duration(s)}" for p, s in sorted(self.seconds.items()))
        return f"{slowest} after the SIGKILL of {self.victim} ({each})"


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
    remarks: Mapping[str, str]
    """What else was seen of the sink."""
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


def problems(found: Findings) -> list[str]:
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
    for name in WORKERS:
        if name not in led:
            result.append(f"the worker {name} has led nothing")
        if not found.delivered.get(name):
            result.append(f"the worker {name} has delivered nothing")
        code = found.exits.get(name)
        if code != 0:
            result.append(f"the worker {name} ended with {code} after SIGTERM, not with 0")
    return result


# --- the report ---------------------------------------------------------------------------

# Heading, and whether numbers are below it.
_TERMS = {"worker": False, "partition": True, "epoch": True, "from": True, "lasted": True, "end": False}
_WORKERS = {"worker": False, "terms": True, "documents": True, "exit code": True}
_ENDS = {"superseded": "taken over"}


def report(found: Findings, *, began: float, directory: Path, screen: Screen) -> int:
    """Print the findings and the verdict; the exit code.

    Args:
        found: what was seen.
        began: Unix time at which the demonstration began; terms are counted from there.
        directory: where the logs are.
        screen: where to.
    """
    screen.heading("What was seen")
    screen.facts(_facts(found))
    screen.heading("Terms: who led what")
    screen.table(_TERMS, [_term(term, began) for term in found.terms])
    screen.heading("Workers")
    screen.table(_WORKERS, [_worker(found, name) for name in WORKERS])
    screen.line("")
    return _verdict(found, directory, screen)


def _facts(found: Findings) -> dict[str, str]:
    rate = found.transactions / max(found.load_seconds, 0.001)
    return {
        "rows compared": f"{found.comparison.rows:,}",
        "load": f"{found.transactions:,} transactions of pgbench, {rate:,.0f} per second",
        "touches": f"{found.touches:,}",
        "documents": f"{found.documents:,}, up to {found.peak:,} per second",
        **found.remarks,
        "take-over": str(found.takeover),
        "latency before the kill": str(found.before),
        "latency overall": str(found.overall),
    }


def _term(term: Term, began: float) -> tuple[str, ...]:
    since, end = f"{term.began - began:.1f} s", _ENDS.get(term.outcome, term.outcome)
    return term.client, str(term.partition), str(term.epoch), since, duration(term.lasted), end


def _worker(found: Findings, name: str) -> tuple[str, ...]:
    terms = sum(term.client == name for term in found.terms)
    return name, f"{terms:,}", f"{found.delivered.get(name, 0):,}", str(found.exits.get(name, "-"))


def _verdict(found: Findings, directory: Path, screen: Screen) -> int:
    wrong = problems(found)
    if not wrong:
        text = (
            f"EQUAL: all {found.comparison.rows:,} rows of the source are at the sink, and nothing else is."
        )
        screen.line(text, "bold green")
        screen.line(f"Data and logs are kept in {directory}", "dim")
        return 0
    for text in wrong:
        screen.line(f"WRONG: {text}", "bold red")
    for text in found.comparison.examples:
        screen.line(f"  {text}")
    screen.line(f"Data and logs are kept in {directory}")
    return 1
