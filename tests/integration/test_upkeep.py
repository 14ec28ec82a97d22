"""A worker's role follows DDL at a real database, and says what it lacks."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from pytube.config import PostgresConfig
from pytube.db.session import Session
from pytube.logs import Logger
from pytube.sources import queries
from pytube.sources.wakeup import Heard, PodsArrived, listen
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.upkeep import follow_ddl
from tests.helpers.capture import TUBE, attach, make_tube, open_session, set_up, triggers, unfollow
from tests.helpers.cli import run
from tests.helpers.logs import capture_logs
from tests.helpers.roles import as_role, roles
from tests.helpers.waiting import LIMIT, wait_until_async


async def test_warnings_and_nothing_else_are_heard(dsn: str) -> None:
    session = await Session.open(dsn, "tube", "pytube test")
    try:
        say = "DO $$ BEGIN RAISE NOTICE 'n'; RAISE WARNING 'w' USING HINT = 'h'; RAISE WARNING 'v'; END $$"
        assert await session.warnings(say) == ["w (h)", "v"]
        assert await session.warnings("SELECT 1") == []
    finally:
        await session.close()


def leader(dsn: str) -> Database:
    """As of a process that leads the first partition."""
    postgres = PostgresConfig(dsn=dsn)  # type: ignore[arg-type]
    database = Database(postgres, [TUBE], receive_deadline=5.0, emit=lambda _: None)
    database.terms[TUBE, 0] = cast("ActiveTerm", None)
    return database


async def test_a_worker_tells_what_it_may_not_follow(dsn: str) -> None:
    """Its role has no right on the table: event triggers follow what comes, or else its owner has to."""
    with (
        roles(dsn, "keeper", "worker", "stranger") as admin,
        open_session(dsn) as conn,
        capture_logs() as warned,
    ):
        admin.execute("GRANT tube_worker TO worker; CREATE SCHEMA shop AUTHORIZATION keeper; SET ROLE keeper")
        admin.execute("CREATE TABLE shop.log (id int, day int) PARTITION BY LIST (day); RESET ROLE")
        make_tube(conn)
        attach(conn, "shop.log")
        database = leader(as_role(dsn, "worker"))
        following = asyncio.create_task(follow_ddl(database, interval=0.05))
        try:
            admin.execute(
                "SET ROLE keeper; CREATE TABLE shop.log_1 PARTITION OF shop.log FOR VALUES IN (1); RESET ROLE"
            )
            await wait_until_async(lambda: triggers(conn, "shop.log_1"), what="the partition is followed")
            assert warned == []
            unfollow(conn)
            admin.execute("CREATE TABLE shop.log_2 PARTITION OF shop.log FOR VALUES IN (2)")
            await wait_until_async(lambda: warned, what="it says what lacks")
            (told,) = warned
            assert (
                "shop.log_2 belongs to postgres, who has to agree to what tube 'es-live' does"
                in told["reason"]
            )
            assert "SELECT tube.tube_sync()" in told["reason"]
            await wait_until_async(lambda: database.unfollowed, what="it is to be reported")
            assert "shop.log_2 belongs to postgres" in database.unfollowed.reasons[TUBE]
            conn.execute(
                "SELECT tube_kafka_report(gen_random_uuid(), 'shop-1', %s)",
                [json.dumps(database.unfollowed.report())],
            )
            said = run("status", dsn=dsn).output
            assert "attached tables were changed, and a worker warns: shop.log_2 belongs" in said
            conn.execute("SELECT tube_sync()")
            assert triggers(conn, "shop.log_2")
            await wait_until_async(lambda: not database.unfollowed, what="all is followed")
        finally:
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following


async def test_a_worker_logs_that_a_root_table_was_dropped(dsn: str) -> None:
    with open_session(dsn) as conn, capture_logs() as warned:
        set_up(conn)
        conn.execute("CREATE TABLE public.note (item bigint)")
        conn.execute("SELECT tube_table_ensure_attached(%s, 'public.note', 0, id_col => 'item')", [TUBE])
        conn.execute("DROP TABLE public.item")
        following = asyncio.create_task(follow_ddl(leader(dsn), interval=0.05))
        try:
            await wait_until_async(lambda: warned, what="the drop is told")
        finally:
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following
    (told,) = warned
    assert (told["event"], told["log_level"]) == ("tables_not_followed", "warning")
    assert "a table of tube 'es-live' was dropped, and is detached: oid " in told["reason"]
    assert "public.note was related and is now the root table of shards 0 to 0" in told["reason"]


async def test_an_event_trigger_tells_of_ddl(dsn: str) -> None:
    """A listener hears of new partitions and of changes, and of no other table's."""
    heard: list[object] = []

    async def hear(session: Session) -> None:
        async for news in listen(session, ["es-live"], Logger("test")):
            heard.append(news)  # noqa: PERF401 # each is looked at as it comes

    with open_session(dsn) as conn:
        conn.execute(f"ALTER DATABASE \"{conn.info.dbname}\" SET pytube.wake = 'on'")
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.log (id int, day int) PARTITION BY LIST (day)")
        make_tube(conn)
        attach(conn, "public.log")
        session = await Session.open(dsn, "tube", "pytube test")
        listening = asyncio.create_task(hear(session))
        try:
            await wait_until_async(lambda: Heard.WORKS in heard, what="it listens")
            conn.execute("CREATE TABLE public.other (id int); ALTER TABLE public.other ADD n int")
            for number, ddl in enumerate(
                (
                    "CREATE TABLE public.log_1 PARTITION OF public.log FOR VALUES IN (1)",
                    "ALTER TABLE public.log RENAME id TO ident",
                    "SELECT tube_sync(); ALTER TABLE public.log_1 ADD CHECK (ident > 0)",
                ),
                start=1,
            ):
                for statement in ddl.split("; "):
                    conn.execute(statement.encode())
                await wait_until_async(lambda: heard.count(Heard.DDL) >= number, what=ddl)  # noqa: B023 # called at once
        finally:
            listening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listening
            await session.close()


