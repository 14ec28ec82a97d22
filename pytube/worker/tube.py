"""The state that the partitions of one tube share in this process: sink, enricher, transforms and counters.

A paused partition makes steps: one document each, delivered because an operator asks for it. The leader
does it, under its own term and with its own tokens, so that only it writes to the sink.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from psycopg import AsyncConnection

from pytube.config import Config, TubeConfig
from pytube.db.session import SessionPool
from pytube.election.base import Broken
from pytube.enrich import Enricher
from pytube.enrich.check import Fault, check_enriching
from pytube.enrich.statements import Roots, refuse_unnamed, why_no_columns
from pytube.errors import ConfigError
from pytube.events import Event, PartitionEvent
from pytube.model import PodClass
from pytube.pipeline.inflight import Flight
from pytube.sinks import Sink, why_no_read
from pytube.sinks.registry import naming_of
from pytube.sources.pods import TubeSource
from pytube.transforms import Transforms
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.delivery import Deliverer, Outcome
from pytube.worker.metrics import TubeMetrics
from pytube.worker.queue import Limits, Queue
from pytube.worker.shared_sink import SharedSink, SinkGate
from pytube.worker.tracing import Tracing
from pytube.worker.tube_worker import TubeWorker


class Tube(Queue):
    """One tube as this process serves it."""

    limits: Limits

    def __init__(
        self,
        config: Config,
        name: str,
        sink: SharedSink,
        instance_id: UUID,
        pool: SessionPool,
        emit: Callable[[Event], None],
        tracing: Tracing,
        host: str | None = None,
    ) -> None:
        """Opens nothing.

        Args:
            config: the whole of it, as the tube's host has it.
            name: of the tube.
            sink: where its documents go; opened and closed by the caller.
            instance_id: of this process.
            pool: where rows are read.
            emit: receives events.
            tracing: of the process.
            host: the name of the host that has the tube, where there are several.

        Raises:
            ConfigError: the tube is not configured, or a transform is missing.
        """
        settings = config.tube(name)
        super().__init__(name, Limits.of(settings, config.worker), config, instance_id, pool, emit, host)
        self._host = host
        self.tracing = tracing
        self.metrics = TubeMetrics()
        self.backfill_limits = settings.backfill
        self.transforms = self._load_transforms(settings)
        self.enricher = Enricher(
            pool, name, settings.enrich, config.postgres.answer_timeout, self._learn_roots
        )
        self._sink = sink
        self._enrich = settings.enrich
        why = why_no_read(sink.sink)
        if settings.verify is not None and why is not None:
            raise ConfigError(
                f'[tube."{name}".verify]: samples can\'t be compared: {why}; remove the section'
            )
        reason = why_no_columns(name, settings.enrich)
        if reason is not None and naming_of(sink.sink) is not None:
            raise ConfigError(reason)

    @property
    def sink(self) -> Sink:
        """Where documents go."""
        return self._sink.sink

    def _learn_roots(self, roots: Roots) -> None:
        naming = naming_of(self.sink)
        if naming is not None:
            naming.learn_keys(roots.key_of, self._host)
            refuse_unnamed(roots, naming.why_no_name)

    @property
    def shared_sink(self) -> SharedSink:
        """The object that opens the sink, and knows its mark."""
        return self._sink

    @property
    def gate(self) -> SinkGate:
        """What each request to the sink passes."""
        return self._sink.gate

    @property
    def why_closed(self) -> str | None:
        """Why nothing can be sent yet; None once the sink has been opened."""
        return self._sink.why_closed

    @property
    def sink_refused_at(self) -> float:
        """When the last attempt to open the sink began that failed: a Unix time."""
        return self._sink.refused_at

    def consume(self, active_term: ActiveTerm, database: Database) -> TubeWorker:
        """What delivers the pods of the term's partition."""
        return TubeWorker(active_term, self, database)

    async def step(self, active_term: ActiveTerm, database: Database, number: int) -> None:
        """Do a step that an operator asks for."""
        await _take_step(active_term, self, TubeSource(database.pool, active_term.term), number)

    async def find_faults(self, connection: AsyncConnection) -> Sequence[Fault]:
        """What keeps documents from being read as configured, with the tables that are attached now."""
        naming = naming_of(self.sink)
        why_no_name = None if naming is None else naming.why_no_name
        return (await check_enriching(connection, self.name, self._enrich, why_no_name)).faults

    def count(self, event: PartitionEvent) -> None:
        """Count what happened to a term."""
        self.metrics.count(event)

    def _load_transforms(self, settings: TubeConfig) -> Transforms | None:
        splits = settings.sink.parts is not None
        try:
            return Transforms.load(settings.transforms, self.name, self.log, self.faults, splits=splits)
        except ConfigError as error:
            self.faults.log_sink("import", error)
            raise


