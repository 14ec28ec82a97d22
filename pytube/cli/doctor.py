"""`pytube doctor`."""

from __future__ import annotations

from dataclasses import asdict

import click

from pytube.cli.context import Database, Settings, database_options, json_option
from pytube.cli.output import console, print_json
from pytube.config import Config, PostgresConfig
from pytube.health.check import Check, Level
from pytube.health.doctor import examine

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command()
@json_option
@database_options
@click.pass_obj
def doctor(settings: Settings, database: Database, as_json: bool) -> None:
    """Look at everything that a worker needs, and say what to do.

    With a configuration file: Postgres, the election, the sinks. Without one: Postgres.
    """
    postgres = PostgresConfig(dsn=database.dsn, schema_name=database.schema)
    if settings.path.exists():
        config = settings.config().model_copy(update={"postgres": postgres})
    else:
        config = Config(postgres=postgres)
    checks = []
    for check in examine(config):
        checks.append(check)
        if not as_json:
            _print(check)
    if as_json:
        print_json([asdict(check) for check in checks])
    failed = sum(check.level is Level.FAIL for check in checks)
    if failed:
        if not as_json:
            click.echo(f"{failed} of {len(checks)} checks fail", err=True)
        click.get_current_context().exit(1)


def _print(check: Check) -> None:
    out = console()
    out.print(check.level.ljust(4), style=_STYLES[check.level], end=" ")
    out.print(f"{check.subject}: {check.finding}", markup=False, soft_wrap=True)
    if check.remedy is not None:
        out.print(f"     -> {check.remedy}", markup=False, soft_wrap=True)
