"""The writer that an application holds: into the outbox, straight to Kafka, or into memory for its tests."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from pytube.errors import BrokerUnavailable, UsageError
from pytube.outbox.partitions import Widths, kafka_partition
from pytube.outbox.stash import Message, stash, stash_async

if TYPE_CHECKING:  # from the extra `kafka`
    from confluent_kafka import KafkaError, Producer
    from confluent_kafka import Message as Delivered

BACKEND_VARIABLE = "PYTUBE_OUTBOX_BACKEND"
"""The environment variable that names the backend of writers that are given none."""


class Backend(Protocol):
    """Where a writer's messages go."""

    def publish(
        self, outbox: str, connection: psycopg.Connection[Any] | None, messages: list[Message]
    ) -> None:
        """Take messages, all of them or none; raises otherwise."""

    async def publish_async(
        self, outbox: str, connection: psycopg.AsyncConnection[Any] | None, messages: list[Message]
    ) -> None:
        """As `publish`, for a connection that is awaited."""


class Outbox:
    """Publishes messages by the configured backend.

    `db`, the default, stashes them in the caller's transaction; `direct` sends them to Kafka at once, and so
    is not part of any transaction; `memory` collects them in `Outbox.messages`, for tests of the application.
    """

    def __init__(
        self,
        name: str,
        backend: str | Backend | None = None,
        *,
        schema: str = "tube",
        in_order: bool = False,
        kafka: Mapping[str, Any] | None = None,
    ) -> None:
        """Choose the backend.

        Args:
            name: of the outbox.
            backend: `db`, `direct`, `memory`, or your own; None: as the environment variable
                `PYTUBE_OUTBOX_BACKEND` says, else `db`.
            schema: where pytube's SQL is; for `db`.
            in_order: as of `stash`; for `db`.
            kafka: options of librdkafka, `bootstrap.servers` among them; for `direct`.

        Raises:
            UsageError: there is no such backend, or `direct` was given no `bootstrap.servers`.
        """
        self.name = name
        self._backend = _backend(backend, schema, in_order, kafka or {})

    def publish(
        self, messages: Iterable[Message] | Message, connection: psycopg.Connection[Any] | None = None
    ) -> None:
        """Publish messages.

        Args:
            messages: one, or several in their order.
            connection: whose transaction they are part of; `db` needs it.
        """
        self._backend.publish(self.name, connection, _several(messages))

    async def publish_async(
        self, messages: Iterable[Message] | Message, connection: psycopg.AsyncConnection[Any] | None = None
    ) -> None:
        """As `publish`, for a connection that is awaited."""
        await self._backend.publish_async(self.name, connection, _several(messages))

    @property
    def messages(self) -> list[Message]:
        """What the backend `memory` has collected; clear it between two tests."""
        if not isinstance(self._backend, MemoryBackend):
            raise UsageError(
                f"the writer of outbox {self.name!r} keeps no messages: give it the backend memory"
            )
        return self._backend.messages


class DatabaseBackend:
    """Stashes messages in the transaction of the caller."""

    def __init__(self, schema: str = "tube", *, in_order: bool = False) -> None:
        self._schema = schema
        self._in_order = in_order

    def publish(
        self, outbox: str, connection: psycopg.Connection[Any] | None, messages: list[Message]
    ) -> None:
        """Stash messages."""
        if connection is None:
            raise _no_connection(outbox)
        stash(connection, messages, outbox=outbox, in_order=self._in_order, schema=self._schema)

    async def publish_async(
        self, outbox: str, connection: psycopg.AsyncConnection[Any] | None, messages: list[Message]
    ) -> None:
        """Stash messages."""
        if connection is None:
            raise _no_connection(outbox)
        await stash_async(connection, messages, outbox=outbox, in_order=self._in_order, schema=self._schema)


