"""Leads one partition for as long as its claim lasts: term after term, a `Consumer` for each.

The order of a term's beginning makes it safe: read the epoch, prove the right to lead, acquire against
that epoch, wait until no earlier term can write any more, and only then mark. Its end, in order: stop, let
sends finish, purge, reset, release, hand over. A pause is the same without the last two: the term goes on.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

from pytube import clock
from pytube.election.base import Claim
from pytube.errors import (
    RECOVERABLE,
    BrokerUnavailable,
    EpochMoved,
    FencedBySink,
    NotLeader,
    PytubeError,
    SinkAhead,
    UsageError,
    WrongPartitions,
)
from pytube.events import (
    LeaderAcquired,
    LeaderFenced,
    LeaderRevoked,
    PartitionPaused,
    PartitionResumed,
    SinkDown,
    SinkUp,
)
from pytube.faults import Point, fault
from pytube.logs import Repeats
from pytube.model import Heartbeat
from pytube.pipeline.retry_queue import backoff
from pytube.sources import terms
from pytube.sources.wakeup import wake_up
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.queue import Consumer, Queue

_RETRIED = (BrokerUnavailable, *RECOVERABLE)
_RETRY_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_STEADY = 10.0
"""Seconds after which a term counts as having worked."""

_AHEAD_PAUSE = 10.0
_AHEAD_LOOK = 1.0
"""Seconds between looks whether a tube whose sink is ahead has been rebased."""

_WAIT_STEP = 0.2


class Leadership:
    """One claim on one partition in this process, and the terms that it leads."""

    def __init__(self, queue: Queue, database: Database, claim: Claim) -> None:
        self._queue = queue
        self._database = database
        self._claim = claim
        self._over = asyncio.Event()
        """Set when the claim is revoked or lost."""
        self._active_term: ActiveTerm | None = None
        self._unreleased: terms.Term | None = None
        self._repeats = Repeats()
        self._tries = 0
        self._has_met_closed_sink = False
        """Whether the term has told that the sink is not open, and not that it is."""
        self._ahead_since: float | None = None
        """Since when one term after the other finds the sink ahead."""
        self.partition_worker: Consumer | None = None
        """None unless the partition is being worked on."""
        self.is_resting = False
        """Whether it is led, and paused."""
        claim.watch(self._on_claim)

    def _on_claim(self) -> None:
        self._over.set()
        if self._active_term is not None:
            self._active_term.on_claim()

    @property
    def has_term(self) -> bool:
        """Whether a term is led now, and not only tried for."""
        return self._active_term is not None

    @property
    def waits_for_sink(self) -> bool:
        """Whether a term is led that marks nothing, because the sink has not been opened."""
        is_idle = self.has_term and self.partition_worker is None and not self.is_resting
        return is_idle and self._queue.why_closed is not None

    async def run(self) -> None:
        """Lead until the claim is revoked, lost or useless; then hand it over."""
        try:
            while not self._over.is_set():
                began = time.monotonic()
                try:
                    await self._lead_once()
                except (EpochMoved, FencedBySink):
                    await self._pause(_RETRY_PAUSE)
                except WrongPartitions:
                    if not await self._has_partition():
                        break
                except NotLeader:
                    break  # another worker may own it now; the election offers it again
                except SinkAhead:
                    continue  # it has been told, and the pause is over
                except _RETRIED as error:
                    # terms that fail as soon as they begin are one outage, not many
                    if time.monotonic() - began > _STEADY:
                        self._tries = 0
                        self._repeats.forget(None)
                    self._tries += 1
                    self._warn_once("term_failed", error)
                    await self._pause(min(_LONGEST_PAUSE, backoff(self._tries)))
                self._ahead_since = None
            await self._release_last()
        finally:
            self._claim.handed_over()

    async def _has_partition(self) -> bool:
        """Whether the tube still has this partition after a repartition; True while that is unknown."""
        try:
            await self._queue.reload_partitions()
        except _RETRIED as error:
            self._warn_once("term_failed", error)
            await self._pause(_RETRY_PAUSE)
            return not isinstance(error, UsageError)
        return self._claim.partition < self._queue.partitions

    async def _release_last(self) -> None:
        """Release the term if possible now; otherwise the term runs out."""
        try:
            await self._release_unreleased()
        except _RETRIED as error:
            self._warn_once("term_failed", error)

    def _warn_once(self, event: str, error: PytubeError) -> None:
        """Log an error that is retried, unless it was logged last."""
        if self._repeats.is_new(None, str(error)):
            self._queue.log.warning(event, partition=self._claim.partition, reason=str(error))

    async def _pause(self, seconds: float) -> None:
        """Sleep for about `seconds`, or until the claim is over."""
        await self._wait_for_claim(seconds * random.uniform(0.75, 1.25))  # noqa: S311 # spreads load only

    async def _wait_for_claim(self, timeout: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._over.wait()

    # --- one term -------------------------------------------------------------------------

    async def _lead_once(self) -> None:
        await self._release_unreleased()
        active_term = await self._begin()
        term = active_term.term
        where = term.tube, term.partition
        self._active_term = self._database.terms[where] = active_term
        self._has_met_closed_sink = False
        began = time.monotonic()
        try:
            await self._wait_for_earlier_terms(active_term)
            if not self._over.is_set():
                waited = time.monotonic() - began
                self._queue.emit(
                    LeaderAcquired(term.tube, term.partition, term.leader_id, term.epoch, waited=waited)
                )
                await self._work(active_term)
            if not active_term.unanswered:
                await self._release_unreleased()
            revoked = active_term.is_revoked
            self._emit_revoked(term, "the claim was given back" if revoked else "stopped")
        except NotLeader as error:
            self._queue.emit(LeaderFenced(term.tube, term.partition, term.leader_id, str(error)))
            if isinstance(error, FencedBySink):
                await self._check_sink_is_not_ahead(active_term, error)
            raise
        except PytubeError as error:
            self._emit_revoked(term, str(error))
            raise
        finally:
            # A claim that was lost may be granted again meanwhile: then the entry is that of the new term.
            if self._database.terms.get(where) is active_term:
                del self._database.terms[where]
            self._active_term = self.partition_worker = None
            self._claim.beat(None)
            if active_term.unanswered:  # then the next leader must wait until that write has timed out
                self._unreleased = None

    async def _begin(self) -> ActiveTerm:
        pool, queue, partition = self._database.pool, self._queue, self._claim.partition
        epoch = await terms.read_epoch(pool, queue.name, queue.partitions, partition)
        await self._claim.prove()
        sent_at = clock.now()
        term = await terms.acquire(pool, queue.name, queue.partitions, partition, epoch, queue.candidate)
        await fault(Point.AFTER_ACQUIRE)
        self._unreleased = term
        self._claim.beat(Heartbeat(queue.candidate.client_id, term.leader_id, term.epoch, 0, 0.0))
        return ActiveTerm(
            term, self._claim, deadline=queue.limits.receive_deadline, sent_at=sent_at, emit=queue.emit
        )

    async def _wait_for_earlier_terms(self, active_term: ActiveTerm) -> None:
        """Wait until no earlier term that could hold our keys can write: released, or timed out."""
        while not self._over.is_set():
            if active_term.ended is not None:
                raise active_term.ended
            left = await terms.wait_left(self._database.pool, active_term.term)
            if left <= 0:
                return
            await self._wait_for_claim(min(left, _WAIT_STEP))

    async def _work(self, active_term: ActiveTerm) -> None:
        """Deliver, and rest while the partition is paused, until the claim is over.

        A worker gives all back before it rests, and a new one begins after: what is paused holds no pod, so
        that operators can work on them.
        """
        while not self._over.is_set():
            if active_term.paused is not None:
                await self._rest(active_term, active_term.paused)
                if self._over.is_set() or active_term.unanswered:
                    return
            if not await self._wait_until_open(active_term):
                continue
            self.partition_worker = worker = self._queue.consume(active_term, self._database)
            try:
                await worker.run()
                await worker.drain(self._drain_limit())
            except BaseException:
                await worker.abort()
                raise
            if active_term.paused is None or active_term.unanswered:
                return

    async def _rest(self, active_term: ActiveTerm, reason: str) -> None:
        """Mark and send nothing until the pause is over, but for the steps that an operator asks for."""
        term, began = active_term.term, time.monotonic()
        self.partition_worker = None
        for what in ("sink", "source"):
            active_term.troubles.end(what)  # nobody asks them any more
        # Writers need not notify, and nothing has to be settled for a partition that does not mark.
        await wake_up(self._database.pool, term)
        active_term.sleeps = True
        active_term.troubles.begin("paused", reason)
        self.is_resting = True
        self._queue.emit(PartitionPaused(term.tube, term.partition, reason))
        try:
            while active_term.paused is not None and not self._over.is_set():
                if active_term.ended is not None:
                    raise active_term.ended
                active_term.attention.clear()
                if (step := active_term.step) is not None:
                    active_term.step = None
                    await self._queue.step(active_term, self._database, step)
                else:
                    await active_term.attention.wait()
        finally:
            self.is_resting = active_term.sleeps = False
            active_term.troubles.end("paused")
            active_term.wake()
        if active_term.paused is None:
            self._queue.emit(PartitionResumed(term.tube, term.partition, time.monotonic() - began))

    async def _wait_until_open(self, active_term: ActiveTerm) -> bool:
        """Mark nothing before the sink has been opened; whether it has been.

        A pause ends the wait, so that `pytube pause` need not wait for a sink that does not open. The
        term is led meanwhile, as when a sink goes down later: its renewals tell everybody why nothing is
        delivered.
        """
        reason, term = self._queue.why_closed, active_term.term
        if reason is None:
            if self._has_met_closed_sink:  # before a pause, during which it was opened
                self._tell_open(active_term)
            return True
        self._has_met_closed_sink = True
        active_term.troubles.begin("sink", reason)
        active_term.tell_down("sink", SinkDown(term.tube, term.partition, reason))
        while self._queue.why_closed is not None and not self._over.is_set() and active_term.paused is None:
            if active_term.ended is not None:
                raise active_term.ended
            active_term.check_trust()
            await self._wait_for_claim(_WAIT_STEP)
        if self._queue.why_closed is not None or self._over.is_set():
            return False
        self._tell_open(active_term)
        return True

    def _tell_open(self, active_term: ActiveTerm) -> None:
        self._has_met_closed_sink = False
        active_term.troubles.end("sink")
        where = active_term.term.tube, active_term.term.partition
        active_term.tell_up("sink", lambda seconds: SinkUp(*where, seconds))

    def _drain_limit(self) -> float:
        """A revoked claim keeps the election waiting, so drain only the sends under way."""
        limits = self._queue.limits
        if self._queue.stopping:
            return limits.drain_limit
        return min(limits.request_timeout, limits.drain_limit)

    # --- its end --------------------------------------------------------------------------

    def _emit_revoked(self, term: terms.Term, reason: str) -> None:
        self._queue.emit(LeaderRevoked(term.tube, term.partition, term.leader_id, reason))

    async def _release_unreleased(self) -> None:
        """Release a term whose worker has ended; a term that is over already needs nothing."""
        if self._unreleased is None:
            return
        try:
            await fault(Point.BEFORE_RELEASE)
            await terms.release(self._database.pool, self._unreleased)
            await fault(Point.AFTER_RELEASE)
        except (NotLeader, UsageError):
            pass  # the term was ended elsewhere
        self._unreleased = None

    async def _check_sink_is_not_ahead(self, active_term: ActiveTerm, error: FencedBySink) -> None:
        tube = self._queue.name
        issued = await terms.last_epoch(self._database.pool, tube)
        if error.newer.epoch > issued:
            ahead = SinkAhead(
                f"the sink of tube {tube!r} holds epoch {error.newer.epoch}, but this database "
                f"has issued {issued} at most (was it restored from a backup?); nothing is sent until "
                f"`pytube tube rebase {tube} --epoch {error.newer.epoch}` was run"
            )
            self._warn_once("sink_ahead", ahead)
            await self._tell_sink_is_ahead(active_term, str(ahead), error.newer.epoch)
            raise ahead from error

    async def _tell_sink_is_ahead(self, active_term: ActiveTerm, reason: str, epoch: int) -> None:
        """Keep the term for a pause, though it sends nothing: its renewals tell everybody why.

        The first renewal does not wait for its turn. Else each new term would look well for a moment. The
        pause ends early when the tube is rebased; it ends at all because the sink may have been emptied.
        """
        if self._ahead_since is None:
            self._ahead_since = time.monotonic()
        active_term.troubles.begin("sink", reason, self._ahead_since)
        pool = self._database.pool
        await terms.renew(pool, {active_term.term.leader_id: active_term.troubles})
        ends_at = time.monotonic() + _AHEAD_PAUSE
        while not self._over.is_set() and (left := ends_at - time.monotonic()) > 0:
            await self._pause(min(_AHEAD_LOOK, left))
            if await terms.last_epoch(pool, self._queue.name) >= epoch:
                return
