"""Delivers one flight to the sink: draw a token, enrich, send, and retry what the sink did not accept.

A delivery ends when every key of its flight is done: written, deleted or parked. Until then the keys stay
in the flight, so that no other delivery works on them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pytube.enrich import Enricher
from pytube.errors import (
    EnrichDataError,
    EnrichFailed,
    EnrichTimeout,
    FencedBySink,
    SinkTimeout,
    SinkUnavailable,
)
from pytube.faults import Point, fault
from pytube.model import Batch, Documents, Id, Key, PodClass, Result, Token
from pytube.pipeline.answers import Answers, is_all_ok, sort_answers
from pytube.pipeline.batching import by_shard, keys_of, split
from pytube.pipeline.inflight import Flight
from pytube.pipeline.retry_queue import DeadLetter, RetryQueue, backoff
from pytube.pipeline.sizing import BatchSize
from pytube.sinks.base import Sink
from pytube.worker.active_term import ActiveTerm
from pytube.worker.circuit_breaker import CircuitBreaker, CircuitBreakers
from pytube.worker.limits import Limits

_MOST_PARKED_IN_A_ROW = 100
"""Dead letters in a row, without a success, after which the sink is at fault, not the documents."""


@dataclass(slots=True)
class Outcome:
    """Keys of a flight that are done, and those of them that must be parked first."""

    keys: Mapping[int, Sequence[Id]]
    dead_letters: Sequence[DeadLetter] = ()


class Carrier:
    """What the deliveries of one partition share."""

    def __init__(
        self,
        active_term: ActiveTerm,
        enricher: Enricher,
        sink: Sink,
        limits: Limits,
        breakers: CircuitBreakers,
        attention: asyncio.Event,
        client_id: str,
    ) -> None:
        """Starts nothing.

        Args:
            active_term: the term, its trust and its tokens.
            enricher: reads the documents.
            sink: receives the documents.
            limits: batch sizes, timeouts and attempts.
            breakers: open while the sink or the source is down.
            attention: set whenever an outcome is reported.
            client_id: the label of this process.
        """
        self.active_term = active_term
        self.enricher = enricher
        self.sink = sink
        self.limits = limits
        self.breakers = breakers
        self.attention = attention
        self.client_id = client_id
        self.size = BatchSize(limits.batch_documents, limits.batch_bytes)
        self.turns = asyncio.Semaphore(limits.sends)
        self.parked_in_a_row = 0
        self.closing = False
        """Set when the worker stops: deliveries start nothing more."""
        self.outcomes: list[tuple[Flight, Outcome]] = []
        """What deliveries reported and the worker has not handled yet."""

    def report(self, flight: Flight, outcome: Outcome) -> None:
        """Report keys that are done."""
        self.outcomes.append((flight, outcome))
        self.attention.set()

    async def wait_for_unanswered(self) -> None:
        """Wait, for at most a request timeout, until no abandoned write can still take effect."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.request_timeout):
                for batch in list(self.active_term.unanswered):
                    await self.sink.abandon(batch)
                    self.active_term.unanswered.discard(batch)


