"""A session for administration that does not wait for ever for a server that stays silent.

A statement may take as long as it takes: an index is built for hours. So it is not the statement that
has a limit, but the silence: after a while a second session asks whether the first one still works.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg

from pytube.db.patience import STATE_OF_SESSION, NoAnswer, is_answer_lost


class PatientConnection(psycopg.Connection[Any]):
    """As psycopg's, but that a session is given up whose server, or whose answer, is gone."""

    answer_timeout: float | None = None
    """Seconds of silence after which the server is asked; None: never."""

    conninfo = ""
    """How the server is asked: what this session was opened with."""

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        """What psycopg calls to wait for an answer. `NoAnswer` when it is given up."""
        watched = gen if self.answer_timeout is None else self._watched(gen, self.answer_timeout)
        return super().wait(watched, *arguments, **options)

    def _watched(self, gen: Generator[Any, Any, Any], limit: float) -> Generator[Any, Any, Any]:
        """`gen`, with a look at the server after each `limit` seconds in which nothing came.

        psycopg goes on with nothing every tenth of a second, so that a Ctrl-C is heard.
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
                    seen = self._look(seen, limit)
                    heard = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _look(self, before: tuple[Any, ...] | None, limit: float) -> tuple[Any, ...] | None:
        """What the server says of this session now; `NoAnswer` if it says nothing, or is idle as `before`."""
        try:
            now = _ask(self.conninfo, self.info.backend_pid, limit)
        except psycopg.OperationalError as error:
            if error.sqlstate is not None:
                return None  # it refuses us, but it is there
            raise self._given_up(limit, "the server does not answer") from error
        if is_answer_lost(before, now):
            raise self._given_up(limit, "its answer is lost")
        return now

    def _given_up(self, limit: float, why: str) -> NoAnswer:
        self.close()
        return NoAnswer(f"no answer within {limit:g} s: {why}")


def _ask(conninfo: str, pid: int, limit: float) -> tuple[Any, ...] | None:
    """State of a session by another one; None when the server does not know it, as behind a pooler.

    Raises:
        psycopg.OperationalError: nobody answers within `limit` seconds.
    """
    with _Brief.connect(conninfo, autocommit=True, connect_timeout=max(2, round(limit))) as connection:
        connection.limit = limit
        return connection.execute(STATE_OF_SESSION, [pid]).fetchone()


class _Brief(psycopg.Connection[Any]):
    """A session that waits for `limit` seconds and no longer."""

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
