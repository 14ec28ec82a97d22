"""A real Elasticsearch server: one node, in a folder of its own.

Its distribution is the one that Elastic publishes on Maven Central for integration tests: the server as it is
released, with its security but without most other modules and without a Java.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import zipfile
from contextlib import suppress
from pathlib import Path

from pytube.embedded import java
from pytube.embedded.postgres import RUN_AS, reachable
from pytube.embedded.process import EmbeddedError, Port, environment, is_root
from pytube.embedded.search_server import ALONE, HEAP, SETTINGS, SearchServer

VERSION = "8.19.21"
GROUP, ARTIFACT = "org.elasticsearch.distribution.integ-test-zip", "elasticsearch"

JVM = (
    f"-Xms{HEAP}",
    f"-Xmx{HEAP}",
    "-XX:+UseSerialGC",
    # As for OpenSearch: short runs never get back what better code costs at the start.
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
)


class Elasticsearch(SearchServer):
    """A node of Elasticsearch.

    Its own launcher starts it, as the user `nobody` where we are root, as which it refuses to run.
    """

    NAME = "Elasticsearch"

    def __init__(self, directory: Path | str) -> None:
        """Nothing runs before `start`. The directory is made if it is missing."""
        super().__init__(directory)
        self._home = self.directory / f"elasticsearch-{VERSION}"
        self._config = self.directory / "config"
        self._pid_file = self.directory / "node.pid"
        self._transport = Port()
        self._user = RUN_AS if is_root() else None

    @property
    def pid(self) -> int:
        """The process id of the node itself, which is a child of the launcher."""
        return int(self._pid_file.read_text())

    def kill(self) -> None:
        """SIGKILL the node first: without its launcher it would shut down in order."""
        if self.running:
            # It has not begun, is just writing its id, or has ended.
            with suppress(FileNotFoundError, ValueError, ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        super().kill()

    def _release(self) -> None:
        super()._release()
        self._transport.release()

    def _prepare(self) -> list[str]:
        if not self._home.exists():
            self._unpack()
        self._pid_file.unlink(missing_ok=True)
        return ["/bin/bash", str(self._home / "bin" / "elasticsearch"), "-p", str(self._pid_file)]

    def _unpack(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._user is not None and not reachable(self.directory):
            message = (
                f"{self.directory} can't be reached by the user {self._user}, as whom Elasticsearch runs "
                "since it refuses root: choose a folder that everyone may enter, e.g. below /tmp"
            )
            raise EmbeddedError(message)
        with zipfile.ZipFile(java.archive(GROUP, ARTIFACT, VERSION)) as packed:
            packed.extractall(self.directory)
        self._config.mkdir()
        (self.directory / "temporary").mkdir()
        (self._config / "elasticsearch.yml").write_text(
            f"{SETTINGS}{ALONE}cluster.name: {self._cluster}\nhttp.port: {self.port}\n"
            f"transport.port: {self._transport.number}\npath.data: {self.directory / 'data'}\n"
            f"path.logs: {self.directory / 'logs'}\n{self._secure(self._config)}"
        )
        (self._config / "jvm.options").write_text("\n".join(JVM))
        shutil.copy(self._home / "config" / "log4j2.properties", self._config)
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            for path in (self.directory, *self.directory.rglob("*")):
                os.chown(path, owner.pw_uid, owner.pw_gid)

    def _secure(self, config: Path) -> str:
        """The settings of its security; files that they need are in the folder `config` afterwards."""
        del config
        return "xpack.security.enabled: false\n"

    def _environment(self) -> dict[str, str]:
        program = java.find().resolve()
        if self._user is not None and not reachable(program.parent):
            message = (
                f"{program} can't be reached by the user {self._user}, as whom Elasticsearch runs "
                "since it refuses root: install a Java for all (e.g. apt-get install openjdk-17-jre-headless)"
            )
            raise EmbeddedError(message)
        temporary = str(self.directory / "temporary")
        ours = {
            "ES_JAVA_HOME": str(program.parents[1]),
            "ES_PATH_CONF": str(self._config),
            "ES_TMPDIR": temporary,
            "LIBFFI_TMPDIR": temporary,
        }
        inherited = {name: value for name, value in environment().items() if not name.startswith("ES_")}
        return {**inherited, "HOME": temporary, **ours}
