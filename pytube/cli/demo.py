"""`pytube demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click


@click.command()
@click.option(
    "--kafka",
    type=click.Choice(["embedded", "real"]),
    default="embedded",
    show_default=True,
    help="The broker: librdkafka's own for tests, or Apache Kafka.",
)
@click.option(
    "--election",
    type=click.Choice(["neli", "lease"]),
    default="neli",
    show_default=True,
    help="How workers agree on who leads; lease needs no broker.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1, max=300),
    default=30,
    show_default=True,
    help="How long there is load.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where servers and logs go; emptied first.  [default: .demo]",
)
def demo(
    kafka: Literal["embedded", "real"],
    election: Literal["neli", "lease"],
    seconds: float,
    directory: Path | None,
) -> None:
    """Show it all on this machine: servers, load, workers, one of them killed, and the proof."""
    # Imported late: it needs packages that nothing else does.
    from pytube.demo import main

    code = main(kafka=kafka, election=election, seconds=seconds, directory=directory)
    click.get_current_context().exit(code)
