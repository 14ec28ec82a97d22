"""The examples: two by a real `spark-submit`, with the package as a zip and not as what is installed.

All but the first run in the session of the tests, too: each submit costs the start of a Spark of its own.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyspark
import pytest
from pyspark.sql import SparkSession

from pytube.spark.session import prepare
from tests.helpers.database import ROOT
from tests.spark.test_touch import touched

Conn = psycopg.Connection[Any]
SECRET = "s3cret-word"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as `--py-files` takes it, compiled; each process that imports it leaves a file."""
    folder = tmp_path_factory.mktemp("zip")
    shutil.copytree(ROOT / "pytube", folder / "copy" / "pytube", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "copy" / "pytube" / "__init__.py").open("a") as file:
        file.write("import os, pathlib\n")
        file.write(f"pathlib.Path({str(folder)!r}, f'process-{{os.getpid()}}').touch()\n")
    with zipfile.PyZipFile(str(folder / "pytube.zip"), "w") as archive:
        archive.writepy(str(folder / "copy" / "pytube"))
    # What is installed on this machine is hidden from all processes: the zip has to be enough.
    (folder / "sitecustomize.py").write_text(
        "import pathlib, sys\n"
        "sys.path[:] = [p for p in sys.path if not pathlib.Path(p, 'pytube', '__init__.py').exists()]\n"
    )
    # Saves each Python worker the imports of what is no part of us.
    shutil.copy(ROOT / "tests" / "spark" / "daemon.py", folder / "preloading.py")
    return folder / "pytube.zip"


@pytest.fixture
def secret(dsn: str, conn: Conn) -> Iterator[str]:
    """A connection string with a password."""
    conn.execute(f"CREATE ROLE submitter LOGIN SUPERUSER PASSWORD '{SECRET}'")
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    yield f"postgresql://submitter:{SECRET}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    conn.execute("DROP ROLE submitter")


def submit(package: Path, dsn: str, name: str, *arguments: str) -> str:
    """What the program wrote to stdout. Neither its log nor what the UI would show has the password."""
    prepare()
    folder = package.parent
    events = folder / f"events-{name}"
    events.mkdir()
    before = set(folder.glob("process-*"))
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.python.daemon.module": "preloading",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
    }
    environment = {
        "PYTUBE_DSN": dsn,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "PYTHONPATH": str(folder),
        "PRELOADED": "",
    }
    done = subprocess.run(
        [
            str(home / "bin" / "spark-submit"),
            "--master",
            "local[2]",
            *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
            "--driver-java-options",
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "--py-files",
            str(package),
            str(ROOT / "examples" / name),
            *arguments,
        ],
        check=False,
        text=True,
        capture_output=True,
        timeout=200,
        cwd=folder,
        env={**os.environ, **environment},
    )
    assert SECRET not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(set(folder.glob("process-*")) - before) >= 2, "not the zip, but what is installed was used"
    logs = [path.read_bytes() for path in events.rglob("*") if path.is_file()]
    assert any(b"SparkListenerTaskEnd" in log for log in logs)
    assert not any(SECRET.encode() in log for log in logs)
    return done.stdout


@pytest.fixture
def run(
    spark: SparkSession,  # noqa: ARG001 # the session that it finds
    secret: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """Runs an example in this process; what it has printed."""

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setenv("PYTUBE_DSN", secret)
        monkeypatch.setattr(SparkSession, "stop", lambda _: None)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        out, err = capsys.readouterr()
        assert SECRET not in out + err
        return out

    return run


def test_a_fan_out_of_files(package: Path, secret: str, conn: Conn, tmp_path: Path) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute("CREATE TABLE public.x (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 4, 2)")
    (tmp_path / "ids.json").write_text("\n".join(f'{{"id": {n}}}' for n in range(500)))
    arguments = (
        "--tube",
        "t",
        "--input",
        str(tmp_path),
        "--format",
        "json",
        "--job",
        "files",
        "--connections",
        "2",
    )
    assert "500 ids in" in submit(package, secret, "fanout.py", *arguments)
    assert touched(conn) == sorted((4 + n % 2, n) for n in range(500))


def test_a_backfill(run: Callable[..., str], conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute("CREATE TABLE public.x AS SELECT generate_series(1::bigint, 500) AS id")
    conn.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
    assert "500 rows, 4 ranges" in run(
        "backfill.py",
        "--tube",
        "t",
        "--table",
        "public.x",
        "--ranges",
        "4",
        "--connections",
        "2",
    )
    assert touched(conn) == [(0, n) for n in range(1, 501)]


def test_a_reconciliation(run: Callable[..., str], conn: Conn, tmp_path: Path) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute(
        "CREATE TABLE public.x AS SELECT g AS id, 'v' || g AS v FROM generate_series(1::bigint, 100) AS g"
    )
    lines = [f'{{"id": {n}, "v": "v{n if n != 7 else 0}"}}' for n in range(2, 101)]
    (tmp_path / "sink.json").write_text("\n".join(lines))
    output = run(
        "reconcile.py",
        "--source",
        "public.x",
        "--sink",
        str(tmp_path),
        "--tube",
        "t",
        "--shard",
        "0",
        "--connections",
        "2",
    )
    assert "1 missing, 0 extra, 1 different" in output
    assert touched(conn) == [(0, 1), (0, 7)]


@pytest.mark.parametrize("way", ["run", pytest.param("submitted", marks=pytest.mark.soak)])
def test_a_stream_into_files(
    way: str, request: pytest.FixtureRequest, package: Path, secret: str, conn: Conn, tmp_path: Path
) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    places = ("--output", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "at"))
    conn.execute("SELECT t_touch(n, ARRAY[n, n + 100]::bigint[], 'U') FROM generate_series(1, 50) AS n")
    arguments = ("stream.py", "--tube", "t", "--purge", *places)
    if way == "submitted":
        submit(package, secret, *arguments)
    else:
        request.getfixturevalue("run")(*arguments)
    import pyarrow.dataset as ds

    rows = ds.dataset([str(path) for path in (tmp_path / "out").glob("*.parquet")]).to_table().to_pylist()
    assert sorted(row["id"] for row in rows) == [*range(1, 51), *range(101, 151)]
