"""Wall time, WAL bytes and CPU seconds of a piece of work."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil
import psycopg


@dataclass(frozen=True, slots=True)
class Reading:
    """What `amount` units of work took."""

    amount: float
    wall: float
    """Seconds."""
    wal: int
    """Bytes of WAL that the whole server wrote."""
    server_cpu: float
    """CPU seconds of all processes of the server that outlive the work."""
    own_cpu: float
    """CPU seconds of this process."""

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.amount / self.wall

    @property
    def wal_each(self) -> float:
        """Bytes of WAL per unit."""
        return self.wal / self.amount

    @property
    def cpu_each(self) -> float:
        """Microseconds of the server's CPU per unit."""
        return self.server_cpu / self.amount * 1e6

    @property
    def own_cpu_each(self) -> float:
        """Microseconds of this process's CPU per unit."""
        return self.own_cpu / self.amount * 1e6


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of all that it started, those that have ended included."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            own = child.cpu_times()
            total += own.user + own.system
    return float(total)


_REAPED = 0.02
"""Seconds after which the postmaster has reaped the sessions that ended with the work."""


class Readings:
    """Takes readings of one server."""

    def __init__(self, connection: psycopg.Connection, postmaster: int) -> None:
        self._connection = connection
        self._postmaster = psutil.Process(postmaster)

    def of(self, work: Callable[[], float]) -> Reading:
        """Do `work`, which returns how many units it was."""
        lsn, cpu, own, began = self._lsn(), self._cpu(), time.process_time(), time.perf_counter()
        amount = work()
        wall = time.perf_counter() - began
        own = time.process_time() - own
        time.sleep(_REAPED)
        return Reading(amount, wall, int(self._lsn() - lsn), max(0.0, self._cpu() - cpu), own)

    def _lsn(self) -> float:
        row = self._connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert row
        return float(row[0])

    def _cpu(self) -> float:
        # The times of children that have ended are the postmaster's, once it has reaped them.
        times = self._postmaster.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        for child in self._postmaster.children():
            try:
                own = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += own.user + own.system
        return total
