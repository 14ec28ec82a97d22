"""What a process does for the database beside delivering: who follows DDL, and who runs backfills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytube.backfill import queries as backfill_queries
from pytube.db.session import Session
from pytube.errors import BackfillBusy, DatabaseUnavailable, PytubeError, StatementFailed
from pytube.logs import Logger
from pytube.sources import queries
from pytube.worker import upkeep
from pytube.worker.database import Database
from pytube.worker.queues import Tube
from pytube.worker.services import UNFOLLOWED, Refusals
from pytube.worker.upkeep import BackfillRunner, follow_ddl
from tests.helpers.logs import capture_logs
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


def _follow(session: FakeSession, interval: float, *led: int) -> tuple[SimpleNamespace, asyncio.Task[None]]:
    async def open_session(purpose: str) -> Session:
        assert purpose == "upkeep"
        assert 0 in led, "it is another's turn"
        return cast("Session", session)

    terms = {("t", partition): None for partition in led}
    database = SimpleNamespace(
        open_session=open_session,
        ddl=asyncio.Event(),
        terms=terms,
        unfollowed=Refusals(UNFOLLOWED),
        log=Logger("pytube.worker"),
    )
    return database, asyncio.create_task(follow_ddl(cast("Database", database), interval))


def following(session: FakeSession, interval: float, *led: int) -> tuple[asyncio.Event, asyncio.Task[None]]:
    """What is set after DDL, and a task that follows it where these partitions are led."""
    database, task = _follow(session, interval, *led)
    return database.ddl, task


async def run(session: FakeSession, calls: int) -> list[str]:
    """Let it call so often; what it warned of."""
    with capture_logs() as logs:
        _, task = following(session, 0.001, 3, 0)
        await wait_until_async(lambda: len(session.calls) >= calls)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert {line["event"] for line in logs} <= {"tables_not_followed"}
    return [line["reason"] for line in logs if line["log_level"] == "warning"]


async def test_it_calls_on_and_closes_each_session() -> None:
    session = FakeSession([])
    assert await run(session, 3) == []
    assert session.closed >= 2
    assert set(session.calls) == {queries.SYNC}
    assert session.fits >= 2


async def test_what_goes_wrong_is_told_once_until_it_goes_well() -> None:
    wrong = StatementFailed("no privilege")
    session = FakeSession([wrong, wrong, DatabaseUnavailable("down"), wrong, [], wrong])
    assert await run(session, 7) == ["no privilege"] * 2


async def test_warnings_are_told_once_until_they_change() -> None:
    session = FakeSession([["a"], ["a"], ["a", "b"], [], ["a"]])
    told = await run(session, 6)
    assert told == ["a", "a; b", "a"]


async def test_what_is_not_followed_is_reported_by_tube_until_it_is() -> None:
    told = ["a is not followed by tube 'it''s': x", "b, of tube 'other'", "c of tube 'other'", "anything"]
    session = FakeSession([told] * 100_000)
    database, task = _follow(session, 0.001, 0)
    await wait_until_async(lambda: database.unfollowed, what="it is to be reported")
    found = {"it's": told[0], "other": "; ".join(told[1:3]), "t": told[3]}
    assert database.unfollowed.reasons == found
    assert {one["use"] for one in database.unfollowed.report()} == {"unfollowed"}
    session.answers.clear()
    await wait_until_async(lambda: not database.unfollowed, what="all is followed")
    database.unfollowed.note({"t": "earlier"})
    database.terms.clear()
    await wait_until_async(lambda: not database.unfollowed, what="others look now")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_calls_at_once_when_told_of_ddl() -> None:
    session = FakeSession([])
    ddl, task = following(session, 3600.0, 0)
    for calls in (1, 2):
        ddl.set()
        await wait_until_async(lambda: len(session.calls) == calls)  # noqa: B023 # called at once
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_process_that_is_not_at_its_turn_opens_no_session() -> None:
    session = FakeSession([])
    ddl, task = following(session, 3600.0, 1)
    for _ in range(3):
        ddl.set()
        await wait_until_async(lambda: not ddl.is_set())
    assert not session.calls
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- backfills that were left to workers ---


class FakeBackfills:
    """The database, as far as the runner of backfills asks it; backfills run until a test lets them end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.untaken: list[tuple[int, str]] = []
        self.pool = self
        self.asked: list[list[str]] = []
        self.tidied = 0
        self.began: list[int] = []
        self.now: set[int] = set()
        self.may_end = asyncio.Event()
        self.errors: dict[int, Exception] = {}
        self.held_up: set[int] = set()
        """Those whose tubes take no more pods."""
        self.closed = 0
        backfills = self

        class Run:
            def __init__(self, _session: object, backfill: int, *_: object, **given: Any) -> None:
                self.backfill = backfill
                self.gives_way = given["gives_way"]

            async def run(self) -> SimpleNamespace:
                backfills.began.append(self.backfill)
                backfills.now.add(self.backfill)
                try:
                    if self.backfill in backfills.held_up:
                        while not self.gives_way():  # noqa: ASYNC110 # as a run does
                            await asyncio.sleep(0)
                        return SimpleNamespace(state="inserting", paused=False)
                    error = backfills.errors.get(self.backfill)
                    if error is None:
                        await backfills.may_end.wait()
                    if error is None or isinstance(error, BackfillBusy):  # done here, or begun elsewhere
                        backfills.untaken = [one for one in backfills.untaken if one[0] != self.backfill]
                    if error is not None:
                        raise error
                    return SimpleNamespace(state="delivering", paused=False)
                finally:
                    backfills.now.discard(self.backfill)

        monkeypatch.setattr(upkeep, "BackfillRun", Run)
        monkeypatch.setattr(upkeep, "_LOOK_INTERVAL", 0.001)
        monkeypatch.setattr(upkeep, "_PAUSE_AFTER_TROUBLE", 0.001)

    log = Logger("pytube.worker")

    async def value(self, statement: str) -> None:
        assert statement == backfill_queries.TIDY
        self.tidied += 1

    async def rows(self, statement: str, arguments: dict[str, list[str]]) -> list[tuple[int, str]]:
        assert statement == backfill_queries.UNTAKEN
        self.asked.append(arguments["tubes"])
        return self.untaken

    async def open_session(self, purpose: str) -> FakeBackfills:
        assert purpose == "backfill runner"
        return self

    async def close(self) -> None:
        self.closed += 1

    @asynccontextmanager
    async def running(self, *tubes: str) -> AsyncIterator[list[Any]]:
        """A runner for these tubes; what it warned of."""
        served = {
            tube: cast("Tube", SimpleNamespace(name=tube, settings=SimpleNamespace(backfill=None)))
            for tube in tubes
        }
        with capture_logs() as logs:
            task = asyncio.create_task(BackfillRunner(cast("Database", self), served).run())
            try:
                yield logs
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        assert self.now == set(), "a backfill goes on without its runner"
        assert self.closed == len(self.began), "a session was left open"

    async def until(self, what: str, condition: Callable[[], object]) -> None:
        """Wait, and then for some looks more, so that what is begun beside shows."""
        await wait_until_async(condition, what=what)
        asked = len(self.asked)
        await wait_until_async(lambda: len(self.asked) > asked + 3, what="it looks on")


