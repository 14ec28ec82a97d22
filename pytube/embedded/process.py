"""A server's process, which ends when the process that started it does, and its errors."""

from __future__ import annotations

import atexit
import fcntl
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import psutil

from pytube.errors import PytubeError

# --- ports ----------------------------------------------------------------------------------------

HOST = "127.0.0.1"

# Below the range from which systems take the ports of outgoing connections: a client that
# reconnects while the server is down can't be given the server's own port.
RANGE = range(15000, 32000)
ATTEMPTS = 500


class Port:
    """A free port of loopback, kept from other processes that choose theirs this way too.

    The claim is a lock on a file; it is let go by `release` or when the process ends.
    """

    def __init__(self, number: int | None = None, *, among: range = RANGE) -> None:
        """Claim `number`, or any free port of a range. Raises `EmbeddedError` when there is none."""
        self.number, self._lock = _claim(range(number, number + 1) if number else among)

    def release(self) -> None:
        """Let others have the port; once is enough."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _claim(among: range) -> tuple[int, IO[bytes]]:
    folder = Path(tempfile.gettempdir()) / f"pytube-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # No secrets here: the numbers only have to differ between processes.
    for candidate in random.SystemRandom().sample(among, min(ATTEMPTS, len(among))):
        lock = _lock(folder / str(candidate))
        if lock is None:
            continue
        if _is_free(candidate):
            return candidate, lock
        lock.close()
    if len(among) == 1:
        raise EmbeddedError(f"port {among.start} of {HOST} is taken: give another one, or none")
    raise EmbeddedError(f"no free port between {among.start} and {among.stop} on {HOST}: end a server")


def _lock(path: Path) -> IO[bytes] | None:
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _is_free(number: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set this too: ports whose old connections linger in TIME_WAIT are usable.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, number))
        except OSError:
            return False
    return True


# --- processes ------------------------------------------------------------------------------------

POLL = 0.02
"""Seconds between two looks at a condition."""

_GRACE = 5.0
"""Seconds that children of a killed process have to end."""
_LOG_LINES = 30
"""Of a log, at the end of an error."""

# The guard reads until its owner closes the pipe or dies, be it by SIGKILL, then ends the server.
_GUARD = 'read _; kill -s "$1" "$2"'


class EmbeddedError(PytubeError):
    """An embedded server can't be had, did not start or did not end; the message says why."""


