"""`pytube install`, `upgrade`, `uninstall`."""

from __future__ import annotations

import click

from pytube.cli.context import Database, database_options
from pytube.db import install as database_install

_ROLES = click.option(
    "--roles",
    metavar="NAME",
    help="What the names of our roles begin with (NAME_admin, …); else the schema's name, or as before.",
)


@click.command()
@_ROLES
@database_options
def install(database: Database, roles: str | None) -> None:
    """Install our SQL into the database, or bring it up to date."""
    click.echo(database_install.install(database.dsn, database.schema, roles))


@click.command()
@_ROLES
@database_options
def upgrade(database: Database, roles: str | None) -> None:
    """Run the migrations that are missing, and renew the functions; writers and workers may go on."""
    click.echo(database_install.upgrade(database.dsn, database.schema, roles))


@click.command()
@click.option("--force", is_flag=True, help="Also while tubes hold pods, which are lost then.")
@database_options
def uninstall(database: Database, force: bool) -> None:
    """Take our SQL away, with all tubes. Refused while they hold pods."""
    click.echo(database_install.uninstall(database.dsn, database.schema, force=force))
