"""A sink that has lost its documents under a worker is found, named, and filled again: Redis, Postgres."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.events import SinkEmptied
from pytube.worker import sink_marks
from tests.helpers.emptied import check_remedy, make_source, rows_of, serving
from tests.helpers.redis_server import RedisServer
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[Any]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sinks are looked at more often than workers do."""
    monkeypatch.setattr(sink_marks, "INTERVAL", 0.2)
    monkeypatch.setattr(sink_marks, "_STEP", 0.1)


# --- Redis --------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def folder(dsn: str, conn: Conn, server: RedisServer, tmp_path: Path) -> Path:
    make_source(conn)
    (tmp_path / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n[tube.items.sink]\ntype = "redis"\nurl = "{server.url}"\n'
        'key = "items:{id}"\n'
    )
    return tmp_path


def held_by(server: RedisServer) -> dict[Any, Any]:
    with server.client() as client:
        return {
            int(name.split(b":")[1]): json.loads(client.get(name) or b"null")
            for name in client.scan_iter("items:*")
        }


async def test_a_redis_that_was_flushed(folder: Path, conn: Conn, server: RedisServer) -> None:
    """At the pace of a worker in production: within 30 seconds."""
    async with serving(folder) as watched:
        await wait_until_async(lambda: held_by(server) == rows_of(conn))
        await watched.until_marked()
        with server.client() as client:
            client.flushall()
        await watched.until_emptied()
        await check_remedy(watched, lambda: held_by(server), lambda: rows_of(conn))


@pytest.mark.usefixtures("often")
async def test_a_redis_that_came_back_empty(folder: Path, conn: Conn, server: RedisServer) -> None:
    async with serving(folder) as watched:
        await wait_until_async(lambda: held_by(server) == rows_of(conn))
        await watched.until_marked()
        server.kill()
        conn.execute("UPDATE public.items SET n = -n WHERE id = 1")
        server.start()
        await watched.until_emptied()
        await check_remedy(watched, lambda: held_by(server), lambda: rows_of(conn))


@pytest.mark.usefixtures("often")
async def test_a_redis_that_was_flushed_while_nobody_worked(
    folder: Path, conn: Conn, server: RedisServer
) -> None:
    """The memory of the mark is not the process's. And a second loss during the backfill counts, too."""
    async with serving(folder) as watched:
        await wait_until_async(lambda: held_by(server) == rows_of(conn))
        await watched.until_marked()
    with server.client() as client:
        client.flushall()
    async with serving(folder) as watched:
        await watched.until_emptied()
        await watched.run("pause", "--tube", "items")
        await watched.run("backfill", "start", "--tube", "items")
        await watched.until_marked()
        with server.client() as client:
            client.flushall()
        await wait_until_async(lambda: watched.told(SinkEmptied) == 2, what="the second loss is found")
        await watched.run("resume", "--tube", "items")
        await wait_until_async(lambda: held_by(server) == rows_of(conn))
        assert "lost its documents" in await watched.run("status")
        await check_remedy(watched, lambda: held_by(server), lambda: rows_of(conn))


@pytest.mark.usefixtures("often")
async def test_a_finding_ends_by_a_comparison_or_by_word(
    folder: Path, conn: Conn, server: RedisServer
) -> None:
    async with serving(folder) as watched:
        await wait_until_async(lambda: held_by(server) == rows_of(conn))
        await watched.until_marked()
        with server.client() as client:  # evicted, say; the documents are there
            client.delete(*client.keys("pytube.mark:*"))
        await watched.until_emptied()
        assert await watched.verify(sample="1") == (True, "")
        assert "lost its documents" in await watched.run("status")
        is_equal, told = await watched.verify()
        assert is_equal
        assert "the sink, which was found emptied, counts as complete again" in told
        await watched.until_well()
        await watched.until_marked()
        with server.client() as client:
            client.flushall()
        await wait_until_async(lambda: watched.told(SinkEmptied) == 2)
        assert "lost its documents" in await watched.run("status")
        is_equal, _ = await watched.verify()
        assert not is_equal
        assert "lost its documents" in await watched.run("status")
        assert "counts as complete" in await watched.run("sink", "accept", "--tube", "items")
        await watched.until_well()
        assert "was not found emptied" in await watched.run("sink", "accept", "--tube", "items")


# --- Postgres -----------------------------------------------------------------------------------


@pytest.fixture
def copy(dsn: str, conn: Conn, bare_dsn: str, tmp_path: Path) -> Iterator[tuple[Path, Conn]]:
    """The folder of a worker with a sink in another database, and a session there."""
    make_source(conn)
    (tmp_path / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n[tube.items.sink]\ntype = "postgres"\ndsn = "{bare_dsn}"\n'
        'table = "copy"\nkey = ["id"]\ncreate = true\n'
    )
    with psycopg.connect(bare_dsn, autocommit=True) as connection:
        yield tmp_path, connection


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    "loss",
    [
        "TRUNCATE copy",
        "TRUNCATE copy, copy_pytube",
        "CREATE TABLE other (LIKE copy INCLUDING ALL); DROP TABLE copy; ALTER TABLE other RENAME TO copy",
        "DROP TABLE copy, copy_pytube",
    ],
    ids=["truncated", "truncated with its stamps", "replaced", "dropped"],
)
async def test_a_table_that_has_lost_its_rows(copy: tuple[Path, Conn], conn: Conn, loss: Any) -> None:
    folder, eye = copy

    def held() -> dict[Any, Any]:
        if eye.execute("SELECT to_regclass('copy')").fetchone() == (None,):
            return {}
        return dict(eye.execute("SELECT id, doc FROM copy").fetchall())

    async with serving(folder) as watched:
        await wait_until_async(lambda: held() == rows_of(conn))
        await watched.until_marked()
        eye.execute(loss)
        await watched.until_emptied()
        conn.execute("UPDATE public.items SET n = -n WHERE id < 5")
        await check_remedy(watched, held, lambda: rows_of(conn))
