"""The program: global options, its commands, and how an error ends it.

An error is one sentence on stderr, and an exit code that means something.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import click
import psycopg
from click.core import ParameterSource

import pytube
from pytube import logs
from pytube.cli.backfill import backfill
from pytube.cli.context import Settings
from pytube.cli.installation import config, doctor, install, uninstall, upgrade
from pytube.cli.spark import spark
from pytube.cli.status import status
from pytube.cli.tube import park, tube
from pytube.cli.worker import demo, worker
from pytube.db.errors import describe
from pytube.errors import PytubeError

EXIT_CODES = """\b
Exit codes:
  0  done
  1  an error; doctor: something fails
  2  the command, its arguments or the configuration are wrong; nothing was changed
  3  Postgres or Kafka is not available
  4  the SQL that is installed is not the one that this version needs
  130, 143  a worker: ended at once by a second SIGINT or SIGTERM; others: interrupted
"""


class Program(click.Group):
    """A group whose commands may raise errors of ours."""

    def invoke(self, ctx: click.Context) -> None:
        """Run the command; what it raises becomes a sentence and an exit code."""
        try:
            super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click knows them
        except Exception as error:  # noqa: BLE001 - whatever it is, people get a sentence
            if isinstance(ctx.obj, Settings) and ctx.obj.debug:
                click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            message, code = _explain(error)
            click.echo(f"pytube: {message}", err=True)
            ctx.exit(code)


def _explain(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code for an error."""
    match error:
        case PytubeError():
            return str(error), error.exit_code
        case psycopg.Error():
            return f"Postgres refused: {describe(error)}", 1
        case _:
            return f"this is a fault of pytube: {type(error).__name__}: {error}; --debug shows where", 1


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
    named = context.get_parameter_source("config_path") is not ParameterSource.DEFAULT
    context.obj = Settings(config_path, named, debug)


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
