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
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytube.clock import for_people
from pytube.demo.copies import TUBE, Copy, Key, Lines
from pytube.demo.screen import WORKERS, DemoFailed, Takeover, lag_through, percentiles, verdict
from pytube.demo.stage import PARTITIONS, Process, Stage, Story, Writer
from pytube.embedded.process import environment
from pytube.tubes.admin import Tubes

ACCOUNT_SHARDS = 16
TELLER: Key = (16, 1)
"""The row of the probe."""
BRANCH_SHARD = 17

_ROWS: Final = """
    SELECT (SELECT count(*) FROM pgbench_accounts) + (SELECT count(*) FROM pgbench_tellers)
        + (SELECT count(*) FROM pgbench_branches)
"""
# The shard is worked out here by other code, so that a mistake in ours would be seen.
_DOCUMENTS: Final = (
    "SELECT (aid % 16)::integer, aid::bigint, row_to_json(r) FROM pgbench_accounts AS r",
    "SELECT 16, tid::bigint, row_to_json(r) FROM pgbench_tellers AS r",
    "SELECT 17, bid::bigint, row_to_json(r) FROM pgbench_branches AS r",
)

ACCOUNT: Key = (7, 7)
"""The row that is shown."""
CHANGE: Final = "UPDATE pgbench_accounts SET abalance = 1000, filler = 'hello' WHERE aid = 7"
_ACCOUNT: Final = "SELECT row_to_json(r) FROM pgbench_accounts AS r WHERE aid = 7"

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

    def __init__(self, copy: Copy, logs: Path) -> None:
        """`logs`: the folder of the workers' logs."""
        self.copy = copy
        self.by_client: Counter[str] = Counter()
        self.arrivals: list[Moment] = []
        """Of the probe's numbers."""
        self._logs = {name: Lines(logs / f"{name}.log") for name in WORKERS}

    def poll(self) -> bool:
        """Take in what has come; whether there was something."""
        has_come = self.copy.poll()
        for client, log in self._logs.items():
            for said in log.new():
                if said.get("event") == "meter_read" and said["documents"]:
                    self.by_client[client] += said["documents"]
                    has_come = True
        number = number_in(self.copy.document(TELLER))
        if number is not None and (not self.arrivals or self.arrivals[-1].number != number):
            self.arrivals.append(Moment(number, self.copy.came(TELLER)))
        return has_come


# --- source against copy --------------------------------------------------------------------------


def differences(source: Mapping[Key, Any], sink: Mapping[Key, Any]) -> dict[str, list[str]]:
    """Every row of the source compared with the copy, both ways: a sentence for each difference, by kind."""
    return {
        "missing": [
            f"missing at the sink: {_name(key)}: {_text(source[key])}" for key in source if key not in sink
        ],
        "extra": [f"only at the sink: {_name(key)}: {_text(sink[key])}" for key in sink if key not in source],
        "different": [
            f"different: {_name(key)}: source {_text(source[key])}, sink {_text(sink[key])}"
            for key in source
            if key in sink and sink[key] != source[key]
        ],
    }


def _name(key: Key) -> str:
    return f"shard {key[0]} id {key[1]}"


