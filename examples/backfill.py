"""Backfill a table in ranges that several sessions insert; started again, it goes on.

spark-submit --py-files pytube.zip examples/backfill.py --tube es-live --table public.item
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import SparkSession

from pytube.spark import backfill
from pytube.spark.session import run_program


def main() -> None:
    """Read the arguments, backfill, and say how many rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tube", required=True)
    parser.add_argument("--table", required=True, help="schema.table")
    parser.add_argument("--order-col", help="rows are touched in about this order; it wants an index")
    parser.add_argument("--ranges", type=int, default=64)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--backlog", type=int, help="wait while so many backfill pods wait in the tube")
    options = parser.parse_args()
    dsn = os.environ.get("PYTUBE_DSN") or parser.error("the variable PYTUBE_DSN has to name the database")

    spark = SparkSession.builder.appName(f"backfill {options.table}").getOrCreate()
    done = backfill(
        spark,
        options.tube,
        options.table,
        options.order_col,
        dsn=dsn,
        ranges=options.ranges,
        max_connections=options.connections,
        backlog=options.backlog,
        began=lambda number: print(f"backfill {number}", flush=True),
    )
    print(f"{done.rows} rows, {done.ranges} ranges inserted, in {done.seconds:.1f} s")
    spark.stop()


if __name__ == "__main__":
    run_program(main)
