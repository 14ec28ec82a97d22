"""The pool of a process: never more sessions than allowed, none lost, and everybody has a turn."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar, cast

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytube.db.session import Session, SessionPool, Use
from pytube.errors import DatabaseUnavailable, PooledSession, StatementFailed

T = TypeVar("T")


class FakePooled:
    """A session as far as the pool knows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.used_at = 0.0
        self.settings: Mapping[str, str] = {}
        self.switches = 0
        """How often other settings were asked for than it had."""
        self.is_open = True
        self.is_lost = False
        """The client knows that it is gone, or a statement is under way in it."""
        self.is_terminated = False
        """The server has ended it, of which the client knows nothing yet."""
        self.borrower: object | None = None
        self.answer: Exception | None = None

    @property
    def is_idle(self) -> bool:
        return self.is_open and not self.is_lost

    @property
    def is_usable(self) -> bool:
        return self.is_idle and not self.is_terminated

    async def rows(self, statement: str, _arguments: object = None) -> list[tuple[Any, ...]]:
        await asyncio.sleep(0)
        if self.answer is not None:
            self.is_lost = isinstance(self.answer, DatabaseUnavailable)
            raise self.answer
        return [(self.number, statement)]

    async def held_rows(self, *_: object) -> list[tuple[Any, ...]]:
        return [(self.number, "held")]

    async def switch(self, settings: Mapping[str, str]) -> None:
        self.switches += settings != self.settings
        self.settings = settings

    def cut_off(self) -> None:
        self.is_terminated = True

    async def close(self) -> None:
        self.is_open = False
        await asyncio.sleep(0)


class Opener:
    """Opens sessions, and counts those that are open."""

    def __init__(self, size: int) -> None:
        self.sessions: list[FakePooled] = []
        self.failure: DatabaseUnavailable | None = None
        self.may_open = asyncio.Event()
        """While it is not set, opening hangs."""
        self.may_open.set()
        self.opening = self.tries = 0
        self.pool = SessionPool(self.open, size)

    async def open(self) -> Session:
        self.opening += 1
        self.tries += 1
        assert self.opening == 1, "one is opened at a time"
        try:
            await asyncio.sleep(0)
            await self.may_open.wait()
        finally:
            self.opening -= 1
        if self.failure is not None:
            raise self.failure
        self.sessions.append(FakePooled(len(self.sessions)))
        return cast("Session", self.sessions[-1])

    @property
    def open_ones(self) -> list[FakePooled]:
        return [session for session in self.sessions if session.is_open]


class Borrower:
    """Borrows a session, and keeps it until it is let go."""

    def __init__(
        self,
        opener: Opener,
        use: Use = Use.STATEMENT,
        reader: str = "t",
        order: list[Borrower] | None = None,
    ) -> None:
        self.use = use
        self.reader = reader
        self.session: FakePooled | None = None
        self._pool = opener.pool
        self._let_go = asyncio.Event()
        self._order = order
        self.task = asyncio.create_task(self._borrow())

    async def _borrow(self) -> None:
        async with self._pool.session(self.use, self.reader) as session:
            self.session = cast("FakePooled", session)
            assert self.session.borrower is None, "two have the same session"
            assert self.session.is_usable, "it is of no use"
            self.session.borrower = self
            if self._order is not None:
                self._order.append(self)
            try:
                await self._let_go.wait()
            finally:
                self.session.borrower = None

    def let_go(self) -> None:
        self._let_go.set()

    @property
    def holds(self) -> bool:
        return self.session is not None and self.session.borrower is self


async def turn_over(times: int = 20) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_sessions_are_opened_when_they_are_needed_and_used_again() -> None:
    opener = Opener(3)
    assert opener.sessions == []
    for _ in range(5):
        assert await opener.pool.rows("SELECT 1") == [(0, "SELECT 1")]
    assert await opener.pool.held_rows(("BEGIN",), {}) == [(0, "held")]
    assert len(opener.sessions) == 1


async def test_marks_take_a_session_as_it_is() -> None:
    opener = Opener(3)
    for _ in range(3):
        async with opener.pool.session(Use.READ, "t", {"jit": "off"}):
            pass
        await opener.pool.held_rows(("BEGIN",), {})
    assert [session.switches for session in opener.sessions] == [1]
    await opener.pool.rows("SELECT 1")
    assert [session.settings for session in opener.sessions] == [{}]


