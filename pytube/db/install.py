"""Installs, upgrades and removes our SQL."""

from __future__ import annotations

import psycopg
from pydantic import SecretStr

from pytube.db.connect import connect_sync
from pytube.db.errors import translated
from pytube.db.script import contents, run_page
from pytube.db.version import installed, refuse_newer
from pytube.errors import UsageError


def install(dsn: str | SecretStr, schema: str = "tube", roles: str | None = None) -> str:
    """Install our SQL into `schema`, or bring it up to date; twice is the same as once.

    Args:
        dsn: a libpq connection string or URI.
        schema: a schema of its own; made if missing.
        roles: what the names of our roles begin with; None: the schema's name, or what it was before.

    Returns:
        What is installed now, in two lines: version, schema, roles, event triggers.

    Raises:
        DatabaseUnavailable: no session could be had.
        ScriptError: Postgres refused a statement, e.g. for want of a privilege. Nothing changed, except
            tables of tubes that the new version had changed already.
        SchemaMismatch: the SQL that is there is newer than this package.
    """
    with _session(dsn, "pytube install") as connection, translated():
        refuse_newer(connection, schema)
        return run_page(connection, contents("install.sql"), schema, roles=roles)


def upgrade(dsn: str | SecretStr, schema: str = "tube", roles: str | None = None) -> str:
    """As `install`, but that Alembic runs the migrations. Ends in the same database."""
    # Here, because Alembic and SQLAlchemy take longer to load than most commands take to run.
    from pytube.db.migrate import migrate

    with _session(dsn, "pytube upgrade") as connection, translated():
        refuse_newer(connection, schema)
        return run_page(
            connection,
            contents("install.sql"),
            schema,
            roles=roles,
            migrate=lambda revision: migrate(connection, schema, revision),
        )


def uninstall(dsn: str | SecretStr, schema: str = "tube", *, force: bool = False) -> str:
    """Take all of our SQL away, the tubes and the triggers on attached tables included.

    Returns:
        What was done, in a line.

    Raises:
        UsageError: tables are attached, tubes hold pods or parked documents, or outboxes records, and `force`
            is not set; or nothing is installed. Nothing changed.
    """
    with _session(dsn, "pytube uninstall") as connection, translated():
        if installed(connection, schema) is None:
            raise UsageError(f"there is nothing of ours in the schema {schema!r}; give another with --schema")
        return run_page(connection, contents("uninstall.sql"), schema, force=force)


def _session(dsn: str | SecretStr, name: str) -> psycopg.Connection:
    """A session that takes nothing for ours, or for Postgres' own, that somebody else may have made."""
    return connect_sync(dsn, "pg_catalog", application_name=name, also=("pg_temp",))
