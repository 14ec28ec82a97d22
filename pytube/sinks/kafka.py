"""The sink `kafka`: one record per document in a compacted topic; a delete is a record without a value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, field_validator

from pytube.errors import ConfigError, SinkUnavailable, how_to_install
from pytube.model import Batch, Key, KeyType, Result
from pytube.sinks.calls import Abandoned
from pytube.sinks.keys import KeyTemplate
from pytube.sinks.registry import SinkOptions
from pytube.sinks.trial import Trial, of_the_suite
from pytube.threads import in_thread

try:
    from pytube.sinks.kafka_clients import Clients, Topic
    from pytube.sinks.kafka_records import Records, Stream
    from pytube.sinks.kafka_transactions import Lane
except ModuleNotFoundError as missing:
    if missing.name != "confluent_kafka":
        raise
    raise ConfigError(f'sink "kafka" needs the package {missing.name}: {how_to_install("kafka")}') from None

_REPORT_DELAY = 1.0
"""Seconds: librdkafka looks once a second for records whose time is over."""


class KafkaOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold for `type = "kafka"`."""

    bootstrap_servers: str = Field(min_length=1, description='addresses, as "kafka1:9092,kafka2:9092"')
    topic: str = Field(pattern=r"^[A-Za-z0-9._-]{1,249}$", description="the name of a topic")
    key: str = Field(
        default="{shard}:{id}", description="a text with {id}, and perhaps {tube} and {shard}; nothing else"
    )
    key_format: Literal["text", "json"] = Field(default="text", description='"text" or "json"')
    timeout: float = Field(default=8.0, ge=1, description="a number of seconds, 1 or more")
    transactional_id: str | None = Field(
        default=None, description="a text with {partition}, and perhaps {tube}; nothing else"
    )
    create_topic: bool = Field(default=False, description="true or false")
    partitions: int = Field(default=-1, ge=-1, description="a number of partitions; -1: the broker's default")
    replication_factor: int = Field(
        default=-1, ge=-1, description="a number of replicas; -1: the broker's default"
    )
    topic_options: dict[str, str] = Field(default_factory=dict, description="settings of the new topic")
    client_options: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="settings for librdkafka, by its names"
    )

    @field_validator("key")
    @classmethod
    def _names_documents(cls, value: str) -> str:
        KeyTemplate(value)
        return value

    @field_validator("transactional_id")
    @classmethod
    def _names_partitions(cls, value: str | None) -> str | None:
        rest = (value or "{partition}").replace("{tube}", "")
        if "{partition}" not in rest or set(rest.replace("{partition}", "")) & {"{", "}"}:
            raise ValueError("not a template")
        return value


class KafkaSink:
    """Produces to one topic, either record by record or in transactions of one partition's batches.

    It does not compare: a topic is a log. Records carry their tokens, for readers that compare. With
    transactions, readers at `read_committed` never see a record that a deposed leader wrote late.
    """

    compares = False

    def __init__(self, options: KafkaOptions) -> None:
        """Raises `ConfigError` for options that librdkafka refuses."""
        self._options = options
        self._template = KeyTemplate(options.key)
        self._clients = Clients(options.bootstrap_servers, options.timeout, options.client_options)
        self._clients.check()
        self.write_timeout = options.timeout + _REPORT_DELAY
        """See `pytube.sinks.base.Bounded`."""
        self._stream: Stream | None = None
        self._lanes: dict[tuple[str | None, int], Lane] | None = None
        self._abandoned = Abandoned()

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(KafkaOptions.parse("kafka", options))

    async def open(self) -> None:
        """Find the topic, or create it if that is asked for."""
        if self._is_open:
            return
        options = self._options
        topic = Topic(self._clients.admin(), options.topic, options.timeout, self._clients)
        found = await in_thread(
            topic.ensure,
            create=options.create_topic,
            partitions=options.partitions,
            replication_factor=options.replication_factor,
            settings=options.topic_options,
        )
        self._clients.limit_records(found.largest)
        self._begin()

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Produce the batch, and wait until all its records are reported."""
        if not self._is_open:
            raise SinkUnavailable('sink "kafka": it is not open')
        if not batch.documents:
            return []
        records = Records(batch, self._template if self._options.key_format == "text" else None)
        stream = self._stream
        sending = (self._lane(batch) if stream is None else stream).begin(batch, records)
        try:
            return await sending.answer()
        except BaseException:
            sending.call_off()
            self._abandoned.add(batch, sending)
            raise

    async def abandon(self, batch: Batch) -> None:
        """Wait until every record of the batch is reported, or its transaction is decided."""
        await self._abandoned.over(batch)

    async def close(self) -> None:
        """Take no more records; those that were taken are delivered or time out."""
        stream, self._stream = self._stream, None
        lanes, self._lanes = self._lanes, None
        if stream is not None:
            stream.stop()
        for lane in (lanes or {}).values():
            lane.stop()

    def trial(self, name: str, keys: KeyType) -> Trial:
        """A topic of its own, and transactional ids of its own."""
        del keys  # a record takes both
        topic = f"{self._options.topic[:200]}-{name}"
        own: dict[str, object] = {"topic": topic, "create_topic": True, "key": "{shard}:{id}"}
        if self._options.transactional_id is not None:
            own["transactional_id"] = f"{self._options.transactional_id}-{name}"
        options = self._options.model_copy(update=own)

        async def erase(_: str, __: Collection[Key]) -> None:
            await in_thread(Topic(self._clients.admin(), topic, options.timeout, self._clients).delete)

        notes = (of_the_suite("the template of keys"),)
        return Trial(lambda: type(self)(options), f"topic {topic}", erase, notes)

    def _begin(self) -> None:
        if self._is_open:  # another call of `open` was faster
            return
        if self._options.transactional_id is None:
            self._stream = Stream(self._clients, self._options.topic)
        else:
            self._lanes = {}

    @property
    def _is_open(self) -> bool:
        return self._stream is not None or self._lanes is not None

    def _lane(self, batch: Batch) -> Lane:
        assert self._lanes is not None
        assert self._options.transactional_id is not None
        where = batch.host, batch.partition
        lane = self._lanes.get(where)
        if lane is None:
            name = self._options.transactional_id
            name = name.replace("{partition}", str(batch.partition)).replace("{tube}", batch.tube)
            if batch.host is not None:  # or leaders of different hosts would fence each other
                name = f"{name}@{batch.host}"
            lane = self._lanes[where] = Lane(self._clients, self._options.topic, name)
        return lane
