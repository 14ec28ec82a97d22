"""Databases for tests: empty ones, and ones with our SQL in them."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pytube.embedded.postgres import Postgres, Version
from tests.helpers.observer import Observer

ROOT = Path(__file__).resolve().parents[2]
INSTALL_SQL = ROOT / "sql" / "install.sql"

MEMORY = Path("/dev/shm")
"""Where servers keep their data, if there is room: on a disk, a new database costs thirty times as much."""
ROOM = 4 << 30
"""Bytes that have to be free there; a container often has 64 MB."""
SETTINGS = {
    "max_wal_size": "128MB",
    "min_wal_size": "32MB",
    # Where there is LLVM, as on the machine's version, it takes half a second to compile a query of catalogs
    # that runs for two milliseconds. All tests are of empty or small tables.
    "jit": "off",
}
SETTINGS_OF: Mapping[Version, Mapping[str, str]] = {
    # The kernel copies the files of a new database: a fifth of the time less.
    18: {"file_copy_method": "clone"},
}
INSTALLED = "installed"
"""The template that has our SQL."""
SHARED = "PYTUBE_TEST_DATA"
"""Names the folder of data that servers begin with: see `shared_data`."""
SHARED_DIGEST = "PYTUBE_TEST_DATA_OF"
"""Names the SQL that is in these."""

Prepare = Callable[[str], None]
"""Fills the database of a DSN."""


def preparing(prepared: Prepare, fixture: str = "db") -> Any:
    """A file's `prepare`: databases of tests that ask for `fixture` begin with what `prepared` makes.

    Those of others begin as its folder says.
    """

    @pytest.fixture
    def prepare(request: pytest.FixtureRequest, prepare: Prepare | None) -> Prepare | None:
        return prepared if fixture in request.fixturenames else prepare

    return prepare


_numbers = itertools.count(1)


class TestServer:
    """A server, and the databases that tests make on it."""

    __test__ = False  # no test class, whatever its name

    def __init__(self, version: Version, settings: Mapping[str, str] | None = None) -> None:
        self._stack = ExitStack()
        folder = self._stack.enter_context(server_folder())
        settings = {**SETTINGS, **SETTINGS_OF.get(version, {}), **(settings or {})}
        self.postgres = Postgres(folder, version, settings=settings)
        self._templates = {INSTALLED} if _take_shared_data(self.postgres, version) else set()
        self.postgres.start()
        self._stack.callback(self.postgres.close)
        self._session = Observer(self.postgres.dsn())
        self._stack.callback(self._session.close)
        if self._templates:
            # It leaves a file of what each session needs of the catalogs; copies have it, too.
            psycopg.connect(self.postgres.dsn(INSTALLED)).close()

    def close(self) -> None:
        """End the server and remove its folder."""
        self._stack.close()

    @contextmanager
    def database(self, *, installed: bool, prepare: Prepare | None = None) -> Iterator[str]:
        """The DSN of a fresh database, dropped at the end.

        Args:
            installed: whether our SQL is in it.
            prepare: makes what else is in it, by its DSN; called once, since the next databases are copies.
        """
        self.postgres.start()  # a test may have left it down
        template = self._template(INSTALLED, "template0", self._install) if installed else "template0"
        if prepare is not None:
            template = self._template(f"{prepare.__module__}.{prepare.__qualname__}", template, prepare)
        name = f"t{next(_numbers)}"
        self._create(name, template)
        yield self.postgres.dsn(name)
        self.postgres.start()
        self._admin(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _template(self, name: str, base: str, prepare: Prepare) -> str:
        if name not in self._templates:
            self._admin(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
            self._create(name, base)
            prepare(self.postgres.dsn(name))
            self._templates.add(name)
        return name

    def forget(self, prepare: Prepare) -> None:
        """Drop the template of `prepare`, if there is one."""
        name = f"{prepare.__module__}.{prepare.__qualname__}"
        if name in self._templates:
            self.postgres.start()
            self._admin(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
            self._templates.remove(name)

    def _install(self, dsn: str) -> None:
        psql_file(self.postgres, dsn, INSTALL_SQL)

    def _create(self, name: str, template: str) -> None:
        # FILE_COPY: half the time of WAL_LOG for databases as small as these.
        self._admin(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )

    def _admin(self, statement: sql.Composed) -> None:
        # A prepared transaction that a test left behind would block the drop.
        for gid, name in self._session.rows("SELECT gid, database FROM pg_prepared_xacts"):
            with psycopg.connect(self.postgres.dsn(name), autocommit=True) as other:
                other.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
        self._session.do(statement)


@contextmanager
def shared_data() -> Iterator[None]:
    """Within it, the servers of this process, and of those that it starts, are copies of one with our SQL.

    To make their data anew costs ten times as much CPU. Their system identifier is the same.
    """
    with server_folder() as folder:
        os.environ[SHARED] = str(folder)
        os.environ[SHARED_DIGEST] = _digest_of_sql()
        yield
        del os.environ[SHARED], os.environ[SHARED_DIGEST]


def _take_shared_data(postgres: Postgres, version: Version) -> bool:
    """Whether the server has data with our SQL now; else it makes its own."""
    if SHARED not in os.environ:
        return False
    place = Path(os.environ[SHARED])
    shared = place / f"{version}-{_digest_of_sql()}"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists() and os.environ[SHARED_DIGEST] == _digest_of_sql():
            _make_data(version, shared)
    if not shared.exists():  # a seeded bug is in the SQL
        return False
    subprocess.run(["cp", "-a", shared, postgres.directory / "data"], check=True)
    return True


def _make_data(version: Version, target: Path) -> None:
    with server_folder() as folder, Postgres(folder, version, settings=SETTINGS) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as session:
            session.execute(f"CREATE DATABASE {INSTALLED} TEMPLATE template0")
        psql_file(server, server.dsn(INSTALLED), INSTALL_SQL)
        _shrink_catalogs(server.dsn(INSTALLED))
        server.stop()
        (folder / "data").rename(target)


def _shrink_catalogs(dsn: str) -> None:
    """Leave no dead rows in the catalogs, and no maps of their free space: each copy would have them."""
    with psycopg.connect(dsn, autocommit=True) as session:
        catalogs = session.execute(
            "SELECT oid::regclass::text FROM pg_class"
            " WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' AND NOT relisshared"
        ).fetchall()
        session.execute(f"VACUUM FULL {', '.join(name for (name,) in catalogs)}".encode())


@functools.cache
def _digest_of_sql() -> str:
    digest = hashlib.sha256()
    for file in sorted(INSTALL_SQL.parent.rglob("*.sql")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


@contextmanager
def server_folder() -> Iterator[Path]:
    """A folder for the data of servers, removed at the end."""
    place = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM else Path("/tmp")
    _remove_orphans(place)
    with tempfile.TemporaryDirectory(prefix=f"pytube-test-{os.getpid()}-", dir=place) as name:
        # Not pytest's tmp_path: the server's user is not ours when we are root.
        Path(name).chmod(0o755)
        yield Path(name)


def _remove_orphans(place: Path) -> None:
    """Remove the data of runs that were killed: they would keep their memory."""
    for folder in place.glob("pytube-test-*-*"):
        if not Path("/proc", folder.name.split("-")[2]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def psql_file(postgres: Postgres, dsn: str, file: Path, **variables: str) -> str:
    """Run `file` by the server's own psql; its output. An AssertionError with it when it fails."""
    command = [str(postgres.bin("psql")), "-X", "-q", "-d", dsn, "-f", str(file)]
    for name, value in variables.items():
        command += ["-v", f"{name}={value}"]
    done = subprocess.run(
        command,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PGOPTIONS": "-c client_min_messages=warning"},
    )
    assert done.returncode == 0, f"psql -f {file} failed with {done.returncode}:\n{done.stdout}"
    return done.stdout


def copy(postgres: Postgres, source: str, target: str, *options: str) -> None:
    """Dump one database, and restore it into another one: of an archive (`-Fc`) by `pg_restore`."""
    dumped = subprocess.run(
        [str(postgres.bin("pg_dump")), *options, "-d", source], check=True, stdout=subprocess.PIPE
    )
    if "-Fc" in options:
        restore = [str(postgres.bin("pg_restore")), "--exit-on-error"]
    else:
        restore = [str(postgres.bin("psql")), "-X", "-q", "-v", "ON_ERROR_STOP=1"]
    restored = subprocess.run(
        [*restore, "-d", target],
        check=False,
        input=dumped.stdout,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert restored.returncode == 0, restored.stderr.decode()
