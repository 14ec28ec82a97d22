"""Redis servers of the tests: alone or as a cluster, on loopback, ended by pid."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from pytube.embedded.ports import HOST, Port
from pytube.embedded.process import ServerProcess
from tests.helpers.waiting import wait_until

BINARY = "PYTUBE_REDIS_SERVER"
"""The variable that names another program than the system's `redis-server`."""
START_LIMIT = 20.0


def program() -> str:
    """The path of the server's program; fails where there is none."""
    found = os.environ.get(BINARY) or shutil.which("redis-server")
    assert found, f"there is no redis-server: run .ci/system, or set {BINARY}"
    return found


class RedisServer:
    """One server; what it has written to its disk stays over `kill` and `start`."""

    def __init__(self, folder: Path, *options: str) -> None:
        """Start it.

        Args:
            folder: its own.
            options: as on its command line, e.g. `--appendonly`, `yes`.
        """
        self._folder = folder
        self._options = options
        self._port = Port()
        folder.mkdir(parents=True, exist_ok=True)
        self._process = self._started()

    @property
    def port(self) -> int:
        return self._port.number

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def client(self) -> redis.Redis:
        """A client of the tests' own; waits for at most as long as a test may."""
        return redis.Redis(host=HOST, port=self.port, socket_timeout=20)

    def start(self) -> None:
        """Start it again."""
        self._process = self._started()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        if self._process.running:
            self._process.kill()
        self._port.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _started(self) -> ServerProcess:
        own = ("--port", str(self.port), "--bind", HOST, "--dir", str(self._folder), "--save", "")
        process = ServerProcess(
            [program(), *own, *self._options], log=self._folder / "redis.log", guard_signal=signal.SIGKILL
        )
        process.wait_ready(self._answers, timeout=START_LIMIT, name="Redis")
        return process

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                client.ping()
            except redis.AuthenticationError:
                return True
            except redis.ConnectionError:
                return False
            return True


class RedisCluster:
    """Three primaries that share the slots, and no replicas."""

    def __init__(self, folder: Path) -> None:
        self._buses = [Port() for _ in range(3)]
        self.servers = [
            RedisServer(
                folder / str(bus.number), "--cluster-enabled", "yes", "--cluster-port", str(bus.number)
            )
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
