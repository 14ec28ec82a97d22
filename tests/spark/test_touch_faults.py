"""A driver that is killed, a server that restarts, and whoever looks for the settled seq meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from pytube.config import load
from pytube.embedded.postgres import Postgres
from pytube.sinks.jsonl import replay
from pytube.spark import Touched, touch
from pytube.spark.hosts import Host
from pytube.spark.queues import SettledSeq
from pytube.worker import Worker
from tests.helpers.database import ROOT
from tests.helpers.waiting import wait_until, wait_until_async
from tests.spark import probes
from tests.spark.test_touch import ALL, N, keys, touched

Conn = psycopg.Connection[Any]

DRIVER = """
import json, os, signal, sys
from pytube.spark.session import local
from tests.spark.conftest import SETTINGS
from tests.spark.probes import touch
from tests.spark.test_touch import keys

dsn, = json.loads(sys.argv[1])
driver = os.getpid()

def probe(moment, unit):
    if moment == "committed" and unit >= 2:
        os.kill(driver, signal.SIGKILL)

spark = local("1", SETTINGS)
touch(keys(spark), tubes="t", dsn=dsn, job_id="killed", buckets=6, max_connections=1, probe=probe)
"""


def hold(folder: Path) -> Callable[[str, int], None]:
    """A probe that stops whoever has copied a unit first, until it may go on."""

    def probe(moment: str, unit: int) -> None:  # noqa: ARG001
        flag = folder / "copied"
        if moment == "copied" and not flag.exists():
            flag.touch()
            wait_until((folder / "go").exists)

    return probe


@pytest.mark.soak  # it starts a second Spark; test_touch.py has a driver that fails in this one
def test_a_driver_that_is_killed(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, tmp_path: Path
) -> None:
    # Into a file: whoever it leaves behind keeps a pipe open.
    with (tmp_path / "log").open("w+") as log:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, json.dumps([dsn])],
            check=False,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
            timeout=200,
        )
    assert done.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()
    # Its tasks may live on for a moment; what they write counts like all else.
    again = touch(keys(spark), tubes=tube, dsn=dsn, job_id="killed", max_connections=2)
    assert again.ids == N
    assert again.units < 6
    assert touched(conn) == ALL


def test_a_server_that_restarts(
    spark: SparkSession, dsn: str, postgres: Postgres, conn: Conn, tube: str, tmp_path: Path
) -> None:
    done: list[Touched] = []
    options: dict[str, Any] = {"tubes": tube, "dsn": dsn, "buckets": 6, "max_connections": 2}
    thread = threading.Thread(
        target=lambda: done.append(probes.touch(keys(spark), **options, probe=hold(tmp_path)))
    )
    thread.start()
    wait_until((tmp_path / "copied").exists, what="a unit is copied")
    postgres.restart(signal.SIGQUIT)
    (tmp_path / "go").touch()
    thread.join(120)
    with psycopg.connect(dsn) as there:
        assert touched(there) == ALL
    assert done[0].ids == N
    conn.close()


def test_a_unit_that_is_not_committed_is_waited_for(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, tmp_path: Path
) -> None:
    """What a worker's floor and a stream's offset rest on."""
    options: dict[str, Any] = {"tubes": tube, "dsn": dsn, "buckets": 1, "probe": hold(tmp_path)}
    thread = threading.Thread(target=probes.touch, args=(keys(spark),), kwargs=options)
    thread.start()
    wait_until((tmp_path / "copied").exists, what="a unit is copied")
    conn.execute("SELECT t_touch(9, '{1}', 'U')")
    row = conn.execute("SELECT seq FROM t").fetchone()
    assert row is not None
    later = int(row[0])
    settled = SettledSeq(tube)
    with Host(dsn).connect() as session:
        looked = [settled.advance(session) for _ in range(1000)]
        assert max(looked) < later
        (tmp_path / "go").touch()
        thread.join(60)
        assert settled.reach(session) >= later
    row = conn.execute("SELECT count(*) FROM t WHERE seq < %s", [later]).fetchone()
    assert row is not None
    assert row[0] > 0
    assert len(touched(conn)) == N + 1


async def test_a_worker_misses_nothing_of_a_unit_that_is_committed_late(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, tmp_path: Path
) -> None:
    """What was touched after the COPY is delivered before its commit; the worker then comes back to it."""
    conn.execute(f"CREATE TABLE public.x AS SELECT generate_series(0::bigint, {N - 1}) AS id")
    conn.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0, 3)")
    (tmp_path / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n'
        f'[tube.t.sink]\ntype = "jsonl"\npath = "{tmp_path}/sink.jsonl"\nfsync = false\n'
    )

    def delivered() -> set[int | str]:
        return {line.id for line in replay([tmp_path / "sink.jsonl"]).values()}

    async def until_delivered(ids: set[int]) -> None:
        await wait_until_async(lambda: ids <= delivered(), what="the worker has delivered")

    worker = Worker(load(tmp_path / "pytube.toml"))
    await worker.start()
    options: dict[str, Any] = {"tubes": tube, "dsn": dsn, "buckets": 1, "probe": hold(tmp_path)}
    fan_out = asyncio.create_task(asyncio.to_thread(probes.touch, keys(spark), **options))
    try:
        await wait_until_async((tmp_path / "copied").exists, what="the unit is copied")
        for later in range(N, N + 6):  # several partitions, one mark after the other
            conn.execute("INSERT INTO public.x VALUES (%s)", [later])
            await until_delivered({later})
        assert delivered() == set(range(N, N + 6))
        (tmp_path / "go").touch()
        await fan_out
        await until_delivered(set(range(N + 6)))
        await wait_until_async(lambda: touched(conn) == [], what="the tube is empty")
    finally:
        await worker.stop()
