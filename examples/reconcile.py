"""Compare a table with an export of a sink, and touch the keys that differ.

spark-submit --py-files pytube.zip examples/reconcile.py --source public.item --sink s3://out --tube es-live
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import SparkSession

from pytube.spark import jsonl_documents, reconcile, snapshot
from pytube.spark.session import run_program


def main() -> None:
    """Read the arguments, compare, touch, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", required=True, help="schema.table")
    parser.add_argument("--sink", required=True, help="files with the same columns, or of our sink jsonl")
    parser.add_argument("--format", default="json", help="jsonl: what our sink has written")
    parser.add_argument("--id", default="id")
    parser.add_argument("--columns", help="joined by commas; default: those that both have")
    parser.add_argument("--shard", type=int, help="of all ids; default: that of the attached table")
    parser.add_argument("--tube", action="append", default=[], help="touch what differs; default: only tell")
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args()
    dsn = os.environ.get("PYTUBE_DSN") or parser.error("the variable PYTUBE_DSN has to name the database")

    spark = SparkSession.builder.appName(f"reconcile {options.source}").getOrCreate()
    with snapshot(spark, dsn) as moment:
        rows = moment.table(options.source, partitions=options.connections)
        if options.format == "jsonl":
            tube = options.tube[0] if options.tube else None
            sink = jsonl_documents(spark, options.sink, rows, options.id, tube=tube, shard=options.shard)
        else:
            sink = spark.read.format(options.format).load(options.sink)
        found = reconcile(
            rows,
            sink,
            options.id,
            options.columns.split(",") if options.columns else None,
            tubes=options.tube,
            dsn=dsn,
            shard=options.shard,
            max_connections=options.connections,
        )
    for what, shard, key in found.examples:
        print(f"{what}: id {key}" + ("" if shard is None else f" of shard {shard}"))
    spark.stop()


if __name__ == "__main__":
    run_program(main)
