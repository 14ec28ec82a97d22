"""The settled seq of one tube: all pods at or below it that will ever exist are visible.

How it is found, in this order: (1) read S, the last number drawn from the sequence; (2) in a
later transaction take a fresh transaction id X; (3) once every transaction older than X is over,
S is settled: whoever drew a number up to S had its transaction id before it drew, so it was older.

A transaction in another database may hold (3) up for hours. So, after a while, it is asked who
has the tube's table open for writing since S was read; when all of those are gone, S is settled
for this tube, because nobody draws for a tube without having it open.

One that has written to this very tube may stay open for hours too. Then S is passable: the same
applies to it but for the pods of those few. A spell of it lasts until one of them is over.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from pytube.sources import queries
from pytube.sources.session import Session

_ASK_HOLDERS_AFTER = 0.5
_LONG = 0.5
"""Seconds after which a writer that is still there counts as one that stays open for long."""

_spells = itertools.count(1)
"""No two spells have the same number, whichever session they were seen over."""


@dataclass(slots=True)
class _Probe:
    seq: int
    xid: str
    begun_at: float
    holders: set[str] | None = None
    asked_at: float = 0.0


class Settled:
    """Finds the settled seq, over one session that several partitions of the tube share."""

    def __init__(self, session: Session, tube: str) -> None:
        self._session = session
        self._tube = tube
        self._probe: _Probe | None = None
        self._turn = asyncio.Lock()
        self._long: dict[str, int] = {}
        """Who stays open for long, and a seq below all their pods: what was passable when they were seen."""
        self.seq = 0
        """The newest seq known to be settled. A mark begun after reading this sees all up to it."""
        self.passable = 0
        """At least `seq`: a mark begun after reading this sees all up to it, but for what those who stay open
        for long have drawn."""
        self.spell = next(_spells)
        """Changes when one of those is over, after it. To be read together with `passable`."""

    @property
    def is_passing(self) -> bool:
        """Whether somebody stays open for long. When they end, scans start anew from the firm floors."""
        return bool(self._long)

    async def is_quiet(self) -> bool:
        """Whether everything that was drawn before this call is settled.

        True tells a worker that went to sleep before it asked: whatever was drawn by somebody who
        may not have seen the sleeper is visible to the next mark.
        """
        async with self._turn:
            drawn = await self._drawn()
            if drawn == self.seq:
                return True
            await self._advance(drawn)
            return self.seq >= drawn

    async def advance(self) -> None:
        """Settle what can be; cheap when nothing was drawn since."""
        async with self._turn:
            if self._probe is not None:
                await self._conclude()
            elif (drawn := await self._drawn()) != self.seq:
                await self._advance(drawn)

    async def _drawn(self) -> int:
        return int(await self._session.value(queries.SETTLE_SEQ))

    async def _advance(self, drawn: int) -> None:
        await self._conclude()
        if self._probe is None and self.passable < drawn:
            await self._begin(drawn)
            await self._conclude()

    async def _begin(self, drawn: int) -> None:
        xid = str(await self._session.value(queries.SETTLE_XID))
        self._probe = _Probe(drawn, xid, time.monotonic())

    async def _conclude(self) -> None:
        probe = self._probe
        if probe is not None and await self._session.value(queries.SETTLE_DONE, {"xid": probe.xid}):
            self._probe = None
            # All who were in `_long` had been seen before this probe began, so they were older: over.
            self._end_spell(set())
            self._settle_up_to(probe.seq)
        elif self._long or (probe is not None and time.monotonic() - probe.begun_at >= _ASK_HOLDERS_AFTER):
            # Asked after S was read: whoever drew up to S is over, or is among these.
            holders = set(await self._session.value(queries.SETTLE_HOLDERS, {"tube": self._tube}))
            self._end_spell(holders)
            if probe is not None and self._are_over(probe, holders):
                self._probe = None
                self._settle_up_to(probe.seq)

    def _are_over(self, probe: _Probe, holders: set[str]) -> bool:
        """Whether all are over that could draw up to the probe's seq, or are known to stay for long."""
        if probe.holders is None:
            probe.holders = holders - self._long.keys()
            probe.asked_at = time.monotonic()
        probe.holders &= holders
        if probe.holders and time.monotonic() - probe.asked_at >= _LONG:
            # None of them was there when what is passable now was found, or it would have been waited for.
            self._long |= dict.fromkeys(probe.holders, self.passable)
            probe.holders = set()
        return not probe.holders

    def _settle_up_to(self, seq: int) -> None:
        self.passable = max(self.passable, seq)
        self._recompute()

    def _recompute(self) -> None:
        self.seq = max(self.seq, min(self._long.values(), default=self.passable))

    def _end_spell(self, holders: set[str]) -> None:
        """Scans start anew from the firm floors as soon as one who stayed for long is over."""
        over = self._long.keys() - holders
        if over:
            for one in over:
                del self._long[one]
            self.spell = next(_spells)
            self._recompute()
