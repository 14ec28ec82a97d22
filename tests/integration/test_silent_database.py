"""A server that does not answer is given up in bounded time, whatever is asked of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pytube.config import Config, EnrichConfig
from pytube.db.connect import NoAnswer, connect_async, wait_for_answer
from pytube.db.session import Session, SessionPool
from pytube.enrich.rows import Enricher
from pytube.errors import DatabaseUnavailable, EnrichTimeout, PytubeError
from pytube.logs import Logger
from pytube.sources import queries, wakeup
from pytube.worker import Worker
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import LIMIT, wait_until, wait_until_async

SOON = 1.0
"""Seconds after which a session is given up; without a limit it would wait for hours."""


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(int(str(conninfo_to_dict(dsn)["port"]))) as proxy:
        yield proxy


@pytest.fixture
def through(dsn: str, proxy: Proxy) -> str:
    """The database, by way of the proxy."""
    return make_conninfo(dsn, host="127.0.0.1", port=proxy.port)


@pytest.mark.parametrize("mode", [Mode.HALF_OPEN, Mode.ANSWERS_LOST])
async def test_a_statement_without_an_answer(proxy: Proxy, through: str, mode: Mode) -> None:
    session = await Session.open(through, "tube", "test", answer_timeout=SOON)
    proxy.switch(mode)
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="no answer within 1 s"):
        await session.execute("SELECT 1")
    assert SOON <= time.monotonic() - began < LIMIT
    assert session.closed
    with pytest.raises(DatabaseUnavailable):
        await session.execute("SELECT 1")
    await session.close()


async def test_a_slow_answer_in_time_is_an_answer(through: str) -> None:
    session = await Session.open(through, "tube", "test", answer_timeout=SOON)
    for _ in range(4):
        assert await session.value("SELECT pg_sleep(0.1)") == ""
    await session.close()


async def test_a_mark_without_an_answer(proxy: Proxy, through: str) -> None:
    session = await Session.open(through, "tube", "test", answer_timeout=SOON)
    proxy.switch(Mode.HALF_OPEN)
    statements = (
        queries.MARK_BEGIN,
        "DECLARE c BINARY CURSOR WITH HOLD FOR SELECT 1",
        "COMMIT",
        "FETCH c",
        "CLOSE c",
    )
    with pytest.raises(DatabaseUnavailable, match="no answer within 1 s"):
        await asyncio.wait_for(session.held_rows(statements, {}), LIMIT)
    await session.close()


async def test_who_is_cancelled_while_something_answers_leaves_the_session_whole(through: str) -> None:
    session = await Session.open(through, "tube", "test", answer_timeout=10)
    asking = asyncio.create_task(session.execute("SELECT pg_sleep(0.2)"))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    await session.execute("SELECT 1")
    await session.close()


async def test_who_is_cancelled_while_nothing_answers_ends_soon(proxy: Proxy, through: str) -> None:
    session = await Session.open(through, "tube", "test", answer_timeout=10 * LIMIT)
    proxy.switch(Mode.HALF_OPEN)
    asking = asyncio.create_task(session.execute("SELECT 1"))
    await wait_until_async(lambda: proxy.swallowed, what="the statement is sent")
    asking.cancel()
    await asyncio.wait([asking], timeout=LIMIT)
    assert asking.cancelled()
    await session.close()


async def test_who_is_cancelled_twice_does_not_leave_the_session_to_somebody_else(
    proxy: Proxy, through: str
) -> None:
    session = await Session.open(through, "tube", "test", answer_timeout=10 * LIMIT)
    proxy.switch(Mode.HALF_OPEN)
    asking = asyncio.create_task(session.execute("SELECT 1"))
    await wait_until_async(lambda: proxy.swallowed, what="the statement is sent")
    for _ in range(2):
        asking.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([asking], timeout=LIMIT)
    assert asking.cancelled()
    assert session.closed
    await session.close()


async def test_a_session_that_is_not_set_up(
    proxy: Proxy, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytube.db.connect._DEFAULTS", {"connect_timeout": 2})
    proxy.switch(Mode.HALF_OPEN)
    with pytest.raises(DatabaseUnavailable):
        await asyncio.wait_for(Session.open(through, "tube", "test"), LIMIT)


async def test_a_worker_that_starts_without_an_answer(
    proxy: Proxy, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session was set up, and then the server falls silent."""

    async def connect_then_silence(*arguments: Any, **options: Any) -> Any:
        connection = await connect_async(*arguments, **options)
        proxy.switch(Mode.HALF_OPEN)
        return connection

    monkeypatch.setattr("pytube.db.session.connect_async", connect_then_silence)
    raw = {"dsn": through, "answer_timeout": SOON}
    config = Config.model_validate({"postgres": raw, "tube": {"t": {"sink": {"type": "jsonl", "path": "-"}}}})
    with pytest.raises(DatabaseUnavailable, match="no answer within 1 s"):
        await asyncio.wait_for(Worker(config).start(), LIMIT)


