"""The sink `redis` with names of columns: before any are known, in a cluster, and at a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis as redis_py

from pytube.config import load
from pytube.errors import ConfigError
from pytube.health.queues import check_sources
from pytube.keys import CompositeKey, KeyColumn, PartType
from pytube.model import OK
from pytube.sinks.redis import RedisSink
from pytube.testing import batch
from pytube.worker import Worker
from tests.helpers.database import preparing
from tests.helpers.logs import capture_logs
from tests.helpers.redis_server import RedisCluster, RedisServer
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[Any]

KEY = CompositeKey((KeyColumn("tenant", PartType.TEXT), KeyColumn("id", PartType.BIGINT)))
TABLE = """
SET search_path = tube, public;
CREATE TABLE public.docs (tenant text, id bigint, name text, PRIMARY KEY (tenant, id));
SELECT tube_ensure_exists('docs', 1, key_type => 'text');
SELECT tube_table_ensure_attached('docs', 'public.docs', 0, key_cols => '{tenant,id}');
INSERT INTO public.docs VALUES ('a', 1, 'one'), ('a', 2, 'two')
"""


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLE.encode())


prepare = preparing(_prepare, "dsn")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def store(server: RedisServer) -> Iterator[redis_py.Redis]:
    with server.client() as client:
        client.flushall()
        yield client


@asynccontextmanager
async def opened(url: str, key: str, *, cluster: bool = False) -> AsyncIterator[RedisSink]:
    sink = RedisSink.from_options({"url": url, "key": key, "cluster": cluster})
    await sink.open()
    try:
        yield sink
    finally:
        await sink.close()


async def test_marks_and_registers_are_read_before_any_columns_are_known(
    server: RedisServer, store: redis_py.Redis
) -> None:
    async with opened(server.url, "{tenant}:{id}") as sink:
        sink.template.learn_keys(lambda _: KEY)
        assert await sink.send(batch({(0, '["a", 1]'): {"v": 1}}, seq=1)) == [OK]
        await sink.write_mark("conformance", "full")
        await sink.write_note("conformance", "note")
    async with opened(server.url, "{tenant}:{id}") as sink:
        assert await sink.read_mark("conformance") == "full"
        assert await sink.read_note("conformance") == "note"
        assert [page async for page in sink.scan("conformance", 0, 2)] == [['["a", 1]']]
        store.flushall()
        assert await sink.read_mark("conformance") is None


async def test_all_names_of_a_shard_are_in_one_slot(tmp_path: Path) -> None:
    cluster = RedisCluster(tmp_path)
    try:
        async with opened(cluster.url, "{{{tube}}}:{tenant}:{id}", cluster=True) as sink:
            sink.template.learn_keys(lambda _: KEY)
            written = {(shard, f'["a", {number}]'): {"v": number} for shard in (0, 1) for number in range(20)}
            assert await sink.send(batch(written, seq=1)) == [OK] * 40
            of_no_row = {(0, f"by hand {number}"): None for number in range(20)}
            assert await sink.send(batch(of_no_row, seq=1)) == [OK] * 20
            found = {key async for page in sink.scan("conformance", 1, 2) for key in page}
            assert found == {key for shard, key in written if shard == 1}
    finally:
        cluster.close()


# --- a worker -----------------------------------------------------------------------------------


def configured(folder: Path, dsn: str, url: str, key: str, enrich: str = "row") -> Path:
    path = folder / "pytube.toml"
    path.write_text(
        f"""
        [postgres]
        dsn = "{dsn}"
        [worker]
        election = "lease"
        [tube.docs]
        enrich = {{ mode = "{enrich}" }}
        [tube.docs.sink]
        type = "redis"
        url = "{url}"
        key = "{key}"
        """
    )
    return path


WRONG = "{tenant}:{number} names number, tenant, and keys of public.docs are of tenant, id"


async def test_a_worker_does_not_start_with_columns_that_the_key_does_not_have(
    dsn: str, server: RedisServer, tmp_path: Path
) -> None:
    worker = Worker(load(configured(tmp_path, dsn, server.url, "{tenant}:{number}")))
    with pytest.raises(ConfigError, match=WRONG):
        await worker.start()
    await worker.stop()


def test_nor_where_no_rows_are_read(dsn: str, server: RedisServer, tmp_path: Path) -> None:
    path = configured(tmp_path, dsn, server.url, "{tenant}:{id}", enrich="none")
    with pytest.raises(ConfigError, match=r'mode = "none" of \[tube\.docs\.enrich\] reads no rows'):
        Worker(load(path))


@pytest.mark.parametrize(
    ("key", "enrich", "said"),
    [
        ("{tenant}:{number}", "row", WRONG),
        ("{tenant}:{id}", "none", 'mode = "none" of [tube.docs.enrich] reads no rows'),
        ("{tenant}:{id}", "row", "no row was read"),
        ("{id}", "none", "no row was read"),
    ],
)
def test_the_doctor_says_so(
    dsn: str, server: RedisServer, tmp_path: Path, key: str, enrich: str, said: str
) -> None:
    (check,) = check_sources(load(configured(tmp_path, dsn, server.url, key, enrich)), ["docs"])
    assert said in check.finding


async def test_a_column_of_the_key_is_renamed(
    dsn: str, conn: Conn, server: RedisServer, store: redis_py.Redis, tmp_path: Path
) -> None:
    """Nothing is parked meanwhile, and what was written arrives."""
    worker = Worker(load(configured(tmp_path, dsn, server.url, "{tenant}:{id}")))
    conn.execute("UPDATE public.docs SET name = 'first'")
    with capture_logs() as logs:
        await worker.start()
        try:
            await wait_until_async(lambda: b"first" in (store.get("a:2") or b""), what="it is there")
            conn.execute("ALTER TABLE public.docs RENAME tenant TO owner")
            conn.execute("SELECT tube_sync()")
            conn.execute("UPDATE public.docs SET name = 'second'")
            await wait_until_async(lambda: "are of owner, id; " in _source_down(conn), what="it stands still")
            conn.execute("ALTER TABLE public.docs RENAME owner TO tenant")
            conn.execute("SELECT tube_sync()")
            await wait_until_async(lambda: b"second" in (store.get("a:2") or b""), what="it goes on")
        finally:
            await worker.stop()
    assert not [line for line in logs if "parked" in str(line["event"])]
    assert conn.execute("SELECT count(*) FROM tube_parked").fetchone() == (0,)


def _source_down(conn: Conn) -> str:
    """Why no rows are read, as `pytube status` says it."""
    row = conn.execute("SELECT string_agg(source_down, ' ') FROM tube_leaders('docs')").fetchone()
    return str(row and row[0])
