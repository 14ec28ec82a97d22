"""A leadership hands its claim over whatever is down, so that nobody waits for it."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from pytube.sources.session import Session
from pytube.worker.runner import TubeRunner

from pytube.errors import UsageError, WrongPartitions
from pytube.sources import terms
from pytube.worker.leadership import Leadership
from tests.unit.fakes import FakeClaim, FakeSession, FakeTube


class WatchedClaim(FakeClaim):
    """Notes that it was handed over."""

    def __init__(self) -> None:
        super().__init__()
        self.is_handed_over = False

    def handed_over(self) -> None:
        self.is_handed_over = True


class FakeRunner:
    """A runner, and the database of it, as far as a leadership without a term asks for them."""

    tube = "t"
    partitions = 1

    def __init__(self, session: Session | None) -> None:
        self.control_now = session
        self.database = self
        self.told: list[str] = []

    async def control(self) -> Session:
        assert self.control_now is not None, "a leadership waits for a database that is down"
        return self.control_now

    async def reload_partitions(self) -> None:
        raise UsageError("there is no tube 't'")

    def warn(self, message: str, **_: object) -> None:
        self.told.append(message)


async def test_a_claim_that_is_revoked_while_the_database_is_down_is_handed_over() -> None:
    claim = WatchedClaim()
    running = asyncio.create_task(Leadership(cast("TubeRunner", FakeRunner(None)), claim).run())
    await asyncio.sleep(0)
    assert not running.done()
    claim.revoked.set()
    await asyncio.wait_for(running, 5)
    assert claim.is_handed_over


async def test_a_term_that_cannot_be_released_does_not_hold_the_claim_up() -> None:
    claim = WatchedClaim()
    leadership = Leadership(cast("TubeRunner", FakeRunner(None)), claim)
    leadership._unreleased = terms.Term("t", 1, 0, epoch=1)
    claim.revoked.set()
    await asyncio.wait_for(leadership.run(), 5)
    assert claim.is_handed_over


async def test_a_tube_that_is_dropped_ends_the_leadership_and_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def moved(*_: object) -> int:
        raise WrongPartitions("the tube has other partitions")

    monkeypatch.setattr(terms, "read_epoch", moved)
    claim = WatchedClaim()
    runner = FakeRunner(FakeSession(FakeTube()))
    await asyncio.wait_for(Leadership(cast("TubeRunner", runner), claim).run(), 5)
    assert claim.is_handed_over
    assert runner.told == ["there is no tube 't'"]
