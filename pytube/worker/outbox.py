"""What the partitions of one outbox share in this process: clients of Kafka, rules and counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import AsyncConnection

from pytube.config import Config, OutboxConfig
from pytube.config.names import leader_name
from pytube.db.session import SessionPool
from pytube.enrich.check import Fault
from pytube.errors import ConfigError, UnknownTube, how_to_install
from pytube.events import Event, PartitionEvent
from pytube.outbox.inflight import Rules
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.limits import TermLimits
from pytube.worker.metrics import TubeMetrics
from pytube.worker.outbox_worker import OutboxLimits, OutboxWorker
from pytube.worker.queue import Queue

if TYPE_CHECKING:
    from pytube.outbox.outgoing import Outgoing

_ALL = ("all", "-1", -1)
"""Ways to write that all replicas have to acknowledge."""


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
    ) -> None:
        """Opens nothing.

        Args:
            config: the whole of it.
            name: of the outbox.
            instance_id: of this process.
            pool: sessions with the database that has the outbox.
            emit: receives events.
            host: the name of that database's host, where there are several.

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
        # Of several hosts each has its own: the epochs of one say nothing about those of another.
        of_host = name if host is None else f"{name}.{host}"
        self._transactional_id = f"{leader_name(config.worker.installation, of_host)}."
        self._settings = settings
        self._producer_settings = self._settings_of_producers()
        self._clients = self._make_clients(config)

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
            strict = self._settings.mode == "strict"
            return PlainProducer(self._clients, term.epoch, self._producer_settings, strict=strict)
        return TransactionalProducer(
            self._clients,
            self._transactional_id,
            term.partitions,
            term.partition,
            term.epoch,
            self._producer_settings,
            may_send=lambda: active_term.is_trusted,
            on_settled=active_term.attention.set,
        )

    # --- Kafka ----------------------------------------------------------------------------

    def _settings_of_producers(self) -> dict[str, Any]:
        """Settings for other acks than all, with which librdkafka has no idempotent producers."""
        acks = self._settings.kafka_options.get("acks", "all")
        if acks in _ALL:
            return {}
        if self._settings.transactions:
            raise ConfigError(
                f'outbox {self.name!r}: kafka_options: transactions need acks = "all"; take acks out'
            )
        return {"acks": acks, "enable.idempotence": False, "max.in.flight.requests.per.connection": 1}

    def _make_clients(self, config: Config) -> Any:
        try:
            from pytube.sinks.kafka_clients import Clients
        except ModuleNotFoundError as missing:
            if missing.name != "confluent_kafka":
                raise
            raise ConfigError(
                f"the outbox {self.name!r} needs the Kafka client: {how_to_install('kafka')}"
            ) from None
        bootstrap, options = _cluster(config, self._settings)
        options.pop("acks", None)
        clients = Clients(
            bootstrap,
            self._settings.message_timeout,
            options,
            where=f"outbox {self.name!r}: kafka_options",
            defaults={
                "linger.ms": self._settings.linger_ms,
                # A topic that is not there is to cool down, not to hold its records for half a minute.
                "topic.metadata.propagation.max.ms": 3000,
                "queue.buffering.max.messages": 2 * self._settings.in_flight,
            },
            partitioners=(
                "murmur2_random",
                "murmur2",
                "consistent",
                "consistent_random",
                "fnv1a",
                "fnv1a_random",
            ),
        )
        clients.producer(settings=self._producer_settings)  # refuses wrong options now
        return clients


def _cluster(config: Config, settings: OutboxConfig) -> tuple[str, dict[str, Any]]:
    """Bootstrap servers and options; those of `[kafka]` are for its cluster only."""
    if settings.bootstrap_servers is not None:
        return settings.bootstrap_servers, dict(settings.kafka_options)
    assert config.kafka is not None, "the configuration was checked"
    shared: Mapping[str, Any] = config.kafka.options
    return config.kafka.bootstrap_servers, {**shared, **settings.kafka_options}
