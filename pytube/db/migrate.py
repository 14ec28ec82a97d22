"""Alembic, configured here: there is no alembic.ini to write."""

from __future__ import annotations

from typing import Any

import psycopg
import sqlalchemy as sa
from alembic import command, op
from alembic.config import Config
from sqlalchemy.pool import StaticPool

from pytube.db.install import run_file
from pytube.db.version import migrations_dir


def migrate(connection: psycopg.Connection, schema: str, revision: str) -> None:
    """Bring the tables in `schema` to `revision`, within the caller's transaction, as who it is there."""
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: _Borrowed(connection),
        poolclass=StaticPool,
        use_native_hstore=False,
    )
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    with engine.connect() as bind:
        config.attributes.update(connection=bind, schema=schema)
        command.upgrade(config, revision)


def run_migration(name: str) -> None:
    """Run `sql/migrations/<name>.sql`; what a revision file consists of."""
    context = op.get_context()
    borrowed: Any = op.get_bind().connection.driver_connection
    variables = {"schema": str(context.version_table_schema)}
    run_file(borrowed.connection, f"migrations/{name}.sql", variables)


class _Borrowed:
    """A connection of psycopg as SQLAlchemy wants one, whose end of transaction is another's.

    SQLAlchemy may neither commit, roll back nor close the caller's transaction.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection

    def commit(self) -> None:
        """Left to the caller."""

    def rollback(self) -> None:
        """Left to the caller."""

    def close(self) -> None:
        """Left to the caller."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)