# --- steps ---------------------------------------------------------------------------------------


async def _take_step(active_term: ActiveTerm, tube: Tube, source: TubeSource, number: int) -> None:
    """Do the step of this number during a pause, unless it is not wanted any more.

    Raises:
        NotLeader: the term is over.
        DatabaseUnavailable: a session was lost.
    """
    step = await source.take_step(number)
    if step is None:
        return
    if (reason := tube.why_closed) is not None:
        await source.end_step(step, "unsent", f"the sink is not open: {reason}")
        return
    # A separate deliverer: a sink that was down a moment ago is asked at once, not after a back-off.
    deliverer = Deliverer(active_term, tube, tube.tracing.partition(active_term.term))
    flight = Flight(PodClass.INCREMENTAL)
    flight.stamp, flight.ts = step.seq, step.ts
    delivery = asyncio.create_task(deliverer.deliver(flight, {step.shard: [step.id]}))
    delivery.add_done_callback(lambda _: active_term.attention.set())
    try:
        outcome = await _wait_for(delivery, active_term, tube.limits.request_timeout)
        await source.end_step(step, *_judge(outcome, active_term))
    finally:
        await _cancel(delivery)
        await deliverer.wait_for_unanswered()
        active_term.troubles.end("sink")
        active_term.troubles.end("source")


async def _wait_for(delivery: asyncio.Task[Outcome], active_term: ActiveTerm, limit: float) -> Outcome | None:
    """Its outcome; None when the claim was revoked, and it did not end in time."""
    while not (delivery.done() or active_term.is_revoked):
        if isinstance(active_term.stop, Broken):
            raise active_term.stop.error
        active_term.attention.clear()
        await active_term.attention.wait()
    if not delivery.done():
        await asyncio.wait([delivery], timeout=limit)
    if not delivery.done():
        await _cancel(delivery)
        return None
    return delivery.result()


def _judge(outcome: Outcome | None, active_term: ActiveTerm) -> tuple[str, str | None]:
    """The outcome of a step in the words of `tube_step_end`, and the reason."""
    if outcome is None:
        return "unsent", "the worker ends; whether the sink has the document is unknown"
    troubles = active_term.troubles
    down = troubles.reason("sink") or troubles.reason("source") or "the right to send has lapsed"
    judgements = (
        (outcome.done, ("delivered", None)),
        (outcome.skipped, ("skipped", None)),
        (outcome.orphans, ("failed", f"no table attached to tube {active_term.term.tube!r} has the shard")),
        (outcome.rejected, ("failed", "".join(outcome.rejected.values()))),
        (outcome.failed, ("failed", "".join(reason for _, reason in outcome.failed))),
        (outcome.delayed, ("unsent", "the sink puts the document off")),
        (outcome.unsure, ("unsent", f"whether the sink has the document is unknown: {down}")),
    )
    # A single key is in one of these places.
    return next((judgement for found, judgement in judgements if found), ("unsent", down))


async def _cancel(delivery: asyncio.Task[Outcome]) -> None:
    delivery.cancel()
    await asyncio.gather(delivery, return_exceptions=True)
