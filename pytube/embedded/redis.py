"""A Redis server for demos and tests: the system's own program, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from pytube.embedded.ports import HOST, Port
from pytube.embedded.process import EmbeddedError, ServerProcess

BINARY = "PYTUBE_REDIS_SERVER"
"""The variable that names another program than the system's `redis-server`."""
START_TIMEOUT = 20.0


def program() -> str:
    """The path of the server's program; `EmbeddedError` where there is none."""
    found = os.environ.get(BINARY) or shutil.which("redis-server")
    if not found:
        raise EmbeddedError(
            "there is no redis-server on this machine; install it (Debian: apt-get install redis-server), or "
            f"set {BINARY} to the path of one"
        )
    return found


class Redis:
    """A server on loopback; what it has written to its disk stays over `kill` and `start`.

    It runs from the beginning, and ends with this process.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        """Start it.

        Args:
            folder: its own; made if it is missing.
            options: as on its command line, e.g. `--appendonly`, `yes`.

        Raises:
            EmbeddedError: there is no such program, or it does not come up (with its log).
        """
        self._folder = folder
        self._options = options
        self._program = program()
        self._port = Port()
        folder.mkdir(parents=True, exist_ok=True)
        self._process = self._started()

    @property
    def port(self) -> int:
        """Its port on loopback, the same over restarts."""
        return self._port.number

    @property
    def url(self) -> str:
        """Its address, the same over restarts."""
        return f"redis://{HOST}:{self.port}"

    def start(self) -> None:
        """Start it again."""
        self._process = self._started()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        """End for good: kill, and let the port go. The folder stays."""
        if self._process.running:
            self._process.kill()
        self._port.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _started(self) -> ServerProcess:
        own = ("--port", str(self.port), "--bind", HOST, "--dir", str(self._folder), "--save", "")
        command = [self._program, *own, *self._options]
        process = ServerProcess(command, log=self._folder / "redis.log", guard_signal=signal.SIGKILL)
        process.wait_ready(self._answers, timeout=START_TIMEOUT, name="Redis")
        return process

    def _answers(self) -> bool:
        """Whether it serves, perhaps after a password; while it loads its data it answers `-LOADING`."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
