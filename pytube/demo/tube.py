"""The demonstration of a tube: pgbench's tables, their copy, a worker that is killed, and the comparison.

The search path has our schema first, then `public`.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytube.demo.copies import TUBE, Copy, Key, Lines, SinkType, check, running
from pytube.demo.screen import (
    WORKERS,
    DemoFailed,
    Figures,
    Takeover,
    duration,
    lag_through,
    percentiles,
    suggest,
    verdict,
)
from pytube.demo.stage import (
    PARTITIONS,
    Broker,
    Election,
    Process,
    Stage,
    Story,
    Writer,
    client_environment,
    on_stage,
)
from pytube.tubes.admin import Tubes

ACCOUNT_SHARDS = 16
TELLER: Key = (16, 1)
"""The row of the probe."""
BRANCH_SHARD = 17

_ROWS: Final = """
    SELECT (SELECT count(*) FROM pgbench_accounts) + (SELECT count(*) FROM pgbench_tellers)
        + (SELECT count(*) FROM pgbench_branches)
"""
_FIGURES: Final = f"""
    SELECT count(*), coalesce(sum(cardinality(ids)), 0)::bigint,
        coalesce(extract(epoch FROM clock_timestamp() - min(ts)), 0)::float8
    FROM tube."{TUBE}"
"""  # noqa: S608 # a constant
# The shard is worked out here by other code, so that a mistake in ours would be seen.
_DOCUMENTS: Final = (
    "SELECT (aid % 16)::integer, aid::bigint, row_to_json(r)::text FROM pgbench_accounts AS r",
    "SELECT 16, tid::bigint, row_to_json(r)::text FROM pgbench_tellers AS r",
    "SELECT 17, bid::bigint, row_to_json(r)::text FROM pgbench_branches AS r",
)

ACCOUNT: Key = (7, 7)
"""The row that is shown."""
CHANGE: Final = "UPDATE pgbench_accounts SET abalance = 1000, filler = 'hello' WHERE aid = 7"
_ACCOUNT: Final = "SELECT row_to_json(r)::text FROM pgbench_accounts AS r WHERE aid = 7"

RATE = 200
"""Transactions per second: what two cores carry well beside servers, workers and what compares."""
_LOAD = ["-n", "-M", "prepared", "-c", "4", "-R", str(RATE), "-T", "600", "-P", "5"]

# Seconds; a demonstration that is well comes near none of them.
_PGBENCH_LIMIT = 60
_STOP_LIMIT = 15.0
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
        copy = stage.stack.enter_context(running(sink, stage.path, stage.bootstrap))
        return TubeStory(stage, copy).play(seconds)

    return on_stage(directory, broker, election, play)


# --- the probe ----------------------------------------------------------------------------

_INTERVAL = 0.05
_NUMBER = re.compile(r"probe (\d+) *")


class Moment(NamedTuple):
    """A number of the probe, and when its commit had returned, or when the copy had it; Unix time."""

    number: int
    at: float


class Probe(Writer):
    """Writes a running number into one row, to see how long each takes to the copy."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, "probe", _INTERVAL)
        self.commits: list[Moment] = []

    def write(self) -> None:
        """The next number."""
        number = len(self.commits) + 1
        text = f"probe {number}"
        self.connection.execute("UPDATE pgbench_tellers SET filler = %s WHERE tid = %s", [text, TELLER[1]])
        self.commits.append(Moment(number, time.time()))


def number_in(document: Any) -> int | None:
    """The probe's number in a document of its row; None when there is none."""
    if not isinstance(document, dict):
        return None
    found = _NUMBER.fullmatch(str(document.get("filler")))
    return int(found.group(1)) if found else None


def latencies(commits: Sequence[Moment], arrivals: Iterable[Moment]) -> list[float]:
    """For each commit, in order, the seconds until the copy had its number or a later one.

    Deliveries coalesce, so not every number comes by itself. Commits that never came are left out.
    """
    result: list[float] = []
    for number, at in arrivals:
        while len(result) < len(commits) and commits[len(result)].number <= number:
            # The document may be there before the writer hears of its own commit.
            result.append(max(0.0, at - commits[len(result)].at))
    return result


