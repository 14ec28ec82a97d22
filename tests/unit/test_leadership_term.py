"""How a term begins and ends: the order of its steps is what makes it safe."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import cast

import pytest
from pytube.sources.session import Session
from pytube.worker.runner import TubeRunner

from pytube.faults import InjectedFault
from pytube.model import Batch, Token
from pytube.sources import terms
from pytube.sources.terms import Candidate, Term
from pytube.worker.leadership import Leadership
from pytube.worker.partition_worker import PartitionWorker
from tests.unit.fakes import FakeClaim, FakeSession, FakeTube
from tests.unit.rig import LIMITS, Rig


class Steps(FakeClaim):
    """Notes in which order the database and the election are asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.taken: list[str] = []
        self.acquired_at = 0.0
        self.left = [0.02, 0.01, 0.0]
        monkeypatch.setattr(terms, "read_epoch", self.read_epoch)
        monkeypatch.setattr(terms, "acquire", self.acquire)
        monkeypatch.setattr(terms, "wait_left", self.wait_left)
        monkeypatch.setattr(terms, "release", self.release)

    async def prove(self) -> None:
        self.taken.append("prove")

    async def read_epoch(self, *_: object) -> int:
        self.taken.append("read")
        return 1

    async def acquire(self, *_: object) -> Term:
        self.taken.append("acquire")
        self.acquired_at = time.monotonic()
        await asyncio.sleep(0)
        return Term("t", 1, 0, epoch=2)

    async def wait_left(self, *_: object) -> float:
        self.taken.append("wait")
        return self.left.pop(0)

    async def release(self, *_: object) -> bool:
        self.taken.append("release")
        return True


@dataclass
class FakeRunner:
    """As much of a runner as a term's beginning and end ask for."""

    tube: str = "t"
    partitions: int = 1
    limits: object = LIMITS
    candidate: Candidate = field(
        default_factory=lambda: Candidate(Term("t", 1, 0, 0).leader_id, "tester", "lease", 15.0, 15.0)
    )
    session: Session = field(default_factory=lambda: FakeSession(FakeTube()))

    @property
    def database(self) -> FakeRunner:
        return self

    async def control(self) -> Session:
        return self.session

    stopping: bool = True
    partition_worker: PartitionWorker | None = None

    async def open_session(self, _purpose: str, *, durable: bool) -> Session:
        assert not durable, "marks and purges need not be"
        return self.session

    def make_partition_worker(self, *_: object) -> PartitionWorker:
        assert self.partition_worker is not None
        return self.partition_worker

    def emit(self, _: object) -> None:
        """Nobody listens."""


@pytest.fixture
async def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.fixture
async def leadership(steps: Steps) -> Leadership:
    return Leadership(cast("TubeRunner", FakeRunner()), steps)


async def test_the_epoch_is_read_before_the_right_to_lead_is_proved(
    steps: Steps, leadership: Leadership
) -> None:
    await leadership._begin(FakeSession(FakeTube()))
    assert steps.taken == ["read", "prove", "acquire"]


async def test_the_first_trust_counts_from_when_the_acquire_was_sent(
    steps: Steps, leadership: Leadership
) -> None:
    active_term = await leadership._begin(FakeSession(FakeTube()))
    assert active_term.trusted_until() <= steps.acquired_at + LIMITS.receive_deadline


async def test_it_waits_until_no_earlier_term_can_write(steps: Steps, leadership: Leadership) -> None:
    session = FakeSession(FakeTube())
    await leadership._wait_for_earlier_terms(session, await leadership._begin(session))
    assert steps.taken[3:] == ["wait"] * 3
    assert steps.left == []


async def test_a_term_is_released_when_nothing_can_come_late(steps: Steps, leadership: Leadership) -> None:
    active_term = await leadership._begin(FakeSession(FakeTube()))
    await leadership._end(active_term, "over")
    assert steps.taken[3:] == ["release"]


async def test_a_term_whose_write_may_come_late_is_not_released(steps: Steps, leadership: Leadership) -> None:
    active_term = await leadership._begin(FakeSession(FakeTube()))
    active_term.unanswered.add(Batch("t", 0, Token(2, 1), []))
    await leadership._end(active_term, "over")
    assert steps.taken[3:] == []


async def test_a_worker_that_nobody_watches_any_more_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def strike(*_: object) -> None:
        raise InjectedFault("the watcher fails")

    monkeypatch.setattr("pytube.worker.leadership.fault", strike)
    rig = Rig()
    await rig.sink.open()
    leadership = Leadership(
        cast("TubeRunner", FakeRunner(session=rig.session, partition_worker=rig.worker)), rig.claim
    )
    working = asyncio.create_task(leadership._work(rig.active_term))
    await asyncio.sleep(0)
    rig.claim.revoked.set()
    with pytest.raises(InjectedFault):
        await asyncio.wait_for(working, 5)
