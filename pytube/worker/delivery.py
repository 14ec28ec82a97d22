"""Delivers keys to the sink: draw a token, enrich, transform, send. It returns the outcome, and acts on none.

Two circuit breakers of each partition are open while its sink accepts nothing, or its source can't be read.
One request at a time probes an open circuit, after a back-off that grows; its success closes the circuit
for all. Meanwhile nothing is sent, nothing is parked, and no attempt is used up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pytube.enrich import Enricher
from pytube.errors import (
    EnrichDataError,
    EnrichFailed,
    EnrichTimeout,
    FencedBySink,
    SinkTimeout,
    SinkUnavailable,
)
from pytube.events import SinkDown, SinkUp, SourceDown, SourceUp
from pytube.faults import Point, fault
from pytube.logs import UserFaults
from pytube.model import Batch, Documents, Id, Key, PodClass, Result, Token
from pytube.pipeline.batches import Answers, BatchSize, by_shard, is_all_ok, keys_of, sort_answers, split
from pytube.pipeline.inflight import Flight
from pytube.pipeline.retry_queue import backoff
from pytube.sinks.base import Sink
from pytube.sources.terms import Trouble
from pytube.transforms import Origin, Transforms
from pytube.worker.active_term import ActiveTerm
from pytube.worker.gate import SinkGate
from pytube.worker.limits import Limits
from pytube.worker.metrics import TubeMetrics
from pytube.worker.tracing import UNTRACED, BatchTrace, PartitionTraces

_JITTER = 0.25
_POLL_INTERVAL = 0.05
"""Seconds after which a waiter checks again whether the probe is over."""


class CircuitBreaker:
    """Opens at a failure, with the reason; the next success closes it."""

    def __init__(
        self,
        on_open: Callable[[str], None],
        on_close: Callable[[float], None],
        *,
        is_doubtful: bool = False,
    ) -> None:
        """Args:
        on_open: receives the reason, once per outage.
        on_close: receives the length of the outage in seconds.
        is_doubtful: whether an outage began before, and nobody has seen its end: the first success ends it.
        """
        self._on_open = on_open
        self._on_close = on_close
        self._closed = asyncio.Event()
        self._failures = 0
        self._probing = False
        self._opened_at = time.monotonic()
        self._is_doubtful = is_doubtful
        self._next_probe = 0.0
        self.succeeded_at = float("-inf")
        """When the last request succeeded, by `time.monotonic()`."""

    @property
    def is_closed(self) -> bool:
        """Whether requests may pass: no failure since the last success."""
        return self._failures == 0

    async def acquire(self) -> bool:
        """Wait until the circuit is closed, or until it is the caller's turn to probe; whether it is that.

        The caller then reports how its request went: `succeed`, `fail` or `release`.
        """
        while not self.is_closed:
            pause = self._next_probe - time.monotonic()
            if pause <= 0 and not self._probing:
                self._probing = True
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(max(pause, _POLL_INTERVAL)):
                    await self._closed.wait()
        return False

    def fail(self, reason: str) -> None:
        """A request failed: open the circuit; the back-off grows with each failed probe."""
        now = time.monotonic()
        if self.is_closed:
            self._opened_at = self._next_probe = now  # the back-off of an earlier outage does not count
            self._closed.clear()
            self._on_open(reason)
        if now >= self._next_probe:  # requests that were under way together count as one failure
            self._failures += 1
            jitter = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 # spreads load, guards nothing
            self._next_probe = now + backoff(self._failures) * jitter
        self._probing = False

    def succeed(self) -> None:
        """A request succeeded: close the circuit."""
        self.succeeded_at = time.monotonic()
        if not self.is_closed or self._is_doubtful:
            self._failures, self._is_doubtful = 0, False
            self._closed.set()
            self._on_close(self.succeeded_at - self._opened_at)
        self._probing = False

    def release(self) -> None:
        """A request ended without a sign of whether its target is up."""
        self._probing = False


@dataclass(slots=True)
class Outcome:
    """What came of one delivery. Each of its keys is in exactly one of these places."""

    flight: Flight
    done: list[Mapping[int, Sequence[Id]]] = field(default_factory=list)
    """Ids by shard that the sink has; those of each batch apart."""
    skipped: list[Key] = field(default_factory=list)
    """Keys of which a transform wants nothing to be sent."""
    rejected: dict[Key, str] = field(default_factory=dict)
    """Documents that the sink will never take, or a transform can't make, and why."""
    orphans: list[Key] = field(default_factory=list)
    """Keys of a shard that no attached table has."""
    delayed: dict[Key, float] = field(default_factory=dict)
    """Keys that the sink put off, by so many seconds."""
    why_delayed: str = ""
    """What it said of one of them."""
    failed: list[tuple[Sequence[Key], str]] = field(default_factory=list)
    """Groups that failed as a whole, because of at least one of their documents."""
    unsure: list[Sequence[Key]] = field(default_factory=list)
    """Groups that were not read or answered in time: perhaps, but not surely, because of a document."""
    unsent: list[Sequence[Key]] = field(default_factory=list)
    """Groups of which nothing was sent."""
    held_back: list[Key] = field(default_factory=list)
    """Parked keys that a touch does not try again."""
    documents: dict[Key, bytes | None] = field(default_factory=dict)
    """What was sent of keys that may be parked, where that is to be kept; it is in no other place."""
    trace: BatchTrace = field(default=UNTRACED, compare=False)

    def counts(self) -> dict[str, int]:
        """How many keys are in each place, the worst first."""
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

    def __init__(
        self,
        active_term: ActiveTerm,
        enricher: Enricher,
        transforms: Transforms | None,
        sink: Sink,
        gate: SinkGate,
        limits: Limits,
        faults: UserFaults,
        metrics: TubeMetrics,
        traces: PartitionTraces,
    ) -> None:
        """Starts nothing.

        Args:
            active_term: the term, its trust and its tokens.
            enricher: reads the documents.
            transforms: change them; None: they are sent as they were read.
            sink: receives the documents.
            gate: is passed by each request to the sink.
            limits: batch sizes and timeouts.
            faults: logs what user code in the sink raises.
            metrics: counts how long reads and sends take.
            traces: shows where the time of each delivery goes.
        """
        where = active_term.term.tube, active_term.term.partition
        self.size = BatchSize(limits.batch_documents, limits.batch_bytes)
        troubles = active_term.troubles

        def breaker(
            what: Trouble, down: type[SinkDown | SourceDown], up: type[SinkUp | SourceUp]
        ) -> CircuitBreaker:
            def on_open(reason: str) -> None:
                troubles.begin(what, reason)
                active_term.tell_down(what, down(*where, reason))

            def on_close(seconds: float) -> None:
                if what == "sink":
                    gate.note_outage_over(seconds)
                troubles.end(what)
                active_term.tell_up(what, lambda since: up(*where, since))

            return CircuitBreaker(on_open, on_close, is_doubtful=active_term.is_told_down(what))

        self.sink_breaker = breaker("sink", SinkDown, SinkUp)
        self.source_breaker = breaker("source", SourceDown, SourceUp)
        self.sending: set[asyncio.Task[object]] = set()
        """The tasks that wait for an answer of the sink, and should not be cancelled."""
        self._active_term = active_term
        self._enricher = enricher
        self._transforms = transforms
        self._sink = sink
        self._gate = gate
        self._limits = limits
        self._faults = faults
        self._metrics = metrics
        self._traces = traces
        self._turns = asyncio.Semaphore(limits.sends)
        self._slow_since: WeakKeyDictionary[Flight, float] = WeakKeyDictionary()
        """When the last read of each flight that timed out began."""

    async def deliver(self, flight: Flight, groups: Mapping[int, Sequence[Id]]) -> Outcome:
        """Deliver keys of a flight, given as ids by shard.

        Raises:
            DatabaseUnavailable: the source's connection was lost.
            FencedBySink: the sink holds a write of a later term.
        """
        outcome = Outcome(flight, trace=self._traces.batch(flight, groups))
        with outcome.trace:
            await self._deliver(outcome, groups)
        return outcome

    async def _deliver(self, outcome: Outcome, groups: Mapping[int, Sequence[Id]]) -> None:
        async with self._turns:
            await self._active_term.wait_until_trusted()
            token = self._active_term.next_token()
            await fault(Point.BEFORE_ENRICH)
            documents, tables = await self._read(outcome, groups, token)
            if self._transforms is not None:
                documents = await self._transform(self._transforms, outcome, documents, tables)
            parts = split(documents, self._limits.batch_documents, self._limits.batch_bytes)
            for index, part in enumerate(parts):
                # What was answered must not wait for a sink that went down since.
                if self._active_term.is_revoked or (index and not self.sink_breaker.is_closed):
                    outcome.unsent.append(part.keys)
                else:
                    await self._send(outcome, token, part)

    async def wait_for_unanswered(self) -> None:
        """Wait, for at most a request timeout, until no abandoned write can still take effect."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.request_timeout):
                for batch in list(self._active_term.unanswered):
                    await self._sink.abandon(batch)
                    self._active_term.unanswered.discard(batch)

    # --- read -----------------------------------------------------------------------------

    async def _read(
        self, outcome: Outcome, groups: Mapping[int, Sequence[Id]], token: Token
    ) -> tuple[Documents, Mapping[int, str | None]]:
        """The documents of these keys, and the root table of each shard.

        There are none when they could not be read, which the outcome tells then.
        """
        breaker = self.source_breaker
        await breaker.acquire()
        begun = time.monotonic()
        documents = Documents(token, outcome.flight.stamp)
        tables: dict[int, str | None] = {}
        orphans: list[Key] = []
        urgent = outcome.flight.pod_class is PodClass.INCREMENTAL
        try:
            with outcome.trace.step("enrich"):
                for shard, ids in groups.items():
                    read = await self._enricher.read(shard, ids, urgent=urgent)
                    known = ids
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
        except EnrichFailed as error:
            breaker.fail(str(error))
            outcome.unsent.append(keys_of(groups))
        except BaseException:
            breaker.release()
            raise
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
            breaker.release()
            outcome.failed.append((keys, reason))
        else:
            breaker.fail(reason)
            outcome.unsure.append(keys)

    # --- transform ------------------------------------------------------------------------

    async def _transform(
        self,
        transforms: Transforms,
        outcome: Outcome,
        documents: Documents,
        tables: Mapping[int, str | None],
    ) -> Documents:
        """What is left to be sent."""
        term = self._active_term.term
        origin = Origin(term.tube, term.partition, outcome.flight.ts, tables)
        with outcome.trace.step("transform"):
            came = await transforms.apply(documents, origin)
        outcome.skipped += came.skipped
        outcome.rejected |= came.rejected
        return came.documents

    # --- send -----------------------------------------------------------------------------

    async def _send(self, outcome: Outcome, token: Token, documents: Documents) -> None:
        await self._enter(outcome.flight.pod_class, len(documents))
        try:
            await self._request(outcome, token, documents)
        finally:
            # A write that was abandoned has held its place until it could have no effect any more.
            self._gate.leave()

    async def _enter(self, pod_class: PodClass, documents: int) -> None:
        """Wait until the circuit is closed, or may be probed, and the limits of the tube allow a request."""
        while True:
            probes = await self.sink_breaker.acquire()
            try:
                granted = await self._gate.enter(pod_class, documents)
            except BaseException:
                if probes:
                    self.sink_breaker.release()
                raise
            if probes or self.sink_breaker.is_closed:
                return
            self._gate.turn_back(granted)  # the circuit has opened while this waited

    async def _request(self, outcome: Outcome, token: Token, documents: Documents) -> None:
        term = self._active_term.term
        batch = Batch(term.tube, term.partition, token, documents, host=term.host)
        breaker = self.sink_breaker
        begun = time.monotonic()
        batch.trust_until(self._active_term.trusted_until())
        if batch.has_lapsed():
            breaker.release()
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
            if batch.has_lapsed():
                breaker.release()  # it refused because our right to send had lapsed; the sink is up
            else:
                breaker.fail(str(error))
            outcome.unsent.append(documents.keys)
        except SinkTimeout as error:
            await self._handle_timeout(outcome, batch, documents.keys, str(error), begun)
        except Exception as error:  # noqa: BLE001 # any other error of a sink is about its documents
            breaker.release()
            outcome.failed.append((documents.keys, f"{type(error).__name__}: {error}"))
        except BaseException:
            breaker.release()
            raise
        else:
            await fault(Point.AFTER_SEND)
            if answers is None:
                self._note_answer()
                outcome.done.append(documents.by_shard())
            else:
                self._handle_answers(outcome, answers)
                self._keep(outcome, documents, answers.rejected)

    async def _ask(self, batch: Batch) -> Sequence[Result]:
        timeout = self._limits.request_timeout
        task = asyncio.current_task()
        assert task is not None
        begun = time.monotonic()
        try:
            self.sending.add(task)
            async with asyncio.timeout(timeout):
                return await self._sink_send(batch)
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

    async def _sink_send(self, batch: Batch) -> Sequence[Result]:
        try:
            return await self._sink.send(batch)
        except Exception as error:
            self._faults.log_sink("send", error, partition=batch.partition)
            raise

    async def _handle_timeout(
        self, outcome: Outcome, batch: Batch, keys: Sequence[Key], reason: str, begun: float
    ) -> None:
        """The write's effect is unknown: abandon it, so that it can't take effect late, and read again."""
        breaker = self.sink_breaker
        alive = breaker.succeeded_at > begun  # it answered others meanwhile, so this batch is at fault
        if not alive:
            breaker.fail(reason)
        self._active_term.unanswered.add(batch)
        await self._sink.abandon(batch)
        self._active_term.unanswered.discard(batch)
        if alive:
            breaker.release()
            outcome.failed.append((keys, reason))
        else:
            outcome.unsure.append(keys)

    def _note_answer(self) -> None:
        self.sink_breaker.succeed()  # first: the gate is told how long the outage was, if this ends one
        self._gate.note_answer()

    def _handle_answers(self, outcome: Outcome, answers: Answers) -> None:
        if answers.newer is not None:
            self.sink_breaker.release()
            raise FencedBySink(answers.newer)
        self._note_answer()
        if answers.done:
            outcome.done.append(by_shard(answers.done))
        outcome.delayed |= answers.delayed
        outcome.why_delayed = answers.why_delayed or outcome.why_delayed
        outcome.rejected |= answers.rejected

    def _keep(self, outcome: Outcome, documents: Documents, keys: Collection[Key]) -> None:
        """Keep what was sent of keys that may be parked."""
        if self._limits.park_documents and keys:
            outcome.documents |= {one.key: one.body for one in documents if one.key in keys}