async def test_marks_leave_sessions_that_were_switched_to_reads() -> None:
    opener = Opener(2)
    async with opener.pool.session(Use.READ, "t", {"jit": "off"}), opener.pool.session():
        pass  # the first one is given back last
    assert await opener.pool.held_rows(("BEGIN",), {}) == [(1, "held")]
    async with opener.pool.session(Use.READ, "t", {"jit": "off"}):
        pass
    await opener.pool.rows("SELECT 1")
    assert [session.switches for session in opener.sessions] == [1, 0]


async def test_no_more_sessions_are_open_than_allowed() -> None:
    opener = Opener(3)
    borrowers = [Borrower(opener) for _ in range(10)]
    await turn_over()
    assert [borrower.holds for borrower in borrowers] == [True] * 3 + [False] * 7
    assert len(opener.open_ones) == 3
    for borrower in borrowers:
        borrower.let_go()
    await asyncio.gather(*(borrower.task for borrower in borrowers))
    assert len(opener.sessions) == 3


async def test_a_burst_of_short_statements_opens_few_sessions() -> None:
    opener = Opener(6)
    first = Borrower(opener)
    await turn_over()
    opener.may_open.clear()
    statements = [asyncio.create_task(opener.pool.rows("SELECT 1")) for _ in range(20)]
    await turn_over()
    assert opener.opening == 1
    first.let_go()
    await turn_over(100)
    assert sum(one.done() for one in statements) == 19, "all but the one that opens its own share the first"
    opener.may_open.set()
    await asyncio.gather(first.task, *statements)
    assert len(opener.sessions) == 2


async def test_who_waits_for_a_session_that_is_not_to_be_had_fails_with_it() -> None:
    """Else each would wait for a time-out of its own, one after the other."""
    opener = Opener(6)
    cause = psycopg.OperationalError("the server closed the connection")
    opener.failure, opener.failure.__cause__ = PooledSession("the pooler gives none"), cause
    opener.may_open.clear()
    statements = [asyncio.create_task(opener.pool.rows("SELECT 1")) for _ in range(6)]
    await turn_over()
    opener.may_open.set()
    answers = await asyncio.gather(*statements, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["the pooler gives none"] * 6
    assert {(type(answer), cast("Exception", answer).__cause__) for answer in answers} == {
        (PooledSession, cause)
    }
    assert opener.tries == 1
    opener.failure = None
    assert await opener.pool.rows("SELECT 1") == [(0, "SELECT 1")]


async def test_who_waits_behind_a_slow_opening_gets_a_session_before_its_last_user_does_again() -> None:
    """Else one that sends a statement after the other would keep it as long as the opening lasts."""
    opener = Opener(3)
    await opener.pool.rows("first")
    opener.may_open.clear()
    ends = asyncio.Event()

    async def be_busy() -> None:
        while not ends.is_set():
            await opener.pool.rows("again")

    busy = asyncio.create_task(be_busy())
    await asyncio.sleep(0)
    opens, waits = Borrower(opener), Borrower(opener)
    await turn_over()
    assert waits.holds
    assert not opens.holds
    ends.set()
    opener.may_open.set()
    waits.let_go()
    opens.let_go()
    await asyncio.gather(busy, opens.task, waits.task)


async def test_another_opens_when_the_one_who_does_is_cancelled() -> None:
    opener = Opener(2)
    opener.may_open.clear()
    one, other = (asyncio.create_task(opener.pool.rows("SELECT 1")) for _ in range(2))
    await turn_over()
    one.cancel()
    opener.may_open.set()
    assert await other == [(0, "SELECT 1")]
    assert one.cancelled()


@pytest.mark.parametrize("why", ["is_lost", "is_terminated"])
async def test_a_session_that_is_gone_is_replaced(why: str) -> None:
    opener = Opener(1)
    await opener.pool.rows("SELECT 1")
    setattr(opener.sessions[0], why, True)
    assert await opener.pool.rows("SELECT 2") == [(1, "SELECT 2")]
    assert not opener.sessions[0].is_open


async def test_a_session_that_is_lost_while_it_is_used_is_not_kept() -> None:
    opener = Opener(1)
    await opener.pool.rows("SELECT 1")
    opener.sessions[0].answer = DatabaseUnavailable("cut")
    with pytest.raises(DatabaseUnavailable):
        await opener.pool.rows("SELECT 2")
    assert opener.open_ones == []
    assert await opener.pool.rows("SELECT 3") == [(1, "SELECT 3")]


async def test_a_statement_that_postgres_refuses_costs_no_session() -> None:
    opener = Opener(1)
    await opener.pool.rows("SELECT 1")
    opener.sessions[0].answer = StatementFailed("no")
    with pytest.raises(StatementFailed):
        await opener.pool.rows("SELECT 2")
    opener.sessions[0].answer = None
    assert await opener.pool.rows("SELECT 3") == [(0, "SELECT 3")]


async def test_a_session_that_cannot_be_opened_takes_no_slot() -> None:
    opener = Opener(1)
    opener.failure = DatabaseUnavailable("nobody answers")
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable, match="nobody answers"):
            await opener.pool.rows("SELECT 1")
    opener.failure = None
    await opener.pool.rows("SELECT 1")


