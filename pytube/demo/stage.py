"""What a demonstration is played on: its folder, its servers, its three workers, and how it ends.

All processes end with the demonstration, whatever happens to it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Literal, Self

import psycopg

from pytube import logs
from pytube.demo.screen import WORKERS, DemoFailed, Screen
from pytube.embedded.kafka_mock import MockKafka
from pytube.embedded.kafka_real import VERSION, RealKafka
from pytube.embedded.postgres import Postgres, reachable
from pytube.embedded.process import ServerProcess, is_root, last_lines
from pytube.errors import PytubeError, UsageError

if TYPE_CHECKING:
    from confluent_kafka import Message

Broker = Literal["embedded", "real"]
Election = Literal["neli", "lease"]

PARTITIONS = 4

_FOLDER = Path(".demo")
_LOCK = "demo.lock"
_POSTGRES_SETTINGS = {"max_prepared_transactions": "0"}
"""As a server has it by default: where transactions may be prepared, writers wake no worker."""
_STOP_TIMEOUT = 40.0
"""Seconds; a worker's own drain limit is 30."""
_LOG_LINES = 12
_PAGE = 10_000
"""Records of Kafka that are read at a time."""
TIMEOUT = 30.0
"""Seconds in which a server has to answer."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# --- how it begins and ends -----------------------------------------------------------------


class Interrupted(BaseException):
    """A signal asked us to end. As KeyboardInterrupt, it is no error of anybody's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True, slots=True)
class Stage:
    """What a demonstration is given. What it starts is ended when `stack` is closed."""

    path: Path
    """Its folder."""
    screen: Screen
    servers: Servers
    election: Election
    stack: ExitStack


