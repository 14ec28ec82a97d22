"""Fan-outs that are refused: nothing is written then, and what is wrong is named."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DecimalType, LongType, StructField, StructType

from pytube.errors import JobConflict, UsageError
from pytube.spark import touch
from tests.spark.test_touch import ALL, keys, pods, touched

Conn = psycopg.Connection[Any]


WRONG = StructType([StructField("id", DecimalType(30, 0)), StructField("shard", LongType())])


@pytest.mark.parametrize(
    ("key", "shard", "reason"),
    [
        (None, 0, "an id is NULL"),
        (Decimal(2**63), 0, "an id is beyond bigint: 9223372036854775808"),
        (Decimal(1), None, "a shard is NULL"),
        (Decimal(1), -1, "there is no shard -1"),
    ],
)
def test_a_key_that_cant_be(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, key: Any, shard: Any, reason: str
) -> None:
    rows = [(Decimal(n), n % 3) for n in range(100)]
    df = spark.createDataFrame([*rows, (key, shard)], WRONG)
    with pytest.raises(UsageError, match=reason):
        touch(df, tubes=tube, dsn=dsn, buckets=2)
    assert pods(conn) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"id": "key"}, "there is no column 'key' for the id; there are id, shard"),
        ({"shard": "place"}, "there is no column 'place' for the shard"),
        ({"shard": None}, "which shard?"),
        ({"op": "X"}, "there is no op 'X'"),
        ({"tubes": ["t", "none"]}, "there is no tube 'none'"),
        ({"tubes": []}, "needs a tube"),
        ({"pod_size": 0}, "at least 1"),
        ({"publish": "later"}, "neither 'direct' nor 'staged'"),
    ],
)
def test_what_is_refused(
    spark: SparkSession, dsn: str, tube: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        touch(keys(spark), **{"tubes": tube, "dsn": dsn, **options})


def test_a_column_of_another_type(spark: SparkSession, dsn: str, tube: str) -> None:
    with pytest.raises(UsageError, match="of type string; cast it to bigint"):
        touch(keys(spark).withColumn("id", sf.col("id").cast("string")), tubes=tube, dsn=dsn)


def test_a_name_belongs_to_one_query(spark: SparkSession, dsn: str, conn: Conn, tube: str) -> None:
    touch(keys(spark), tubes=tube, dsn=dsn, job_id="mine", buckets=2)
    with pytest.raises(JobConflict, match="another query"):
        touch(keys(spark).where("id > 5"), tubes=tube, dsn=dsn, job_id="mine", buckets=2)
    assert touched(conn) == ALL
