"""The circuit breaker: each failure is told, the back-off grows with each probe, a success closes it."""

from __future__ import annotations

import pytest

from pytube import clock
from pytube.events import Event, SinkDown, SinkUp
from pytube.pipeline import retry_queue
from pytube.sources.terms import Term
from pytube.worker.active_term import ActiveTerm
from pytube.worker.delivery import CircuitBreaker
from tests.unit.fakes import FakeClaim


class Watched:
    """A circuit breaker, and what it told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.term = ActiveTerm(
            Term("t", 1, 0, epoch=1),
            FakeClaim(),
            deadline=1000.0,
            sent_at=clock.now(),
            emit=self.events.append,
        )
        self.breaker = CircuitBreaker(self.term, "sink")

    @property
    def told(self) -> list[type[Event]]:
        return [type(event) for event in self.events]


async def test_a_success_of_a_closed_circuit_tells_nothing() -> None:
    watched = Watched()
    assert watched.breaker.succeed() is None
    assert watched.breaker.is_closed
    assert watched.told == []


async def test_each_failure_is_told_to_the_term_and_the_end_once() -> None:
    watched = Watched()
    for reason in ("down", "still down", "down again"):
        watched.breaker.fail(reason)
        assert watched.term.troubles.reason("sink") == reason
    assert not watched.breaker.is_closed
    watched.term.attention.clear()
    seconds = watched.breaker.succeed()
    assert seconds is not None
    assert seconds > 0
    assert watched.term.attention.is_set(), "what waits may begin"
    assert watched.breaker.succeed() is None
    assert watched.told == [SinkDown, SinkUp]


async def test_a_second_outage_is_told_again() -> None:
    watched = Watched()
    watched.breaker.fail("down")
    watched.breaker.succeed()
    watched.breaker.fail("down again")
    assert watched.told == [SinkDown, SinkUp, SinkDown]
    assert not watched.breaker.is_closed


async def test_sends_that_failed_together_count_as_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 20.0)
    watched = Watched()
    for _ in range(50):
        watched.breaker.fail("down")
    assert watched.breaker._failures == 1


async def test_the_back_off_grows_with_each_probe_and_begins_anew_with_each_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 1.0)
    watched = Watched()
    breaker = watched.breaker
    pauses = []
    for _ in range(3):
        breaker.fail("down")
        pauses.append(breaker.next_probe)
        breaker.next_probe = 0.0  # its time has come
    assert pauses == sorted(pauses)
    assert breaker._failures == 3
    breaker.succeed()
    breaker.fail("down again")
    assert breaker._failures == 1


async def test_a_probe_that_failed_is_known_and_what_was_under_way_before_is_none() -> None:
    watched = Watched()
    breaker = watched.breaker
    breaker.fail("down", begun=0.0)
    opened = breaker._opened_at
    breaker.fail("down", begun=opened - 1)
    assert breaker.refused_at == float("-inf")
    breaker.fail("down", begun=opened + 1)
    assert breaker.refused_at == opened + 1


async def test_an_outage_of_an_earlier_worker_of_the_term_ends_with_the_first_success() -> None:
    watched = Watched()
    watched.breaker.fail("down")
    after_a_pause = CircuitBreaker(watched.term, "sink")
    assert after_a_pause.is_closed
    after_a_pause.succeed()
    assert watched.told == [SinkDown, SinkUp]


async def test_the_next_try_of_an_outage_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 20.0)
    watched = Watched()
    watched.breaker.fail("down")
    told = watched.term.troubles.as_json()["sink"]
    assert 10.0 < told["left"] <= 25.0
    watched.breaker.succeed()
    watched.term.troubles.note("sink", "another, of which that is not known")
    assert "left" not in watched.term.troubles.as_json()["sink"]