async def test_who_waits_gets_the_slot_of_a_session_that_could_not_be_opened() -> None:
    opener = Opener(1)
    opener.failure = DatabaseUnavailable("nobody answers")
    opener.may_open.clear()
    first, second = Borrower(opener), Borrower(opener)
    await turn_over()
    opener.failure = None
    first.task.cancel()
    opener.may_open.set()
    await turn_over()
    assert second.holds, "the second has no session"
    second.let_go()
    await asyncio.wait([first.task, second.task])


@given(st.integers(1, 6), st.lists(st.sampled_from(Use), max_size=12))
def test_each_in_the_order_of_their_coming_and_backfills_last(size: int, uses: list[Use]) -> None:
    async def check() -> None:
        opener = Opener(size)
        holders = [Borrower(opener) for _ in range(size)]
        await turn_over()
        order: list[Borrower] = []
        waiters = [Borrower(opener, use, order=order) for use in uses]
        await turn_over()
        assert order == [], "who waits has a session though none is free"
        for borrower in (*holders, *waiters):
            borrower.let_go()
        await turn_over(200)
        assert all(borrower.task.done() for borrower in (*holders, *waiters)), "one never has its turn"
        in_turn = sorted(waiters, key=lambda waiter: waiter.use is Use.BACKFILL_READ)
        for at, borrower in enumerate(order):
            overtaken = [one for one in in_turn[: in_turn.index(borrower)] if one not in order[:at]]
            # Statements overtake reads while there are as many reads as there may be.
            assert (
                not overtaken
                or (borrower.use is Use.STATEMENT and all(one.use is not Use.STATEMENT for one in overtaken))
                or (borrower.use is Use.BACKFILL_READ and _others_in_a_row(order[:at]) >= 4)
            )

    asyncio.run(check())


def _others_in_a_row(order: list[Borrower]) -> int:
    """How many were first since the last read for a backfill."""
    return next((n for n, one in enumerate(reversed(order)) if one.use is Use.BACKFILL_READ), len(order))


async def test_backfills_have_a_share_of_the_turns_while_urgent_reads_never_end() -> None:
    opener = Opener(1)
    order: list[Borrower] = []
    borrowers = [Borrower(opener, Use.READ, order=order) for _ in range(2)]
    await turn_over()
    patient = [Borrower(opener, Use.BACKFILL_READ, order=order) for _ in range(3)]
    for _ in range(15):
        borrowers.append(Borrower(opener, Use.READ, order=order))
        await turn_over()
        order[-1].let_go()
        await turn_over()
    assert sum(one in order for one in patient) == 3, [one.use.name for one in order]
    for borrower in (*borrowers, *patient):
        borrower.let_go()
    await asyncio.gather(*(borrower.task for borrower in (*borrowers, *patient)))


async def test_an_urgent_one_that_comes_later_overtakes_those_that_can_wait() -> None:
    opener = Opener(1)
    order: list[Borrower] = []
    first = Borrower(opener)
    await turn_over()
    patient = Borrower(opener, Use.BACKFILL_READ, order=order)
    await turn_over()
    urgent = Borrower(opener, order=order)
    await turn_over()
    for borrower in (first, patient, urgent):
        borrower.let_go()
    await asyncio.gather(first.task, patient.task, urgent.task)
    assert order == [urgent, patient]


