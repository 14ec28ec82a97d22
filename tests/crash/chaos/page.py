"""The report of a run, as Markdown."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from pathlib import Path

import psutil

from pytube.embedded import kafka_real
from tests.crash.chaos.crew import ELDERS, MEMBERS, RECEIVE_DEADLINE, SESSION_TIMEOUT
from tests.crash.chaos.invariants import Invariant, Violation
from tests.crash.chaos.measures import Measures
from tests.crash.chaos.sink import REQUEST_TIMEOUT

NOTES = Path(__file__).resolve().parent / "notes.md"


@dataclass(frozen=True)
class Records:
    """What went through the outboxes."""

    stashed: int
    found: int
    """At Kafka, with those that came again."""
    late: int
    repeats: Mapping[str, int]
    """By outbox."""
    long_committed: int
    long_rolled_back: int
    longest: float


@dataclass
class Outcome:
    """What a run came to."""

    began: datetime
    """In UTC."""
    seconds: float
    seed: int
    postgres: str
    """The server's version."""
    checkpoints: int
    committed: int
    starts: int
    faults: dict[str, int]
    measures: Measures
    records: Records
    violations: list[Violation] = field(default_factory=list)
    missing: Sequence[str] = ()
    """Faults that never struck."""


def report(outcome: Outcome) -> str:
    """The whole page."""
    notes = NOTES.read_text().strip().partition("\n## ")
    pieces = [
        "# Reliability",
        notes[0].strip(),
        "## The last long run",
        _verdict(outcome),
        _machine(outcome),
        "### Faults",
        _faults(outcome),
        "### Results",
        _figures(outcome),
        "### Checks",
        _invariants(),
        "## " + notes[2],
    ]
    return "\n\n".join(pieces) + "\n"


def _verdict(outcome: Outcome) -> str:
    checked = f"{_minutes(outcome.seconds)}, {outcome.checkpoints} checkpoints"
    if not outcome.violations:
        return f"**{checked}, 0 violations.**"
    found = "\n".join(f"- {violation}" for violation in outcome.violations)
    return f"**{checked}, then stopped by these violations.**\n\n{found}"


def _machine(outcome: Outcome) -> str:
    memory = psutil.virtual_memory().total / 2**30
    return _table(
        ["setting", "value"],
        [
            ["began", f"{outcome.began:%Y-%m-%d %H:%M} UTC"],
            ["seed of the faults", str(outcome.seed)],
            [
                "machine",
                f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}",
            ],
            ["Postgres", outcome.postgres],
            ["Kafka", f"{kafka_real.VERSION}, confluent-kafka {metadata.version('confluent-kafka')}"],
            ["Python", f"{platform.python_version()}, psycopg {metadata.version('psycopg')}"],
            ["workers", ", ".join(MEMBERS)],
            ["session_timeout", f"{SESSION_TIMEOUT:g} s"],
            ["receive_deadline", f"{RECEIVE_DEADLINE:g} s"],
            ["request_timeout", f"{REQUEST_TIMEOUT:g} s"],
        ],
    )


def _faults(outcome: Outcome) -> str:
    counts = {**dict.fromkeys(outcome.missing, 0), **outcome.faults}
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    table = _table(["fault", "count"], [*_rows(rows), ["total", str(sum(outcome.faults.values()))]])
    if not outcome.missing:
        return table
    return f"{table}\n\n**Never struck in this run: {', '.join(sorted(outcome.missing))}.**"


def _rows(rows: Sequence[tuple[str, int]]) -> list[list[str]]:
    return [[name, str(count)] for name, count in rows]


def _figures(outcome: Outcome) -> str:
    measures = outcome.measures
    return _table(
        ["result", "value"],
        [
            ["transactions that the test's writers committed", f"{outcome.committed:,}"],
            ["touches purged (pods)", f"{measures.purged:,}"],
            ["documents written to the sink", f"{measures.documents:,}"],
            ["of these, the same state of a row once more", f"{measures.repeated:,}"],
            *_records(outcome.records),
            ["starts of workers", f"{outcome.starts:,}"],
            ["terms, of tubes and outboxes", f"{measures.terms:,}"],
            ["of these, handed over in order", f"{measures.released:,}"],
            ["of these, taken over from a worker that was gone", f"{measures.superseded:,}"],
            ["of these, ended by a repartition", f"{measures.repartitioned:,}"],
            [
                "last sign of life of a leader to its successor at work: median, worst",
                f"{measures.typical_takeover():.1f} s, {max(measures.takeovers, default=0.0):.1f} s",
            ],
            ["broker found with damaged groups, and started again", f"{measures.damages:,}"],
            ["longest that a touch waited", f"{measures.worst_lag:.1f} s"],
            ["last fault over to every partition led: worst", f"{max(measures.returns, default=0.0):.1f} s"],
            ["from then to the last touch delivered: worst", f"{max(measures.drains, default=0.0):.1f} s"],
            *([f"memory of {name}, first checkpoint to last", _memory(measures, name)] for name in ELDERS),
            ["memory of any worker at a checkpoint: median, most", _memory_of_all(measures)],
        ],
    )


def _records(records: Records) -> list[list[str]]:
    again = [f"{outbox} {count:,}" for outbox, count in records.repeats.items()]
    return [
        ["records that were committed to outboxes", f"{records.stashed:,}"],
        ["records found at Kafka", f"{records.found:,}"],
        ["of these, repeats", ", ".join(again)],
        ["of these, late: after one of a later term", f"{records.late:,}"],
        [
            "long transactions of outboxes: committed, rolled back, longest",
            f"{records.long_committed:,}, {records.long_rolled_back:,}, {records.longest:.0f} s",
        ],
    ]


def _memory(measures: Measures, name: str) -> str:
    known = measures.memory.get(name)
    return f"{known[0]:.0f} to {known[-1]:.0f} MiB" if known else "not measured"


def _memory_of_all(measures: Measures) -> str:
    known = [mebibytes for series in measures.memory.values() for mebibytes in series]
    return f"{statistics.median(known):.0f}, {max(known):.0f} MiB" if known else "not measured"


def _invariants() -> str:
    return "\n".join(f"- {invariant.value}" for invariant in Invariant)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns after the first are set to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
