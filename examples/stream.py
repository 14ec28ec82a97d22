"""Read a tube as a stream, and write its touches as files; started again, it goes on where it was.

spark-submit --py-files pytube.zip examples/stream.py --tube audit --output hdfs:///touches --checkpoint hdfs:///at

A tube that is read so has no workers. With --purge, what was written is deleted from it.
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pytube.spark import register
from pytube.spark.session import run_program


def main() -> None:
    """Read the arguments, and stream until there is nothing more, or for ever."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tube", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--purge", action="store_true")
    parser.add_argument("--follow", action="store_true", help="go on for ever; default: until all is read")
    options = parser.parse_args()
    dsn = os.environ.get("PYTUBE_DSN") or parser.error("the variable PYTUBE_DSN has to name the database")

    spark = SparkSession.builder.appName(f"stream {options.tube}").getOrCreate()
    register(spark, dsn)
    pods = (
        spark.readStream.format("tube")
        .option("tube", options.tube)
        .option("purge", str(options.purge).lower())
        .load()
    )
    touches = pods.select("seq", "op", "shard", sf.explode("ids").alias("id"), "ts")
    writer = touches.writeStream.format("parquet").option("checkpointLocation", options.checkpoint)
    trigger = {"processingTime": "1 second"} if options.follow else {"availableNow": True}
    query = writer.option("path", options.output).trigger(**trigger).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    run_program(main)
