"""Tables of the application: found by their names, and locked while others use them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg import errors

from pytube.db.errors import TRANSIENT
from pytube.errors import PytubeError, UnknownTable
from pytube.tubes.queries import HOLDERS, TABLE

# Older servers raise these where newer ones answer NULL.
_NO_NAME = (errors.InvalidName, errors.SyntaxError, errors.FeatureNotSupported, errors.UndefinedTable)

_LOCK_NOT_GRANTED = (*TRANSIENT, errors.LockNotAvailable, errors.QueryCanceled)
"""What an attempt fails with while others hold the table; our own limits end it with the last two."""

_PAUSE = 0.5
"""Seconds between two attempts."""

_BRIEF = 1.0
"""Seconds for which anybody may hold a table without being named."""

_Result = TypeVar("_Result")

OnWait = Callable[[str], None]


def find_table(connection: psycopg.Connection, name: str) -> int:
    """The oid of the table `name`; `UnknownTable` when there is none in this database."""
    try:
        row = connection.execute(TABLE, {"table": name}).fetchone()
    except _NO_NAME:
        row = None
    if row is None or row[0] is None:
        raise UnknownTable(
            f"there is no table {name!r} in this database; write schema.table, "
            'with quotes where SQL wants them: "My Schema"."My Table"'
        )
    return int(row[0])


class LockBusy(PytubeError):
    """A table stayed locked by others for as long as we were to wait. Nothing was changed."""


def with_retries(
    connection: psycopg.Connection,
    action: Callable[[], _Result],
    *,
    table: int,
    name: str,
    limit: float,
    on_wait: OnWait,
) -> _Result:
    """Run `action` until it gets its locks.

    Our SQL itself waits for a lock in many short steps, so that nobody queues behind it, and gives
    up after half a minute or so.

    Args:
        connection: its session, outside of a transaction.
        action: one statement, or transaction, that takes the locks.
        table: oid of the table that others may hold.
        name: what that table is called in messages.
        limit: seconds after which we give up, in the middle of an attempt if need be.
        on_wait: called with one sentence before each attempt for which others stand in the way.

    Returns:
        What `action` returns.

    Raises:
        LockBusy: after `limit` seconds; the message names who holds the table.
    """
    ends = time.monotonic() + limit
    try:
        while True:
            holders = _holders(connection, table)
            if holders:
                on_wait(f"{name} is held by {holders}; waiting")
            left = max(ends - time.monotonic(), _BRIEF)
            _set_statement_timeout(connection, left)
            try:
                return action()
            except _LOCK_NOT_GRANTED:
                if time.monotonic() + _PAUSE > ends:
                    raise _busy(connection, table, name, limit) from None
            time.sleep(_PAUSE)
    finally:
        if not connection.closed:
            _set_statement_timeout(connection, 0)


def _busy(connection: psycopg.Connection, table: int, name: str, limit: float) -> LockBusy:
    _set_statement_timeout(connection, 0)
    holders = _holders(connection, table) or "somebody who has just finished"
    return LockBusy(
        f"{name} could not be locked within {limit:g} s, so nothing was changed; it is held by "
        f"{holders}; end that, or wait longer with --wait"
    )


def _set_statement_timeout(connection: psycopg.Connection, seconds: float) -> None:
    setting = f"{int(seconds * 1000)}ms"
    connection.execute("SELECT pg_catalog.set_config('statement_timeout', %s, false)", [setting])


def _holders(connection: psycopg.Connection, table: int) -> str:
    """Who has held a lock on the table for more than a moment."""
    rows = connection.execute(HOLDERS, {"table": table, "age": _BRIEF}).fetchall()
    return ", ".join(
        f"{application} (pid {pid}, {state or 'working'}, for {age:.0f} s)"
        for pid, application, state, age in rows
    )
