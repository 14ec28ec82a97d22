"""Before a worker runs: `pytube install`, `upgrade`, `uninstall`, `config …`, `doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import click
import orjson
from click.core import ParameterSource

from pytube.cli.context import (
    confirm,
    database_options,
    databases_of,
    declared_of,
    flag,
    json_option,
    refuse_json,
    schema_of,
    yes_option,
)
from pytube.cli.output import print_json, print_text, progress_meter, tell, wants_json
from pytube.cli.program import NOT_WELL, Settings
from pytube.config import Config, PostgresConfig, masked
from pytube.config.section import key_path
from pytube.db import install as database_install
from pytube.db.database import Database
from pytube.health.doctor import examine
from pytube.health.findings import Check, Level, with_host

_ROLES = click.option(
    "--roles",
    metavar="NAME",
    help="Prefix for the names of pytube's roles (NAME_admin, …). [default: the current prefix, "
    "or the schema's name]",
)

_HEAD = """\
-- Installs pytube, or brings an older installation up to date, as `pytube install` does. Can be run again.
-- One statement, all or nothing, for any client; commit it where that is not done for you. With psql, which
-- does so unless ~/.psqlrc says otherwise: psql -X -v ON_ERROR_STOP=1 -f FILE DATABASE
-- Run it as the role that is to install: a superuser, or a role with CREATEROLE and CREATE on the database.
"""


@click.command()
@_ROLES
@flag(
    "--print",
    "is_printed",
    help="Print the SQL, one statement for any client, and run nothing; needs no database.",
)
@database_options(unless="is_printed")
def install(database: Database, roles: str | None, is_printed: bool) -> None:
    """Install or upgrade pytube in the database."""
    if is_printed:
        refuse_json()
        click.echo(_HEAD + database_install.script(schema=database.schema, roles=roles), nl=False)
    else:
        _install("install", database, roles)


@click.command()
@_ROLES
@database_options()
def upgrade(database: Database, roles: str | None) -> None:
    """Upgrade pytube in the database; writers and workers can run."""
    _install("upgrade", database, roles)


def _install(command: str, database: Database, roles: str | None) -> None:
    run = database_install.install if command == "install" else database_install.upgrade
    with progress_meter(err=True) as meter:
        said = run(
            database.dsn,
            database.schema,
            roles,
            progress=lambda done, total, file: meter(command, done, total, f"runs {file}"),
        )
    _tell_installed("installed" if command == "install" else "upgraded", database, said)


@click.command()
@flag(
    "--force",
    help="Remove it even if tables are attached, or changes, parked documents, or records are "
    "left (deletes them).",
)
@yes_option
@database_options()
def uninstall(database: Database, force: bool, yes: bool) -> None:
    """Remove pytube and all tubes from the database; roles stay.

    Refused while tables are attached, or changes, parked documents, or records are left. With --force, asks
    on a terminal.
    """
    if force:
        confirm(
            f"remove the schema {database.schema} with all tubes and outboxes, and all changes and records "
            "in them?",
            yes=yes,
            forced=True,
        )
    said = database_install.uninstall(database.dsn, database.schema, force=force)
    _tell_installed("uninstalled", database, said)


def _tell_installed(done: str, database: Database, said: str) -> None:
    """Print the lines of the SQL files."""
    tell(said, {"done": done, "schema": database.schema, "messages": said.splitlines()})


@click.group()
def config() -> None:
    """Show the configuration."""


@config.command()
@json_option
@click.pass_obj
def show(settings: Settings) -> None:
    """Show the configuration with defaults filled in and secrets masked."""
    shown = masked(settings.config())
    if wants_json():
        print_json(shown)
        return
    for path, value in _flat(shown, ()):
        # Strings, numbers, flags and arrays are written the same in JSON and TOML.
        click.echo(f"{key_path(path)} = {orjson.dumps(value, default=str).decode()}")


def _flat(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, (*path, key))
    else:
        yield path, value


_COLORS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command()
@database_options(several=True)
@click.pass_obj
def doctor(settings: Settings, databases: Sequence[Database]) -> None:
    """Check everything a worker needs and suggest fixes.

    With a configuration file, checks Postgres, the election, tubes, outboxes, brokers, and sinks as a
    worker with that file would use them, on all hosts or the one of --host. Without a file, checks Postgres
    only. Either way, checks that every tube and outbox of the database is being delivered.
    """
    config, origin = _examined(settings, databases)
    host = click.get_current_context().params["host"]
    checks = []
    for found in examine(config, origin):
        check = with_host(found, host)
        checks.append(check)
        if not wants_json():
            _print(check)
    if wants_json():
        print_json([asdict(check) for check in checks])
    failed = sum(check.level is Level.FAIL for check in checks)
    if failed:
        if not wants_json():
            click.echo(f"checks that fail: {failed} of {len(checks)}", err=True)
        click.get_current_context().exit(NOT_WELL)


def _examined(settings: Settings, databases: Sequence[Database]) -> tuple[Config, str]:
    """The configuration, and what names its databases: the file, as for a worker, unless an option does."""
    database = databases[0]
    context = click.get_current_context()
    by_option = {
        name
        for name in ("dsn", "schema")
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if not settings.has_file:
        postgres = PostgresConfig(dsn=database.dsn, schema_name=database.schema)
        return Config(postgres=postgres), "--dsn" if "dsn" in by_option else "PYTUBE_DSN"
    if "dsn" not in by_option:  # PYTUBE_DSN is not what a worker would use
        schema = database.schema if "schema" in by_option else None
        databases = databases_of(settings, None, schema, context.params["host"])
    elif "schema" not in by_option:  # a worker would use it there, too
        databases = [replace(database, schema=schema_of(database.dsn))]
    options = " and ".join(f"--{name}" for name in sorted(by_option))
    return declared_of(*databases), f"{options}, not what a worker would use" if options else str(
        settings.path
    )


def _print(check: Check) -> None:
    level = click.style(check.level.ljust(4), fg=_COLORS[check.level])
    print_text("     ", f"{check.subject}: {check.finding}", level)
    if check.remedy is not None:
        more = "" if check.kind is None else f"; more: {check.kind.page}"
        print_text("     -> ", check.remedy + more)
