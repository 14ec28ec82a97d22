"""A server's process, which ends when the process that started it does, and its errors."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from pytube.errors import PytubeError

POLL = 0.02
"""Seconds between two looks at a condition."""

_LOG_LINES = 30
"""Of a log, at the end of an error."""

# The guard reads until its owner closes the pipe or dies, be it by SIGKILL, then ends the server.
_GUARD = 'read _; kill -s "$1" "$2"'


class EmbeddedError(PytubeError):
    """An embedded server can't be had, did not start or did not end; the message says why."""


class ServerProcess:
    """One run of a server: started in a session of its own, watched, ended by signal."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        guard_signal: signal.Signals,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start `command`, its output appended to `log`, as the system's `user` where given.

        `guard_signal` is what it is sent when the owner dies without ending it.
        """
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
                user=user,
                group=_group_of(user),
                extra_groups=None if user is None else [],
                env=env,
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

    def wait_ready(self, ready: Callable[[], bool], *, timeout: float, name: str) -> None:
        """Wait until `ready()`; `EmbeddedError` with the log's end when it ends or is too slow."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                self._dismiss_guard()
                raise with_tail(f"{name} ended with {self._process.returncode}", self._log)
            if time.monotonic() > deadline:
                self.kill()
                raise with_tail(f"{name} was not ready within {timeout:g} s", self._log)
            time.sleep(POLL)

    def stop(self, how: signal.Signals, *, timeout: float, name: str) -> int:
        """Send `how` and wait; its exit code. If it does not end in time, kill it: `EmbeddedError`."""
        if self.running:
            self._process.send_signal(how)
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise with_tail(f"{name} did not stop within {timeout:g} s", self._log) from error
        self._dismiss_guard()
        return code

    def kill(self, *, grace: float = 5.0) -> None:
        """SIGKILL the process and wait until it and all its children are gone.

        Children that go on by themselves are killed after `grace` seconds.
        """
        children = self._children()
        if self.running:
            self._process.kill()
        self._process.wait()
        self._dismiss_guard()
        alive = _outlive(children, grace)
        for child in alive:
            child.kill()
        alive = _outlive(alive, grace)
        if alive:
            pids = ", ".join(str(child.pid) for child in alive)
            message = f"children of process {self.pid} do not end even when killed: {pids}"
            raise EmbeddedError(message)

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


def _outlive(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those of `processes` that still run after at most `seconds`."""
    deadline = time.monotonic() + seconds
    while (alive := [p for p in processes if _runs(p)]) and time.monotonic() < deadline:
        time.sleep(POLL)
    return alive


def _runs(process: psutil.Process) -> bool:
    # Where nobody reaps orphans, as in a container without an init, the dead stay as zombies.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _group_of(user: str | None) -> int | None:
    if user is None:
        return None
    # Not on every system, and only needed by root on one that has it.
    import pwd

    return pwd.getpwnam(user).pw_gid


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
