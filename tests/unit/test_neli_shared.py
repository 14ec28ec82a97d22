"""Claims of many tubes that rest on one partition of a shared leader topic."""

from __future__ import annotations

import pytest

from pytube import clock
from pytube.election.base import Ended, Revoked
from pytube.election.neli import ClaimBoard, NeliClaim, slot_of
from pytube.errors import ClaimLost


class Board:
    """The board of tubes whose partitions all rest on slot 0, and what it has offered."""

    def __init__(self, *tubes: str) -> None:
        self.offered: list[NeliClaim] = []
        self.asked: list[int] = []
        self.board = ClaimBoard(self._ask, self.offered.append)
        self.serve(*tubes)

    def serve(self, *tubes: str) -> None:
        self.board.serve({(tube, 0): 0 for tube in tubes})

    async def _ask(self, slot: int) -> None:
        self.asked.append(slot)

    @property
    def tubes(self) -> list[str]:
        return [claim.tube for claim in self.offered]


async def test_who_was_lost_by_the_group_keeps_the_other_claims_and_gets_no_new_ones() -> None:
    group = Board("a", "b")
    assert not group.offered, "the group has given nothing yet"
    group.board.assign([0])
    one, two = group.offered
    await one.prove()
    assert group.asked == [0]
    group.board.note_lost([0])
    with pytest.raises(ClaimLost):
        await one.prove()
    assert isinstance(one.withdrawn, Ended)
    assert two.withdrawn is None
    group.serve("a", "b", "c")
    assert group.tubes == ["a", "b"], "nothing new could be proved"
    group.board.assign([0])
    assert group.tubes == ["a", "b", "a", "c"]
    await two.prove()


async def test_a_slot_that_the_group_wants_back_is_given_with_its_last_claim() -> None:
    group = Board("a", "b")
    group.board.assign([0, 1])
    waiting = group.board.withdraw([0])
    assert waiting == group.offered
    assert all(isinstance(claim.withdrawn, Revoked) for claim in waiting)
    assert group.board.withdraw([1]) == []
    for claim in waiting:
        claim.handed_over()
    group.board.assign([0])
    assert group.tubes == ["a", "b", "a", "b"]


async def test_a_claim_of_a_tube_that_is_gone_is_withdrawn_and_the_others_stay() -> None:
    group = Board("a", "b")
    group.board.assign([0])
    one, two = group.offered
    group.serve("b")
    assert isinstance(one.withdrawn, Revoked)
    assert two.withdrawn is None


async def test_what_the_worker_gave_up_by_itself_is_offered_again_a_little_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Board("a", "b")
    group.board.assign([0])
    group.offered[0].handed_over()
    group.serve("a", "b")
    assert group.tubes == ["a", "b"]
    later = clock.now() + 1.0
    monkeypatch.setattr(clock, "now", lambda: later)
    group.serve("a", "b")
    assert group.tubes == ["a", "b", "a"]


async def test_partitions_of_a_tube_are_spread_over_the_slots() -> None:
    assert {slot_of("a", partition, 4) for partition in range(4)} == {0, 1, 2, 3}
    assert slot_of("a", 0, 1000) != slot_of("b", 0, 1000)
