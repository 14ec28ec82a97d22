"""The tubes and outboxes that a process serves: what their partitions share, and steps.

Leaderships, elections and metrics know a `Queue`. A tube is one kind, an outbox another; each works on its
partitions in its own way, see `Queue.consume`.

A paused partition makes steps: one document each, delivered because an operator asks for it. The leader
does it, under its own term and with its own tokens, so that only it writes to the sink.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import AsyncConnection

from pytube.config import Config
from pytube.config.names import leader_name
from pytube.election.base import Broken
from pytube.enrich import Enricher
from pytube.enrich.check import Fault, check_enriching
from pytube.enrich.statements import Roots, refuse_unnamed, why_no_columns
from pytube.errors import ConfigError, UnknownTube
from pytube.logs import Logger, UserFaults, host_fields
from pytube.model import PodClass
from pytube.outbox.clients import outbox_clients
from pytube.outbox.inflight import Rules
from pytube.pipeline.blame import Witnesses
from pytube.pipeline.inflight import Flight, InFlight
from pytube.sinks import why_no_read
from pytube.sinks.registry import naming_of
from pytube.sources.pods import TubeSource
from pytube.sources.terms import Candidate, read_partitions
from pytube.transforms import Transforms
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.delivery import Deliverer, Outcome
from pytube.worker.metrics import Tracing, TubeMetrics
from pytube.worker.outbox_worker import OutboxWorker
from pytube.worker.partition_worker import PartitionWorker
from pytube.worker.shared_sink import SharedSink
from pytube.worker.tube_worker import TubeWorker

if TYPE_CHECKING:
    from pytube.outbox.records import Outgoing
    from pytube.worker.kafka import KafkaCluster


@dataclass(frozen=True, slots=True)
class TermLimits:
    """Times of a term in seconds; see `SinkConfig` and `WorkerConfig` for what each means."""

    receive_deadline: float
    drain_limit: float
    request_timeout: float

    @property
    def hold(self) -> float:
        """How long after its last renewal a term's writes may still take effect."""
        return self.receive_deadline + self.request_timeout


# --- queues --------------------------------------------------------------------------------------


@dataclass(slots=True)
class FailingTerms:
    """The terms of one partition that have ended here by the same failure, one after the other."""

    alike: str
    """The failure, without the parts that vary from term to term."""
    since: float
    """When the first one failed, by `time.monotonic()`."""
    terms: int = 0
    is_told: bool = False
    """Whether the database knows."""


class Queue(ABC):
    """One queue of one database, as this process serves it."""

    kind = "tube"

    def __init__(
        self, name: str, request_timeout: float, config: Config, database: Database, instance_id: UUID
    ) -> None:
        worker = config.worker
        self.name = name
        self.limits = limits = TermLimits(worker.receive_deadline, worker.drain_limit, request_timeout)
        self.database = database
        self.log = Logger("pytube.worker", **host_fields(database.host), tube=name)
        self.faults = UserFaults(self.log)
        self.emit = database.emit
        self.metrics = TubeMetrics()
        self.candidate = Candidate(
            instance_id=instance_id,
            client_id=worker.client_id,
            election=config.election_kind,
            hold=limits.hold,
            lease=worker.session_timeout if config.election_kind == "lease" else None,
            host=database.host,
        )
        self.partitions = 0
        """As last read; 0 while the queue does not exist."""
        self.failing: dict[int, FailingTerms] = {}
        """By partition; they outlive the claims."""

    @abstractmethod
    def consume(self, active_term: ActiveTerm) -> PartitionWorker[Any]:
        """What works on the term's partition; it begins nothing yet."""

    async def step(self, active_term: ActiveTerm, number: int) -> None:  # noqa: B027
        """Do a step that an operator asks for; only tubes have steps, so nothing is done here."""

    async def find_faults(self, connection: AsyncConnection) -> Sequence[Fault]:  # noqa: ARG002
        """Why documents can't be read, as far as that shows before anything is read; records always can."""
        return ()

    @property
    def why_closed(self) -> str | None:
        """Why nothing can be sent yet; None once the sink has been opened.

        Until then a term waits before it marks anything. A sink that goes down later is the concern of what
        `consume` returns; and whether a broker is there is learned with the first records.
        """
        return None

    async def reload_partitions(self) -> None:
        """Read the partition count again."""
        self.partitions = (await read_partitions(self.database.pool, [self.name])).get(self.name, 0)
        self.check_exists()

    def check_exists(self) -> None:
        """Raise `UnknownTube` if the queue did not exist when its partition count was last read."""
        if not self.partitions:
            create = "create it with `pytube tube create`, or declare it, and run `pytube apply`"
            if self.kind == "outbox":
                create = "create it with `pytube outbox create`"
            raise UnknownTube(f"there is no {self.kind} {self.name!r}; {create}")


