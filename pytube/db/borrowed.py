"""A session of the application that pytube uses for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pytube.db.errors import log_notice

_SET_PATH: Final = "SELECT pg_catalog.set_config('search_path', %s, false)"


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