def _text(document: Any) -> str:
    text = json.dumps(document)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def problems(
    rows: int,
    found: Mapping[str, Sequence[str]],
    *,
    parked: int,
    unseen: int,
    transactions: int,
    delivered: Mapping[str, int],
) -> list[str]:
    """What was not as it should be, a sentence each; empty when all was.

    `found` are the `differences` of so many `rows`, `unseen` numbers of the probe that never came,
    `transactions` were done by the load, `delivered` the documents by worker.
    """
    result: list[str] = []
    if not rows:
        result.append("the source has no rows, so nothing was compared")
    if any(found.values()):
        result.append(
            f"the sink is not equal to the source: {len(found['missing']):,} rows are missing there, "
            f"{len(found['extra']):,} are there only, {len(found['different']):,} are different"
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
    FIGURES = f"""
        SELECT count(*), coalesce(sum(cardinality(ids)), 0)::bigint,
            coalesce(extract(epoch FROM clock_timestamp() - min(ts)), 0)::float8
        FROM tube."{TUBE}"
    """  # noqa: S608 # a constant

    def __init__(self, stage: Stage, copy: Copy) -> None:
        super().__init__(stage)
        self._copy = copy
        self._feed = Feed(copy, stage.path)
        self._pgbench = str(stage.postgres.bin("pgbench"))
        self._probe = Probe(self.dsn)
        stage.stack.callback(self._probe.close)

    @property
    def arrived(self) -> int:
        """Documents."""
        return self._feed.by_client.total()

    def poll(self) -> bool:
        """What has come to the copy, and what the workers say of it."""
        return self._feed.poll()

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
        source = dict(self._documents())
        found = differences(source, self._copy.documents())
        wrong = problems(
            len(source),
            found,
            parked=self.rows("SELECT count(*) FROM tube_park_list(%s, 1000)", TUBE)[0][0],
            unseen=len(commits) - len(sample),
            transactions=transactions,
            delivered=feed.by_client,
        )
        wrote = ", ".join(f"{name} {feed.by_client[name]:,}" for name in WORKERS)
        before = percentiles(took for at, took in lag if at + took < takeover.at)
        self.screen.facts(
            "What was seen",
            {
                "compared": f"{len(source):,} rows of the source with {self._copy.name}",
                "load": load,
                "documents": f"written by {wrote}; changes of a row that wait together become one",
                "commit to copy": f"{before}, before the kill",
                "take-over": str(takeover),
                "lag": lag_through(lag, takeover.at, takeover.victim),
            },
        )
        return verdict(
            self.screen,
            self.stage.path,
            wrong + exits,
            f"EQUAL: all {len(source):,} rows of the source are at the sink, and nothing else is.",
            {
                "demo --outbox": "messages for Kafka, written in transactions, delivered in order",
                "demo --sink postgres": "the same with the copy in a second Postgres",
                "dev postgres": "a Postgres server to try the quick start with",
            },
            [text for texts in found.values() for text in texts[:_SHOWN]],
        )

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
        self.start(self._copy.options, session_timeout=timeout, meter_interval=0.2)
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
                env=environment(),
                timeout=_PGBENCH_LIMIT,
            )
        if done.returncode != 0:
            raise DemoFailed(f"pgbench -i -I {steps} ended with {done.returncode}: see {path}")

    def _show_change(self) -> None:
        """Change one row, and show it in the source and in the copy before and after."""

        def until_equal() -> tuple[str, str]:
            there = self.rows(_ACCOUNT)[0][0]
            self.until(
                lambda: bool(self._copy.document(ACCOUNT) == there),
                limit=_CHANGE_LIMIT,
                missing="the row that is shown had not come to the copy",
                pause=_GLANCE,
            )
            return _text(_bare(there)), _text(_bare(self._copy.document(ACCOUNT)))

        before = until_equal()
        self.connection.execute(CHANGE)
        committed = time.time()
        after = until_equal()
        took = for_people(time.time() - committed)
        self.screen.facts(
            "One row",
            {
                "in Postgres": before[0],
                "in the copy": before[1],
                "then": CHANGE,
                "in Postgres now": after[0],
                "in the copy now": f"{after[1]}, {took} after the commit",
            },
        )
        self.screen.line("")

    def _catch_up(self) -> None:
        """Read all that has come."""
        while self.poll():
            pass

    def _documents(self) -> Iterator[tuple[Key, Any]]:
        """Every row as the document that the copy should have."""
        for query in _DOCUMENTS:
            for shard, key, document in self.rows(query):
                yield (shard, key), document


def transactions_in(text: str) -> int | None:
    """The number of transactions in pgbench's summary; None if there is no summary."""
    found = re.search(r"^number of transactions actually processed: (\d+)", text, re.MULTILINE)
    return int(found.group(1)) if found else None


def _bare(document: Any) -> Any:
    """Without the blanks with which a column of type char(n) ends."""
    return {name: value.rstrip() if isinstance(value, str) else value for name, value in document.items()}
