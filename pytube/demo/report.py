"""Tells what the demonstration found."""

from __future__ import annotations

from pathlib import Path

from pytube.demo.duration import duration
from pytube.demo.fleet import NAMES
from pytube.demo.latency import Latency
from pytube.demo.screen import Screen
from pytube.demo.verdict import Findings, problems

_TERMS = (
    ("worker", False),
    ("partition", True),
    ("epoch", True),
    ("from", True),
    ("lasted", True),
    ("end", False),
)
_WORKERS = (("worker", False), ("terms", True), ("documents", True), ("exit code", True))
_ENDS = {"superseded": "taken over"}


def report(found: Findings, *, began: float, directory: Path, screen: Screen) -> int:
    """Print the findings and the verdict; the exit code.

    Args:
        found: what was seen.
        began: Unix time at which the demonstration began; terms are told from there.
        directory: where the logs are.
        screen: where to.
    """
    screen.heading("What was seen")
    screen.facts(_facts(found))
    screen.heading("Terms: who led what")
    screen.table(
        _TERMS,
        [
            (
                term.client,
                str(term.partition),
                str(term.epoch),
                f"{term.began - began:.1f} s",
                duration(term.lasted),
                _ENDS.get(term.outcome, term.outcome),
            )
            for term in found.terms
        ],
    )
    screen.heading("Workers")
    screen.table(_WORKERS, [_worker(found, name) for name in NAMES])
    screen.line("")
    return _verdict(found, directory, screen)


def _facts(found: Findings) -> dict[str, str]:
    takeover = found.takeover
    each = ", ".join(f"partition {p}: {duration(s)}" for p, s in sorted(takeover.seconds.items()))
    rate = found.transactions / max(found.load_seconds, 0.001)
    return {
        "rows compared": f"{found.comparison.rows:,}",
        "load": f"{found.transactions:,} transactions of pgbench, {rate:,.0f} per second",
        "touches": f"{found.touches:,}",
        "documents": f"{found.documents:,}, up to {found.peak:,} per second",
        "lines at the sink": f"{found.torn:,} cut short by the kill, {found.stale:,} out of order",
        "take-over": f"{duration(takeover.slowest)} after the SIGKILL of {takeover.victim} ({each})",
        "latency before the kill": _latency(found.before),
        "latency overall": _latency(found.overall),
    }


def _latency(latency: Latency) -> str:
    if not latency.count:
        return "not measured"
    return (
        f"p50 {duration(latency.p50)}, p99 {duration(latency.p99)}, worst {duration(latency.worst)} "
        f"from commit to sink ({latency.count:,} probes)"
    )


def _worker(found: Findings, name: str) -> tuple[str, ...]:
    terms = sum(term.client == name for term in found.terms)
    return name, f"{terms:,}", f"{found.delivered.get(name, 0):,}", str(found.exits.get(name, "-"))


def _verdict(found: Findings, directory: Path, screen: Screen) -> int:
    wrong = problems(found, NAMES)
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
