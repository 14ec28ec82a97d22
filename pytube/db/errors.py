"""Errors and messages of Postgres: translated, classified, logged. None holds a connection string."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.errors import Diagnostic

from pytube.errors import SQLSTATES, DatabaseUnavailable, PytubeError, SchemaMismatch
from pytube.logs import Logger

# --- hints in the words of the command line -------------------------------------------------------
# pytube's SQL speaks to psql: it names variables (`psql -v force=1`), arguments (`id_col => COLUMN`) and
# functions. The command line has an option by the same name for each of these variables and arguments, and a
# command for some functions.

_COMMANDS = {
    "outbox_ensure_exists": "pytube outbox create",
    "outbox_adopt": "pytube outbox adopt",
    "outbox_drop": "pytube outbox drop",
    "tube_ensure_exists": "pytube tube create",
    "tube_table_ensure_attached": "pytube tube attach",
    "tube_table_ensure_detached": "pytube tube detach",
    "tube_backfill_list()": "pytube backfill status",
    "tube_job_list()": "pytube spark jobs",
    "tube_pause": "pytube pause",
    "tube_resume": "pytube resume",
}
_SENTENCES = {
    "Functions whose names begin with tube_ are for tubes.": "`pytube tube list` lists the tubes, and "
    "`pytube status` shows their backlog; use the `pytube outbox` commands for outboxes.",
    "Functions whose names begin with outbox_ are for outboxes.": "`pytube outbox list` lists the outboxes; "
    "other commands of `pytube outbox` are for them, too.",
}
"""Hints about a kind of functions, where the command line has a group of commands."""
_OPTIONS = {"key_type": "keys", "key_cols": "key"}
"""Options that have another name than the argument."""

_FUNCTION = re.compile(r"\b(?:" + "|".join(map(re.escape, _COMMANDS)) + r")(?!\w)")
_SETTING = re.compile(r"\b(?:psql -v (?P<variable>\w+)=|(?P<argument>\w+) => )(?P<value>\w+|'\{[\w,]+\}')")


def for_command_line(hint: str) -> str:
    """The hint, naming options and commands in place of variables, arguments and functions."""
    for sentence, ours in _SENTENCES.items():
        hint = hint.replace(sentence, ours)
    return _SETTING.sub(_option, _FUNCTION.sub(lambda match: f"`{_COMMANDS[match[0]]}`", hint))


def _option(match: re.Match[str]) -> str:
    name = match["variable"] or match["argument"]
    option = f"--{_OPTIONS.get(name, name).replace('_', '-')}"
    value = match["value"].strip("'{}")
    return option if value in ("1", "true") else f"{option} {value}"


# --- errors ---------------------------------------------------------------------------------------


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
    """The error of pytube for `error`, or None when there is none.

    Message and hint of errors that the SQL raises are kept; a connection that can't be made or
    was lost becomes `DatabaseUnavailable`; a missing function or table of pytube `SchemaMismatch`.
    """
    state = error.sqlstate
    if state in SQLSTATES:
        return SQLSTATES[state](describe(error))
    if is_connection_lost(error):
        return DatabaseUnavailable(f"Postgres is not available: {describe(error)}")
    if state in _NOT_THERE and _OURS.search(error.diag.message_primary or ""):
        return SchemaMismatch(
            f"this database has no pytube SQL, or another version of it ({error.diag.message_primary}); "
            "run `pytube install`"
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
    """Raise errors of Postgres inside the block as pytube's if `translate` knows them; others pass."""
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