async def test_a_worker_polls_while_writers_do_not_notify(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not while the server's queue of notifications is more than half full."""
    monkeypatch.setattr("pytube.sources.wakeup._TEST_INTERVAL", 0.1)
    asked = queries.NOTIFY.replace(
        "pg_notification_queue_usage() < 0.5", "(SELECT has_room FROM public.queue)"
    )
    assert asked != queries.NOTIFY
    monkeypatch.setattr(queries, "NOTIFY", asked)
    with open_session(dsn) as conn:
        conn.execute(f"ALTER DATABASE \"{conn.info.dbname}\" SET pytube.wake = 'on'")
    with open_session(dsn) as conn, capture_logs() as lines:
        conn.execute("CREATE TABLE public.queue AS SELECT true AS has_room")
        make_tube(conn)
        session = await Session.open(dsn, "tube", "pytube test")
        heard = listen(session, [TUBE], Logger("pytube.test"))
        try:
            async with asyncio.timeout(LIMIT):
                assert await anext(heard) is Heard.WORKS
                for has_room, news in ((False, Heard.MISSING), (True, Heard.WORKS)):
                    conn.execute("UPDATE public.queue SET has_room = %s", (has_room,))
                    assert await anext(heard) is news
        finally:
            await heard.aclose()
            await session.close()
        (line,) = [line for line in lines if line["event"] == "notifications_missing"]
        assert "more than half full" in line["reason"]


@pytest.mark.parametrize("payload", ["\u00b2", "9" * 5000, "1 2 3", "-1", "", "ddl ", "\u0663"])
async def test_what_anybody_notifies_does_not_end_the_listener(dsn: str, payload: str) -> None:
    """Channels have no owners: who may log in can say anything there, and needs no right of ours."""
    with open_session(dsn) as conn:
        conn.execute(f"ALTER DATABASE \"{conn.info.dbname}\" SET pytube.wake = 'on'")
    with open_session(dsn) as conn:
        make_tube(conn)
        session = await Session.open(dsn, "tube", "pytube test")
        heard = listen(session, [TUBE], Logger("test"))
        try:
            async with asyncio.timeout(LIMIT):
                assert await anext(heard) is Heard.WORKS
                conn.execute("SELECT pg_notify(tube_channel('es-live'), %s)", (payload,))
                conn.execute("SELECT pg_notify(tube_channel('es-live'), '3')")
                assert await anext(heard) == PodsArrived(TUBE, 3)
        finally:
            await heard.aclose()
            await session.close()
