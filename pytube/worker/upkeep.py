"""What a worker process does for all tubes beside delivering: it follows DDL, and runs backfills."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from pytube.backfill import queries as backfills
from pytube.backfill.run import BackfillRun
from pytube.errors import (
    BackfillBusy,
    DatabaseUnavailable,
    PytubeError,
    SchemaMismatch,
    StatementFailed,
    UsageError,
)
from pytube.logs import is_news
from pytube.pipeline.retry_queue import BackOff
from pytube.sources import queries
from pytube.sources.terms import reason_for_people
from pytube.worker.database import Database
from pytube.worker.queues import Tube
from pytube.worker.services import end

SYNC_INTERVAL = 30.0
"""Seconds; partitions that came are followed within a minute, a lost session included."""
_LOOK_INTERVAL = 1.0
_PAUSE_AFTER_TROUBLE = 5.0
_TIDY_INTERVAL = 30.0
"""Seconds between attempts to drop tables that a pg_dump, say, read when their backfill ended."""
_REST = 5.0
"""Seconds for which a backfill that is held up leaves its place to others."""
_TUBE = re.compile(r"\btube '((?:[^']|'')+)'")
"""How a warning of `tube_sync` names one."""
_MOST_AT_ONCE = 4
"""Backfills that one process runs at the same time; each has a dedicated session."""


async def follow_ddl(database: Database, interval: float = SYNC_INTERVAL) -> None:
    """Call `tube_sync`, then `tube_index_fit`, after DDL and every `interval` seconds.

    Of many workers one is enough: whichever leads the first partition of some queue.
    """
    told: dict[object, str] = {}
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await database.ddl.wait()
        database.ddl.clear()
        first_ones = [queue for queue, partition in database.terms if partition == 0]
        if not first_ones:
            database.unfollowed.keep(())
            continue
        try:
            session = await database.open_session("upkeep")  # none is kept for so rare a thing
            try:
                found = await session.warnings(queries.SYNC)
                await session.warnings(queries.FIT_INDEX)  # apart: each holds its locks to its end
            finally:
                await session.close()
        except (DatabaseUnavailable, SchemaMismatch):
            continue  # logged by what keeps the sessions
        except (StatementFailed, UsageError) as error:
            found = [str(error)]
        said = "; ".join(found)
        database.unfollowed.note(_by_tube(found, otherwise=first_ones[0]))
        if not said:
            told.pop(None, None)
        elif is_news(told, None, said):
            database.log.warning("tables_not_followed", reason=said)


def _by_tube(warnings: Iterable[str], otherwise: str) -> dict[str, str]:
    """The warnings by the tube that each names; `otherwise`: for warnings that name none."""
    found: dict[str, list[str]] = {}
    for said in warnings:
        named = _TUBE.search(said)
        tube = otherwise if named is None else named[1].replace("''", "'")
        found.setdefault(tube, []).append(said)
    return {tube: reason_for_people("; ".join(several)) for tube, several in found.items()}


class BackfillRunner:
    """Runs the backfills left to workers that no process runs, one at a time for each tube.

    If this process is killed, another worker continues them. A backfill that fails is logged, noted in the
    database, and retried later, after the others. A backfill that is held up, because the sink of its tube
    takes nothing, say, gives way to the others: else a few of these would stop the backfills of all tubes.
    """

    def __init__(self, database: Database, tubes: Mapping[str, Tube]) -> None:
        self._database = database
        self._tubes = tubes
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tidied_at = -_TIDY_INTERVAL
        self._told: dict[object, str] = {}
        self._back_offs: dict[int, BackOff] = {}
        """Of backfills that fail."""

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(_LOOK_INTERVAL)
                try:
                    await self._tidy()
                    await self._start_untaken()
                except DatabaseUnavailable:
                    # Logged by what renews the terms; whether there is a backfill at all is not known.
                    await asyncio.sleep(_PAUSE_AFTER_TROUBLE)
                except PytubeError as error:
                    self._warn_once(None, error)
                    await asyncio.sleep(_PAUSE_AFTER_TROUBLE)
                else:
                    self._told.pop(None, None)
        finally:
            await end(self._running.values())

    async def _tidy(self) -> None:
        now = time.monotonic()
        if now >= self._tidied_at + _TIDY_INTERVAL:
            await self._database.pool.value(backfills.TIDY)
            self._tidied_at = now

    async def _start_untaken(self) -> None:
        self._running = {tube: task for tube, task in self._running.items() if not task.done()}
        untaken = await self._database.pool.rows(backfills.UNTAKEN, {"tubes": list(self._tubes)})
        # The ones tried longest ago come first, so that held-up backfills starve no other.
        for backfill, tube in sorted(untaken, key=lambda one: self._rests_until(one[0])):
            rests = time.monotonic() < self._rests_until(backfill)
            if not rests and tube not in self._running and len(self._running) < _MOST_AT_ONCE:
                self._running[tube] = asyncio.create_task(self._try(backfill, self._tubes[tube]))

    def _rests_until(self, backfill: int) -> float:
        return self._back_offs[backfill].until if backfill in self._back_offs else float("-inf")

    async def _try(self, backfill: int, tube: Tube) -> None:
        try:
            is_held_up = await self._work_on(backfill, tube)
        except PytubeError as error:
            self._warn_once(backfill, error, tube.name)
            self._back_offs.setdefault(backfill, BackOff()).fail(time.monotonic())
        else:
            self._told.pop(backfill, None)
            self._back_offs.pop(backfill, None)
            if is_held_up:
                self._back_offs[backfill] = BackOff(until=time.monotonic() + _REST)

    async def _work_on(self, backfill: int, tube: Tube) -> bool:
        """Run it; whether it was left because it is held up: its place is needed for another tube's."""
        session = await self._database.open_session("backfill runner")
        try:
            progress = await BackfillRun(
                session,
                backfill,
                tube.settings.backfill,
                lambda _: None,  # the database has the progress for everyone to see
                gives_way=lambda: len(self._running) >= _MOST_AT_ONCE,
            ).run()
        except BackfillBusy:
            return False  # another worker was faster
        finally:
            await session.close()
        return progress.state == "inserting" and not progress.paused

    def _warn_once(self, backfill: int | None, error: PytubeError, tube: str | None = None) -> None:
        """Log the error unless it was the last one logged for this backfill; None: for looking at them."""
        if is_news(self._told, backfill, str(error)):
            where = {} if backfill is None else {"tube": tube, "backfill": backfill}
            self._database.log.write(logging.WARNING, "backfill_stuck", where | {"reason": str(error)})
