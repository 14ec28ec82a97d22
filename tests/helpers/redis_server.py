"""Redis servers of the tests: alone or as a cluster, on loopback, ended by pid."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import redis

from pytube.embedded.process import HOST, Port
from pytube.embedded.redis import Redis
from pytube.model import Key
from pytube.sinks.redis import RedisSink
from tests.helpers.waiting import wait_until


class RedisServer(Redis):
    """One server, and clients of it."""

    def client(self) -> redis.Redis:
        """A client of the tests' own; waits for at most as long as a test may."""
        return redis.Redis(host=HOST, port=self.port, socket_timeout=20)


class RedisCluster:
    """Three primaries that share the slots, and no replicas."""

    def __init__(self, folder: Path) -> None:
        self._buses = [Port() for _ in range(3)]
        self.servers = [
            RedisServer(
                folder / str(bus.number), "--cluster-enabled", "yes", "--cluster-port", str(bus.number)
            ).start()
            for bus in self._buses
        ]
        self._join()

    @property
    def url(self) -> str:
        return self.servers[0].url

    def close(self) -> None:
        for server in self.servers:
            server.close()
        for bus in self._buses:
            bus.release()

    def _join(self) -> None:
        """Give each server a third of the slots, and wait until all know each other."""
        first = self.servers[0]
        for at, server in enumerate(self.servers):
            with server.client() as client:
                client.cluster("ADDSLOTSRANGE", 16384 * at // 3, 16384 * (at + 1) // 3 - 1)
                client.cluster("SET-CONFIG-EPOCH", at + 1)
                if server is not first:
                    client.cluster("MEET", HOST, first.port, self._buses[0].number)
        wait_until(lambda: all(map(_is_whole, self.servers)), what="the cluster is whole")


def _is_whole(server: RedisServer) -> bool:
    with server.client() as client:
        about = client.cluster("INFO")
        return bool(about["cluster_state"] == "ok" and about["cluster_known_nodes"] == "3")


# --- the sink on them ---------------------------------------------------------------------------


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[RedisSink]:
    sink = RedisSink.from_options({"url": url, **options})
    await sink.open()
    try:
        yield sink
    finally:
        await sink.close()


def held(store: redis.Redis) -> dict[Key, bytes]:
    """The documents by the names that the default template gives them."""
    found: dict[Key, bytes] = {}
    for name in store.scan_iter(count=5000):
        if not name.startswith(b"pytube."):
            tag, _, rest = name.partition(b"}:")
            found[int(tag.rpartition(b":")[2]), rest.decode()] = name
    return found
