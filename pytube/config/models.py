"""The configuration as values. Every section refuses keys that it does not know."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from pytube.config.attachments import MOST_PARTITIONS, DeclaringSection, Table
from pytube.config.documents import DocumentSection
from pytube.config.names import leader_name
from pytube.config.section import OR_OFF, Section, key_path
from pytube.config.tubes import TubeConfig
from pytube.errors import ConfigError


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, the host in brackets when it is an IPv6 address.

    Raises:
        ValueError: it is none.
    """
    host, _, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or any(c in host for c in "[]/@ ") or (":" in host) != address.startswith("["):
        raise ValueError('expected "address:port", as "127.0.0.1:9187" or "[::1]:9187"')
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError("expected a port from 0 to 65535 behind the colon; 0 takes any that is free")
    return host, int(port)


def _default_client_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def _host_name(value: str) -> str:
    if _HOST_NAME.fullmatch(value) is None:
        raise ValueError("expected a name of at most 63 letters, digits, - and _, which begins with neither")
    return value


class HostConfig(Section):
    """`[postgres.hosts.NAME]`: one of several hosts that carry the same tubes.

    Omitted keys are as in `[postgres]`, whose fields these are.
    """

    dsn: SecretStr
    schema_name: str | None = Field(default=None, alias="schema", min_length=1, max_length=63)
    answer_timeout: float | None = Field(default=None, gt=0)
    pool_size: int | None = Field(default=None, ge=1)


class PostgresConfig(Section):
    """`[postgres]`: the source, which also holds the tubes."""

    dsn: SecretStr | None = None
    """A libpq connection string or URI; None where there are several hosts."""

    hosts: dict[Annotated[str, AfterValidator(_host_name)], HostConfig] = Field(default_factory=dict)
    """Several hosts that carry the same tubes, by name."""

    schema_name: str = Field(default="tube", alias="schema", min_length=1, max_length=63)
    """The schema that pytube's SQL is installed in."""

    answer_timeout: float = Field(default=15.0, gt=0)
    """Seconds after which a worker drops a session whose server does not answer a statement."""

    pool_size: int = Field(default=6, ge=1)
    """Sessions that a worker process opens at most for marks and reads, whatever the number of its tubes. It
    has two dedicated ones, and one while it runs a backfill."""

    @property
    def only_dsn(self) -> SecretStr:
        """The connection string of the only host.

        Raises:
            ConfigError: there are several hosts.
        """
        if self.dsn is None:
            raise ConfigError(f"several hosts are configured: name one of {', '.join(self.hosts)} (--host)")
        return self.dsn

    @model_validator(mode="after")
    def _one_way_to_name_hosts(self) -> Self:
        if self.dsn is None and not self.hosts:
            raise ConfigError("key postgres.dsn: is missing")
        if self.dsn is not None and self.hosts:
            raise ConfigError(
                "key postgres.dsn: stands beside [postgres.hosts], where each host has its own; take it out"
            )
        return self


class KafkaConfig(Section):
    """`[kafka]`: the broker of the leader topics."""

    bootstrap_servers: str = Field(min_length=1)
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """More settings for librdkafka, by its names. They may be secrets, so they are never shown."""

    shared_partitions: int | None = Field(default=None, ge=1)
    """Partitions of one leader topic, with one consumer group, for all tubes of the installation. By default
    each tube has a separate topic and group. All workers need the same number, which is the most
    processes that can lead anything."""


