"""Scheduled samples: what was changed at the sink behind our back is found, and what is on its way is not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import Config, masked, parse
from pytube.delivered import wait_async
from pytube.errors import ConfigError
from pytube.events import CopyDiffers, Event
from pytube.health.doctor import examine
from pytube.verify import verify
from pytube.worker import Worker, samples
from tests.helpers.capture import open_session
from tests.helpers.cli import run, run_json
from tests.helpers.database import preparing
from tests.helpers.forked import Program, start
from tests.helpers.logs import capture_logs
from tests.helpers.terms import Conn, scalar
from tests.helpers.waiting import wait_until, wait_until_async

CONFIG = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
session_timeout = 6.0
receive_deadline = 2.0
[tube.t.sink]
type = "postgres"
dsn = "{dsn}"
table = "copy"
create = true
request_timeout = 3.0
[tube.t.verify]
every = "1s"
sample = 500
"""
ROWS = 300


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, n int NOT NULL)")
        conn.execute("SELECT tube_ensure_exists('t', 2)")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0, shards => 4)")
        conn.execute("INSERT INTO goods SELECT g, g FROM generate_series(1, %s) g", (ROWS,))
        conn.execute("ANALYZE goods")


prepare = preparing(prepared, "goods")


@pytest.fixture
def goods(conn: Conn) -> Conn:
    return conn


@pytest.fixture
def config(dsn: str) -> Config:
    return parse(CONFIG.format(dsn=dsn), environment={})


@pytest.fixture
def folder(dsn: str, tmp_path: Path) -> Path:
    (tmp_path / "pytube.toml").write_text(CONFIG.format(dsn=dsn))
    return tmp_path


@asynccontextmanager
async def working(config: Config) -> AsyncIterator[list[Event]]:
    """A worker; its events."""
    told: list[Event] = []
    worker = Worker(config, on_event=told.append)
    await worker.start()
    try:
        yield told
    finally:
        await worker.stop()


def sample(conn: Conn) -> tuple[Any, ...] | None:
    """What the last one has found."""
    return conn.execute("SELECT checked, differing, undecided FROM tube_sample WHERE tube = 't'").fetchone()


def ended(conn: Conn) -> Any:
    return conn.execute("SELECT ended_at FROM tube_sample").fetchone()


def tamper(conn: Conn) -> None:
    """Somebody changes one document of the copy, and deletes another."""
    conn.execute("""UPDATE copy SET doc = '{"id": 7, "n": 4711}' WHERE (doc ->> 'id')::int = 7""")
    conn.execute("DELETE FROM copy WHERE (doc ->> 'id')::int = 8")


def wait_until_drained(conn: Conn) -> Any:
    return wait_until_async(lambda: scalar(conn, "SELECT count(*) FROM t") == 0, what="all is delivered")


async def test_what_was_changed_at_the_sink_is_found_and_reported_until_it_was_verified(
    goods: Conn, config: Config, dsn: str
) -> None:
    async with working(config) as told:
        await wait_until_drained(goods)
        await wait_until_async(lambda: sample(goods) == (ROWS, 0, 0), what="a sample finds nothing")
        tamper(goods)
        await wait_until_async(lambda: (sample(goods) or (0, 0))[1] == 2, what="a sample finds it")
        await wait_until_async(lambda: any(isinstance(one, CopyDiffers) for one in told), what="it is told")
        event = next(one for one in told if isinstance(one, CopyDiffers))
        assert (event.tube, event.checked, event.differing) == ("t", ROWS, 2)
        assert "id 7" in event.reason
        assert "id 8" in event.reason

        said = (await asyncio.to_thread(run, "status", dsn=dsn)).output
        assert "found that the copy differs" in said
        assert "pytube verify t --repair" in said
        assert f"t: last sample: {ROWS} keys compared" in said
        checks = await asyncio.to_thread(lambda: {one.subject: one for one in examine(config)})
        assert checks["copy of t"].level == "fail"
        assert "2 differ" in checks["sample of t"].finding
        metrics = (await asyncio.to_thread(run, "status", "--prometheus", dsn=dsn)).stdout
        assert 'pytube_fleet_copy_differs{tube="t"} 2.0' in metrics
        assert 'pytube_fleet_source_changed{tube="t"} 0.0' in metrics
        assert 'pytube_fleet_sample_differing{tube="t"} 2.0' in metrics

        assert (await verify(config, "t", repair=True)).touched == 2
        await wait_async("t", dsn=dsn)
        await wait_until_async(lambda: (sample(goods) or (0, 1))[1] == 0, what="a sample finds it mended")
        assert len((await asyncio.to_thread(run_json, "status", dsn=dsn))[0]["unverified"]) == 1, (
            "not verified"
        )
        assert (await verify(config, "t")).is_equal
        assert (await asyncio.to_thread(run_json, "status", dsn=dsn))[0]["unverified"] == []


async def test_keys_in_flight_do_not_count(goods: Conn, config: Config, dsn: str) -> None:
    """Rows change without pause, so that at each look some documents are on their way."""
    async with working(config) as told:
        await wait_until_drained(goods)
        changing = asyncio.Event()

        async def change() -> None:
            async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
                while not changing.is_set():
                    await connection.execute("UPDATE public.goods SET n = n + 1 WHERE id % 3 = 0")

        writer = asyncio.create_task(change())
        seen = set()

        def compared() -> bool:
            seen.add(ended(goods))
            return len(seen) > 3

        try:
            await wait_until_async(compared, what="some samples are compared meanwhile")
        finally:
            changing.set()
            await writer
        assert not [one for one in told if isinstance(one, CopyDiffers)]
        assert (sample(goods) or (0, 1))[1] == 0


