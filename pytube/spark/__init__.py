"""PySpark does what is too big for one connection: fan-outs, backfills, reconciliation, reads and streams.

Needs `pip install pytube-pg[spark]`. Only this package imports Spark, and only the command line imports this.
"""

from pytube.spark.hosts import Host, ShardMap, shard_map
from pytube.spark.job import PartFailed
from pytube.spark.ranges import Backfilled, backfill, fanout_sql
from pytube.spark.reconcile import Reconciled, jsonl_documents, reconcile
from pytube.spark.session import Snapshot, register, snapshot
from pytube.spark.touch import Touched, touch

__all__ = [
    "Backfilled",
    "Host",
    "PartFailed",
    "Reconciled",
    "ShardMap",
    "Snapshot",
    "Touched",
    "backfill",
    "fanout_sql",
    "jsonl_documents",
    "reconcile",
    "register",
    "shard_map",
    "snapshot",
    "touch",
]
