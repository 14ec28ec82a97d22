"""What a demonstration is played on: its folder, its servers, its three workers; its acts, and how it ends.

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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Literal

import psycopg

from pytube import logs
from pytube.db.connect import connect_sync
from pytube.db.install import install
from pytube.demo.screen import WORKERS, DemoFailed, Figures, Leader, Screen, Takeover, state
from pytube.embedded.kafka_mock import MockKafka
from pytube.embedded.kafka_real import VERSION, RealKafka
from pytube.embedded.postgres import Postgres, reachable
from pytube.embedded.process import ServerProcess, environment, is_root, last_lines
from pytube.errors import PytubeError, UsageError

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
    postgres: Postgres
    bootstrap: str | None
    """Kafka's bootstrap servers; None without Kafka."""
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
        with interruptible(), folder_of(directory) as path, (path / "demo.log").open("a") as log:
            # The logs of our own code in this process are not for the spectators.
            logs.configure("info", "human", log)
            try:
                with ExitStack() as stack:
                    postgres = stack.enter_context(Postgres(path / "postgres", settings=_POSTGRES_SETTINGS))
                    bootstrap, kafka = _start_kafka(stack, path, broker)
                    screen.step(f"Postgres 18 runs on 127.0.0.1:{postgres.port}, {kafka}")
                    return play(Stage(path, screen, postgres, bootstrap, election, stack))
            except (PytubeError, psycopg.Error, OSError) as error:
                screen.last()
                screen.line("")
                screen.line(f"FAILED: {error}", "bold red")
                screen.line(f"All processes are ended; their logs are kept in {path}")
                return 1
    except Interrupted as interrupted:
        name = signal.Signals(interrupted.number).name
        screen.line("")
        screen.step(f"ended by {name}; all that was started is ended")
        return 128 + interrupted.number


def _start_kafka(stack: ExitStack, path: Path, broker: Broker | None) -> tuple[str | None, str]:
    """Run the broker, if any: its bootstrap servers, and what to say of it."""
    if broker == "real":
        bootstrap = stack.enter_context(RealKafka(path / "kafka")).bootstrap
        return bootstrap, f"Kafka {VERSION} on {bootstrap}"
    if broker == "embedded":
        bootstrap = stack.enter_context(MockKafka(path / "kafka")).bootstrap
        # It waits for nearly a whole session time-out in each step of a rebalance.
        return bootstrap, f"a mock of Kafka on {bootstrap} (it hands over slowly; a real broker does not)"
    return None, "which elects the leaders, too"


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


# --- its folder -----------------------------------------------------------------------------


@contextmanager
def folder_of(path: Path | None) -> Iterator[Path]:
    """The folder `path`, by default `.demo`, for this run alone: emptied at the start, kept at the end.

    Raises:
        UsageError: it holds what no demonstration left there, another one uses it, or it can't be used.
    """
    folder = (path or _default_folder()).resolve()
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not (folder / _LOCK).exists() and any(folder.iterdir()):
            raise UsageError(
                f"{folder} holds files that no demo has left there, and would be emptied; "
                "give the demo a folder of its own"
            )
        lock = (folder / _LOCK).open("ab")
    except OSError as error:
        raise UsageError(
            f"{folder} can't be used for the demo: {error.strerror}; go to a folder that you can write to"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another demo runs in {folder}; wait for it, or end it") from None
        for found in folder.iterdir():
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found)
            elif found.name != _LOCK:
                found.unlink()
        yield folder


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


# --- what runs there ------------------------------------------------------------------------


class Process(ServerProcess):
    """A program that runs until the demonstration ends it; its log continues where it ended."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        """Start it. Messages call it `name`."""
        super().__init__(name, command, log=log, guard_signal=signal.SIGKILL, env=environment())

    def check(self) -> None:
        """Raise `DemoFailed` if it has ended."""
        if not self.running:
            ended = f"{self.name} ended with {self.returncode}; its log ends:"
            lines = [f"    {line}" for line in last_lines(self.log, _LOG_LINES)]
            raise DemoFailed("\n".join([ended, *lines]))


class Writer(threading.Thread):
    """Writes to the database in a session and a thread of its own, at a steady rate, after `start`."""

    def __init__(self, dsn: str, name: str, interval: float) -> None:
        """`name`: for messages."""
        super().__init__(name=name, daemon=True)
        self.connection = connect_sync(dsn, application_name=f"pytube demo {name}")
        self._interval = interval
        self._end = threading.Event()
        self._error: psycopg.Error | None = None

    def write(self) -> None:
        """One transaction."""
        raise NotImplementedError

    def run(self) -> None:
        """Write until it is finished, or can't."""
        due = time.monotonic()
        while not self._end.wait(max(0.0, due - time.monotonic())):
            due += self._interval
            try:
                self.write()
            except psycopg.Error as error:
                self._error = error
                return

    def check(self) -> None:
        """Raise `DemoFailed` when it could not write."""
        if self._error is not None:
            raise DemoFailed(f"the {self.name} could not write: {self._error}")

    def finish(self) -> None:
        """Write no more."""
        self._end.set()
        if self.is_alive():
            self.join(TIMEOUT)

    def close(self) -> None:
        """End it, and the session; once is enough."""
        self.finish()
        self.connection.close()