def on_stage(
    directory: Path | None, broker: Broker | None, election: Election, play: Callable[[Stage], int]
) -> int:
    """Give a demonstration its folder, its servers and its screen, and an end with a sentence; the exit code.

    All that `play` starts is ended when it returns the exit code, or raises.
    """
    screen = Screen()
    try:
        with interruptible(), Folder(directory) as folder, (folder.path / "demo.log").open("a") as log:
            # The logs of our own code in this process are not for the spectators.
            logs.configure("info", "human", log)
            try:
                with ExitStack() as stack:
                    servers = _start_servers(stack, folder.path, broker)
                    screen.step(servers.names)
                    return play(Stage(folder.path, screen, servers, election, stack))
            except (PytubeError, psycopg.Error, OSError) as error:
                screen.last()
                screen.line("")
                screen.line(f"FAILED: {error}", "bold red")
                screen.line(f"All processes are ended; their logs are kept in {folder.path}")
                return 1
    except Interrupted as interrupted:
        name = signal.Signals(interrupted.number).name
        screen.line("")
        screen.step(f"ended by {name}; all that was started is ended")
        return 128 + interrupted.number


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` where the program is when one of the signals comes, so that all is ended; once.

    Later signals are ignored: the end is under way, and it is short. Outside of the main thread,
    where Python receives no signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal heard
        if not heard:
            heard = True
            raise Interrupted(number)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- folder, servers and processes ------------------------------------------------------------


class Folder:
    """The folder of this run alone, until it is closed: emptied at the start, kept at the end."""

    def __init__(self, path: Path | None = None) -> None:
        """Empty or make the folder `path`, by default `.demo`.

        Raises:
            UsageError: it holds what no demonstration left there, another one uses it, or it can't be used.
        """
        self.path = (path or _default_folder()).resolve()
        self._lock = self._claim()
        self._empty()

    def close(self) -> None:
        """Let another demonstration have the folder."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _claim(self) -> IO[bytes]:
        path = self.path / _LOCK
        try:
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not path.exists() and any(self.path.iterdir()):
                raise UsageError(
                    f"{self.path} holds files that no demo has left there, and would be emptied; "
                    "give the demo a folder of its own"
                )
            lock = path.open("ab")
        except OSError as error:
            raise UsageError(
                f"{self.path} can't be used for the demo: {error.strerror}; "
                "go to a folder that you can write to"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise UsageError(f"another demo runs in {self.path}; wait for it, or end it") from None
        return lock

    def _empty(self) -> None:
        for path in self.path.iterdir():
            if path.name == _LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _default_folder() -> Path:
    """`.demo`; for root, where the servers' user can't get there, one of the system's temporary ones."""
    here = _FOLDER.resolve()
    if not is_root() or reachable(here.parent):
        return here
    # Postgres refuses root, so it runs as a user who may not enter here.
    path = Path(tempfile.gettempdir()) / "pytube-demo"
    path.mkdir(mode=0o755, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        raise UsageError(f"{path} is somebody else's; remove it, or run the demo as another user than root")
    return path


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


def _start_servers(stack: ExitStack, directory: Path, broker: Broker | None) -> Servers:
    """Run Postgres and the broker, if any, each with its data and its log below `directory`."""
    postgres = stack.enter_context(Postgres(directory / "postgres", settings=_POSTGRES_SETTINGS))
    bootstrap, kafka = None, "which elects the leaders, too"
    if broker == "real":
        bootstrap = stack.enter_context(RealKafka(directory / "kafka")).bootstrap
        kafka = f"Kafka {VERSION} on {bootstrap}"
    elif broker == "embedded":
        bootstrap = stack.enter_context(MockKafka(directory / "kafka")).bootstrap
        # It waits for nearly a whole session time-out in each step of a rebalance.
        kafka = f"a mock of Kafka on {bootstrap} (it hands over slowly; a real broker does not)"
    return Servers(postgres, bootstrap, f"Postgres 18 runs on 127.0.0.1:{postgres.port}, {kafka}")


class Topic:
    """A topic of Kafka, read from its beginning, as its consumers read it."""

    def __init__(self, bootstrap: str, name: str, partitions: Iterable[int], **settings: object) -> None:
        """`settings`: more of librdkafka's, with underscores for the dots."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        own = {name.replace("_", "."): value for name, value in settings.items()}
        common = {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
        self._consumer = Consumer({**common, "log_level": 0, **own})
        self._places = [TopicPartition(name, number, OFFSET_BEGINNING) for number in partitions]
        self._consumer.assign(self._places)
        self.close = self._consumer.close

    def records(self, wait: float) -> list[Message]:
        """What has come."""
        messages = self._consumer.consume(_PAGE, timeout=wait)
        return [message for message in messages if message.error() is None]

    def read_to_end(self, read: Callable[[], object], too_late: PytubeError) -> None:
        """Call `read`, which takes `records`, to the end of the topic as it is now; else raise `too_late`."""
        ends = [self._consumer.get_watermark_offsets(place, timeout=TIMEOUT)[1] for place in self._places]
        deadline = time.monotonic() + TIMEOUT
        while not self._is_at(ends):
            if time.monotonic() > deadline:
                raise too_late
            read()

    def _is_at(self, ends: Sequence[int]) -> bool:
        """Whether all was read up to there; a position is negative until something was."""
        positions = self._consumer.position(self._places)
        return all(not end or at.offset >= end for at, end in zip(positions, ends, strict=True))


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


# --- workers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Serving:
    """What the workers serve."""

    command: Sequence[str]
    """The options of the command line that name the tube or outbox."""
    section: str
    """Of the configuration, with its settings for the worker of a name."""
    settings: Callable[[str], Mapping[str, object]]
    session_timeout: float
    """Seconds after which a dead worker's partitions go to others: short, so that the take-over fits, and at
    least 2 more than a request may take."""
    meter_interval: float = 5.0
    """How often the workers log what they did."""
    log_format: str = "human"


def worker_settings(name: str, dsn: str, bootstrap: str | None, election: Election, serving: Serving) -> str:
    """The configuration file of the worker `name`, as a user would write it."""
    worker = {
        "client_id": name,
        "election": election,
        "session_timeout": serving.session_timeout,
        "receive_deadline": 2.0,
        "meter_interval": serving.meter_interval,
    }
    sections: dict[str, Mapping[str, object]] = {"postgres": {"dsn": dsn}, "worker": worker}
    if election == "neli":
        sections["kafka"] = {"bootstrap_servers": bootstrap}
    sections[serving.section] = serving.settings(name)
    lines = ["# Written by the demo."]
    for section, values in sections.items():
        lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    return "\n".join([*lines, ""])


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    # JSON that leaves non-ASCII as it is is TOML, where strings, numbers, flags and lists are concerned.
    return json.dumps(value, ensure_ascii=False)


class Workers:
    """Three workers, started as a user starts them; any can be killed and started again."""

    def __init__(self, stage: Stage, serving: Serving) -> None:
        """Write the configurations; nothing runs before `start`."""
        self._path = stage.path
        self._serving = serving
        self._running: dict[str, Process] = {}
        stage.stack.callback(self.close)
        for name in WORKERS:
            text = worker_settings(name, stage.servers.dsn, stage.servers.bootstrap, stage.election, serving)
            self._config(name).write_text(text)

    def _config(self, name: str) -> Path:
        return self._path / f"{name}.toml"

    def start(self, name: str) -> None:
        """Start one worker."""
        command = [sys.executable, "-m", "pytube", "--log-format", self._serving.log_format]
        command += ["--config", str(self._config(name)), "worker", *self._serving.command]
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
    """This environment without settings for clients of other servers (PGPORT, PGOPTIONS, …)."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
