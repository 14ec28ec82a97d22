"""librdkafka's clients: how they are made, what their errors mean, and the leader topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from pytube import clock
from pytube.election.neli.settings import NeliSettings
from pytube.errors import BrokerUnavailable, ConfigError
from pytube.logs import Logger

# ruff: noqa: SLF001 -- librdkafka's own codes begin with an underscore


ALL_DOWN = KafkaError._ALL_BROKERS_DOWN
"""Says only that there is nobody; another error before it says why."""

UNUSABLE = frozenset({ALL_DOWN, KafkaError._AUTHENTICATION, KafkaError._RESOLVE})
"""Told by a client of itself: the cluster can't be used."""

REBALANCING = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""While the group rebalances its generation is ahead of the one that we know.

How long depends on the slowest member. One that was removed is told UNKNOWN_MEMBER_ID instead.
"""

PASSING = REBALANCING | {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
"""Answers to a commit that may be another one a moment later."""

NO_ANSWER = frozenset(
    {
        ALL_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Results of a commit that say nothing of our membership."""


_QUIET = 60.0
"""Seconds for which a kind of librdkafka's messages is not repeated."""


class BrokerWatch:
    """Remembers whether the broker is away, why, and since when. Any thread may use it."""

    def __init__(self, log: Logger, hide: Callable[[str], str]) -> None:
        """Args: hide: takes secrets out of a text of librdkafka."""
        self._log = log
        self._hide = hide
        self._lock = threading.Lock()
        self._down_at: float | None = None
        self._reason = ""

    @property
    def is_down(self) -> bool:
        """Whether the broker was last seen away."""
        return self._down_at is not None

    @property
    def reason(self) -> str:
        """What librdkafka last complained of; empty when it never did."""
        return self._reason

    def on_error(self, error: KafkaError) -> None:
        """Given to librdkafka as `error_cb`."""
        if error.code() != ALL_DOWN or not self._reason:
            self._reason = self._hide(error.str())
        if error.code() in UNUSABLE:
            self.down(self._reason)

    def down(self, reason: str) -> None:
        """The broker does not answer."""
        with self._lock:
            if self._down_at is not None:
                return
            self._down_at = clock.now()
        self._log.warning("kafka_down", reason=reason)

    def up(self, sent_at: float) -> None:
        """The broker answered what was sent at `sent_at` (monotonic)."""
        with self._lock:
            if self._down_at is None or sent_at <= self._down_at:
                return
            seconds = clock.now() - self._down_at
            self._down_at = None
            self._reason = ""
        self._log.info("kafka_up", seconds=round(seconds, 1))


class DampedLog:
    """What librdkafka logs, at debug level, and of each kind at most one line a minute.

    What an operator needs to know of it comes through `BrokerWatch`.
    """

    def __init__(self, log: Logger, hide: Callable[[str], str]) -> None:
        """Args: hide: takes secrets out of a text of librdkafka."""
        self._log = log
        self._hide = hide
        self._next: dict[str, float] = {}
        self._passed_over: dict[str, int] = {}

    def log(self, level: int, _template: str, kind: str, _name: str, text: str, **_: Any) -> None:
        """Called by confluent_kafka as a `logging.Logger` would be."""
        now = clock.now()
        if now < self._next.get(kind, 0.0):
            self._passed_over[kind] = self._passed_over.get(kind, 0) + 1
            return
        self._next[kind] = now + _QUIET
        self._log.debug(
            "librdkafka_said",
            kind=kind,
            severity=level,
            text=self._hide(text),
            passed_over=self._passed_over.pop(kind, 0),
        )


Client = TypeVar("Client")


class Clients:
    """The clients of one member."""

    def __init__(self, settings: NeliSettings, watch: BrokerWatch, log: DampedLog) -> None:
        self._settings = settings
        self._watch = watch
        self._log = log

    def check(self) -> None:
        """Try all options; `ConfigError` when librdkafka refuses one."""
        self.producer()
        self.consumer(lambda *_: None).close()

    def consumer(self, on_commit: Callable[..., None]) -> Consumer:
        """The member of the group. `ConfigError` when librdkafka refuses an option."""
        return self._make(Consumer, {**self._settings.consumer(), "on_commit": on_commit})

    def producer(self) -> Producer:
        """The sender of heartbeats. `ConfigError` when librdkafka refuses an option."""
        return self._make(Producer, self._settings.producer())

    def admin(self) -> AdminClient:
        """For topics. `ConfigError` when librdkafka refuses an option."""
        return self._make(AdminClient, self._settings.common())

    def _make(self, kind: Callable[..., Client], options: dict[str, Any]) -> Client:
        options["error_cb"] = self._watch.on_error
        try:
            return kind(options, logger=self._log)
        except (KafkaException, TypeError, ValueError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            raise ConfigError(f"[kafka] options: {self._settings.hide(text)}") from None


_CONFIG = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}
"""Heartbeats are of no use a few seconds later."""

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
