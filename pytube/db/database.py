"""A database with pytube's SQL, as commands and pages know it, and sessions with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from pydantic import SecretStr

from pytube.config import PostgresConfig
from pytube.db.connect import connect_sync
from pytube.db.errors import translated
from pytube.db.version import check

DEFAULT_SCHEMA: Final[str] = PostgresConfig.model_fields["schema_name"].default


@dataclass(frozen=True, slots=True)
class Database:
    """One database."""

    dsn: SecretStr
    schema: str = DEFAULT_SCHEMA
    """Of pytube's SQL."""
    host: str | None = None
    """Its name in the configuration, where there are several."""
    answer_timeout: float = PostgresConfig.model_fields["answer_timeout"].default
    """Seconds that a chunk of a backfill may take."""

    def open(self, application_name: str) -> psycopg.Connection:
        """A session; `SchemaMismatch` unless pytube's SQL is installed in the needed version."""
        connection = connect_sync(self.dsn, self.schema, application_name=application_name)
        try:
            check(connection, self.schema)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def connect(self, application_name: str = "pytube cli") -> Iterator[psycopg.Connection]:
        """A session for the time of a command, or of a page."""
        with translated(), self.open(application_name) as connection:
            yield connection
