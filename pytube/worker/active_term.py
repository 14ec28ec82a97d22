"""A term that this process leads: its right to send, its tokens, and what has happened to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from pytube import clock
from pytube.election.base import Claim
from pytube.errors import ClaimLost, Fenced, PytubeError
from pytube.events import Event, LeaderRefreshed, TrustLapsed
from pytube.model import COUNTER_BITS, Heartbeat, Token
from pytube.sources.terms import Term, Troubles

_POLL_INTERVAL = 0.05
"""Seconds between checks of a lapsed trust."""


class ActiveTerm:
    """The state of a term while it is led here.

    All that learn something about the term say so here (a writer's notification, the end of the term, a
    claim that is revoked), and set `attention`; the partition's worker looks at it in its next round.
    """

    def __init__(
        self, term: Term, claim: Claim, *, deadline: float, sent_at: float, emit: Callable[[Event], None]
    ) -> None:
        """Args:
        term: as the database has it.
        claim: the right to it.
        deadline: seconds for which a proof of leadership holds. They count from when the proof was sent,
            so that the deadline is right however long the answer took or the process was stopped.
        sent_at: when the acquire of the term was sent, by `pytube.clock`: the database's first proof.
        emit: receives an event when trust lapses, and when it is back.
        """
        self.term = term
        self.claim = claim
        self.attention = asyncio.Event()
        self.woken = True
        """Whether pods may have arrived since the last poll began."""
        self.sleeps = False
        """Whether only a notification wakes the partition's worker."""
        self.unanswered: set[Any] = set()
        """Writes that were sent and not answered; while there is one, the term is not released."""
        self.troubles = Troubles()
        """What keeps it from delivering; its renewals tell."""
        self.paused = term.paused
        """Why the partition is to pause; None when it is not."""
        self.step: int | None = None
        """A step that an operator asks for."""
        self._pause_noted_at = sent_at
        self.ended: PytubeError | None = None
        """Why the term is over, as soon as the database or the election says so."""
        self._deadline = deadline
        self._renewed_at = sent_at
        self._emit = emit
        self._down_since: dict[str, float] = {}
        """Outages that were told and whose end was not."""
        self._counter = 0
        self._lapsed = False

    # --- what happens to it ---------------------------------------------------------------

    def wake(self) -> None:
        """Pods may have arrived."""
        self.woken = True
        self.attention.set()

    def end(self, reason: PytubeError) -> None:
        """The term is over."""
        if self.ended is None:
            self.ended = reason
        self.attention.set()

    def on_claim(self) -> None:
        """The claim is revoked or lost."""
        if self.claim.lost.is_set():
            self.end(ClaimLost("the election gave the partition to another worker"))
        self.attention.set()

    def note_pause(self, reason: str | None, step: int | None, sent_at: float) -> None:
        """The database says whether the partition is paused, to a question that was sent then."""
        if sent_at < self._pause_noted_at:
            return  # this worker has stopped the tube since
        self._pause_noted_at = sent_at
        if (reason, step) != (self.paused, self.step):
            self.paused, self.step = reason, step
            self.attention.set()

    def goes_on(self) -> bool:
        """Whether the partition's worker has another round; raises what ended the term."""
        if self.is_revoked or self.paused is not None:
            return False
        if self.ended is not None:
            raise self.ended
        return True

    def beat(self, client_id: str, purged_seq: int, lag: float) -> None:
        """Tell the other workers how far the term is."""
        self.claim.beat(Heartbeat(client_id, self.term.leader_id, self.term.epoch, purged_seq, lag))

    @property
    def is_revoked(self) -> bool:
        """Whether the claim is to be given back in order."""
        return self.claim.revoked.is_set()

    # --- outages --------------------------------------------------------------------------

    def tell_down(self, what: str, event: Event) -> None:
        """Emit the event of an outage, unless it was emitted and its end was not.

        A pause ends a partition's worker, and not the outage: the next worker learns whether that is over.
        Here the two events pair, for as long as the term lasts; its end ends all that was told of it.
        """
        if what not in self._down_since:
            self._down_since[what] = time.monotonic()
            self._emit(event)

    def tell_up(self, what: str, event: Callable[[float], Event]) -> None:
        """Emit the event of the end of an outage that was told, made of its length in seconds."""
        since = self._down_since.pop(what, None)
        if since is not None:
            self._emit(event(time.monotonic() - since))

    def is_told_down(self, what: str) -> bool:
        """Whether an outage was told and its end was not."""
        return what in self._down_since

    # --- trust ----------------------------------------------------------------------------

    def confirm_renewal(self, sent_at: float) -> None:
        """The database confirmed a renewal that was sent then."""
        self._renewed_at = max(self._renewed_at, sent_at)

    @property
    def _is_over(self) -> bool:
        return self.ended is not None or self.claim.lost.is_set()

    def trusted_until(self) -> float:
        """No write may begin at or after this moment of `pytube.clock`."""
        if self._is_over:
            return float("-inf")
        return min(self._renewed_at, self.claim.proven_at()) + self._deadline

    @property
    def is_trusted(self) -> bool:
        """Whether a write may begin now."""
        return clock.now() < self.trusted_until()

    async def wait_until_trusted(self) -> None:
        """Return at once while trusted, otherwise when trust is back."""
        while not self.check_trust():  # noqa: ASYNC110 # no event announces a proof
            await asyncio.sleep(_POLL_INTERVAL)

    def check_trust(self) -> bool:
        """Whether a write may begin now; emits an event if that changed since the last check."""
        trusted = self.is_trusted
        if trusted == self._lapsed and not self._is_over:
            self._lapsed = not trusted
            change = LeaderRefreshed if trusted else TrustLapsed
            self._emit(change(self.term.tube, self.term.partition, self.term.leader_id))
        return trusted

    def next_token(self) -> Token:
        """A token that is higher than all earlier ones of this term.

        Raises:
            Fenced: the term has used up its tokens; the next term has as many again.
        """
        self._counter += 1
        if self._counter >> COUNTER_BITS:
            raise Fenced("the term has drawn all its tokens")
        return Token(self.term.epoch, self._counter)
