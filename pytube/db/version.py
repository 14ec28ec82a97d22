"""Which version of our SQL is installed, which one this package needs, and where its files are."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg import sql

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
    """The newest migration that ran in `schema`; None when nothing of ours is there."""
    with translated():
        if connection.execute(_exists(schema)).fetchone() != (True,):
            return None
        version: str | None
        ((version,),) = connection.execute(_recorded(schema)).fetchall()
    return version


async def installed_async(connection: psycopg.AsyncConnection, schema: str) -> str | None:
    """As `installed`, for a worker."""
    with translated():
        cursor = await connection.execute(_exists(schema))
        if await cursor.fetchone() != (True,):
            return None
        cursor = await connection.execute(_recorded(schema))
        version: str | None
        ((version,),) = await cursor.fetchall()
    return version


def check(connection: psycopg.Connection, schema: str) -> None:
    """Raise `SchemaMismatch`, which says what to run, unless the version is the one needed."""
    _compare(installed(connection, schema), schema)


def refuse_newer(version: str | None, schema: str) -> None:
    """Raise `SchemaMismatch` if what is installed is newer than this package."""
    if version is not None and version > needed():
        raise SchemaMismatch(
            f"the SQL in the schema {schema!r} is of version {version}, newer than {needed()}, "
            "which this package knows; install a newer pytube"
        )


async def check_async(connection: psycopg.AsyncConnection, schema: str) -> None:
    """As `check`, for a worker."""
    _compare(await installed_async(connection, schema), schema)


def _exists(schema: str) -> sql.Composed:
    query = sql.SQL(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = {} AND c.relname = {} "
        # A view, or a policy, could run somebody's code with the rights of the one who looks.
        "AND c.relkind = 'r' AND NOT c.relrowsecurity)"
    )
    return query.format(schema, VERSION_TABLE)


def _recorded(schema: str) -> sql.Composed:
    table = sql.Identifier(schema, VERSION_TABLE)
    return sql.SQL("SELECT pg_catalog.max(version_num)::text FROM ONLY {}").format(table)


def _compare(version: str | None, schema: str) -> None:
    if version is None:
        raise SchemaMismatch(f"our SQL is not in the schema {schema!r}; run `pytube install`")
    if version < needed():
        raise SchemaMismatch(
            f"the SQL in the schema {schema!r} is of version {version}, and {needed()} is needed; "
            "run `pytube upgrade`"
        )
    refuse_newer(version, schema)
