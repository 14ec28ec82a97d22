"""The source: pgbench's tables, attached to the tube; the load and the probe, which write to them.

The search path has our schema first, then `public`.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from pytube.db.connect import connect_sync
from pytube.db.install import install
from pytube.demo.screen import DemoFailed, Figures, Leader
from pytube.demo.stage import PARTITIONS, Process, client_environment
from pytube.tubes.admin import Tubes

Key = tuple[int, int]
"""Shard and id."""

TUBE = "es-live"
ACCOUNT_SHARDS = 16
TELLER_SHARD = 16
BRANCH_SHARD = 17
_PGBENCH_TIMEOUT = 60

_ROWS: Final = """
    SELECT (SELECT count(*) FROM pgbench_accounts) + (SELECT count(*) FROM pgbench_tellers)
        + (SELECT count(*) FROM pgbench_branches)
"""

_FIGURES: Final = """
    SELECT count(*), coalesce(sum(cardinality(ids)), 0)::bigint,
        coalesce(extract(epoch FROM clock_timestamp() - min(ts)), 0)::float8
    FROM {tube}
"""

_LEADERS: Final = "SELECT partition, client_id, epoch FROM tube_leaders(%(tube)s) ORDER BY partition"

_PARKED: Final = "SELECT count(*) FROM tube_park_list(%(tube)s, 1000)"

# The shard is worked out here by other code, so that a mistake in ours would be seen.
_DOCUMENTS: Final = (
    "SELECT (aid %% 16)::integer, aid::bigint, row_to_json(r)::text FROM pgbench_accounts AS r",
    "SELECT 16, tid::bigint, row_to_json(r)::text FROM pgbench_tellers AS r",
    "SELECT 17, bid::bigint, row_to_json(r)::text FROM pgbench_branches AS r",
)

ACCOUNT: Key = (7, 7)
"""The row that is shown."""
CHANGE: Final = "UPDATE pgbench_accounts SET abalance = 1000, filler = 'hello' WHERE aid = 7"
_ACCOUNT: Final = "SELECT row_to_json(r)::text FROM pgbench_accounts AS r WHERE aid = 7"

_PROBE: Final = "UPDATE pgbench_tellers SET filler = %(filler)s WHERE tid = %(teller)s"


class Source:
    """The database, seen by the demonstration over one session."""

    def __init__(self, dsn: str, pgbench: Path, log: Path) -> None:
        """Install the SQL and connect; `log` gets what the program `pgbench` says when it makes tables."""
        self.dsn = dsn
        self._pgbench = pgbench
        self._log = log
        install(dsn)
        self._connection = connect_sync(dsn, application_name="pytube demo")
        self.rows = 0
        """How many the three tables have."""

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    # --- making ---------------------------------------------------------------------------

    def attach(self) -> None:
        """Make the tube and pgbench's tables, still empty, and attach these."""
        self._make("dtp")
        tubes = Tubes(self._connection)
        tubes.create(TUBE, PARTITIONS)
        tubes.attach(TUBE, "public.pgbench_accounts", 0, ACCOUNT_SHARDS)
        tubes.attach(TUBE, "public.pgbench_tellers", TELLER_SHARD)
        tubes.attach(TUBE, "public.pgbench_branches", BRANCH_SHARD)

    def fill(self) -> None:
        """Fill the tables, which touches every row."""
        self._make("gv")
        self.rows = int(self._one(_ROWS)[0])

    def _make(self, steps: str) -> None:
        command = [str(self._pgbench), "-i", "-I", steps, "-s", "1", "-q", self.dsn]
        with self._log.open("ab") as log:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=client_environment(),
                timeout=_PGBENCH_TIMEOUT,
            )
        if done.returncode != 0:
            raise DemoFailed(f"pgbench -i -I {steps} ended with {done.returncode}: see {self._log}")

    # --- asking ---------------------------------------------------------------------------

    def figures(self) -> Figures:
        """How things stand."""
        return Figures(*self._one(_FIGURES))

    def leaders(self) -> list[Leader]:
        """Who leads what, by partition; a dead one as well, until another takes over."""
        return [Leader(*row) for row in self._all(_LEADERS)]

    def parked(self) -> int:
        """How many documents were set aside."""
        return int(self._one(_PARKED)[0])

    def account(self) -> Any:
        """The row that is shown, as the document that the copy should have, decoded."""
        return json.loads(self._one(_ACCOUNT)[0])

    def change(self) -> float:
        """Change that row; when the change was committed, in Unix time."""
        self._connection.execute(CHANGE)
        return time.time()

    def documents(self) -> Iterator[tuple[Key, Any]]:
        """Every row as the document that the sink should have, decoded."""
        for query in _DOCUMENTS:
            for shard, key, text in self._all(query):
                yield (shard, key), json.loads(text)

    def _one(self, query: LiteralString) -> tuple[Any, ...]:
        return self._all(query)[0]

    def _all(self, query: LiteralString) -> list[tuple[Any, ...]]:
        statement = sql.SQL(query).format(tube=sql.Identifier("tube", TUBE))
        try:
            return self._connection.execute(statement, {"tube": TUBE}).fetchall()
        except psycopg.OperationalError as error:
            raise DemoFailed(f"Postgres does not answer the demo any more: {error}") from error


