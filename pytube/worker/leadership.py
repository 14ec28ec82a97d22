"""Leads one partition for as long as its claim lasts: term after term, a `PartitionWorker` for each.

The order of a term's beginning makes it safe: read the epoch, prove the right to lead, acquire against
that epoch, wait until no earlier term can write any more, and only then mark. Its end, in order: stop, let
sends finish, purge, reset, release, hand over.
"""

from __future__ import annotations

import asyncio
import random
import time

from pytube import clock
from pytube.election.base import Claim
from pytube.errors import (
    RECOVERABLE,
    BrokerUnavailable,
    ClaimLost,
    EpochMoved,
    FencedBySink,
    NotLeader,
    PytubeError,
    SinkAhead,
    UsageError,
    WrongPartitions,
)
from pytube.events import LeaderAcquired, LeaderFenced, LeaderRevoked
from pytube.faults import Point, fault
from pytube.model import Heartbeat
from pytube.pipeline.retry_queue import backoff
from pytube.pipeline.term_deadline import TermDeadline
from pytube.sources import terms
from pytube.sources.session import Session
from pytube.worker.active_term import ActiveTerm
from pytube.worker.host import Host
from pytube.worker.partition_worker import PartitionWorker

_RETRIED = (BrokerUnavailable, *RECOVERABLE)
_RETRY_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_STEADY = 10.0
"""Seconds after which a term counts as having worked."""

_AHEAD_PAUSE = 10.0
_CANCEL_LIMIT = 5.0
"""Seconds for a cancelled worker to end; a statement under way takes one of them at most."""

_WAIT_STEP = 0.2


