"""A worker within a program: `Worker(...).run_until_signal()`, and what it logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

import pytube
from pytube.errors import UsageError
from pytube.worker.services import run_until_signal
from tests.helpers.waiting import LIMIT, wait_until

CONFIG = """
[postgres]
dsn = "${TEST_DSN}"
[worker]
election = "lease"
[tube.t.sink]
type = "callable"
target = "sinks:send"
"""
SINK = """
def send(batch):
    raise ValueError("a fault in the user's code")
"""
PROGRAM = """
import logging, pathlib
from pytube import Worker
from pytube.config import load
{logging}
Worker(load(pathlib.Path("pytube.toml"))).run_until_signal()
print("the end of the program")
"""
OWN_LOGGING = 'logging.basicConfig(level="INFO", filename="program.log", format="%(name)s: %(message)s")'


@pytest.fixture
def folder(tmp_path: Path, conn: psycopg.Connection[Any]) -> Path:
    (tmp_path / "pytube.toml").write_text(CONFIG)
    (tmp_path / "sinks.py").write_text(SINK)
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0)")
    conn.execute("INSERT INTO public.goods VALUES (1)")
    return tmp_path


def run(folder: Path, dsn: str, conn: psycopg.Connection[Any], logging: str, number: int) -> tuple[str, str]:
    """Run the program until it has failed to deliver, and end it by a signal; its stdout and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(logging=logging)],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TEST_DSN": dsn, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
    )
    try:
        marked = "SELECT EXISTS (SELECT FROM t WHERE leader_id IS NOT NULL)"
        wait_until(lambda: conn.execute(marked).fetchone() == (True,), what="the pod is marked")
        log = folder / "program.log"
        if logging:
            wait_until(lambda: log.exists() and "user_code_raised" in log.read_text(), what="a send")
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert conn.execute("SELECT outcome FROM tube_terms('t')").fetchall() == [("released",)]
    return out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_logs_to_the_programs_own_logging(
    folder: Path, dsn: str, conn: psycopg.Connection[Any], number: int
) -> None:
    assert run(folder, dsn, conn, OWN_LOGGING, number) == ("the end of the program\n", "")
    log = (folder / "program.log").read_text()
    started = next(line for line in log.splitlines() if "worker_started" in line)
    assert started.startswith("pytube.worker: worker_started version=")
    assert 'tubes=["t"] election=lease sinks=["callable"]' in started
    assert "leader_acquired tube=t partition=0 leader_id=" in log
    assert "user_code_raised tube=t partition=0 call=send" in log
    assert 'sinks.py", line 3, in send' in log, "the stack of the user's code"


def test_without_any_logging_nothing_goes_to_stdout(
    folder: Path, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    out, err = run(folder, dsn, conn, "", signal.SIGTERM)
    assert out == "the end of the program\n"
    assert "worker_started" not in err, "below a warning"


async def test_within_a_running_loop_it_says_what_to_call() -> None:
    with pytest.raises(UsageError, match=r"call `await worker\.start\(\)`"):
        run_until_signal(None)  # type: ignore[arg-type] # refused before it is looked at


def test_the_package_names_its_parts_and_loads_them_late() -> None:
    program = (
        "import json, sys, pytube; before = [n for n in sys.modules if n.startswith('pytube.')];"
        "from pytube import Config, Worker; print(json.dumps([before, Worker.__module__, Config.__module__]))"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert json.loads(said) == [["pytube.collision"], "pytube.worker.worker", "pytube.config.models"]
    assert not hasattr(pytube, "Nothing")
