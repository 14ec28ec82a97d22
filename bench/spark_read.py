"""A table read by Spark: the format `pgtable` against JDBC and against ADBC alone."""

from __future__ import annotations

from bench.frame.page import Section, Target
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.spark import TASKS, consume, jdbc_url, session
from bench.frame.statistics import ratios, spread
from pytube.spark import snapshot

ROWS = 2_000_000
PARTITIONS = 4
ROUNDS = 2
WORDS = {
    "pages": f"`pgtable`, {PARTITIONS} parts by pages",
    "key": f"`pgtable`, {PARTITIONS} parts by key",
    "jdbc": f"JDBC, {PARTITIONS} parts by key, `fetchsize` 10,000",
    "adbc": "ADBC alone, one session, rows thrown away",
}


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Spark: reading a table",
        f"{ROWS:,} rows of 200 bytes (a key, three numbers, a time and a text), all columns, on "
        f"`local[{TASKS}]`, into Spark's `noop`. The table is in the server's cache.",
    )
    dsn = server.database("bench_spark_read")
    with session(jdbc=True) as spark, connect(dsn) as admin:
        admin.execute(
            "CREATE TABLE public.item AS SELECT g AS id, g % 1000 AS a, g * 3 AS b, g / 7.0::float8 AS c, "
            f"now() AS at, repeat(md5(g::text), 4) AS note FROM generate_series(1::bigint, {ROWS}) AS g"
        )
        admin.execute("ALTER TABLE public.item ADD PRIMARY KEY (id)")
        admin.execute("VACUUM ANALYZE public.item")

        def by_pages(**options: str) -> float:
            with snapshot(spark, dsn) as moment:
                consume(moment.table("public.item", partitions=PARTITIONS, **options))
            return ROWS

        def by_jdbc() -> float:
            reader = spark.read.format("jdbc").options(
                url=jdbc_url(dsn),
                dbtable="public.item",
                driver="org.postgresql.Driver",
                partitionColumn="id",
                lowerBound="1",
                upperBound=str(ROWS),
                numPartitions=str(PARTITIONS),
                fetchsize="10000",
            )
            consume(reader.load())
            return ROWS

        taken = interleave(
            server.readings(dsn),
            {
                "pages": by_pages,
                "key": lambda: by_pages(key="id"),
                "jdbc": by_jdbc,
                "adbc": lambda: _alone(dsn),
            },
            ROUNDS,
        )
    section.table(
        ["", "rows/s", "ratio to JDBC", "ratio to ADBC alone"],
        [
            [
                WORDS[name],
                spread(rates(taken, name)).text(0),
                ratios(rates(taken, name), rates(taken, "jdbc")).text(),
                ratios(rates(taken, name), rates(taken, "adbc")).text(),
            ]
            for name in taken
        ],
    )
    found = ratios(rates(taken, "pages"), rates(taken, "jdbc")).middle
    section.targets.append(Target("Spark: `pgtable` to JDBC", 1.2, found))
    server.drop("bench_spark_read")
    return section


def _alone(dsn: str) -> float:
    import adbc_driver_postgresql.dbapi

    rows = 0
    with adbc_driver_postgresql.dbapi.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM public.item")
        for batch in cursor.fetch_record_batch():
            rows += batch.num_rows
    return float(rows)
