"""A real server to try, which runs until it is interrupted: `pytube dev`."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pytube.embedded import kafka_real, search_server
from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.postgres import Postgres
from pytube.embedded.process import EmbeddedServer, with_tail
from pytube.embedded.redis import Redis
from pytube.embedded.search_server import OpenSearch
from pytube.errors import how_to_install

Kind = Literal["postgres", "redis", "kafka", "opensearch"]

_GLANCE = 0.1
_CLIENTS: Mapping[type[EmbeddedServer], tuple[str, str]] = {
    Redis: ("redis", "redis"),
    RealKafka: ("kafka", "confluent_kafka"),
    OpenSearch: ("opensearch", "aiohttp"),
}
"""The extra for its sink, and the package that shows whether it is installed."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A server that runs, and how to use it."""

    name: str
    """With its version, where we know it."""
    address: str
    """A DSN, a URL, or bootstrap servers."""
    port: int
    pid: int
    commands: tuple[str, ...]
    """What to type to see that it is there."""
    settings: str
    """For pytube.toml."""
    missing: str | None
    """What to install, if the package for its sink is missing."""
    _server: EmbeddedServer

    def wait(self) -> None:
        """Return never; `EmbeddedError` with the end of its log if the server ends."""
        while self._server.running:
            time.sleep(_GLANCE)
        raise with_tail(f"{self.name} has ended", self._server.log)


@contextmanager
def offered(kind: Kind, port: int | None) -> Iterator[Offered]:
    """A new and empty server, on `port` or a free one; it and its data are gone afterwards.

    Raises:
        EmbeddedError: it can't be had here (the message says what to install), or the port is taken.
    """
    with tempfile.TemporaryDirectory(prefix="pytube-dev-", ignore_cleanup_errors=True) as name:
        # Postgres runs as another user where we are root.
        folder = Path(name)
        folder.chmod(0o755)
        # Closed even if it is interrupted while it starts, before its data go.
        with closing(_server(kind, folder / kind, port)) as server:
            yield describe(server.start())


def _server(kind: Kind, folder: Path, port: int | None) -> EmbeddedServer:
    match kind:
        case "postgres":
            return Postgres(folder, port=port)
        case "redis":
            return Redis(folder, port=port)
        case "kafka":
            return RealKafka(folder, port=port)
        case "opensearch":
            return OpenSearch(folder, port=port)


def describe(server: EmbeddedServer) -> Offered:
    """What to say of a server that runs."""
    name, address, commands, settings = _use(server)
    extra = _CLIENTS.get(type(server))
    missing = how_to_install(extra[0]) if extra is not None and find_spec(extra[1]) is None else None
    return Offered(name, address, server.port, server.pid, commands, settings, missing, server)


def _use(server: EmbeddedServer) -> tuple[str, str, tuple[str, ...], str]:
    """Its name, its address, commands that try it, and settings."""
    match server:
        case Postgres():
            dsn = server.dsn()
            psql = "psql" if shutil.which("psql") else shlex.quote(str(server.bin("psql")))
            commands = (f"export PYTUBE_DSN={dsn}", f'{psql} "$PYTUBE_DSN"')
            return "Postgres 18", dsn, commands, f'[postgres]\ndsn = "{dsn}"'
        case Redis():
            url = server.url
            settings = _sink(f'type = "redis", url = "{url}", key = "orders:{{id}}"')
            return "Redis", url, (f"redis-cli -u {url} --scan",), settings
        case RealKafka():
            address = server.bootstrap
            to_it = f'type = "kafka", bootstrap_servers = "{address}", topic = "orders"'
            made = "create_topic = true, replication_factor = 1"
            settings = f'[kafka]\nbootstrap_servers = "{address}"\n\n' + _sink(f"{to_it}, {made}")
            return f"Kafka {kafka_real.VERSION}", address, (), settings
        case OpenSearch():
            url = server.url
            settings = _sink(f'type = "opensearch", url = "{url}", index = "orders", key = "{{id}}"')
            return f"OpenSearch {search_server.VERSION}", url, (f"curl {url}/_cat/indices",), settings
        case _:
            raise AssertionError(server)


def _sink(options: str) -> str:
    return f"[tube.orders]\nsink = {{ {options} }}"
