"""librdkafka's clients, with settings that promises rest on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pytube import clock
from pytube.errors import ConfigError
from pytube.kafka.errors import ALL_DOWN, text_of
from pytube.logs import Logger

_SHORTEST_SECRET = 4

_QUIET = 60.0
"""Seconds for which a kind of librdkafka's messages is not repeated."""

Client = TypeVar("Client")


class DampedLog:
    """What librdkafka logs, at debug level, and of each kind at most one line a minute.

    What an operator needs to know of it comes through `pytube.worker.kafka`.
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


class Clients:
    """Makes the clients of one user of one cluster. Any thread may use it."""

    def __init__(
        self,
        bootstrap_servers: str,
        options: Mapping[str, Any],
        *,
        where: str,
        log: Logger,
        ours: Collection[str] = (),
        common: Mapping[str, Any] | None = None,
    ) -> None:
        """`options` may be secrets; `where` is the configuration's name for them. They must not contain the
        keys of `ours`, and may change the keys of `common`.
        """
        taken = sorted(set(ours) & options.keys())
        if taken:
            raise ConfigError(
                f"{where}: {', '.join(taken)} can't be set there, because pytube sets it; take it out"
            )
        self.bootstrap_servers = bootstrap_servers
        self.reason = ""
        """What librdkafka last complained of; empty when it never did."""
        self._options = dict(options)
        self._where = where
        self._common = {
            "client.id": "pytube",
            "reconnect.backoff.max.ms": 1000,
            "socket.keepalive.enable": True,
            **(common or {}),
            **self._options,
            "bootstrap.servers": bootstrap_servers,
        }
        self._log = DampedLog(log, self.hide)

    def admin(self, *, makes_topics: bool = False) -> AdminClient:
        """For topics and groups; `ConfigError` when librdkafka refuses an option.

        `makes_topics`: a broker that creates topics automatically may create the requested one.
        """
        return self.make(AdminClient, self._of_any_client() | {"allow.auto.create.topics": makes_topics})

    def consumer(self, settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Consumer:
        """A member of a group; options may change the defaults alone."""
        return self.make(Consumer, {**(defaults or {}), **self._of_any_client(), **settings})

    def make(self, kind: Callable[..., Client], settings: Mapping[str, Any]) -> Client:
        """A client; `ConfigError` when librdkafka refuses an option."""
        try:
            return kind({**settings, "error_cb": self.on_error}, logger=self._log)
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"{self._where}: {self.hide(text_of(error))}") from None

    def _of_any_client(self) -> dict[str, Any]:
        of_producers = {"message.max.bytes", "partitioner"}
        return {name: value for name, value in self._common.items() if name not in of_producers}

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

    def on_error(self, error: KafkaError) -> None:
        """Given to librdkafka as `error_cb`."""
        if error.code() != ALL_DOWN or not self.reason:
            self.reason = self.hide(error.str())


IN_FLIGHT = ("max.in.flight", "max.in.flight.requests.per.connection")
"""The names of one option, which only pytube sets: see `IDEMPOTENT`."""

_OF_PRODUCERS = frozenset(
    {
        "acks",
        "bootstrap.servers",
        "default.topic.config",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "dr_cb",
        "enable.idempotence",
        "error_cb",
        "log_cb",
        "logger",
        *IN_FLIGHT,
        "message.timeout.ms",
        "metadata.broker.list",
        "on_delivery",
        "request.required.acks",
        "transaction.timeout.ms",
        "transactional.id",
    }
)

IDEMPOTENT: Mapping[str, object] = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
"""Settings with which an acknowledged record is in the topic.

A broker that knows nothing of a producer takes its first batch with any sequence number (KAFKA-15591). If a
second batch is in flight while the first is refused, as by a partition created a moment ago, the second is
written, and librdkafka takes its acknowledgment for that of both. Brokers work on one request of a connection
at a time, so one in flight costs little.
"""

PARTITIONERS = ("murmur2", "consistent", "fnv1a")
"""Partitioners that always give a key the same partition; others scatter empty keys, or all."""


_LARGEST = 1_000_000
"""Bytes: librdkafka's own `message.max.bytes`."""


