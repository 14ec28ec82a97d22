"""A watchdog for long statements: a second session checks whether the server still works on them.

The statement itself has no time limit; only the server's silence has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from pytube.db.timeouts import STATE_OF_SESSION, NoAnswer, is_answer_lost, shut_down, wait_for_answer
from pytube.errors import PytubeError

_Answer = TypeVar("_Answer")


class Watchdog:
    """Watches one session, and cuts it off when no answer will come."""

    def __init__(self, conninfo: str, pid: int, interval: float) -> None:
        """Opens nothing before `wait_for_answer`.

        Args:
            conninfo: the connection string of the second session.
            pid: of the session's server process.
            interval: seconds between checks, and the time limit of each check.
        """
        self._conninfo = conninfo
        self._pid = pid
        self._interval = interval
        self._before: tuple[Any, ...] | None = None

    async def wait_for_answer(
        self, connection: psycopg.AsyncConnection, asking: Coroutine[Any, Any, _Answer]
    ) -> _Answer:
        """Ask the server, and wait while it works on the statement; otherwise cut the session off.

        Args:
            connection: the session that is watched.
            asking: uses the connection.

        Raises:
            NoAnswer: no answer will come; the text says why.
        """
        lost: list[str] = []
        watching = asyncio.create_task(self._watch(connection, lost))
        try:
            return await wait_for_answer(connection, None, asking)
        except (psycopg.Error, PytubeError) as error:
            if lost:
                raise NoAnswer(f"no answer within {self._interval:g} s: {lost[0]}") from error
            raise
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch(self, connection: psycopg.AsyncConnection, lost: list[str]) -> None:
        while not lost:
            await asyncio.sleep(self._interval)
            why = await self._why_lost()
            if why is not None:
                lost.append(why)
        shut_down(connection)

    async def _why_lost(self) -> str | None:
        """Why no answer will come; None while one may come."""
        try:
            now = await self._state()
        except psycopg.OperationalError as error:
            # A server that refuses us is alive.
            return "the server does not answer" if error.sqlstate is None else None
        if now is None:
            return "its session is gone"
        if is_answer_lost(self._before, now):
            return "its answer is lost"
        self._before = now
        return None

    async def _state(self) -> tuple[Any, ...] | None:
        connection = await psycopg.AsyncConnection.connect(
            self._conninfo, autocommit=True, connect_timeout=max(2, round(self._interval))
        )
        try:
            return await wait_for_answer(connection, self._interval, self._ask(connection))
        finally:
            await connection.close()

    async def _ask(self, connection: psycopg.AsyncConnection) -> tuple[Any, ...] | None:
        cursor = await connection.execute(STATE_OF_SESSION, [self._pid])
        return await cursor.fetchone()