def configuration(sections: Mapping[str, Mapping[str, object]]) -> str:
    """A configuration file, as a user would write it."""
    lines = ["# Written by the demo."]
    for section, values in sections.items():
        lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    return "\n".join([*lines, ""])


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    # JSON that leaves non-ASCII as it is is TOML, where strings, numbers, flags and lists are concerned.
    return json.dumps(value, ensure_ascii=False)


# --- the acts ---------------------------------------------------------------------------------

_LEADERS = "SELECT partition, client_id, epoch FROM tube_leaders(%s) WHERE leader_id IS NOT NULL ORDER BY 1"
_PAUSE = 0.05
# Seconds; a demonstration that is well comes near none of them.
_LEAD_LIMIT = 120.0
_TAKEOVER_LIMIT = 120.0


class Story(ABC):
    """What happens in each demonstration: three workers start, one is killed, and others take over.

    Meanwhile, looks at everything, and says every second how things stand.
    """

    KIND: ClassVar[Literal["tube", "outbox"]]
    NAME: ClassVar[str]
    """Of the tube or outbox."""
    FIGURES: ClassVar[str]
    """A query for `Figures`."""

    def __init__(self, stage: Stage) -> None:
        """Install the SQL and connect; nothing runs before `start`."""
        self.stage, self.screen = stage, stage.screen
        self.dsn = stage.postgres.dsn()
        install(self.dsn)
        self.connection = connect_sync(self.dsn, application_name="pytube demo")
        stage.stack.callback(self.connection.close)
        self.checks: list[Callable[[], None]] = [self._check_workers]
        """Called at every look; each raises when what it guards has failed."""
        self._workers: dict[str, Process] = {}
        self._dead: set[str] = set()
        """Workers that were killed and not yet started again."""
        self._second = 0
        self._last = (time.monotonic(), 0)

    @property
    @abstractmethod
    def arrived(self) -> int:
        """How much has been delivered."""

    @abstractmethod
    def poll(self) -> bool:
        """Take in what has come out at the other end; whether there was something."""

    def figures(self) -> Figures:
        """How things stand."""
        return Figures(*self.rows(self.FIGURES)[0])

    def leaders(self) -> list[Leader]:
        """Who leads what, by partition; a dead one as well, until another takes over."""
        return [Leader(*row) for row in self.rows(_LEADERS, self.NAME)]

    def rows(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        """What a statement gives."""
        try:
            return self.connection.execute(query.encode(), arguments or None).fetchall()
        except psycopg.OperationalError as error:
            raise DemoFailed(f"Postgres does not answer the demo any more: {error}") from error

    # --- workers ---

    def start(self, settings: Mapping[str, object], **worker: object) -> None:
        """Start three workers, as a user starts them; `settings` configure the sink, or the outbox."""
        sections: dict[str, Mapping[str, object]]
        section = f'tube."{self.NAME}".sink' if self.KIND == "tube" else f'outbox."{self.NAME}"'
        for name in WORKERS:
            common = {"client_id": name, "election": self.stage.election, "receive_deadline": 2.0}
            sections = {"postgres": {"dsn": self.dsn}, "worker": common | worker, section: settings}
            if self.stage.election == "neli":
                sections["kafka"] = {"bootstrap_servers": self.stage.bootstrap}
            (self.stage.path / f"{name}.toml").write_text(configuration(sections))
            self._start(name)

    def _start(self, name: str) -> None:
        path = self.stage.path / name
        command = [sys.executable, "-m", "pytube", "--log-format", "json", "--config", f"{path}.toml"]
        command += ["worker", f"--{self.KIND}", self.NAME]
        process = Process(f"the worker {name}", command, path.with_suffix(".log"))
        self.stage.stack.callback(process.kill)
        self._workers[name] = process

    def _check_workers(self) -> None:
        for process in self._workers.values():
            process.check()

    def stop(self) -> list[str]:
        """SIGTERM all workers at the same time, and wait; a sentence for each that ended badly."""
        with ThreadPoolExecutor(len(WORKERS)) as pool:
            ends = [
                pool.submit(one.stop, signal.SIGTERM, timeout=_STOP_TIMEOUT) for one in self._workers.values()
            ]
            codes = dict(zip(self._workers, [end.result() for end in ends], strict=True))
        return [
            f"the worker {name} ended with {code} after SIGTERM, not with 0"
            for name, code in codes.items()
            if code
        ]

    # --- what happens ---

    def share(self) -> None:
        """Wait until every partition is led, and every worker leads."""
        leads: dict[str, list[str]] = {}

        def shared() -> bool:
            leads.clear()
            for one in self.leaders():
                leads.setdefault(one.client, []).append(str(one.partition))
            return set(leads) == set(WORKERS) and sum(map(len, leads.values())) == PARTITIONS

        missing = f"the three workers had not shared the {PARTITIONS} partitions among them"
        self.until(shared, limit=_LEAD_LIMIT, missing=missing)
        each = ", ".join(f"{name} leads {' and '.join(leads[name])}" for name in WORKERS)
        self.screen.step(f"the three workers have shared the {PARTITIONS} partitions: {each}")

    def load(self, seconds: float, victim: Callable[[], str]) -> Takeover:
        """Look on for so long, or as long as it takes; kill a worker half way."""
        begun = time.monotonic()
        self._look_until(begun + seconds / 2)
        takeover = self._take_over(victim())
        self._look_until(max(begun + seconds, time.monotonic() + seconds / 8))
        return takeover

    def _look_until(self, moment: float) -> None:
        limit = max(0.0, moment - time.monotonic()) + 10
        self.until(lambda: time.monotonic() >= moment, limit=limit, missing="the clock did not go on")

    def _take_over(self, victim: str) -> Takeover:
        """SIGKILL a leader, see others take over what it led, and start it again."""
        terms = {one.partition: one.epoch for one in self.leaders() if one.client == victim}
        old = max(terms.values())
        at = time.time()
        self._workers.pop(victim).kill()
        self._dead.add(victim)
        led = " and ".join(map(str, terms))
        self.screen.step(f"SIGKILL: {victim}, which led {led}, is gone", "bold red")
        self.until(
            lambda: (
                {one.partition for one in self.leaders() if one.epoch > terms.get(one.partition, one.epoch)}
                == terms.keys()
            ),
            limit=_TAKEOVER_LIMIT,
            missing=f"the others had not taken over what {victim} led",
        )
        led_at = time.time()
        self.until(
            lambda: self.figures().lag < time.time() - led_at,  # all that had waited for them is delivered
            limit=_TAKEOVER_LIMIT,
            missing=f"the others had not delivered what {victim} had left",
        )
        takeover = Takeover(victim, at, time.time() - at)
        self.screen.step(f"the others have taken over what {victim} led", "bold green")
        self._start(victim)
        self._dead.discard(victim)
        self.screen.step(f"{victim} is started again", "bold green")
        self.until(
            lambda: any(one.client == victim and one.epoch > old for one in self.leaders()),
            limit=_LEAD_LIMIT,
            missing=f"{victim}, started again, did not lead",
        )
        self.screen.step(f"{victim} leads again", "bold green")
        return takeover

    def drain(self, limit: float, missing: str) -> None:
        """Wait until nothing is left to deliver."""
        self.until(lambda: not self.figures().pods, limit=limit, missing=missing)

    def until(
        self, condition: Callable[[], bool], *, limit: float, missing: str, pause: float = _PAUSE
    ) -> None:
        """Look until `condition()`, for `limit` seconds; `missing` says what has not happened then.

        Between two looks that find nothing, `pause` seconds pass.

        Raises:
            DemoFailed: it did not happen in time, or one of the checks failed.
        """
        ends = time.monotonic() + limit
        while True:
            has_come = self.poll()
            for check in self.checks:
                check()
            if (second := int(self.screen.elapsed)) > self._second:
                self._second = second
                self._print(second)
            if condition():
                return
            if time.monotonic() > ends:
                raise DemoFailed(f"within {limit:g} s {missing}")
            if not has_come:
                time.sleep(pause)

    def _print(self, second: int) -> None:
        now, delivered = time.monotonic(), self.arrived
        then, before = self._last
        rate = (delivered - before) / max(now - then, 0.001)
        self._last = (now, delivered)
        self.screen.now(state(second, self.figures(), rate, self.leaders(), self._dead))
