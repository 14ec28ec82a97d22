"""The sink of examples/sink_sqlite, a distribution of its own, passes the suite and serves a worker."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import parse
from pytube.model import Key
from pytube.sinks import build_sink
from pytube.sinks.base import Sink
from pytube.testing import SinkContract
from pytube.worker import Worker
from tests.helpers.database import ROOT
from tests.helpers.waiting import wait_until_async

EXAMPLE = ROOT / "examples" / "sink_sqlite"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip does with the example: its module on the path, and the metadata of its pyproject.toml."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    points = project["entry-points"]["pytube.sinks"]
    lines = "".join(f"{name} = {target}\n" for name, target in points.items())
    (info / "entry_points.txt").write_text(f"[pytube.sinks]\n{lines}")
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    shutil.copy(EXAMPLE / "sink_sqlite.py", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def held(path: Path) -> dict[Key, Any]:
    if not path.exists():
        return {}
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT shard, id, body FROM documents WHERE body IS NOT NULL").fetchall()
    connection.close()
    return {(shard, key): json.loads(body) for shard, key, body in rows}


class TestSqlite(SinkContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "copy.sqlite"
        self.locker: sqlite3.Connection | None = None

    def make_sink(self) -> Sink:
        return build_sink("sqlite", {"path": str(self.path)})

    def unopenable_sink(self) -> Sink:
        return build_sink("sqlite", {"path": str(self.path.parent)})

    def read_back(self) -> dict[Key, Any]:
        return held(self.path)

    def stall(self) -> bool:
        self.locker = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.locker.execute("BEGIN IMMEDIATE")
        return True

    def unstall(self) -> None:
        if self.locker is not None:
            self.locker.close()


async def test_a_worker_writes_to_it(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.sqlite"
    config = parse(
        f"""
        [postgres]
        dsn = "{dsn}"
        [tube.items.sink]
        type = "sqlite"
        path = "{path}"
        """
    )
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        conn.execute("SELECT tube_ensure_exists('items')")
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
        conn.execute("INSERT INTO public.items SELECT generate_series(1, 3)")
        worker = Worker(config)
        await worker.start()
        try:
            await wait_until_async(lambda: held(path) == {(0, n): {"id": n} for n in (1, 2, 3)})
            conn.execute("DELETE FROM public.items WHERE id = 2")
            await wait_until_async(lambda: held(path) == {(0, n): {"id": n} for n in (1, 3)})
        finally:
            await worker.stop()
