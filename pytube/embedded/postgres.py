"""A Postgres server for demos and tests, in a folder of its own."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

from pytube.embedded import binaries
from pytube.embedded.binaries import Version
from pytube.embedded.ports import HOST, Port
from pytube.embedded.process import EmbeddedError, ServerProcess, is_root

SUPERUSER = "postgres"
RUN_AS = "nobody"
"""Who runs the server when we are root, as which Postgres refuses to run."""

START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0

SOCKET_DIRECTORY_LIMIT = 80
"""Bytes: the path of a Unix socket may have some 100."""

StopMode = Literal["smart", "fast", "immediate"]
_STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    # Data that outlive the processes but not the machine's power are all that is promised here.
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "replica",
    "max_connections": "200",
    "max_prepared_transactions": "20",
    "shared_buffers": "64MB",
    "log_line_prefix": "%m [%p] %q%a %d ",
}


class Postgres:
    """A server on loopback and on a Unix socket; everyone on this machine may log in.

    The data stay in `directory` over `stop`, `kill` and `start`. It ends with this process.
    """

    def __init__(
        self,
        directory: Path | str,
        version: Version = 18,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing runs before `start`.

        Args:
            directory: where data and log go; made if missing.
            version: the bundled 18 or 16, or "system" for the newest that the machine has.
            port: of loopback; None chooses a free one, which is kept over restarts.
            settings: server settings over those in `SETTINGS`.

        Raises:
            EmbeddedError: there is no such version here, or the port is taken.
        """
        self.directory = Path(directory).resolve()
        self.log = self.directory / "postgres.log"
        self._data = self.directory / "data"
        self._user = RUN_AS if is_root() else None
        folder = binaries.find(version)
        self._bin = binaries.for_everyone(folder) if self._user else folder
        self._port = Port(port)
        self._settings = {**SETTINGS, **(settings or {})}
        self._sockets: Path | None = None
        self._process: ServerProcess | None = None

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._port.number

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """The postmaster's process id; `EmbeddedError` when it was never started."""
        if self._process is None:
            message = f"Postgres in {self.directory} was not started"
            raise EmbeddedError(message)
        return self._process.pid

    @property
    def socket_directory(self) -> Path:
        """The folder of the Unix socket; `EmbeddedError` when the server was never started."""
        if self._sockets is None:
            message = f"Postgres in {self.directory} was not started"
            raise EmbeddedError(message)
        return self._sockets

    def dsn(self, dbname: str = "postgres") -> str:
        """The URL of a database, over loopback, as superuser."""
        return f"postgresql://{SUPERUSER}@{HOST}:{self.port}/{quote(dbname, safe='')}"

    def bin(self, name: str) -> Path:
        """The path of a program of this version, e.g. psql, pgbench, pg_dump.

        Raises:
            EmbeddedError: it has no such program.
        """
        path = self._bin / name
        if not path.is_file():
            message = f"there is no {name} in {self._bin}"
            raise EmbeddedError(message)
        return path

    def start(self) -> Self:
        """Start, initialising the folder the first time, recovering after a kill; wait until ready."""
        if self.running:
            return self
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        if self._sockets is None:
            self._sockets = self._make_socket_directory()
        options = {
            **self._settings,
            "port": str(self.port),
            "unix_socket_directories": str(self._sockets),
        }
        command = [str(self.bin("postgres")), "-D", str(self._data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        self._process = ServerProcess(
            command, log=self.log, guard_signal=signal.SIGQUIT, user=self._user, env=_environment()
        )
        atexit.register(self.close)
        self._process.wait_ready(self._ready, timeout=START_TIMEOUT, name="Postgres")
        return self

    def stop(self, mode: StopMode = "fast") -> None:
        """Shut down: "smart" waits for sessions, "fast" ends them, "immediate" skips the checkpoint."""
        if self._process is not None:
            self._process.stop(_STOP_SIGNALS[mode], timeout=STOP_TIMEOUT, name="Postgres")

    def kill(self) -> None:
        """SIGKILL the postmaster, and wait until its children have ended; `start` recovers."""
        if self._process is not None:
            self._process.kill()

    def restart(self, mode: StopMode = "fast") -> Self:
        """Stop and start, on the same port."""
        self.stop(mode)
        return self.start()

    def close(self) -> None:
        """End for good: stop at once, let the port go. The folder stays."""
        atexit.unregister(self.close)
        self.stop("immediate")
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
        self._port.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _initialise(self) -> None:
        self._data.mkdir(parents=True, exist_ok=True)
        self._data.chmod(0o700)
        if self._user is not None:
            if not binaries.reachable(self.directory):
                message = (
                    f"{self.directory} can't be reached by the user {self._user}, as whom Postgres runs "
                    "since it refuses root: choose a folder that everyone may enter, e.g. below /tmp"
                )
                raise EmbeddedError(message)
            self._give(self._data)
        command = [str(self.bin("initdb")), "-D", str(self._data), "-U", SUPERUSER]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env=_environment(),
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            extra_groups=None if self._user is None else [],
        )
        if done.returncode != 0:
            message = f"initdb of {self._data} failed: {done.stderr.strip()}"
            raise EmbeddedError(message)

    def _make_socket_directory(self) -> Path:
        folder = self.directory / "socket"
        if len(os.fsencode(folder)) <= SOCKET_DIRECTORY_LIMIT:
            folder.mkdir(exist_ok=True)
        else:
            folder = Path(tempfile.mkdtemp(prefix="pytube-pg-", dir="/tmp"))
        folder.chmod(0o755)
        self._give(folder)
        return folder

    def _give(self, path: Path) -> None:
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            os.chown(path, entry.pw_uid, entry.pw_gid)

    def _ready(self) -> bool:
        # The file's first line is the postmaster's pid, its eighth the state; a killed server's
        # file stays behind with another pid.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready"


def _environment() -> dict[str, str]:
    # Settings of the caller's for clients (PGPORT, PGDATA, …) are none of the server's.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C"}
