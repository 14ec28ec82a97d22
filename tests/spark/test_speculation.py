"""Speculative copies of tasks, by executors that are processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pyspark
import pytest

from pytube.spark.session import prepare
from tests.helpers.database import ROOT
from tests.spark.test_touch import ALL, touched

DRIVER = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.helpers.waiting import wait_until
from tests.spark.probes import touch
from tests.spark.test_touch import keys

dsn, folder = json.loads(sys.argv[1])
folder = Path(folder)

def probe(moment, unit):
    (folder / f"{moment}-{unit}-{os.getpid()}").touch()
    if moment == "copied" and unit == 1:
        try:
            os.close(os.open(folder / "first", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        # Until Spark has had enough of waiting, and another one has written the unit.
        wait_until(lambda: list(folder.glob("committed-1-*")), 60)

settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    "spark.log.level": "ERROR",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}
builder = SparkSession.builder.master("local-cluster[2,1,512]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
done = touch(keys(spark), tubes="t", dsn=dsn, buckets=2, max_connections=2, probe=probe)
print(json.dumps([done.rows, done.ids]))
spark.stop()
"""


@pytest.mark.soak
def test_a_copy_that_is_faster(dsn: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    prepare()
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps([dsn, str(tmp_path)])],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_HOME": str(Path(pyspark.__file__).parent)},
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [len(ALL), len(ALL)]
    assert len(list(tmp_path.glob("copied-1-*"))) == 2, "Spark has not speculated"
    assert touched(conn) == ALL
