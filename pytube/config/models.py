"""The configuration as values. Every section refuses keys that it does not know."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PrivateAttr, SecretStr, field_validator, model_validator

from pytube.config.documents import DocumentSection
from pytube.config.names import leader_name
from pytube.config.section import (
    HOST_SHARDS,
    MOST_PARTITIONS,
    OR_OFF,
    DeclaringSection,
    Section,
    Table,
    key_path,
)
from pytube.config.tubes import TubeConfig, attachments
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
    """Connection string or URI of this host."""

    schema_name: str | None = Field(default=None, alias="schema", min_length=1, max_length=63)
    """As in `[postgres]`."""

    answer_timeout: float | None = Field(default=None, gt=0)
    """As in `[postgres]`."""

    pool_size: int | None = Field(default=None, ge=1)
    """As in `[postgres]`; for this host alone."""


class PostgresConfig(Section):
    """`[postgres]`: the source, which also holds the tubes."""

    dsn: SecretStr | None = None
    """Connection string or URI of the primary, or of a pool in session mode. Required unless there are
    `hosts`."""

    hosts: dict[Annotated[str, AfterValidator(_host_name)], HostConfig] = Field(default_factory=dict)
    """Several hosts that carry the same tubes, by name."""

    schema_name: str = Field(default="tube", alias="schema", min_length=1, max_length=63)
    """Schema where pytube is installed."""

    answer_timeout: float = Field(default=15.0, gt=0)
    """Seconds without an answer to a statement, after which a worker drops the session and opens another. Has
    to be longer than a batch's read takes."""

    pool_size: int = Field(default=6, ge=1)
    """Most sessions that a worker process opens for marks and reads. It opens two more, and one per backfill
    it runs."""

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
    """As for librdkafka: `host:port`, joined by commas."""

    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """More settings of librdkafka, by its names; never shown. Settings that the election makes are
    refused."""

    shared_partitions: int | None = Field(default=None, ge=1)
    """Partitions of one leader topic with one consumer group for all tubes. For processes that serve dozens
    of tubes. All workers need the same number; no more processes than that can lead."""


