"""Installs, upgrades and removes our SQL."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg.pq import TransactionStatus
from pydantic import SecretStr

from pytube.db.connect import connect_sync
from pytube.db.errors import translated
from pytube.db.resources import sql_dir
from pytube.db.script import Script
from pytube.db.version import installed, refuse_newer
from pytube.errors import UsageError


def install(dsn: str | SecretStr, schema: str = "tube", roles: str | None = None) -> None:
    """Install our SQL into `schema`, or bring it up to date; twice is the same as once.

    Args:
        dsn: a libpq connection string or URI.
        schema: a schema of its own; made if missing.
        roles: what the names of our roles begin with; None: the schema's name, or what it was before.

    Raises:
        DatabaseUnavailable: no session could be had.
        ScriptError: Postgres refused a statement, e.g. for want of a privilege. Nothing changed.
        SchemaMismatch: the SQL that is there is newer than this package.
    """
    with _session(dsn, "pytube install") as connection:
        refuse_newer(connection, schema)
        run_file(connection, sql_dir() / "install.sql", _variables(schema, roles))


def upgrade(dsn: str | SecretStr, schema: str = "tube", roles: str | None = None) -> None:
    """Run the migrations that are missing, and re-create the functions, in one transaction.

    Before that, tables of tubes are changed where they have to be, each in a transaction of its own.
    Ends in the same database as `install`. Arguments and errors are the same.
    """
    # Here, because Alembic and SQLAlchemy take longer to load than most commands take to run.
    from pytube.db.migrate import migrate

    with (
        _session(dsn, "pytube upgrade") as connection,
        translated(),
    ):
        refuse_newer(connection, schema)
        run_file(connection, sql_dir() / "reshape.sql", _variables(schema, roles))
        with connection.transaction():
            migrate(connection, schema, roles=roles)
            run_file(connection, sql_dir() / "install.sql", _variables(schema, roles))


def uninstall(dsn: str | SecretStr, schema: str = "tube", *, force: bool = False) -> None:
    """Take all of our SQL away, the tubes and the triggers on attached tables included.

    Raises:
        UsageError: tubes hold pods and `force` is not set, or nothing is installed. Nothing changed.
    """
    variables = {"schema": schema} | ({"force": "1"} if force else {})
    with _session(dsn, "pytube uninstall") as connection:
        if installed(connection, schema) is None:
            raise UsageError(f"there is nothing of ours in the schema {schema!r}; give another with --schema")
        run_file(connection, sql_dir() / "uninstall.sql", variables)


def _session(dsn: str | SecretStr, name: str) -> psycopg.Connection:
    """A session that takes nothing for ours, or for Postgres' own, that somebody else may have made."""
    return connect_sync(dsn, "pg_catalog", application_name=name, also=("pg_temp",))


def _variables(schema: str, roles: str | None) -> dict[str, str]:
    """What `psql -v` would set."""
    return {"schema": schema} | ({} if roles is None else {"roles": roles})


def run_file(connection: psycopg.Connection, path: Path, variables: dict[str, str]) -> None:
    """Run one of our files; what it begins it ends, also when it fails."""
    outside = connection.info.transaction_status is TransactionStatus.IDLE
    try:
        Script(connection, variables).run(path)
    finally:
        if outside and not connection.closed:
            connection.rollback()
