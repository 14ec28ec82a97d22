"""A claim under NELI: used by the worker in the event loop, and by the thread that polls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from uuid import UUID

from pytube import clock
from pytube.election.base import Claim
from pytube.election.neli.codec import encode
from pytube.election.neli.proof import ProofBook
from pytube.errors import ClaimLost
from pytube.model import Heartbeat

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
        """The claim is over. If it was not revoked it is offered anew, a little later."""
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
