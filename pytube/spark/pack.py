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
import numpy.typing as npt
import pyarrow as pa

from pytube.errors import UsageError
from pytube.spark import arrow
from pytube.spark.garbage import spare_imports
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

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_Words = npt.NDArray[np.uint64]


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
    """Of all tables of the tubes that are spread."""


def bucket_of(shards: Ints, ids: Ints, buckets: int) -> Ints:
    """The bucket of each key: `pmod(xxhash64(shard, id), buckets)` as Spark has it, of int and bigint."""
    with np.errstate(over="ignore"):
        hashed = _of_int(shards.astype(np.uint32).astype(np.uint64), np.uint64(_SEED))
        signed = _of_long(ids.view(np.uint64), hashed).view(np.int64)
    if buckets & (buckets - 1) == 0:
        return signed & (buckets - 1)  # the same, and cheaper
    return np.mod(signed, buckets)


def units_of(plan: PackPlan, shards: Ints, ids: Ints) -> Ints:
    """The unit of each key.

    Raises:
        UsageError: no database has a shard.
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
    """Gathers keys, and gives them by unit."""

    def __init__(self, plan: PackPlan, block: int = BLOCK) -> None:
        self._plan = plan
        self._block = block
        self._keep = np.ones(
            (max((place for _, _, place in plan.ranges), default=0) + 1) * plan.buckets, np.bool_
        )
        self._keep[list(plan.skipped)] = False
        self._ids: list[Ints] = []
        self._given: list[Ints] = []
        self._waiting = 0

    def add(self, shards: Ints | None, ids: Ints) -> Iterator[tuple[int, bytes, bytes]]:
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
        ids = np.concatenate(self._ids).astype(np.int64, copy=False)
        shards = self._shards(np.concatenate(self._given) if self._given else None, ids)
        self._ids, self._given, self._waiting = [], [], 0
        check_keys(shards, ids, self._plan.spread)
        units = units_of(self._plan, shards, ids)
        if self._plan.skipped:
            keep = self._keep[units]
            units, shards, ids = units[keep], shards[keep], ids[keep]
        if not len(ids):
            return
        narrow = units.astype(np.uint16) if len(self._keep) <= 1 << 16 else units
        order = np.argsort(narrow, kind="stable")  # of 16 bits it is a radix sort
        units, ids = units[order], ids[order]
        same = bool((shards == shards[0]).all())
        places = shards[:1].astype(np.int32) if same else shards.astype(np.int32)[order]
        edges = [0, *(np.flatnonzero(units[1:] != units[:-1]) + 1).tolist(), len(ids)]
        for first, last in pairwise(edges):
            for start in range(first, last, PIECE):
                stop = min(start + PIECE, last)
                of_unit = places if same else places[start:stop]
                yield int(units[start]), of_unit.tobytes(), ids[start:stop].tobytes()

    def _shards(self, given: Ints | None, ids: Ints) -> Ints:
        if given is not None:
            return given.astype(np.int64, copy=False)
        if self._plan.derived is not None:
            first, count = self._plan.derived
            return first + np.mod(ids, count)
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


def pack_keys(plan: PackPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a task applies to its rows of id, and perhaps shard; it gives rows of `PACKED`."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        packer = Packer(plan)
        try:
            for batch in batches:
                ids = _numbers(batch, 0, "an id")
                shards = _numbers(batch, 1, "a shard") if batch.num_columns > 1 else None
                if rows := list(packer.add(shards, ids)):
                    yield packed(rows)
            if rows := list(packer.rest()):
                yield packed(rows)
        except UsageError as error:
            raise UsageError(REFUSED + str(error)) from None

    return work


def _numbers(batch: pa.RecordBatch, place: int, what: str) -> Ints:
    column = batch.column(place)
    if column.null_count:
        raise UsageError(f"{what} is NULL")
    return arrow.numbers(column)


# --- xxhash64 -------------------------------------------------------------------------------------


def _of_int(words: _Words, seed: np.uint64) -> _Words:
    hashed = (seed + _P5 + np.uint64(4)) ^ (words * _P1)
    return _mixed(_rotated(hashed, 23) * _P2 + _P3)


def _of_long(words: _Words, seeds: _Words) -> _Words:
    hashed = (seeds + _P5 + np.uint64(8)) ^ (_rotated(words * _P2, 31) * _P1)
    return _mixed(_rotated(hashed, 27) * _P1 + _P4)


def _rotated(words: _Words, bits: int) -> _Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _mixed(words: _Words) -> _Words:
    words = (words ^ (words >> np.uint64(33))) * _P2
    words = (words ^ (words >> np.uint64(29))) * _P3
    return words ^ (words >> np.uint64(32))