class Feed:
    """Watches a copy grow. Who delivered how much is in the logs of the workers, five times a second."""

    def __init__(self, copy: Copy, logs: Path, first: dict[tuple[int, int], float]) -> None:
        """`logs`: the folder of the workers' logs; `first`: as of `Story`."""
        self.copy = copy
        self.documents = 0
        self.by_client: Counter[str] = Counter()
        self.arrivals: list[Moment] = []
        """Of the probe's numbers."""
        self._first = first
        self._logs = {name: Lines(logs / f"{name}.log") for name in WORKERS}
        self._epochs: dict[tuple[str, int], int] = {}
        """The present term of each worker and partition."""

    def poll(self) -> bool:
        """Take in what has come; whether there was something."""
        before = self.documents
        for client, log in self._logs.items():
            for said in log.new():
                self._take(client, said)
        has_come = self.copy.poll()
        number = number_in(self.copy.document(TELLER))
        if number is not None and (not self.arrivals or self.arrivals[-1].number != number):
            self.arrivals.append(Moment(number, self.copy.came(TELLER)))
        return has_come or self.documents > before

    def _take(self, client: str, said: Mapping[str, Any]) -> None:
        event = said.get("event")
        if event == "leader_acquired":
            self._epochs[client, said["partition"]] = said["epoch"]
        elif event == "meter_read" and said["documents"]:
            at = datetime.fromisoformat(said["timestamp"]).timestamp()
            self.documents += said["documents"]
            self.by_client[client] += said["documents"]
            self._first.setdefault((said["partition"], self._epochs[client, said["partition"]]), at)


# --- source against copy --------------------------------------------------------------------------


@dataclass(slots=True)
class Comparison:
    """Every row of the source compared with the copy, both ways, and what differs."""

    rows: int = 0
    missing: int = 0
    """In the source, not in the copy."""
    extra: int = 0
    """In the copy, not in the source."""
    different: int = 0
    examples: list[str] = field(default_factory=list)
    """The first few of each kind, a sentence each."""

    @property
    def equal(self) -> bool:
        """Whether every row is in the copy as in the source, and nothing else is."""
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


def problems(
    comparison: Comparison, *, parked: int, unseen: int, transactions: int, delivered: Mapping[str, int]
) -> list[str]:
    """What was not as it should be, a sentence each; empty when all was.

    `unseen` are numbers of the probe that never came, `transactions` were done by the load, `delivered` the
    documents by worker.
    """
    result: list[str] = []
    if not comparison.rows:
        result.append("the source has no rows, so nothing was compared")
    if not comparison.equal:
        result.append(
            f"the sink is not equal to the source: {comparison.missing:,} rows are missing there, "
            f"{comparison.extra:,} are there only, {comparison.different:,} are different"
        )
    if parked:
        result.append(f"{parked:,} documents were set aside with an error")
    if unseen:
        result.append(f"{unseen:,} numbers of the probe never came to the sink")
    if not transactions:
        result.append("the load did no transaction")
    return result + [
        f"the worker {name} has delivered nothing" for name in WORKERS if not delivered.get(name)
    ]


# --- the story ----------------------------------------------------------------------------------


