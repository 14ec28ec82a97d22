"""A session for administration that is dropped when its server, or its server's answer, is lost.

A statement may run for hours (an index build), so the limit is on the server's silence, not on the
statement: after `answer_timeout` a second session checks whether the first one is still being served.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg

from pytube.db.timeouts import STATE_OF_SESSION, NoAnswer, is_answer_lost


class WatchedConnection(psycopg.Connection[Any]):
    """A psycopg connection that is closed when its server, or the answer to its statement, is lost."""

    answer_timeout: float | None = None
    """Seconds of silence after which the server is checked; None: never."""

    conninfo = ""
    """The connection string of this session, used for the checks."""

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        """Called by psycopg to wait for an answer. Raises `NoAnswer` when none will come."""
        watched = gen if self.answer_timeout is None else self._watched(gen, self.answer_timeout)
        return super().wait(watched, *arguments, **options)

    def _watched(self, gen: Generator[Any, Any, Any], limit: float) -> Generator[Any, Any, Any]:
        """`gen`, with a check of the server after each `limit` seconds of silence.

        psycopg resumes the generator every tenth of a second, so that Ctrl-C works.
        """
        heard, seen = time.monotonic(), None
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    heard, seen = now, None
                elif now - heard > limit:
                    seen = self._check(seen, limit)
                    heard = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _check(self, before: tuple[Any, ...] | None, limit: float) -> tuple[Any, ...] | None:
        """The server's state of this session; raises `NoAnswer` if silent, or still idle as `before`."""
        try:
            now = _ask(self.conninfo, self.info.backend_pid, limit)
        except psycopg.OperationalError as error:
            if error.sqlstate is not None:
                return None  # a server that refuses us is alive
            raise self._drop(limit, "the server does not answer") from error
        if is_answer_lost(before, now):
            raise self._drop(limit, "its answer is lost")
        return now

    def _drop(self, limit: float, why: str) -> NoAnswer:
        self.close()
        return NoAnswer(f"no answer within {limit:g} s: {why}")


def _ask(conninfo: str, pid: int, limit: float) -> tuple[Any, ...] | None:
    """The state of a session, read by another one; None when the server does not know it (a pooler).

    Raises:
        psycopg.OperationalError: no answer within `limit` seconds.
    """
    with _Brief.connect(conninfo, autocommit=True, connect_timeout=max(2, round(limit))) as connection:
        connection.limit = limit
        return connection.execute(STATE_OF_SESSION, [pid]).fetchone()


class _Brief(psycopg.Connection[Any]):
    """A session that waits for at most `limit` seconds."""

    limit: float = 0.0

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        return super().wait(_limited(gen, time.monotonic() + self.limit), *arguments, **options)


def _limited(gen: Generator[Any, Any, Any], ends: float) -> Generator[Any, Any, Any]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > ends:
                raise psycopg.OperationalError("no answer in time")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value
