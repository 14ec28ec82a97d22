"""Delivers keys to the sink: draw a token, enrich, transform, send. It returns the outcome, and acts on none.

Two circuit breakers of each partition are open while its sink accepts nothing, or its source can't be read.
Then one delivery at a time is begun, to probe it, after a back-off that grows; its success closes the circuit
for all. Meanwhile nothing else is read or sent, nothing is parked, and no attempt is used up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

from pytube.errors import (
    DatabaseUnavailable,
    EnrichDataError,
    EnrichFailed,
    EnrichTimeout,
    FencedBySink,
    SinkTimeout,
    SinkUnavailable,
)
from pytube.faults import Point, fault
from pytube.model import Batch, Documents, Id, Key, PodClass, Result, Token
from pytube.pipeline.batches import (
    Answers,
    BatchSize,
    by_shard,
    is_all_ok,
    keys_of,
    last_written,
    sort_answers,
    split,
)
from pytube.pipeline.inflight import Flight
from pytube.pipeline.limits import Sent
from pytube.pipeline.retry_queue import backoff
from pytube.transforms import Origin, Transforms
from pytube.worker.active_term import ActiveTerm, LockedTables
from pytube.worker.metrics import UNTRACED, BatchTrace, PartitionTraces
from pytube.worker.shared_sink import batch_documents

if TYPE_CHECKING:
    from pytube.worker.queues import Tube

_JITTER = 0.25
_LONGEST_REFUSED = 4.0
"""Seconds at most until rows that Postgres refused to read, for want of a right, say, are read again. Each
try costs a statement, and the person who grants the right waits for it."""


class CircuitBreaker:
    """Whether the sink, or the source, answers this partition: a failure opens it, and a success closes it.

    It is only a number and some times: code that begins deliveries looks at it, and nothing waits for it.
    """

    def __init__(self, active_term: ActiveTerm, what: Literal["sink", "source"]) -> None:
        """Closed, as far as is known; `active_term` reports outages of `what`."""
        self._active_term = active_term
        self._what = what
        self._failures = 0
        self._opened_at = time.monotonic()
        self._is_doubtful = active_term.is_told_down(what)
        """Whether an outage began before, and its end was not seen: the first success ends it."""
        # Moments of `time.monotonic()`:
        self.next_probe = float("-inf")
        """While it is open: when the next request may begin."""
        self.succeeded_at = float("-inf")
        """When the last request succeeded."""
        self.failed_at = float("-inf")
        """When the last one failed."""
        self.closed_at = float("-inf")
        """When the last outage ended."""
        self.refused_at = float("-inf")
        """When the last request of this outage began that failed."""

    @property
    def is_closed(self) -> bool:
        return self._failures == 0

    def fail(self, reason: str, begun: float = float("-inf"), *, longest: float = float("inf")) -> None:
        """A request that began then failed: open the circuit; the back-off grows with each failed probe.

        `longest`: seconds of the back-off at most.
        """
        self.failed_at = now = time.monotonic()
        if self.is_closed:
            self._opened_at = self.next_probe = now  # the back-off of an earlier outage does not count
            self.refused_at = float("-inf")
        elif begun >= self._opened_at:
            self.refused_at = begun
        if now >= self.next_probe:  # requests that were under way together count as one failure
            self._failures += 1
            jitter = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 # spreads load, guards nothing
            self.next_probe = now + min(backoff(self._failures), longest) * jitter
        self._active_term.note_down(self._what, reason, self.next_probe)

    def succeed(self) -> float | None:
        """A request succeeded: close the circuit. The length in seconds of the outage that this ends."""
        self.succeeded_at = time.monotonic()
        if self.is_closed and not self._is_doubtful:
            return None
        self._failures, self._is_doubtful = 0, False
        self.closed_at = self.succeeded_at
        self._active_term.note_up(self._what)
        self._active_term.attention.set()  # others may begin
        return self.closed_at - self._opened_at


@dataclass(slots=True)
class Outcome:
    """The result of one delivery. Each of its keys is in exactly one of these places."""

    flight: Flight
    done: list[Mapping[int, Sequence[Id]]] = field(default_factory=list)
    """Ids by shard that the sink has; separate for each batch."""
    skipped: list[Key] = field(default_factory=list)
    """Keys of which a transform wants nothing to be sent."""
    rejected: dict[Key, str] = field(default_factory=dict)
    """Documents that the sink will never take, or a transform can't make, and why."""
    orphans: list[Key] = field(default_factory=list)
    """Keys of a shard that no attached table has."""
    delayed: dict[Key, float] = field(default_factory=dict)
    """Keys that the sink put off, by so many seconds."""
    why_delayed: str = ""
    """The sink's reason for one of them."""
    failed: list[tuple[Sequence[Key], str]] = field(default_factory=list)
    """Groups that failed as a whole, because of at least one of their documents."""
    unsure: list[Sequence[Key]] = field(default_factory=list)
    """Groups that were not read or answered in time: perhaps, but not surely, because of a document."""
    unsent: list[Sequence[Key]] = field(default_factory=list)
    """Groups of which nothing was sent."""
    held_back: list[Key] = field(default_factory=list)
    """Parked keys that a touch does not try again."""
    documents: dict[Key, bytes | None] = field(default_factory=dict)
    """The documents sent for keys that may be parked, if they are to be kept; no other place has them."""
    taken: Key | None = field(default=None, compare=False)
    """A key that is done, by a document and not by a delete."""
    trace: BatchTrace = field(default=UNTRACED, compare=False)

    def counts(self) -> dict[str, int]:
        return {
            "failed": sum(len(keys) for keys, _ in self.failed),
            "unsure": sum(map(len, self.unsure)),
            "rejected": len(self.rejected),
            "orphaned": len(self.orphans),
            "delayed": len(self.delayed),
            "unsent": sum(map(len, self.unsent)),
            "delivered": sum(len(ids) for groups in self.done for ids in groups.values()),
            "skipped": len(self.skipped),
            "held back": len(self.held_back),
        }


