"""A reconciliation, against reading both sides once."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from bench.frame.page import Section, Target
from bench.frame.rounds import Case, interleave
from bench.frame.server import Server, connect
from bench.frame.spark import TASKS, consume, session
from bench.frame.statistics import ratios, spread
from pytube.spark import reconcile, snapshot

ROWS = 2_000_000
DIFFERENT = 100
PARTITIONS = 4
ROUNDS = 6
KINDS = ("json", "parquet")


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Spark: reconciliation",
        f"A table of {ROWS:,} rows against an export of it with {DIFFERENT} differences, all columns "
        f"compared, the differing keys touched, on `local[{TASKS}]`. Reading: both sides once, into Spark's "
        "`noop`.",
    )
    dsn = server.database("bench_spark_reconcile")
    with (
        session() as spark,
        connect(dsn) as admin,
        TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder,
    ):
        admin.execute("SELECT tube_ensure_exists('t')")
        admin.execute(
            "CREATE TABLE public.item AS SELECT g AS id, g % 1000 AS a, g * 3 AS b, md5(g::text) AS note "
            f"FROM generate_series(1::bigint, {ROWS}) AS g"
        )
        admin.execute("VACUUM ANALYZE public.item")
        with snapshot(spark, dsn) as moment:
            rows = moment.table("public.item", partitions=PARTITIONS)
            wrong = sf.when(sf.col("id") % (ROWS // DIFFERENT) == 7, "other").otherwise(sf.col("note"))
            for kind in KINDS:
                rows.withColumn("note", wrong).write.format(kind).save(str(Path(folder) / kind))

        def sink(kind: str) -> DataFrame:
            return (
                spark.read.schema("id bigint, a bigint, b bigint, note string")
                .format(kind)
                .load(str(Path(folder) / kind))
            )

        def read(kind: str) -> float:
            with snapshot(spark, dsn) as moment:
                consume(moment.table("public.item", partitions=PARTITIONS))
                consume(sink(kind))
            return ROWS

        def compare(kind: str) -> float:
            with snapshot(spark, dsn) as moment:
                found = reconcile(
                    moment.table("public.item", partitions=PARTITIONS),
                    sink(kind),
                    tubes="t",
                    dsn=dsn,
                    shard=0,
                    told=None,
                    max_connections=TASKS,
                )
            if found.different != DIFFERENT or found.missing or found.extra:
                raise RuntimeError(str(found))
            return ROWS

        def case(what: str, kind: str) -> Case:
            work = read if what == "read" else compare
            return lambda: work(kind)

        taken = interleave(
            server.readings(dsn),
            {f"{what} {kind}": case(what, kind) for kind in KINDS for what in ("read", "compare")},
            ROUNDS,
        )
    table = []
    for kind in KINDS:
        both = [[reading.wall for reading in taken[f"{what} {kind}"]] for what in ("read", "compare")]
        cost = ratios(both[1], both[0])
        table.append([kind, spread(both[0]).text(1), spread(both[1]).text(1), cost.text()])
        section.targets.append(
            Target(f"Spark: reconcile ({kind}) to reading both sides", 2, cost.middle, "at most")
        )
    section.table(["the sink's export", "reading, s", "reconcile, s", "ratio"], table)
    server.drop("bench_spark_reconcile")
    return section
