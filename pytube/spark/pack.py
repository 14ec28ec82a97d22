"""Keys put into the units that they belong to, and sent there in bulk. By numpy; no Spark, no database.

Spark moves rows one by one, which costs more than all else; so it is given a few large rows: the keys of one
unit, as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pytube.errors import UsageError
from pytube.spark import arrow, hashing
from pytube.spark.gc_tuning import freeze_imports
from pytube.spark.kinds import BIGINT, KeyKind, Keys
from pytube.spark.pods import Ints, check_keys

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = "pytube refuses: "
"""How the message of a key that can't be touched begins, within whatever Spark makes of it."""
PACKED = "unit int, shards binary, ids binary"
"""The columns that a task gives."""
BLOCK = 1 << 16
"""Keys that are sorted into their units at a time. What is done to them fits the processor's cache."""
PIECE = 1 << 11
"""Keys of a row at most; rows come to a task by thousands."""
_BLOCK_BYTES = 1 << 22
_PIECE_BYTES = 1 << 14
"""Of keys that are longer than numbers: so many at most, but one key."""


@dataclass(frozen=True, slots=True)
class PackPlan:
    """What a task has to know."""

    buckets: int
    """Units of each database. A unit's number is that of its database, times this, and its bucket."""
    ranges: tuple[tuple[int, int, int], ...]
    """`(first shard, last shard, number of the database)`, by shard."""
    skipped: frozenset[int]
    """Units that are in."""
    shard: int | None
    """Of all keys; None: the first column says it, or `spread` does."""
    derived: tuple[int, int] | None
    """`(shard, shards)` of the table whose ids they are."""
    spread: tuple[tuple[int, int], ...]
    """Of all tables of the tubes that are spread; none where the shards are derived."""
    kind: KeyKind = BIGINT
    """Of the keys."""


def bucket_of(shards: Ints, ids: Keys, buckets: int, kind: KeyKind = BIGINT) -> Ints:
    """The bucket of each key: `pmod(xxhash64(shard, id), buckets)` as Spark has it, of int and `kind`."""
    with np.errstate(over="ignore"):
        hashed = hashing.of_int(shards.astype(np.uint32).astype(np.uint64), hashing.SEED)
        signed = kind.hashed(ids, hashed).view(np.int64)
    if buckets & (buckets - 1) == 0:
        return signed & (buckets - 1)  # the same, and cheaper
    return np.mod(signed, buckets)


def units_of(plan: PackPlan, shards: Ints, ids: Keys) -> Ints:
    """The unit of each key.

    Raises:
        UsageError: no database has a shard.
    """
    buckets = bucket_of(shards, ids, plan.buckets, plan.kind)
    if len(plan.ranges) == 1 and plan.ranges[0][0] <= 0 and plan.ranges[0][1] >= 2**31 - 1:
        return buckets + plan.ranges[0][2] * plan.buckets
    firsts = np.array([first for first, _, _ in plan.ranges])
    lasts = np.array([last for _, last, _ in plan.ranges])
    places = np.array([place for _, _, place in plan.ranges])
    found = np.searchsorted(firsts, shards, side="right") - 1
    wrong = (found < 0) | (shards > lasts[found])
    if wrong.any():
        raise UsageError(f"no database has the shard {shards[wrong][0]}")
    homes: Ints = places[found] * plan.buckets + buckets
    return homes


class Packer:
    """Gathers keys of one width, and gives them by unit."""

    def __init__(self, plan: PackPlan, block: int = BLOCK, piece: int = PIECE) -> None:
        self._plan = plan
        self._block = block
        self._piece = piece
        self._keep = np.ones(
            (max((place for _, _, place in plan.ranges), default=0) + 1) * plan.buckets, np.bool_
        )
        self._keep[list(plan.skipped)] = False
        self._ids: list[Keys] = []
        self._given: list[Ints] = []
        self._waiting = 0

    def add(self, shards: Ints | None, ids: Keys) -> Iterator[tuple[int, bytes, bytes]]:
        """Take keys; the unit, shards and ids of some, once there is a block of them.

        Raises:
            UsageError: a key can't be.
        """
        self._ids.append(ids)
        if shards is not None:
            self._given.append(shards)
        self._waiting += len(ids)
        if self._waiting >= self._block:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, bytes, bytes]]:
        """All that is still held back; raises as `add`."""
        if not self._waiting:
            return
        kind = self._plan.kind
        ids = kind.joined(self._ids)
        shards = self._shards(np.concatenate(self._given) if self._given else None, ids)
        self._ids, self._given, self._waiting = [], [], 0
        check_keys(shards, ids, self._plan.spread, kind)
        units = units_of(self._plan, shards, ids)
        if self._plan.skipped:
            keep = self._keep[units]
            units, shards, ids = units[keep], shards[keep], ids[keep]
        if not len(ids):
            return
        narrow = units.astype(np.uint16) if len(self._keep) <= 1 << 16 else units
        order = np.argsort(narrow, kind="stable")  # of 16 bits it is a radix sort
        units, ids = units[order], ids[order]
        # Of other keys than numbers their width is known by the number of shards.
        same = kind.is_number and bool((shards == shards[0]).all())
        places = shards[:1].astype(np.int32) if same else shards.astype(np.int32)[order]
        edges = [0, *(np.flatnonzero(units[1:] != units[:-1]) + 1).tolist(), len(ids)]
        for first, last in pairwise(edges):
            for start in range(first, last, self._piece):
                stop = min(start + self._piece, last)
                of_unit = places if same else places[start:stop]
                yield int(units[start]), of_unit.tobytes(), ids[start:stop].tobytes()

    def _shards(self, given: Ints | None, ids: Keys) -> Ints:
        if given is not None:
            return given.astype(np.int64, copy=False)
        if self._plan.derived is not None:
            return self._plan.kind.shards(ids, *self._plan.derived)
        assert self._plan.shard is not None
        return np.full(len(ids), self._plan.shard, np.int64)


