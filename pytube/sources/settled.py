"""The settled seq: all pods at or below it that will ever exist, in whatever tube, are visible.

How it is found, in this order: (1) read S, the last number drawn from the sequence; (2) in a later
transaction take a fresh transaction id X; (3) once every transaction older than X is over, S is settled:
a transaction that drew a number up to S had its transaction id before it drew, so it was older.

A transaction that writes elsewhere may hold (3) up for hours. So, after a while, the worker asks who has a
tube's table open for writing since S was read, and has a transaction id; when all of those are gone, S is
settled, because a transaction draws for a tube only while it has the table open.

A transaction that has written to a tube may stay open for hours, too: a long writer. Then S becomes
provisional: settled, except for the pods of the long writers. Each long writer that ends starts a new version
of the provisional seq.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from pytube.db.session import Queries
from pytube.errors import SequenceWentBack
from pytube.sources import queries

_ASK_WRITERS_AFTER = 0.5
_LONG_WRITER_AFTER = 0.5
"""Seconds after which a transaction that is still open counts as a long writer."""

_versions = itertools.count(1)
"""Versions are unique in the process, so that a new session never repeats one."""


@dataclass(slots=True)
class _Probe:
    seq: int
    xid: str
    begun_at: float
    writers: set[str] | None = None
    """The transactions that may have drawn up to the seq, by their ids; None: not asked yet."""
    asked_at: float = 0.0


class Settled:
    """Finds the settled seq for all tubes of a database; the sequence is one."""

    def __init__(self, session: Queries) -> None:
        self._session = session
        self._probe: _Probe | None = None
        self._turn = asyncio.Lock()
        self._long_writers: dict[str, tuple[int, float]] = {}
        """Long writers, by transaction ids: each with a seq below all its pods (the provisional seq when
        it was found), and since when it has held back the settled seq."""
        self.seq = 0
        """The newest seq known to be settled. A mark begun after reading this sees all up to it."""
        self.provisional = 0
        """At least `seq`: a mark begun after reading it sees all up to it, except pods of long writers."""
        self.provisional_version = next(_versions)
        """Changes after a long writer has ended. Read it together with `provisional`."""

    @property
    def long_writers(self) -> int:
        """How many long writers there are. When one ends, scans restart from the settled floors."""
        return len(self._long_writers)

    @property
    def long_writer_xids(self) -> list[str]:
        """Their transaction ids. To be read together with `provisional`: only what these have written, and
        have not committed, can be missing up to it.
        """
        return list(self._long_writers)

    @property
    def age(self) -> float:
        """Seconds for which the settled seq has been behind the last seq drawn; 0 while it is not."""
        if self._long_writers:
            return time.monotonic() - min(since for _, since in self._long_writers.values())
        return time.monotonic() - self._probe.begun_at if self._probe is not None else 0.0

    async def is_quiet(self) -> bool:
        """Whether every seq drawn before this call is settled.

        True helps a worker that went to sleep before it asked: all pods of writers that may not have seen the
        sleeper are visible to the next mark.
        """
        async with self._turn:
            drawn = await self._drawn()
            if drawn == self.seq:
                return True
            await self._advance(drawn)
            return self.seq >= drawn

    async def advance(self) -> None:
        """Settle as far as possible; cheap when no seq was drawn since."""
        async with self._turn:
            if self._probe is not None:
                await self._conclude()
            elif (drawn := await self._drawn()) != self.seq:
                await self._advance(drawn)

    async def _drawn(self) -> int:
        drawn = int(await self._session.value(queries.SETTLE_SEQ))
        if drawn < self.provisional:
            raise SequenceWentBack(
                f"tube_seq is at {drawn}, after {self.provisional}: the database was restored"
            )
        return drawn

    async def _advance(self, drawn: int) -> None:
        await self._conclude()
        if self._probe is None and self.provisional < drawn:
            await self._begin(drawn)
            await self._conclude()

    async def _begin(self, drawn: int) -> None:
        xid = str(await self._session.value(queries.SETTLE_XID))
        self._probe = _Probe(drawn, xid, time.monotonic())

    async def _conclude(self) -> None:
        probe = self._probe
        if probe is not None and await self._session.value(queries.SETTLE_DONE, {"xid": probe.xid}):
            self._probe = None
            # All long writers were found before this probe began, so they were older: they have ended.
            self._forget_ended(set())
            self._settle_up_to(probe.seq)
        elif self._long_writers or (
            probe is not None and time.monotonic() - probe.begun_at >= _ASK_WRITERS_AFTER
        ):
            # Asked after S was read: a session that drew up to S is over, or is among these.
            writers = set(await self._session.value(queries.SETTLE_WRITERS))
            self._forget_ended(writers)
            if probe is not None and self._are_over(probe, writers):
                self._probe = None
                self._settle_up_to(probe.seq)

    def _are_over(self, probe: _Probe, writers: set[str]) -> bool:
        """Whether all that could draw up to the probe's seq have ended, or are long writers."""
        if probe.writers is None:
            probe.writers = writers - self._long_writers.keys()
            probe.asked_at = time.monotonic()
        probe.writers &= writers
        if probe.writers and time.monotonic() - probe.asked_at >= _LONG_WRITER_AFTER:
            # None was open when the present provisional seq was found, or it would have waited for them.
            self._long_writers |= dict.fromkeys(probe.writers, (self.provisional, probe.begun_at))
            probe.writers = set()
        return not probe.writers

    def _settle_up_to(self, seq: int) -> None:
        self.provisional = max(self.provisional, seq)
        self._recompute()

    def _recompute(self) -> None:
        below = (seq for seq, _ in self._long_writers.values())
        self.seq = max(self.seq, min(below, default=self.provisional))

    def _forget_ended(self, writers: set[str]) -> None:
        ended = self._long_writers.keys() - writers
        if ended:
            for writer in ended:
                del self._long_writers[writer]
            self.provisional_version = next(_versions)
            self._recompute()