class ServerProcess:
    """One run of a server: started in a separate session, watched, ended by signal."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        guard_signal: signal.Signals,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start `command`, its output appended to `log`, as the system's `user` where given.

        `name` is what messages call it.
        `guard_signal` is sent to it when the owner dies without ending it.
        """
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
                env=env,
                **as_user(user),
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(int(guard_signal)), str(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for the signal that ended it; None while it runs."""
        return self._process.poll()

    def wait_ready(self, ready: Callable[[], bool], *, timeout: float) -> None:
        """Wait until `ready()`; `EmbeddedError` with the log's end when it ends or is too slow."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                self._dismiss_guard()
                raise with_tail(f"{self.name} ended with {self._process.returncode}", self.log)
            if time.monotonic() > deadline:
                self.kill()
                raise with_tail(f"{self.name} was not ready within {timeout:g} s", self.log)
            time.sleep(POLL)

    def stop(self, how: signal.Signals, *, timeout: float) -> int:
        """Send `how` and wait; its exit code. If it does not end in time, kill it: `EmbeddedError`."""
        if self.running:
            self._process.send_signal(how)
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise with_tail(f"{self.name} did not stop within {timeout:g} s", self.log) from error
        self._dismiss_guard()
        return code

    def kill(self) -> None:
        """SIGKILL the process and wait until it and all its children are gone.

        Children that keep running are killed after `_GRACE` seconds.
        """
        children = self._children()
        if self.running:
            self._process.kill()
        self._process.wait()
        self._dismiss_guard()
        alive = _outlive(children)
        for child in alive:
            child.kill()
        alive = _outlive(alive)
        if alive:
            pids = ", ".join(str(child.pid) for child in alive)
            raise EmbeddedError(f"children of process {self.pid} do not end even when killed: {pids}")

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _dismiss_guard(self) -> None:
        # Before the pid can be another's: the guard signals by number.
        if self._guard.poll() is None:
            self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()


STOP_TIMEOUT = 60.0


class EmbeddedServer:
    """A server on loopback; its data stays in `directory` over `stop`, `kill` and `start`.

    It ends with this process.
    """

    NAME: ClassVar[str]
    START_TIMEOUT: ClassVar[float]
    STOP: ClassVar[signal.Signals] = signal.SIGTERM
    """What shuts it down in order."""
    GUARD: ClassVar[signal.Signals] = signal.SIGKILL
    """What ends it when we do."""

    def __init__(self, directory: Path | str, *ports: Port) -> None:
        """Nothing runs before `start`. The directory is made if missing; `ports` are the server's."""
        self.directory = Path(directory).resolve()
        self._ports = ports
        self.log = self.directory / f"{self.NAME.lower()}.log"
        self._process: ServerProcess | None = None
        self._user: str | None = None
        """Who runs it; None: we do."""

    @property
    def port(self) -> int:
        """Its port on loopback, the same over restarts; the first, where it has several."""
        return self._ports[0].number

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """Its process id; `EmbeddedError` when it was never started."""
        if self._process is None:
            raise EmbeddedError(f"{self.NAME} in {self.directory} was not started")
        return self._process.pid

    def start(self) -> Self:
        """Start, and wait until it serves.

        Raises:
            EmbeddedError: its programs can't be had, or it does not come up (with its log).
        """
        if self.running:
            return self
        self._process = ServerProcess(
            self.NAME,
            self._prepare(),
            log=self.log,
            guard_signal=self.GUARD,
            user=self._user,
            env=self._environment(),
        )
        atexit.register(self.close)
        self._process.wait_ready(self._serves, timeout=self.START_TIMEOUT)
        return self

    def stop(self, how: signal.Signals | None = None) -> None:
        """Shut down, by `STOP` unless another signal is given."""
        if self._process is not None:
            self._process.stop(how or self.STOP, timeout=STOP_TIMEOUT)

    def kill(self) -> None:
        """SIGKILL the server; `start` recovers."""
        if self._process is not None:
            self._process.kill()

    def restart(self, how: signal.Signals | None = None) -> Self:
        """Stop and start, on the same port."""
        self.stop(how)
        return self.start()

    def close(self) -> None:
        """End for good: kill, and let the ports go. The folder stays."""
        atexit.unregister(self.close)
        self.kill()
        self._release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> list[str]:
        """The command; its files are in the folder afterwards."""
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        """The variables of its environment."""
        return environment()

    def _serves(self) -> bool:
        """Whether it takes requests."""
        raise NotImplementedError

    def _release(self) -> None:
        """Let the ports go."""
        for port in self._ports:
            port.release()


def _outlive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """The ones of `processes` that still run after at most `_GRACE` seconds."""
    deadline = time.monotonic() + _GRACE
    while (alive := [p for p in processes if _runs(p)]) and time.monotonic() < deadline:
        time.sleep(POLL)
    return alive


def _runs(process: psutil.Process) -> bool:
    # Where no process reaps orphans, as in a container without an init, the dead stay as zombies.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def environment() -> dict[str, str]:
    """The caller's environment, without what it has for its own clients of Postgres, and for its own Java."""
    of_java = {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"}
    return {
        name: value for name, value in os.environ.items() if name not in of_java and not name.startswith("PG")
    }


def as_user(user: str | None) -> dict[str, Any]:
    """The arguments by which a process of `subprocess` is that user's; None: it is ours."""
    if user is None:
        return {}
    # Not on every system, and only needed by root where it exists.
    import pwd

    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log, at most `count`; a sentence where there are none."""
    try:
        return log.read_text(errors="replace").splitlines()[-count:] or [f"({log} is empty)"]
    except OSError as error:
        return [f"({log} can't be read: {error})"]


def with_tail(message: str, log: Path) -> EmbeddedError:
    """The error `message`, with the last lines of the server's log below it."""
    return EmbeddedError("\n".join([f"{message}; the end of {log}:", *last_lines(log, _LOG_LINES)]))


def is_root() -> bool:
    """Whether this process runs as root."""
    return os.geteuid() == 0
