"""A pool of sessions for reading rows, with the settings of all our sessions."""

from __future__ import annotations

import select
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from pytube.db.connect import SETUP_LIMIT, connection_string, session_settings
from pytube.db.timeouts import wait_for_answer

_RECONNECT_LIMIT = 2.0
"""Seconds for which a failed session is tried for. The pauses between tries double, and hold up all who
ask meanwhile: after a long outage it is better to begin anew, which the next one who asks does."""
_ASK_AGAIN = 3.0
"""Seconds after which whoever waits for a session asks anew. Who only waits is forgotten when a try ends."""
_PATIENCE = 30.0
"""Seconds after which nobody waits any longer."""


def make_pool(dsn: str, schema: str, application_name: str, *, size: int) -> AsyncConnectionPool:
    """A pool of at most `size` autocommit sessions; the caller opens and closes it.

    A session that is lost is replaced when the next one is asked for.
    """

    async def configure(connection: psycopg.AsyncConnection) -> None:
        for statement in (
            session_settings(schema, ("public",), None),
            # A row that a policy hides would look like one that is gone, and be deleted at the sink.
            sql.SQL("SET row_security = off"),
        ):
            await wait_for_answer(connection, SETUP_LIMIT, connection.execute(statement))

    return AsyncConnectionPool(
        connection_string(dsn, application_name),
        kwargs={"autocommit": True},
        min_size=0,
        max_size=size,
        configure=configure,
        check=_check,
        reconnect_timeout=_RECONNECT_LIMIT,
        open=False,
        name=application_name,
    )


@asynccontextmanager
async def lent(pool: AsyncConnectionPool) -> AsyncIterator[psycopg.AsyncConnection]:
    """A session of the pool, given back at the end. `PoolTimeout` when there is none for half a minute."""
    connection = await _wait_for(pool)
    try:
        async with connection:  # which closes none that belongs to a pool
            yield connection
    finally:
        await pool.putconn(connection)


async def _wait_for(pool: AsyncConnectionPool) -> psycopg.AsyncConnection:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return await pool.getconn(timeout=_ASK_AGAIN)
        except PoolTimeout:
            if time.monotonic() >= end:
                raise


async def _check(connection: psycopg.AsyncConnection) -> None:
    """Raise for a session that the server has ended.

    Such a one has something to read; of any other nothing is asked, because the round trip would
    take a good part of the time of a read.
    """
    pending = select.poll()
    pending.register(connection.fileno(), select.POLLIN)
    if pending.poll(0):
        checking = AsyncConnectionPool.check_connection(connection)
        await wait_for_answer(connection, SETUP_LIMIT, checking)
