"""A Redis server for demos and tests: the system's program, in a separate folder."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from pytube.embedded.process import HOST, EmbeddedError, EmbeddedServer, Port

BINARY = "PYTUBE_REDIS_SERVER"
"""The variable that names another program than the system's `redis-server`."""


def program() -> str:
    """The path of the server's program; `EmbeddedError` where there is none."""
    found = os.environ.get(BINARY) or shutil.which("redis-server")
    if not found:
        raise EmbeddedError(
            "there is no redis-server on this machine; install it (Debian: apt-get install redis-server), or "
            f"set {BINARY} to the path of one"
        )
    return found


class Redis(EmbeddedServer):
    """A server on loopback; its data on disk stays over `kill` and `start`.

    It ends with this process.
    """

    NAME = "Redis"
    START_TIMEOUT = 20.0

    def __init__(self, directory: Path, *options: str, port: int | None = None) -> None:
        """Nothing runs before `start`.

        Args:
            directory: its own; made if it is missing.
            options: as on its command line, e.g. `--appendonly`, `yes`.
            port: of loopback; None chooses a free one.

        Raises:
            EmbeddedError: there is no such program, or the port is taken.
        """
        self._options = options
        self._program = program()
        super().__init__(directory, Port(port))

    @property
    def url(self) -> str:
        """Its address, the same over restarts."""
        return f"redis://{HOST}:{self.port}"

    def _prepare(self) -> list[str]:
        self.directory.mkdir(parents=True, exist_ok=True)
        own = ("--port", str(self.port), "--bind", HOST, "--dir", str(self.directory), "--save", "")
        return [self._program, *own, *self._options]

    def _serves(self) -> bool:
        """Whether it answers, perhaps that it wants a password; while it loads it says `-LOADING`."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
