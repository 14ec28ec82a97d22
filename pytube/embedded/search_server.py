"""What OpenSearch and Elasticsearch have in common: a node on loopback, by default without TLS and users."""

from __future__ import annotations

import json
import ssl
import urllib.request
import uuid
from pathlib import Path

from pytube.embedded.java_server import JavaServer
from pytube.embedded.ports import HOST, RANGE, Port

ALONE = "discovery.type: single-node\n"
SETTINGS = f"""
http.host: {HOST}
transport.host: {HOST}
cluster.routing.allocation.disk.threshold_enabled: false
"""

HEAP = "512m"
PROBE_TIMEOUT = 2.0


class SearchServer(JavaServer):
    """A node on loopback; indices stay in `directory` over `stop`, `kill` and `start`.

    It ends with this process.
    """

    START_TIMEOUT = 120.0

    def __init__(self, directory: Path | str, among: range = RANGE) -> None:
        """Nothing runs before `start`. The directory is made if it is missing.

        Args:
            directory: holds the node.
            among: the ports that it may have.
        """
        super().__init__(directory)
        self._port = Port(among=among)
        self._cluster = f"pytube-{uuid.uuid4().hex}"
        self.tls: ssl.SSLContext | None = None
        """What a client needs to trust it; None: it speaks plain HTTP."""
        self.headers: dict[str, str] = {}
        """What a client sends to be let in."""

    @property
    def port(self) -> int:
        """Its port on loopback, the same over restarts."""
        return self._port.number

    @property
    def url(self) -> str:
        """Its address, the same over restarts."""
        return f"{'http' if self.tls is None else 'https'}://{HOST}:{self.port}"

    def _release(self) -> None:
        self._port.release()

    def _serves(self) -> bool:
        # By the name of the cluster: where the port is taken, another server may answer.
        try:
            health = f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"
            asked = urllib.request.Request(health, headers=self.headers)  # noqa: S310 # ours
            with urllib.request.urlopen(  # noqa: S310
                asked, timeout=PROBE_TIMEOUT, context=self.tls
            ) as answer:
                found = json.load(answer)
        except (OSError, ValueError):
            return False
        return found["cluster_name"] == self._cluster and not found["timed_out"]
