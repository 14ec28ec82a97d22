"""The source: pgbench's tables, attached to the tube, and what can be asked about both."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from pytube.db.connect import connect_sync
from pytube.db.install import install
from pytube.demo import queries
from pytube.demo.comparison import Key
from pytube.demo.failure import DemoFailed
from pytube.demo.settings import PARTITIONS, TUBE
from pytube.tubes.admin import Tubes

ACCOUNT_SHARDS = 16
TELLER_SHARD = 16
BRANCH_SHARD = 17
_PGBENCH_TIMEOUT = 60


@dataclass(frozen=True, slots=True)
class Figures:
    """How things stand at one moment."""

    touches: int
    """Ids written to the tube since it was made."""
    pods: int
    waiting: int
    """Ids that wait, in those pods."""
    lag: float
    """Age of the oldest pod, in seconds; 0 when none waits."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition, and under which epoch."""

    partition: int
    client: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Term:
    """One span of leadership; `began` is Unix time, `lasted` seconds."""

    client: str
    partition: int
    epoch: int
    began: float
    lasted: float
    outcome: str


class Source:
    """The database, seen by the demonstration over one session."""

    def __init__(self, dsn: str, pgbench: Path, log: Path) -> None:
        """Install our SQL and connect.

        Args:
            dsn: of the database.
            pgbench: the program.
            log: what it tells when it makes tables.
        """
        self.dsn = dsn
        self._pgbench = pgbench
        self._log = log
        install(dsn)
        self._connection = connect_sync(dsn, application_name="pytube demo")
        self.rows = 0
        """How many the three tables have."""
        self._seq = 0

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
        self.rows = int(self._one(queries.ROWS)[0])
        self._seq = int(self._one(queries.SEQ)[0])

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
        seq, pods, waiting, lag = self._one(queries.FIGURES)
        # Since the tables were filled, all statements touch one row, and so make a pod of one id.
        return Figures(self.rows + seq - self._seq, pods, waiting, lag)

    def leaders(self) -> list[Leader]:
        """Who leads what, by partition; a dead one as well, until another takes over."""
        return [Leader(*row) for row in self._all(queries.LEADERS)]

    def terms(self) -> list[Term]:
        """Every term that there was, by time."""
        return [Term(*row) for row in self._all(queries.TERMS)]

    def parked(self) -> int:
        """How many documents were set aside."""
        return int(self._one(queries.PARKED)[0])

    def documents(self) -> Iterator[tuple[Key, Any]]:
        """Every row as the document that the sink should have, decoded."""
        for query in (queries.ACCOUNTS, queries.TELLERS, queries.BRANCHES):
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


def client_environment() -> dict[str, str]:
    """Our environment without settings for clients of other servers (PGPORT, PGOPTIONS, …)."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
