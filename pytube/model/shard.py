"""Which shard an id has, and which partition a shard belongs to: the same here and in SQL.

`tests/vectors/shards.json` and `shards_of_keys.json` hold the values that SQL, Python and Spark all have
to give.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

from pytube.model.key import Id


def shard_of(key: Id, shard: int, shards: int) -> int:
    """The shard of the id `key` in a table spread over `shards` shards from `shard` on.

    Of an integer it is the remainder, which is never negative, so that negative ids have a shard
    too. A text, or a uuid in Postgres' own spelling, goes by the first 32 bits of its md5.
    """
    if isinstance(key, str):
        key = int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")
    return shard + key % shards


def ids_in(number: int, ids: Sequence[Id], shard: int, shards: int) -> Sequence[Id]:
    """Those of `ids`, all of one kind, whose `shard_of` is `number`.

    Where there is one shard, it is that of all ids, and they are returned as they are.
    """
    if shards == 1:
        return ids if number == shard else ()
    if ids and isinstance(ids[0], int):  # many times as fast as a call for each
        rest = number - shard
        return [key for key in cast("Sequence[int]", ids) if key % shards == rest]
    return [key for key in ids if shard_of(key, shard, shards) == number]


def partition_of(shard: int, partitions: int) -> int:
    """The partition, out of `partitions`, that works on `shard`."""
    return shard % partitions
