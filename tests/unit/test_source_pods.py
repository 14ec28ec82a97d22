"""What a term's source knows of its floors."""

from __future__ import annotations

from pytube.sources.pods import TubeSource
from pytube.sources.settled import Settled
from pytube.sources.terms import Term
from tests.unit.fakes import FakeSession, FakeTube


async def test_pods_that_were_given_back_are_marked_again_by_the_same_term() -> None:
    tube = FakeTube()
    term = Term("t", 1, 0, epoch=1)
    tube.leader_id = term.leader_id
    source = TubeSource(FakeSession(tube), term)
    first, second = tube.insert(1), tube.insert(2)
    settled = Settled(FakeSession(tube))
    await settled.advance()
    assert settled.seq == second
    assert [pod.seq for pod in await source.mark(10, settled)] == [first, second]
    assert await source.mark(10, settled) == []
    await source.reset([first])
    assert [pod.seq for pod in await source.mark(10, settled)] == [first]
