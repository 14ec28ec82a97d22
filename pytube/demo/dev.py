"""A real server to try, which runs until it is interrupted: `pytube dev`."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
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
_SERVERS: Mapping[Kind, Callable[..., EmbeddedServer]] = {
    "postgres": Postgres,
    "redis": Redis,
    "kafka": RealKafka,
    "opensearch": OpenSearch,
}


@dataclass(slots=True)
class Offered:
    """A server that runs, and how to use it."""

    server: EmbeddedServer
    name: str
    """With its version, where we know it."""
    address: str
    """A DSN, a URL, or bootstrap servers."""
    settings: str
    """For pytube.toml."""
    commands: tuple[str, ...] = ()
    """What to type to see that it is there."""
    missing: str | None = None
    """What to install, if the package for its sink is missing."""

    def needs(self, extra: str, package: str) -> Offered:
        """This, with what to install if the package for its sink is missing."""
        self.missing = how_to_install(extra) if find_spec(package) is None else None
        return self

    def wait(self) -> None:
        """Return never; `EmbeddedError` with the end of its log if the server ends."""
        while self.server.running:
            time.sleep(_GLANCE)
        raise with_tail(f"{self.name} has ended", self.server.log)


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
        with closing(_SERVERS[kind](folder / kind, port=port)) as server:
            yield describe(server.start())


def describe(server: EmbeddedServer) -> Offered:
    """What to say of a server that runs."""
    commands: tuple[str, ...]
    match server:
        case Postgres():
            dsn = server.dsn()
            psql = "psql" if shutil.which("psql") else shlex.quote(str(server.bin("psql")))
            commands = (f"export PYTUBE_DSN={dsn}", f'{psql} "$PYTUBE_DSN"')
            return Offered(server, "Postgres 18", dsn, f'[postgres]\ndsn = "{dsn}"', commands)
        case Redis():
            url = server.url
            settings = _sink(f'type = "redis", url = "{url}", key = "orders:{{id}}"')
            commands = (f"redis-cli -u {url} --scan",)
            return Offered(server, "Redis", url, settings, commands).needs("redis", "redis")
        case RealKafka():
            address = server.bootstrap
            to_it = f'type = "kafka", bootstrap_servers = "{address}", topic = "orders"'
            made = "create_topic = true, replication_factor = 1"
            settings = f'[kafka]\nbootstrap_servers = "{address}"\n\n' + _sink(f"{to_it}, {made}")
            name = f"Kafka {kafka_real.VERSION}"
            return Offered(server, name, address, settings).needs("kafka", "confluent_kafka")
        case OpenSearch():
            url = server.url
            settings = _sink(f'type = "opensearch", url = "{url}", index = "orders", key = "{{id}}"')
            name, commands = f"OpenSearch {search_server.VERSION}", (f"curl {url}/_cat/indices",)
            return Offered(server, name, url, settings, commands).needs("opensearch", "aiohttp")
        case _:
            raise AssertionError(server)


def _sink(options: str) -> str:
    return f"[tube.orders]\nsink = {{ {options} }}"