class WorkerConfig(Section):
    """`[worker]`: what one process keeps to. All times are seconds."""

    installation: str = Field(default="default", min_length=1)
    """Distinguishes installations on one broker, in the names of topics and groups."""

    client_id: str = Field(default_factory=_default_client_id, min_length=1)
    election: Literal["auto", "neli", "lease"] = "auto"
    receive_deadline: float = Field(default=5.0, gt=0)
    """Nothing is sent when the last renewal that was answered was sent longer ago than this."""

    session_timeout: float = Field(default=15.0, gt=0)
    """After so long without a sign of life the partition goes to another worker."""

    drain_limit: float = Field(default=30.0, ge=0)
    """How long a stopping worker waits for documents and records in flight."""

    meter_interval: float = Field(default=5.0, gt=0)
    partitions: int | None = Field(default=None, ge=1)
    """Partitions of all tubes together that this process leads at most, under `lease`; None: no limit."""

    claims: float = Field(default=100.0, gt=0, allow_inf_nan=False)
    """New partitions a second that this process begins to lead at most."""

    shed_after: Annotated[float | None, *OR_OFF] = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Seconds that a partition falls behind before the process gives its tube up to others that do better."""

    shed_pause: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Seconds for which it then leaves the tube to the others: the first time."""

    listen: str | None = None
    """`address:port` where the worker answers `/healthz`, `/readyz` and `/metrics`; None: nowhere."""

    tracing: bool | str = False
    """Whether batches are traced by OpenTelemetry; or the URL of the collector that receives their spans."""

    @field_validator("tracing", mode="before")
    @classmethod
    def _flag_from_environment(cls, value: Any) -> Any:
        return value == "true" if value in ("true", "false") else value

    @field_validator("tracing")
    @classmethod
    def _flag_or_url(cls, value: bool | str) -> bool | str:
        if isinstance(value, str):
            parts = urlsplit(value)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError('expected true, false or the URL of a collector, as "http://127.0.0.1:4318"')
            if "@" in parts.netloc:
                raise ValueError("a user and a password go into the variable OTEL_EXPORTER_OTLP_HEADERS")
        return value

    @field_validator("listen")
    @classmethod
    def _address_and_port(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value


class OutboxConfig(DeclaringSection):
    """`[outbox.NAME]`: how a worker brings the records of one outbox to Kafka. Times are in seconds.

    And what the database is to have of it.
    """

    DECLARING: ClassVar[tuple[str, ...]] = ("partitions", "value_type", "adopt", "wake")

    partitions: int | None = Field(default=None, ge=1, le=MOST_PARTITIONS)
    """How many workers can share it at most; None: as many as it has, and 1 for a new one."""

    value_type: Literal["text", "bytea"] | None = None
    """Of its values, for good; None: as it is, and text for a new one."""

    adopt: Table | None = None
    """The table of goharvest's that it takes its records from; None: it has its own table."""

    wake: bool = False
    """Whether writers of an adopted table wake sleeping workers, by a trigger; other tables' writers do."""

    mode: Literal["windowed", "strict"] = "windowed"
    """`strict`: one record of a key is under way; `windowed`: up to `window`."""

    transactions: bool = False
    """Whether records are sent in transactions: readers of committed records then see each of them once."""

    window: int = Field(default=1000, ge=1)
    """Records of one key that are under way at the same time."""

    in_flight: int = Field(default=20_000, ge=1, le=100_000)
    """Records that one partition holds at most, whatever the backlog."""

    in_flight_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    """Bytes of their values, about."""

    mark_limit: int = Field(default=5000, ge=1, le=100_000)
    """Records that one mark takes at most."""

    compact: bool = False
    """Whether of the records of a key that wait only the newest is sent."""

    on_poison: Literal["skip", "hold"] = "skip"
    """The fate of a key after one of its records was parked: it continues, or is parked behind it."""

    attempts: int = Field(default=3, ge=1)
    """How often the broker may refuse a record that is sent alone before it is parked."""

    message_timeout: float = Field(default=8.0, ge=2)
    """Seconds within which a record is acknowledged, or counts as not written."""

    linger_ms: float = Field(default=0.0, ge=0)
    """Milliseconds for which librdkafka waits for more records before it sends a batch."""

    topic_cooldown: float = Field(default=0.5, gt=0)
    """Seconds for which a topic rests that takes nothing; doubled with each failure."""

    topic_cooldown_limit: float = Field(default=60.0, gt=0)
    """The most that they grow to."""

    bootstrap_servers: str | None = Field(default=None, min_length=1)
    """Of the cluster that gets the records; by default the one of `[kafka]`, with its options."""

    kafka_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """More settings of librdkafka for producers, by its names. Never shown."""

    leader_topic: str | None = Field(default=None, min_length=1)
    leader_group: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _adopted_or_own(self) -> Self:
        if self.adopt is None and self.wake:
            raise ValueError("wake is only for adopted tables: in others, writers always wake workers")
        if self.adopt is not None and self.value_type is not None:
            raise ValueError("value_type can't stand beside adopt: the table has its type; take it out")
        return self

    @property
    def request_timeout(self) -> float:
        """Seconds after which a record that was handed over has been written, or never is.

        librdkafka looks once a second for records whose time is over.
        """
        return self.message_timeout + 1.0


_Section = TypeVar("_Section", TubeConfig, OutboxConfig)


def _section(kind: str, sections: Mapping[str, _Section], name: str) -> _Section:
    if name in sections:
        return sections[name]
    known = ", ".join(sorted(sections)) or "none"
    raise ConfigError(
        f"the {kind} {name!r} is not configured (configured: {known}); "
        f"add a section [{key_path((kind, name))}]"
    )


class Config(Section):
    """The whole file."""

    postgres: PostgresConfig
    kafka: KafkaConfig | None = None
    worker: WorkerConfig = Field(default_factory=WorkerConfig)
    tubes: dict[str, TubeConfig] = Field(default_factory=dict, alias="tube")
    outboxes: dict[str, OutboxConfig] = Field(default_factory=dict, alias="outbox")
    documents: dict[str, DocumentSection] = Field(default_factory=dict, alias="document")
    """Each says what the tube of its name sends."""

    @property
    def election_kind(self) -> Literal["neli", "lease"]:
        """The election that is asked for; by default `neli` where there is a broker."""
        if self.worker.election == "auto":
            return "neli" if self.kafka is not None else "lease"
        return self.worker.election

    @property
    def hosts(self) -> Sequence[str | None]:
        """The names of the hosts; None is the only one, which has no name."""
        return tuple(self.postgres.hosts) or (None,)

    def of_host(self, name: str | None) -> Self:
        """The configuration of one host; None: the only one.

        At the broker each host is a separate installation: its tubes share no leader topic, and no group,
        with tubes of the same name on other hosts.

        Raises:
            ConfigError: there is no such host, or there are several and none is named.
        """
        hosts = self.postgres.hosts
        if name is None:
            self.postgres.only_dsn  # noqa: B018 # raises when there are several
            return self
        if name not in hosts:
            known = ", ".join(hosts) or "none"
            raise ConfigError(f"there is no host {name!r} in the configuration (known: {known})")
        own = {key: value for key, value in hosts[name] if value is not None}
        installation = f"{self.worker.installation}@{name}"
        return self.model_copy(
            update={
                "postgres": self.postgres.model_copy(update={**own, "hosts": {}}),
                "worker": self.worker.model_copy(update={"installation": installation}),
            }
        )

    def tube(self, name: str) -> TubeConfig:
        """The section of one tube; `ConfigError` that lists the known ones when there is none."""
        return _section("tube", self.tubes, name)

    def outbox(self, name: str) -> OutboxConfig:
        """The section of one outbox; `ConfigError` that lists the known ones when there is none."""
        return _section("outbox", self.outboxes, name)

    def leader_topic(self, name: str) -> str:
        """The leader topic of a tube or an outbox: as configured, else by its name and the installation's."""
        outbox = self.outboxes.get(name)
        chosen = self.tube(name).topic if outbox is None else outbox.leader_topic
        return chosen or self._leader_name(name)

    def leader_group(self, name: str) -> str:
        """The consumer group of its workers: as configured, else named as its topic."""
        outbox = self.outboxes.get(name)
        chosen = self.tube(name).group if outbox is None else outbox.leader_group
        return chosen or self._leader_name(name)

    def _leader_name(self, name: str) -> str:
        shared = self.kafka is not None and self.kafka.shared_partitions is not None
        return leader_name(self.worker.installation, None if shared else name)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        worker = self.worker
        if worker.election == "neli" and self.kafka is None:
            raise ConfigError(
                'key worker.election: "neli" needs a broker; '
                'add a section [kafka] with bootstrap_servers, or use "lease"'
            )
        if worker.partitions is not None and self.election_kind == "neli":
            raise ConfigError(
                "key worker.partitions: under the election neli the group gives out the partitions, and a "
                'member can\'t refuse one; take the key out, or set worker.election = "lease"'
            )
        for name, tube in self.tubes.items():
            if self.kafka is not None and self.kafka.shared_partitions and (tube.topic or tube.group):
                raise ConfigError(
                    f"key {key_path(('tube', name))}: topic and group of a tube can't be set while "
                    "kafka.shared_partitions gives all tubes one topic; take them out, or that one"
                )
            if self.postgres.hosts and (tube.topic or tube.group):
                raise ConfigError(
                    f"key {key_path(('tube', name))}: topic and group of a tube can't be set while there are "
                    "several hosts, each of which needs its own; take them out"
                )
            needed = tube.sink.request_timeout + worker.receive_deadline
            if needed > worker.session_timeout:
                raise ConfigError(
                    f"key {key_path(('tube', name, 'sink', 'request_timeout'))}: "
                    f"{tube.sink.request_timeout:g} s and worker.receive_deadline of "
                    f"{worker.receive_deadline:g} s are together more than worker.session_timeout "
                    f"of {worker.session_timeout:g} s, so a new leader could begin while the old "
                    f"one's last request is still under way; lower the first two, or raise the "
                    f"third to at least {needed:g} s"
                )
        self._check_outboxes()
        self._check_documents()
        return self

    def _check_documents(self) -> None:
        for name in self.documents:
            section = key_path(("document", name))
            tube = self.tubes.get(name)
            if tube is None:
                raise ConfigError(
                    f"key {section}: has no tube; add a section [{key_path(('tube', name, 'sink'))}], "
                    "which says where the documents go"
                )
            if "enrich" in tube.model_fields_set:
                raise ConfigError(
                    f"key {key_path(('tube', name, 'enrich'))}: conflicts with [{section}], which already "
                    "defines the documents; remove one of the two"
                )
            if tube.declared:
                raise ConfigError(
                    f"key {key_path(('tube', name, tube.declared[0]))}: stands beside [{section}], which "
                    "says all that the database has of the tube; take it out, and say partitions there"
                )
            if self.postgres.hosts:
                raise ConfigError(
                    f"key {section}: documents can't be declared while there are several hosts; write a "
                    f"query in [{key_path(('tube', name, 'enrich'))}]"
                )

    def _check_outboxes(self) -> None:
        worker = self.worker
        for name, outbox in self.outboxes.items():
            section = key_path(("outbox", name))
            if name in self.tubes:
                raise ConfigError(
                    f"key {section}: there is a tube of that name, and names are shared; choose another one"
                )
            if self.kafka is None and outbox.bootstrap_servers is None:
                raise ConfigError(
                    f"key {section}: an outbox needs a broker; "
                    "add bootstrap_servers, here or in a section [kafka]"
                )
            shared = self.kafka is not None and self.kafka.shared_partitions is not None
            if shared and (outbox.leader_topic or outbox.leader_group):
                raise ConfigError(
                    f"key {section}: leader_topic and leader_group can't be set while "
                    "kafka.shared_partitions gives all tubes and outboxes one topic; take them out, "
                    "or that one"
                )
            needed = outbox.request_timeout + worker.receive_deadline
            if needed > worker.session_timeout:
                raise ConfigError(
                    f"key {section}.message_timeout: {outbox.message_timeout:g} s, 1 s for librdkafka to "
                    f"notice, and worker.receive_deadline of {worker.receive_deadline:g} s are together "
                    f"more than worker.session_timeout of {worker.session_timeout:g} s, so a new leader "
                    "could begin while the old one's last records are still under way; lower the first two, "
                    f"or raise the third to at least {needed:g} s"
                )