class WorkerConfig(Section):
    """`[worker]`: what one process keeps to. All times are seconds."""

    installation: str = Field(default="default", min_length=1)
    """Part of the names of leader topics and groups. Give each installation on one broker its own."""

    client_id: str = Field(default_factory=_default_client_id, min_length=1)
    """Label in `pytube status`, in logs, and at the broker. Default: host name and process id."""

    election: Literal["auto", "neli", "lease"] = "auto"
    """`auto`: `neli` if there is a section `[kafka]`, else `lease`. All workers of a tube need the same."""

    receive_deadline: float = Field(default=5.0, gt=0)
    """Seconds after sending the last answered renewal, from which a term sends nothing."""

    session_timeout: float = Field(default=15.0, gt=0)
    """Seconds without a sign of life, after which another worker gets the partition; the length of a
    lease."""

    drain_limit: float = Field(default=30.0, ge=0)
    """Seconds that a stopping worker waits for sends in flight."""

    meter_interval: float = Field(default=5.0, gt=0)
    """Seconds between `meter_read` events of a busy partition."""

    partitions: int | None = Field(default=None, ge=1)
    """Most partitions that this process leads under `lease`, of all tubes, outboxes, and hosts. Default: no
    limit."""

    claims: float = Field(default=100.0, gt=0, allow_inf_nan=False)
    """Most new partitions per second that this process begins to lead."""

    shed_after: Annotated[float | None, *OR_OFF] = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Seconds that a partition falls behind, or its sends hang, before the process leaves the tube to better
    ones."""

    shed_pause: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Seconds for which it then leaves the tube to others; doubled each time, up to 32 times."""

    listen: str | None = None
    """`address:port` where the worker answers `/healthz`, `/readyz`, and `/metrics`. Needs the extra
    `metrics`."""

    tracing: bool | str = False
    """Trace batches with OpenTelemetry; or a collector's URL. Needs the extra `tracing`."""

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
    """Most workers that can share the outbox. Default: 1 for a new outbox, else unchanged."""

    value_type: Literal["text", "bytea"] | None = None
    """Type of the values; can't be changed. Default for a new outbox: text."""

    adopt: Table | None = None
    """The goharvest table whose records it delivers, as `schema.table`. Default: the outbox has its own
    table."""

    wake: bool = False
    """Writers of the adopted table wake a sleeping worker, by a trigger."""

    mode: Literal["windowed", "strict"] = "windowed"
    """`strict`: one record of a key is in flight; `windowed`: up to `window`."""

    transactions: bool = False
    """Send records in transactions; readers at `read_committed` see each of them once."""

    window: int = Field(default=1000, ge=1)
    """Records of one key in flight in windowed mode."""

    in_flight: int = Field(default=20_000, ge=1, le=100_000)
    """Most records that one partition holds, whatever the backlog."""

    in_flight_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    """Bytes of their values, about."""

    mark_limit: int = Field(default=5000, ge=1, le=100_000)
    """Most records that one mark takes."""

    compact: bool = False
    """Of a key's records that wait in the worker, send only the newest, and delete the others with it."""

    on_poison: Literal["skip", "hold"] = "skip"
    """After a record was parked: `skip` continues with its key, `hold` parks the key's later records behind
    it."""

    attempts: int = Field(default=3, ge=1)
    """Refusals by the broker of a record sent alone, after which it is parked."""

    message_timeout: float = Field(default=8.0, ge=2)
    """Seconds within which a record is acknowledged, or counts as not written."""

    linger_ms: float = Field(default=0.0, ge=0)
    """Milliseconds for which librdkafka waits for more records. More makes larger batches, and strict mode
    slower."""

    topic_cooldown: float = Field(default=0.5, gt=0)
    """Seconds for which a refused topic rests; doubled with each failure."""

    topic_cooldown_limit: float = Field(default=60.0, gt=0)
    """Most seconds that a topic rests."""

    bootstrap_servers: str | None = Field(default=None, min_length=1)
    """Another cluster for the records. Default: that of `[kafka]`, whose `options` apply only then."""

    kafka_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """More settings of librdkafka for producers, by its names, such as `compression.type`; never shown.
    Settings that delivery depends on are refused."""

    leader_topic: str | None = Field(default=None, min_length=1)
    """Name of the leader topic. Default: made of the installation and the outbox."""

    leader_group: str | None = Field(default=None, min_length=1)
    """Name of the consumer group. Default: as the leader topic."""

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

    _first_shard: int | None = PrivateAttr(default=None)
    _hosts: Mapping[str, Self] = PrivateAttr(default_factory=dict)
    """Of several hosts, the configuration of each, where the file is not all of it."""

    @property
    def first_shard(self) -> int | None:
        """Of one of several hosts: where the shards of its declared tables begin. None: there is one host."""
        return self._first_shard

    def with_hosts(self, tubes: Mapping[str, TubeConfig], hosts: Mapping[str, Self]) -> Self:
        """The configuration with these tubes, and with the configuration of each of its several hosts."""
        documents = {name: section for name, section in self.documents.items() if name in tubes}
        found = self.model_copy(update={"tubes": tubes, "documents": documents})
        found._hosts = hosts  # noqa: SLF001 # of the same class
        return found

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
        if name in self._hosts:
            return self._hosts[name]
        own = {key: value for key, value in hosts[name] if value is not None}
        installation = f"{self.worker.installation}@{name}"
        found = self.model_copy(
            update={
                "postgres": self.postgres.model_copy(update={**own, "hosts": {}}),
                "worker": self.worker.model_copy(update={"installation": installation}),
            }
        )
        found._first_shard = list(hosts).index(name) * HOST_SHARDS  # noqa: SLF001 # as above
        return found

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
            if self.postgres.hosts:
                for table in attachments(tube.tables):
                    key = key_path(("tube", name, "tables", str(table.table)))
                    self._check_shards(f"key {key}", table.end)
            timeout, key = tube.sink.request_timeout, key_path(("tube", name, "sink", "request_timeout"))
            self._check_timeout(f"key {key}: {timeout:g} s and", timeout, "request is")
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
                self._check_shards(f"key {section}", self.documents[name].shards)

    def _check_shards(self, key: str, end: int) -> None:
        """Refuse shards, up to `end`, that the next host has."""
        if end > HOST_SHARDS:
            raise ConfigError(
                f"{key}: with several hosts, each has {HOST_SHARDS} shards, and these end at {end}; give it "
                "fewer, or lower ones"
            )

    def _check_outboxes(self) -> None:
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
            times = f"{outbox.message_timeout:g} s, 1 s for librdkafka to notice, and"
            key = f"key {section}.message_timeout"
            self._check_timeout(f"{key}: {times}", outbox.request_timeout, "records are")

    def _check_timeout(self, times: str, timeout: float, last: str) -> None:
        """Refuse requests that could outlive the term; `times` begins the sentence, `last` ends it."""
        worker = self.worker
        needed = timeout + worker.receive_deadline
        if needed > worker.session_timeout:
            raise ConfigError(
                f"{times} worker.receive_deadline of {worker.receive_deadline:g} s are together more than "
                f"worker.session_timeout of {worker.session_timeout:g} s, so a new leader could begin while "
                f"the old one's last {last} still under way; lower the first two, or raise the third to at "
                f"least {needed:g} s"
            )
