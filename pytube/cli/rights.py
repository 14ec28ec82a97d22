"""The sentence of a command whose role misses a right: which right, and which role to use instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import errors, sql
from psycopg.rows import class_row

from pytube.cli.context import Asked
from pytube.db.connect import connect_sync
from pytube.db.database import Database
from pytube.db.errors import describe
from pytube.errors import PytubeError, SchemaMismatch

_DENIED = re.compile(r"permission denied for (?P<kind>\w+) (?P<name>.+)")
_KINDS: Final = ("monitor", "writer", "worker", "admin")
"""The kinds of pytube's roles that logins are made members of; the least powerful first."""

_RUN_BY: Final = {
    "monitor": """audit, explain, plan, status, top, verify, wait, web, backfill status, document show,
        outbox list, outbox parked list, outbox parked show, outbox status, park list, park show, pods list,
        pods show, spark jobs, tube list""",
    "writer": "touch, outbox pump, spark fanout, spark reconcile, spark touch",
    "worker": "doctor, worker",
}
COMMANDS: Final = {
    tuple(command.split()): kind for kind, commands in _RUN_BY.items() for command in commands.split(",")
}
"""The kind of role that each command is for; all others are the admin's. As in docs/security.md."""
_INSTALLS: Final = {("install",), ("upgrade",), ("uninstall",)}

_WHO: Final = r"""
    WITH installed AS (
        SELECT n.oid, pg_catalog.left(o.rolname, -6) AS prefix
        FROM pg_catalog.pg_namespace AS n JOIN pg_catalog.pg_roles AS o ON o.oid = n.nspowner
        WHERE n.nspname = %(schema)s AND o.rolname LIKE '%%\_owner'
    )
    SELECT current_user::text AS role, pg_catalog.current_database()::text AS database,
        (SELECT s.prefix FROM installed AS s) AS prefix,
        EXISTS (SELECT FROM installed AS s WHERE has_schema_privilege(s.oid, 'USAGE')) AS sees,
        ARRAY(
            SELECT k.kind FROM installed AS s CROSS JOIN unnest(%(kinds)s::text[]) AS k (kind)
            JOIN pg_catalog.pg_roles AS r ON r.rolname = s.prefix || '_' || k.kind
            WHERE CASE %(kind)s
                WHEN 'function' THEN (
                    SELECT bool_and(has_function_privilege(r.oid, p.oid, 'EXECUTE'))
                    FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = s.oid AND p.proname = %(name)s)
                WHEN 'schema' THEN %(name)s = %(schema)s
                -- Postgres does not name the schema: another table may have the name of a tube.
                ELSE (SELECT bool_and(c.relnamespace = s.oid AND CASE %(kind)s
                        WHEN 'table' THEN c.relkind = 'r' AND has_table_privilege(r.oid, c.oid, 'SELECT')
                        WHEN 'sequence' THEN c.relkind = 'S' AND has_sequence_privilege(r.oid, c.oid, 'USAGE')
                        ELSE false END)
                    FROM pg_catalog.pg_class AS c WHERE c.relname = %(name)s) END
        ) AS holders
"""


@dataclass(frozen=True, slots=True)
class _Session:
    """The role of the session, and the roles that have the missing right."""

    role: str
    database: str
    prefix: str | None
    """The prefix of the names of pytube's roles; None where pytube is not installed."""
    sees: bool
    """Whether the role may use pytube's schema."""
    holders: Sequence[str]
    """The `_KINDS` that have the right; empty for a right on anything but pytube's own objects."""


def refusal(error: BaseException, asked: Asked | None) -> str | None:
    """The sentence for people if an error of a command comes from a missing right; or None."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, errors.InsufficientPrivilege):
            said, denial = describe(cause), cause.diag.message_primary or ""
            is_one = asked is not None and len(asked.databases) == 1  # of several it is not known which
            session = _look(asked.databases[0], denial) if asked is not None and is_one else None
            return _sentence(
                said, session, None if cause.diag.message_hint else _remedy(denial, asked, session)
            )
    if asked is not None and any(isinstance(cause, SchemaMismatch) for cause in causes):
        for database in asked.databases:
            # Postgres hides the objects of a schema that a role may not use.
            denial = f"permission denied for schema {database.schema}"
            session = _look(database, denial)
            if session is not None and session.prefix is not None and not session.sees:
                return _sentence(denial, session, _remedy(denial, asked, session))
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _sentence(said: str, session: _Session | None, remedy: str | None) -> str:
    role = "this role" if session is None else f"the role {_quoted(session.role)}"
    return f"{role} may not do that: {said}" + ("" if remedy is None else f"; {remedy}")


def _look(database: Database, denial: str) -> _Session | None:
    """Ask the database, as the role that was refused; None when the server went away meanwhile."""
    found = _DENIED.search(denial)
    kind, name = (found["kind"], found["name"]) if found else ("", "")
    arguments = {"schema": database.schema, "kinds": list(_KINDS), "kind": kind, "name": name}
    try:
        with (
            connect_sync(database.dsn, "pg_catalog", application_name="pytube cli", also=()) as connection,
            connection.cursor(row_factory=class_row(_Session)) as cursor,
        ):
            return cursor.execute(_WHO, arguments).fetchone()
    except (psycopg.Error, PytubeError):
        return None


def _remedy(denial: str, asked: Asked | None, session: _Session | None) -> str:
    """The remedy for a refusal of Postgres."""
    if asked is None or session is None:
        return _any_role("tube")
    role, prefix, command = _quoted(session.role), session.prefix or "tube", tuple(asked.command)
    if denial.startswith("permission denied for database"):
        return f"as its owner, run: GRANT CREATE ON DATABASE {_quoted(session.database)} TO {role}"
    if command in _INSTALLS:
        return (
            "run it as the role that installed, which has the rights of "
            f"{_quoted(prefix + '_owner')}, or as a superuser"
        )
    if session.holders:
        kind = COMMANDS.get(command, "admin")
        kind = kind if kind in session.holders else session.holders[0]
        needed = _quoted(f"{prefix}_{kind}")
        run = f"run it as a member of {needed}"
        # A worker's role reads tables of people who can run code as that role: it must not get `tube_admin`.
        return run if kind == "admin" else f"{run}; if {role} is to be one, run: GRANT {needed} TO {role}"
    if denial.startswith("must be owner"):
        return "run it as its owner, or as a superuser"
    is_of_others = denial.startswith("permission denied for")
    others = f"no role of pytube has this right: the owner can GRANT it to {role}"
    return others if is_of_others else _any_role(prefix)


def _any_role(prefix: str) -> str:
    monitor, writer, worker, admin = (_quoted(f"{prefix}_{kind}") for kind in _KINDS)
    return (
        f"run it as a member of the role that may: {monitor} looks on, {writer} touches, {worker} serves "
        f"tubes, {admin} does all of it"
    )


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else sql.Identifier(name).as_string()
