"""Keys packed by unit: each comes out once, in the unit that its hash says, whatever the pieces were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.errors import UsageError
from pytube.spark import pack
from pytube.spark.arrays import Spread
from pytube.spark.pack import Packer, PackPlan, bucket_of, units_of, unpack

PLAN = PackPlan(4, ((0, 99, 1), (100, 199, 0)), frozenset(), None, None, ())
KEYS = st.lists(st.tuples(st.integers(0, 199), st.integers(-(2**63), 2**63 - 1)))


def arrays(keys: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([shard for shard, _ in keys], np.int64), np.array([key for _, key in keys], np.int64)


Rows = list[tuple[int, bytes, bytes]]


def unpacked(rows: Rows) -> dict[int, list[tuple[int, int]]]:
    """The keys of each unit."""
    found: dict[int, list[tuple[int, int]]] = {}
    if rows:
        for unit, places, keys in unpack(pack.packed(rows)):
            found.setdefault(unit, []).extend(zip(places.tolist(), keys.tolist(), strict=True))
    return found


def packed(
    plan: PackPlan, pieces: list[list[tuple[int, int]]], block: int
) -> dict[int, list[tuple[int, int]]]:
    packer = Packer(plan, block)
    rows = [row for piece in pieces for row in packer.add(*arrays(piece))]
    rows += packer.rest()
    return unpacked(rows)


@given(st.lists(KEYS, max_size=4), st.integers(1, 10))
def test_every_key_is_in_its_unit(pieces: list[list[tuple[int, int]]], block: int) -> None:
    found = packed(PLAN, pieces, block)
    assert sorted(key for keys in found.values() for key in keys) == sorted(
        key for piece in pieces for key in piece
    )
    for unit, keys in found.items():
        shards, ids = arrays(keys)
        assert set(units_of(PLAN, shards, ids).tolist()) == {unit}
        assert {unit // 4} == {1 if shard < 100 else 0 for shard, _ in keys}


@given(KEYS)
def test_what_is_in_is_left_out(keys: list[tuple[int, int]]) -> None:
    everything = packed(PLAN, [keys], 5)
    rest = packed(replace(PLAN, skipped=frozenset({1, 6})), [keys], 5)
    assert rest == {unit: found for unit, found in everything.items() if unit not in (1, 6)}


@pytest.mark.parametrize("buckets", [64, 1000])
@pytest.mark.parametrize("step", [1, 2, 1000, 2**32, 2**40])
def test_numbers_are_spread_evenly(buckets: int, step: int) -> None:
    """Whatever their steps are, and if the shards follow from them."""
    ids = np.arange(40 * buckets) * step - 5
    for shards in (np.zeros_like(ids), ids % 16):
        counts = np.bincount(bucket_of(shards, ids, buckets), minlength=buckets)
        assert len(counts) == buckets
        assert counts.min() > 8
        assert counts.max() < 100


def test_a_shard_that_nobody_has() -> None:
    with pytest.raises(UsageError, match="no database has the shard 200"):
        packed(PLAN, [[(5, 1), (200, 1)]], 5)
    with pytest.raises(UsageError, match="there is no shard -1"):
        packed(PLAN, [[(-1, 1)]], 5)


def test_shards_that_are_derived_or_the_same() -> None:
    derived = Packer(replace(PLAN, derived=Spread(10, 4)))
    list(derived.add(None, np.arange(-8, 8)))
    rows = list(derived.rest())
    found = sorted(key for keys in unpacked(rows).values() for key in keys)
    assert found == sorted((10 + n % 4, n) for n in range(-8, 8))
    one = Packer(replace(PLAN, shard=7))
    list(one.add(None, np.arange(100)))
    assert all(len(shards) == 4 for _, shards, _ in one.rest())


@given(st.lists(KEYS, max_size=4), st.integers(1, 10), st.data())
def test_rows_that_come_in_slices(
    pieces: list[list[tuple[int, int]]], block: int, data: st.DataObject
) -> None:
    packer = Packer(PLAN, block)
    rows = [row for piece in pieces for row in packer.add(*arrays(piece))]
    rows = sorted([*rows, *packer.rest()], key=lambda row: row[0])
    if not rows:
        return
    batch = pack.packed(rows)
    middle = data.draw(st.integers(0, len(rows)))
    halves = [list(unpack(batch.slice(0, middle))), list(unpack(batch.slice(middle)))]
    assert all(len({unit for unit, _, _ in half}) == len(half) for half in halves)
    found: dict[int, list[tuple[int, int]]] = {}
    for unit, places, keys in halves[0] + halves[1]:
        found.setdefault(unit, []).extend(zip(places.tolist(), keys.tolist(), strict=True))
    assert found == unpacked(rows)


def test_a_row_is_bounded() -> None:
    packer = Packer(replace(PLAN, buckets=1, shard=5, ranges=((0, 2**31 - 1, 0),)))
    rows = [*packer.add(None, np.arange(10 * pack.PIECE)), *packer.rest()]
    assert max(len(ids) for _, _, ids in rows) == 8 * pack.PIECE
    assert unpacked(rows) == {0: [(5, n) for n in range(10 * pack.PIECE)]}
