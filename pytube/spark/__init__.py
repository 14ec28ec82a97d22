"""PySpark does what is too big for one connection: fan-outs, backfills, reconciliation, reads and streams.

Needs `pip install pytube-pg[spark]`. Nothing else of pytube imports this, or Spark.
"""

from pytube.spark.backfill import Backfilled, backfill
from pytube.spark.errors import PartFailed
from pytube.spark.fanout import fanout_sql
from pytube.spark.hosts import Host, ShardMap, shard_map
from pytube.spark.reconcile import Reconciled, reconcile
from pytube.spark.sources.register import Snapshot, register, snapshot
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
    "reconcile",
    "register",
    "shard_map",
    "snapshot",
    "touch",
]
