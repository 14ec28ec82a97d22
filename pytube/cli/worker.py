"""What runs until it is ended: `pytube worker`, `pytube web`, `pytube demo`, and `pytube dev`."""

from __future__ import annotations

import gc
import ipaddress
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytube.cli.context import database_options, databases_of, flag, json_option, note_asked, unresolved_of
from pytube.cli.output import print_json, wants_json
from pytube.cli.program import Settings
from pytube.config import Config, split_address
from pytube.db.database import Database
from pytube.errors import PytubeError, UsageError, how_to_install
from pytube.events import DocumentRefused
from pytube.logs import Logger, log_event

if TYPE_CHECKING:  # from the extra `web`
    import uvicorn
    from starlette.types import ASGIApp

GARBAGE_THRESHOLDS = 100_000, 5, 2
"""New objects until Python looks for cycles among them, and looks until it looks at older ones, too."""


@click.command()
@click.option(
    "--tube",
    "tubes",
    multiple=True,
    metavar="NAME",
    help="Serve this tube; repeatable. [default without --outbox: all configured]",
)
@click.option(
    "--outbox",
    "outboxes",
    multiple=True,
    metavar="NAME",
    help="Serve this outbox; repeatable. [default without --tube: all configured]",
)
@flag("--all", "takes_up", help="Serve each configured tube from its creation until it is dropped.")
@flag("--watch", help="Reread the file whenever it changes, as on SIGHUP.")
@click.pass_obj
def worker(
    settings: Settings, tubes: tuple[str, ...], outboxes: tuple[str, ...], takes_up: bool, watch: bool
) -> None:
    """Deliver changes to sinks and messages to Kafka.

    SIGTERM and SIGINT stop it after it finishes the documents in flight; a second one stops it immediately,
    and loses nothing either. SIGHUP rereads the file and restarts only the tubes and outboxes that changed.
    """

    def load() -> Config:
        config = settings.config()
        for name in tubes:
            config.tube(name)
        for name in outboxes:
            config.outbox(name)
        return config

    latest = load()
    note_asked(databases_of(settings))
    wanted = tubes if tubes or outboxes else None

    def reload() -> tuple[Config, Mapping[str, PytubeError]]:
        nonlocal latest
        latest = load()
        return again()

    def again() -> tuple[Config, Mapping[str, PytubeError]]:
        return _resolved(latest, wanted)

    config, refused = again()
    _tell(config, refused, tubes, outboxes)
    # Imported late: other commands need neither the worker nor librdkafka.
    from pytube.worker import Worker

    # A worker's objects come and go by the hundred thousand and form no cycles, but for terms that fail, with
    # their errors: at the default of 700 new ones, looking for some takes a good part of its time.
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    # With neither option: all that is configured.
    chosen = (tubes, outboxes) if tubes or outboxes else (None, None)
    served = Worker(config, chosen[0], outboxes=chosen[1], takes_up=takes_up, refused=refused)
    served.run_until_signal(reload, again=again, watched=settings.path if watch else None)


def _resolved(config: Config, wanted: Collection[str] | None) -> tuple[Config, Mapping[str, PytubeError]]:
    """The configuration with its declared documents compiled, and why some of them are not in it."""
    if not config.documents:
        return config, {}
    # Imported late: who declares no document needs no compiler.
    from pytube.documents.resolve import resolve_each

    return resolve_each(config, wanted)


def _tell(
    config: Config, refused: Mapping[str, PytubeError], tubes: Sequence[str], outboxes: Sequence[str]
) -> None:
    """Log the documents that are refused: each stops alone, unless nothing else is left to serve."""
    if tubes or outboxes:
        is_any_left = bool(outboxes) or any(name not in refused for name in tubes)
    else:
        is_any_left = bool(config.tubes or config.outboxes)
    for name, reason in refused.items():
        if not is_any_left:
            raise reason
        log_event(Logger("pytube.worker"), DocumentRefused(name, str(reason)))


@click.command()
@click.option(
    "--kafka",
    type=click.Choice(["embedded", "real"]),
    help="Elect leaders through Kafka: librdkafka's mock, or a real broker.  [default: no Kafka]",
)
@click.option(
    "--election",
    type=click.Choice(["neli", "lease"]),
    help="How workers elect leaders: through Kafka or Postgres.  [default: neli with --kafka, else lease]",
)
@click.option(
    "--sink",
    type=click.Choice(["jsonl", "opensearch", "redis", "kafka", "postgres"]),
    default="jsonl",
    help="Where the copy goes: a file, or a real server that the demo starts. kafka implies a real broker.",
)
@flag("--outbox", help="Demonstrate an outbox instead of a tube: messages for Kafka, checked by a consumer.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1, max=300),
    default=6,
    help="Seconds of load; more if the take-over takes longer.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for servers and logs; emptied first.  [default: .demo]",
)
def demo(**options: Any) -> None:
    """Demonstrate pytube here: servers, load, a killed worker, a check."""
    # Imported late: it needs packages that nothing else does.
    from pytube.demo import main

    click.get_current_context().exit(main(**options))


@click.command()
@click.argument("server", type=click.Choice(["postgres", "redis", "kafka", "opensearch"]))
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    metavar="N",
    help="Port on the loopback address; 9201 to 9298 for opensearch.  [default: a free one]",
)
@json_option
def dev(server: Any, port: int | None) -> None:
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
            if wants_json():
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
        if not wants_json():
            click.echo("\nended; its data are deleted")


def _show(offer: Any) -> None:
    lines = [f"{offer.name} runs: {offer.address}", ""]
    lines += [*offer.commands, ""] if offer.commands else []
    lines += ["In pytube.toml:", "", offer.settings, ""]
    if offer.missing is not None:
        lines += [f"The sink needs a package: {offer.missing}", ""]
    click.echo("\n".join([*lines, "Ctrl-C ends it and deletes its data."]))


# --- pages for a browser -------------------------------------------------------------------------------

_VARIABLE = "PYTUBE_WEB_TOKEN"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_DRAIN = 3
"""Seconds that requests have to end when the server does."""
_CONNECTIONS = 64


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:8095",
    metavar="ADDRESS:PORT",
    help="Address to listen on; port 0 picks a free port.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File with the token that opens the pages and allows actions; or set {_VARIABLE}. "
    "Without a token, the pages are read-only.",
)
@flag("--allow-remote", help="Listen on an address that other machines can reach; requires a token.")
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="Additional host name of this server; repeatable."
)
@click.option(
    "--interval", type=click.FloatRange(min=1, max=3600), default=5, help="Seconds between samples."
)
@click.option(
    "--hours", type=click.FloatRange(min=0.1, max=48), default=6, help="Hours of samples to keep in memory."
)
@database_options(several=True, configured=True, has_json=False)
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
    allowed = _names_of(address, names, token, allow_remote=allow_remote)

    from pytube.health.watcher import FleetWatcher
    from pytube.web.app import application
    from pytube.web.site import Place, Sampler, Sessions, Site

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


def _names_of(address: str, names: Sequence[str], token: str | None, *, allow_remote: bool) -> list[str]:
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
