"""Runs the backfills of one tube that were left to its workers, one at a time in each process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pytube.backfill import queries
from pytube.backfill.limits import BackfillLimits
from pytube.backfill.progress import Progress
from pytube.backfill.run import BackfillRun
from pytube.errors import BackfillBusy, PytubeError
from pytube.worker.database import Database

_LOOK_INTERVAL = 1.0
_PAUSE_AFTER_TROUBLE = 5.0
_TIDY_INTERVAL = 30.0
"""Seconds between attempts to drop what somebody, such as a pg_dump, read when its backfill ended."""


class Backfills:
    """Takes whatever nobody works on. What it is killed over, another worker goes on with."""

    def __init__(
        self, database: Database, tube: str, limits: BackfillLimits, warn: Callable[[str], None]
    ) -> None:
        self._database = database
        self._tube = tube
        self._limits = limits
        self._warn = warn
        self._told: str | None = None
        self._tidied_at = -_TIDY_INTERVAL

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL)
            try:
                await self._tidy()
                for backfill in await self._untaken():
                    await self._work_on(backfill)
            except PytubeError as error:
                if str(error) != self._told:
                    self._told = str(error)
                    self._warn(f"a backfill can't go on: {error}")
                await asyncio.sleep(_PAUSE_AFTER_TROUBLE)

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
        session = await self._database.open_patient_session("filling")
        try:
            await BackfillRun(session, backfill, self._limits, _untold).run(leaves_when_paused=True)
            self._told = None
        except BackfillBusy:
            pass  # another worker was faster
        finally:
            await session.close()


def _untold(_: Progress) -> None:
    """It is in the database for everyone to see."""
