"""The sink `kafka`: one record per document in a compacted topic; a delete is a record without a value."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic
from pydantic import Field, field_validator

from pytube.errors import SinkUnavailable
from pytube.kafka.clients import Producers
from pytube.logs import Logger
from pytube.model import Batch, Key, KeyType, Result
from pytube.sinks.base import Abandoned, Trial, of_the_suite
from pytube.sinks.kafka_records import Lane, Records, Stream
from pytube.sinks.registry import KeyTemplate, SinkOptions, TemplateText
from pytube.threads import in_thread

_REPORT_DELAY = 1.0
"""Seconds: librdkafka looks once a second for records whose time is over."""

_LOOK = 0.05
"""Seconds between two looks at a topic that was created a moment ago."""

_log = Logger("pytube.sinks.kafka")


class KafkaOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold for `type = "kafka"`."""

    bootstrap_servers: str = Field(min_length=1, description='addresses, as "kafka1:9092,kafka2:9092"')
    topic: str = Field(pattern=r"^[A-Za-z0-9._-]{1,249}$", description="the name of a topic")
    key: TemplateText = Field(
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
        self.template = KeyTemplate(options.key)
        self._clients = Producers(options.bootstrap_servers, options.timeout, options.client_options)
        self.write_timeout = options.timeout + _REPORT_DELAY
        """See `pytube.sinks.base.Bounded`."""
        self._lanes: dict[tuple[str | None, int] | None, Stream | Lane] | None = None
        """By host and partition; without transactions, the one stream. None: the sink is not open."""
        self._abandoned = Abandoned()

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(KafkaOptions.parse("kafka", options))

    async def open(self) -> None:
        """Find the topic, or create it if that is asked for."""
        await self._find(create=self._options.create_topic)

    async def open_existing(self) -> str | None:
        """Find the topic; why not, if it is missing and `open` would create it."""
        topic, options = self._topic(), self._options
        if options.create_topic and self._lanes is None and not await in_thread(topic.is_there):
            return f'sink "kafka": there is no topic {options.topic}'
        await self._find(create=False)
        return None

    async def _find(self, *, create: bool) -> None:
        if self._lanes is not None:
            return
        options = self._options
        self._clients.limit_records(await in_thread(self._topic().ensure, options, create=create))
        is_one = options.transactional_id is None
        self._lanes = {None: Stream(self._clients, options.topic)} if is_one else {}

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Produce the batch, and wait until all its records are reported."""
        if self._lanes is None:
            raise SinkUnavailable('sink "kafka": it is not open')
        if not batch.documents:
            return []
        records = Records(batch, self.template if self._options.key_format == "text" else None)
        sending = self._lane(batch).begin(batch, records)
        try:
            return await sending.answer()
        except BaseException:
            sending.call_off()
            self._abandoned.add(batch, sending.over.future)
            raise

    async def abandon(self, batch: Batch) -> None:
        """Wait until every record of the batch is reported, or its transaction is decided."""
        await self._abandoned.over(batch)

    async def close(self) -> None:
        """Take no more records; the accepted ones are delivered or time out."""
        lanes, self._lanes = self._lanes, None
        for lane in (lanes or {}).values():
            lane.stop()

    def trial(self, name: str, keys: KeyType) -> Trial:
        """A separate topic, with separate transactional ids."""
        del keys  # a record takes both
        topic = f"{self._options.topic[:200]}-{name}"
        own: dict[str, object] = {"topic": topic, "create_topic": True, "key": "{shard}:{id}"}
        if self._options.transactional_id is not None:
            own["transactional_id"] = f"{self._options.transactional_id}-{name}"
        options = self._options.model_copy(update=own)

        async def erase(_: str, __: Collection[Key]) -> None:
            await in_thread(Topic(self._clients, topic).delete)

        notes = (of_the_suite("the template of keys"),)
        return Trial(lambda: type(self)(options), f"topic {topic}", erase, notes)

    def _topic(self) -> Topic:
        return Topic(self._clients, self._options.topic)

    def _lane(self, batch: Batch) -> Stream | Lane:
        assert self._lanes is not None
        name = self._options.transactional_id
        where = None if name is None else (batch.host, batch.partition)
        lane = self._lanes.get(where)
        if lane is None:
            assert name is not None
            name = name.replace("{partition}", str(batch.partition)).replace("{tube}", batch.tube)
            if batch.host is not None:  # or leaders of different hosts would fence each other
                name = f"{name}@{batch.host}"
            lane = self._lanes[where] = Lane(self._clients, self._options.topic, name)
        return lane


class Topic:
    """The topic, seen through an admin client. All calls block."""

    def __init__(self, clients: Producers, name: str) -> None:
        self._admin = clients.admin()
        self._name = name
        self._timeout = clients.timeout
        self._clients = clients

    def ensure(self, options: KafkaOptions, *, create: bool) -> int | None:
        """Find the topic, or create it; how large its largest record may be, if that is known.

        Raises:
            SinkUnavailable: it is missing, or the cluster does not answer.
        """
        try:
            if not self._exists():
                if not create:
                    raise SinkUnavailable(
                        f'sink "kafka": there is no topic {self._name}; create it with '
                        "cleanup.policy=compact, or set create_topic = true"
                    )
                settings = {"cleanup.policy": "compact", **options.topic_options}
                self._create(options, settings)
                self._wait_for(settings)
            return self._look()
        except KafkaException as error:
            raise self._unavailable(error) from None

    def is_there(self) -> bool:
        """Whether the topic exists; raises `SinkUnavailable` if the cluster does not answer."""
        try:
            return self._exists()
        except KafkaException as error:
            raise self._unavailable(error) from None

    def _unavailable(self, error: KafkaException) -> SinkUnavailable:
        self._admin.poll(0)  # learn why, e.g. that the password is wrong
        return SinkUnavailable(f'sink "kafka": {self._clients.say(error.args[0])}')

    def delete(self) -> None:
        """Delete it, if there is one; raises `SinkUnavailable`."""
        try:
            _result(self._admin.delete_topics([self._name])[self._name], self._timeout)
        except KafkaException as error:
            found = error.args[0]
            if found.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise SinkUnavailable(
                    f'sink "kafka": topic "{self._name}" can\'t be deleted: {self._clients.say(found)}'
                ) from error

    def _exists(self) -> bool:
        # Not by `describe_topics`: librdkafka 2.16 ends the process when a broker answers that has just
        # started and knows no broker yet (an assertion in rd_kafka_admin_response_parse).
        error = self._admin.list_topics(self._name, timeout=self._timeout).topics[self._name].error
        if error is None or error.code() == KafkaError.LEADER_NOT_AVAILABLE:  # it was made a moment ago
            return True
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return False
        raise KafkaException(error)

    def _create(self, options: KafkaOptions, settings: Mapping[str, str]) -> None:
        topic = NewTopic(
            self._name,
            num_partitions=options.partitions,
            replication_factor=options.replication_factor,
            config=dict(settings),
        )
        asked = self._admin.create_topics([topic], request_timeout=self._timeout)
        try:
            _result(asked[self._name], self._timeout)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # by another worker
                raise

    def _wait_for(self, settings: Mapping[str, str]) -> None:
        """Wait until the broker knows the topic's settings; at first it returns its defaults.

        Another worker may have created the topic with other settings, so the wait ends in any case.
        """
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            try:
                found = self._describe()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:  # we may not ask
                    return
                found = {}
            if all(name in found and found[name].value == value for name, value in settings.items()):
                return
            time.sleep(_LOOK)

    def _look(self) -> int | None:
        try:
            settings = self._describe()
        except KafkaException as error:
            reason = self._clients.say(error.args[0])
            _log.warning("kafka_topic_not_described", topic=self._name, reason=reason)
            return None
        if "compact" not in settings["cleanup.policy"].value:
            policy = settings["cleanup.policy"].value
            _log.warning("kafka_topic_not_compacted", topic=self._name, policy=policy)
        return int(settings["max.message.bytes"].value)

    def _describe(self) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, self._name)
        asked = self._admin.describe_configs([resource], request_timeout=self._timeout)
        found: dict[str, Any] = _result(asked[resource], self._timeout)
        return found


def _result(future: Future[Any], timeout: float) -> Any:
    """The answer; librdkafka itself gives up at the timeout of the request."""
    return future.result(timeout + 5)