class Delivery:
    """The delivery of one flight."""

    def __init__(self, carrier: Carrier, flight: Flight) -> None:
        self._c = carrier
        self._flight = flight
        self._retries = RetryQueue(carrier.limits.attempts)
        self._slow_since = float("inf")
        """When the last read that timed out began."""
        self.sending = False
        """Whether a write is under way, which should be awaited rather than cancelled."""
        self.backing_off = False
        """Whether the delivery only waits before it sends again."""

    @property
    def keys(self) -> int:
        """Keys that are not done."""
        return len(self._flight)

    @property
    def is_backfill(self) -> bool:
        """Whether its keys are those of a backfill."""
        return self._flight.pod_class is PodClass.BACKFILL

    async def run(self) -> None:
        """Deliver the flight.

        Raises:
            DatabaseUnavailable: the source's connection was lost.
            FencedBySink: the sink holds a write of a later term.
        """
        groups = self._flight.by_shard()
        while not self._c.closing:
            async with self._c.turns:
                await self._attempt(groups)
            at = self._retries.next_at
            if at is None:
                return
            await self._back_off(at - time.monotonic())
            groups = by_shard(self._retries.pop())

    async def _back_off(self, pause: float) -> None:
        if pause <= 0:
            return
        self.backing_off = True
        self._c.attention.set()  # the worker may begin another flight
        try:
            await asyncio.sleep(pause)
        finally:
            self.backing_off = False

    # --- one attempt ----------------------------------------------------------------------

    async def _attempt(self, groups: Mapping[int, Sequence[Id]]) -> None:
        await self._c.active_term.wait_until_trusted()
        token = self._c.active_term.next_token()
        await fault(Point.BEFORE_ENRICH)
        documents = await self._read(groups, token)
        limits = self._c.limits
        for part in split(documents, limits.batch_documents, limits.batch_bytes):
            if self._c.closing:
                return
            await self._send(token, part)

    async def _read(self, groups: Mapping[int, Sequence[Id]], token: Token) -> Documents:
        breaker = self._c.breakers.source
        await breaker.acquire()
        begun = time.monotonic()
        documents = Documents(token, self._flight.stamp)
        orphans: list[Key] = []
        try:
            for shard, ids in groups.items():
                read = await self._c.enricher.read(shard, ids)
                known = ids
                if read.orphans:
                    gone = set(read.orphans)
                    orphans += keys_of({shard: read.orphans})
                    known = [key for key in ids if key not in gone]
                documents.add(shard, known, map(read.bodies.get, known))
        except EnrichDataError as error:
            breaker.succeed()
            self._fail(keys_of(groups), str(error))
            return Documents(token, self._flight.stamp)
        except EnrichTimeout as error:
            self._handle_slow_read(keys_of(groups), str(error), breaker, begun)
            return Documents(token, self._flight.stamp)
        except EnrichFailed as error:
            breaker.fail(str(error))
            self._retries.push(keys_of(groups))
            return Documents(token, self._flight.stamp)
        except BaseException:
            breaker.release()
            raise
        breaker.succeed()
        self._park_orphans(orphans)
        self._c.size.observe(len(documents), documents.size)
        return documents

    def _handle_slow_read(
        self, keys: Sequence[Key], reason: str, breaker: CircuitBreaker, begun: float
    ) -> None:
        """Retry in halves. If other reads succeeded since the last timeout, these rows are at fault."""
        alive = breaker.succeeded_at > min(begun, self._slow_since)
        self._slow_since = begun
        if alive:
            breaker.release()
            self._fail(keys, reason)
        else:
            breaker.fail(reason)
            self._retries.halve(keys, time.monotonic())

    async def _send(self, token: Token, documents: Documents) -> None:
        term = self._c.active_term.term
        batch = Batch(term.tube, term.partition, token, documents)
        breaker = self._c.breakers.sink
        await breaker.acquire()
        begun = time.monotonic()
        batch.trust_until(self._c.active_term.trusted_until())
        if batch.has_lapsed():
            breaker.release()
            self._retries.push(documents.keys)  # the rows will be stale when trust is back
            return
        await fault(Point.BEFORE_SEND)
        try:
            results = await self._ask(batch)
            answers = None if is_all_ok(batch, results) else sort_answers(batch, results)
        except SinkUnavailable as error:
            if batch.has_lapsed():
                breaker.release()  # it refused because our right to send had lapsed; the sink is up
            else:
                breaker.fail(str(error))
            self._retries.push(documents.keys)
        except SinkTimeout as error:
            await self._handle_timeout(batch, documents.keys, str(error), begun)
        except Exception as error:  # noqa: BLE001 # any other error of a sink is about its documents
            breaker.release()
            self._fail(documents.keys, f"{type(error).__name__}: {error}")
        except BaseException:
            breaker.release()
            raise
        else:
            await fault(Point.AFTER_SEND)
            if answers is None:
                breaker.succeed()
                self._report_done(documents.by_shard())
            else:
                self._handle_answers(answers)

    async def _ask(self, batch: Batch) -> Sequence[Result]:
        timeout = self._c.limits.request_timeout
        try:
            self.sending = True
            async with asyncio.timeout(timeout):
                return await self._c.sink.send(batch)
        except TimeoutError:
            raise SinkTimeout(f"the sink did not answer within {timeout:g} s") from None
        except asyncio.CancelledError:
            if not _is_cancelled():
                raise SinkTimeout("the sink gave its own call up") from None
            # The worker ends. Its term may be released only when this write can't come late.
            self._c.active_term.unanswered.add(batch)
            raise
        finally:
            self.sending = False

    # --- results --------------------------------------------------------------------------

    async def _handle_timeout(self, batch: Batch, keys: Sequence[Key], reason: str, begun: float) -> None:
        """The write's effect is unknown: abandon it, so that it can't take effect late, and read again."""
        breaker = self._c.breakers.sink
        alive = breaker.succeeded_at > begun  # it answered others meanwhile, so this batch is at fault
        if not alive:
            breaker.fail(reason)
        self._c.active_term.unanswered.add(batch)
        await self._c.sink.abandon(batch)
        self._c.active_term.unanswered.discard(batch)
        if alive:
            breaker.release()
            self._fail(keys, reason)
        else:
            self._retries.halve(keys, time.monotonic())  # if one document is at fault, the others get through

    def _handle_answers(self, answers: Answers) -> None:
        breaker = self._c.breakers.sink
        if answers.newer is not None:
            breaker.release()
            raise FencedBySink(answers.newer)
        breaker.succeed()
        if answers.done:
            self._report_done(by_shard(answers.done))
        self._retries.delay(answers.delayed, time.monotonic())
        for key, reason in answers.rejected.items():
            self._report([key], [DeadLetter(key, reason, self._retries.attempts_of(key) + 1)])

    def _report_done(self, keys: Mapping[int, Sequence[Id]]) -> None:
        self._c.parked_in_a_row = 0
        self._c.report(self._flight, Outcome(keys))

    def _fail(self, keys: Sequence[Key], reason: str) -> None:
        dead_letter = self._retries.fail(keys, reason, time.monotonic())
        if dead_letter is not None:
            self._park(dead_letter)

    def _park(self, dead_letter: DeadLetter) -> None:
        if self._c.parked_in_a_row >= _MOST_PARKED_IN_A_ROW:
            self._c.breakers.sink.fail(
                f"{self._c.parked_in_a_row} documents in a row failed, so it is not their fault; "
                f"the last one: {dead_letter.reason}"
            )
            self._retries.push([dead_letter.key], time.monotonic() + backoff(dead_letter.attempts))
            return
        self._c.parked_in_a_row += 1
        self._report([dead_letter.key], [dead_letter])

    def _park_orphans(self, orphans: Sequence[Key]) -> None:
        if orphans:
            tube = self._c.active_term.term.tube
            dead_letters = [
                DeadLetter(key, f"no table attached to tube {tube!r} has shard {key[0]}", 0)
                for key in orphans
            ]
            self._report(orphans, dead_letters)

    def _report(self, keys: Iterable[Key], dead_letters: Sequence[DeadLetter]) -> None:
        self._c.report(self._flight, Outcome(by_shard(keys), dead_letters))


def _is_cancelled() -> bool:
    """Whether this task was cancelled from outside."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
