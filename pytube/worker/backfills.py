"""Runs the backfills of one tube that were left to its workers, one at a time in each process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pytube.backfill import queries
from pytube.backfill.limits import BackfillLimits, Progress
from pytube.backfill.run import BackfillRun
from pytube.errors import BackfillBusy, PytubeError
from pytube.worker.database import Database

_LOOK_INTERVAL = 1.0
_PAUSE_AFTER_TROUBLE = 5.0
_TIDY_INTERVAL = 30.0
"""Seconds between attempts to drop what somebody, such as a pg_dump, read when its backfill ended."""
_LONGEST_PAUSE = 60.0


class Backfills:
    """Runs backfills that nobody works on. If this process is killed, another worker continues them.

    A backfill that fails is logged, noted in the database, and retried later, after the others.
    """

    def __init__(
        self, database: Database, tube: str, limits: BackfillLimits, warn: Callable[[str], None]
    ) -> None:
        self._database = database
        self._tube = tube
        self._limits = limits
        self._warn = warn
        self._tidied_at = -_TIDY_INTERVAL
        self._warned: dict[int | None, str] = {}
        self._troubled: dict[int, tuple[float, float]] = {}
        """By backfill: the length of its back-off in seconds, and its end (monotonic)."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL)
            try:
                await self._tidy()
                untaken = await self._untaken()
            except PytubeError as error:
                self._warn_once(None, error)
                await asyncio.sleep(_PAUSE_AFTER_TROUBLE)
                continue
            for backfill in untaken:
                if time.monotonic() >= self._troubled.get(backfill, (0.0, 0.0))[1]:
                    await self._try(backfill)

    async def _try(self, backfill: int) -> None:
        """Run one backfill; an error is logged and starts a back-off."""
        try:
            await self._work_on(backfill)
        except PytubeError as error:
            self._warn_once(backfill, error)
            pause = min(
                self._troubled.get(backfill, (0.0, 0.0))[0] * 2 or _PAUSE_AFTER_TROUBLE, _LONGEST_PAUSE
            )
            self._troubled[backfill] = (pause, time.monotonic() + pause)
        else:
            self._warned.pop(backfill, None)
            self._troubled.pop(backfill, None)

    def _warn_once(self, backfill: int | None, error: PytubeError) -> None:
        """Log the error unless it was the last one logged for this backfill."""
        if self._warned.get(backfill) != str(error):
            self._warned[backfill] = str(error)
            self._warn(f"a backfill can't go on: {error}")

    async def _tidy(self) -> None:
        now = time.monotonic()
        if now >= self._tidied_at + _TIDY_INTERVAL:
            control = await self._database.control()
            await control.value(queries.TIDY)
            self._tidied_at = now

    async def _untaken(self) -> list[int]:
        control = await self._database.control()
        return [int(row[0]) for row in await control.rows(queries.UNTAKEN, {"tube": self._tube})]

    async def _work_on(self, backfill: int) -> None:
        session = await self._database.open_session("filling", durable=True)
        try:
            await BackfillRun(session, backfill, self._limits, _ignore, leaves_when_paused=True).run()
        except BackfillBusy:
            pass  # another worker was faster
        finally:
            await session.close()


def _ignore(_: Progress) -> None:
    """The database has the progress for everyone to see."""
