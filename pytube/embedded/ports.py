"""Ports of loopback that stay ours while a server is down."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pytube.embedded.process import EmbeddedError

HOST = "127.0.0.1"

# Below the range from which systems take the ports of outgoing connections: a client that
# reconnects while the server is down can't be given the server's own port.
LOWEST, HIGHEST = 15000, 32000
ATTEMPTS = 500


class Port:
    """A free port of loopback, kept from other processes that choose theirs this way too.

    The claim is a lock on a file; it is let go by `release` or when the process ends.
    """

    def __init__(self, number: int | None = None) -> None:
        """Claim `number`, or any free port. Raises `EmbeddedError` when it is taken."""
        self.number, self._lock = _claim(number)

    def release(self) -> None:
        """Let others have the port; once is enough."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _claim(number: int | None) -> tuple[int, IO[bytes]]:
    folder = Path(tempfile.gettempdir()) / f"pytube-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # No secrets here: the numbers only have to differ between processes.
    chooser = random.SystemRandom()
    for _ in range(ATTEMPTS if number is None else 1):
        candidate = number or chooser.randrange(LOWEST, HIGHEST)
        lock = _lock(folder / str(candidate))
        if lock is None:
            continue
        if _is_free(candidate):
            return candidate, lock
        lock.close()
    if number is not None:
        message = f"port {number} of {HOST} is taken: give another one, or none"
    else:
        message = f"no free port between {LOWEST} and {HIGHEST} on {HOST}: end a server"
    raise EmbeddedError(message)


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
