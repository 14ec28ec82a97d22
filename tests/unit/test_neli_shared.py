"""Claims of many tubes that rest on one partition of a shared leader topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from pytube.election.base import Claim, Ended
from pytube.election.neli import NeliElection, SharedElection
from pytube.election.neli.claim import NeliClaim
from pytube.errors import ClaimLost


class OneSlot:
    """An election that gives one partition, and never ends."""

    def __init__(self) -> None:
        self.claim = NeliClaim("all tubes", 0, loop=asyncio.get_running_loop(), ask=self._answer)
        self.asked = 0

    async def _answer(self, _partition: int) -> None:
        self.asked += 1

    async def start(self) -> None:
        """It has begun."""

    async def claims(self) -> AsyncIterator[Claim]:
        yield self.claim
        await asyncio.Event().wait()

    async def stop(self, why: object = None) -> None:  # the contract's
        """Nothing is left to be done."""


async def test_who_was_lost_by_the_group_keeps_the_other_claims_and_gets_no_new_ones() -> None:
    slot, tubes = OneSlot(), {"a": 1, "b": 1}
    election = SharedElection(cast("NeliElection", slot), 1, lambda: tubes)
    await election.start()
    try:
        claims = election.claims()
        one, two = await anext(claims), await anext(claims)
        await one.prove()
        assert slot.asked == 1
        slot.claim.is_assigned = False
        with pytest.raises(ClaimLost):
            await one.prove()
        assert isinstance(one.withdrawn, Ended)
        assert two.withdrawn is None
        assert slot.claim.over_at is None, "the other claims rest on it"
        tubes["c"] = 1
        election._fill()
        assert election._queue.empty(), "nothing new could be proved"
        slot.claim.is_assigned = True
        election._fill()
        assert (await anext(claims)).tube == "c"
        await two.prove()
    finally:
        await election.stop()