def packed(rows: Sequence[tuple[int, bytes, bytes]]) -> pa.RecordBatch:
    """Rows of `PACKED`, of what a `Packer` gives."""
    units, shards, ids = zip(*rows, strict=True)
    columns = [
        arrow.of_numbers(units, np.int32),
        arrow.of_bytes(shards, pa.binary()),
        arrow.of_bytes(ids, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["unit", "shards", "ids"])


def unpack(batch: pa.RecordBatch) -> Iterator[tuple[int, Ints, Ints]]:
    """The unit, shards and ids of rows of `PACKED`. Rows of a unit that follow each other come as one."""
    units = arrow.numbers(batch.column(0))
    of_shards, shards = arrow.pieces(batch.column(1), np.int32)
    of_ids, ids = arrow.pieces(batch.column(2), np.int64)
    edges = [0, *(np.flatnonzero(units[1:] != units[:-1]) + 1).tolist(), len(units)]
    for first, last in pairwise(edges if len(units) else ()):
        given = np.diff(of_shards[first : last + 1])
        keys = ids[of_ids[first] : of_ids[last]]
        places = shards[of_shards[first] : of_shards[last]].astype(np.int64)
        if len(places) < len(keys):  # some rows have one shard for all of their ids
            places = np.repeat(places, np.repeat(np.diff(of_ids[first : last + 1]) // given, given))
        yield int(units[first]), places, keys


def unpack_wide(batch: pa.RecordBatch) -> Iterator[tuple[int, Ints, Keys]]:
    """As `unpack`, for keys that are bytes: the rows of a unit come as one for each width."""
    units = arrow.numbers(batch.column(0))
    of_shards, shards = arrow.pieces(batch.column(1), np.int32)
    of_ids, data = arrow.pieces(batch.column(2), np.uint8)
    widths = np.diff(of_ids) // np.maximum(np.diff(of_shards), 1)
    edges = [0, *(np.flatnonzero(units[1:] != units[:-1]) + 1).tolist(), len(units)]
    for first, last in pairwise(edges if len(units) else ()):
        for width in np.unique(widths[first:last]):
            rows = first + np.flatnonzero(widths[first:last] == width)
            places = np.concatenate([shards[of_shards[row] : of_shards[row + 1]] for row in rows])
            keys = np.concatenate([data[of_ids[row] : of_ids[row + 1]] for row in rows])
            yield int(units[first]), places.astype(np.int64), keys.view(f"S{width}")


def pack_keys(plan: PackPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a task applies to its rows of id, and perhaps shard; it gives rows of `PACKED`."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        packers: dict[int, Packer] = {}
        try:
            for batch in batches:
                shards = _shards(batch)
                rows: list[tuple[int, bytes, bytes]] = []
                for which, ids in plan.kind.read(batch.column(0)):
                    packer = packers.get(ids.itemsize) or packers.setdefault(ids.itemsize, _packer(plan, ids))
                    rows += packer.add(None if shards is None else shards[which], ids)
                if rows:
                    yield packed(rows)
            for packer in packers.values():
                if rows := list(packer.rest()):
                    yield packed(rows)
        except UsageError as error:
            raise UsageError(REFUSED + str(error)) from None

    return work


def _packer(plan: PackPlan, ids: Keys) -> Packer:
    if plan.kind.is_number:
        return Packer(plan)
    width = ids.itemsize
    return Packer(plan, min(BLOCK, _BLOCK_BYTES // width), max(1, _PIECE_BYTES // width))


def _shards(batch: pa.RecordBatch) -> Ints | None:
    if batch.num_columns == 1:
        return None
    column = batch.column(1)
    if column.null_count:
        raise UsageError("a shard is NULL")
    return arrow.numbers(column)
