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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        message = f"port {among.start} of {HOST} is taken: give another one, or none"
    else:
        message = f"no free port between {among.start} and {among.stop} on {HOST}: end a server"
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
