"""The processes of a demonstration: Postgres, Kafka unless the election needs none, and three workers.

They end with the demonstration, whatever happens to it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytube.demo.settings import TUBE, WORKERS, Broker, Folder
from pytube.embedded.kafka_mock import MockKafka
from pytube.embedded.kafka_real import VERSION, RealKafka
from pytube.embedded.postgres import Postgres
from pytube.embedded.process import ServerProcess, last_lines
from pytube.errors import PytubeError

_POSTGRES_SETTINGS = {"max_prepared_transactions": "0"}
"""As a server has it by default: where transactions may be prepared, writers wake nobody."""

_STOP_TIMEOUT = 40.0
"""Seconds; a worker's own drain limit is 30."""

_LOG_LINES = 12


class DemoFailed(PytubeError):
    """Something did not happen, or a process ended that should not; the message says what."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers that run."""

    postgres: Postgres
    bootstrap: str | None
    """Kafka's bootstrap servers; None without Kafka."""
    names: str
    """What runs where, for people."""

    @property
    def dsn(self) -> str:
        """The URL of the database."""
        return self.postgres.dsn()


@contextmanager
def running_servers(directory: Path, broker: Broker | None) -> Iterator[Servers]:
    """Run Postgres and the broker, if any, each with its data and its log below `directory`."""
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres(directory / "postgres", settings=_POSTGRES_SETTINGS))
        bootstrap, kafka = None, "no Kafka"
        if broker == "real":
            bootstrap = stack.enter_context(RealKafka(directory / "kafka")).bootstrap
            kafka = f"Kafka {VERSION} on {bootstrap}"
        elif broker == "embedded":
            bootstrap = stack.enter_context(MockKafka()).bootstrap
            # It waits for nearly a whole session time-out in each step of a rebalance.
            kafka = f"an embedded mock of Kafka on {bootstrap} (it hands over slowly; a real broker does not)"
        yield Servers(postgres, bootstrap, f"Postgres 18 on 127.0.0.1:{postgres.port}, {kafka}")


class Process:
    """A program that runs until the demonstration ends it; its log goes on where it ended."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        """Start it. Messages call it `name`."""
        self._name = name
        self._log = log
        self._process = ServerProcess(command, log=log, guard_signal=signal.SIGKILL, env=client_environment())

    def check(self) -> None:
        """Raise `DemoFailed` if it has ended."""
        if not self._process.running:
            ended = f"{self._name} ended with {self._process.returncode}; its log ends:"
            raise DemoFailed(
                "\n".join([ended, *(f"    {line}" for line in last_lines(self._log, _LOG_LINES))])
            )

    def stop(self, how: signal.Signals, timeout: float) -> int:
        """Send it a signal, and wait until it has ended; its exit code.

        Raises:
            EmbeddedError: it does not end in time.
        """
        return self._process.stop(how, timeout=timeout, name=self._name)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()


class Workers:
    """Three workers, started as a user starts them; any can be killed and started again."""

    def __init__(
        self,
        folder: Folder,
        *,
        settings: Callable[[str], str],
        serves: Sequence[str] = ("--tube", TUBE),
        log_format: str = "human",
    ) -> None:
        """Write the configurations; nothing runs before `start`.

        Args:
            folder: where they go.
            settings: gives the configuration of a worker, by its name.
            serves: the options of the command line that name the tube or outbox.
            log_format: of the workers.
        """
        self._path = folder.path
        self._serves = serves
        self._log_format = log_format
        self._running: dict[str, Process] = {}
        for name in WORKERS:
            self._config(name).write_text(settings(name))

    def _config(self, name: str) -> Path:
        return self._path / f"{name}.toml"

    def start(self, name: str) -> None:
        """Start one worker."""
        command = [sys.executable, "-m", "pytube", "--log-format", self._log_format]
        command += ["--config", str(self._config(name)), "worker", *self._serves]
        self._running[name] = Process(f"the worker {name}", command, self._path / f"{name}.log")

    def kill(self, name: str) -> None:
        """SIGKILL one worker, and wait until it is gone."""
        self._running.pop(name).kill()

    def check(self) -> None:
        """Raise `DemoFailed` when one has ended by itself."""
        for process in self._running.values():
            process.check()

    def stop(self) -> dict[str, int]:
        """SIGTERM all at the same time, and wait; their exit codes.

        Raises:
            EmbeddedError: one does not end within its time.
        """
        with ThreadPoolExecutor(len(WORKERS)) as pool:
            codes = pool.map(lambda one: one.stop(signal.SIGTERM, _STOP_TIMEOUT), self._running.values())
            return dict(zip(self._running, codes, strict=True))

    def close(self) -> None:
        """SIGKILL whatever still runs."""
        for process in self._running.values():
            process.kill()


def client_environment() -> dict[str, str]:
    """Our environment without settings for clients of other servers (PGPORT, PGOPTIONS, …)."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
