"""A claim under NELI, and the board of all claims of this process.

The worker uses a claim in the event loop, and the thread that polls uses it, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable

from pytube import clock
from pytube.election.base import SHARED, Claim, Revoked
from pytube.errors import ClaimLost

GONE = Revoked("the tube has the partition no more")
_GIVEN_UP = Revoked("this process leaves the tube to others")

Ask = Callable[[int], Awaitable[None]]
"""Asks the coordinator whether we are a member in good standing. `ClaimLost`, `BrokerUnavailable`."""


class NeliClaim(Claim):
    """The right to lead one partition, as the group has given it. See `pytube.election.base.Claim`.

    A group that loses this process, or can't be reached, ends no claim: what is led stays led while the
    database renews it, until another member acquires. Only a new term needs the group's word.
    """

    def __init__(self, tube: str, partition: int, *, loop: asyncio.AbstractEventLoop, ask: Ask) -> None:
        """Args: loop: where the worker is; ask: called by `confirm`."""
        super().__init__(tube, partition)
        self.is_assigned = True
        """Whether the partition is ours in the group's generation that we know; the board says so."""
        self._loop = loop
        self._ask = ask

    async def prove(self) -> None:
        """Have the group confirm that the partition is ours; see `confirm`. Else the claim is over."""
        try:
            await self.confirm()
        except ClaimLost:
            self.lose()
            raise

    async def confirm(self) -> None:
        """Commit an offset; the coordinator checks our generation, and we that it gave us the partition.

        Raises:
            ClaimLost: the right is gone.
            BrokerUnavailable: no answer in time. Ask again.
        """
        self._refuse_when_over()
        await self._ask(self.partition)
        self._refuse_when_over()

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
    """Makes claims of partitions that are both assigned to us and partitions of the tube.

    Two threads use it: the one that polls tells what the group says, the event loop how many
    partitions the tube has.
    """

    def __init__(
        self,
        partitions: int,
        make: Callable[[int], NeliClaim],
        offer: Callable[[NeliClaim], None],
        offer_again_after: float,
    ) -> None:
        """No partition is assigned yet.

        Args:
            partitions: how many the tube has.
            make: a new claim of a partition.
            offer: gives a claim to the worker; called in either thread.
            offer_again_after: seconds until a claim that the worker gave up by itself is renewed.
        """
        self._partitions = partitions
        self._make = make
        self._offer = offer
        self._pause = offer_again_after
        self._lock = threading.RLock()
        self._assigned: set[int] = set()
        self._claims: dict[int, NeliClaim] = {}
        self._closed = False
        self._paused = False

    def live(self) -> list[NeliClaim]:
        """The claims that are not over; those under hand-over too."""
        with self._lock:
            return [claim for claim in self._claims.values() if claim.over_at is None]

    def assign(self, partitions: Iterable[int]) -> None:
        """The group gave us these."""
        with self._lock:
            for partition in partitions:
                self._assigned.add(partition)
                claim = self._claims.get(partition)
                if claim is not None and claim.over_at is not None:
                    del self._claims[partition]
                elif claim is not None:
                    claim.is_assigned = True
            self._fill(clock.now())

    def withdraw(self, partitions: Iterable[int]) -> list[NeliClaim]:
        """The group wants these back: withdraws their claims, and returns those to wait for."""
        with self._lock:
            wanted = set(partitions)
            self._assigned -= wanted
            return self._withdraw(wanted, SHARED)

    def note_lost(self, partitions: Iterable[int] | None = None) -> None:
        """The group has taken these away, or all: they are claimed no more, and their claims prove nothing.

        Terms go on; another member that acquires a partition ends the term of ours.
        """
        with self._lock:
            lost = set(self._assigned if partitions is None else partitions)
            self._assigned -= lost
            for partition, claim in self._claims.items():
                if partition in lost or partitions is None:
                    claim.is_assigned = False

    def resize(self, partitions: int) -> None:
        """The tube has so many partitions now: withdraws and makes claims accordingly."""
        with self._lock:
            self._partitions = partitions
            self._withdraw({number for number in self._claims if number >= partitions}, GONE)
            self._fill(clock.now())

    def refill(self, now: float) -> None:
        """Make claims again of partitions whose claim the worker gave up a while ago."""
        with self._lock:
            self._fill(now)

    def pause(self) -> list[NeliClaim]:
        """Make no claims until `resume`, and withdraw all; returns those to wait for."""
        with self._lock:
            self._paused = True
            return self._withdraw(set(self._claims), _GIVEN_UP)

    def resume(self) -> None:
        """Make claims again, of what the group gives us from now on."""
        with self._lock:
            self._paused = False

    def close(self, why: Revoked) -> list[NeliClaim]:
        """Make no more claims, and withdraw all; returns those to wait for."""
        with self._lock:
            self._closed = True
            return self._withdraw(set(self._claims), why)

    def _withdraw(self, partitions: set[int], why: Revoked) -> list[NeliClaim]:
        claims = [claim for claim in self.live() if claim.partition in partitions]
        for claim in claims:
            claim.withdraw(why)
        return claims

    def _fill(self, now: float) -> None:
        if self._closed or self._paused:
            return
        for partition in sorted(self._assigned):
            if partition < self._partitions and self._may_claim(partition, now):
                claim = self._make(partition)
                self._claims[partition] = claim
                self._offer(claim)

    def _may_claim(self, partition: int, now: float) -> bool:
        before = self._claims.get(partition)
        if before is None:
            return True
        if before.over_at is None:
            return False
        return isinstance(before.withdrawn, Revoked) or now - before.over_at >= self._pause
