"""Who waits for an answer of Postgres, and is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg.pq import ConnStatus

from pytube.db.connect import Connection


async def test_a_cancellation_that_psycopg_loses_ends_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Psycopg 3.2 waits by `asyncio.wait_for`, which on Python 3.11 loses one that comes with the answer."""
    waits = asyncio.Event()

    async def losing(*_: Any) -> str:
        waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "the answer"
        raise AssertionError

    monkeypatch.setattr("pytube.db.connect.wait_async", losing)
    connection = Connection.__new__(Connection)
    connection.pgconn = SimpleNamespace(socket=-1, status=ConnStatus.BAD)  # type: ignore[assignment]
    waiting: asyncio.Task[Any] = asyncio.create_task(connection.wait(cast("Any", iter(()))))
    await waits.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