class Producers(Clients):
    """Makes the producers of one sink or outbox, and what else it needs."""

    def __init__(
        self,
        bootstrap_servers: str,
        timeout: float,
        options: Mapping[str, Any],
        *,
        where: str = 'sink "kafka": option "client_options"',
        defaults: Mapping[str, Any] | None = None,
        partitioners: Sequence[str] = PARTITIONERS,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`timeout`: seconds within which a record is written, or never. Options may change the `defaults`
        of producers, may choose one of the `partitioners`, and may not change the `settings`.
        """
        super().__init__(
            bootstrap_servers, options, where=where, log=Logger("pytube.kafka"), ours=_OF_PRODUCERS
        )
        if options.get("partitioner", partitioners[0]) not in partitioners:
            raise ConfigError(
                f"{where}: expected a partitioner of {', '.join(partitioners)}: another one could put a key "
                "into two partitions"
            )
        self.timeout = timeout
        self._defaults = {"partitioner": partitioners[0], "linger.ms": 5, **(defaults or {})}
        self.settings = {
            **IDEMPOTENT,
            "acks": "all",
            "message.timeout.ms": self._milliseconds,
            **(settings or {}),
        }
        """Of each producer, whatever the options say."""
        self._largest: dict[str, int] = {}
        self.producer()  # refuses wrong options now

    def limit_records(self, largest: int | None) -> None:
        """The topic takes record batches of that many bytes at most; None: it is not known.

        The client then refuses larger records at once, so that each is rejected alone, and makes no
        larger batches of them.
        """
        self._largest = {} if largest is None else {"message.max.bytes": max(1000, largest)}

    @property
    def largest(self) -> int:
        """The bytes that librdkafka takes of a record."""
        return int((self._largest | self._common).get("message.max.bytes", _LARGEST))

    def producer(
        self, transactional_id: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> Producer:
        """A producer, with further settings if given; `ConfigError` when librdkafka refuses an option."""
        own = dict(settings or {})
        if transactional_id is not None:
            # The successor has a late commit refused. This ends the transaction of a producer that died, for
            # which readers of committed records wait.
            own |= {"transactional.id": transactional_id, "transaction.timeout.ms": 3 * self._milliseconds}
        return self.make(
            Producer, {**self._defaults, **self._largest, **self._common, **self.settings, **own}
        )

    def reader(self, group: str) -> Consumer:
        """A consumer that names a group, and reads nothing."""
        return self.consumer({"group.id": group, "enable.auto.commit": False})

    @property
    def _milliseconds(self) -> int:
        return round(self.timeout * 1000)


def purge(producer: Producer, *, in_flight: bool = True) -> None:
    """Drop a producer's queued records, and, if `in_flight`, those in flight; reports come at later polls.

    It does not wait for librdkafka's threads: a thread that looks up the name of a broker may take many
    seconds, and would block the event loop as long. A thread drops before it sends again, so waiting would
    gain nothing. confluent-kafka 2.16 hands the inverse of `blocking` over (`RD_KAFKA_PURGE_F_NON_BLOCKING`
    is set where it is true), so this call is the one without waiting.
    """
    producer.purge(in_flight=in_flight, blocking=True)


def destroy(clients: Sequence[object]) -> None:
    """End clients that the caller is about to let go, in a thread.

    A term that failed is part of a cycle of errors and frames, which the garbage collector may find in an
    hour, and librdkafka has three threads for each client. A thread, as it waits for these, and one of them
    may look up the name of a broker for long.
    """
    last = list(clients)
    threading.Thread(target=last.clear, name="kafka-destroy", daemon=True).start()