class Deliverer:
    """Delivers the flights of one partition under one term."""

    def __init__(self, active_term: ActiveTerm, tube: Tube, traces: PartitionTraces) -> None:
        self._settings = settings = tube.settings
        self.size = BatchSize(batch_documents(settings.sink), settings.sink.batch_bytes)
        self.sink_breaker = CircuitBreaker(active_term, "sink")
        self.source_breaker = CircuitBreaker(active_term, "source")
        self.held_up = Counter[PodClass]()
        """Deliveries of each class that wait at the gate with the documents that they have read."""
        self.arrived = 0
        """Deliveries that have read and transformed: they send, or wait at the gate."""
        self.is_awaited = True
        """Whether keys wait that may be read once another delivery has read."""
        self.sending: set[asyncio.Task[object]] = set()
        """The tasks that wait for an answer of the sink, and should not be cancelled."""
        self.locked = LockedTables(active_term)
        """Tables that reads wait for."""
        active_term.troubles.watch("slow", tube.gate.why_slow)
        active_term.troubles.watch("late", tube.gate.why_late)
        self._active_term = active_term
        self._enricher = tube.enricher
        self._transforms = tube.transforms
        self._sink = tube.sink
        self._gate = tube.gate
        self._faults = tube.faults
        self._metrics = tube.metrics
        self._traces = traces
        self._turns = asyncio.Semaphore(settings.sink.sends)
        self._slow_since: WeakKeyDictionary[Flight, float] = WeakKeyDictionary()
        """When the last read of each flight that timed out began."""

    @property
    def is_up(self) -> bool:
        return self.sink_breaker.is_closed and self.source_breaker.is_closed

    @property
    def next_probe(self) -> float:
        """While they do not: when the next delivery may begin, by `time.monotonic()`."""
        sink, source = self.sink_breaker, self.source_breaker
        moments = [float("-inf") if sink.is_closed else sink.next_probe]
        if not source.is_closed and self.locked.freed_at < source.failed_at:  # else it may be read now
            moments.append(source.next_probe)
        return max(moments)

    async def deliver(
        self, flight: Flight, groups: Mapping[int, Sequence[Id]], *, probes: bool = True
    ) -> Outcome:
        """Deliver keys of a flight, given as ids by shard.

        A delivery that is cancelled after the sink has acknowledged a part of it returns as well. While the
        sink or the source is down, only a delivery that `probes` reads and sends.

        Raises:
            FencedBySink: the sink holds a write of a later term.
        """
        outcome = Outcome(flight, trace=self._traces.batch(flight, groups))
        with outcome.trace:
            try:
                await self._deliver(outcome, groups, probes=probes)
            except asyncio.CancelledError:
                if not outcome.done:
                    raise
                # The worker ends; what the sink has acknowledged is done, whatever became of the rest.
        return outcome

    async def _deliver(self, outcome: Outcome, groups: Mapping[int, Sequence[Id]], *, probes: bool) -> None:
        async with self._turns:
            await self._active_term.wait_until_trusted()
            if not (probes or self.is_up):  # what would be read now would be old when it may be sent
                outcome.unsent.append(keys_of(groups))
                return
            token = self._active_term.next_token()
            await fault(Point.BEFORE_ENRICH)
            documents, tables = await self._read(outcome, groups, token)
            if self._transforms is not None:
                documents = await self._transform(self._transforms, outcome, documents, tables)
            self.arrived += 1
            if self.is_awaited:
                self._active_term.attention.set()  # another one may read now
            try:
                await self._send_all(outcome, token, documents, probes=probes)
            finally:
                self.arrived -= 1

    def may_read(self, reading: int) -> bool:
        """Whether another delivery may read beside so many: no more than the gate lets pass at a time.

        Documents read earlier would be old by the time they are sent.
        """
        return reading == 0 or reading < self._gate.control.requests

    async def wait_for_unanswered(self) -> None:
        """Wait, for at most a request timeout, until no abandoned write can still take effect."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.sink.request_timeout):
                for batch in list(self._active_term.unanswered):
                    await self._sink.abandon(batch)
                    self._active_term.unanswered.discard(batch)

    # --- read -----------------------------------------------------------------------------

    async def _read(
        self, outcome: Outcome, groups: Mapping[int, Sequence[Id]], token: Token
    ) -> tuple[Documents, Mapping[int, str | None]]:
        """The documents of these keys, and the root table of each shard.

        There are none when they could not be read, and the outcome says why.
        """
        breaker = self.source_breaker
        begun = time.monotonic()
        documents = Documents(token, outcome.flight.stamp)
        tables: dict[int, str | None] = {}
        orphans: list[Key] = []
        urgent = outcome.flight.pod_class is PodClass.INCREMENTAL
        try:
            with outcome.trace.step("enrich"):
                found = await self._enricher.read(groups, urgent=urgent, locks=self.locked)
                for shard, ids in groups.items():
                    read, known = found[shard], ids
                    if read.orphans:
                        gone = set(read.orphans)
                        orphans += keys_of({shard: read.orphans})
                        known = [key for key in ids if key not in gone]
                    documents.add(shard, known, map(read.bodies.get, known))
                    tables[shard] = read.table
        except EnrichDataError as error:
            breaker.succeed()
            outcome.failed.append((keys_of(groups), str(error)))
        except EnrichTimeout as error:
            self._handle_slow_read(outcome, keys_of(groups), str(error), begun)
        except (EnrichFailed, DatabaseUnavailable) as error:
            # After a lost session, too: what a read has not done can be done again, under the same term.
            longest = _LONGEST_REFUSED if isinstance(error, EnrichFailed) else float("inf")
            breaker.fail(str(error), begun, longest=longest)
            outcome.unsent.append(keys_of(groups))
        else:
            breaker.succeed()
            outcome.orphans += orphans
            self.size.observe(len(documents), documents.size)
            return documents, tables
        finally:
            self._metrics.reads.observe(time.monotonic() - begun)
        return Documents(token, outcome.flight.stamp), {}

    def _handle_slow_read(self, outcome: Outcome, keys: Sequence[Key], reason: str, begun: float) -> None:
        """If other reads succeeded since the last timeout of these rows, they are at fault."""
        breaker = self.source_breaker
        alive = breaker.succeeded_at > self._slow_since.get(outcome.flight, begun)
        self._slow_since[outcome.flight] = begun
        if alive:
            outcome.failed.append((keys, reason))
        else:
            breaker.fail(reason, begun)
            outcome.unsure.append(keys)

    # --- transform ------------------------------------------------------------------------

    async def _transform(
        self,
        transforms: Transforms,
        outcome: Outcome,
        documents: Documents,
        tables: Mapping[int, str | None],
    ) -> Documents:
        term = self._active_term.term
        origin = Origin(term.tube, term.partition, outcome.flight.ts, tables)
        with outcome.trace.step("transform"):
            came = await transforms.apply(documents, origin)
        outcome.skipped += came.skipped
        outcome.rejected |= came.rejected
        return came.documents

    # --- send -----------------------------------------------------------------------------

    async def _send_all(self, outcome: Outcome, token: Token, documents: Documents, *, probes: bool) -> None:
        """Send the documents in batches that are as large as the sink bears now."""
        parts = split(documents, lambda: self._gate.control.documents, self._settings.sink.batch_bytes)
        for index, part in enumerate(parts):
            # Answered documents must not wait for a sink that went down since.
            await self._send(outcome, token, part, probes=probes and not index)

    async def _send(self, outcome: Outcome, token: Token, documents: Documents, *, probes: bool) -> None:
        if not self._may_send(probes=probes):
            outcome.unsent.append(documents.keys)
            return
        sent = await self._enter(outcome.flight, len(documents))
        is_too_large = len(documents) > self._gate.control.documents  # as was found while this waited
        if is_too_large or not self._may_send(probes=probes):
            self._gate.turn_back(sent)
            await self._send_all(outcome, token, documents, probes=probes)
            return
        try:
            await self._request(outcome, token, documents, sent)
        finally:
            # A write that was abandoned has held its place until it could have no effect any more.
            self._gate.leave()

    def _may_send(self, *, probes: bool) -> bool:
        return not self._active_term.is_revoked and (probes or self.sink_breaker.is_closed)

    async def _enter(self, flight: Flight, documents: int) -> Sent:
        """Wait until the limits of the tube allow a request. Meanwhile no delivery of the class begins."""
        pod_class, more = flight.pod_class, flight.leaves_some
        if self._gate.is_open(documents):
            return await self._gate.enter(pod_class, documents, more=more)
        self.held_up[pod_class] += 1
        try:
            return await self._gate.enter(pod_class, documents, more=more)
        finally:
            self.held_up[pod_class] -= 1
            self._active_term.attention.set()

    async def _request(self, outcome: Outcome, token: Token, documents: Documents, sent: Sent) -> None:
        term = self._active_term.term
        batch = Batch(term.tube, term.partition, token, documents, host=term.host)
        batch.trust_until(self._active_term.trusted_until())
        if batch.has_lapsed():
            outcome.unsent.append(documents.keys)  # the rows will be stale when trust is back
            return
        await fault(Point.BEFORE_SEND)
        if len(documents) == 1:  # whatever fails as a whole is parked only when it failed alone
            self._keep(outcome, documents, documents.keys)
        try:
            with outcome.trace.step("send", documents):
                results = await self._ask(batch)
            answers = None if is_all_ok(batch, results) else sort_answers(batch, results)
        except SinkUnavailable as error:
            # Else see `_handle_timeout`; or the sink refused for that.
            if self._active_term.is_trusted and not self._gate.was_late(sent):
                self.sink_breaker.fail(str(error), sent.at)
            outcome.unsent.append(documents.keys)
        except SinkTimeout as error:
            await self._handle_timeout(outcome, batch, documents.keys, str(error), sent)
        except Exception as error:  # noqa: BLE001 # any other error of a sink is about its documents
            outcome.failed.append((documents.keys, f"{type(error).__name__}: {error}"))
        else:
            await fault(Point.AFTER_SEND)
            if answers is None:
                self._note_answer(sent)
                outcome.done.append(documents.by_shard())
            else:
                self._handle_answers(outcome, answers, sent)
                self._keep(outcome, documents, answers.rejected)
            outcome.taken = last_written(documents, answers) or outcome.taken

    async def _ask(self, batch: Batch) -> Sequence[Result]:
        timeout = self._settings.sink.request_timeout
        task = asyncio.current_task()
        assert task is not None
        begun = time.monotonic()
        try:
            self.sending.add(task)
            async with asyncio.timeout(timeout):
                try:
                    return await self._sink.send(batch)
                except Exception as error:
                    self._faults.log_sink("send", error, partition=batch.partition)
                    raise
        except TimeoutError:
            raise SinkTimeout(f"the sink did not answer within {timeout:g} s") from None
        except asyncio.CancelledError:
            if not task.cancelling():
                raise SinkTimeout("the sink gave its own call up") from None
            # The worker ends. Its term may be released only when this write can't come late.
            self._active_term.unanswered.add(batch)
            raise
        finally:
            self.sending.discard(task)
            self._metrics.sends.observe(time.monotonic() - begun)

    async def _handle_timeout(
        self, outcome: Outcome, batch: Batch, keys: Sequence[Key], reason: str, sent: Sent
    ) -> None:
        """The write's effect is unknown: abandon it, so that it can't take effect late, and read again.

        Documents that were sent together are sent again in smaller batches, and no attempt is used up: more
        often than not they are too many for a slow sink. Only a document that was sent alone can be at fault.

        If trust has lapsed, this process may have stood still while the sink answered: no verdict then.
        The batch's own moment would not do: renewals don't move it, so it comes before most time-outs.
        """
        verdict = self._gate.note_timeout(sent) if self._active_term.is_trusted else None
        if verdict == "silent":
            self.sink_breaker.fail(reason, sent.at)
        self._active_term.unanswered.add(batch)
        await self._sink.abandon(batch)
        self._active_term.unanswered.discard(batch)
        if verdict == "document" and len(keys) == 1:
            outcome.failed.append((keys, reason))
        else:
            outcome.unsure.append(keys)

    def _note_answer(self, sent: Sent, put_off: int = 0) -> None:
        if (seconds := self.sink_breaker.succeed()) is not None:
            self._gate.note_outage_over(seconds)  # first
        self._gate.note_answer(sent, put_off=put_off)

    def _handle_answers(self, outcome: Outcome, answers: Answers, sent: Sent) -> None:
        if answers.newer is not None:
            raise FencedBySink(answers.newer)
        self._note_answer(sent, len(answers.delayed))
        if answers.done:
            outcome.done.append(by_shard(answers.done))
        outcome.delayed |= answers.delayed
        outcome.why_delayed = answers.why_delayed or outcome.why_delayed
        outcome.rejected |= answers.rejected

    def _keep(self, outcome: Outcome, documents: Documents, keys: Collection[Key]) -> None:
        if self._settings.park_documents and keys:
            outcome.documents |= {one.key: one.body for one in documents if one.key in keys}
