"""A session that tests look at a database by, while they wait for something."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import sql
from psycopg.abc import Params

_AGE = 1.0
"""Seconds after which the next look is by a new session, which goes to whom the DSN leads then."""


class Observer:
    """One session for many looks: one for each look costs the server more than the looks do.

    Where the server was killed or restarted since the last look, the session is opened again.
    """

    def __init__(self, dsn: str) -> None:
        """Opened at the first look."""
        self._dsn = dsn
        self._session: psycopg.Connection[Any] | None = None
        self._opened = 0.0

    def rows(self, query: str | sql.Composed, parameters: Params | None = None) -> list[tuple[Any, ...]]:
        """What a query finds; our schema is in the search path.

        Raises:
            psycopg.OperationalError: the server is not there.
        """
        return self._run(query, parameters).fetchall()

    def do(self, statement: sql.Composed) -> None:
        """Run a statement. Where the session is lost meanwhile, it is run again."""
        self._run(statement, None)

    def _run(self, query: str | sql.Composed, parameters: Params | None) -> psycopg.Cursor[Any]:
        if self._session is not None and time.monotonic() < self._opened + _AGE:
            try:
                return self._session.execute(query, parameters)
            except psycopg.OperationalError:
                if not self._session.closed:
                    raise
        self.close()
        self._session = psycopg.connect(self._dsn, autocommit=True, options="-c search_path=tube,public")
        self._opened = time.monotonic()
        return self._session.execute(query, parameters)

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._session = None
