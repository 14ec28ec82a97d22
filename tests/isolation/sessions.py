"""Sessions that are interleaved on purpose: what one of them waits for is seen, not guessed by time."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg

from tests.helpers.waiting import LIMIT, wait_until

Rows = list[tuple[Any, ...]]


class Running:
    """A statement that was sent, and may be waiting for a lock."""

    def __init__(self, future: Future[Rows], pid: int, monitor: psycopg.Connection[Any]) -> None:
        self._future = future
        self._pid = pid
        self._monitor = monitor

    def blockers(self) -> list[int]:
        """The backends that it waits for now."""
        row = self._monitor.execute("SELECT pg_blocking_pids(%s)", (self._pid,)).fetchone()
        assert row is not None
        return list(row[0])

    def blocked(self, by: Session | None = None) -> bool:
        """Wait until it waits for a lock (of `by`). Fails when it answers instead."""
        wait_until(lambda: self._future.done() or self.blockers(), what="the statement blocks or answers")
        assert not self._future.done(), f"it did not block: {self._future}"
        return by is None or by.pid in self.blockers()

    def rows(self) -> Rows:
        """Its answer; raises its error."""
        return self._future.result(LIMIT)

    def value(self) -> Any:
        """The one value of its answer."""
        return self.rows()[0][0]


class Session:
    """A session whose statements run in a thread of their own, so that they can be left waiting."""

    def __init__(self, conn: psycopg.Connection[Any], monitor: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.pid = conn.info.backend_pid
        self._monitor = monitor
        self._thread = ThreadPoolExecutor(max_workers=1)

    def start(self, statement: str, params: Any = None) -> Running:
        """Send a statement, and don't wait for its answer."""
        return Running(self._thread.submit(self._run, statement, params), self.pid, self._monitor)

    def run(self, statement: str, params: Any = None) -> Rows:
        """Send a statement, and wait for its answer."""
        return self.start(statement, params).rows()

    def value(self, statement: str, params: Any = None) -> Any:
        """The one value that a statement gives."""
        return self.run(statement, params)[0][0]

    def begin(self, how: str = "") -> None:
        self.run(f"BEGIN {how}")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        self.run("ROLLBACK")

    def close(self) -> None:
        """End the session, whatever it is waiting for."""
        with contextlib.suppress(psycopg.Error):
            self._monitor.execute("SELECT pg_terminate_backend(%s)", (self.pid,))
        self._thread.shutdown(wait=True)
        self.conn.close()

    def _run(self, statement: str, params: Any) -> Rows:
        cursor = self.conn.execute(statement, params)
        return cursor.fetchall() if cursor.description else []
