"""One term as this process lives it: its trust, its tokens, and what it may still have in the air."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pytube import clock
from pytube.election.base import Claim
from pytube.errors import Fenced, NotLeader
from pytube.events import Event, LeaderRefreshed, TrustLapsed
from pytube.model import COUNTER_BITS, Batch, Token
from pytube.pipeline.trust import Trust
from pytube.sources.terms import Term

_LOOK_AGAIN = 0.05
"""Seconds between looks at a trust that has lapsed."""


class Tenure:
    """A term, with the claim that it rests on."""

    def __init__(self, term: Term, claim: Claim, trust: Trust, emit: Callable[[Event], None]) -> None:
        self.term = term
        self.claim = claim
        self.trust = trust
        self.in_the_air: set[Batch] = set()
        """Writes that were begun and not answered; while there is one, the term is not released."""
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
        return self.trust.until(self.claim.proven_at())

    @property
    def is_trusted(self) -> bool:
        """Whether a write may begin now."""
        return clock.now() < self.trusted_until()

    async def trusted(self) -> None:
        """Return at once while trusted, else when trust is back."""
        while not self.look():  # noqa: ASYNC110 # proofs come without a sound
            await asyncio.sleep(_LOOK_AGAIN)

    def look(self) -> bool:
        """Whether a write may begin now; what has changed since the last look is told."""
        trusted = self.is_trusted
        if trusted == self._lapsed and not self._is_over:
            self._lapsed = not trusted
            change = LeaderRefreshed if trusted else TrustLapsed
            self._emit(change(self.term.tube, self.term.partition, self.term.leader_id))
        return trusted

    def draw(self) -> Token:
        """The next token: higher than all drawn in this term.

        Raises:
            Fenced: the term has used up its tokens; the next term has as many again.
        """
        self._counter += 1
        if self._counter >> COUNTER_BITS:
            raise Fenced("the term has drawn all its tokens")
        return Token(self.term.epoch, self._counter)