async def test_rows_without_an_answer_are_read_again(proxy: Proxy, through: str, dsn: str) -> None:
    """No `DatabaseUnavailable`: the query may only be slow, and then a new term would help nobody."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as connection:
        connection.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        connection.execute("INSERT INTO public.items VALUES (1)")
        connection.execute("SELECT tube_ensure_exists('t')")
        connection.execute("SELECT tube_table_ensure_attached('t', 'public.items', 0)")
    pool = SessionPool(lambda: Session.open(through, "tube", "test"), size=2)
    try:
        enricher = Enricher(pool, "t", answer_timeout=SOON)
        assert (await enricher.read({0: [1]}))[0].bodies
        async with pool.session() as session:
            proxy.switch(Mode.HALF_OPEN)
            with pytest.raises(NoAnswer):
                await wait_for_answer(session.connection, SOON, session.connection.execute("SELECT 1"))
        proxy.switch(Mode.PASS)
        assert (await enricher.read({0: [1]}))[0].bodies, "the pool has another session"
        asleep = EnrichConfig(mode="query", query="SELECT 1, '{}'::json FROM pg_sleep(5)")
        slow = Enricher(pool, "t", asleep, answer_timeout=SOON)
        with pytest.raises(EnrichTimeout, match="postgres.answer_timeout"):
            await slow.read({0: [1]})
        wait_until(lambda: not sleepers(dsn), what="the server gives the query up, too")
    finally:
        await pool.close()


async def test_who_waits_for_a_session_is_told_of_an_outage_and_gets_one_after_it(
    proxy: Proxy, through: str
) -> None:
    """With one session for all: nobody who waits for it is forgotten when it can't be opened."""
    pool = SessionPool(lambda: Session.open(through, "tube", "test", answer_timeout=SOON), size=1)
    await pool.execute("SELECT 1")
    proxy.switch(Mode.HALF_OPEN)
    asking = [asyncio.create_task(pool.execute("SELECT 1"))]
    await wait_until_async(lambda: proxy.swallowed, what="the statement is sent")
    proxy.switch(Mode.CUT)
    asking += [asyncio.create_task(pool.execute("SELECT 1")) for _ in range(3)]
    for task in asking:
        with pytest.raises(DatabaseUnavailable):
            await asyncio.wait_for(task, LIMIT)
    proxy.switch(Mode.PASS)
    await asyncio.wait_for(asyncio.gather(*(pool.execute("SELECT 1") for _ in range(4))), LIMIT)
    await pool.close()


async def test_a_listening_session_that_has_gone_silent_is_noticed(
    proxy: Proxy, through: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks it anything, so it has to ask by itself."""
    monkeypatch.setattr(wakeup, "_TEST_INTERVAL", 0.2)
    monkeypatch.setattr(wakeup, "_LISTEN_LIMIT", 0.5)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{connection.info.dbname}" SET pytube.wake = on')
        connection.execute("SELECT tube.tube_ensure_exists('t')")
    session = await Session.open(through, "tube", "test")
    heard = wakeup.listen(session, ["t"], Logger("test"))
    try:
        assert await anext(heard) is wakeup.Heard.WORKS
        proxy.switch(Mode.HALF_OPEN)
        with pytest.raises(PytubeError):
            await asyncio.wait_for(anext(heard), LIMIT)
    finally:
        await session.close()


def sleepers(dsn: str) -> int:
    """Sessions in which a `pg_sleep` runs."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND application_name = 'test'"
        ).fetchone()
    assert row is not None
    return int(row[0])
