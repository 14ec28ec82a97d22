"""Touch all ids that are in files: a fan-out that runs on any Spark.

spark-submit --py-files pytube.zip examples/fanout.py --tube es-live --input hdfs:///ids --job reprice-7

The connection string is in the variable PYTUBE_DSN of the driver; it travels to the tasks, and is in no log.
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import SparkSession

from pytube.spark import touch
from pytube.spark.session import run_program


def main() -> None:
    """Read the arguments, touch, and say how many."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tube", required=True, action="append", help="one, or several")
    parser.add_argument("--input", required=True, help="a file or folder with a column id")
    parser.add_argument("--format", default="parquet")
    parser.add_argument("--shard", help="the column of the shards; default: that of the attached table")
    parser.add_argument(
        "--job", required=True, help="run it again under this name, and only what lacks is written"
    )
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args()
    dsn = os.environ.get("PYTUBE_DSN") or parser.error("the variable PYTUBE_DSN has to name the database")

    spark = SparkSession.builder.appName(f"fan-out {options.job}").getOrCreate()
    done = touch(
        spark.read.format(options.format).load(options.input),
        tubes=options.tube,
        dsn=dsn,
        shard=options.shard,
        job_id=options.job,
        max_connections=options.connections,
    )
    if done.units:
        print(f"{done.ids} ids in {done.pods} pods, {done.units} units written, in {done.seconds:.1f} s")
    else:
        print(
            f"job {options.job} was finished before: {done.ids} ids in {done.pods} pods; nothing was written"
        )
    spark.stop()


if __name__ == "__main__":
    run_program(main)
