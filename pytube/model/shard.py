"""Which shard an id has, and which partition a shard belongs to: the same here and in SQL.

`tests/vectors/shards.json` holds the values that SQL, Python and Spark all have to give.
"""

from __future__ import annotations


def shard_of(key: int, shard: int, shards: int) -> int:
    """The shard of the id `key` in a table spread over `shards` shards from `shard` on.

    The remainder is never negative, so that negative ids have a shard too.
    """
    return shard + key % shards


def partition_of(shard: int, partitions: int) -> int:
    """The partition, out of `partitions`, that works on `shard`."""
    return shard % partitions
