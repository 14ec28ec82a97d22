"""`pytube top`: the fleet on a terminal, and what an operator does about it. Needs the extra `top`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec

import click

from pytube.cli.context import Database, databases_options
from pytube.cli.output import is_terminal
from pytube.cli.settings import Settings
from pytube.errors import UsageError, how_to_install


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=1.0,
    show_default=True,
    help="Seconds between two samples.",
)
@databases_options
@click.pass_obj
def top(settings: Settings, databases: Sequence[Database], interval: float) -> None:
    """Watch tubes, partitions and workers on a terminal; pause, resume, explain, retry what is parked.

    Press ? for the keys. Looking needs the role tube_monitor, acting tube_admin.
    """
    if find_spec("textual") is None:
        raise UsageError(f"pytube top needs the package textual: {how_to_install('top')}")
    if not is_terminal():
        raise UsageError("pytube top draws on a terminal, and stdout is none; use pytube status --watch")
    from pytube.cli.top.app import TopApp

    # A line of a log would be written across the screen; what matters of it is in the samples.
    logging.disable(logging.CRITICAL)
    config = settings.config() if settings.has_file else None
    TopApp(databases, config, interval).run()
