"""A term that is led here: its trust, what it tells of it, its end, and its tokens."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube import clock, errors
from pytube.election.base import SHARED, STOPS, Ended, Lost, Paused
from pytube.errors import ClaimLost, DatabaseUnavailable
from pytube.events import Event, LeaderRefreshed, TrustLapsed
from pytube.model import COUNTER_BITS, Token
from pytube.sources.terms import Term
from pytube.worker import active_term as module
from pytube.worker.active_term import ActiveTerm
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import FakeClaim


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_INTERVAL", 0.001)


class Reign:
    """A term that is trusted, and what it told."""

    def __init__(self, deadline: float = 1000.0, sent_at: float | None = None) -> None:
        self.claim = FakeClaim()
        self.events: list[Event] = []
        self.term = Term("t", 1, 0, epoch=100)
        self.active_term = ActiveTerm(
            self.term,
            self.claim,
            deadline=deadline,
            sent_at=clock.now() if sent_at is None else sent_at,
            emit=self.events.append,
        )

    @property
    def told(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


# --- how long it is trusted: until a deadline after its last renewal was sent


moments = st.floats(0, 1e6)


async def test_the_acquire_is_the_first_renewal() -> None:
    assert Reign(5.0, sent_at=100.0).active_term.trusted_until() == 105.0


async def test_an_answer_that_was_overtaken_takes_no_trust_away() -> None:
    active_term = Reign(5.0, sent_at=100.0).active_term
    active_term.confirm_renewal(104.0)
    active_term.confirm_renewal(102.0)
    assert active_term.trusted_until() == 109.0


@given(moments, st.lists(moments))
def test_trust_ends_a_deadline_after_the_last_renewal_that_was_answered_was_sent(
    first: float, renewals: list[float]
) -> None:
    """Of the election nothing is asked: it has proved the right once, before the term began."""
    reign = Reign(5.0, first)
    for sent_at in renewals:
        reign.active_term.confirm_renewal(sent_at)
    assert reign.active_term.trusted_until() == max([first, *renewals]) + 5.0


# --- trust that lapses, and comes back


async def test_while_trusted_nothing_is_waited_for_or_told() -> None:
    reign = Reign()
    await reign.active_term.wait_until_trusted()
    assert reign.told == []


async def test_a_lapse_and_its_end_are_told_once_however_many_wait() -> None:
    reign = Reign(5.0, sent_at=0.0)
    waiters = [asyncio.create_task(reign.active_term.wait_until_trusted()) for _ in range(3)]
    await wait_until_async(lambda: reign.told, what="the lapse is told")
    assert not any(waiter.done() for waiter in waiters)
    reign.active_term.confirm_renewal(clock.now())
    await asyncio.wait_for(asyncio.gather(*waiters), 5)
    leader_id = reign.term.leader_id
    assert reign.events == [TrustLapsed("t", 0, leader_id), LeaderRefreshed("t", 0, leader_id)]


async def test_while_trusted_each_look_at_it_tells_nothing() -> None:
    reign = Reign()
    assert [reign.active_term.check_trust() for _ in range(3)] == [True] * 3
    assert reign.told == []


# --- its end


async def test_a_claim_that_is_lost_ends_the_term_and_asks_for_attention() -> None:
    reign = Reign()
    reign.claim.end_now()
    assert isinstance(reign.active_term.stop, Ended)
    assert isinstance(reign.active_term.stop.error, ClaimLost)
    assert reign.active_term.attention.is_set()
    assert not reign.active_term.is_trusted


async def test_a_claim_that_is_revoked_is_trusted_while_it_is_handed_over() -> None:
    reign = Reign()
    reign.claim.revoke()
    assert reign.active_term.is_trusted
    assert reign.active_term.stop == SHARED
    assert not reign.active_term.goes_on()
    assert reign.active_term.attention.is_set()


async def test_a_term_that_ended_is_distrusted_and_keeps_its_first_reason() -> None:
    reign = Reign()
    reign.active_term.end(errors.Fenced("first"))
    reign.active_term.end(ClaimLost("second"))
    assert not reign.active_term.is_trusted
    assert reign.active_term.stop is not None
    assert reign.active_term.stop.reason == "first"
    assert reign.active_term.attention.is_set()


async def test_what_broke_a_term_counts_more_than_what_the_election_wants_and_that_more_than_a_pause() -> (
    None
):
    reign = Reign()
    term = reign.active_term
    term.note_pause("a look", None, clock.now())
    assert term.stop == term.pause == Paused("a look")
    reign.claim.withdraw(STOPS)
    assert term.is_revoked
    assert str(term.stop) == str(STOPS)
    term.end(DatabaseUnavailable("cut"))
    assert isinstance(term.stop, Lost)
    with pytest.raises(DatabaseUnavailable, match="cut"):
        term.goes_on()
    assert reign.claim.withdrawn == STOPS, "the next term is not to begin"


async def test_the_first_reason_of_a_claim_counts_unless_nobody_waits_any_more() -> None:
    claim = FakeClaim()
    claim.withdraw(SHARED)
    claim.withdraw(STOPS)
    assert claim.withdrawn == SHARED
    claim.end_now()
    assert isinstance(claim.withdrawn, Ended)


async def test_the_end_of_a_term_is_no_lapse_of_trust() -> None:
    reign = Reign()
    reign.active_term.end(errors.Fenced("over"))
    assert not reign.active_term.check_trust()
    assert reign.told == []


async def test_a_renewal_that_is_answered_late_does_not_bring_a_term_back() -> None:
    reign = Reign()
    reign.active_term.end(errors.Fenced("over"))
    reign.active_term.confirm_renewal(clock.now())
    assert not reign.active_term.is_trusted


# --- wake-ups


async def test_pods_may_be_there_before_the_first_poll_and_after_each_wake_up() -> None:
    active_term = Reign().active_term
    assert active_term.woken
    active_term.woken = False
    active_term.wake()
    assert active_term.woken
    assert active_term.attention.is_set()


# --- tokens


async def test_tokens_grow_and_bear_the_epoch() -> None:
    active_term = Reign().active_term
    assert [active_term.next_token() for _ in range(3)] == [Token(100, 1), Token(100, 2), Token(100, 3)]


async def test_a_term_whose_tokens_are_used_up_is_over() -> None:
    active_term = Reign().active_term
    active_term._counter = (1 << COUNTER_BITS) - 2
    assert active_term.next_token() == Token(100, (1 << COUNTER_BITS) - 1)
    with pytest.raises(ClaimLost, match="tokens"):
        active_term.next_token()


# --- outages --------------------------------------------------------------------------------------


async def test_of_an_outage_the_latest_reason_counts_and_its_beginning_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reign, moment = Reign(), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    with capture_logs() as logs:
        for reason in ("connection refused", "HTTP 401", "HTTP 401", "certificate expired"):
            reign.active_term.note_down("sink", reason)
            moment[0] += 70
    told = reign.active_term.troubles.as_json()
    assert told == {"sink": {"reason": "certificate expired", "seconds": 280.0}}
    assert reign.told == ["SinkDown"], "an outage is told once"
    assert [(line["event"], line["what"], line["reason"], line["seconds"]) for line in logs] == [
        ("reason_changed", "sink", "HTTP 401", 70.0),
        ("reason_changed", "sink", "certificate expired", 210.0),
    ]
    reign.active_term.note_up("sink")
    assert reign.told == ["SinkDown", "SinkUp"]
    assert not reign.active_term.troubles.as_json()


async def test_reasons_that_change_with_each_attempt_are_no_flood_of_log_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reign, moment = Reign(), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    with capture_logs() as logs:
        for port in range(100):
            reign.active_term.note_down("source", f"from port {port}")
            moment[0] += 1
    assert len(logs) == 1
    assert reign.active_term.troubles.reason("source") == "from port 99"
