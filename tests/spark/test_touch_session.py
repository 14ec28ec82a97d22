"""A fan-out works in a session of its own: it knows all that the caller's does, and changes nothing there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from pytube.spark import touch
from tests.spark.test_touch import ALL, keys, touched

Conn = psycopg.Connection[Any]
SETTINGS = ("spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch")


def test_the_callers_session_stays_as_it_is(spark: SparkSession, dsn: str, conn: Conn, tube: str) -> None:
    before = [spark.conf.get(name) for name in SETTINGS]
    kept = keys(spark).cache()
    kept.createOrReplaceTempView("mine")
    try:
        touch(spark.sql("SELECT * FROM mine"), tubes=tube, dsn=dsn, buckets=2)
    finally:
        spark.catalog.dropTempView("mine")
        kept.unpersist()
    assert touched(conn) == ALL
    assert [spark.conf.get(name) for name in SETTINGS] == before


def test_a_batch_of_a_stream(spark: SparkSession, dsn: str, conn: Conn, tube: str, tmp_path: Path) -> None:
    def work(batch: DataFrame, number: int) -> None:
        touch(batch, tubes=tube, dsn=dsn, job_id=f"batch {number}", buckets=2)

    files = str(tmp_path / "keys")
    keys(spark).write.parquet(files)
    stream = spark.readStream.schema("id bigint, shard int").parquet(files).writeStream
    query = stream.foreachBatch(work).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(60)
    assert touched(conn) == ALL
