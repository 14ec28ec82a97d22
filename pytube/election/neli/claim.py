"""A claim under NELI, and the board of all claims of this process.

The worker uses a claim in the event loop, and the thread that polls uses it, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping

from pytube import clock
from pytube.election.base import SHARED, Claim, Revoked
from pytube.errors import ClaimLost

GONE = Revoked("the tube has the partition no more")
_GIVEN_UP = Revoked("this process leaves the tube to others")

Ask = Callable[[int], Awaitable[None]]
"""Asks the coordinator about a slot. `ClaimLost`, `BrokerUnavailable`."""
Place = tuple[str, int]
"""A tube, and a partition of it."""


class NeliClaim(Claim):
    """The right to lead one partition, as the group has given it. See `pytube.election.base.Claim`.

    A group that loses this process, or can't be reached, ends no claim: led partitions stay led while the
    database renews them, until another member acquires. Only a new term needs the group's word.
    """

    def __init__(
        self, tube: str, partition: int, slot: int, *, loop: asyncio.AbstractEventLoop, ask: Ask
    ) -> None:
        """`slot`: the partition of the leader topic that stands for this one; `ask`: called by `prove`."""
        super().__init__(tube, partition)
        self.slot = slot
        self.is_assigned = True
        """Whether the slot is this member's in the group's known generation; the board says so."""
        self._loop = loop
        self._ask = ask

    async def prove(self) -> None:
        """Commit an offset; the coordinator checks the generation, and this method that it gave the slot.

        Raises:
            ClaimLost: the right is gone, and the claim over. Others that rest on the slot stay.
            BrokerUnavailable: no answer in time. Ask again.
        """
        try:
            self._refuse_when_over()
            await self._ask(self.slot)
            self._refuse_when_over()
        except ClaimLost:
            self.end_now()
            raise

    def _refuse_when_over(self) -> None:
        super()._refuse_when_over()
        if not self.is_assigned:
            raise ClaimLost(f"the group has taken partition {self.partition} away")

    def _tell(self) -> None:
        """In the loop, which is where the worker waits."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self.news.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.news.set)


class ClaimBoard:
    """Makes claims of the tubes' partitions whose slot is assigned to this member.

    Two threads use it: the polling thread reports the group's assignments, the event loop the existing
    partitions.
    """

    def __init__(
        self,
        make: Callable[[str, int, int], NeliClaim],
        offer: Callable[[NeliClaim], None],
        offer_again_after: float,
    ) -> None:
        """No slot is assigned yet, and there is no partition.

        `make`: a new claim of a tube's partition, that rests on a slot; `offer`: gives it to the worker, in
        either thread; `offer_again_after`: seconds until a claim that the worker gave up on its own is
        renewed.
        """
        self._make = make
        self._offer = offer
        self._pause = offer_again_after
        self._lock = threading.RLock()
        self._slots: Mapping[Place, int] = {}
        self._assigned: set[int] = set()
        self._claims: dict[Place, NeliClaim] = {}
        self._closed = False
        self._paused = False

    # --- what the group says --------------------------------------------------------------

    def assign(self, slots: Iterable[int]) -> None:
        """The group gave us these."""
        with self._lock:
            new = set(slots)
            self._assigned |= new
            for place, claim in list(self._claims.items()):
                if claim.slot in new and claim.over_at is not None:
                    del self._claims[place]
                elif claim.slot in new:
                    claim.is_assigned = True
            self._fill()

    def withdraw(self, slots: Iterable[int]) -> list[NeliClaim]:
        """The group wants these back: withdraws their claims, and returns those to wait for."""
        with self._lock:
            wanted = set(slots)
            self._assigned -= wanted
            return self._withdraw(SHARED, lambda claim: claim.slot in wanted)

    def note_lost(self, slots: Iterable[int] | None = None) -> None:
        """The group has taken these away, or all: they are claimed no more, and their claims prove nothing.

        Terms continue; another member that acquires a partition ends this process's term.
        """
        with self._lock:
            lost = set(self._assigned if slots is None else slots)
            self._assigned -= lost
            for claim in self._claims.values():
                if slots is None or claim.slot in lost:
                    claim.is_assigned = False

    # --- what the event loop says ---------------------------------------------------------

    def serve(self, slots: Mapping[Place, int]) -> None:
        """These are the partitions now, each with its slot: withdraws and makes claims accordingly.

        To be called now and then: claims that the worker gave up a while ago are made again.
        """
        with self._lock:
            if slots is not self._slots:
                self._slots = slots
                self._withdraw(GONE, lambda claim: (claim.tube, claim.partition) not in slots)
            self._fill()

    def pause(self) -> list[NeliClaim]:
        """Make no claims until `resume`, and withdraw all; returns those to wait for."""
        with self._lock:
            self._paused = True
            return self._withdraw(_GIVEN_UP)

    def resume(self) -> None:
        """Make claims again, of what the group gives us from now on."""
        with self._lock:
            self._paused = False

    def close(self, why: Revoked) -> list[NeliClaim]:
        """Make no more claims, and withdraw all; returns those to wait for."""
        with self._lock:
            self._closed = True
            return self._withdraw(why)

    def _withdraw(self, why: Revoked, which: Callable[[NeliClaim], bool] = lambda _: True) -> list[NeliClaim]:
        claims = [claim for claim in self._claims.values() if claim.over_at is None and which(claim)]
        for claim in claims:
            claim.withdraw(why)
        return claims

    def _fill(self) -> None:
        if self._closed or self._paused:
            return
        now = clock.now()
        for place, slot in self._slots.items():
            if slot in self._assigned and self._may_claim(place, now):
                self._claims[place] = claim = self._make(*place, slot)
                self._offer(claim)

    def _may_claim(self, place: Place, now: float) -> bool:
        before = self._claims.get(place)
        if before is None:
            return True
        if before.over_at is None:
            return False
        return isinstance(before.withdrawn, Revoked) or now - before.over_at >= self._pause