async def test_a_parked_key_is_reported_as_parked_alone(goods: Conn, config: Config) -> None:
    async with working(config) as told:
        await wait_until_drained(goods)
        goods.execute("DELETE FROM copy WHERE (doc ->> 'id')::int = 8")
        goods.execute(
            "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
            " VALUES ('t', 0, '8', 'U', 1, 'bad', 5, 1)"
        )
        before = ended(goods)
        await wait_until_async(lambda: ended(goods) not in (None, before), what="a sample is compared")
        assert sample(goods) == (ROWS, 0, 0)
        assert not [one for one in told if isinstance(one, CopyDiffers)]


async def test_no_sample_while_the_tube_is_behind(
    goods: Conn, config: Config, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_LONGEST_HOLD", 0.0)
    monkeypatch.setattr(samples, "_PATIENCE", 1.0)
    asked: list[str] = []
    give_way = samples.Sampler._give_way

    async def noting(self: samples.Sampler, name: str, seconds: float) -> None:
        asked.append(name)
        await give_way(self, name, seconds)

    monkeypatch.setattr(samples.Sampler, "_give_way", noting)
    lag = "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - since)), 0) FROM tube_load(1)"
    async with working(config):
        await wait_until_drained(goods)
        await wait_until_async(lambda: sample(goods) is not None, what="a sample is compared")
        with goods.transaction():
            goods.execute("LOCK TABLE public.copy IN SHARE MODE")  # it can be read, and takes nothing
            async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as writer:
                await writer.execute("UPDATE public.goods SET n = n + 1 WHERE id = 4")
            await wait_until_async(lambda: scalar(goods, lag) > samples._BEHIND, what="the tube is behind")
            begun = len(asked)
            await wait_until_async(lambda: len(asked) > begun + 1, what="a sample wants to begin")
            before = ended(goods)
            await wait_until_async(lambda: len(asked) > begun + 4, what="it gives up, and wants to again")
            assert ended(goods) == before
        await wait_until_async(lambda: ended(goods) != before, what="it is compared when the tube is empty")


async def test_a_sample_that_fails_is_told_once_and_begun_again(
    goods: Conn, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_RETRY", 0.1)
    tries = []
    real = verify

    async def failing(*arguments: Any, **options: Any) -> Any:
        tries.append(1)
        if len(tries) < 4:
            raise RuntimeError("a sink of anybody's")
        return await real(*arguments, **options)

    monkeypatch.setattr(samples, "verify", failing)
    with capture_logs() as logged:
        async with working(config):
            await wait_until_async(lambda: sample(goods) is not None, what="it is compared after all")
    said = [line for line in logged if line["event"] == "sample_not_compared"]
    assert [line["reason"] for line in said] == ["RuntimeError: a sink of anybody's"]


@pytest.fixture
def processes() -> Iterator[list[Program]]:
    made: list[Program] = []
    yield made
    for process in made:
        process.kill()
        process.wait()


def test_a_worker_killed_in_the_middle_leaves_the_sample_to_the_next(
    goods: Conn, dsn: str, folder: Path, processes: list[Program]
) -> None:
    """The first worker is killed while its sample waits for the copy, whose table somebody holds."""

    def begin() -> Program:
        with (folder / "log").open("ab") as log:
            arguments = ["--config", str(folder / "pytube.toml"), "worker", "--tube", "t"]
            processes.append(start("pytube", arguments, environment=dict(os.environ), output=log))
        return processes[-1]

    waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'public.copy'::regclass AND NOT granted"
    first = begin()
    wait_until(lambda: (sample(goods) or (0,))[0] == ROWS, what="a sample is compared")
    wait_until(lambda: scalar(goods, "SELECT count(*) FROM t") == 0, what="all is delivered")
    with psycopg.connect(dsn) as holder:
        holder.execute("LOCK TABLE public.copy IN ACCESS EXCLUSIVE MODE")
        wait_until(lambda: scalar(goods, waiting) > 0, what="a sample waits for the copy")
        first.kill()
        first.wait()
    before = ended(goods)
    second = begin()
    wait_until(lambda: ended(goods) != before, what="another worker compares one")
    assert sample(goods) == (ROWS, 0, 0)
    second.terminate()
    assert second.wait(timeout=30) == 0


@pytest.mark.parametrize(
    "sink",
    ['type = "webhook"\nurl = "https://127.0.0.1:1/"', 'type = "jsonl"\npath = "-"'],
)
def test_a_sink_that_can_not_be_read_is_an_error_of_the_configuration(dsn: str, sink: str) -> None:
    text = f'[postgres]\ndsn = "{dsn}"\n[tube.t.sink]\n{sink}\n[tube.t.verify]\nevery = 60\n'
    with pytest.raises(ConfigError, match=r'\[tube\."t"\.verify\]: samples can\'t be compared: .*; remove'):
        Worker(parse(text, environment={}))


@pytest.mark.parametrize(
    ("given", "seconds"), [('"90s"', 90), ('"10m"', 600), ('"1h"', 3600), ("30.5", 30.5)]
)
def test_lengths_of_time(given: str, seconds: float) -> None:
    text = CONFIG.format(dsn="host=x").replace('"1s"', given)
    settings = parse(text, environment={}).tube("t").verify
    assert settings is not None
    assert settings.every == seconds
    assert masked(parse(text, environment={}))["tube"]["t"]["verify"] == {"every": seconds, "sample": 500}


@pytest.mark.parametrize("given", ['"soon"', '"1 hour"', "0", '"0s"', "true"])
def test_no_length_of_time(given: str) -> None:
    with pytest.raises(ConfigError, match="every"):
        parse(CONFIG.format(dsn="host=x").replace('"1s"', given), environment={})
