"""The demonstration of a tube: pgbench's tables, their copy, a worker that is killed, and the comparison."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytube.demo.copies import Feed, SinkType, check, running
from pytube.demo.screen import (
    WORKERS,
    Acts,
    Latency,
    Screen,
    Takeover,
    duration,
    lag_through,
    suggest,
    verdict,
    wrong_exits,
)
from pytube.demo.source import (
    ACCOUNT,
    CHANGE,
    RATE,
    TELLER_SHARD,
    TUBE,
    Arrival,
    Commit,
    Key,
    Load,
    Probe,
    Source,
)
from pytube.demo.stage import PARTITIONS, Broker, Election, Serving, Stage, Workers, on_stage

# Seconds; a demonstration that is well comes near none of them.
_FILL_LIMIT = 240.0
_DRAIN_LIMIT = 60.0
_CHANGE_LIMIT = 60.0
_GLANCE = 0.002
"""Between two looks for a document."""
_SHOWN = 3
_LONGEST = 300


def run(*, kafka: Broker, election: Election, sink: SinkType, seconds: float, directory: Path | None) -> int:
    """See `pytube.demo.main`."""
    check(sink)
    broker: Broker | None = kafka if election == "neli" else None
    if sink == "kafka":
        broker = "real"

    def play(stage: Stage) -> int:
        copy = stage.stack.enter_context(running(sink, stage.path, stage.servers.bootstrap))
        found = Story(stage, Feed(copy, stage.path)).play(seconds)
        return report(found, directory=stage.path, screen=stage.screen)

    return on_stage(directory, broker, election, play)


class Story:
    """One demonstration."""

    def __init__(self, stage: Stage, feed: Feed) -> None:
        """Make the source and the configurations."""
        self._screen, self._stack, self._feed = stage.screen, stage.stack, feed
        self._pgbench = stage.servers.postgres.bin("pgbench")
        self._load_log = stage.path / "pgbench.log"
        self._source = Source(stage.servers.dsn, self._pgbench, stage.path / "pgbench-init.log")
        stage.stack.callback(self._source.close)

        def of_worker(name: str) -> Mapping[str, object]:
            of_file = {"client": name} if feed.copy.options["type"] == "jsonl" else {}
            return feed.copy.options | of_file

        serving = Serving(
            ("--tube", TUBE), f'tube."{TUBE}".sink', of_worker, feed.copy.session_timeout, 0.2, "json"
        )
        self._workers = Workers(stage, serving)
        self._acts = Acts(
            self._screen,
            self._workers,
            self._source,
            feed.poll,
            lambda: feed.documents,
            feed.first,
        )
        self._probe = Probe(stage.servers.dsn)
        stage.stack.callback(self._probe.close)

    def play(self, seconds: float) -> Findings:
        """Everything, with load for `seconds` or as long as the take-over needs."""
        self._prepare()
        self._show_change()
        load = self._start_load()
        begun = time.monotonic()
        self._acts.load_until(begun + seconds / 2)
        # The one that the probe's row depends on, so that the take-over shows in the latencies.
        leaders = {leader.partition: leader.client for leader in self._source.leaders()}
        takeover = self._acts.take_over(leaders[TELLER_SHARD % PARTITIONS])
        self._acts.load_until(max(begun + seconds, time.monotonic() + seconds / 8))
        transactions = self._stop_load(load)
        lasted = time.monotonic() - begun
        self._acts.drain(_DRAIN_LIMIT, "the tube was not drained")
        self._screen.step("nothing waits; the workers are stopped, and every row is compared")
        return self._judge(takeover, transactions, lasted)

    def _prepare(self) -> None:
        self._source.attach()
        self._screen.step(f"pytube is installed; pgbench's tables are attached to the tube {TUBE}")
        self._acts.start()
        self._source.fill()
        self._screen.step(f"three workers start; pgbench has filled its tables: {self._source.rows:,} rows")
        self._acts.share(PARTITIONS)
        self._acts.drain(_FILL_LIMIT, "the rows that pgbench had filled in were not all delivered")
        self._catch_up()
        self._screen.step(f"every row is a document in the copy: {self._feed.copy.name}")

    def _show_change(self) -> None:
        """Change one row, and show it in the source and in the copy before and after."""

        def until_equal() -> tuple[str, str]:
            there = self._source.account()

            def is_equal() -> bool:
                return bool(self._feed.copy.document(ACCOUNT) == there)

            missing = "the row that is shown had not come to the copy"
            self._acts.until(is_equal, limit=_CHANGE_LIMIT, missing=missing, pause=_GLANCE)
            return _text(_bare(there)), _text(_bare(self._feed.copy.document(ACCOUNT)))

        before = until_equal()
        committed = self._source.change()
        after = until_equal()
        took = duration(time.time() - committed)
        self._screen.heading("One row")
        self._screen.facts(
            {
                "in Postgres": before[0],
                "in the copy": before[1],
                "then": CHANGE,
                "in Postgres now": after[0],
                "in the copy now": f"{after[1]}, {took} after the commit",
            }
        )
        self._screen.line("")

    def _catch_up(self) -> None:
        """Read all arrivals."""
        while self._feed.poll():
            pass

    def _start_load(self) -> Load:
        load = Load(self._pgbench, self._source.dsn, self._load_log)
        self._stack.callback(load.close)
        self._probe.start()
        self._acts.checks += [load.check, self._probe.check]
        self._screen.step(
            f"the load starts: {RATE} transactions of pgbench per second; each changes a row of each table"
        )
        return load

    def _stop_load(self, load: Load) -> int:
        self._acts.checks = [self._workers.check]
        transactions = load.finish()
        self._probe.close()
        self._probe.check()
        self._screen.step("the load is over; what waits is delivered")
        return transactions

    def _judge(self, takeover: Takeover, transactions: int, lasted: float) -> Findings:
        exits = self._workers.stop()
        self._catch_up()
        feed, commits = self._feed, self._probe.commits
        sample = latencies(commits, feed.arrivals)
        before = [
            took for commit, took in zip(commits, sample, strict=False) if commit.at + took < takeover.at
        ]
        return Findings(
            comparison=compare(self._source.documents(), feed.copy.documents()),
            transactions=transactions,
            load_seconds=lasted,
            copy=feed.copy.name,
            parked=self._source.parked(),
            takeover=takeover,
            before=Latency.of(before),
            lag=[(commit.at, took) for commit, took in zip(commits, sample, strict=False)],
            unseen=len(commits) - len(sample),
            delivered=feed.by_client,
            exits=exits,
        )


# --- source against sink --------------------------------------------------------------------------


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
    """Compare decoded documents: every row of the source, once, and what the sink holds."""
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


def latencies(commits: Sequence[Commit], arrivals: Iterable[Arrival]) -> list[float]:
    """For each commit, in order, the seconds until the sink had its number or a later one.

    Deliveries coalesce, so not every number comes by itself. Commits that never came are left out.
    """
    result: list[float] = []
    for number, at in arrivals:
        while len(result) < len(commits) and commits[len(result)].number <= number:
            # The document may be there before the writer hears of its own commit.
            result.append(max(0.0, at - commits[len(result)].at))
    return result


# --- findings and report ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the demonstration saw."""

    comparison: Comparison
    transactions: int
    """Of the load."""
    load_seconds: float
    copy: str
    """Where it was read back."""
    parked: int
    takeover: Takeover
    before: Latency
    """Before the kill."""
    lag: Sequence[tuple[float, float]]
    """Of each change of the probe's that came: its Unix time, and how many seconds it took."""
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
    idle = [name for name in WORKERS if not found.delivered.get(name)]
    result += [f"the worker {name} has delivered nothing" for name in idle]
    return result + wrong_exits(found.exits)


