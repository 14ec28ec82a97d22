"""A term that is led here: its trust, what it tells of it, its end, and its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube import clock
from pytube.errors import ClaimLost, Fenced
from pytube.events import Event, LeaderRefreshed, TrustLapsed
from pytube.model import COUNTER_BITS, Token
from pytube.sources.terms import Term
from pytube.worker import active_term as module
from pytube.worker.active_term import ActiveTerm
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
        self.claim.watch(self.active_term.on_claim)

    @property
    def told(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


# --- how long it is trusted: until a deadline after the older of two proofs was sent


moments = st.floats(0, 1e6)


async def test_the_acquire_is_the_first_proof() -> None:
    assert Reign(5.0, sent_at=100.0).active_term.trusted_until() == 105.0


async def test_without_a_proof_of_the_election_there_is_no_trust() -> None:
    reign = Reign(5.0, sent_at=100.0)
    reign.claim.proof = float("-inf")
    assert reign.active_term.trusted_until() == float("-inf")


async def test_a_proof_of_one_of_the_two_is_not_enough() -> None:
    reign = Reign(5.0, sent_at=100.0)
    reign.claim.proof = 200.0
    assert reign.active_term.trusted_until() == 105.0, "the database has not confirmed since"
    reign.active_term.confirm_renewal(300.0)
    assert reign.active_term.trusted_until() == 205.0, "the election has not proved since"


async def test_an_answer_that_was_overtaken_takes_no_trust_away() -> None:
    active_term = Reign(5.0, sent_at=100.0).active_term
    active_term.confirm_renewal(104.0)
    active_term.confirm_renewal(102.0)
    assert active_term.trusted_until() == 109.0


@given(moments, st.lists(moments), moments)
def test_trust_is_never_longer_than_a_deadline_after_the_older_proof(
    first: float, renewals: list[float], proven_at: float
) -> None:
    reign = Reign(5.0, first)
    for sent_at in renewals:
        reign.active_term.confirm_renewal(sent_at)
    reign.claim.proof = proven_at
    assert reign.active_term.trusted_until() == min(max([first, *renewals]), proven_at) + 5.0


# --- trust that lapses, and comes back


async def test_while_trusted_nothing_is_waited_for_or_told() -> None:
    reign = Reign()
    await reign.active_term.wait_until_trusted()
    assert reign.told == []


async def test_a_lapse_and_its_end_are_told_once_however_many_wait() -> None:
    reign = Reign()
    reign.claim.proof = float("-inf")
    waiters = [asyncio.create_task(reign.active_term.wait_until_trusted()) for _ in range(3)]
    await wait_until_async(lambda: reign.told, what="the lapse is told")
    assert not any(waiter.done() for waiter in waiters)
    reign.claim.proof = clock.now()
    await asyncio.wait_for(asyncio.gather(*waiters), 5)
    leader_id = reign.term.leader_id
    assert reign.events == [TrustLapsed("t", 0, leader_id), LeaderRefreshed("t", 0, leader_id)]


async def test_while_trusted_each_look_at_it_tells_nothing() -> None:
    reign = Reign()
    assert [reign.active_term.check_trust() for _ in range(3)] == [True] * 3
    assert reign.told == []


# --- its end


async def test_a_claim_that_is_lost_is_distrusted_at_once() -> None:
    reign = Reign()
    reign.claim.lost.set()
    assert not reign.active_term.is_trusted


async def test_a_claim_that_is_lost_ends_the_term_and_asks_for_attention() -> None:
    reign = Reign()
    reign.claim.lose()
    assert isinstance(reign.active_term.ended, ClaimLost)
    assert reign.active_term.attention.is_set()


async def test_a_claim_that_is_revoked_is_trusted_while_it_is_handed_over() -> None:
    reign = Reign()
    reign.claim.revoke()
    assert reign.active_term.is_trusted
    assert reign.active_term.is_revoked
    assert reign.active_term.ended is None
    assert reign.active_term.attention.is_set()


@pytest.mark.parametrize("change", [FakeClaim.revoke, FakeClaim.lose])
async def test_who_watches_a_claim_that_is_revoked_or_lost_already_is_told_at_once(
    change: Callable[[FakeClaim], None],
) -> None:
    claim, calls = FakeClaim(), list[bool]()
    change(claim)
    claim.watch(lambda: calls.append(True))
    assert calls == [True]


async def test_a_term_that_ended_is_distrusted_and_keeps_its_first_reason() -> None:
    reign = Reign()
    reign.active_term.end(Fenced("first"))
    reign.active_term.end(ClaimLost("second"))
    assert not reign.active_term.is_trusted
    assert str(reign.active_term.ended) == "first"
    assert reign.active_term.attention.is_set()


async def test_the_end_of_a_term_is_no_lapse_of_trust() -> None:
    reign = Reign()
    reign.active_term.end(Fenced("over"))
    assert not reign.active_term.check_trust()
    assert reign.told == []


async def test_a_renewal_that_is_answered_late_does_not_bring_a_term_back() -> None:
    reign = Reign()
    reign.active_term.end(Fenced("over"))
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
    with pytest.raises(Fenced, match="tokens"):
        active_term.next_token()
