"""One consumer group for all tubes of an installation: a hundred tubes need no hundred consumers.

The leader topic has a fixed number of partitions. Each stands for the tube partitions that `slot_of` maps to
it: the member that the group gives the topic's partition to may lead all of them. The group confirms the
topic's partition, and so each claim that rests on it; who leads which tube partition, and how far, stands in
the database.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Mapping

from pytube import clock
from pytube.election.base import STOPS, Claim, Ended, Revoked
from pytube.election.neli.claim import GONE, NeliClaim
from pytube.election.neli.election import NeliElection
from pytube.errors import ClaimLost

_CARE = 0.25
"""Seconds between checks of the tubes' partitions and at claims that were given up."""
_OFFER_AGAIN = 1.0


def slot_of(tube: str, partition: int, slots: int) -> int:
    """The partition of the shared topic that stands for a tube's partition; the same in every process."""
    return (zlib.crc32(tube.encode()) + partition) % slots


class SharedClaim(Claim):
    """The right to lead a tube's partition, which rests on the claim of a partition of the shared topic."""

    def __init__(self, tube: str, partition: int, slot: NeliClaim) -> None:
        super().__init__(tube, partition)
        self._slot = slot

    async def prove(self) -> None:
        """Have the group confirm the slot; raises as `NeliClaim.prove`. Other claims of the slot stay."""
        self._refuse_when_over()
        try:
            await self._slot.confirm()
        except ClaimLost:
            self.lose()
            raise
        self._refuse_when_over()

    def handed_over(self) -> None:
        """The claim is over; if it was not withdrawn it is offered again, a little later."""
        super().handed_over()
        self._slot.news.set()  # the slot may be given back with its last claim


class _Slot:
    """A partition of the shared topic that the group gave us, and the claims that rest on it."""

    def __init__(self, claim: NeliClaim) -> None:
        self.claim = claim
        self.shares: dict[tuple[str, int], SharedClaim] = {}

    async def follow(self) -> None:
        """Withdraw the claims with the slot, and give it back once none of them is left."""
        while True:
            self.claim.news.clear()
            shares = list(self.shares.values())
            if isinstance(why := self.claim.withdrawn, Ended):
                for share in shares:
                    share.lose()
            elif isinstance(why, Revoked):
                for share in shares:
                    share.withdraw(why)
                if all(share.over_at is not None for share in shares):
                    self.claim.handed_over()
            if self.claim.over_at is not None:
                return
            await self.claim.news.wait()


class SharedElection:
    """The claims of all tubes of this process, by one group. See `pytube.election.base.Election`."""

    def __init__(self, neli: NeliElection, slots: int, partitions: Callable[[], Mapping[str, int]]) -> None:
        """Nothing is begun before `start`.

        Args:
            neli: the election of the shared topic's partitions.
            slots: how many partitions the shared topic has.
            partitions: how many partitions each tube has, 0 for one that does not exist.
        """
        self._neli = neli
        self._slots = slots
        self._partitions = partitions
        self._held: dict[int, _Slot] = {}
        self._queue: asyncio.Queue[SharedClaim | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Join the group; raises as `NeliElection.start`."""
        await self._neli.start()
        self._tasks = [asyncio.create_task(self._follow_slots()), asyncio.create_task(self._take_care())]

    async def claims(self) -> AsyncIterator[Claim]:
        """Claims, as they are granted; ends after `stop`."""
        while (claim := await self._queue.get()) is not None:
            if claim.withdrawn is not None:
                claim.handed_over()
            elif claim.over_at is None:
                yield claim
        self._queue.put_nowait(None)

    async def stop(self, why: Revoked = STOPS) -> None:
        """Withdraw all claims, wait until each is over (at most the drain limit), leave the group."""
        await self._neli.stop(why)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queue.put_nowait(None)

    def serves(self, tube: str) -> bool:
        """Whether it is one of the tubes."""
        return tube in self._partitions()

    def processes(self, tube: str) -> int | None:
        """Not known: a member of the group is not told who the others are."""
        return self._neli.processes(tube)

    def give_up(self, tube: str) -> None:
        """Hand over all partitions of all tubes, then leave the group."""
        self._neli.give_up(tube)

    def come_back(self, tube: str) -> None:
        """Join the group again."""
        self._neli.come_back(tube)

    async def _follow_slots(self) -> None:
        async for claim in self._neli.claims():
            assert isinstance(claim, NeliClaim)
            self._held[claim.partition] = slot = _Slot(claim)
            self._tasks.append(asyncio.create_task(slot.follow()))
            self._fill()

    async def _take_care(self) -> None:
        while True:
            await asyncio.sleep(_CARE)
            self._fill()

    def _fill(self) -> None:
        """Make the claims that are missing, and revoke those of partitions that are no more."""
        self._held = {n: slot for n, slot in self._held.items() if slot.claim.withdrawn is None}
        self._tasks = [task for task in self._tasks if not task.done()]
        wanted: dict[int, set[tuple[str, int]]] = {number: set() for number in self._held}
        for tube, count in self._partitions().items():
            for partition in range(count):
                number = slot_of(tube, partition, self._slots)
                if number in wanted:
                    wanted[number].add((tube, partition))
        for number, slot in self._held.items():
            self._fill_slot(slot, wanted[number])

    def _fill_slot(self, slot: _Slot, wanted: set[tuple[str, int]]) -> None:
        now = clock.now()
        for key, share in list(slot.shares.items()):
            if share.over_at is None:
                if key not in wanted:
                    share.withdraw(GONE)
            elif isinstance(share.withdrawn, Revoked) or now - share.over_at >= _OFFER_AGAIN:
                del slot.shares[key]
        if not slot.claim.is_assigned:
            return  # what is led goes on, and nothing new can be proved
        for key in sorted(wanted - slot.shares.keys()):
            slot.shares[key] = share = SharedClaim(*key, slot.claim)
            self._queue.put_nowait(share)
