"""Assigns keys to units, and packs the keys of a unit into few large rows, by numpy.

Spark moves single rows, and that costs more than all other work. So Spark gets a few large rows of bytes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pytube.errors import UsageError
from pytube.spark import arrays
from pytube.spark.arrays import BIGINT, Ints, KeyKind, Keys, Spread, runs
from pytube.spark.pods import check_keys

REFUSED = "pytube refuses: "
"""How a message about an invalid key begins, within the error that Spark makes of it."""
PACKED = "unit int, shards binary, ids binary"
"""The columns of packed rows."""
BLOCK = 1 << 16
"""Keys that are sorted by unit at a time. A block fits the processor's cache."""
PIECE = 1 << 11
"""Keys of a row at most. A task gets rows by thousands."""
_PRIME = np.uint64(0x9E3779B185EBCA87)
_BLOCK_BYTES = 1 << 22
_PIECE_BYTES = 1 << 14
"""Bytes of a block and of a row, if keys are longer than numbers; a row has at least one key."""


@dataclass(frozen=True, slots=True)
class PackPlan:
    """How a task assigns keys to units."""

    buckets: int
    """Units of each database. A unit's number is `database * buckets + bucket`."""
    ranges: tuple[tuple[int, int, int], ...]
    """`(first shard, last shard, number of the database)`, by shard."""
    skipped: frozenset[int]
    """Units that are written already."""
    shard: int | None
    """The shard of all keys; None: a column or `derived` gives it."""
    derived: Spread | None
    """That of the table that the ids belong to."""
    spread: tuple[Spread, ...]
    """Those of the spread tables of the tubes; empty if the shards are derived."""
    kind: KeyKind = BIGINT


def bucket_of(shards: Ints, ids: Keys, buckets: int) -> Ints:
    """The bucket of each key: by a hash of the shard and of the words of the id."""
    words = np.ascontiguousarray(ids).view("<u8").reshape(len(ids), -1)
    hashed = shards.astype(np.uint64) * _PRIME
    for place in range(words.shape[1]):
        hashed ^= hashed >> np.uint64(32)
        hashed = (hashed ^ words[:, place]) * _PRIME
    # The upper half, which all bits have a part in, as a share of the buckets.
    return ((hashed >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def units_of(plan: PackPlan, shards: Ints, ids: Keys) -> Ints:
    """The unit of each key.

    Raises:
        UsageError: no database has the shard of a key.
    """
    buckets = bucket_of(shards, ids, plan.buckets)
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
    """Collects keys of one width, and yields them sorted by unit, as unit, shards and ids."""

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
        """Take keys. Yields rows as soon as a block of keys is there.

        Raises:
            UsageError: a key is invalid.
        """
        self._ids.append(ids)
        if shards is not None:
            self._given.append(shards)
        self._waiting += len(ids)
        if self._waiting >= self._block:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield rows of all keys that are held back; raises as `add`."""
        if not self._waiting:
            return
        kind = self._plan.kind
        ids = np.concatenate(self._ids)
        shards = np.concatenate(self._given) if self._given else self._shards(ids)
        self._ids, self._given, self._waiting = [], [], 0
        check_keys(shards, ids, self._plan.spread, kind)
        units = units_of(self._plan, shards, ids)
        if self._plan.skipped:
            keep = self._keep[units]
            units, shards, ids = units[keep], shards[keep], ids[keep]
        if not len(ids):
            return
        narrow = units.astype(np.uint16) if len(self._keep) <= 1 << 16 else units
        order = np.argsort(narrow, kind="stable")  # 16 bits are sorted by radix
        units, ids = units[order], ids[order]
        # The width of keys that are no numbers follows from the number of shards.
        same = kind.is_number and bool((shards == shards[0]).all())
        places = shards[:1].astype(np.int32) if same else shards.astype(np.int32)[order]
        for first, last in runs(units):
            for start in range(first, last, self._piece):
                stop = min(start + self._piece, last)
                of_unit = places if same else places[start:stop]
                yield int(units[start]), of_unit.tobytes(), ids[start:stop].tobytes()

    def _shards(self, ids: Keys) -> Ints:
        if self._plan.derived is not None:
            return self._plan.kind.shards(ids, *self._plan.derived)
        assert self._plan.shard is not None
        return np.full(len(ids), self._plan.shard, np.int64)


def packed(rows: Sequence[tuple[int, bytes, bytes]]) -> pa.RecordBatch:
    """The rows of a `Packer` as a batch of `PACKED`."""
    units, shards, ids = zip(*rows, strict=True)
    columns = [
        arrays.of_numbers(units, np.int32),
        arrays.of_bytes(shards, pa.binary()),
        arrays.of_bytes(ids, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["unit", "shards", "ids"])


def unpack(batch: pa.RecordBatch) -> Iterator[tuple[int, Ints, Ints]]:
    """Yield the unit, shards and ids of rows of `PACKED`. Adjacent rows of a unit come as one."""
    units = arrays.numbers(batch.column(0))
    of_shards, shards = arrays.pieces(batch.column(1), np.int32)
    of_ids, ids = arrays.pieces(batch.column(2), np.int64)
    for first, last in runs(units):
        given = np.diff(of_shards[first : last + 1])
        keys = ids[of_ids[first] : of_ids[last]]
        places = shards[of_shards[first] : of_shards[last]].astype(np.int64)
        if len(places) < len(keys):  # some rows have one shard for all their ids
            places = np.repeat(places, np.repeat(np.diff(of_ids[first : last + 1]) // given, given))
        yield int(units[first]), places, keys


def unpack_wide(batch: pa.RecordBatch) -> Iterator[tuple[int, Ints, Keys]]:
    """As `unpack`, for keys that are bytes: adjacent rows of a unit come as one for each width."""
    units = arrays.numbers(batch.column(0))
    of_shards, shards = arrays.pieces(batch.column(1), np.int32)
    of_ids, data = arrays.pieces(batch.column(2), np.uint8)
    widths = np.diff(of_ids) // np.maximum(np.diff(of_shards), 1)
    for first, last in runs(units):
        for width in np.unique(widths[first:last]):
            rows = first + np.flatnonzero(widths[first:last] == width)
            places = np.concatenate([shards[of_shards[row] : of_shards[row + 1]] for row in rows])
            keys = np.concatenate([data[of_ids[row] : of_ids[row + 1]] for row in rows])
            yield int(units[first]), places.astype(np.int64), keys.view(f"S{width}")


def pack_keys(plan: PackPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function by which a task makes rows of `PACKED` from rows of `id`, or `id` and `shard`."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        packers: dict[int, Packer] = {}
        try:
            for batch in batches:
                shards = arrays.read_shards(batch.column(1)) if batch.num_columns > 1 else None
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


def freeze_imports() -> None:
    """Exclude all present objects of a task from garbage collection: mostly modules, which stay anyway.

    Spark collects garbage after each task and visits all objects each time. That takes 30 to 40 ms, as long
    as some tasks.
    """
    if not gc.get_freeze_count():
        gc.freeze()
