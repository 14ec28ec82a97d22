"""Fan-outs of uuids and texts by Spark, against one of as many numbers."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from pyspark.sql import DataFrame, SparkSession

from bench.frame.page import Section
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.spark import TASKS, session
from bench.frame.statistics import ratios, spread
from pytube.spark import touch

KEYS = 2_000_000
SHARDS = 16
ROUNDS = 2
HEX = "md5(cast(id AS string))"
UUID = f"regexp_replace({HEX}, '(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.{{12}})', '$1-$2-$3-$4-$5')"
MADE = {
    "bigint": ("bigint", "id"),
    "uuid": ("uuid", UUID),
    "bytes": ("uuid", f"unhex({HEX})"),
    "text": ("text", "concat('order-', id, substr(repeat('x', 12), 1, cast(id % 12 AS int)))"),
}
"""The type of the tube's keys, and a key in Spark."""
WORDS = {
    "bigint": "numbers",
    "uuid": "uuids, as texts of 36 characters",
    "bytes": "uuids, as 16 bytes",
    "text": "texts of 7 to 24 bytes",
    "uuid derived": "uuids, their shards derived",
    "text derived": "texts, their shards derived",
}


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Spark: keys of the three types",
        f"{KEYS:,} keys in {SHARDS} shards, from Parquet, by `touch`, direct, on `local[{TASKS}]`, pods of "
        "250. *Derived*: no column of shards is given; each key's is computed, by its md5. All durable; the "
        "tube is emptied before each.",
    )
    dsn = server.database("bench_spark_keys")
    with (
        session() as spark,
        connect(dsn) as admin,
        TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder,
    ):
        frames = {name: _written(spark, Path(folder) / name, key) for name, (_, key) in MADE.items()}
        for kind in ("bigint", "uuid", "text"):
            admin.execute("SELECT tube_ensure_exists(%s, 4, NULL, %s::regtype)", [kind, kind])
            admin.execute(f"CREATE TABLE public.of_{kind} (id {kind} PRIMARY KEY)".encode())
            admin.execute(
                "SELECT tube_table_ensure_attached(%s, %s::regclass, 0, %s)",
                [kind, f"public.of_{kind}", SHARDS],
            )

        def fan_out(name: str) -> float:
            made = name.removesuffix(" derived")
            shard = None if name.endswith("derived") else "shard"
            done = touch(frames[made], tubes=MADE[made][0], dsn=dsn, shard=shard, max_connections=TASKS)
            return float(done.ids)

        taken = interleave(
            server.readings(dsn),
            {name: lambda name=name: fan_out(name) for name in WORDS},  # type: ignore[misc]
            ROUNDS,
            lambda _: _empty(admin),
        )
    section.table(
        ["", "ids/s", "ratio to numbers", "WAL B each", "server CPU µs each"],
        [
            [
                WORDS[name],
                spread(rates(taken, name)).text(0),
                ratios(rates(taken, name), rates(taken, "bigint")).text(),
                f"{spread([r.wal_each for r in readings]).middle:,.1f}",
                f"{spread([r.cpu_each for r in readings]).middle:,.2f}",
            ]
            for name, readings in taken.items()
        ],
    )
    server.drop("bench_spark_keys")
    return section


def _written(spark: SparkSession, path: Path, key: str) -> DataFrame:
    # The shards are none of the spread table's: those would be looked at for each key.
    made = spark.range(0, KEYS, 1, 8).selectExpr(f"{key} AS id", f"cast(100 + id % {SHARDS} AS int) AS shard")
    made.write.parquet(str(path))
    return spark.read.parquet(str(path))


def _empty(admin: psycopg.Connection) -> None:
    admin.execute("TRUNCATE tube.bigint, tube.uuid, tube.text")
    admin.execute("SELECT tube_job_forget(NULL, clock_timestamp())")
    admin.execute("CHECKPOINT")
