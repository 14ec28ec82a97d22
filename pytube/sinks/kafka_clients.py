"""librdkafka's clients for the sink `kafka` and for outboxes, with settings that promises rest on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from pytube.election.neli.clients import DampedLog
from pytube.errors import ConfigError, SinkUnavailable
from pytube.logs import Logger

_log = Logger("pytube.sinks.kafka")

_OURS = {
    "bootstrap.servers",
    "default.topic.config",
    "delivery.report.only.error",
    "delivery.timeout.ms",
    "dr_cb",
    "enable.idempotence",
    "error_cb",
    "log_cb",
    "logger",
    "message.timeout.ms",
    "metadata.broker.list",
    "on_delivery",
    "transaction.timeout.ms",
    "transactional.id",
}
_ACKS = {"acks", "request.required.acks"}
_PARTITIONERS = ("murmur2", "consistent", "fnv1a")
"""Those that always give a key the same partition; the others scatter empty keys, or all."""

_OF_SINK = 'sink "kafka": option "client_options"'

_SHORTEST_SECRET = 4

_LOOK = 0.05
"""Seconds between two looks at a topic that was created a moment ago."""

_Client = TypeVar("_Client")


class Clients:
    """Makes the clients of one sink or outbox."""

    def __init__(
        self,
        bootstrap_servers: str,
        timeout: float,
        options: Mapping[str, Any],
        *,
        where: str = _OF_SINK,
        defaults: Mapping[str, Any] | None = None,
        partitioners: Sequence[str] = _PARTITIONERS,
    ) -> None:
        """Args:
        bootstrap_servers: of the cluster.
        timeout: seconds within which a record is written, or never.
        options: more settings for librdkafka. They may be secrets.
        where: the configuration's name of the options.
        defaults: settings of producers that options may change.
        partitioners: those that the options may choose.
        """
        taken = sorted((_OURS | _ACKS) & options.keys())
        if taken:
            raise ConfigError(
                f"{where}: {', '.join(taken)} can't be set there, because pytube sets it; take it out"
            )
        if options.get("partitioner", partitioners[0]) not in partitioners:
            raise ConfigError(
                f"{where}: expected a partitioner of {', '.join(partitioners)}: another one could put a key "
                "into two partitions"
            )
        self.timeout = timeout
        self.reason = ""
        """What librdkafka last complained of; empty when it never did."""
        self._bootstrap_servers = bootstrap_servers
        self._options = dict(options)
        self._where = where
        self._defaults = {"partitioner": partitioners[0], "linger.ms": 5, **(defaults or {})}
        self._largest: int | None = None

    def check(self) -> None:
        """Try the options; `ConfigError` when librdkafka refuses one."""
        self.producer()

    def limit_records(self, largest: int | None) -> None:
        """The topic takes record batches of that many bytes at most; None: it is not known.

        The client then refuses larger records at once, so that each is rejected by itself, and makes no
        larger batches of them.
        """
        self._largest = largest

    def producer(
        self, transactional_id: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> Producer:
        """One with settings of ours, and perhaps more; `ConfigError` when librdkafka refuses an option."""
        milliseconds = round(self.timeout * 1000)
        settings = {
            **self._defaults,
            **({} if self._largest is None else {"message.max.bytes": max(1000, self._largest)}),
            **self._common(),
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": milliseconds,
            **(settings or {}),
        }
        if transactional_id is not None:
            # That a late commit is refused is the successor's doing. This ends the transaction of one that
            # died, for which readers of committed records wait.
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 3 * milliseconds}
        return self._make(Producer, settings)

    def admin(self) -> AdminClient:
        """For topics and groups."""
        return self._make(AdminClient, self._of_any_client())

    def consumer(self, group: str) -> Consumer:
        """One that names a group, and reads nothing."""
        settings = {"group.id": group, "enable.auto.commit": False}
        return self._make(Consumer, self._of_any_client() | settings)

    def _of_any_client(self) -> dict[str, Any]:
        of_producers = {"message.max.bytes", "partitioner"}
        return {name: value for name, value in self._common().items() if name not in of_producers}

    def hide(self, text: str) -> str:
        """`text` without the values of options, which librdkafka likes to quote."""
        for value in map(str, self._options.values()):
            if len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "…")
        return text

    def say(self, error: KafkaError) -> str:
        """What an error says, and why the cluster can't be reached if it is that."""
        text = self.hide(error.str())
        return f"{text} (last error: {self.reason})" if self.reason and error.code() < 0 else text

    def _common(self) -> dict[str, Any]:
        return {
            "client.id": "pytube",
            "reconnect.backoff.max.ms": 1000,
            "socket.keepalive.enable": True,
            **self._options,
            "bootstrap.servers": self._bootstrap_servers,
        }

    def _make(self, kind: Callable[..., _Client], settings: dict[str, Any]) -> _Client:
        try:
            return kind({**settings, "error_cb": self._on_error}, logger=DampedLog(_log, self.hide))
        except (KafkaException, TypeError, ValueError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            raise ConfigError(f"{self._where}: {self.hide(text)}") from None

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.reason:  # noqa: SLF001 # its own name
            self.reason = self.hide(error.str())


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of the topic."""

    largest: int | None
    """Bytes of the largest record batch that it takes; None: we may not ask."""


class Topic:
    """The topic, seen through an admin client. All calls block."""

    def __init__(self, admin: AdminClient, name: str, timeout: float, clients: Clients) -> None:
        self._admin = admin
        self._name = name
        self._timeout = timeout
        self._clients = clients

    def ensure(
        self, *, create: bool, partitions: int, replication_factor: int, settings: Mapping[str, str]
    ) -> Found:
        """Find the topic; create it when it is missing and `create` says so.

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
                settings = {"cleanup.policy": "compact", **settings}
                self._create(partitions, replication_factor, settings)
                self._wait_for(settings)
            return self._look()
        except KafkaException as error:
            self._admin.poll(0)  # learn why, e.g. that the password is wrong
            raise SinkUnavailable(f'sink "kafka": {self._clients.say(error.args[0])}') from None

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
        asked = self._admin.describe_topics(TopicCollection([self._name]), request_timeout=self._timeout)
        try:
            _result(asked[self._name], self._timeout)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return False
            raise
        return True

    def _create(self, partitions: int, replication_factor: int, settings: Mapping[str, str]) -> None:
        topic = NewTopic(
            self._name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(settings),
        )
        asked = self._admin.create_topics([topic], request_timeout=self._timeout)
        try:
            _result(asked[self._name], self._timeout)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # by another worker
                raise

    def _wait_for(self, settings: Mapping[str, str]) -> None:
        """Wait until the broker knows what the topic was created with; at first it tells its defaults.

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

    def _look(self) -> Found:
        try:
            settings = self._describe()
        except KafkaException as error:
            reason = self._clients.say(error.args[0])
            _log.warning("kafka_topic_not_described", topic=self._name, reason=reason)
            return Found(None)
        if "compact" not in settings["cleanup.policy"].value:
            policy = settings["cleanup.policy"].value
            _log.warning("kafka_topic_not_compacted", topic=self._name, policy=policy)
        return Found(int(settings["max.message.bytes"].value))

    def _describe(self) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, self._name)
        asked = self._admin.describe_configs([resource], request_timeout=self._timeout)
        found: dict[str, Any] = _result(asked[resource], self._timeout)
        return found


def _result(future: Future[Any], timeout: float) -> Any:
    """The answer; librdkafka itself gives up at the timeout of the request."""
    return future.result(timeout + 5)
