"""The formats `pgtable` and `tube`: read in parts as of one moment, streamed without a gap, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pytube.spark import register, snapshot, touch
from tests.conftest import Connect
from tests.helpers.waiting import wait_until
from tests.spark.test_touch import touched

Conn = psycopg.Connection[Any]

TYPES = """
    CREATE TABLE public.kinds AS
    SELECT g AS id, g::smallint AS i2, g::integer AS i4, g / 2.0::float8 AS f, 'text ' || g AS t,
        timestamptz '2026-01-02 03:04:05.678+00' AS ts, timestamp '2026-01-02 03:04:05' AS tsn,
        date '2026-01-02' AS d, g % 2 = 0 AS b, '\\x00ff'::bytea AS y, (g / 4.0)::numeric(12, 2) AS n,
        g::numeric AS wide, jsonb_build_object('g', g) AS j, ARRAY[g, 2] AS a, '{x,NULL}'::text[] AS ta,
        CASE WHEN g % 3 = 0 THEN g END AS sometimes, md5(g::text)::uuid AS u
    FROM generate_series(1::bigint, 1000) AS g
"""
SEVEN = {
    "id": "7",
    "i2": "7",
    "i4": "7",
    "f": "3.5",
    "t": "text 7",
    "ts": "2026-01-02 03:04:05.678000",
    "tsn": "2026-01-02 03:04:05",
    "d": "2026-01-02",
    "b": "False",
    "y": "b'\\x00\\xff'",
    "n": "1.75",
    "wide": "7",
    "j": '{"g": 7}',
    "a": "[7, 2]",
    "ta": "['x', None]",
    "sometimes": "None",
    "u": "8f14e45f-ceea-167a-5a36-dedd4bea2543",
}


def test_a_table_is_read_in_parts(spark: SparkSession, dsn: str, conn: Conn) -> None:
    """By pages, and by columns of several types."""
    conn.execute(TYPES)
    conn.execute("ANALYZE public.kinds")
    with snapshot(spark, dsn) as moment:
        conn.execute("DELETE FROM public.kinds WHERE id % 2 = 0")
        for options in ({}, *({"key": key} for key in ("id", "t", "u", "sometimes"))):
            df = moment.table("public.kinds", partitions=4, **options)
            assert 2 <= df.rdd.getNumPartitions() <= 5
            rows = {row["id"]: row.asDict() for row in df.collect()}
            assert sorted(rows) == list(range(1, 1001)), options
            assert {name: str(value) for name, value in rows[7].items()} == SEVEN, options


def test_a_moment_that_is_over(spark: SparkSession, dsn: str, conn: Conn) -> None:
    conn.execute("CREATE TABLE public.x AS SELECT 1 AS id")
    with snapshot(spark, dsn) as moment:
        df = moment.table("public.x")
        assert df.count() == 1
    with pytest.raises(Exception, match="snapshot .* does not exist|invalid snapshot identifier"):
        df.collect()


def into(seen: list[int], stream: DataFrame, folder: Path) -> DataStreamWriter:
    """A stream that puts the ids of its pods into a list."""

    def take(batch: DataFrame, _: int) -> None:
        seen.extend(key for row in batch.collect() for key in row["ids"])

    return stream.writeStream.foreachBatch(take).option("checkpointLocation", str(folder))


def test_pods_are_read(spark: SparkSession, dsn: str, conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 3)")
    for shard in range(5):
        conn.execute("SELECT t_touch(%s, ARRAY[1, 2]::bigint[], 'U', '{\"a\": 1}')", [shard])
    register(spark, dsn)
    rows = spark.read.format("tube").option("tube", "t").load().orderBy("seq").collect()
    assert [(row["shard"], row["ids"], row["op"], row["payload"]) for row in rows] == [
        (shard, [1, 2], "U", '{"a": 1}') for shard in range(5)
    ]


def test_a_stream_goes_on_where_it_was(spark: SparkSession, dsn: str, conn: Conn, tmp_path: Path) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 3)")
    register(spark, dsn)

    def run() -> list[int]:
        seen: list[int] = []
        stream = spark.readStream.format("tube").option("tube", "t").option("purge", "true").load()
        query = into(seen, stream, tmp_path).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return sorted(seen)

    conn.execute("SELECT t_touch(n, ARRAY[n]::bigint[], 'U') FROM generate_series(1, 10) AS n")
    assert run() == list(range(1, 11))
    conn.execute("SELECT t_touch(n, ARRAY[n]::bigint[], 'U') FROM generate_series(11, 20) AS n")
    assert run() == list(range(11, 21))
    assert len(touched(conn)) <= 10  # purged with the batch after


def test_reads_that_cant_be(spark: SparkSession, dsn: str, conn: Conn) -> None:
    conn.execute("CREATE TABLE public.x AS SELECT 1 AS id")
    register(spark, dsn)
    wrong: list[tuple[dict[str, str], str]] = [
        ({"table": "public.none"}, "there is no table 'public.none'"),
        ({"table": "public.x", "columns": "id, none"}, "has no column 'none'; it has id"),
        ({"table": "public.x", "query": "SELECT 1"}, "give one of the options table and query"),
        ({"query": "SELEC 1"}, "can't be read: syntax error"),
        ({"query": "SELECT 1 AS a, 2 AS a"}, "two columns of .* have the same name"),
        ({"table": "public.x", "key": "none"}, "can't be divided by 'none'"),
        ({"table": "public.x", "partitions": "0"}, "the option 'partitions' is '0'"),
        ({"table": "public.x", "snapshot": "x'; DROP"}, "is not a valid Postgres snapshot"),
        ({"table": "public.x", "host": "other"}, "no database 'other' is registered"),
        ({"table": "public.x", "where": "no_such(id)"}, "function no_such"),
    ]
    for options, reason in wrong:
        with pytest.raises(Exception, match=reason):
            spark.read.format("pgtable").options(**{"snapshot": "each", **options}).load().collect()


@pytest.mark.usefixtures("conn")
def test_tubes_that_cant_be(spark: SparkSession, dsn: str) -> None:
    register(spark, dsn)
    with pytest.raises(Exception, match="there is no tube 'none'"):
        spark.readStream.format("tube").option("tube", "none").load()
    with pytest.raises(Exception, match="there is no tube 'none'"):
        spark.read.format("tube").option("tube", "none").load()
    with pytest.raises(Exception, match="can't be overwritten"):
        spark.range(1).write.format("tube").option("tube", "t").mode("overwrite").save()


def test_a_stream_waits_for_who_commits_late(
    spark: SparkSession, dsn: str, conn: Conn, connect: Connect, tmp_path: Path
) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    register(spark, dsn)
    seen: list[int] = []
    stream = spark.readStream.format("tube").option("tube", "t").option("max_pods", "3").load()
    query = into(seen, stream, tmp_path).start()
    try:
        late = connect(autocommit=False)
        late.execute("SELECT t_touch(0, '{1}', 'U')")
        for key in range(2, 9):
            conn.execute("SELECT t_touch(1, %s, 'U')", [[key]])
        # Whatever was drawn before by somebody who is still open is waited for.
        wait_until(lambda: query.lastProgress is not None or query.exception(), what="the stream runs")
        assert [key for key in seen if key > 1] == []
        late.commit()
        wait_until(lambda: len(seen) >= 8 or query.exception(), what="all are seen")
        assert query.exception() is None
        assert sorted(seen) == list(range(1, 9))
        assert max(progress["numInputRows"] for progress in query.recentProgress) <= 3
    finally:
        query.stop()


SECRET = "s3cret-word"


def test_the_password_is_nowhere(
    spark: SparkSession, dsn: str, conn: Conn, capfd: pytest.CaptureFixture[str]
) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute("CREATE TABLE public.x AS SELECT generate_series(1, 10) AS id")
    conn.execute(f"CREATE ROLE reader LOGIN SUPERUSER PASSWORD '{SECRET}'")
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    secret = f"postgresql://reader:{SECRET}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    try:
        texts = []
        with snapshot(spark, secret) as moment:
            df = moment.table("public.x", partitions=2)
            plan: Any = df._jdf.queryExecution()
            texts += [plan.toString(), plan.logical().toString(), plan.executedPlan().treeString()]
            assert df.count() == 10
            df.explain(True)
        wrong = secret.replace(str(parts["port"]), "1")
        register(spark, {"wrong": wrong})
        for broken in (
            lambda: spark.read.format("tube").option("host", "wrong").option("tube", "t").load().collect(),
            lambda: spark.read.format("tube").option("dsn", secret).option("tube", "t").load().collect(),
            lambda: touch(spark.range(3), tubes="t", dsn=wrong, shard=0),
            lambda: touch(spark.range(3), tubes="none", dsn=secret, shard=0),
        ):
            with pytest.raises(Exception) as raised:  # noqa: PT011
                broken()
            texts.append(f"{raised.value}\n{raised.value!r}")
        touch(spark.range(3), tubes="t", dsn=secret, shard=0)
        texts += [*capfd.readouterr()]
        assert not [text for text in texts if SECRET in text]
    finally:
        conn.execute("DROP ROLE reader")
