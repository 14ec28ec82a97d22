"""Serves one tube in this process: its sink, its election, and a `Leadership` for each claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from uuid import UUID

import structlog

from pytube.backfill.limits import BackfillLimits
from pytube.config import Config
from pytube.db.pool import make_pool
from pytube.election import Claim
from pytube.enrich import build_enricher
from pytube.errors import DatabaseUnavailable, SchemaMismatch, StatementFailed, UsageError
from pytube.events import Event, SinkDown, SinkUp, SourceDown, SourceUp
from pytube.sinks import build_sink
from pytube.sources import terms
from pytube.sources.control import ControlSource
from pytube.sources.pods import TubeSource
from pytube.sources.session import Session
from pytube.sources.terms import Candidate
from pytube.worker.active_term import ActiveTerm
from pytube.worker.backfills import Backfills
from pytube.worker.circuit_breaker import CircuitBreaker, CircuitBreakers
from pytube.worker.database import Database
from pytube.worker.delivery import Carrier
from pytube.worker.elections import build_election
from pytube.worker.leadership import Leadership
from pytube.worker.limits import Limits
from pytube.worker.partition_worker import PartitionWorker
from pytube.worker.poller import Poller
from pytube.worker.tasks import end
from pytube.worker.upkeep import follow_ddl

_PARTITIONS_INTERVAL = 1.0


class TubeRunner:
    """One tube of one worker. `start` it once; `stop` it once."""

    def __init__(self, config: Config, tube: str, instance_id: UUID, emit: Callable[[Event], None]) -> None:
        settings = config.tube(tube)
        dsn = config.postgres.dsn.get_secret_value()
        schema = config.postgres.schema_name
        self.tube = tube
        self.emit = emit
        self.limits = Limits.of(settings, config.worker)
        self.partitions = 0
        self.stopping = False
        self.leaderships: dict[int, Leadership] = {}
        self._log = structlog.get_logger("pytube.worker").bind(tube=tube)
        self._services: set[asyncio.Task[None]] = set()
        self._leading: set[asyncio.Task[None]] = set()
        self.database = Database(
            dsn,
            schema,
            tube,
            renew_interval=self.limits.renew_interval,
            answer_timeout=config.postgres.answer_timeout,
            renewal_timeout=self.limits.receive_deadline,
            active_terms=self._active_terms,
            on_wake=self._wake,
            awake=self._is_awake,
            emit=emit,
        )
        self._sink = build_sink(settings.sink.type, settings.sink.options)
        # The partitions of a process share the pool: more readers than this only queue at the source.
        self._pool = make_pool(dsn, schema, f"pytube {tube} enrich", size=settings.sink.sends * 2)
        self._enricher = build_enricher(settings.enrich, tube, self._pool, config.postgres.answer_timeout)
        self._backfills = Backfills(self.database, tube, BackfillLimits.of(settings.backfill), self.warn)
        self._election = build_election(
            config,
            tube,
            instance_id,
            partitions=lambda: self.partitions,
            session=lambda: self.database.control_now,
            down_for=lambda: self.database.down_for,
        )
        self.candidate = Candidate(
            instance_id=instance_id,
            client_id=config.worker.client_id,
            election=self._election.kind,
            hold=self.limits.hold,
            lease=self._election.lease,
        )

    # --- life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open everything and take part in the election.

        Raises:
            UnknownTube: there is no such tube.
            DatabaseUnavailable, BrokerUnavailable, SinkUnavailable: what is down.
            ConfigError: the sink refuses its options.
        """
        session = await self.database.open_session("start", durable=True)
        try:
            self.partitions = await terms.partitions_of(session, self.tube)
        finally:
            await session.close()
        await self._sink.open()
        await self._pool.open()
        self._serve(self.database.run())
        await self.database.control()
        await self._election.start()
        self._serve(self._follow_claims())
        self._serve(self._follow_partitions())
        self._serve(
            follow_ddl(
                lambda: self.database.open_session("upkeep", durable=True),
                lambda: 0 in self.led_partitions,
                self.warn,
                self.database.ddl,
            )
        )
        self._serve(self._backfills.run())

    async def stop(self) -> None:
        """Give everything back in order; the drain limit bounds the wait for sends."""
        self.stopping = True
        async with AsyncExitStack() as stack:  # what comes first here is closed last, whatever fails
            stack.push_async_callback(self._sink.close)
            stack.push_async_callback(self._pool.close)
            stack.push_async_callback(end, self._services)
            stack.push_async_callback(end, self._leading)
            await self._election.stop()

    async def wait(self) -> None:
        """Return never; raises what ended one of the services, which is a fault of ours."""
        done, _ = await asyncio.wait(self._services, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def _serve(self, service: Coroutine[None, None, None]) -> None:
        self._services.add(asyncio.create_task(service))

    # --- leadership -----------------------------------------------------------------------

    async def _follow_claims(self) -> None:
        async for claim in self._election.claims():
            leadership = Leadership(self, claim)
            self.leaderships[claim.partition] = leadership
            task = asyncio.create_task(self._run_leadership(leadership, claim))
            self._leading.add(task)
            task.add_done_callback(self._leading.discard)

    async def _run_leadership(self, leadership: Leadership, claim: Claim) -> None:
        try:
            await leadership.run()
        except Exception:  # noqa: BLE001 # a fault of ours in one partition must not end the others
            self._log.exception("leading failed", partition=claim.partition)
        finally:
            if self.leaderships.get(claim.partition) is leadership:
                del self.leaderships[claim.partition]

    async def _follow_partitions(self) -> None:
        """The election hands out claims for as many partitions as the tube has."""
        warned = False
        while True:
            await asyncio.sleep(_PARTITIONS_INTERVAL)
            try:
                await self.reload_partitions()
                warned = False
            except (DatabaseUnavailable, SchemaMismatch, StatementFailed):
                continue  # logged by what keeps the sessions
            except UsageError as error:
                if not warned:
                    self.warn(str(error))
                warned = True

    async def reload_partitions(self) -> None:
        """Read the tube's partition count; none when the tube is gone."""
        control = await self.database.control()
        try:
            self.partitions = await terms.partitions_of(control, self.tube)
        except UsageError:
            self.partitions = 0
            raise

    def make_partition_worker(self, active_term: ActiveTerm, session: Session) -> PartitionWorker:
        """The worker of one term, over a session of its own."""
        term = active_term.term
        poller = Poller(session, term, lambda: self.database.notifications_work)
        breakers = CircuitBreakers(
            sink=CircuitBreaker(
                lambda reason: self.emit(SinkDown(term.tube, term.partition, reason)),
                lambda seconds: self.emit(SinkUp(term.tube, term.partition, seconds)),
            ),
            source=CircuitBreaker(
                lambda reason: self.emit(SourceDown(term.tube, term.partition, reason)),
                lambda seconds: self.emit(SourceUp(term.tube, term.partition, seconds)),
            ),
        )
        carrier = Carrier(
            active_term,
            self._enricher,
            self._sink,
            self.limits,
            breakers,
            poller.attention,
            self.candidate.client_id,
        )
        return PartitionWorker(
            TubeSource(session, term),
            carrier,
            poller,
            ControlSource(session, term),
            lambda: self.database.settled,
            self.emit,
        )

    # --- what others ask ------------------------------------------------------------------

    def _active_terms(self) -> Iterable[ActiveTerm]:
        return [
            leadership.active_term
            for leadership in self.leaderships.values()
            if leadership.active_term is not None
        ]

    def _is_awake(self) -> bool:
        return any(
            leadership.partition_worker is not None and leadership.partition_worker.is_awake
            for leadership in self.leaderships.values()
        )

    def _wake(self, partition: int | None) -> None:
        """Pods may have arrived for the partition; None: for any."""
        for number, leadership in self.leaderships.items():
            if leadership.partition_worker is not None and partition in (None, number):
                leadership.partition_worker.wake()

    def warn(self, message: str, **fields: object) -> None:
        """Log a warning."""
        self._log.warning(message, **fields)

    @property
    def led_partitions(self) -> set[int]:
        """The partitions that are being worked on."""
        return {
            number
            for number, leadership in self.leaderships.items()
            if leadership.partition_worker is not None
        }
