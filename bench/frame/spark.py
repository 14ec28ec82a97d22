"""The Spark session that is measured: two tasks at a time, in this process's own JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from pytube.embedded import java
from pytube.spark.session import local

TASKS = 2
DRIVER = "org.postgresql:postgresql:42.7.4"
MEMORY = "2g"


@contextmanager
def session(*, jdbc: bool = False) -> Iterator[SparkSession]:
    """A session with defaults but for its size; with Postgres' JDBC driver where that is compared."""
    settings = {
        "spark.driver.memory": MEMORY,
        "spark.sql.shuffle.partitions": str(TASKS),
        "spark.default.parallelism": str(TASKS),
    }
    if jdbc:
        settings["spark.jars"] = ",".join(map(str, java.jars(DRIVER)))
    spark = local(str(TASKS), settings, "pytube bench")
    try:
        yield spark
    finally:
        spark.stop()


def consume(df: DataFrame) -> None:
    """Read all rows, and throw them away."""
    df.write.format("noop").mode("overwrite").save()


def jdbc_url(dsn: str, **options: str) -> str:
    """The same database for JDBC."""
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(dsn)
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return (
        f"jdbc:postgresql://{parts['host']}:{parts.get('port', 5432)}/{parts['dbname']}"
        f"?user={parts['user']}{more}"
    )
