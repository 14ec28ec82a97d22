"""How a leadership leads term after term: the order of a term's steps is what makes it safe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast
from uuid import uuid4

import pytest

from pytube.election.base import SHARED, STOPS, Ended
from pytube.errors import (
    ClaimLost,
    DatabaseUnavailable,
    ElectionConflict,
    EpochMoved,
    Fenced,
    FencedBySink,
    LeaseHeld,
    UsageError,
    WrongPartitions,
)
from pytube.events import Event, LeaderAcquired, LeaderFenced, LeaderRevoked
from pytube.faults import Point
from pytube.model import Batch, Token
from pytube.sources import terms
from pytube.sources.terms import Term, Troubles
from pytube.testing.memory import MemorySink
from pytube.worker import leadership as module
from pytube.worker.leadership import Leadership
from pytube.worker.queues import Tube
from pytube.worker.tube_worker import TubeWorker
from tests.helpers import armed
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import FakeClaim, FakeDatabase, FakeEnricher, FakeServedTube, FakeSession, FakeTube
from tests.unit.rig import LIMITS, SETTINGS


class Steps(FakeClaim):
    """Notes in which order the database and the election are asked, and what a worker is told to do."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []
        self.acquired_at = 0.0
        self.may_begin = 0.0
        self.aborted_as_over: list[bool] = []
        """Whether the database had ended each term that was aborted."""
        self.began_at: list[float] = []
        """When each worker began."""
        self.left = 0.02
        """Seconds until no earlier term can write, for the first term."""
        self.epochs = 1
        self.refusals: list[Exception] = []
        """What the next acquires are refused with."""
        self.outcomes: list[Exception | None] = []
        """How the next workers end; one that is not among them works until the claim is over."""
        self.in_the_air = False
        """Whether the next worker leaves a write without an answer."""
        self.events: list[Event] = []
        self.failing: list[tuple[object, ...]] = []
        """The reason, and how many terms have failed alike, each time that the database was told."""
        self.pool = FakeSession(FakeTube())
        self.database = FakeDatabase(self.pool)
        self.served = FakeServedTube(
            SETTINGS, MemorySink(), FakeEnricher(), self.database, self.events.append
        )
        self.leadership = self.another(self)

    def another(self, claim: FakeClaim) -> Leadership:
        """A leadership with this database and tube."""
        return Leadership(cast("Tube", self.served), claim)

    async def prove(self) -> None:
        self.taken.append("prove")

    async def read_epoch(self, *_: object) -> int:
        self.taken.append("read")
        if self.pool.tube.down:
            raise DatabaseUnavailable("the fake database is down")
        return self.epochs

    async def acquire(self, *_: object) -> Term:
        self.taken.append("acquire")
        self.acquired_at = time.monotonic()
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        self.epochs += 1
        return Term("t", 1, 0, epoch=self.epochs)

    async def wait_left(self, *_: object) -> float:
        self.taken.append("wait")
        left, self.left = self.left, 0.0
        self.may_begin = time.monotonic() + left
        return left

    async def release(self, *_: object) -> bool:
        self.taken.append("release")
        if self.pool.tube.down:
            raise DatabaseUnavailable("the fake database is down")
        return True

    async def note_failing(self, *given: object) -> None:
        self.failing.append(given[3:5])

    @property
    def told(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    async def run(self) -> None:
        await asyncio.wait_for(self.leadership.run(), 5)

    async def until_it_leads(self, terms_before: int = 0) -> asyncio.Task[None]:
        running = asyncio.create_task(self.leadership.run())
        await wait_until_async(lambda: self.taken.count("work") > terms_before, what="it works")
        return running


@pytest.fixture
async def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()
    monkeypatch.setattr(terms, "read_epoch", steps.read_epoch)
    monkeypatch.setattr(terms, "acquire", steps.acquire)
    monkeypatch.setattr(terms, "wait_left", steps.wait_left)
    monkeypatch.setattr(terms, "release", steps.release)
    monkeypatch.setattr(terms, "note_failing", steps.note_failing)
    monkeypatch.setattr(module, "_RETRY_PAUSE", 0.001)
    monkeypatch.setattr(module, "_AHEAD_PAUSE", 0.001)
    monkeypatch.setattr(module, "backoff", lambda _: 0.001)

    async def work(worker: TubeWorker) -> None:
        steps.taken.append("work")
        steps.began_at.append(time.monotonic())
        active_term = worker._active_term
        if steps.in_the_air:
            active_term.unanswered.add(Batch("t", 0, Token(2, 1), []))
        if steps.outcomes:
            outcome = steps.outcomes.pop(0)
            if outcome is not None:
                raise outcome
            return
        while active_term.goes_on():
            await active_term.attention.wait()
            active_term.attention.clear()

    async def drain(_: TubeWorker, limit: float) -> None:
        steps.taken.append(f"drain {limit:g}")

    async def abort(_: TubeWorker, *, is_over: bool) -> None:
        steps.taken.append("abort")
        steps.aborted_as_over.append(is_over)

    monkeypatch.setattr(TubeWorker, "run", work)
    monkeypatch.setattr(TubeWorker, "drain", drain)
    monkeypatch.setattr(TubeWorker, "abort", abort)
    return steps


# --- a term begins, and ends in order ---


async def test_the_steps_of_a_term_from_its_beginning_to_its_end(steps: Steps) -> None:
    """The epoch is read before the right is proved; marks begin when no earlier term can write."""
    running = await steps.until_it_leads()
    active_term = steps.database.terms["t", 0]
    assert active_term.term.epoch == 2
    assert isinstance(active_term.worker, TubeWorker)
    steps.revoke()
    await asyncio.wait_for(running, 5)
    assert steps.taken == ["read", "prove", "acquire", "wait", "work", "drain 10", "release"]
    assert steps.began_at[0] >= steps.may_begin, "it works while an earlier term may write"
    assert steps.told == ["LeaderAcquired", "LeaderRevoked"]
    assert steps.database.terms == {}
    assert steps.is_handed_over


async def test_the_first_trust_counts_from_when_the_acquire_was_sent(steps: Steps) -> None:
    active_term = await steps.leadership._begin()
    assert active_term.trusted_until() <= steps.acquired_at + LIMITS.receive_deadline


async def test_while_it_waits_for_earlier_terms_its_own_is_renewed_already(steps: Steps) -> None:
    steps.left = 1000.0
    running = asyncio.create_task(steps.leadership.run())
    await wait_until_async(lambda: "wait" in steps.taken, what="it waits")
    assert ("t", 0) in steps.database.terms
    assert steps.told == []
    steps.revoke()
    await asyncio.wait_for(running, 5)
    assert "work" not in steps.taken
    assert steps.taken[-1] == "release"
    assert steps.is_handed_over


async def test_how_long_earlier_terms_may_write_counts_from_the_answer(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database measures after it was asked: counted from the question, the wait would be too short."""

    async def answer_late(*_: object) -> float:
        await asyncio.sleep(0.3)
        return await steps.wait_left()

    monkeypatch.setattr(terms, "wait_left", answer_late)
    steps.left = 0.2
    running = await steps.until_it_leads()
    assert time.monotonic() >= steps.may_begin
    steps.revoke()
    await asyncio.wait_for(running, 5)


async def test_a_term_that_ends_while_it_waits_for_earlier_ones_does_not_work(steps: Steps) -> None:
    steps.left = 1000.0
    running = asyncio.create_task(steps.leadership.run())
    await wait_until_async(lambda: "wait" in steps.taken, what="it waits")
    steps.database.terms["t", 0].end(Fenced("over"))
    await asyncio.wait_for(running, 5)
    assert "work" not in steps.taken
    assert steps.told == ["LeaderFenced"]


async def test_a_process_that_stops_has_time_to_drain_and_a_claim_that_is_wanted_back_has_not(
    steps: Steps,
) -> None:
    steps.served.limits = replace(LIMITS, drain_limit=30.0, request_timeout=5.0)
    for why, limit in ((STOPS, 30.0), (SHARED, 5.0)):
        claim = FakeClaim()
        leadership = steps.another(claim)
        active_term = await leadership._begin()
        claim.withdraw(why)
        assert leadership._drain_limit(active_term) == limit


async def test_a_term_whose_write_may_come_late_is_not_released(steps: Steps) -> None:
    """The next leader must wait until that write has timed out."""
    steps.in_the_air = True
    running = await steps.until_it_leads()
    steps.revoke()
    await asyncio.wait_for(running, 5)
    assert "release" not in steps.taken
    assert steps.is_handed_over


async def test_a_term_whose_worker_failed_with_a_write_in_the_air_is_not_released_either(
    steps: Steps,
) -> None:
    steps.in_the_air = True
    steps.outcomes = [DatabaseUnavailable("cut"), Fenced("over")]
    await steps.run()
    assert steps.taken.count("work") == 2
    assert "release" not in steps.taken


async def test_only_a_term_that_the_database_has_ended_does_not_wait_for_late_writes(steps: Steps) -> None:
    """All others are released then, so that the next leader need not wait."""
    steps.outcomes = [
        DatabaseUnavailable("cut"),
        WrongPartitions("the tube has other partitions"),
        Fenced("over"),
    ]
    steps.served.partitions = 1

    async def reload() -> None:
        """It has as many as before."""

    steps.served.reload_partitions = reload  # type: ignore[method-assign]
    await steps.run()
    assert steps.aborted_as_over == [False, True, True]


async def test_a_fault_in_a_term_aborts_its_worker_and_ends_the_leadership(steps: Steps) -> None:
    armed.arm({armed.VARIABLE: f"{Point.BEFORE_RELEASE}:raise"})
    try:
        steps.outcomes = [RuntimeError("a fault of ours")]
        with pytest.raises(RuntimeError):
            await steps.run()
        assert steps.taken[-1] == "abort"
        assert steps.failing == [("RuntimeError: a fault of ours", 1)], "it is told at once"
        assert steps.database.terms == {}
        assert steps.is_handed_over
    finally:
        armed.arm({})


async def test_a_fault_at_the_release_ends_the_leadership_and_hands_the_claim_over(steps: Steps) -> None:
    armed.arm({armed.VARIABLE: f"{Point.BEFORE_RELEASE}:raise"})
    try:
        steps.outcomes = [None]
        with pytest.raises(armed.InjectedFault):
            await steps.run()
        assert steps.is_handed_over
    finally:
        armed.arm({})


# --- term after term ---


async def test_terms_that_fail_alike_are_told_of_until_one_ends_in_order(steps: Steps) -> None:
    def cut(number: int) -> DatabaseUnavailable:
        return DatabaseUnavailable(f"cut, says pid {number} of term {uuid4()}")

    steps.outcomes = [cut(1), cut(2), UsageError("another one"), cut(3), cut(4), cut(5), cut(6), None]
    running = await steps.until_it_leads(terms_before=8)
    assert [count for _, count in steps.failing] == [3, 4, 0]
    assert str(steps.failing[1][0]).startswith("DatabaseUnavailable: cut, says pid 6"), "the latest"
    assert steps.told.count("TermsFail") == 1
    steps.revoke()
    await running


async def test_a_term_that_lasts_has_mended_what_failed_before(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MENDED", 0.001)
    steps.outcomes = [UsageError("no such thing")] * 3
    running = await steps.until_it_leads(terms_before=3)
    await wait_until_async(lambda: [count for _, count in steps.failing] == [3, 0], what="it is told")
    steps.revoke()
    await running


@pytest.mark.parametrize("refusal", [EpochMoved("somebody else"), DatabaseUnavailable("cut")])
async def test_an_acquire_that_fails_is_tried_again_under_the_same_claim(
    steps: Steps, refusal: Exception
) -> None:
    steps.refusals = [refusal]
    running = await steps.until_it_leads()
    assert steps.taken[:6] == ["read", "prove", "acquire"] * 2
    steps.revoke()
    await asyncio.wait_for(running, 5)


async def test_workers_under_two_elections_are_told_of_and_tried_again(steps: Steps) -> None:
    """It is a mistake in the configuration, and no bug of pytube."""
    reason = "it is led under 'lease', not 'neli' (Give all workers of a tube the same election.)"
    steps.refusals = [ElectionConflict(reason)] * 3
    running = await steps.until_it_leads()
    assert steps.served.told == [reason]
    assert steps.failing == [(f"ElectionConflict: {reason}", 3)], "status shows it"
    assert not steps.is_handed_over
    steps.revoke()
    await asyncio.wait_for(running, 5)
    assert steps.failing[-1] == ("", 0)


async def test_an_acquire_that_another_worker_won_gives_the_claim_up(steps: Steps) -> None:
    steps.refusals = [LeaseHeld("it has not run out")]
    await steps.run()
    assert steps.taken == ["read", "prove", "acquire"]
    assert steps.is_handed_over
    assert steps.told == []


async def test_after_a_lost_session_a_new_term_begins_and_the_old_one_is_released_before(
    steps: Steps,
) -> None:
    steps.outcomes = [DatabaseUnavailable("cut")]
    running = await steps.until_it_leads(1)
    assert steps.taken[4:] == ["work", "abort", "release", "read", "prove", "acquire", "wait", "work"]
    assert [type(event) for event in steps.events] == [LeaderAcquired, LeaderRevoked, LeaderAcquired]
    assert steps.served.told == ["cut"]
    steps.revoke()
    await asyncio.wait_for(running, 5)


async def test_an_outage_is_logged_once_however_often_a_term_fails(steps: Steps) -> None:
    steps.outcomes = [DatabaseUnavailable("cut")] * 4
    running = await steps.until_it_leads(4)
    assert steps.served.told == ["cut"]
    steps.revoke()
    await asyncio.wait_for(running, 5)


@pytest.mark.parametrize(
    "end",
    [Steps.end_now, lambda steps: steps.database.terms["t", 0].end(Fenced("another term has begun"))],
    ids=["the claim is lost", "another term has begun"],
)
async def test_a_term_that_is_over_ends_the_leadership(steps: Steps, end: Callable[[Steps], None]) -> None:
    running = await steps.until_it_leads()
    end(steps)
    await asyncio.wait_for(running, 5)
    assert steps.taken.count("work") == 1
    assert steps.told == ["LeaderAcquired", "LeaderFenced"]
    assert steps.is_handed_over


async def test_a_sink_that_holds_a_later_term_begins_another_term(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def last_epoch(*_: object) -> int:
        return 7

    monkeypatch.setattr(terms, "last_epoch", last_epoch)
    steps.outcomes = [FencedBySink(Token(7, 1))]
    running = await steps.until_it_leads(1)
    assert steps.told[:2] == ["LeaderAcquired", "LeaderFenced"]
    assert steps.served.told == []
    steps.revoke()
    await asyncio.wait_for(running, 5)


async def test_a_sink_that_holds_an_epoch_that_was_never_issued_is_told_of_once(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was restored from a backup, say; an operator has to rebase the tube."""

    async def last_epoch(*_: object) -> int:
        return 7

    began: list[float] = []

    async def renew(_: object, told: dict[object, Troubles]) -> None:
        (troubles,) = told.values()
        assert "pytube tube rebase t --epoch 8" in str(troubles.reason("sink"))
        began.append(troubles._since["sink"][1])

    monkeypatch.setattr(terms, "last_epoch", last_epoch)
    monkeypatch.setattr(terms, "renew", renew)
    steps.outcomes = [FencedBySink(Token(8, 1))] * 3
    running = await steps.until_it_leads(3)
    (told,) = steps.served.told
    assert "pytube tube rebase t --epoch 8" in told
    assert len(began) == 3, "each term tells the database, so that status shows it"
    assert len(set(began)) == 1, "it has been so since the first of them"
    steps.revoke()
    await asyncio.wait_for(running, 5)


# --- the claim is handed over whatever is down, so that nobody waits for it ---


async def test_a_claim_that_is_revoked_while_the_database_is_down_is_handed_over(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "backoff", lambda _: 3600.0)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 3600.0)
    steps.pool.tube.down = True
    running = asyncio.create_task(steps.leadership.run())
    await wait_until_async(lambda: steps.served.told, what="it is logged")
    assert not running.done()
    steps.revoke()
    await asyncio.wait_for(running, 5)
    assert steps.is_handed_over


async def test_a_term_that_cannot_be_released_does_not_hold_the_claim_up(steps: Steps) -> None:
    running = await steps.until_it_leads()
    steps.pool.tube.down = True
    steps.revoke()
    await asyncio.wait_for(running, 5)
    assert "release" in steps.taken
    assert steps.is_handed_over


async def test_a_claim_that_is_over_before_it_is_led_is_handed_over_without_a_term(steps: Steps) -> None:
    steps.revoke()
    await steps.run()
    assert steps.taken == []
    assert steps.is_handed_over


async def test_a_tube_that_is_dropped_ends_the_leadership_and_is_logged(steps: Steps) -> None:
    steps.refusals = [WrongPartitions("the tube has other partitions")]
    await steps.run()
    assert steps.is_handed_over
    assert steps.served.told == ["there is no tube 't'"]


async def test_a_partition_that_the_tube_has_no_more_ends_the_leadership(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps.refusals = [WrongPartitions("the tube has other partitions")] * 2
    counts = [2, 0]

    async def reload() -> None:
        steps.served.partitions = counts.pop(0)

    monkeypatch.setattr(steps.served, "reload_partitions", reload)
    await steps.run()
    assert steps.taken == ["read", "prove", "acquire"] * 2, "while it has the partition, it is led"
    assert steps.is_handed_over


async def test_a_leadership_that_ends_late_leaves_the_term_of_the_next_one_alone(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that was lost may be granted again while the old worker still waits for its sink."""
    may_end = asyncio.Event()

    async def abort(_: TubeWorker, *, is_over: bool) -> None:  # noqa: ARG001
        steps.taken.append("abort")
        await may_end.wait()

    monkeypatch.setattr(TubeWorker, "abort", abort)
    old = await steps.until_it_leads()
    steps.end_now()
    await wait_until_async(lambda: "abort" in steps.taken, what="the old worker ends")
    claim = FakeClaim()
    new = asyncio.create_task(steps.another(claim).run())
    await wait_until_async(lambda: steps.taken.count("work") == 2, what="the new one works")
    current = steps.database.terms["t", 0]
    may_end.set()
    await asyncio.wait_for(old, 5)
    assert steps.database.terms == {("t", 0): current}, "nobody renews the new term"
    claim.revoke()
    await asyncio.wait_for(new, 5)
    assert steps.database.terms == {}


async def test_a_claim_that_is_lost_ends_its_term_with_that_reason(steps: Steps) -> None:
    running = await steps.until_it_leads()
    active_term = steps.database.terms["t", 0]
    steps.end_now()
    await asyncio.wait_for(running, 5)
    assert isinstance(active_term.stop, Ended)
    assert isinstance(active_term.stop.error, ClaimLost)
    (fenced,) = [event for event in steps.events if isinstance(event, LeaderFenced)]
    assert "gave the partition to another worker" in fenced.reason


async def test_nothing_is_marked_before_the_sink_has_been_opened(steps: Steps) -> None:
    steps.served.why_closed = "no answer"
    running = asyncio.create_task(steps.leadership.run())
    await wait_until_async(lambda: "SinkDown" in steps.told, what="it leads and waits")
    (active_term,) = steps.database.terms.values()
    assert active_term.troubles.as_json()["sink"]["reason"] == "no answer", "its renewals tell"
    assert "work" not in steps.taken
    steps.served.why_closed = None
    await wait_until_async(lambda: "work" in steps.taken, what="it works")
    assert not active_term.troubles.as_json()
    assert active_term.worker is not None
    assert steps.told == ["LeaderAcquired", "SinkDown", "SinkUp"]
    steps.revoke()
    await running


async def test_a_sink_that_is_not_open_for_another_reason_now_is_told_with_that_one(steps: Steps) -> None:
    steps.served.why_closed = "connection refused"
    running = asyncio.create_task(steps.leadership.run())
    await wait_until_async(lambda: "SinkDown" in steps.told, what="it leads and waits")
    (active_term,) = steps.database.terms.values()
    steps.served.why_closed = "HTTP 401"
    await wait_until_async(
        lambda: active_term.troubles.reason("sink") == "HTTP 401", what="its renewals tell the new reason"
    )
    assert steps.told == ["LeaderAcquired", "SinkDown"]
    steps.revoke()
    await running


async def test_a_pause_does_not_wait_for_a_sink_that_has_not_been_opened(steps: Steps) -> None:
    steps.served.why_closed = "no answer"
    running = asyncio.create_task(steps.leadership.run())
    await wait_until_async(lambda: "SinkDown" in steps.told, what="it leads and waits")
    (active_term,) = steps.database.terms.values()
    steps.pool.tube.leader_id = active_term.term.leader_id
    active_term.note_pause("a look", None, time.monotonic())
    await wait_until_async(lambda: active_term.is_resting, what="it rests")
    assert active_term.troubles.as_json().keys() == {"paused"}, "nobody asks the sink"
    active_term.note_pause(None, None, time.monotonic())
    await wait_until_async(lambda: not active_term.is_resting, what="it goes on")
    await wait_until_async(lambda: active_term.troubles.reason("sink") is not None, what="it waits again")
    assert active_term.troubles.as_json().keys() == {"sink"}
    steps.served.why_closed = None
    await wait_until_async(lambda: "work" in steps.taken, what="it works")
    assert steps.told == ["LeaderAcquired", "SinkDown", "PartitionPaused", "PartitionResumed", "SinkUp"]
    steps.revoke()
    await running


async def test_a_sink_that_was_opened_during_a_pause_is_told_to_be_up_after_it(steps: Steps) -> None:
    steps.served.why_closed = "no answer"
    running = asyncio.create_task(steps.leadership.run())
    await wait_until_async(lambda: "SinkDown" in steps.told, what="it leads and waits")
    (active_term,) = steps.database.terms.values()
    steps.pool.tube.leader_id = active_term.term.leader_id
    active_term.note_pause("a look", None, time.monotonic())
    await wait_until_async(lambda: active_term.is_resting, what="it rests")
    steps.served.why_closed = None
    active_term.note_pause(None, None, time.monotonic())
    await wait_until_async(lambda: "work" in steps.taken, what="it works")
    assert steps.told == ["LeaderAcquired", "SinkDown", "PartitionPaused", "PartitionResumed", "SinkUp"]
    steps.revoke()
    await running


async def test_a_term_whose_sink_has_not_been_opened_is_given_back_in_order(steps: Steps) -> None:
    steps.served.why_closed = "no answer"
    running = asyncio.create_task(steps.leadership.run())
    await wait_until_async(lambda: "SinkDown" in steps.told, what="it leads and waits")
    steps.revoke()
    await running
    assert steps.taken[-2:] == ["wait", "release"]
    assert steps.told == ["LeaderAcquired", "SinkDown", "LeaderRevoked"]


async def test_a_term_that_ends_while_it_waits_for_its_sink_is_fenced(steps: Steps) -> None:
    steps.served.why_closed = "no answer"
    running = asyncio.create_task(steps.leadership.run())
    await wait_until_async(lambda: "SinkDown" in steps.told, what="it leads and waits")
    (active_term,) = steps.database.terms.values()
    active_term.end(Fenced("another term has begun"))
    await running
    assert steps.told == ["LeaderAcquired", "SinkDown", "LeaderFenced"]
