"""A shared session for tests that poll a database."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import sql
from psycopg.abc import Params

from tests.helpers.capture import open_session

_AGE = 1.0
"""Seconds after which a query opens a new session, so that it follows a failover."""


class Observer:
    """Reuses one session: opening a session costs the server more than most queries.

    If the session is lost, another one is opened and the query is run again; so it should only read, or do
    no harm when it is run twice.
    """

    def __init__(self, dsn: str) -> None:
        """Opens the session with the first query."""
        self._dsn = dsn
        self._session: psycopg.Connection[Any] | None = None
        self._opened = 0.0

    def rows(self, query: str | sql.Composed, parameters: Params | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query; our schema is in the search path.

        Raises:
            psycopg.OperationalError: the server is not there.
        """
        return self._run(query, parameters).fetchall()

    def do(self, statement: sql.Composed) -> None:
        """Run a statement that returns no rows."""
        self._run(statement, None)

    def _run(self, query: str | sql.Composed, parameters: Params | None) -> psycopg.Cursor[Any]:
        if self._session is not None and time.monotonic() < self._opened + _AGE:
            try:
                return self._session.execute(query, parameters)
            except psycopg.OperationalError:
                if not self._session.closed:
                    raise
        self.close()
        self._session = open_session(self._dsn)
        self._opened = time.monotonic()
        return self._session.execute(query, parameters)

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._session = None
