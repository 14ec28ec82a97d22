"""A claim under NELI, the proofs of it, and the board of all claims of this process.

The worker uses a claim in the event loop, and the thread that polls uses it, too. A heartbeat stands on the
leader topic as one JSON object.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

import orjson

from pytube import clock
from pytube.election.base import Claim
from pytube.errors import ClaimLost
from pytube.model import Heartbeat

VERSION = 1


def encode(heartbeat: Heartbeat, number: int) -> bytes:
    """The value of the message; `number` tells one beat of a claim from another."""
    return orjson.dumps(
        {
            "version": VERSION,
            "number": number,
            "client_id": heartbeat.client_id,
            "leader_id": str(heartbeat.leader_id),
            "epoch": heartbeat.epoch,
            "purged_seq": heartbeat.purged_seq,
            "lag": heartbeat.lag,
        }
    )


def decode(value: bytes | None) -> tuple[Heartbeat, int] | None:
    """Heartbeat and number; None for what is not a heartbeat that this version understands."""
    try:
        data = orjson.loads(value or b"")
        if not isinstance(data, dict) or data.get("version") != VERSION:
            return None
        heartbeat = Heartbeat(
            client_id=str(data["client_id"]),
            leader_id=UUID(data["leader_id"]),
            epoch=int(data["epoch"]),
            purged_seq=int(data["purged_seq"]),
            lag=float(data["lag"]),
        )
        return heartbeat, int(data["number"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


_KEPT = 1024
"""Heartbeats that are remembered; far more than are sent within any deadline."""


class ProofBook:
    """The proofs of one claim."""

    def __init__(self, deadline: float) -> None:
        """Args: deadline: seconds for which a proof holds."""
        self._deadline = deadline
        self._lock = threading.Lock()
        self._sent: OrderedDict[int, float] = OrderedDict()
        self._last_number = 0
        self._proven_at = -math.inf
        self._closed = False

    @property
    def proven_at(self) -> float:
        """When the newest proof was sent; minus infinity when there is none, or none any more."""
        return -math.inf if self._closed else self._proven_at

    def sent(self, at: float) -> int:
        """A heartbeat is about to be sent; its number."""
        with self._lock:
            self._last_number += 1
            self._sent[self._last_number] = at
            if len(self._sent) > _KEPT:
                self._sent.popitem(last=False)
            return self._last_number

    def observe(self, number: int, now: float) -> bool:
        """Heartbeat `number` came back; whether it proved anything."""
        with self._lock:
            sent_at = self._sent.pop(number, None)
            if sent_at is None or self._lapsed(now) or sent_at <= self._proven_at:
                return False
            self._proven_at = sent_at
            return True

    def confirmed(self, sent_at: float) -> None:
        """The coordinator confirmed the membership; it was asked at `sent_at`."""
        with self._lock:
            self._proven_at = max(self._proven_at, sent_at)

    def lapsed(self, now: float) -> bool:
        """Whether the coordinator must be asked before heartbeats prove anything."""
        with self._lock:
            return self._lapsed(now)

    def close(self) -> None:
        """Nothing is proven any more."""
        self._closed = True

    def _lapsed(self, now: float) -> bool:
        return now - self._proven_at >= self._deadline


Ask = Callable[[int], Awaitable[float]]
"""Asks the coordinator for a partition; when it was asked. `ClaimLost`, `BrokerUnavailable`."""


class NeliClaim(Claim):
    """The right to lead one partition, while the group says so. See `pytube.election.base.Claim`."""

    def __init__(
        self, tube: str, partition: int, *, deadline: float, loop: asyncio.AbstractEventLoop, ask: Ask
    ) -> None:
        """Args: deadline: seconds for which a proof holds; loop: where the worker is."""
        super().__init__(tube, partition)
        self.finished = asyncio.Event()
        """Set in the loop when the claim is over, in either way."""
        self.over = threading.Event()
        """The same for threads; set at once."""
        self.over_at = 0.0
        self._taken = False
        self._loop = loop
        self._ask = ask
        self._book = ProofBook(deadline)
        self._heartbeat: Heartbeat | None = None

    # --- for the worker ---------------------------------------------------------------------

    async def prove(self) -> None:
        """Commit an offset; the coordinator checks our generation.

        Raises:
            ClaimLost: the right is gone, or is to be given back. The claim is over then.
            BrokerUnavailable: no answer in time. The claim stands: ask again.
        """
        if self.revoked.is_set():
            self.lose()
        self._refuse_when_over()
        try:
            sent_at = await self._ask(self.partition)
        except ClaimLost:
            self.lose()
            raise
        self._refuse_when_over()
        self._book.confirmed(sent_at)

    def proven_at(self) -> float:
        """When the last proof that has come back was sent; minus infinity once lost."""
        return self._book.proven_at

    def beat(self, heartbeat: Heartbeat | None) -> None:
        """What is sent from now on; None: nothing."""
        self._heartbeat = heartbeat

    def handed_over(self) -> None:
        """The claim is over. If it was not revoked it is offered again, a little later."""
        self._finish()

    # --- for the election -------------------------------------------------------------------

    def take(self) -> bool:
        """The worker is given the claim; False when it came to an end before."""
        self._taken = True
        if self.revoked.is_set():
            self._finish()
        return not self.over.is_set()

    def revoke(self) -> None:
        """Ask the worker to give the right back."""
        self._in_loop(self._set_revoked)
        if not self._taken:
            self._finish()

    def lose(self) -> None:
        """The right is gone."""
        if self.over.is_set():
            return
        self._book.close()
        self._in_loop(self._set_lost)
        self._finish()

    def next_beat(self, now: float) -> bytes | None:
        """The heartbeat to send now, if there is a term that has something to say."""
        heartbeat = self._heartbeat
        if heartbeat is None or self.over.is_set():
            return None
        return encode(heartbeat, self._book.sent(now))

    def observe(self, leader_id: UUID, number: int, now: float) -> bool:
        """A heartbeat was read from the partition; whether it proved anything."""
        heartbeat = self._heartbeat
        if heartbeat is None or heartbeat.leader_id != leader_id:
            return False
        return self._book.observe(number, now)

    def needs_asking(self, now: float) -> bool:
        """Whether a term waits for the coordinator's word."""
        return self._heartbeat is not None and not self.over.is_set() and self._book.lapsed(now)

    def confirmed(self, sent_at: float) -> None:
        """The coordinator was asked at `sent_at`, and said yes."""
        self._book.confirmed(sent_at)

    def _refuse_when_over(self) -> None:
        if self.over.is_set():
            raise ClaimLost(f"the right to lead partition {self.partition} was taken away or given back")

    def _finish(self) -> None:
        if self.over.is_set():
            return
        self.over_at = clock.now()
        self._heartbeat = None
        self.over.set()
        self._in_loop(self.finished.set)

    def _in_loop(self, call: Callable[[], None]) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            call()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)


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
        """Make claims again of partitions whose claim the worker gave up a while ago."""
        with self._lock:
            self._fill(now)

    def pause(self) -> list[NeliClaim]:
        """Make no claims until `resume`, and revoke all; returns those to wait for."""
        with self._lock:
            self._paused = True
            return self._revoke(set(self._claims))

    def resume(self) -> None:
        """Make claims again, of what the group gives us from now on."""
        with self._lock:
            self._paused = False

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
        if not before.over.is_set():
            return False
        return before.revoked.is_set() or now - before.over_at >= self._pause