class TubeStory(Story):
    """One demonstration."""

    KIND = "tube"
    NAME = TUBE

    def __init__(self, stage: Stage, copy: Copy) -> None:
        super().__init__(stage)
        self._copy = copy
        self._feed = Feed(copy, stage.path, self.first)
        self._pgbench = str(stage.postgres.bin("pgbench"))
        self._probe = Probe(self.dsn)
        stage.stack.callback(self._probe.close)

    @property
    def arrived(self) -> int:
        """Documents."""
        return self._feed.documents

    def poll(self) -> bool:
        """What has come to the copy, and what the workers say of it."""
        return self._feed.poll()

    def figures(self) -> Figures:
        """How things stand."""
        return Figures(*self.rows(_FIGURES)[0])

    def play(self, seconds: float) -> int:
        """Everything, with load for `seconds` or as long as the take-over needs; the exit code."""
        self._prepare()
        self._show_change()
        begun = time.monotonic()
        takeover, transactions = self._load(seconds)
        load = f"{transactions:,} transactions in {time.monotonic() - begun:.0f} s"
        self.screen.step("the load is over; what waits is delivered")
        self.drain(_DRAIN_LIMIT, "the tube was not drained")
        self.screen.step("nothing waits; the workers are stopped, and every row is compared")
        exits = self.stop()
        self._catch_up()
        return self._report(takeover, load, transactions, exits)

    def _load(self, seconds: float) -> tuple[Takeover, int]:
        """Load, and a take-over; how many transactions it did."""
        log = self.stage.path / "pgbench.log"
        load = Process("pgbench", [self._pgbench, *_LOAD, self.dsn], log)
        self.stage.stack.callback(load.kill)
        self._probe.start()
        checks = self.checks
        self.checks = [*checks, load.check, self._probe.check]
        self.screen.step(
            f"the load starts: {RATE} transactions of pgbench per second; each changes a row of each table"
        )
        takeover = self.load(seconds, self._victim)
        self.checks = checks
        # What its own timer sends: it finishes the transactions under way and prints the sum.
        code = load.stop(signal.SIGALRM, timeout=_STOP_LIMIT)
        transactions = transactions_in(log.read_text(errors="replace"))
        if code != 0 or transactions is None:
            load.check()
        self._probe.close()
        self._probe.check()
        return takeover, transactions or 0

    def _report(self, takeover: Takeover, load: str, transactions: int, exits: list[str]) -> int:
        feed, commits = self._feed, self._probe.commits
        sample = latencies(commits, feed.arrivals)
        lag = [(commit.at, took) for commit, took in zip(commits, sample, strict=False)]
        comparison = compare(self._documents(), self._copy.documents())
        wrong = problems(
            comparison,
            parked=self.rows("SELECT count(*) FROM tube_park_list(%s, 1000)", TUBE)[0][0],
            unseen=len(commits) - len(sample),
            transactions=transactions,
            delivered=feed.by_client,
        )
        wrote = ", ".join(f"{name} {feed.by_client[name]:,}" for name in WORKERS)
        before = percentiles(took for at, took in lag if at + took < takeover.at)
        self.screen.heading("What was seen")
        self.screen.facts(
            {
                "compared": f"{comparison.rows:,} rows of the source with {self._copy.name}",
                "load": load,
                "documents": f"written by {wrote}; changes of a row that wait together become one",
                "commit to copy": f"{before}, before the kill",
                "take-over": str(takeover),
                "lag": lag_through(lag, takeover.at, takeover.victim),
            }
        )
        well = f"EQUAL: all {comparison.rows:,} rows of the source are at the sink, and nothing else is."
        code = verdict(self.screen, self.stage.path, wrong + exits, well, comparison.examples)
        if not code:
            suggest(
                self.screen,
                ("demo --outbox", "messages for Kafka, written in transactions, delivered in order"),
                ("demo --sink postgres", "the same with the copy in a second Postgres"),
                ("dev postgres", "a Postgres server to try the quick start with"),
            )
        return code

    def _victim(self) -> str:
        """The worker that the probe's row depends on, so that the take-over shows in the latencies."""
        return next(one.client for one in self.leaders() if one.partition == TELLER[0] % PARTITIONS)

    def _prepare(self) -> None:
        self._make_tables("dtp")
        tubes = Tubes(self.connection)
        tubes.create(TUBE, PARTITIONS)
        tubes.attach(TUBE, "public.pgbench_accounts", 0, ACCOUNT_SHARDS)
        tubes.attach(TUBE, "public.pgbench_tellers", TELLER[0])
        tubes.attach(TUBE, "public.pgbench_branches", BRANCH_SHARD)
        self.screen.step(f"pytube is installed; pgbench's tables are attached to the tube {TUBE}")
        timeout = self._copy.session_timeout
        self.start(self._copy.options, "json", session_timeout=timeout, meter_interval=0.2)
        self._make_tables("gv")
        rows = self.rows(_ROWS)[0][0]
        self.screen.step(f"three workers start; pgbench has filled its tables: {rows:,} rows")
        self.share()
        self.drain(_FILL_LIMIT, "the rows that pgbench had filled in were not all delivered")
        self._catch_up()
        self.screen.step(f"every row is a document in the copy: {self._copy.name}")

    def _make_tables(self, steps: str) -> None:
        path = self.stage.path / "pgbench-init.log"
        with path.open("ab") as log:
            done = subprocess.run(
                [self._pgbench, "-i", "-I", steps, "-s", "1", "-q", self.dsn],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=client_environment(),
                timeout=_PGBENCH_LIMIT,
            )
        if done.returncode != 0:
            raise DemoFailed(f"pgbench -i -I {steps} ended with {done.returncode}: see {path}")

    def _show_change(self) -> None:
        """Change one row, and show it in the source and in the copy before and after."""

        def until_equal() -> tuple[str, str]:
            there = json.loads(self.rows(_ACCOUNT)[0][0])

            def is_equal() -> bool:
                return bool(self._copy.document(ACCOUNT) == there)

            missing = "the row that is shown had not come to the copy"
            self.until(is_equal, limit=_CHANGE_LIMIT, missing=missing, pause=_GLANCE)
            return _text(_bare(there)), _text(_bare(self._copy.document(ACCOUNT)))

        before = until_equal()
        self.connection.execute(CHANGE)
        committed = time.time()
        after = until_equal()
        took = duration(time.time() - committed)
        self.screen.heading("One row")
        self.screen.facts(
            {
                "in Postgres": before[0],
                "in the copy": before[1],
                "then": CHANGE,
                "in Postgres now": after[0],
                "in the copy now": f"{after[1]}, {took} after the commit",
            }
        )
        self.screen.line("")

    def _catch_up(self) -> None:
        """Read all that has come."""
        while self.poll():
            pass

    def _documents(self) -> Iterator[tuple[Key, Any]]:
        """Every row as the document that the copy should have, decoded."""
        for query in _DOCUMENTS:
            for shard, key, text in self.rows(query):
                yield (shard, key), json.loads(text)


def transactions_in(text: str) -> int | None:
    """The number of transactions in pgbench's summary; None if there is no summary."""
    found = re.search(r"^number of transactions actually processed: (\d+)", text, re.MULTILINE)
    return int(found.group(1)) if found else None


def _bare(document: Any) -> Any:
    """Without the blanks with which a column of type char(n) ends."""
    return {name: value.rstrip() if isinstance(value, str) else value for name, value in document.items()}
