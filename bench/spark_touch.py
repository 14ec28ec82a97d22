"""A fan-out by Spark, against Spark's own JDBC writer and a COPY, of the very same pods."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from bench.frame.page import Section, Target
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.spark import TASKS, jdbc_url, session
from bench.frame.statistics import ratios, spread
from pytube.spark import touch
from pytube.spark.pods import HEADER, TRAILER, cut, encode

IDS = 5_000_000
SHARDS = 16
POD = 250
ROUNDS = 6
WORDS = {
    "touch": "`touch`, direct",
    "staged": "`touch`, staged",
    "jdbc": "JDBC, `reWriteBatchedInserts`, pods made by Spark",
    "ready": "the same, pods made beforehand",
    "copy": "one psycopg, binary COPY of bytes made beforehand",
}
PIECE = 1 << 18


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Spark: fan-out of a DataFrame",
        f"{IDS:,} ids in {SHARDS} shards, pods of {POD}, on `local[{TASKS}]`. `touch` computes the ids, "
        "sends them to 64 units, makes the pods, and writes each unit with its row in the ledger in one "
        "transaction. The JDBC writer gets the same pods, made from the same ids by `groupBy` and "
        "`collect_list`, or made beforehand, in 64 transactions too (as many partitions), with no ledger "
        "and no way to try again. All durable; the tube is emptied before each.",
    )
    dsn = server.database("bench_spark_touch")
    with (
        session(jdbc=True) as spark,
        connect(dsn) as admin,
        connect(dsn) as writer,
        TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder,
    ):
        admin.execute("SELECT tube_ensure_exists('t', 4)")
        file = Path(folder) / "pods"
        _pods(file)
        df = keys(spark, IDS)
        # Not cached: Spark would find the cache wherever it meets the same query, and so in the other case.
        ready = _made(spark).localCheckpoint()
        url = jdbc_url(dsn, reWriteBatchedInserts="true", stringtype="unspecified")

        def fan_out(publish: str) -> float:
            done = touch(df, tubes="t", dsn=dsn, publish=publish, max_connections=TASKS)  # type: ignore[arg-type]
            return float(done.ids)

        def by_jdbc(pods: DataFrame) -> float:
            pods.write.format("jdbc").options(
                url=url, dbtable="tube.t", driver="org.postgresql.Driver", batchsize="1000"
            ).mode("append").save()
            return IDS

        taken = interleave(
            server.readings(dsn),
            {
                "touch": lambda: fan_out("direct"),
                "staged": lambda: fan_out("staged"),
                "jdbc": lambda: by_jdbc(_made(spark)),
                "ready": lambda: by_jdbc(ready),
                "copy": lambda: _copy(writer, file),
            },
            ROUNDS,
            lambda _: _empty(admin),
        )
    section.table(
        ["", "ids/s", "ratio to JDBC", "ratio to COPY", "WAL B each", "server CPU µs each"],
        [
            [
                WORDS[name],
                spread(rates(taken, name)).text(0),
                ratios(rates(taken, name), rates(taken, "jdbc")).text(),
                ratios(rates(taken, name), rates(taken, "copy")).text(),
                f"{spread([r.wal_each for r in readings]).middle:,.1f}",
                f"{spread([r.cpu_each for r in readings]).middle:,.2f}",
            ]
            for name, readings in taken.items()
        ],
    )
    to_jdbc = ratios(rates(taken, "touch"), rates(taken, "jdbc")).middle
    to_copy = ratios(rates(taken, "touch"), rates(taken, "copy")).middle
    section.targets.append(Target("Spark: `touch` to the JDBC writer", 4, to_jdbc))
    section.targets.append(Target("Spark: `touch` to one binary COPY", 0.5, to_copy))
    server.drop("bench_spark_touch")
    return section


def keys(spark: SparkSession, count: int) -> DataFrame:
    """So many keys."""
    return spark.range(0, count, 1, 8).withColumn("shard", (sf.col("id") % SHARDS).cast("int"))


def _pods(file: Path) -> None:
    ids = np.arange(IDS, dtype=np.int64)
    with file.open("wb") as data:
        data.write(HEADER)
        for block in np.array_split(ids, 8):
            for pods in cut(block % SHARDS, block, POD):
                data.write(encode(pods, "T"))
        data.write(TRAILER)


def _made(spark: SparkSession) -> DataFrame:
    """The same pods, as Spark makes them."""
    pod = sf.floor(sf.col("id") / (SHARDS * POD))
    grouped = keys(spark, IDS).groupBy("shard", pod.alias("pod")).agg(sf.collect_list("id").alias("ids"))
    return grouped.select(sf.lit("T").alias("op"), "shard", "ids").repartition(64)


def _copy(writer: psycopg.Connection, file: Path) -> float:
    statement = "COPY tube.t (op, shard, ids, payload) FROM STDIN (FORMAT binary)"
    with writer.cursor().copy(statement) as copy, file.open("rb") as data:
        while piece := data.read(PIECE):
            copy.write(piece)
    return IDS


def _empty(admin: psycopg.Connection) -> None:
    admin.execute("TRUNCATE tube.t")
    admin.execute("SELECT tube_job_forget(NULL, clock_timestamp())")
    admin.execute("CHECKPOINT")
