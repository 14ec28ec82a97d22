"""Has the database follow what DDL did to attached tables, and give repartitioned tubes their index."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pytube.errors import DatabaseUnavailable, SchemaMismatch, StatementFailed, UsageError
from pytube.sources import queries
from pytube.sources.session import Session

INTERVAL = 30.0
"""Seconds; partitions that came are followed within a minute, a lost session included."""

OpenSession = Callable[[], Awaitable[Session]]


async def follow_ddl(
    open_session: OpenSession,
    leads: Callable[[], bool],
    warn: Callable[[str], None],
    ddl: asyncio.Event,
    interval: float = INTERVAL,
) -> None:
    """Call `tube_sync`, then `tube_index_fit`, on `ddl` and every `interval` seconds, in one process.

    Args:
        open_session: a session for one call, so that none is kept for so rare a thing.
        leads: whether it is this process' turn: of many workers one is enough.
        warn: receives what went wrong, once until it goes well again.
        ddl: set when attached tables were changed.
        interval: seconds.
    """
    last: str | None = None
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(ddl.wait(), interval)
        ddl.clear()
        if not leads():
            continue
        try:
            session = await open_session()
            try:
                said = "; ".join(await session.warnings(queries.SYNC))
                await session.warnings(queries.FIT_INDEX)  # apart: each holds its locks to its end
            finally:
                await session.close()
        except (DatabaseUnavailable, SchemaMismatch):
            continue  # logged by what keeps the sessions
        except (StatementFailed, UsageError) as error:
            said = str(error)
        if said and said != last:
            warn(f"changed tables can't be followed: {said}")
        last = said
