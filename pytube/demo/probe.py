"""The probe: writes a running number into one row, to see how long each takes to the sink."""

from __future__ import annotations

import re
import threading
import time
from typing import Any, NamedTuple

import psycopg

from pytube.db.connect import connect_sync
from pytube.demo import queries
from pytube.demo.failure import DemoFailed

INTERVAL = 0.05
TELLER = 1
_NUMBER = re.compile(r"probe (\d+) *")
_STOP_TIMEOUT = 10.0


class Commit(NamedTuple):
    """A number, and when its commit had returned; Unix time."""

    number: int
    at: float


class Arrival(NamedTuple):
    """A number, and when a document with it was written to the sink; Unix time."""

    number: int
    at: float


def number_in(document: Any) -> int | None:
    """The probe's number in a document of the row; None when there is none."""
    if not isinstance(document, dict):
        return None
    found = _NUMBER.fullmatch(str(document.get("filler")))
    return int(found.group(1)) if found else None


class Probe:
    """Writes in a thread of its own."""

    def __init__(self, dsn: str) -> None:
        """Connect; nothing is written before `start`."""
        self.commits: list[Commit] = []
        self._connection = connect_sync(dsn, application_name="pytube demo probe")
        self._stop = threading.Event()
        self._fault: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def check(self) -> None:
        """Raise `DemoFailed` when it could not write."""
        if self._fault is not None:
            raise DemoFailed(f"the probe could not write: {self._fault}")

    def close(self) -> None:
        """Stop, and end the session; once is enough."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT)
        self._connection.close()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(INTERVAL):
            number += 1
            try:
                self._connection.execute(queries.PROBE, {"filler": f"probe {number}", "teller": TELLER})
            except psycopg.Error as error:
                self._fault = error
                return
            self.commits.append(Commit(number, time.time()))
