"""Errors and messages of Postgres: translated to ours, classified, logged. None holds a connection string."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.errors import Diagnostic

from pytube.db.hints import for_command_line
from pytube.errors import SQLSTATES, DatabaseUnavailable, PytubeError, SchemaMismatch
from pytube.logs import Logger

TRANSIENT = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""Rolled back as a whole through no fault of the statement, which may succeed when repeated at once.
Timeouts are not among them: the code that sets one decides what to do when it is reached."""

_GONE = {
    "25P03",  # idle_in_transaction_session_timeout
    "57P01",  # admin_shutdown
    "57P02",  # crash_shutdown
    "57P03",  # cannot_connect_now
    "57P04",  # database_dropped
    "57P05",  # idle_session_timeout
    "53300",  # too_many_connections
}
_NOT_THERE = {"42883", "42P01", "3F000"}  # function, table, schema
_OURS = re.compile(r"tube_|\boutbox_")


def translate(error: psycopg.Error) -> PytubeError | None:
    """Our error for `error`, or None when there is none.

    Message and hint of errors that our SQL raises are kept; a connection that can't be made or
    was lost becomes `DatabaseUnavailable`; a missing function or table of ours `SchemaMismatch`.
    """
    state = error.sqlstate
    if state in SQLSTATES:
        return SQLSTATES[state](describe(error))
    if is_connection_lost(error):
        return DatabaseUnavailable(f"Postgres is not available: {describe(error)}")
    if state in _NOT_THERE and _OURS.search(error.diag.message_primary or ""):
        return SchemaMismatch(
            f"our SQL is not installed here, or is another version ({error.diag.message_primary}); "
            "run `pytube install`, or `pytube upgrade` where there is an older one"
        )
    return None


def is_outage(error: psycopg.Error | PytubeError) -> bool:
    """Whether an error, translated or not, means that the connection was lost or could not be made."""
    if isinstance(error, psycopg.Error):
        return is_connection_lost(error)
    return isinstance(error, DatabaseUnavailable)


def is_connection_lost(error: psycopg.Error) -> bool:
    """Whether the session was lost, or could not be opened: a new session may work."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state in _GONE or state.startswith("08")


def describe(error: psycopg.Error) -> str:
    """Message and hint of an error, on one line."""
    text = with_hint(error.diag) or str(error)
    return " ".join(text.split()) or type(error).__name__


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of Postgres inside the block as ours if `translate` knows them; others pass unchanged."""
    try:
        yield
    except psycopg.Error as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error


_log = Logger("pytube.postgres")


def with_hint(notice: Diagnostic) -> str:
    """The message, and in parentheses what to do, in the words of the command line."""
    text = notice.message_primary or ""
    return f"{text} ({for_command_line(notice.message_hint)})" if notice.message_hint else text


def log_notice(notice: Diagnostic) -> None:
    """Log one message by its severity; what only repeats that nothing was to be done, as debug."""
    text = with_hint(notice)
    if notice.severity_nonlocalized == "WARNING":
        level = logging.WARNING
    elif "already exists, skipping" in text or "does not exist, skipping" in text:
        level = logging.DEBUG
    else:
        level = logging.INFO
    _log.write(level, "postgres_said", {"text": text})
