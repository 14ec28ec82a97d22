"""A version with a second revision: installed, upgraded by every way, and while everybody goes on."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from pytube.config import parse
from pytube.db.install import install
from pytube.embedded.postgres import Postgres
from pytube.worker import Worker
from tests.conftest import Servers
from tests.helpers.cli import run
from tests.helpers.database import psql_file
from tests.helpers.next_version import NEXT, PRESENT, NextVersion
from tests.helpers.snapshot import dump
from tests.helpers.waiting import wait_until_async

TUBES = ["one", "Two 'quoted'", "three"]
LONGEST_WRITE = 5.0
"""Seconds; a writer may wait for a lock of the installation."""


@pytest.fixture(scope="module")
def following(tmp_path_factory: pytest.TempPathFactory) -> NextVersion:
    return NextVersion(tmp_path_factory.mktemp("next"))


def make_tubes(dsn: str) -> None:
    """Three tubes that hold pods."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        for tube in TUBES:
            conn.execute("SELECT tube_ensure_exists(%s, 2)", [tube])
            touch = sql.Identifier("tube", f"{tube}_touch")
            conn.execute(sql.SQL("SELECT {}(0, '{{1,2,3}}', 'T')").format(touch))


def by_psql(following: NextVersion, postgres: Postgres, dsn: str) -> None:
    psql_file(postgres, dsn, following.install_sql)


def by_install(following: NextVersion, _: Postgres, dsn: str) -> None:
    following.run("install", dsn=dsn)


def by_alembic(following: NextVersion, _: Postgres, dsn: str) -> None:
    assert f"upgraded: version {NEXT} (before: {PRESENT}) in the schema tube" in following.run(
        "upgrade", dsn=dsn
    )


def by_psql_in_a_transaction(following: NextVersion, postgres: Postgres, dsn: str) -> None:
    script = following.root / "caller.sql"
    script.write_text(f"BEGIN;\n\\i {following.install_sql}\nCOMMIT;\n")
    psql_file(postgres, dsn, script)


def test_every_way_ends_in_the_same(following: NextVersion, servers: Servers, postgres: Postgres) -> None:
    server = servers.get(18)
    with server.database(installed=False) as fresh:
        by_psql(following, postgres, fresh)
        make_tubes(fresh)
        expected = dump(postgres, fresh)
    assert expected.count("remark text") == 1
    for way in (by_psql, by_install, by_alembic, by_psql_in_a_transaction):
        with server.database(installed=False) as dsn:
            install(dsn)
            make_tubes(dsn)
            way(following, postgres, dsn)
            assert dump(postgres, dsn) == expected, way.__name__
            with psycopg.connect(dsn) as conn:
                assert conn.execute('SELECT ids FROM tube."three"').fetchall() == [([1, 2, 3],)]


def test_older_and_newer_say_what_to_do(following: NextVersion, dsn: str, tmp_path: Path) -> None:
    config = tmp_path / "pytube.toml"
    config.write_text(
        f'[postgres]\ndsn = "{dsn}"\n[tube."one".sink]\ntype = "jsonl"\npath = "{tmp_path}/x"\n'
    )
    make_tubes(dsn)
    said = following.run("--config", str(config), "worker", dsn=dsn, code=4)
    assert f"is of version {PRESENT}, and {NEXT} is needed; run `pytube install`" in said
    said = following.run("status", dsn=dsn, code=4)
    assert "run `pytube install`" in said
    following.run("upgrade", dsn=dsn)
    for command in (["worker"], ["status"], ["install"], ["upgrade"]):
        result = run(*command, dsn=dsn, code=4, folder=tmp_path)
        assert f"is of version {NEXT}, newer than {PRESENT}" in result.output
        assert "install a newer pytube" in result.output
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT version_num FROM tube.tube_version").fetchall() == [(NEXT,)]


class Writers:
    """A writer for each table, as fast as they come; each notes how long its slowest write took."""

    def __init__(self, dsn: str, tables: list[str]) -> None:
        self._dsn = dsn
        self._stop = threading.Event()
        self.slowest = 0.0
        self.written = 0
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._write, args=(table,)) for table in tables]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; what went wrong is raised."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _write(self, table: str) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as conn:
                key = 1_000_000
                while not self._stop.is_set():
                    key += 1
                    began = time.monotonic()
                    conn.execute(f"INSERT INTO public.{table} VALUES (%s)".encode(), [key])
                    self.slowest = max(self.slowest, time.monotonic() - began)
                    self.written += 1
        except BaseException as error:  # noqa: BLE001 # told to whoever stops them
            self.failures.append(error)


@pytest.fixture
def tables(dsn: str) -> list[str]:
    """A table for each tube, attached, with touches waiting."""
    names = ["a", "b", "c"]
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        for number, (tube, table) in enumerate(zip(TUBES, names, strict=True)):
            conn.execute("SELECT tube_ensure_exists(%s, 2)", [tube])
            conn.execute(f"CREATE TABLE public.{table} (id bigint PRIMARY KEY)".encode())
            conn.execute("SELECT tube_table_ensure_attached(%s, %s, %s)", [tube, f"public.{table}", number])
            conn.execute(f"INSERT INTO public.{table} SELECT generate_series(1, 500)".encode())
    return names


async def test_while_writers_and_a_worker_go_on(
    following: NextVersion, dsn: str, tables: list[str], tmp_path: Path
) -> None:
    sections = "".join(
        f'[tube."{tube}".sink]\ntype = "jsonl"\npath = "{tmp_path}/{table}"\n'
        for tube, table in zip(TUBES, tables, strict=True)
    )
    worker = Worker(parse(f'[postgres]\ndsn = "{dsn}"\n{sections}', "test", {}))
    await worker.start()
    writers = Writers(dsn, tables)
    try:
        await wait_until_async(lambda: writers.written > 20, what="writers write")
        await asyncio.to_thread(following.run, "upgrade", dsn=dsn)
        assert await asyncio.to_thread(version, dsn) == NEXT
        before = writers.written
        await wait_until_async(lambda: writers.written > before + 20, what="writers go on afterwards")
        await asyncio.to_thread(writers.stop)
        for table in tables:
            file, there = tmp_path / table, await asyncio.to_thread(ids, dsn, table)
            await wait_until_async(partial(delivered, file, there), what=table)
        assert writers.slowest < LONGEST_WRITE
    finally:
        await asyncio.to_thread(writers.stop)
        await worker.stop()


def version(dsn: str) -> str:
    """Which version is installed."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT version_num FROM tube.tube_version").fetchone()
        assert row is not None
        return str(row[0])


def ids(dsn: str, table: str) -> set[int]:
    """What is in a table."""
    with psycopg.connect(dsn) as conn:
        return {row[0] for row in conn.execute(f"SELECT id FROM public.{table}".encode())}


def delivered(file: Path, keys: set[int]) -> bool:
    """Whether a sink's file has the keys, and no others."""
    return {json.loads(line)["id"] for line in file.read_text().splitlines()} == keys
