"""Errors and messages of Postgres: translated, classified, logged; and the remedy where it refuses a read.

None holds a connection string.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

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

OF_DATA: Final = ("20", "21", "22", "23", "38", "54", "P0")
"""Classes of SQLSTATEs by which single rows make a statement fail: a CASE of a function, cardinality, data,
constraints of domains and tables, code in other languages, limits (of nesting, say), a function's RAISE."""

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


# --- the statements that let a role read what Postgres has refused it ----------------------------------

GRANTS: Final = """
    WITH denied AS (
        SELECT c.relname, n.oid AS schema_oid, n.nspname, (n.nspname, c.relname) IN (
            SELECT * FROM unnest(%(schemas)s::text[], %(tables)s::text[])) AS is_known
        FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT has_table_privilege(c.oid, 'SELECT')
            AND %(name)s
                = CASE %(kind)s WHEN 'table' THEN c.relname WHEN 'schema' THEN n.nspname ELSE %(name)s END
    ), guessed AS (
        SELECT d.*, count(*) OVER () AS guesses FROM denied AS d
        WHERE %(kind)s = 'table' AND NOT EXISTS (SELECT FROM denied AS o WHERE o.is_known)
            AND has_schema_privilege(d.schema_oid, 'USAGE')
    ), meant AS (
        SELECT d.schema_oid, d.nspname, d.relname FROM denied AS d WHERE d.is_known
        UNION ALL
        SELECT g.schema_oid, g.nspname, g.relname FROM guessed AS g WHERE g.guesses = 1
    ), called AS (
        SELECT n.nspname, p.oid, p.proname, count(*) OVER () AS guesses
        FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
        WHERE %(kind)s = 'function' AND p.proname = %(name)s AND NOT has_function_privilege(p.oid, 'EXECUTE')
            AND has_schema_privilege(n.oid, 'USAGE')
    )
    SELECT grant_it || ' TO ' || quote_ident(current_user) FROM (
        SELECT 1, format('GRANT USAGE ON SCHEMA %%I', n.nspname) FROM pg_catalog.pg_namespace AS n
        WHERE NOT has_schema_privilege(n.oid, 'USAGE') AND (
            %(kind)s = 'schema' AND n.nspname = %(name)s OR n.oid IN (SELECT m.schema_oid FROM meant AS m))
        UNION ALL
        SELECT 2, format('GRANT SELECT ON %%I.%%I', m.nspname, m.relname) FROM meant AS m
        UNION ALL
        SELECT 3, format('GRANT EXECUTE ON FUNCTION %%I.%%I(%%s)', c.nspname, c.proname,
            pg_catalog.pg_get_function_identity_arguments(c.oid))
        FROM called AS c WHERE c.guesses = 1
    ) AS found (place, grant_it)
    ORDER BY place, grant_it
    LIMIT 5
"""
"""The statements; to be asked as the role that was refused.

Postgres names a table or a function without its schema. Unless the table is known to be read, its name has to
be unique in the schemas that the role may use: a grant on another table would give a needless right.
"""

_DENIED = re.compile(r"permission denied for (?P<kind>schema|function|[a-z ]*(?:table|view)) (?P<name>.+)")


def about(error: psycopg.Error, tables: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any]:
    """The arguments of `GRANTS` for a refusal; `tables`: known to be read, as schema and name."""
    kind, name = _denied(error)
    return {
        "kind": kind,
        "name": name,
        "schemas": [schema for schema, _ in tables],
        "tables": [table for _, table in tables],
    }


def _denied(error: psycopg.Error) -> tuple[str, str]:
    """The kind and the name of the refused object; both empty if unknown."""
    found = _DENIED.fullmatch(error.diag.message_primary or "")
    if found is None:
        return "", ""
    return found["kind"] if found["kind"] in ("schema", "function") else "table", found["name"]


def how_to_let_read(error: psycopg.Error, role: str, rows: Sequence[Sequence[Any]] = ()) -> str:
    """The remedy where a role may not read; `rows`: as `GRANTS` gives them."""
    quoted = psycopg.sql.Identifier(role).as_string()
    if "row-level security" in (error.diag.message_primary or ""):
        return f"as a superuser, run: ALTER ROLE {quoted} BYPASSRLS"
    if rows:
        return f"as the owner, run: {'; '.join(str(grant) for (grant,) in rows)}"
    if _denied(error)[0] == "function":
        return f"grant {role} EXECUTE on the function of this name that the query calls"
    return (
        f"grant {role} SELECT on all that the query reads, and USAGE on the schemas; where row-level "
        "security applies, BYPASSRLS, too"
    )
