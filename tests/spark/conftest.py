"""One Spark session for all tests of a process."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from pytube.spark.session import local
from tests.helpers.database import ROOT

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.codegen.wholeStage": "false",
    "spark.python.daemon.module": "tests.spark.daemon",
}
"""Fast to start, small."""
PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m tests.spark.daemon "$@"
fi
exec {} "$@"
"""
"""What Spark starts as Python: for processes that plan reads and writes, the setting above has no effect."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session. A task that fails is tried once more."""
    python: Path = tmp_path_factory.mktemp("spark") / "python"
    python.write_text(PYTHON.format(shlex.quote(sys.executable)))
    python.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = str(python)
    # The tasks' own Python finds the tests as this one does.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ["PRELOADED"] = "pytube.spark"
    session = local("2,2", SETTINGS, "pytube tests")
    yield session
    session.stop()


@pytest.fixture
def tube(conn: psycopg.Connection[Any]) -> str:
    """A tube of numbers, with 4 partitions."""
    conn.execute("SELECT tube_ensure_exists('t', 4)")
    return "t"
