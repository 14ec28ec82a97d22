"""Who follows DDL, and what is told when it can't be followed."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from pytube.sources.session import Session

from pytube.errors import DatabaseUnavailable, StatementFailed
from pytube.sources import queries
from pytube.worker.upkeep import follow_ddl
from tests.helpers.waiting import wait_until_async


class FakeSession:
    """Answers with what is next."""

    def __init__(self, answers: list[Exception | list[str]]) -> None:
        self.answers = answers
        self.calls: list[str] = []
        self.closed = 0
        self.fits = 0

    async def warnings(self, statement: str) -> list[str]:
        if statement == queries.FIT_INDEX:
            self.fits += 1
            return []
        self.calls.append(statement)
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed += 1


async def run(session: FakeSession, calls: int, leads: bool = True) -> list[str]:
    """Let it call so often; what it warned of."""
    warned: list[str] = []

    async def open_session() -> Session:
        return cast("Session", session)

    turns = iter([False, True] * 1000)
    task = asyncio.create_task(
        follow_ddl(
            open_session, lambda: leads and next(turns), warned.append, asyncio.Event(), interval=0.001
        )
    )
    await wait_until_async(lambda: len(session.calls) >= calls)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return warned


async def test_it_calls_on_and_closes_each_session() -> None:
    session = FakeSession([])
    assert await run(session, 3) == []
    assert session.closed >= 2
    assert set(session.calls) == {queries.SYNC}
    assert session.fits >= 2


async def test_what_goes_wrong_is_told_once_until_it_goes_well() -> None:
    wrong = StatementFailed("no privilege")
    session = FakeSession([wrong, wrong, DatabaseUnavailable("down"), wrong, [], wrong])
    assert await run(session, 7) == ["changed tables can't be followed: no privilege"] * 2


async def test_warnings_are_told_once_until_they_change() -> None:
    session = FakeSession([["a"], ["a"], ["a", "b"], [], ["a"]])
    told = [text.removeprefix("changed tables can't be followed: ") for text in await run(session, 6)]
    assert told == ["a", "a; b", "a"]


async def test_it_calls_at_once_when_told_of_ddl() -> None:
    session = FakeSession([])
    ddl = asyncio.Event()

    async def open_session() -> Session:
        return cast("Session", session)

    task = asyncio.create_task(follow_ddl(open_session, lambda: True, print, ddl, interval=3600))
    for calls in (1, 2):
        ddl.set()
        await wait_until_async(lambda: len(session.calls) == calls)  # noqa: B023 # called at once
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
