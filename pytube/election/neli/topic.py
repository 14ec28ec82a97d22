"""The leader topic, the settings of NELI, and their form for librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from pytube.errors import BrokerUnavailable, ConfigError
from pytube.kafka.clients import Clients
from pytube.logs import Logger

_HEARTBEAT_MS = 300
_METADATA_MS = 5_000
_REJOIN_MARGIN = 5.0
_OURS = frozenset(
    {
        "allow.auto.create.topics",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "error_cb",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "logger",
        "log_cb",
        "max.poll.interval.ms",
        "metadata.broker.list",
        "on_commit",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "transactional.id",
    }
)
"""Options whose meaning the election rests on."""


@dataclass(frozen=True, slots=True)
class NeliSettings:
    """One member of one group. All times are seconds."""

    bootstrap_servers: str
    topic: str
    group: str
    client_id: str
    receive_deadline: float = 5.0
    """The longest wait for an answer of a broker."""

    session_timeout: float = 15.0
    """After so long without a sign of life the group takes this process's partitions away."""

    drain_limit: float = 30.0
    """How long a partition that the group wants back may still be drained."""

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """More settings for librdkafka. They may be secrets."""

    def __post_init__(self) -> None:
        if self.receive_deadline > self.session_timeout:
            raise ConfigError(
                f"receive_deadline ({self.receive_deadline:g} s) must not be above session_timeout "
                f"({self.session_timeout:g} s)"
            )

    def clients(self, log: Logger) -> Clients:
        """What makes the clients; `ConfigError` for options that are not to be set."""
        return Clients(
            self.bootstrap_servers,
            self.options,
            where="[kafka] options",
            log=log,
            ours=_OURS,
            common={
                "client.id": self.client_id,
                "topic.metadata.refresh.interval.ms": _METADATA_MS,
                "metadata.max.age.ms": 3 * _METADATA_MS,
            },
        )

    def consumer(self, clients: Clients, on_commit: Callable[..., None]) -> Consumer:
        """The member of the group; `ConfigError` when librdkafka refuses an option.

        The classic protocol, since the newer one refuses a session timeout that the client chooses. No static
        membership: a static member does not leave the group when it stops, so that its partitions
        would wait for the session timeout.
        """
        # A member that drains must not be thrown out by a rebalance that waits for it.
        rejoin = max(self.session_timeout, self.drain_limit) + _REJOIN_MARGIN
        # A commit waits on its connection behind a request to join, which the broker may keep
        # for that long. If it timed out, the connection would be cut, and the join with it.
        patience = {"socket.timeout.ms": max(60_000, _ms(rejoin + _REJOIN_MARGIN))}
        settings = {
            "group.id": self.group,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
            "allow.auto.create.topics": False,
            "session.timeout.ms": _ms(self.session_timeout),
            "heartbeat.interval.ms": _HEARTBEAT_MS,
            "max.poll.interval.ms": _ms(rejoin),
            "on_commit": on_commit,
        }
        return clients.consumer(settings, patience)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


_CONFIG = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}
"""Nothing is written to it: its partitions are what the group shares out."""

_DONE_BY_ANOTHER = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS}
_PAUSE = 0.05


class LeaderTopic:
    """One leader topic, seen through an admin client."""

    def __init__(self, admin: AdminClient, name: str, log: Logger) -> None:
        self._admin = admin
        self._name = name
        self._log = log

    def ensure(self, partitions: int, timeout: float) -> int:
        """Make or widen the topic, so that it has at least `partitions`. Blocks.

        Args:
            partitions: of the tube.
            timeout: seconds for each of: finding the broker, changing the topic, seeing the change.

        Returns:
            How many partitions it has. Fewer than wanted when we may not change it: that has been
            logged with what to do.

        Raises:
            BrokerUnavailable: no broker answered.
        """
        metadata = self._metadata(timeout)
        width = _width(metadata, self._name)
        if width >= partitions:
            return width
        if metadata.controller_id not in metadata.brokers:
            # A cluster without a controller (librdkafka's own, for tests) makes a topic of its
            # own width when it is asked for one, and can't do more.
            problem = "this broker can't make or widen topics"
            width = self._wait_for(1, timeout, self._name)
        else:
            problem = self._change(width, partitions, timeout)
            width = self._wait_for(1 if problem else partitions, timeout)
        if width < partitions:
            self._say_what_to_do(width, partitions, problem)
        return width

    def _metadata(self, timeout: float, topic: str | None = None) -> Any:
        try:
            if topic is None:
                return self._admin.list_topics(timeout=timeout)
            return self._admin.list_topics(topic, timeout=timeout)
        except KafkaException as error:
            self._admin.poll(0)  # what librdkafka has to say of it goes to the watch
            raise BrokerUnavailable(f"Kafka does not answer: {error.args[0].str()}") from error

    def _change(self, width: int, partitions: int, timeout: float) -> str:
        """Create or widen; the reason when it failed, empty when it did not."""
        if width == 0:
            new = NewTopic(self._name, num_partitions=partitions, replication_factor=-1, config=_CONFIG)
            problem = _try(lambda: self._admin.create_topics([new], request_timeout=timeout))
        else:
            wider = NewPartitions(self._name, partitions)
            problem = _try(lambda: self._admin.create_partitions([wider], request_timeout=timeout))
        if not problem:
            self._log.info("leader_topic_changed", topic=self._name, partitions=partitions)
        return problem

    def _wait_for(self, partitions: int, timeout: float, topic: str | None = None) -> int:
        """Until the topic is seen with so many partitions, or the time is over; its width."""
        end = time.monotonic() + timeout
        while True:
            width = _width(self._metadata(timeout, topic), self._name)
            if width >= partitions or time.monotonic() > end:
                return width
            time.sleep(_PAUSE)

    def _say_what_to_do(self, width: int, partitions: int, problem: str) -> None:
        verb = "--alter" if width else "--create"
        self._log.error(
            "leader_topic_narrow",
            topic=self._name,
            has=width,
            needs=partitions,
            reason=problem or "the change was not seen in time",
            remedy=f"kafka-topics.sh {verb} --topic {self._name} --partitions {partitions}, "
            "or allow pytube's principal to create and alter it",
        )


def _width(metadata: Any, name: str) -> int:
    topic = metadata.topics.get(name)
    return len(topic.partitions) if topic is not None else 0


def _try(call: Callable[[], dict[str, Future[Any]]]) -> str:
    """Wait for an administrative call; why it failed, or an empty string."""
    try:
        for future in call().values():
            future.result()
    except KafkaException as error:
        cause = error.args[0]
        return "" if cause.code() in _DONE_BY_ANOTHER else cause.str()
    return ""
