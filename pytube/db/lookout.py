"""Looks at a session by another one: whether its server still works on what it was asked.

For statements that may take as long as they take. It is not they that have a limit, but the silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from pytube.db.patience import STATE_OF_SESSION, NoAnswer, answered_within, is_answer_lost, shut
from pytube.errors import PytubeError

_Answer = TypeVar("_Answer")


class Lookout:
    """Who looks at one session."""

    def __init__(self, conninfo: str, pid: int, interval: float) -> None:
        """Nothing is opened before `answered`.

        Args:
            conninfo: how the server is reached.
            pid: of the session's server process.
            interval: seconds between looks, and for each.
        """
        self._conninfo = conninfo
        self._pid = pid
        self._interval = interval
        self._before: tuple[Any, ...] | None = None

    async def answered(
        self, connection: psycopg.AsyncConnection, asking: Coroutine[Any, Any, _Answer]
    ) -> _Answer:
        """Ask the server, and wait for as long as it works on it; then the session is cut off.

        Args:
            connection: the session that is looked at.
            asking: uses it.

        Raises:
            NoAnswer: nothing will come; the text says why.
        """
        lost: list[str] = []
        watching = asyncio.create_task(self._watch(connection, lost))
        try:
            return await answered_within(connection, None, asking)
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
        shut(connection)

    async def _why_lost(self) -> str | None:
        """Why no answer will come; None when it may."""
        try:
            now = await self._state()
        except psycopg.OperationalError as error:
            # One that refuses us is there.
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
            return await answered_within(connection, self._interval, self._ask(connection))
        finally:
            await connection.close()

    async def _ask(self, connection: psycopg.AsyncConnection) -> tuple[Any, ...] | None:
        cursor = await connection.execute(STATE_OF_SESSION, [self._pid])
        return await cursor.fetchone()
