"""The servers that are measured: with durable commits, and databases with our SQL."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.frame.readings import Readings
from pytube.db.install import install
from pytube.embedded import postgres
from pytube.embedded.postgres import Postgres, Version
from pytube.embedded.process import EmbeddedError

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "max_prepared_transactions": "0",
    "autovacuum_naptime": "5s",
}


class Server:
    """A running server. Each scenario makes its own database."""

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres

    @property
    def name(self) -> str:
        """As `Postgres 18`."""
        with psycopg.connect(self.postgres.dsn()) as connection:
            return f"Postgres {connection.info.server_version // 10_000}"

    def database(self, name: str) -> str:
        """The DSN of a new database with our SQL in it."""
        with psycopg.connect(self.postgres.dsn(), autocommit=True) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            admin.execute(f"CREATE DATABASE {name}")
        dsn = self.postgres.dsn(name)
        install(dsn)
        return dsn

    def drop(self, name: str) -> None:
        """Away with a database, so that the next scenario is not slowed by its vacuums."""
        with psycopg.connect(self.postgres.dsn(), autocommit=True) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            admin.execute("CHECKPOINT")

    def readings(self, dsn: str) -> Readings:
        """Takes readings of this server."""
        return Readings(connect(dsn), self.postgres.pid)

    def pgbench(
        self,
        dsn: str,
        script: str,
        *,
        clients: int,
        seconds: float = 0,
        each: int = 0,
        commit: bool = True,
        rate: float = 0,
        pytube_wake: str = "",
    ) -> int:
        """Run a script for so many seconds, or so many transactions for each client; how many were done."""
        wake = f" -c pytube.wake={pytube_wake}" if pytube_wake else ""
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            bound = ["-t", str(each)] if each else ["-T", f"{seconds:.0f}"]
            if rate:
                bound += ["-R", f"{rate:.0f}"]
            done = subprocess.run(
                [
                    str(self.postgres.bin("pgbench")),
                    "-n",
                    "-M",
                    "prepared",
                    "-c",
                    str(clients),
                    "-j",
                    "1",
                    *bound,
                    "-f",
                    file.name,
                    dsn,
                ],
                check=True,
                capture_output=True,
                text=True,
                env={"PGOPTIONS": f"-c synchronous_commit={'on' if commit else 'off'}{wake}"},
            )
        for line in done.stdout.splitlines():
            if line.startswith("number of transactions actually processed:"):
                return int(line.split(":")[1].split("/")[0])
        raise RuntimeError(done.stdout + done.stderr)


def connect(dsn: str, **options: Any) -> psycopg.Connection:
    """An autocommit session that finds our functions."""
    settings = " ".join(f"-c {name}={value}" for name, value in options.items())
    return psycopg.connect(dsn, autocommit=True, options=f"-c search_path=tube,public {settings}")


@contextmanager
def running(version: Version = 18) -> Iterator[Server]:
    """A server in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with Postgres(Path(folder) / "pg", version, settings=SETTINGS) as postgres:
            yield Server(postgres)


@contextmanager
def systems_own() -> Iterator[Server | None]:
    """A server of the version that the system has installed; None where it has none."""
    try:
        postgres.find("system")
    except EmbeddedError:
        yield None
    else:
        with running("system") as server:
            yield server
