"""What was measured on: machine and versions."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import psutil
import psycopg

from bench.frame.page import table


def describe(dsn: str) -> str:
    """A table of the machine and of what ran on it."""
    with psycopg.connect(dsn) as connection:
        postgres = connection.execute("SHOW server_version").fetchone()
    assert postgres
    memory = psutil.virtual_memory().total / 2**30
    return table(
        ["what", "which"],
        [
            ["cores", str(os.cpu_count())],
            ["memory", f"{memory:.0f} GiB"],
            ["kernel", f"{platform.system()} {platform.release()} {platform.machine()}"],
            ["Postgres", str(postgres[0])],
            ["Python", platform.python_version()],
            ["psycopg", f"{psycopg.__version__} ({psycopg.pq.__impl__}, libpq {psycopg.pq.version()})"],
            [
                "Kafka client",
                f"confluent-kafka {_version('confluent-kafka')} (elections by lease, where none is named)",
            ],
            ["load before", f"{os.getloadavg()[0]:.1f}"],
        ],
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
