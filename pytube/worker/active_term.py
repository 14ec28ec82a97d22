"""A term that this process leads: its right to send, its tokens, and its unanswered writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pytube import clock
from pytube.election.base import Claim
from pytube.errors import Fenced, NotLeader
from pytube.events import Event, LeaderRefreshed, TrustLapsed
from pytube.model import COUNTER_BITS, Batch, Token
from pytube.pipeline.term_deadline import TermDeadline
from pytube.sources.terms import Term

_POLL_INTERVAL = 0.05
"""Seconds between checks of a lapsed trust."""


class ActiveTerm:
    """The state of a term while it is led here: its record, its claim, and the deadline of its trust."""

    def __init__(
        self, term: Term, claim: Claim, deadline: TermDeadline, emit: Callable[[Event], None]
    ) -> None:
        self.term = term
        self.claim = claim
        self.deadline = deadline
        self.unanswered: set[Batch] = set()
        """Writes that were sent and not answered; while there is one, the term is not released."""
        self.ended: asyncio.Future[NotLeader] = asyncio.get_running_loop().create_future()
        """Why the term is over, as soon as the database or the election says so."""
        self._emit = emit
        self._counter = 0
        self._lapsed = False

    def end(self, reason: NotLeader) -> None:
        """The term is over."""
        if not self.ended.done():
            self.ended.set_result(reason)

    @property
    def _is_over(self) -> bool:
        return self.ended.done() or self.claim.lost.is_set()

    def trusted_until(self) -> float:
        """No write may begin at or after this moment of `pytube.clock`."""
        if self._is_over:
            return float("-inf")
        return self.deadline.until(self.claim.proven_at())

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
