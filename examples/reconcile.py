"""Compare a table with an export of a sink, and touch the keys that differ.

spark-submit --py-files pytube.zip examples/reconcile.py --source public.item --sink s3://out --tube es-live
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import SparkSession

from pytube.spark import reconcile, snapshot


def main() -> None:
    """Read the arguments, compare, touch, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", required=True, help="schema.table")
    parser.add_argument("--sink", required=True, help="files with the same columns")
    parser.add_argument("--format", default="json")
    parser.add_argument("--id", default="id")
    parser.add_argument("--columns", help="joined by commas; default: those that both have")
    parser.add_argument("--shard", type=int, default=0, help="of all ids")
    parser.add_argument("--tube", action="append", default=[], help="touch what differs; default: only tell")
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args()

    spark = SparkSession.builder.appName(f"reconcile {options.source}").getOrCreate()
    dsn = os.environ["PYTUBE_DSN"]
    with snapshot(spark, dsn) as moment:
        found = reconcile(
            moment.table(options.source, partitions=options.connections),
            spark.read.format(options.format).load(options.sink),
            options.id,
            options.columns.split(",") if options.columns else None,
            tubes=options.tube,
            dsn=dsn,
            shard=options.shard,
            max_connections=options.connections,
        )
    for what, shard, key in found.examples:
        print(f"{what}: id {key} of shard {shard}")
    spark.stop()


if __name__ == "__main__":
    main()