class Leadership:
    """One claim on one partition in this process, and the terms that it leads."""

    def __init__(self, runner: Host, claim: Claim) -> None:
        self._runner = runner
        self._claim = claim
        self._unreleased: terms.Term | None = None
        self._last_warning: str | None = None
        self._tries = 0
        self.active_term: ActiveTerm | None = None
        self.partition_worker: PartitionWorker | None = None

    @property
    def _over(self) -> bool:
        return self._claim.revoked.is_set() or self._claim.lost.is_set()

    async def run(self) -> None:
        """Lead until the claim is revoked, lost or useless; then hand it over."""
        try:
            while not self._over:
                if self._runner.database.control_now is None:
                    await self._pause(_RETRY_PAUSE)
                    continue
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
                except SinkAhead as error:
                    self._warn_once(error)
                    await self._pause(_AHEAD_PAUSE)
                except _RETRIED as error:
                    # terms that fail as soon as they begin are one outage, not many
                    if time.monotonic() - began > _STEADY:
                        self._tries, self._last_warning = 0, None
                    self._tries += 1
                    self._warn_once(error)
                    await self._pause(min(_LONGEST_PAUSE, backoff(self._tries)))
            await self._release_last()
        finally:
            self._claim.handed_over()

    async def _has_partition(self) -> bool:
        """Whether the tube still has this partition after a repartition; True while that is unknown."""
        try:
            await self._runner.reload_partitions()
        except _RETRIED as error:
            self._warn_once(error)
            await self._pause(_RETRY_PAUSE)
            return not isinstance(error, UsageError)
        return self._claim.partition < self._runner.partitions

    async def _release_last(self) -> None:
        """Release the term if possible now; otherwise the term runs out."""
        if self._runner.database.control_now is None:
            return
        try:
            await self._release_unreleased()
        except _RETRIED as error:
            self._warn_once(error)

    def _warn_once(self, error: PytubeError) -> None:
        """Log an error that is retried, unless it was logged last."""
        if str(error) != self._last_warning:
            self._last_warning = str(error)
            self._runner.warn(str(error), partition=self._claim.partition)

    async def _pause(self, seconds: float) -> None:
        """Sleep for about `seconds`, or until the claim is over."""
        await self._claim_over(seconds * random.uniform(0.75, 1.25))  # noqa: S311 # spreads load only

    async def _claim_over(self, timeout: float | None) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._claim.revoked, self._claim.lost)]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # --- one term -------------------------------------------------------------------------

    async def _lead_once(self) -> None:
        control = await self._runner.database.control()
        await self._release_unreleased()
        active_term = await self._begin(control)
        self.active_term = active_term
        began = time.monotonic()
        try:
            await self._wait_for_earlier_terms(control, active_term)
            if not self._over:
                self._runner.emit(
                    LeaderAcquired(
                        active_term.term.tube,
                        active_term.term.partition,
                        active_term.term.leader_id,
                        active_term.term.epoch,
                        waited=time.monotonic() - began,
                    )
                )
                await self._work(active_term)
            await self._end(
                active_term, "the claim was given back" if self._claim.revoked.is_set() else "stopped"
            )
        except FencedBySink as error:
            await self._emit_fenced(active_term, error)
            await self._check_sink_is_not_ahead(control, error)
            raise
        except NotLeader as error:
            await self._emit_fenced(active_term, error)
            raise
        except PytubeError as error:
            self._emit_revoked(active_term, str(error))
            raise
        finally:
            self.active_term = self.partition_worker = None
            self._claim.beat(None)
            if active_term.unanswered:  # then the next leader must wait until that write has timed out
                self._unreleased = None

    async def _begin(self, control: Session) -> ActiveTerm:
        runner = self._runner
        partition = self._claim.partition
        epoch = await terms.read_epoch(control, runner.tube, runner.partitions, partition)
        await self._claim.prove()
        sent_at = clock.now()
        term = await terms.acquire(
            control, runner.tube, runner.partitions, partition, epoch, runner.candidate
        )
        await fault(Point.AFTER_ACQUIRE)
        self._unreleased = term
        self._claim.beat(Heartbeat(runner.candidate.client_id, term.leader_id, term.epoch, 0, 0.0))
        return ActiveTerm(
            term, self._claim, TermDeadline(runner.limits.receive_deadline, sent_at), runner.emit
        )

    async def _wait_for_earlier_terms(self, control: Session, active_term: ActiveTerm) -> None:
        """Wait until no earlier term that could hold our keys can write: released, or timed out."""
        while not self._over:
            if active_term.ended.done():
                raise active_term.ended.result()
            left = await terms.wait_left(control, active_term.term)
            if left <= 0:
                return
            await self._claim_over(min(left, _WAIT_STEP))

    async def _work(self, active_term: ActiveTerm) -> None:
        session = await self._runner.database.open_session(
            f"line {active_term.term.partition}", durable=False
        )
        try:
            self.partition_worker = worker = self._runner.make_partition_worker(active_term, session)
            working = asyncio.create_task(worker.run())
            watching = asyncio.create_task(self._watch(active_term, worker))
            try:
                await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()  # a worker that nobody watches would outlive its claim
                await working
                await worker.drain(self._drain_limit())
            except BaseException:
                working.cancel()
                await asyncio.wait([working], timeout=_CANCEL_LIMIT)
                await worker.abort()
                raise
            finally:
                watching.cancel()
        finally:
            await session.close()

    def _drain_limit(self) -> float:
        """A revoked claim keeps the election waiting, so drain only the sends under way."""
        limits = self._runner.limits
        return (
            limits.drain_limit if self._runner.stopping else min(limits.request_timeout, limits.drain_limit)
        )

    async def _watch(self, active_term: ActiveTerm, worker: PartitionWorker) -> None:
        """Tell the worker when the claim is over, or the term."""
        active_term.ended.add_done_callback(lambda _: worker.attend())
        await self._claim_over(None)
        if self._claim.lost.is_set():
            active_term.end(ClaimLost("the election gave the partition to another worker"))
        else:
            await fault(Point.ON_REVOKE)
            worker.stop()

    # --- its end --------------------------------------------------------------------------

    async def _end(self, active_term: ActiveTerm, reason: str) -> None:
        """Release the term, unless a write is still unanswered."""
        if not active_term.unanswered:
            await self._release_unreleased()
        self._emit_revoked(active_term, reason)

    def _emit_revoked(self, active_term: ActiveTerm, reason: str) -> None:
        term = active_term.term
        self._runner.emit(LeaderRevoked(term.tube, term.partition, term.leader_id, reason))

    async def _emit_fenced(self, active_term: ActiveTerm, error: NotLeader) -> None:
        term = active_term.term
        self._runner.emit(LeaderFenced(term.tube, term.partition, term.leader_id, str(error)))

    async def _release_unreleased(self) -> None:
        """Release a term whose worker has ended; a term that is over already needs nothing."""
        if self._unreleased is None:
            return
        try:
            control = await self._runner.database.control()
            await fault(Point.BEFORE_RELEASE)
            await terms.release(control, self._unreleased)
            await fault(Point.AFTER_RELEASE)
        except (NotLeader, UsageError):
            pass  # the term was ended elsewhere
        self._unreleased = None

    async def _check_sink_is_not_ahead(self, control: Session, error: FencedBySink) -> None:
        issued = await terms.last_epoch(control, self._runner.tube)
        if error.newer.epoch > issued:
            raise SinkAhead(
                f"the sink of tube {self._runner.tube!r} holds epoch {error.newer.epoch}, but this database "
                f"has issued {issued} at most (was it restored from a backup?); nothing is sent until "
                f"`pytube tube rebase {self._runner.tube} --epoch {error.newer.epoch}` was run"
            ) from error
