"""Fan-outs that are refused: nothing is written then, and what is wrong is named."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DecimalType, LongType, StructField, StructType

from pytube.errors import JobConflict, UsageError
from pytube.spark import PartFailed, touch
from tests.spark.test_touch import ALL, keys, pods, touched

Conn = psycopg.Connection[Any]


@pytest.fixture
def tube(conn: Conn) -> str:
    conn.execute("SELECT tube_ensure_exists('t', 4)")
    return "t"


WRONG = StructType([StructField("id", DecimalType(30, 0)), StructField("shard", LongType())])


@pytest.mark.parametrize(
    ("key", "shard", "reason"),
    [
        (None, 0, "an id is NULL"),
        (Decimal(2**63), 0, "an id is beyond bigint: 9223372036854775808"),
        (Decimal(-(2**63) - 1), 0, "an id is beyond bigint"),
        (Decimal(1), None, "a shard is NULL"),
        (Decimal(1), -1, "there is no shard -1"),
        (Decimal(1), 2**31, "there is no shard 2147483648"),
    ],
)
def test_a_key_that_cant_be(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, key: Any, shard: Any, reason: str
) -> None:
    rows = [(Decimal(n), n % 3) for n in range(100)]
    df = spark.createDataFrame([*rows, (key, shard)], WRONG)
    with pytest.raises(UsageError, match=reason):
        touch(df, tubes=tube, dsn=dsn)
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
    touch(keys(spark), tubes=tube, dsn=dsn, job_id="mine")
    with pytest.raises(JobConflict, match="another query"):
        touch(keys(spark).where("id > 5"), tubes=tube, dsn=dsn, job_id="mine")
    assert touched(conn) == ALL


def test_keys_that_are_no_numbers(spark: SparkSession, dsn: str, conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('words', 1, NULL, 'text')")
    with pytest.raises(UsageError, match="the keys of tube 'words' are of type text"):
        touch(keys(spark), tubes="words", dsn=dsn)


def test_a_caller_without_rights(spark: SparkSession, dsn: str, conn: Conn, tube: str) -> None:
    conn.execute("CREATE ROLE nobody_much LOGIN")
    conn.execute("GRANT USAGE ON SCHEMA tube TO nobody_much")
    try:
        with pytest.raises(UsageError, match="permission denied"):
            touch(keys(spark), tubes=tube, dsn=make_conninfo(dsn, user="nobody_much"))
        for function in ("begin", "units", "done", "finish", "list"):
            conn.execute(f"GRANT EXECUTE ON FUNCTION tube.tube_job_{function} TO nobody_much")
        conn.execute("GRANT EXECUTE ON FUNCTION tube.tube_list TO nobody_much")
        # Staged, that is all; to write to the tube itself, the caller needs more.
        mine = make_conninfo(dsn, user="nobody_much")
        touch(keys(spark), tubes=tube, dsn=mine, publish="staged")
        assert touched(conn) == ALL
        with pytest.raises(PartFailed, match="permission denied"):
            touch(keys(spark), tubes=tube, dsn=mine)
        conn.execute("GRANT INSERT (op, shard, ids, payload) ON tube.t TO nobody_much")
        conn.execute("GRANT USAGE ON SEQUENCE tube.tube_seq TO nobody_much")
        conn.execute("DELETE FROM t")
        touch(keys(spark), tubes=tube, dsn=mine)
        assert touched(conn) == ALL
    finally:
        conn.execute("DROP OWNED BY nobody_much")
        conn.execute("DROP ROLE nobody_much")