class DirectBackend:
    """Sends messages to Kafka, and waits until all of them are there. No transaction covers it."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        if not options.get("bootstrap.servers"):
            raise UsageError('the backend direct needs a broker: kafka={"bootstrap.servers": "host:port"}')
        from pytube.kafka.clients import IDEMPOTENT, IN_FLIGHT

        for name in IN_FLIGHT:
            if name in options:
                raise UsageError(f"{name} can't be set, because pytube sets it; take it out")
        self._options = {**IDEMPOTENT, "partitioner": "murmur2_random", **options}
        self._producer: Producer | None = None
        self._widths = Widths()

    def publish(
        self,
        outbox: str,
        connection: psycopg.Connection[Any] | None,  # noqa: ARG002 - sent at once, whatever the transaction does
        messages: list[Message],
    ) -> None:
        """Send messages, in their order.

        Raises:
            BrokerUnavailable: some were not confirmed; they may be there or not.
        """
        failures: list[str] = []

        def on_delivery(error: KafkaError | None, _: Delivered) -> None:
            if error is not None:
                failures.append(error.str())

        producer = self._started()
        try:
            for message in messages:
                self._send(producer, message, on_delivery)
        finally:
            producer.flush()  # ends by message.timeout.ms
        if failures:
            raise BrokerUnavailable(
                f"{len(failures)} of {len(messages)} messages of outbox {outbox!r} "
                f"were not confirmed by Kafka: {failures[0]}"
            )

    async def publish_async(
        self, outbox: str, connection: psycopg.AsyncConnection[Any] | None, messages: list[Message]
    ) -> None:
        """As `publish`, in a thread."""
        import asyncio

        del connection
        await asyncio.to_thread(self.publish, outbox, None, messages)

    def _send(self, producer: Producer, message: Message, on_delivery: Any) -> None:
        from confluent_kafka import KafkaException

        chosen: dict[str, Any] = {}
        if message.partition_key is not None and message.partition_key != message.key:
            chosen["partition"] = kafka_partition(message.partition_key, self._width(producer, message.topic))
        while True:
            try:
                producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    headers=list(message.header_pairs),
                    on_delivery=on_delivery,
                    **chosen,
                )
                return
            except BufferError:
                producer.poll(0.1)  # the queue is full of unconfirmed messages
            except KafkaException as error:
                raise BrokerUnavailable(
                    f"a message for {message.topic} was not sent: {error.args[0].str()}"
                ) from error

    def _started(self) -> Producer:
        if self._producer is None:
            from confluent_kafka import Producer

            self._producer = Producer(self._options)
        return self._producer

    def _width(self, producer: Producer, topic: str) -> int:
        """How many partitions a topic has; read once, since order per key rests on it."""
        from confluent_kafka import KafkaException

        try:
            if not self._widths.knows(topic):
                self._widths.learn(topic, producer)
        except KafkaException as error:
            raise BrokerUnavailable(
                f"Kafka does not report the partitions of {topic}: {error.args[0].str()}"
            ) from error
        return self._widths.of(topic)


class MemoryBackend:
    """Keeps messages, for tests of an application; a transaction that is rolled back takes none back."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def publish(
        self,
        outbox: str,  # noqa: ARG002 - one list for each writer
        connection: psycopg.Connection[Any] | None,  # noqa: ARG002
        messages: list[Message],
    ) -> None:
        """Keep messages."""
        self.messages.extend(messages)

    async def publish_async(
        self,
        outbox: str,  # noqa: ARG002
        connection: psycopg.AsyncConnection[Any] | None,  # noqa: ARG002
        messages: list[Message],
    ) -> None:
        """Keep messages."""
        self.messages.extend(messages)


def _backend(wanted: str | Backend | None, schema: str, in_order: bool, kafka: Mapping[str, Any]) -> Backend:
    if wanted is None:
        wanted = os.environ.get(BACKEND_VARIABLE) or "db"
    match wanted:
        case "db":
            return DatabaseBackend(schema, in_order=in_order)
        case "direct":
            return DirectBackend(kafka)
        case "memory":
            return MemoryBackend()
        case str():
            raise UsageError(f"there is no backend {wanted!r}: give db, direct or memory")
        case _:
            return wanted


def _several(messages: Iterable[Message] | Message) -> list[Message]:
    return [messages] if isinstance(messages, Message) else list(messages)


def _no_connection(outbox: str) -> UsageError:
    return UsageError(
        f"the messages of outbox {outbox!r} need the connection whose transaction they are part of: "
        "publish(messages, connection)"
    )
