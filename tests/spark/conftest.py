"""One Spark session for all tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
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


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session. A task that fails is tried once more."""
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