class Tube(Queue):
    """One tube as this process serves it."""

    def __init__(
        self,
        config: Config,
        name: str,
        sink: SharedSink,
        database: Database,
        instance_id: UUID,
        tracing: Tracing,
    ) -> None:
        """Opens nothing; `sink` is opened and closed by the caller."""
        self.settings = settings = config.tube(name)
        super().__init__(name, settings.sink.request_timeout, config, database, instance_id)
        self.tracing = tracing
        splits = settings.sink.parts is not None
        try:
            self.transforms = Transforms.load(settings.transforms, name, self.log, self.faults, splits=splits)
        except ConfigError as error:
            self.faults.log_sink("import", error)
            raise
        self.enricher = Enricher(
            database.pool, name, settings.enrich, config.postgres.answer_timeout, self._learn_roots
        )
        self.shared_sink = sink
        self.sink = sink.sink
        self.gate = sink.gate
        self.witnesses = Witnesses()
        why = why_no_read(self.sink)
        if settings.verify is not None and why is not None:
            raise ConfigError(
                f'[tube."{name}".verify]: samples can\'t be compared: {why}; remove the section'
            )
        reason = why_no_columns(name, settings.enrich)
        if reason is not None and naming_of(self.sink) is not None:
            raise ConfigError(reason)

    def _learn_roots(self, roots: Roots) -> None:
        naming = naming_of(self.sink)
        if naming is not None:
            naming.learn_keys(roots.key_of, self.database.host)
            refuse_unnamed(roots, naming.why_no_name)

    @property
    def why_closed(self) -> str | None:
        return self.shared_sink.why_closed

    def consume(self, active_term: ActiveTerm) -> TubeWorker:
        return TubeWorker(active_term, self)

    async def step(self, active_term: ActiveTerm, number: int) -> None:
        """Do a step during a pause, unless it is not wanted any more; raises what ends the term."""
        source = TubeSource(self.database.pool, active_term.term)
        step = await source.take_step(number)
        if step is None:
            return
        if (reason := self.why_closed) is not None:
            await source.end_step(step, "unsent", f"the sink is not open: {reason}")
            return
        # A separate deliverer: a sink that was down a moment ago is asked at once, not after a back-off.
        traces = self.tracing.partition(active_term.term)
        deliverer = Deliverer(active_term, self, traces)
        flight = Flight(PodClass.INCREMENTAL)
        flight.stamp, flight.ts = step.seq, step.ts
        delivery = asyncio.create_task(deliverer.deliver(flight, {step.shard: [step.id]}))
        delivery.add_done_callback(lambda _: active_term.attention.set())
        try:
            outcome = await _wait_for(delivery, active_term, self.limits.request_timeout)
            if outcome is not None:
                outcome.trace.delivered(outcome.counts(), InFlight())  # which holds none of its pods
            await source.end_step(step, *_judge(outcome, active_term))
        finally:
            await _cancel(delivery)
            await deliverer.wait_for_unanswered()
            traces.close()
            active_term.troubles.end("sink")
            active_term.troubles.end("source")

    async def find_faults(self, connection: AsyncConnection) -> Sequence[Fault]:
        naming = naming_of(self.sink)
        why_no_name = None if naming is None else naming.why_no_name
        return (await check_enriching(connection, self.name, self.settings.enrich, why_no_name)).faults


class Outbox(Queue):
    """One outbox as this process serves it: its clients of Kafka, and its rules."""

    kind = "outbox"

    def __init__(
        self,
        config: Config,
        name: str,
        database: Database,
        instance_id: UUID,
        cluster: KafkaCluster | None = None,
    ) -> None:
        """Opens nothing. `cluster`: of Kafka, as this process watches it."""
        self.settings = settings = config.outbox(name)
        super().__init__(name, settings.request_timeout, config, database, instance_id)
        self.cluster = cluster
        self.rules = Rules(
            window=1 if settings.mode == "strict" else settings.window,
            attempts=settings.attempts,
            compact=settings.compact,
            hold=settings.on_poison == "hold",
            repeats=not settings.transactions,
            cooldown=settings.topic_cooldown,
            cooldown_limit=settings.topic_cooldown_limit,
        )
        # Each of several hosts has its own group: the epochs of one say nothing about another host.
        of_host = name if database.host is None else f"{name}.{database.host}"
        self._transactional_id = f"{leader_name(config.worker.installation, of_host)}."
        self._kafka = outbox_clients(config, name)

    def consume(self, active_term: ActiveTerm) -> OutboxWorker:
        return OutboxWorker(active_term, self)

    def outgoing(self, active_term: ActiveTerm) -> Outgoing:
        """The way of one term's records to Kafka."""
        from pytube.outbox.producer import PlainProducer
        from pytube.outbox.transactions import TransactionalProducer

        term = active_term.term
        if not self.settings.transactions:
            return PlainProducer(
                self._kafka,
                term.epoch,
                strict=self.settings.mode == "strict",
                on_settled=active_term.attention.set,
            )
        return TransactionalProducer(
            self._kafka,
            self._transactional_id,
            term.partitions,
            term.partition,
            term.epoch,
            may_send=lambda: active_term.is_trusted,
            on_settled=active_term.attention.set,
        )


# --- steps ---------------------------------------------------------------------------------------


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
