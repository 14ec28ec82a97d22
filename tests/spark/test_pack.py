"""Buckets by numpy are those that Spark's own hash gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pytube.spark.keys.kinds import kind_of
from pytube.spark.pods.pack import bucket_of

EDGES = [0, 1, -1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]


def test_buckets_are_those_of_spark(spark: SparkSession) -> None:
    ids = [*EDGES, *(n * 7919**4 % 2**62 for n in range(50))]
    shards = [0, 1, 7, 2**31 - 1]
    rows = ", ".join(
        f"({shard}, {key})" if key > -(2**63) else f"({shard}, {key + 1} - 1)"
        for shard in shards
        for key in ids
    )
    df = spark.sql(f"SELECT cast(col1 AS int) AS shard, cast(col2 AS bigint) AS id FROM VALUES {rows}")
    found = df.select("shard", "id", sf.expr("pmod(xxhash64(shard, id), 64)").alias("bucket")).collect()
    mine = bucket_of(
        np.array([row["shard"] for row in found]), np.array([row["id"] for row in found], np.int64), 64
    )
    assert mine.tolist() == [row["bucket"] for row in found]
    assert len(set(mine.tolist())) > 40


@pytest.mark.parametrize("key_type", ["uuid", "text"])
def test_buckets_of_other_keys(spark: SparkSession, key_type: str) -> None:
    """Of a uuid by its 16 bytes; of texts of all lengths, some of them with characters of several bytes."""
    digits = "md5(cast(id AS string))"
    odd = f"concat(repeat('€ü', cast(id % 70 AS int)), substr(repeat({digits}, 5), 1, cast(id % 160 AS int)))"
    made, value = (digits, "unhex(key)") if key_type == "uuid" else (odd, "key")
    df = spark.range(0, 1000, 1, 2).selectExpr("cast(id % 3 AS int) AS shard", f"{made} AS key")
    found = df.selectExpr("shard", "key", f"pmod(xxhash64(shard, {value}), 1000) AS bucket").collect()
    kind = kind_of(key_type)
    for rows, keys in kind.read(pa.array([row["key"] for row in found])):
        some = [found[row] for row in np.arange(len(found))[rows]]
        mine = bucket_of(np.array([row["shard"] for row in some]), keys, 1000, kind)
        assert mine.tolist() == [row["bucket"] for row in some]
