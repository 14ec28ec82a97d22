"""The load: pgbench's own transactions, at a steady rate."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from pytube.demo.failure import DemoFailed, tail
from pytube.demo.source import client_environment
from pytube.embedded.process import ServerProcess

RATE = 400
"""Transactions per second: what two cores carry beside the workers."""

CLIENTS = 4
_LONGEST = 600
_STOP_TIMEOUT = 15.0


class Load:
    """One run of pgbench."""

    def __init__(self, pgbench: Path, dsn: str, log: Path) -> None:
        """Start it.

        Args:
            pgbench: the program.
            dsn: of the database.
            log: what it tells.
        """
        self._log = log
        command = [str(pgbench), "-n", "-M", "prepared", "-c", str(CLIENTS), "-R", str(RATE)]
        command += ["-T", str(_LONGEST), "-P", "5", dsn]
        self._process = ServerProcess(command, log=log, guard_signal=signal.SIGKILL, env=client_environment())

    def check(self) -> None:
        """Raise `DemoFailed` when it has ended by itself."""
        if not self._process.running:
            raise DemoFailed(
                f"pgbench ended with {self._process.returncode}; its log ends:\n{tail(self._log)}"
            )

    def finish(self) -> int:
        """Let it finish; how many transactions it did.

        Raises:
            DemoFailed: it did not end well.
        """
        # What its own timer sends: the transactions under way are finished and the sum is told.
        self._process.stop(signal.SIGALRM, timeout=_STOP_TIMEOUT, name="pgbench")
        count = transactions_in(self._log.read_text(errors="replace"))
        if self._process.returncode != 0 or count is None:
            self.check()
        return count or 0

    def close(self) -> None:
        """End it at once."""
        self._process.kill()


def transactions_in(text: str) -> int | None:
    """The number of transactions in pgbench's summary; None when it has told none."""
    found = re.search(r"^number of transactions actually processed: (\d+)", text, re.MULTILINE)
    return int(found.group(1)) if found else None
