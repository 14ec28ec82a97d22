"""The leader topic: made and widened where that is permitted."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from pytube.errors import BrokerUnavailable

_CONFIG = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}
"""Heartbeats are of no use a few seconds later."""

_DONE_BY_ANOTHER = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS}
_PAUSE = 0.05


class LeaderTopic:
    """One leader topic, seen through an admin client."""

    def __init__(self, admin: AdminClient, name: str, log: structlog.stdlib.BoundLogger) -> None:
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
            self._log.info("leader topic made or widened", topic=self._name, partitions=partitions)
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
            "the leader topic is too narrow: the partitions beyond it have no leader",
            topic=self._name,
            has=width,
            needs=partitions,
            reason=problem or "the change was not seen in time",
            remedy=f"kafka-topics.sh {verb} --topic {self._name} --partitions {partitions}, "
            "or let our principal create and alter it",
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
