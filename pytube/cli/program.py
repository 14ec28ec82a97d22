"""The program: global options, its commands, and how an error ends it.

An error is one sentence on stderr, and an exit code that means something.
"""

from __future__ import annotations

import importlib
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

import pytube

if TYPE_CHECKING:
    from pytube.config import Config
    from pytube.logs import Format

COMMANDS = {
    "install": ("installation", "Install our SQL into the database, or bring it up to date."),
    "upgrade": (
        "installation",
        "Run the migrations that are missing, and renew the functions; writers and workers may go on.",
    ),
    "uninstall": ("installation", "Take our SQL away, with all tubes."),
    "doctor": ("installation", "Check everything a worker needs and suggest fixes."),
    "config": ("installation", "The configuration file."),
    "tube": ("tube", "Make, attach, list and drop tubes."),
    "plan": (
        "document",
        "Show what apply would do about documents, tubes and outboxes of the file, or about some of them.",
    ),
    "apply": (
        "document",
        "Have the database be as the documents, tubes and outboxes of the file declare it, or some of them.",
    ),
    "document": ("document", "Documents that the file declares."),
    "outbox": ("outbox", "Make, adopt, list and drop outboxes; retry what they have parked."),
    "worker": (
        "worker",
        "Serve tubes and outboxes: bring what was touched to the sinks, and messages to Kafka.",
    ),
    "status": ("status", "What waits in each partition, who leads it, and how far behind it is."),
    "web": ("web", "Show the fleet as pages for a browser: tubes, partitions, parked documents, graphs."),
    "top": ("status", "Watch tubes, partitions and workers on a terminal."),
    "touch": (
        "operators",
        "Touch documents of TUBE by the ids of TABLE (schema.table), so that they are sent again.",
    ),
    "pods": ("pods", "What waits in a tube: look at it, retry, step through, take away."),
    "park": ("operators", "Documents that could not be delivered: look at them, retry or drop them."),
    "pause": (
        "operators",
        "Stop delivering a tube, or one partition: leaders keep leading, and mark and send nothing.",
    ),
    "resume": (
        "operators",
        "End the pauses of a tube, also when a worker has stopped it; or those of one partition.",
    ),
    "audit": ("operators", "List who did what by hand, the latest first; also with tubes that are gone."),
    "verify": ("verify", "Compare what the sink of a tube holds with the source."),
    "wait": ("verify", "Wait until what was committed is at the sink."),
    "explain": ("verify", "Tell where one key is now: in the tube, in flight, parked, at the sink."),
    "backfill": (
        "backfill",
        "Touch every row of a table, at low priority; what the source lacks is swept from the sink.",
    ),
    "reindex": (
        "reindex",
        "Fill a new index while the old one stays live, compare it, and move the alias to it.",
    ),
    "sink": ("sink", "Check the sink of a tube, or count it as complete."),
    "spark": ("spark", "Fan-outs, backfills and reconciliation by PySpark, on this machine."),
    "demo": (
        "worker",
        "Show it all on this machine: servers, load, workers, one of them killed, and the proof.",
    ),
}
"""The module of each command in this package, and the first sentence of its help. `--help` and `--version`
load no module: to import all takes half a second and more."""

EXIT_CODES = """\b
Exit codes:
  0  done
  1  an error; doctor: something fails
  2  the command, its arguments or the configuration are wrong, or the role lacks a right; nothing
     was changed
  3  Postgres or Kafka is not available
  4  the SQL that is installed is not the one that this version needs
  130, 143  a worker: ended at once by a second SIGINT or SIGTERM; others: interrupted
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """The global options."""

    path: Path
    is_named: bool
    """Whether the file was named, by the option or the variable; else it may be missing."""
    is_option: bool
    """Whether `--config` named it."""
    debug: bool

    def config(self) -> Config:
        """The configuration; `ConfigError` says what is wrong with it."""
        # Here, because its models take longer to load than `--help` takes to print.
        from pytube.config import load

        return load(self.path)

    @property
    def has_file(self) -> bool:
        """Whether there is a configuration file; `ConfigError` if one was named that is not there."""
        if not self.path.exists():
            if self.is_named:
                self.config()
            return False
        return True


class Later(click.Command):
    """A command whose module is not loaded yet."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._module = module

    def load(self) -> click.Command:
        """The command itself."""
        command = getattr(importlib.import_module(f"pytube.cli.{self._module}"), str(self.name))
        assert isinstance(command, click.Command)
        return command


class Program(click.Group):
    """A group whose commands are loaded when they are called, and may raise errors of ours."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called."""
        command = self.commands.get(args[0])
        if isinstance(command, Later):
            self.commands[args[0]] = command.load()
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run the command; what it raises becomes a sentence and an exit code."""
        try:
            super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click knows them
        except Exception as error:  # noqa: BLE001 - whatever it is, people get a sentence
            if isinstance(ctx.obj, Settings) and ctx.obj.debug:
                click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            message, code = _explain(error, ctx)
            click.echo(f"pytube: {message}", err=True)
            ctx.exit(code)


def _explain(error: Exception, context: click.Context) -> tuple[str, int]:
    """The sentence and the exit code for an error."""
    import psycopg

    from pytube.cli.rights import asked_by, refusal
    from pytube.db.errors import describe
    from pytube.errors import PytubeError, UsageError

    if (refused := refusal(error, asked_by(context))) is not None:
        return refused, UsageError.exit_code
    match error:
        case PytubeError():
            return str(error), error.exit_code
        case psycopg.Error():
            # Of a value (22), or as it stands (42): it was asked for something that can't be.
            asked_wrongly = (error.sqlstate or "")[:2] in ("22", "42")
            return f"Postgres refused: {describe(error)}", UsageError.exit_code if asked_wrongly else 1
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
    type=click.Choice(["debug", "info", "warning", "error"]),
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
def cli(context: click.Context, config_path: Path, log_level: str, log_format: Format, debug: bool) -> None:
    """Keep copies of Postgres data equal to their source, and prove it."""
    from pytube import logs

    logs.configure(log_level, log_format)
    source = context.get_parameter_source("config_path")
    context.obj = Settings(
        config_path,
        is_named=source is not ParameterSource.DEFAULT,
        is_option=source is ParameterSource.COMMANDLINE,
        debug=debug,
    )


for name, (module, summary) in COMMANDS.items():
    cli.add_command(Later(name, module, summary))
