"""A database with pytube's SQL, as commands and pages know it, and sessions with it, an application's too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from pydantic import SecretStr

from pytube.config import PostgresConfig
from pytube.db.connect import connect_sync
from pytube.db.errors import log_notice, translated
from pytube.db.version import check

DEFAULT_SCHEMA: Final[str] = PostgresConfig.model_fields["schema_name"].default


_SET_PATH: Final = "SELECT pg_catalog.set_config('search_path', %s, false)"


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


@contextmanager
def borrowed(connection: psycopg.Connection[Any], schema: str = "tube") -> Iterator[psycopg.Connection]:
    """The connection as the classes of administration need it; afterwards it is as before.

    In a transaction, the block is a savepoint: an error undoes only the block, and the transaction can
    continue. Nothing is committed. Of an idle connection in autocommit, each statement is committed.

    Args:
        connection: of psycopg, whatever its factories; SQLAlchemy and Django have one behind theirs.
        schema: pytube's; it comes before the caller's search path.
    """
    factories = connection.cursor_factory, connection.row_factory
    connection.cursor_factory, connection.row_factory = psycopg.Cursor, tuple_row
    connection.add_notice_handler(log_notice)
    try:
        # Without autocommit, this also begins the transaction: `connection.transaction()` would end it, too.
        row = connection.execute("SELECT pg_catalog.current_setting('search_path')").fetchone()
        assert row is not None
        path = str(row[0])
        with ExitStack() as stack:
            if connection.info.transaction_status is not TransactionStatus.IDLE:
                stack.enter_context(connection.transaction())
            ours = sql.Identifier(schema).as_string()
            connection.execute(_SET_PATH, [f"{ours}, {path}" if path else ours])
            try:
                yield connection
            finally:
                # A failed transaction takes it back with the rest.
                if connection.info.transaction_status in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
                    connection.execute(_SET_PATH, [path])
    finally:
        connection.remove_notice_handler(log_notice)
        connection.cursor_factory, connection.row_factory = factories