async def test_one_look_serves_all_tubes_and_each_of_them_runs_one_backfill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backfills = FakeBackfills(monkeypatch)
    backfills.untaken = [(1, "a"), (2, "a"), (3, "b")]
    async with backfills.running("a", "b"):
        await backfills.until("two run", lambda: len(backfills.began) >= 2)
        assert backfills.now == {1, 3}
        backfills.may_end.set()
        await backfills.until("all are done", lambda: backfills.untaken == [])
    assert sorted(backfills.began) == [1, 2, 3]
    assert backfills.asked[0] == ["a", "b"]
    assert backfills.tidied == 1


async def test_a_process_runs_a_few_backfills_at_a_time_whatever_the_number_of_its_tubes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backfills = FakeBackfills(monkeypatch)
    backfills.untaken = [(number, f"t{number}") for number in range(10)]
    async with backfills.running(*(f"t{number}" for number in range(10))):
        await backfills.until("some run", lambda: len(backfills.began) >= upkeep._MOST_AT_ONCE)
        assert len(backfills.now) == upkeep._MOST_AT_ONCE
        backfills.may_end.set()
        await backfills.until("all are done", lambda: backfills.untaken == [])


async def test_backfills_of_tubes_whose_sinks_are_down_leave_their_places_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backfills = FakeBackfills(monkeypatch)
    backfills.untaken = [(number, f"t{number}") for number in range(upkeep._MOST_AT_ONCE + 1)]
    backfills.held_up = set(range(upkeep._MOST_AT_ONCE))
    backfills.may_end.set()
    async with backfills.running(*(tube for _, tube in backfills.untaken)) as logs:
        await backfills.until("the last one is done", lambda: len(backfills.untaken) == upkeep._MOST_AT_ONCE)
    assert not logs, "that is no failure"


async def test_a_backfill_that_fails_is_told_of_once_and_holds_no_other_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backfills = FakeBackfills(monkeypatch)
    backfills.untaken = [(1, "a"), (2, "a"), (3, "a")]
    backfills.errors = {1: StatementFailed("broken"), 2: BackfillBusy("another worker was faster")}
    backfills.may_end.set()
    async with backfills.running("a") as logs:
        await backfills.until("it is tried again", lambda: backfills.began.count(1) > 2)
        assert 3 in backfills.began
    warned = [line for line in logs if line["log_level"] == "warning"]
    assert [(line["event"], line["backfill"], line["reason"]) for line in warned] == [
        ("backfill_stuck", 1, "broken")
    ]


@pytest.mark.parametrize(
    ("failure", "warnings"),
    [(DatabaseUnavailable, []), (StatementFailed, [("backfill_stuck", "no 1"), ("backfill_stuck", "no 2")])],
)
async def test_a_look_that_fails_is_repeated(
    monkeypatch: pytest.MonkeyPatch, failure: type[PytubeError], warnings: list[tuple[str, str]]
) -> None:
    """An outage is told of by others: it says nothing about backfills, of which there may be none."""
    backfills = FakeBackfills(monkeypatch)
    backfills.untaken = [(1, "a")]
    backfills.may_end.set()
    rows, failures = backfills.rows, [failure("no 2"), failure("no 1"), failure("no 1")]

    async def failing(*arguments: Any) -> list[tuple[int, str]]:
        if failures:
            raise failures.pop()
        return await rows(*arguments)

    monkeypatch.setattr(backfills, "rows", failing)
    async with backfills.running("a") as logs:
        await backfills.until("it is done", lambda: backfills.untaken == [])
    warned = [(line["event"], line["reason"]) for line in logs if line["log_level"] == "warning"]
    assert warned == warnings
