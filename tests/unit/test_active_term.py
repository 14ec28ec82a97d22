"""A active_term: its trust, what it tells of it, and its tokens."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest
from pytube.pipeline.term_deadline import TermDeadline

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
    """A active_term that is trusted, and what it told."""

    def __init__(self) -> None:
        self.claim = FakeClaim()
        self.events: list[Event] = []
        self.deadline = TermDeadline(1000.0, monotonic())
        self.term = Term("t", 1, 0, epoch=100)
        self.active_term = ActiveTerm(self.term, self.claim, self.deadline, self.events.append)

    @property
    def told(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


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
    reign.claim.proof = monotonic()
    await asyncio.wait_for(asyncio.gather(*waiters), 5)
    leader_id = reign.term.leader_id
    assert reign.events == [TrustLapsed("t", 0, leader_id), LeaderRefreshed("t", 0, leader_id)]


async def test_a_claim_that_is_lost_is_distrusted_at_once() -> None:
    reign = Reign()
    reign.claim.lost.set()
    assert not reign.active_term.is_trusted


async def test_a_claim_that_is_revoked_is_trusted_while_it_is_handed_over() -> None:
    reign = Reign()
    reign.claim.revoked.set()
    assert reign.active_term.is_trusted


async def test_a_term_that_ended_is_distrusted_and_keeps_its_first_reason() -> None:
    reign = Reign()
    reign.active_term.end(Fenced("first"))
    reign.active_term.end(ClaimLost("second"))
    assert not reign.active_term.is_trusted
    assert str(reign.active_term.ended.result()) == "first"


async def test_tokens_grow_and_bear_the_epoch() -> None:
    active_term = Reign().active_term
    assert [active_term.next_token() for _ in range(3)] == [Token(100, 1), Token(100, 2), Token(100, 3)]


async def test_a_term_whose_tokens_are_used_up_is_over() -> None:
    active_term = Reign().active_term
    active_term._counter = (1 << COUNTER_BITS) - 2
    assert active_term.next_token() == Token(100, (1 << COUNTER_BITS) - 1)
    with pytest.raises(Fenced, match="tokens"):
        active_term.next_token()
