"""`pytube top`: the fleet as one live table on a terminal. Needs the extra `top`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec

import click

from pytube.cli.context import database_options
from pytube.cli.output import is_terminal
from pytube.db.database import Database
from pytube.errors import UsageError, how_to_install


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=1.0,
    show_default=True,
    help="Seconds between two samples.",
)
@database_options(several=True)
def top(databases: Sequence[Database], interval: float) -> None:
    """Watch tubes, partitions and workers on a terminal.

    The last line names the keys. Needs the role tube_monitor.
    """
    if find_spec("textual") is None:
        raise UsageError(f"pytube top needs the package textual: {how_to_install('top')}")
    if not is_terminal():
        raise UsageError("pytube top draws on a terminal, and stdout is none; use pytube status --watch")
    from pytube.cli.top_table import TopApp

    # A line of a log would be written across the screen; what matters of it is in the samples.
    logging.disable(logging.CRITICAL)
    TopApp(databases, interval).run()
