"""Which partitions the group gave to this process, and the claims that were made of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from pytube import clock
from pytube.election.neli.claim import NeliClaim


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

    def live(self) -> list[NeliClaim]:
        """The claims that are not over; those under hand-over too."""
        with self._lock:
            return [claim for claim in self._claims.values() if not claim.over.is_set()]

    def claim_of(self, partition: int) -> NeliClaim | None:
        """The claim of a partition, if there is one."""
        with self._lock:
            return self._claims.get(partition)

    def assign(self, partitions: Iterable[int]) -> None:
        """The group gave us these."""
        with self._lock:
            for partition in partitions:
                self._assigned.add(partition)
                claim = self._claims.get(partition)
                if claim is not None and claim.over.is_set():
                    del self._claims[partition]
            self._fill(clock.now())

    def withdraw(self, partitions: Iterable[int]) -> list[NeliClaim]:
        """The group wants these back: revokes their claims, and returns those to wait for."""
        with self._lock:
            wanted = set(partitions)
            self._assigned -= wanted
            return self._revoke(wanted)

    def lose(self, partitions: Iterable[int]) -> None:
        """The group has taken these away."""
        with self._lock:
            for partition in partitions:
                self._assigned.discard(partition)
                if (claim := self._claims.get(partition)) is not None:
                    claim.lose()

    def lose_all(self) -> None:
        """This process is no member of the group any more."""
        with self._lock:
            self.lose(self._assigned | self._claims.keys())

    def resize(self, partitions: int) -> None:
        """The tube has so many partitions now: revokes and makes claims accordingly."""
        with self._lock:
            self._partitions = partitions
            self._revoke({number for number in self._claims if number >= partitions})
            self._fill(clock.now())

    def refill(self, now: float) -> None:
        """Make claims anew of partitions whose claim the worker gave up a while ago."""
        with self._lock:
            self._fill(now)

    def close(self) -> list[NeliClaim]:
        """Make no more claims, and revoke all; returns those to wait for."""
        with self._lock:
            self._closed = True
            return self._revoke(set(self._claims))

    def _revoke(self, partitions: set[int]) -> list[NeliClaim]:
        claims = [claim for claim in self.live() if claim.partition in partitions]
        for claim in claims:
            claim.revoke()
        return [claim for claim in claims if not claim.over.is_set()]

    def _fill(self, now: float) -> None:
        if self._closed:
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
        if not before.over.is_set():
            return False
        return before.revoked.is_set() or now - before.over_at >= self._pause
