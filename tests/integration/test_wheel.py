"""The wheel carries what an installation from it needs, and no switch of the tests'."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import psycopg
import pytest

from pytube import __version__
from pytube.faults import Point
from tests.helpers.armed import VARIABLE
from tests.helpers.database import ROOT
from tests.helpers.waiting import wait_until
from tests.helpers.wheels import build, build_wheel

CONFIG = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
[tube.items.sink]
type = "jsonl"
path = "{sink}"
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


def test_wheel_carries_sql_and_migrations(wheel: zipfile.ZipFile) -> None:
    carried = set(wheel.namelist())
    expected = {"pytube/py.typed", "pytube/__init__.py"}
    for folder in ("sql", "migrations"):
        files = [
            path for path in (ROOT / folder).rglob("*") if path.suffix in {".sql", ".py", ".ini", ".mako"}
        ]
        expected |= {f"pytube/_resources/{path.relative_to(ROOT).as_posix()}" for path in files}
    needless = {name for name in expected if "/sql/extension/" in name or name.endswith("/sql/snapshot.sql")}
    resources = {name for name in carried if name.startswith("pytube/_resources/")}
    assert resources - expected == set()
    assert expected - carried == needless
    assert not any(name.startswith("tests/") for name in carried)


def test_an_sdist_has_what_makes_the_extension(tmp_path: Path) -> None:
    shutil.unpack_archive(build(tmp_path, "sdist"), tmp_path)
    (sources,) = tmp_path.glob("pytube_pg-*/sql")
    made = []
    for number, sql in enumerate((sources, ROOT / "sql")):
        to = tmp_path / str(number)
        subprocess.run(
            ["make", "-C", str(sql), "install", f"EXTENSION_DIR={to}"], check=True, capture_output=True
        )
        made.append({path.name: path.read_bytes() for path in to.iterdir()})
    assert made[0] == made[1]
    assert any(name.endswith(f"--{__version__}.sql") for name in made[0])


def test_the_variable_of_the_tests_is_in_no_file(wheel: zipfile.ZipFile) -> None:
    assert [name for name in wheel.namelist() if VARIABLE.encode() in wheel.read(name)] == []


def test_an_installed_worker_ignores_the_variable(
    wheel: zipfile.ZipFile, dsn: str, conn: psycopg.Connection[tuple[object, ...]], tmp_path: Path
) -> None:
    wheel.extractall(tmp_path / "site")
    sink = tmp_path / "sink.jsonl"
    (tmp_path / "pytube.toml").write_text(CONFIG.format(dsn=dsn, sink=sink))
    conn.execute("SELECT tube_ensure_exists('items')")
    conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
    conn.execute("INSERT INTO public.items VALUES (1)")
    command = [sys.executable, "-m", "pytube", "worker"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), VARIABLE: f"{Point.AFTER_MARK}:kill"}
    log = tmp_path / "worker.log"
    with (
        log.open("wb") as file,
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=file) as process,
    ):
        try:
            wait_until(
                lambda: process.poll() is not None or (sink.exists() and sink.read_bytes().endswith(b"\n")),
                what=lambda: f"a document at the sink\n{log.read_text()}",
            )
            process.terminate()
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()