async def test_statements_without_end_leave_turns_to_reads() -> None:
    """The marks of tubes with a backlog follow one another; documents have to be read all the same."""
    opener = Opener(6)
    read: Borrower | None = None

    async def mark() -> None:
        while read is None or not read.holds:
            await opener.pool.rows("SELECT 1")

    marking = [asyncio.create_task(mark()) for _ in range(14)]
    await turn_over()
    read = Borrower(opener, Use.READ)
    await turn_over(200)
    assert read.holds, "it waits as long as there are statements"
    read.let_go()
    await asyncio.gather(read.task, *marking)


async def test_slow_reads_of_one_tube_hold_up_neither_statements_nor_the_reads_of_others() -> None:
    opener = Opener(6)
    slow = [Borrower(opener, Use.READ, "slow") for _ in range(10)]
    await turn_over()
    assert sum(one.holds for one in slow) == 3
    other, statements = Borrower(opener, Use.READ, "other"), [Borrower(opener) for _ in range(2)]
    await turn_over()
    assert other.holds
    assert all(one.holds for one in statements)
    for borrower in (*slow, other, *statements):
        borrower.let_go()
    await asyncio.gather(*(borrower.task for borrower in (*slow, other, *statements)))


async def test_statements_that_wait_for_a_lock_leave_the_rest_to_reads() -> None:
    """The sessions that reads leave to statements are among those that statements have."""
    opener = Opener(6)
    stuck = [Borrower(opener) for _ in range(5)]
    await turn_over()
    read = Borrower(opener, Use.READ, "other")
    await turn_over()
    assert read.holds
    for borrower in (*stuck, read):
        borrower.let_go()
    await asyncio.gather(*(borrower.task for borrower in (*stuck, read)))


@pytest.mark.parametrize("turns", range(6))
async def test_a_waiter_that_is_cancelled_as_its_turn_comes_hands_it_on(turns: int) -> None:
    opener = Opener(1)
    first = Borrower(opener)
    await turn_over()
    waiters = [Borrower(opener) for _ in range(3)]
    await turn_over()
    first.let_go()
    await turn_over(turns)
    waiters[0].task.cancel()
    await turn_over()
    assert waiters[1].holds, "the next has no session"
    for waiter in waiters:
        waiter.let_go()
    await asyncio.wait([waiter.task for waiter in waiters])
    await opener.pool.rows("SELECT 1")
    assert len(opener.open_ones) == 1


async def test_sessions_in_excess_grow_old_and_are_closed() -> None:
    """The one that was used last is used again, so that a few serve when there is little to do."""
    opener = Opener(4)
    borrowers = [Borrower(opener) for _ in range(4)]
    await turn_over()
    for borrower in borrowers:
        borrower.let_go()
    await asyncio.gather(*(borrower.task for borrower in borrowers))
    since = time.monotonic()
    used = {(await opener.pool.rows("SELECT 1"))[0][0] for _ in range(5)}
    assert len(used) == 1
    await opener.pool.close_idle(since)
    assert [session.number for session in opener.open_ones] == list(used)
    await opener.pool.close_idle(math.inf)
    assert opener.open_ones == []
    await opener.pool.rows("SELECT 1")


async def test_a_pool_that_is_closed_opens_none_and_closes_each_as_it_is_returned() -> None:
    opener = Opener(2)
    borrower = Borrower(opener)
    await opener.pool.rows("SELECT 1")
    await turn_over()
    assert len(opener.open_ones) == 2
    await opener.pool.close()
    assert [session.borrower for session in opener.open_ones] == [borrower]
    with pytest.raises(DatabaseUnavailable, match="being stopped"):
        await opener.pool.rows("SELECT 2")
    borrower.let_go()
    await borrower.task
    assert opener.open_ones == []


async def test_after_a_discard_no_session_of_before_is_used_again() -> None:
    opener = Opener(3)
    borrowers = [Borrower(opener) for _ in range(2)]
    await turn_over()
    borrowers[0].let_go()
    await borrowers[0].task
    opener.pool.discard()
    borrowers[1].let_go()
    await borrowers[1].task
    assert {(await opener.pool.rows("SELECT 1"))[0][0] for _ in range(3)} == {2}
    assert [session.number for session in opener.open_ones] == [2]


