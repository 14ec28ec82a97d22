"""A term that this process leads: its right to send, its tokens, and the events that concern it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pytube import clock
from pytube.db.locks import TableLock, still_held
from pytube.db.session import Queries
from pytube.election.base import Broken, Claim, Ended, Lost, Paused, Revoked, Stop
from pytube.errors import RECOVERABLE, ClaimLost, NotLeader, PytubeError
from pytube.events import (
    Event,
    LeaderRefreshed,
    SinkDown,
    SinkUp,
    SourceDown,
    SourceUp,
    TableLocked,
    TableUnlocked,
    TopicDown,
    TrustLapsed,
)
from pytube.logs import Logger, host_fields
from pytube.model import COUNTER_BITS, Token
from pytube.sources.terms import Term, Troubles

if TYPE_CHECKING:
    from pytube.worker.partition_worker import PartitionWorker

_POLL_INTERVAL = 0.05
"""Seconds between checks of a lapsed trust."""
_REASON_PAUSE = 60.0
"""Seconds between two reasons of one outage that are logged; an error may name another port each time."""


@dataclass(slots=True)
class _Outage:
    """An outage that was reported."""

    since: float
    reason: str
    """The reason logged last."""
    told_at: float


class ActiveTerm:
    """The state of a term while it is led here.

    All that learn something about the term say so here (a writer's notification, a pause, the end of the
    term) or to its claim, and set `attention`; the partition's worker looks at it in its next round.
    """

    def __init__(
        self, term: Term, claim: Claim, *, deadline: float, sent_at: float, emit: Callable[[Event], None]
    ) -> None:
        """`deadline`: seconds for which a renewal holds, from when it was sent; so the deadline is right
        however long the answer took or the process was stopped. `sent_at`: when the acquire was sent: the
        first renewal.
        """
        self.term = term
        self.claim = claim
        self.attention = claim.news
        """Set when something has happened to the term, or to its claim."""
        self.woken = True
        """Whether pods may have arrived since the last poll began."""
        self.sleeps = False
        """Whether only a notification wakes the partition's worker."""
        self.unanswered: set[Any] = set()
        """Writes that were sent and not answered; while there is one, the term is not released."""
        self.troubles = Troubles()
        """Troubles that keep it from delivering; its renewals report them."""
        self._paused = None if term.paused is None else Paused(term.paused)
        """A pause ends the work, and not the term."""
        self.step: int | None = None
        """A step that an operator asks for."""
        self._pause_noted_at = sent_at
        self._ended: Broken | None = None
        self._deadline = deadline
        self._renewed_at = sent_at
        self.emit = emit
        self.locked: LockedTables | None = None
        """Tables that its work waits for; None before it has begun."""
        self.worker: PartitionWorker[Any] | None = None
        """What works on the partition; None while nothing is marked."""
        self._outages: dict[str, _Outage] = {}
        """Outages that were reported and have not ended."""
        self._counter = 0
        self._lapsed = False

    # --- what happens to it ---------------------------------------------------------------

    def wake(self) -> None:
        """Pods may have arrived."""
        self.woken = True
        self.attention.set()

    def end(self, error: PytubeError) -> None:
        """The term can't continue; the first reason counts."""
        if self._ended is None:
            kind = Ended if isinstance(error, NotLeader) else Lost
            self._ended = kind(str(error), error)
        self.attention.set()

    def note_pause(self, reason: str | None, step: int | None, sent_at: float) -> None:
        """The database says whether the partition is paused, to a question that was sent then."""
        if sent_at < self._pause_noted_at:
            return  # this worker has stopped the tube since
        self._pause_noted_at = sent_at
        paused = None if reason is None else Paused(reason)
        if (paused, step) != (self._paused, self.step):
            self._paused, self.step = paused, step
            self.attention.set()

    # --- why the work stops ---------------------------------------------------------------

    @property
    def stop(self) -> Stop | None:
        """Why the work on the partition stops; None while it continues.

        An event of the term counts more than the election's wish, and that more than a pause. The claim is
        separate because it outlives terms: a shutdown also ends the terms that would begin later.
        """
        return self._ended or self.claim.withdrawn or self._paused

    def goes_on(self) -> bool:
        """Whether the partition's worker has another round; raises what broke the term."""
        if isinstance(stop := self.stop, Broken):
            raise stop.error
        return stop is None

    @property
    def is_revoked(self) -> bool:
        return isinstance(self.stop, Revoked)

    @property
    def is_resting(self) -> bool:
        """Whether all was given back for a pause; the renewals say so, too."""
        return self.troubles.reason("paused") is not None

    @property
    def pause(self) -> Paused | None:
        """Why the partition is to pause, if nothing else stops it; None when it is not."""
        return stop if isinstance(stop := self.stop, Paused) else None

    # --- outages --------------------------------------------------------------------------

    def note_down(self, what: Literal["sink", "source"], reason: str, next_at: float | None = None) -> None:
        """The sink takes nothing, or rows can't be read; to be called at each failure.

        `next_at`: when it is tried again, by `time.monotonic()`.
        """
        self.troubles.note(what, reason, next_at=next_at)
        event = SinkDown if what == "sink" else SourceDown
        self.tell_down(what, event(self.term.tube, self.term.partition, reason))

    def note_up(self, what: Literal["sink", "source"]) -> None:
        """It takes documents, or they can be read."""
        self.troubles.end(what)
        event = SinkUp if what == "sink" else SourceUp
        self.tell_up(what, lambda seconds: event(self.term.tube, self.term.partition, seconds))

    def tell_down(self, what: str, event: SinkDown | SourceDown | TopicDown) -> None:
        """Emit the event of an outage, unless it is open already; then log a new reason.

        A pause ends a partition's worker, and not the outage: the next worker learns whether that is over.
        Here the two events pair, for as long as the term lasts; its end closes all its outages.
        """
        now = time.monotonic()
        if (outage := self._outages.get(what)) is None:
            self._outages[what] = _Outage(now, event.reason, now)
            self.emit(event)
        elif event.reason != outage.reason and now >= outage.told_at + _REASON_PAUSE:
            outage.reason, outage.told_at = event.reason, now
            log = Logger("pytube.worker", **host_fields(self.term.host))
            log.warning(
                "reason_changed",
                tube=event.tube,
                partition=event.partition,
                what=what,
                reason=event.reason,
                seconds=round(now - outage.since, 3),
            )

    def tell_up(self, what: str, event: Callable[[float], Event]) -> None:
        if (outage := self._outages.pop(what, None)) is not None:
            self.emit(event(time.monotonic() - outage.since))

    def is_told_down(self, what: str) -> bool:
        return what in self._outages

    # --- trust ----------------------------------------------------------------------------

    def confirm_renewal(self, sent_at: float) -> None:
        """The database confirmed a renewal that was sent then."""
        self._renewed_at = max(self._renewed_at, sent_at)

    def trusted_until(self) -> float:
        """No write may begin at or after this moment of `pytube.clock`."""
        if isinstance(self.stop, Broken):
            return float("-inf")
        return self._renewed_at + self._deadline

    def may_write_late(self, hold: float) -> bool:
        """Whether the next term has to wait for this one, if it is not released."""
        return clock.now() < self._renewed_at + hold

    @property
    def is_trusted(self) -> bool:
        return clock.now() < self.trusted_until()

    async def wait_until_trusted(self) -> None:
        while not self.check_trust():  # noqa: ASYNC110 # no event announces a renewal
            await asyncio.sleep(_POLL_INTERVAL)

    def check_trust(self) -> bool:
        """Whether a write may begin now; emits an event if that changed since the last check."""
        trusted = self.is_trusted
        if trusted == self._lapsed and not isinstance(self.stop, Broken):
            self._lapsed = not trusted
            change = LeaderRefreshed if trusted else TrustLapsed
            self.emit(change(self.term.tube, self.term.partition, self.term.leader_id))
        return trusted

    def next_token(self) -> Token:
        """A token that is higher than all earlier ones of this term.

        Raises:
            ClaimLost: the term has used up its tokens; the next term has as many again.
        """
        self._counter += 1
        if self._counter >> COUNTER_BITS:
            raise ClaimLost("the term has drawn all its tokens")
        return Token(self.term.epoch, self._counter)