def report(found: Findings, *, directory: Path, screen: Screen) -> int:
    """Print the findings and the verdict; the exit code."""
    screen.heading("What was seen")
    screen.facts(_facts(found))
    well = f"EQUAL: all {found.comparison.rows:,} rows of the source are at the sink, and nothing else is."
    code = verdict(screen, directory, problems(found), well, found.comparison.examples)
    if not code:
        suggest(
            screen,
            ("demo --outbox", "messages for Kafka, written in transactions, delivered in order"),
            ("demo --sink postgres", "the same with the copy in a second Postgres"),
            ("dev postgres", "a Postgres server to try the quick start with"),
        )
    return code


def _facts(found: Findings) -> dict[str, str]:
    takeover = found.takeover
    wrote = ", ".join(f"{name} {found.delivered.get(name, 0):,}" for name in WORKERS)
    return {
        "compared": f"{found.comparison.rows:,} rows of the source with {found.copy}",
        "load": f"{found.transactions:,} transactions in {found.load_seconds:.0f} s",
        "documents": f"written by {wrote}; changes of a row that wait together become one",
        "commit to copy": f"{found.before}, before the kill",
        "take-over": str(takeover),
        "lag": lag_through(found.lag, takeover.at, takeover.victim),
    }


def _bare(document: Any) -> Any:
    """Without the blanks with which a column of type char(n) ends."""
    return {name: value.rstrip() if isinstance(value, str) else value for name, value in document.items()}
