"""Whoever works on a backfill gives a server up that does not answer, and lets others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from pytube.backfill.run import BackfillRun, Progress
from pytube.config import BackfillConfig, PostgresConfig
from pytube.db.session import Session
from pytube.errors import DatabaseUnavailable
from pytube.worker.database import Database
from tests.conftest import Connect
from tests.helpers import cli
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import LIMIT, wait_until, wait_until_async

Connection = psycopg.Connection[Any]

SOON = 1.0
"""Seconds after which a session is given up; without a limit it would wait for hours."""
ROWS = 5000
SLOWLY = BackfillConfig(rate=500, chunk=1)


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(int(str(conninfo_to_dict(dsn)["port"]))) as proxy:
        yield proxy


@pytest.fixture
def through(dsn: str, proxy: Proxy) -> str:
    """The database, by way of the proxy."""
    return make_conninfo(dsn, host="127.0.0.1", port=proxy.port)


@pytest.fixture
def backfill(conn: Connection) -> int:
    """One of a table of 5000 rows that nobody works on yet."""
    conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
    conn.execute("INSERT INTO public.items SELECT generate_series(1, %s)", (ROWS,))
    conn.execute("SELECT tube_ensure_exists('items')")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
    row = conn.execute("SELECT tube_backfill_create('items', 'public.items')").fetchone()
    assert row is not None
    return int(row[0])


def locked_by(reader: Connection) -> Callable[[Progress], None]:
    """Lock the table when it is about to be collected: before, the backfill would wait for who does."""

    def told(progress: Progress) -> None:
        if progress.note == "collects the ids":
            reader.execute("LOCK TABLE public.items IN ACCESS EXCLUSIVE MODE")

    return told


def untold(_: Progress) -> None:
    """Nobody listens."""


def done(conn: Connection) -> int:
    row = conn.execute("SELECT rows_done FROM tube_backfill").fetchone()
    assert row is not None
    return int(row[0])


async def given_up(running: asyncio.Task[Any]) -> str:
    """What it says when it ends without an answer, in time."""
    with pytest.raises(DatabaseUnavailable) as error:
        await asyncio.wait_for(running, LIMIT)
    return str(error.value)


@pytest.mark.parametrize("mode", [Mode.HALF_OPEN, Mode.ANSWERS_LOST])
async def test_a_chunk_without_an_answer(
    proxy: Proxy, through: str, dsn: str, conn: Connection, backfill: int, mode: Mode
) -> None:
    session = await Session.open(through, "tube", "test", answer_timeout=SOON)
    running = asyncio.create_task(BackfillRun(session, backfill, SLOWLY, untold).run())
    await wait_until_async(lambda: done(conn) > 500, what="some chunks are inserted")
    proxy.switch(mode)
    assert "no answer within 1 s" in await given_up(running)
    await session.close()
    proxy.switch(Mode.PASS)
    free = "SELECT pid FROM tube_backfill_list()"
    await wait_until_async(lambda: conn.execute(free).fetchone() == (None,), what="nobody works on it")
    session = await Session.open(dsn, "tube", "test", answer_timeout=SOON)
    assert (await BackfillRun(session, backfill, BackfillConfig(), untold).run()).state == "delivering"
    await session.close()
    found = "SELECT count(*), count(DISTINCT id) FROM tube.items, unnest(ids) AS id"
    assert conn.execute(found).fetchone() == (ROWS, ROWS)


async def test_collecting_may_take_long(dsn: str, connect: Connect, conn: Connection, backfill: int) -> None:
    reader = connect(autocommit=False)
    session = await Session.open(dsn, "tube", "test", answer_timeout=SOON)
    run = BackfillRun(session, backfill, BackfillConfig(), locked_by(reader))
    running = asyncio.create_task(run.run())
    longer = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%collect%' AND wait_event = 'relation' AND {}"
    lasts = longer.format(f"clock_timestamp() - query_start > interval '{2 * SOON} seconds'")
    await wait_until_async(lambda: conn.execute(lasts).fetchone() == (1,), what="it collects for long")
    assert not running.done()
    reader.rollback()
    assert (await running).state == "delivering"
    await session.close()


async def test_the_session_of_a_worker_has_a_limit(proxy: Proxy, through: str) -> None:
    postgres = PostgresConfig(dsn=SecretStr(through), answer_timeout=SOON)
    database = Database(postgres, ["items"], receive_deadline=5.0, emit=lambda _: None)
    session = await database.open_session("backfill runner")
    proxy.switch(Mode.ANSWERS_LOST)
    assert "no answer" in await given_up(asyncio.create_task(session.value("SELECT 1")))
    await session.close()


@pytest.mark.usefixtures("backfill")
def test_the_command_line_says_how_to_go_on(
    proxy: Proxy, through: str, conn: Connection, tmp_path: Path
) -> None:
    config = tmp_path / "pytube.toml"
    config.write_text(f'[postgres]\ndsn = "{through}"\nanswer_timeout = 0.5\n')
    client = cli.start(
        "backfill", "resume", "--tube", "items", "--rate", "500", "--chunk", "1", config=config
    )
    try:
        wait_until(lambda: done(conn) > 0, what="some chunks are inserted")
        proxy.switch(Mode.ANSWERS_LOST)
        _, err = client.communicate(timeout=LIMIT)
    finally:
        client.kill()
    assert client.returncode == 3
    assert "no answer within 0.5 s" in err
    assert "pytube backfill resume items" in err
