"""Leads one partition for as long as its claim lasts: term after term, a `PartitionWorker` for each.

The order of a term's beginning makes it safe: read the epoch, prove the right to lead, acquire against
that epoch, wait until no earlier term can write any more, and only then mark. Its end, in order: stop, let
sends finish, purge, reset, release, hand over. A pause is the same without the last two: the term continues.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from contextlib import suppress

from pytube import clock
from pytube.election.base import Claim, Shutdown
from pytube.errors import (
    RECOVERABLE,
    BrokerUnavailable,
    ElectionConflict,
    EpochMoved,
    Fenced,
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
    TermsFail,
)
from pytube.faults import Point, fault
from pytube.pipeline.retry_queue import backoff
from pytube.sources import terms
from pytube.sources.wakeup import wake_up
from pytube.worker.active_term import ActiveTerm
from pytube.worker.queues import FailingTerms, Queue

_RETRIED = (BrokerUnavailable, ElectionConflict, *RECOVERABLE)
_RETRY_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_STEADY = 10.0
"""Seconds after which a term counts as having worked."""

_AHEAD_PAUSE = 10.0
_AHEAD_LOOK = 1.0
"""Seconds between looks whether a tube whose sink is ahead has been rebased."""

_WAIT_STEP = 0.2
"""Seconds between looks whether the sink has been opened."""

_ALARM = 3
"""Terms that have failed alike, one after the other, before this is reported."""
_ALIKE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+")
"""The parts in which two equal errors differ."""
_MENDED = 60.0
"""Seconds that a term lasts after which the failures before it are over."""


class Leadership:
    """One claim on one partition in this process, and the terms that it leads."""

    def __init__(self, queue: Queue, claim: Claim) -> None:
        self._queue = queue
        self._database = queue.database
        self._claim = claim
        self._told = ""
        """The error that was logged last, as long as terms fail."""
        self._tries = 0
        self._ahead_since: float | None = None
        """Since when one term after the other finds the sink ahead."""

    async def run(self) -> None:
        """Lead until the claim is revoked, lost or useless; then hand it over."""
        try:
            while self._claim.withdrawn is None and await self._lead_and_rest():
                pass
        finally:
            self._claim.handed_over()

    # --- term after term ------------------------------------------------------------------

    async def _lead_and_rest(self) -> bool:
        """One term, and a pause if it has failed; whether another may begin."""
        began, active_term = time.monotonic(), None
        try:
            active_term = await self._begin()
            await self._lead_once(active_term)
        except (EpochMoved, FencedBySink):
            await self._sleep(_RETRY_PAUSE)
        except WrongPartitions:
            if not await self._has_partition():
                return False
        except NotLeader:
            return False  # another worker may own it now; the election offers it again
        except SinkAhead:
            return True  # it has been reported, and the pause is over
        except _RETRIED as error:
            await self._rest_after(error, time.monotonic() - began, begun=active_term is not None)
        except Exception as error:
            if active_term is not None:
                await self._note_failure(error, 1)
            raise
        else:
            await self._note_mended()
        self._ahead_since = None
        return True

    async def _rest_after(self, error: PytubeError, lasted: float, *, begun: bool) -> None:
        """Pause after a term that has failed, for longer each time."""
        # terms that fail as soon as they begin are one outage, not many
        if lasted > _STEADY:
            self._tries = 0
            self._told = ""
        self._tries += 1
        self._warn_once("term_failed", error)
        # A partition that can't begin shows as having no leader; under the other election, it has one.
        if begun or isinstance(error, ElectionConflict):
            await self._note_failure(error, _ALARM)
        await self._sleep(min(_LONGEST_PAUSE, backoff(self._tries)))

    async def _note_failure(self, error: Exception, alarm: int) -> None:
        """Count a term that has ended by an error; report it when so many have ended alike.

        Each new term looks as if it delivered, so the failure would go unnoticed. A bug of pytube is reported
        at once: it has not released its term, so the next one begins late.
        """
        reason, failing = f"{type(error).__name__}: {error}", self._queue.failing
        alike, number = _ALIKE.sub("#", reason), self._claim.partition
        one = failing.get(number)
        if one is None or one.alike != alike:
            one = failing[number] = FailingTerms(
                alike, time.monotonic(), is_told=one is not None and one.is_told
            )
        one.terms += 1
        if one.terms == alarm:
            self._queue.emit(TermsFail(self._queue.name, number, reason, one.terms))
        if one.terms >= alarm:
            one.is_told = True
            await self._write_failing(reason, one.terms, time.monotonic() - one.since)

    async def _note_mended(self) -> None:
        one = self._queue.failing.pop(self._claim.partition, None)
        if one is not None and one.is_told:
            await self._write_failing()

    async def _note_mended_later(self) -> None:
        await asyncio.sleep(_MENDED)
        await self._note_mended()

    async def _write_failing(self, reason: str = "", count: int = 0, seconds: float = 0.0) -> None:
        with suppress(*_RETRIED):  # the services that can't reach Postgres report it
            await terms.note_failing(
                self._database.pool, self._queue.name, self._claim.partition, reason, count, seconds
            )

    async def _has_partition(self) -> bool:
        """Whether the tube still has this partition after a repartition; True while that is unknown."""
        try:
            await self._queue.reload_partitions()
        except _RETRIED as error:
            self._warn_once("term_failed", error)
            await self._sleep(_RETRY_PAUSE)
            return not isinstance(error, UsageError)
        return self._claim.partition < self._queue.partitions

    def _warn_once(self, event: str, error: PytubeError) -> None:
        """Log an error that is retried, unless it was logged last."""
        if self._told != str(error):
            self._told = str(error)
            self._queue.log.warning(event, partition=self._claim.partition, reason=str(error))

    async def _sleep(self, seconds: float) -> None:
        """Sleep for about `seconds`, or until the claim is withdrawn."""
        await self._claim.wait_until_withdrawn(seconds * random.uniform(0.75, 1.25))  # noqa: S311 # spreads load

    # --- one term -------------------------------------------------------------------------

    async def _lead_once(self, active_term: ActiveTerm) -> None:
        term = active_term.term
        where = term.tube, term.partition
        self._database.terms[where] = active_term
        is_known = True
        mended = asyncio.create_task(self._note_mended_later())
        try:
            await self._wait_for_earlier_terms(active_term)
            await self._work(active_term)
            self._emit_revoked(term, "stopped" if active_term.stop is None else active_term.stop.reason)
        except NotLeader as error:
            active_term.end(error)
            self._queue.emit(LeaderFenced(term.tube, term.partition, term.leader_id, str(error)))
            if isinstance(error, FencedBySink):
                await self._check_sink_is_not_ahead(active_term, error)
            raise
        except PytubeError as error:
            active_term.end(error)
            self._emit_revoked(term, str(error))
            raise
        except BaseException:
            is_known = False
            raise
        finally:
            mended.cancel()
            # A claim that was lost may be granted again meanwhile: then the entry is that of the new term.
            if self._database.terms.get(where) is active_term:
                del self._database.terms[where]
            active_term.worker = None
            # Whoever leads next waits until a write that is unanswered, or that a fault left, has timed out.
            if is_known and not active_term.unanswered:
                await self._release(active_term)

    async def _begin(self) -> ActiveTerm:
        pool, queue, partition = self._database.pool, self._queue, self._claim.partition
        epoch = await terms.read_epoch(pool, queue.name, queue.partitions, partition)
        await self._claim.prove()
        sent_at = clock.now()
        term = await terms.acquire(pool, queue.name, queue.partitions, partition, epoch, queue.candidate)
        await fault(Point.AFTER_ACQUIRE)
        return ActiveTerm(
            term, self._claim, deadline=queue.limits.receive_deadline, sent_at=sent_at, emit=queue.emit
        )

    async def _wait_for_earlier_terms(self, active_term: ActiveTerm) -> None:
        """Wait until no earlier term that could hold this term's keys can write: released, or timed out."""
        # Asked once: an ended term is renewed no more, so the moment does not move. It counts from the
        # answer: the database measures after it was asked.
        began = time.monotonic()
        left = await terms.wait_left(self._database.pool, active_term.term)
        may_begin = clock.now() + left
        while active_term.pause is not None or active_term.goes_on():
            if (left := may_begin - clock.now()) <= 0:
                term, waited = active_term.term, time.monotonic() - began
                self._queue.emit(
                    LeaderAcquired(term.tube, term.partition, term.leader_id, term.epoch, waited=waited)
                )
                return
            active_term.attention.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await active_term.attention.wait()

    async def _work(self, active_term: ActiveTerm) -> None:
        """Deliver, and rest while the partition is paused, until the claim is over.

        A worker gives all back before it rests, and a new one begins after: a paused partition holds no pod,
        so that operators can work on them.
        """
        has_met_closed_sink = False
        while not active_term.unanswered:
            if active_term.pause is not None:
                await self._rest(active_term, active_term.pause.reason)
            elif not active_term.goes_on():
                return
            elif (reason := self._queue.why_closed) is not None:
                has_met_closed_sink = True
                await self._wait_for_sink(active_term, reason)
            else:
                if has_met_closed_sink:
                    has_met_closed_sink = False
                    active_term.note_up("sink")
                active_term.worker = worker = self._queue.consume(active_term)
                try:
                    await worker.run()
                    await worker.drain(self._drain_limit(active_term))
                except BaseException as error:
                    # The term can't be released then: the next leader waits until late writes have timed out.
                    await worker.abort(is_over=isinstance(error, Fenced | WrongPartitions))
                    raise
                if active_term.pause is None:
                    return

    async def _rest(self, active_term: ActiveTerm, reason: str) -> None:
        """Mark and send nothing until the pause is over, but for the steps that an operator asks for."""
        term, began = active_term.term, time.monotonic()
        active_term.worker = None
        for what in ("sink", "source"):
            active_term.troubles.end(what)  # its source of reports is gone
        # Writers need not notify, and nothing has to be settled for a partition that does not mark.
        await wake_up(self._database.pool, term)
        active_term.sleeps = True
        active_term.troubles.note("paused", reason)
        self._queue.emit(PartitionPaused(term.tube, term.partition, reason))
        try:
            while active_term.pause is not None:
                active_term.attention.clear()
                if (step := active_term.step) is not None:
                    active_term.step = None
                    await self._queue.step(active_term, step)
                else:
                    await active_term.attention.wait()
        finally:
            active_term.sleeps = False
            active_term.troubles.end("paused")
            active_term.wake()
        if active_term.stop is None:
            self._queue.emit(PartitionResumed(term.tube, term.partition, time.monotonic() - began))

    async def _wait_for_sink(self, active_term: ActiveTerm, reason: str) -> None:
        """Mark nothing for a moment, as the sink has not been opened.

        The term is led meanwhile, as when a sink goes down later: its renewals report why nothing is
        delivered. A pause need not wait for a sink that does not open.
        """
        active_term.note_down("sink", reason)
        active_term.check_trust()
        await self._claim.wait_until_withdrawn(_WAIT_STEP)

    def _drain_limit(self, active_term: ActiveTerm) -> float:
        """A revoked claim keeps the election waiting, so drain only the sends under way."""
        limits = self._queue.limits
        if isinstance(active_term.stop, Shutdown):
            return limits.drain_limit
        return min(limits.request_timeout, limits.drain_limit)

    # --- its end --------------------------------------------------------------------------

    def _emit_revoked(self, term: terms.Term, reason: str) -> None:
        self._queue.emit(LeaderRevoked(term.tube, term.partition, term.leader_id, reason))

    async def _release(self, active_term: ActiveTerm) -> None:
        """Release a term whose worker has ended, so that the next leader need not wait.

        While Postgres is away it is tried again, for as long as that spares the next one a wait.
        """
        while True:
            try:
                await fault(Point.BEFORE_RELEASE)
                await terms.release(self._database.pool, active_term.term)
                await fault(Point.AFTER_RELEASE)
            except (NotLeader, UsageError):
                return  # the term was ended elsewhere
            except _RETRIED:  # the host reports that Postgres is away
                if self._claim.withdrawn is not None or not active_term.may_write_late(
                    self._queue.limits.hold
                ):
                    return
                await self._claim.wait_until_withdrawn(_RETRY_PAUSE)
            else:
                return

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
        """Keep the term for a pause, though it sends nothing: its renewals report why.

        The first renewal does not wait for its turn. Else each new term would look healthy for a moment. The
        pause ends early when the tube is rebased; it ends at all because the sink may have been emptied.
        """
        if self._ahead_since is None:
            self._ahead_since = time.monotonic()
        active_term.troubles.note("sink", reason, self._ahead_since)
        pool = self._database.pool
        await terms.renew(pool, {active_term.term.leader_id: active_term.troubles})
        ends_at = time.monotonic() + _AHEAD_PAUSE
        while self._claim.withdrawn is None and (left := ends_at - time.monotonic()) > 0:
            await self._sleep(min(_AHEAD_LOOK, left))
            if await terms.last_epoch(pool, self._queue.name) >= epoch:
                return
