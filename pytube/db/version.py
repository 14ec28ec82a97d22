"""Which version of pytube's SQL is installed, which one this package needs, and where its files are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

import pytube
from pytube.db.errors import translated
from pytube.errors import PytubeError, SchemaMismatch

_PACKAGE = Path(pytube.__file__).parent


def sql_dir() -> Path:
    """The folder of `install.sql`."""
    return _folder("sql")


def migrations_dir() -> Path:
    """The folder of Alembic's environment."""
    return _folder("migrations")


def _folder(name: str) -> Path:
    for parent in (_PACKAGE / "_resources", _PACKAGE.parent):
        if (parent / name).is_dir():
            return parent / name
    raise PytubeError(
        f"the folder {name}/ is neither in the package {_PACKAGE} nor beside it; "
        "install pytube again from a complete wheel"
    )


VERSION_TABLE = "tube_version"
"""One row: the newest revision that was run. `install.sql` keeps the same table, as does Alembic."""


def needed() -> str:
    """The newest migration of this package, e.g. `0001`."""
    return max(path.name.split("_")[0] for path in (sql_dir() / "migrations").glob("[0-9]*.sql"))


def installed(connection: psycopg.Connection, schema: str) -> str | None:
    """The newest migration that ran in `schema`; None when pytube is not installed there.

    Raises:
        SchemaMismatch: the session is a superuser's, and the schema may contain another role's code.
    """
    with translated():
        return installed_by(lambda query: connection.execute(query).fetchall(), schema)


def installed_by(rows: Callable[[sql.Composed], Sequence[Any]], schema: str) -> str | None:
    """As `installed`, over a session of any kind; `rows` runs a query."""
    found = rows(state(schema))
    if not _is_readable(found[0] if found else None, schema):
        return None
    ((version,),) = rows(_recorded(schema))
    return version if version is None else str(version)


async def installed_async(connection: psycopg.AsyncConnection, schema: str) -> str | None:
    """As `installed`, for a worker."""
    with translated():
        cursor = await connection.execute(state(schema))
        if not _is_readable(await cursor.fetchone(), schema):
            return None
        cursor = await connection.execute(_recorded(schema))
        version: str | None
        ((version,),) = await cursor.fetchall()
    return version


def check(connection: psycopg.Connection, schema: str) -> None:
    """Raise `SchemaMismatch`, which says what to run, unless the version is the one needed."""
    _compare(installed(connection, schema), schema)


def refuse_newer(version: str | None, schema: str) -> None:
    """Raise `SchemaMismatch` if the installed SQL is newer than this package."""
    if version is not None and version > needed():
        raise SchemaMismatch(
            f"the SQL in the schema {schema!r} is of version {version}, newer than {needed()}, "
            "which this package knows; install a newer pytube"
        )


async def check_async(connection: psycopg.AsyncConnection, schema: str) -> None:
    """As `check`, for a worker."""
    _compare(await installed_async(connection, schema), schema)


def state(schema: str) -> sql.Composed:
    """The query whether the table of versions is there; of a superuser, who else may have put code into the
    schema; and its owner. No row: there is no schema.

    Whoever may create schemas can prepare one of this name, and what a superuser calls there runs with all
    rights.
    """
    query = sql.SQL(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = {} "
        # A view, or a policy, could run another role's code with the reader's rights.
        "AND c.relkind = 'r' AND NOT c.relrowsecurity), "
        "(SELECT pg_catalog.min(r.rolname::text) FROM pg_catalog.pg_roles r "
        "WHERE r.rolcanlogin AND NOT r.rolsuper AND pg_catalog.pg_has_role(r.oid, n.nspowner, 'MEMBER') "
        "AND EXISTS (SELECT FROM pg_catalog.pg_roles u WHERE u.rolname = current_user AND u.rolsuper)), "
        "pg_catalog.pg_get_userbyid(n.nspowner)::text "
        "FROM pg_catalog.pg_namespace n WHERE n.nspname = {}"
    )
    return query.format(VERSION_TABLE, schema)


def _is_readable(state: TupleRow | None, schema: str) -> bool:
    """Whether there is a table of versions, by what `state` gives."""
    if state is None:
        return False
    exists, stranger, owner = state
    if stranger is not None:
        acts = "" if stranger == owner else f", as which {stranger} can act"
        raise SchemaMismatch(
            f"the schema {schema} belongs to {owner}{acts}, not to a superuser, and its code would run with "
            "your superuser rights; run this as a member of the role that docs/security.md names, or drop "
            "the schema if it is not pytube's"
        )
    return bool(exists)


def _recorded(schema: str) -> sql.Composed:
    table = sql.Identifier(schema, VERSION_TABLE)
    return sql.SQL("SELECT pg_catalog.max(version_num)::text FROM ONLY {}").format(table)


def _compare(version: str | None, schema: str) -> None:
    if version is None:
        raise SchemaMismatch(f"pytube is not installed in the schema {schema!r}; run `pytube install`")
    if version < needed():
        raise SchemaMismatch(
            f"the SQL in the schema {schema!r} is of version {version}, and {needed()} is needed; "
            "run `pytube install`"
        )
    refuse_newer(version, schema)
