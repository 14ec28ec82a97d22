"""The servers of a demonstration: Postgres, and Kafka unless the election does without."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from pytube.embedded.kafka_mock import MockKafka
from pytube.embedded.kafka_real import VERSION, RealKafka
from pytube.embedded.postgres import Postgres

Broker = Literal["embedded", "real"]
DATABASE = "postgres"

_SETTINGS = {"max_prepared_transactions": "0"}
"""As a server has it by default: where transactions may be prepared, writers wake nobody."""


class Servers:
    """A context in which they run; at its end they are ended, whatever happened."""

    def __init__(self, directory: Path, broker: Broker | None) -> None:
        """Nothing runs before the context is entered.

        Args:
            directory: where each has a folder, with its log.
            broker: which Kafka; None for none.
        """
        self._directory = directory
        self._broker = broker
        self._stack = ExitStack()
        self._postgres: Postgres | None = None
        self.bootstrap: str | None = None
        """Kafka's bootstrap servers; None without Kafka."""

    @property
    def postgres(self) -> Postgres:
        """The running server."""
        assert self._postgres is not None, "the context was not entered"
        return self._postgres

    @property
    def dsn(self) -> str:
        """The URL of the database."""
        return self.postgres.dsn(DATABASE)

    @property
    def names(self) -> str:
        """What runs where, for people."""
        postgres = f"Postgres 18 on 127.0.0.1:{self.postgres.port}"
        if self._broker is None:
            return f"{postgres}, no Kafka"
        kind = f"Kafka {VERSION}" if self._broker == "real" else "an embedded mock of Kafka"
        return f"{postgres}, {kind} on {self.bootstrap}"

    def __enter__(self) -> Self:
        try:
            self._postgres = self._stack.enter_context(
                Postgres(self._directory / "postgres", settings=_SETTINGS)
            )
            if self._broker == "real":
                self.bootstrap = self._stack.enter_context(RealKafka(self._directory / "kafka")).bootstrap
            elif self._broker == "embedded":
                self.bootstrap = self._stack.enter_context(MockKafka()).bootstrap
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
