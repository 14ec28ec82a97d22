"""How errors end the program: one sentence on stderr, and an exit code that means something."""

from __future__ import annotations

import traceback

import click
import psycopg

from pytube.cli.context import Settings
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
