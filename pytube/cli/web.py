"""`pytube web`."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytube.cli.context import database_options, unresolved_of
from pytube.cli.program import Settings
from pytube.config import split_address
from pytube.db.database import Database
from pytube.errors import UsageError, how_to_install

if TYPE_CHECKING:  # from the extra `web`
    import uvicorn
    from starlette.types import ASGIApp

_VARIABLE = "PYTUBE_WEB_TOKEN"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_DRAIN = 3
"""Seconds that requests have to end when the server does."""
_CONNECTIONS = 64


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:8095",
    show_default=True,
    metavar="ADDRESS:PORT",
    help="Address to listen on; port 0 picks a free port.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File with the token that opens the pages and allows actions; or set {_VARIABLE}. "
    "Without a token, the pages are read-only.",
)
@click.option(
    "--allow-remote",
    is_flag=True,
    help="Listen on an address that other machines can reach; requires a token.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Additional host name of this server; repeatable.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=1, max=3600),
    default=5,
    show_default=True,
    help="Seconds between samples.",
)
@click.option(
    "--hours",
    type=click.FloatRange(min=0.1, max=48),
    default=6,
    show_default=True,
    help="Hours of samples to keep in memory.",
)
@database_options(several=True, configured=True)
@click.pass_obj
def web(
    settings: Settings,
    databases: Sequence[Database],
    listen: str,
    token_file: Path | None,
    allow_remote: bool,
    names: tuple[str, ...],
    interval: float,
    hours: float,
) -> None:
    """Show the fleet in a browser.

    Without a token, every user of this machine can read the pages. With a token, only its holders can, and
    they may also pause, resume, retry, and discard.
    """
    _need_packages()
    address, port = _address(listen)
    token = _token(token_file)
    allowed = _names(address, names, token, allow_remote=allow_remote)

    from pytube.health.watcher import FleetWatcher
    from pytube.logs import Logger
    from pytube.web.app import application
    from pytube.web.sampler import Sampler
    from pytube.web.site import Place, Sessions, Site

    places = {one.host: Place(one, unresolved_of(one) if settings.has_file else None) for one in databases}
    log = Logger("pytube.web")
    with listening(address, port) as listener:
        watcher = FleetWatcher(databases, "pytube web")
        site = Site(
            places, Sampler(watcher, interval, hours, log), None if token is None else Sessions(token)
        )
        shown = f"[{address}]" if ":" in address else address
        rights = "read-only" if token is None else "with a token"
        click.echo(f"http://{shown}:{listener.getsockname()[1]}/ ({rights})")
        with suppress(KeyboardInterrupt):  # how it passes on the signal that has ended it
            server(application(site, allowed, log)).run([listener])


def server(app: ASGIApp) -> uvicorn.Server:
    """The server of the pages."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_DRAIN,
        )
    )


def _need_packages() -> None:
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UsageError(f"pytube web needs the package {missing[0]}: {how_to_install('web')}")


def _address(listen: str) -> tuple[str, int]:
    try:
        return split_address(listen)
    except ValueError as error:
        raise UsageError(f"--listen {listen}: {error}") from None


def _token(file: Path | None) -> str | None:
    from pytube.web.site import checked_token

    given = os.environ.get(_VARIABLE)
    if file is None:
        return None if given is None else checked_token(given, _VARIABLE)
    if given is not None:
        raise UsageError(f"give the token by --token-file or by {_VARIABLE}, not by both")
    try:
        return checked_token(file.read_text(), f"--token-file {file}")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise UsageError(f"--token-file {file} can't be read: {reason}") from None


def _names(address: str, names: Sequence[str], token: str | None, *, allow_remote: bool) -> list[str]:
    """The names that the Host header may have; `UsageError` for an address that is open to others."""
    try:
        ip = ipaddress.ip_address("127.0.0.1" if address == "localhost" else address)
    except ValueError:
        raise UsageError(f"--listen: {address} is not an IP address; give one, or localhost") from None
    if ip.is_loopback:
        return [*_LOCAL, address, *names]
    if token is None or not allow_remote:
        raise UsageError(
            f"others can reach {address}: to listen there, give --allow-remote and a token "
            f"(--token-file or {_VARIABLE}), and put a proxy with TLS before it; or listen at 127.0.0.1"
        )
    if ip.is_unspecified and not names:
        raise UsageError(f"{address} means every address; say by --name how browsers reach this server")
    return [*_LOCAL, address, *names]


def listening(address: str, port: int) -> socket.socket:
    """A socket there; `UsageError` when it can't be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        raise UsageError(
            f"can't listen at {address}:{port}: {error.strerror or error}; end what listens there, or give "
            "another --listen"
        ) from None
