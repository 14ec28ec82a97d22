"""What was measured on: machine and versions."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import psutil
import psycopg


def describe(dsn: str) -> list[list[str]]:
    """The machine, and the programs that ran on it: names and values."""
    with psycopg.connect(dsn) as connection:
        postgres = connection.execute("SHOW server_version").fetchone()
    assert postgres
    memory = psutil.virtual_memory().total / 2**30
    kafka = _version("confluent-kafka")
    return [
        ["cores", str(os.cpu_count())],
        ["memory", f"{memory:.0f} GiB"],
        ["kernel", f"{platform.system()} {platform.release()} {platform.machine()}"],
        ["Postgres", str(postgres[0])],
        ["Python", platform.python_version()],
        ["psycopg", f"{psycopg.__version__} ({psycopg.pq.__impl__}, libpq {psycopg.pq.version()})"],
        ["Kafka client", f"confluent-kafka {kafka} (elections by lease, where none is named)"],
        ["load before", f"{os.getloadavg()[0]:.1f}"],
    ]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
