"""Makes librdkafka's clients: one log, one watch, and no value of an option in an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pytube.election.neli.settings import NeliSettings
from pytube.election.neli.watch import BrokerWatch, DampedLog
from pytube.errors import ConfigError

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