# --- the load -----------------------------------------------------------------------------

RATE = 200
"""Transactions per second: what two cores carry well beside servers, workers and what compares."""

CLIENTS = 4
_LONGEST = 600
_STOP_TIMEOUT = 15.0


class Load:
    """One run of pgbench with its own transactions, at a steady rate."""

    def __init__(self, pgbench: Path, dsn: str, log: Path) -> None:
        """Start the program `pgbench`."""
        command = [str(pgbench), "-n", "-M", "prepared", "-c", str(CLIENTS), "-R", str(RATE)]
        command += ["-T", str(_LONGEST), "-P", "5", dsn]
        self._log = log
        self._process = Process("pgbench", command, log)
        self.check = self._process.check
        self.close = self._process.kill

    def finish(self) -> int:
        """Let it finish; how many transactions it did.

        Raises:
            DemoFailed: it did not end well.
        """
        # What its own timer sends: it finishes the transactions under way and prints the sum.
        code = self._process.stop(signal.SIGALRM, _STOP_TIMEOUT)
        count = transactions_in(self._log.read_text(errors="replace"))
        if code != 0 or count is None:
            self.check()
        return count or 0


def transactions_in(text: str) -> int | None:
    """The number of transactions in pgbench's summary; None if there is no summary."""
    found = re.search(r"^number of transactions actually processed: (\d+)", text, re.MULTILINE)
    return int(found.group(1)) if found else None


# --- the probe ----------------------------------------------------------------------------

_INTERVAL = 0.05
TELLER = 1
_NUMBER = re.compile(r"probe (\d+) *")
_JOIN_TIMEOUT = 10.0


class Commit(NamedTuple):
    """A number, and when its commit had returned; Unix time."""

    number: int
    at: float


class Arrival(NamedTuple):
    """A number, and when a document with it was written to the sink; Unix time."""

    number: int
    at: float


def number_in(document: Any) -> int | None:
    """The probe's number in a document of its row; None when there is none."""
    if not isinstance(document, dict):
        return None
    found = _NUMBER.fullmatch(str(document.get("filler")))
    return int(found.group(1)) if found else None


class Probe:
    """Writes a running number into one row, to see how long each takes to the sink; in its own thread."""

    def __init__(self, dsn: str) -> None:
        """Connect; nothing is written before `start`."""
        self.commits: list[Commit] = []
        self._connection = connect_sync(dsn, application_name="pytube demo probe")
        self._stop = threading.Event()
        self._error: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def check(self) -> None:
        """Raise `DemoFailed` when it could not write."""
        if self._error is not None:
            raise DemoFailed(f"the probe could not write: {self._error}")

    def close(self) -> None:
        """Stop, and end the session; once is enough."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_TIMEOUT)
        self._connection.close()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(_INTERVAL):
            number += 1
            try:
                self._connection.execute(_PROBE, {"filler": f"probe {number}", "teller": TELLER})
            except psycopg.Error as error:
                self._error = error
                return
            self.commits.append(Commit(number, time.time()))
