"""The program: global options, and its commands."""

from __future__ import annotations

from pathlib import Path

import click

import pytube
from pytube import logs
from pytube.cli.backfill import backfill
from pytube.cli.config import config
from pytube.cli.context import Settings
from pytube.cli.demo import demo
from pytube.cli.doctor import doctor
from pytube.cli.exit_codes import EXIT_CODES, Program
from pytube.cli.install import install, uninstall, upgrade
from pytube.cli.park import park
from pytube.cli.spark import spark
from pytube.cli.status import status
from pytube.cli.tube import tube
from pytube.cli.worker import worker


@click.group(cls=Program, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("pytube.toml"),
    envvar="PYTUBE_CONFIG",
    show_default=True,
    show_envvar=True,
    help="The configuration file.",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="info",
    show_default=True,
    help="Log this and above.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "human", "json"]),
    default="auto",
    show_default=True,
    help="auto is human on a terminal, and json elsewhere. Logs go to stderr.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(pytube.__version__, prog_name="pytube")
@click.pass_context
def cli(
    context: click.Context, config_path: Path, log_level: str, log_format: logs.Format, debug: bool
) -> None:
    """Keep copies of Postgres data equal to their source, and prove it."""
    logs.configure(log_level, log_format)
    context.obj = Settings(config_path, debug)


for command in (
    install,
    upgrade,
    uninstall,
    doctor,
    config,
    tube,
    worker,
    status,
    park,
    backfill,
    spark,
    demo,
):
    cli.add_command(command)
