"""The format `outbox`: read in parts, streamed without a gap."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pytube.errors import UsageError
from pytube.spark import register
from pytube.spark.queues import OutboxSource
from tests.conftest import Connect
from tests.helpers.outbox_sql import OUTBOX, adopt, make_outbox, stash
from tests.helpers.terms import Conn
from tests.helpers.waiting import wait_until


def test_records_are_read(spark: SparkSession, dsn: str, conn: Conn) -> None:
    make_outbox(conn, partitions=2)
    first = stash(conn, "k", "v", headers='{"a": "1", "b": "2"}', partition_key="p")
    second = stash(conn, None, None)
    conn.execute(
        f"INSERT INTO {OUTBOX} (kafka_topic, kafka_key)"
        " SELECT 't', g::text FROM generate_series(1, 3000) AS g"
    )
    register(spark, dsn)
    df = spark.read.format("outbox").option("outbox", OUTBOX).option("partitions", "3").load()
    assert df.rdd.getNumPartitions() == 3
    rows = df.orderBy("id").collect()
    assert len(rows) == 3002
    found = [tuple(row)[:1] + tuple(row)[2:] for row in rows[:2]]
    assert found == [
        (first, "t", "k", "v", ["a", "b"], ["1", "2"], "p"),
        (second, "t", None, None, [], [], None),
    ]


def test_an_adopted_table_is_read_and_is_no_stream(spark: SparkSession, dsn: str, conn: Conn) -> None:
    adopt(conn)
    stash(conn, "k", "v")
    register(spark, dsn)
    rows = spark.read.format("outbox").option("outbox", OUTBOX).load().collect()
    assert [(row["key"], row["value"], row["partition_key"]) for row in rows] == [("k", "v", None)]
    wrong = [
        ({"outbox": OUTBOX}, "its table was adopted"),
        ({"outbox": OUTBOX, "purge": "true"}, "deleted by its workers"),
        ({"outbox": "none"}, "there is no outbox 'none'"),
        ({}, "the option 'outbox' is missing"),
    ]
    for options, reason in wrong:
        with pytest.raises(UsageError, match=reason):
            OutboxSource({"dsn": dsn, **options}).streamReader(StructType())


def test_a_stream_waits_for_who_commits_late_and_goes_on_where_it_was(
    spark: SparkSession, dsn: str, conn: Conn, connect: Connect, tmp_path: Path
) -> None:
    make_outbox(conn, value_type="bytea")
    register(spark, dsn)
    seen: list[bytes] = []
    stream = (
        spark.readStream.format("outbox").option("outbox", OUTBOX).option("max_records", "3").load()
        .writeStream.foreachBatch(lambda df, _: seen.extend(bytes(row["value"]) for row in df.collect()))
        .option("checkpointLocation", str(tmp_path))
    )  # fmt: skip
    late = connect(autocommit=False)
    stash(late, "k", "0")
    for number in range(1, 5):
        stash(conn, "k", str(number))
    query = stream.start()
    try:
        wait_until(lambda: query.lastProgress is not None or query.exception(), what="the stream runs")
        assert seen == []
        late.commit()
        wait_until(lambda: len(seen) >= 5 or query.exception(), what="all are seen")
        assert max(progress["numInputRows"] for progress in query.recentProgress) <= 3
    finally:
        query.stop()
    stash(conn, "k", "5")
    query = stream.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert sorted(set(seen)) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert seen.count(b"5") == 1
