"""The settled seq of one tube: all pods at or below it that will ever exist are visible.

How it is found, in this order: (1) read S, the last number drawn from the sequence; (2) in a
later transaction take a fresh transaction id X; (3) once every transaction older than X is over,
S is settled: whoever drew a number up to S had its transaction id before it drew, so it was older.

A transaction in another database may hold (3) up for hours. So, after a while, it is asked who
has the tube's table open for writing since S was read; when all of those are gone, S is settled
for this tube, because nobody draws for a tube without having it open.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from pytube.sources import queries
from pytube.sources.session import Session

_ASK_HOLDERS_AFTER = 0.5


@dataclass(slots=True)
class _Probe:
    seq: int
    xid: str
    begun_at: float
    holders: list[str] | None = None


class Settled:
    """Finds the settled seq, over one session that several lines of the tube share."""

    def __init__(self, session: Session, tube: str) -> None:
        self._session = session
        self._tube = tube
        self._probe: _Probe | None = None
        self._turn = asyncio.Lock()
        self.seq = 0
        """The newest seq known to be settled. A mark begun after reading this sees all up to it."""

    async def is_quiet(self) -> bool:
        """Whether everything that was drawn before this call is settled.

        True tells a line that went to sleep before it asked: whatever was drawn by somebody who
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
            if self._probe is None:
                drawn = await self._drawn()
                if drawn == self.seq:
                    return
                await self._begin(drawn)
            await self._conclude()

    async def _drawn(self) -> int:
        return int(await self._session.value(queries.SETTLE_SEQ))

    async def _advance(self, drawn: int) -> None:
        if self._probe is not None:
            await self._conclude()
        if self._probe is None and self.seq < drawn:
            await self._begin(drawn)
            await self._conclude()

    async def _begin(self, drawn: int) -> None:
        xid = str(await self._session.value(queries.SETTLE_XID))
        self._probe = _Probe(drawn, xid, time.monotonic())

    async def _conclude(self) -> None:
        probe = self._probe
        if probe is None or not await self._is_over(probe):
            return
        self.seq = max(self.seq, probe.seq)
        self._probe = None

    async def _is_over(self, probe: _Probe) -> bool:
        if await self._session.value(queries.SETTLE_DONE, {"xid": probe.xid}):
            return True
        if time.monotonic() - probe.begun_at < _ASK_HOLDERS_AFTER:
            return False
        if probe.holders is None:
            # Asked long after S was read: whoever drew up to S is over, or is among these.
            probe.holders = list(await self._session.value(queries.SETTLE_HOLDERS, {"tube": self._tube}))
        arguments = {"tube": self._tube, "holders": probe.holders}
        return bool(await self._session.value(queries.SETTLE_LEFT, arguments))
