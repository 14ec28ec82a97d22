"""Postgres as an embedded server: started, killed, restarted, several at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest

from pytube.embedded.postgres import Postgres, for_everyone, reachable
from pytube.embedded.process import EmbeddedError
from tests.helpers.database import server_folder
from tests.helpers.waiting import wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder() as folder:
        yield folder


def test_data_outlive_kill_and_restart(folder: Path) -> None:
    with Postgres(folder) as server:
        with psycopg.connect(server.dsn()) as session:
            session.execute("CREATE TABLE kept AS SELECT 1 AS a")
        children = psutil.Process(server.pid).children()
        server.kill()
        assert not server.running
        assert [child for child in children if _runs(child)] == []
        server.start()
        server.restart(signal.SIGQUIT)
        with psycopg.connect(server.dsn()) as session:
            assert session.execute("TABLE kept").fetchall() == [(1,)]


def test_port_is_kept_over_restarts_and_socket_serves(folder: Path) -> None:
    with Postgres(folder) as server:
        port = server.port
        server.restart()
        assert server.port == port
        host = server.socket_directory
        with psycopg.connect(f"host={host} port={port} user=postgres dbname=postgres") as session:
            assert session.execute("SHOW wal_level").fetchone() == ("replica",)
            assert session.execute("SHOW max_prepared_transactions").fetchone() == ("20",)


def test_several_start_at_once(folder: Path) -> None:
    servers = [Postgres(folder / str(number)) for number in range(3)]
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Postgres.start, servers))
        assert len({server.port for server in servers}) == 3
        assert all(server.running for server in servers)
    finally:
        for server in servers:
            server.close()


def test_versions(postgres: Postgres, postgres16: Postgres, postgres_system: Postgres) -> None:
    majors = []
    for server in (postgres, postgres16, postgres_system):
        with psycopg.connect(server.dsn()) as session:
            majors.append(session.info.server_version // 10000)
    assert majors[:2] == [18, 16]
    assert majors[2] >= 15


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_ends_with_its_owner(folder: Path, how: signal.Signals) -> None:
    program = (
        "import sys, time; from pytube.embedded.postgres import Postgres; "
        "print(Postgres(sys.argv[1]).start().pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        server = psutil.Process(int(owner.stdout.readline()))
        owner.send_signal(how)
    wait_until(lambda: not _runs(server), what="the end of a server whose owner was killed")


def test_a_folder_that_the_server_cannot_reach_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        # As another user, the server runs as ourselves and reaches what we reach.
        with Postgres(tmp_path) as server:
            assert server.running
        return
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedError, match="can't be reached by the user nobody"):
        Postgres(closed).start()


def test_binaries_that_only_root_can_reach_are_copied(
    postgres: Postgres, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = folder / "cache"
    monkeypatch.setattr("pytube.embedded.postgres.CACHE", cache)
    bundled = postgres.bin("initdb").parent
    package = tmp_path / "closed" / bundled.parents[1].name
    package.parent.mkdir(mode=0o700)
    for name in (package.name, f"{package.name}.libs"):
        source = bundled.parents[2] / name
        if source.is_dir():
            (package.parent / name).symlink_to(source)
    copied = for_everyone(package / bundled.relative_to(bundled.parents[1]))
    assert copied.is_relative_to(cache)
    assert reachable(copied)
    assert for_everyone(copied) == copied
    subprocess.run([copied / "initdb", "--version"], check=True, user="nobody" if os.geteuid() == 0 else None)


def test_failure_shows_the_log(folder: Path) -> None:
    server = Postgres(folder, settings={"shared_buffers": "much"})
    with pytest.raises(EmbeddedError, match='invalid value for parameter "shared_buffers"'):
        server.start()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