# --- locked tables -------------------------------------------------------------------------------


_LOOK_INTERVAL = 1.0
_STALE = 60.0
"""Seconds after which a lock counts as over if its holder is unknown and no read has met it again. A read
that was cut off while it waited is tried again within half of that."""


@dataclass(slots=True)
class _Seen:
    lock: TableLock
    since: float
    at: float


class LockedTables:
    """The locked tables of one term. Its renewals report them; they change no state."""

    def __init__(
        self,
        active_term: ActiveTerm,
    ) -> None:
        self._active_term = active_term
        self._term = active_term.term
        self.freed_at = float("-inf")
        """When a table was found not to be locked any more, by `time.monotonic()`."""
        self._seen: dict[str, _Seen] = {}
        active_term.locked = self
        active_term.troubles.watch("locked", self._told)

    def __bool__(self) -> bool:
        return bool(self._seen)

    def note(self, lock: TableLock) -> None:
        now = time.monotonic()
        if lock.table in self._seen:
            seen = self._seen[lock.table]
            seen.lock, seen.at = lock, now
            return
        self._seen[lock.table] = _Seen(lock, now - lock.seconds, now)
        term = self._term
        self._active_term.emit(
            TableLocked(term.tube, term.partition, lock.table, round(lock.seconds, 3), lock.pid, lock.reason)
        )

    def free(self, table: str) -> None:
        seen = self._seen.pop(table, None)
        if seen is not None:
            self.freed_at = time.monotonic()
            seconds = round(self.freed_at - seen.since, 3)
            self._active_term.emit(TableUnlocked(self._term.tube, self._term.partition, table, seconds))
            self._active_term.attention.set()

    def free_all(self) -> None:
        for table in list(self._seen):
            self.free(table)

    @property
    def seen(self) -> list[TableLock]:
        """Those whose holders are known."""
        return [seen.lock for seen in self._seen.values() if seen.lock.pids]

    def see(self, before: TableLock, now: TableLock | None) -> None:
        """Update the holders of a lock; None: none is left. A lock that was noted again since stays."""
        seen = self._seen.get(before.table)
        if seen is None or seen.lock is not before:
            return
        if now is None:
            self.free(before.table)
        else:
            seen.lock, seen.at = now, time.monotonic()

    def _told(self) -> tuple[str, float] | None:
        """The reason to report, and since when."""
        now = time.monotonic()
        for table in [table for table, seen in self._seen.items() if seen.at < now - _STALE]:
            self.free(table)
        if not self._seen:
            return None
        oldest = sorted(self._seen.values(), key=lambda seen: seen.since)
        return "; ".join(seen.lock.reason for seen in oldest), oldest[0].since


async def watch_locks(queries: Queries, terms: Mapping[tuple[str, int], ActiveTerm]) -> None:
    """Check whether reported locks are still held, so that no operator ends a session without need.

    Whoever waits for a lock sees its end; a read that was cut off, and is tried again later, does not.
    """
    while True:
        await asyncio.sleep(_LOOK_INTERVAL)
        told = [(locked, lock) for term in terms.values() if (locked := term.locked) for lock in locked.seen]
        try:
            found = {
                lock: await still_held(queries, lock)
                for lock in {replace(lock, seconds=0.0) for _, lock in told}
            }
        except RECOVERABLE:
            continue  # the renewals report it
        for locked, lock in told:
            now = found[replace(lock, seconds=0.0)]
            locked.see(lock, now)
