"""`df.write.format("tube")`: what tasks have staged is published once, whatever happens to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from unittest import mock

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pytube.spark import register
from pytube.spark.hosts import Host
from pytube.spark.pods import send
from pytube.spark.queues import Staged, TubeSource, TubeWriter
from tests.spark.test_touch import ALL, keys, touched

if TYPE_CHECKING:
    import pyarrow as pa

Conn = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def registered(spark: SparkSession, dsn: str) -> None:
    register(spark, dsn)


def write(df: DataFrame, kind: str = "tube", **options: str) -> None:
    df.write.format(kind).options(tube="t", pod_size="100", **options).mode("append").save()


def test_a_job_is_written_once(spark: SparkSession, conn: Conn, tube: str) -> None:
    for parts in (3, 5):
        write(keys(spark).repartition(parts), job_id="w")
    assert touched(conn, tube) == ALL
    assert conn.execute("SELECT state, ids FROM tube_job_list()").fetchall() == [("done", len(ALL))]


def test_a_name_belongs_to_one_query(spark: SparkSession, conn: Conn, tube: str) -> None:
    write(keys(spark, 3), job_id="mine")
    for options in ({"op": "U"}, {"shard": "3"}, {"fingerprint": "of another query"}):
        with pytest.raises(Exception, match="was begun at .* with another query"):
            write(keys(spark, 5), job_id="mine", **options)
    assert len(touched(conn, tube)) == 3


def test_a_key_that_cant_be(spark: SparkSession, conn: Conn, tube: str) -> None:
    for column, reason in {
        "if(id = 5, null, id) AS id": "an id is NULL",
        "cast(id AS string) AS id": "no column 'id' of whole numbers",
        "id AS key": "no column 'id' of whole numbers",
    }.items():
        with pytest.raises(Exception, match=reason):
            write(keys(spark, 9).selectExpr(column, "shard"), job_id="bad")
        assert touched(conn, tube) == []
    # Nothing is left of it: mended, it is written under its name.
    write(keys(spark, 9), job_id="bad")
    assert len(touched(conn, tube)) == 9


def dying(dsn: str, flag: Path, moment: str) -> type[TubeSource]:
    """The format, but that the first task which comes to a moment is killed there."""

    def die(now: str) -> None:
        if now == moment:
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    class Dying(TubeWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override] # as Spark has it
            def sending(*arguments: Any, **options: Any) -> None:
                send(*arguments, **options)
                die("copied")

            with mock.patch("pytube.spark.pods.send", sending):
                staged = super().write(iterator)
            die("committed")
            return staged

    class Format(TubeSource):
        hosts: ClassVar[Mapping[str, Host]] = {"default": Host(dsn)}

        @classmethod
        def name(cls) -> str:
            return "dying"

        def writer(self, schema: StructType, overwrite: bool) -> TubeWriter:
            made = super().writer(schema, overwrite)
            made.__class__ = Dying
            return made

    return Format


@pytest.mark.parametrize("moment", ["copied", "committed"])
def test_a_task_that_is_killed(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, tmp_path: Path, moment: str
) -> None:
    """In the middle of its rows, and after its commit, before Spark is told of it."""
    spark.dataSource.register(dying(dsn, tmp_path / "flag", moment))
    write(keys(spark), "dying", job_id="killed")
    assert (tmp_path / "flag").exists()
    assert touched(conn, tube) == ALL
