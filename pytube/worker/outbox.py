"""What the partitions of one outbox share in this process: clients of Kafka, rules and counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from psycopg import AsyncConnection

from pytube.config import Config
from pytube.config.names import leader_name
from pytube.db.session import SessionPool
from pytube.enrich.check import Fault
from pytube.errors import UnknownTube
from pytube.events import Event, PartitionEvent
from pytube.outbox.clients import outbox_clients
from pytube.outbox.inflight import Rules
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.metrics import TubeMetrics
from pytube.worker.outbox_worker import OutboxLimits, OutboxWorker
from pytube.worker.queue import Queue, TermLimits

if TYPE_CHECKING:
    from pytube.outbox.records import Outgoing
    from pytube.worker.kafka import KafkaCluster


class Outbox(Queue):
    """One outbox as this process serves it."""

    def __init__(
        self,
        config: Config,
        name: str,
        instance_id: UUID,
        pool: SessionPool,
        emit: Callable[[Event], None],
        host: str | None = None,
        cluster: KafkaCluster | None = None,
    ) -> None:
        """Opens nothing.

        Args:
            config: the whole of it.
            name: of the outbox.
            instance_id: of this process.
            pool: sessions with the database that has the outbox.
            emit: receives events.
            host: the name of that database's host, where there are several.
            cluster: of Kafka, as this process watches it.

        Raises:
            ConfigError: the outbox is not configured, librdkafka refuses an option, or there is no Kafka
            client.
        """
        settings = config.outbox(name)
        limits = TermLimits(
            receive_deadline=config.worker.receive_deadline,
            drain_limit=config.worker.drain_limit,
            request_timeout=settings.request_timeout,
        )
        super().__init__(name, limits, config, instance_id, pool, emit, host)
        self.cluster = cluster
        self.metrics = TubeMetrics()
        self.outbox_limits = OutboxLimits(
            in_flight=settings.in_flight,
            in_flight_bytes=settings.in_flight_bytes,
            mark_limit=settings.mark_limit,
            drain=limits,
            hold=settings.on_poison == "hold",
        )
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
        of_host = name if host is None else f"{name}.{host}"
        self._transactional_id = f"{leader_name(config.worker.installation, of_host)}."
        self._settings = settings
        self._kafka = outbox_clients(config, name)

    @property
    def why_closed(self) -> str | None:
        """None: whether a broker is there is learned with the first records."""
        return None

    def consume(self, active_term: ActiveTerm, database: Database) -> OutboxWorker:
        """What delivers the records of the term's partition."""
        return OutboxWorker(active_term, self, database)

    async def find_faults(self, connection: AsyncConnection) -> Sequence[Fault]:  # noqa: ARG002
        """None: records are read as they are."""
        return ()

    def count(self, event: PartitionEvent) -> None:
        """Count what happened to a term."""
        self.metrics.count(event)

    def check_exists(self) -> None:
        """Raise `UnknownTube` if the outbox did not exist when its partition count was last read."""
        if not self.partitions:
            raise UnknownTube(f"there is no outbox {self.name!r}; create it with `pytube outbox create`")

    def outgoing(self, active_term: ActiveTerm) -> Outgoing:
        """The way of one term's records to Kafka."""
        from pytube.outbox.producer import PlainProducer
        from pytube.outbox.transactions import TransactionalProducer

        term = active_term.term
        if not self._settings.transactions:
            return PlainProducer(
                self._kafka,
                term.epoch,
                strict=self._settings.mode == "strict",
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
