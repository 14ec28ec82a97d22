"""One consumer group for all tubes of an installation: a hundred tubes need no hundred consumers.

The leader topic has a fixed number of partitions. Each stands for the tube partitions that `slot_of` maps to
it: the member that the group gives the topic's partition to may lead all of them. Heartbeats prove the
topic's partition, and so all claims that rest on it; who leads which tube partition, and how far, stands in
the database.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from uuid import uuid4

from pytube import clock
from pytube.election.base import Claim
from pytube.election.neli.claim import NeliClaim
from pytube.election.neli.election import NeliElection
from pytube.errors import ClaimLost
from pytube.model import Heartbeat

_CARE = 0.25
"""Seconds between checks of the tubes' partitions and at claims that were given up."""
_OFFER_AGAIN = 1.0


def slot_of(tube: str, partition: int, slots: int) -> int:
    """The partition of the shared topic that stands for a tube's partition; the same in every process."""
    return (zlib.crc32(tube.encode()) + partition) % slots


class SharedClaim(Claim):
    """The right to lead a tube's partition, which rests on the claim of a partition of the shared topic."""

    def __init__(self, tube: str, partition: int, slot: NeliClaim, on_over: Callable[[], None]) -> None:
        """Args: on_over: called when the worker has handed the claim over, or it is lost."""
        super().__init__(tube, partition)
        self.over_at: float | None = None
        """When the claim was over, by `pytube.clock`; None while it is not."""
        self._slot = slot
        self._on_over = on_over

    async def prove(self) -> None:
        """Have the coordinator check the slot; raises as `NeliClaim.prove`."""
        if self.revoked.is_set():
            self.lose()
        if self.over_at is None:
            await self._slot.prove()
        if self.over_at is not None:
            raise ClaimLost(f"the right to lead partition {self.partition} was taken away or given back")

    def proven_at(self) -> float:
        """When the last proof of the slot that has come back was sent; minus infinity once lost."""
        return -math.inf if self.lost.is_set() else self._slot.proven_at()

    def beat(self, heartbeat: Heartbeat | None) -> None:
        """Nothing is sent for a single claim: the slot has heartbeats of its own."""

    def handed_over(self) -> None:
        """The claim is over; if it was not revoked it is offered again, a little later."""
        if self.over_at is None:
            self.over_at = clock.now()
            self._on_over()

    def revoke(self) -> None:
        """Ask the worker to give the right back."""
        if not self.revoked.is_set():
            self._set_revoked()

    def lose(self) -> None:
        """The right is gone."""
        if self.over_at is None:
            self._set_lost()
            self.handed_over()


class _Slot:
    """A partition of the shared topic that the group gave us, and the claims that rest on it."""

    def __init__(self, claim: NeliClaim) -> None:
        self.claim = claim
        self.shares: dict[tuple[str, int], SharedClaim] = {}
        claim.watch(self.on_change)

    def on_change(self) -> None:
        for share in list(self.shares.values()):
            if self.claim.lost.is_set():
                share.lose()
            else:
                share.revoke()
        self.hand_over_if_done()

    def hand_over_if_done(self) -> None:
        """Give the slot back once the group wants it and none of its claims is left."""
        if self.claim.revoked.is_set() and all(one.over_at is not None for one in self.shares.values()):
            self.claim.handed_over()

    @property
    def is_over(self) -> bool:
        return self.claim.revoked.is_set() or self.claim.lost.is_set()


class SharedElection:
    """The claims of all tubes of this process, by one group. See `pytube.election.base.Election`."""

    def __init__(
        self, neli: NeliElection, slots: int, client_id: str, partitions: Callable[[], Mapping[str, int]]
    ) -> None:
        """Nothing is begun before `start`.

        Args:
            neli: the election of the shared topic's partitions.
            slots: how many partitions the shared topic has.
            client_id: a label for people, in heartbeats.
            partitions: how many partitions each tube has, 0 for one that does not exist.
        """
        self._neli = neli
        self._slots = slots
        self._client_id = client_id
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
            if claim.revoked.is_set():
                claim.handed_over()
            elif claim.over_at is None:
                yield claim
        self._queue.put_nowait(None)

    async def stop(self) -> None:
        """Revoke all claims, wait until each is over (at most the drain limit), leave the group."""
        await self._neli.stop()
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
            claim.beat(Heartbeat(self._client_id, uuid4(), 0, 0, 0.0))
            self._held[claim.partition] = _Slot(claim)
            self._fill()

    async def _take_care(self) -> None:
        while True:
            await asyncio.sleep(_CARE)
            self._fill()

    def _fill(self) -> None:
        """Make the claims that are missing, and revoke those of partitions that are no more."""
        self._held = {number: slot for number, slot in self._held.items() if not slot.is_over}
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
                    share.revoke()
            elif share.revoked.is_set() or now - share.over_at >= _OFFER_AGAIN:
                del slot.shares[key]
        for key in sorted(wanted - slot.shares.keys()):
            slot.shares[key] = share = SharedClaim(*key, slot.claim, slot.hand_over_if_done)
            self._queue.put_nowait(share)
