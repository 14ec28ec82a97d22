"""A worker's role follows DDL at a real database, and says what it lacks."""

from __future__ import annotations

import asyncio

import pytest

from pytube.sources.session import Session
from pytube.worker.upkeep import follow_ddl
from tests.helpers.capture import attach, make_tube, open_session, triggers, unfollow
from tests.helpers.roles import as_role, roles
from tests.helpers.waiting import wait_until_async


async def test_warnings_and_nothing_else_are_heard(dsn: str) -> None:
    session = await Session.open(dsn, "tube", "pytube test")
    try:
        say = "DO $$ BEGIN RAISE NOTICE 'n'; RAISE WARNING 'w' USING HINT = 'h'; RAISE WARNING 'v'; END $$"
        assert await session.warnings(say) == ["w (h)", "v"]
        assert await session.warnings("SELECT 1") == []
    finally:
        await session.close()


async def test_a_partition_waits_for_its_grant(dsn: str) -> None:
    warned: list[str] = []
    with roles(dsn, "keeper", "worker") as admin, open_session(dsn) as conn:
        admin.execute("GRANT tube_worker TO worker; CREATE SCHEMA shop AUTHORIZATION keeper; SET ROLE keeper")
        admin.execute("CREATE TABLE shop.log (id int, day int) PARTITION BY LIST (day); RESET ROLE")
        make_tube(conn)
        attach(conn, "shop.log")
        unfollow(conn)
        admin.execute("SET ROLE keeper; CREATE TABLE shop.log_1 PARTITION OF shop.log FOR VALUES IN (1)")
        following = asyncio.create_task(
            follow_ddl(
                lambda: Session.open(as_role(dsn, "worker"), "tube", "pytube test"),
                lambda: True,
                warned.append,
                interval=0.05,
            )
        )
        try:
            await wait_until_async(lambda: warned, what="it says what lacks")
            (told,) = warned
            assert told.startswith(
                "changed tables can't be followed: shop.log is not followed by tube 'es-live': "
            )
            hint = told[told.rindex("(") + 1 : -1]
            assert hint == "GRANT SELECT, TRIGGER ON shop.log_1 TO tube_admin;"
            admin.execute(hint.encode())
            await wait_until_async(lambda: triggers(conn, "shop.log_1"), what="the partition is followed")
        finally:
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following
        assert len(warned) == 1
        admin.execute("RESET ROLE")