async def test_who_wanted_a_session_before_a_discard_gets_none() -> None:
    """Not of those that are opened after it either: what they are for may have begun at the other server."""
    opener = Opener(1)
    first = Borrower(opener)
    await turn_over()
    second = Borrower(opener)
    await turn_over()
    opener.pool.discard()
    first.let_go()
    second.let_go()
    with pytest.raises(DatabaseUnavailable, match="another server now, or was restarted"):
        await second.task
    await first.task
    assert await opener.pool.rows("SELECT 1") == [(1, "SELECT 1")], (
        "the session is kept for those who come now"
    )


# --- any order of what can happen ------------------------------------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Borrowers come, are cancelled and let go, sessions are lost; the loop turns now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.borrowers: list[Borrower] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize(size=st.integers(1, 6))
    def open_pool(self, size: int) -> None:
        self.size = size

        async def make() -> Opener:
            return Opener(size)

        self.opener = self.run(make())

    @rule(use=st.sampled_from(Use), reader=st.sampled_from("abc"))
    def borrow(self, use: Use, reader: str) -> None:
        async def begin() -> None:
            self.borrowers.append(Borrower(self.opener, use, reader))

        self.run(begin())

    @rule(times=st.integers(1, 30))
    def turn_over(self, times: int) -> None:
        self.run(turn_over(times))

    @precondition(lambda self: self.borrowers)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        self.one(data).let_go()

    @precondition(lambda self: self.borrowers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.one(data).task.cancel()

    @precondition(lambda self: self.borrowers)
    @rule(data=st.data())
    def let_go_and_cancel_the_next(self, data: st.DataObject) -> None:
        """As close together as can be, so that a turn comes together with a cancellation."""
        turns = data.draw(st.integers(0, 5))
        self.one(data).let_go()
        self.run(turn_over(turns))
        self.one(data).task.cancel()

    def one(self, data: st.DataObject) -> Borrower:
        return data.draw(st.sampled_from(self.borrowers))

    @precondition(lambda self: self.opener.open_ones)
    @rule(data=st.data(), terminated=st.booleans())
    def lose(self, data: st.DataObject, terminated: bool) -> None:
        session = data.draw(st.sampled_from(self.opener.open_ones))
        if terminated:
            session.is_terminated = True
        else:
            session.is_lost = True

    @rule(down=st.booleans(), hangs=st.booleans())
    def change_server(self, down: bool, hangs: bool) -> None:
        self.opener.failure = DatabaseUnavailable("nobody answers") if down else None
        if hangs:
            self.opener.may_open.clear()
        else:
            self.opener.may_open.set()

    @rule()
    def discard(self) -> None:
        self.opener.pool.discard()

    @rule()
    def close_idle(self) -> None:
        self.run(self.opener.pool.close_idle(math.inf))

    @invariant()
    def reads_leave_sessions_to_others(self) -> None:
        reading = [one for one in self.borrowers if one.holds and one.use is not Use.STATEMENT]
        assert len(reading) <= max(1, self.size - 2)
        for reader in "abc":
            assert sum(one.reader == reader for one in reading) <= max(1, self.size - 3)

    @invariant()
    def there_are_no_more_than_allowed(self) -> None:
        assert len(self.opener.open_ones) + self.opener.opening <= self.size
        for borrower in self.borrowers:
            if borrower.task.done() and not borrower.task.cancelled():
                error = borrower.task.exception()
                assert error is None or isinstance(error, DatabaseUnavailable), error

    def teardown(self) -> None:
        if hasattr(self, "opener"):
            self.run(self.check_that_no_slot_is_lost())
        self.loop.close()

    async def check_that_no_slot_is_lost(self) -> None:
        """All who still want a session get one; then there are as many as at the beginning."""
        self.opener.failure = None
        self.opener.may_open.set()
        for borrower in self.borrowers:
            borrower.let_go()
        if self.borrowers:
            done, late = await asyncio.wait([borrower.task for borrower in self.borrowers], timeout=5)
            assert not late, "somebody waits for ever"
            await asyncio.gather(*done, return_exceptions=True)
        assert all(session.borrower is None for session in self.opener.sessions)
        last = [Borrower(self.opener) for _ in range(self.size + 1)]
        await turn_over(100)
        assert [borrower.holds for borrower in last] == [True] * self.size + [False], "a slot is lost"
        for borrower in last:
            borrower.let_go()
        await asyncio.gather(*(borrower.task for borrower in last))


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
