"""Buckets by numpy are those that Spark's own hash gives."""

from __future__ import annotations

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pytube.spark.pack import bucket_of

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
