"""Pods cut by numpy: each key once, none too large, the same whatever pieces the keys come in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.errors import UsageError
from pytube.model import shard_of
from pytube.spark.arrays import Spread
from pytube.spark.pods import Pods, blocks, check_keys, cut

KEYS = st.lists(st.tuples(st.integers(0, 70_000) | st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)))


def arrays(keys: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([shard for shard, _ in keys], np.int64),
        np.array([key for _, key in keys], np.int64),
    )


def listed(pods: list[Pods]) -> list[tuple[int, int]]:
    return [
        (int(shard), int(key))
        for pod in pods
        for shard, row in zip(pod.shards, pod.ids, strict=True)
        for key in row
    ]


@given(KEYS, st.integers(1, 7))
def test_each_key_is_in_one_pod(keys: list[tuple[int, int]], size: int) -> None:
    pods = cut(*arrays(keys), size)
    assert sorted(listed(pods)) == sorted(set(keys))
    lengths = [pod.ids.shape[1] for pod in pods]
    assert lengths == sorted(set(lengths))
    assert all(1 <= length <= size for length in lengths)
    small = [int(shard) for pod in pods if pod.ids.shape[1] < size for shard in pod.shards]
    assert len(small) == len(set(small))


@given(st.lists(KEYS, max_size=5), st.integers(1, 20))
def test_pieces_make_no_difference(pieces: list[list[tuple[int, int]]], most: int) -> None:
    found = list(blocks(map(arrays, pieces), most, 10**6))
    keys = [pair for shards, ids in found for pair in zip(shards.tolist(), ids.tolist(), strict=True)]
    assert keys == [pair for piece in pieces for pair in piece]
    assert all(len(ids) >= most for _, ids in found[:-1])


def test_what_is_held_back_is_bounded() -> None:
    given = made = 0

    def pieces() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        nonlocal given
        for start in range(0, 100_000, 700):
            assert given - made <= 2000
            ids = np.arange(start, start + 700)
            given += len(ids)
            yield ids % 3, ids

    for _, ids in blocks(pieces(), 1000, 10**6):
        made += len(ids)
    assert made == given


def test_keys_that_cant_be() -> None:
    good = np.array([0, 1, 2**31 - 1])
    check_keys(good, good)
    for wrong in (-1, 2**31):
        with pytest.raises(UsageError, match=f"there is no shard {wrong}"):
            check_keys(np.array([0, wrong]), np.array([1, 2]))


def test_an_id_belongs_to_its_shard() -> None:
    ids = np.array([-7, 0, 5, 12])
    right = np.array([shard_of(int(key), 10, 4) for key in ids])
    check_keys(right, ids, (Spread(10, 4),))
    check_keys(np.full(4, 3), ids, (Spread(10, 4),))  # a shard of another table
    with pytest.raises(UsageError, match="the id 5 is not in the shard 13, but in 11"):
        check_keys(np.array([13]), np.array([5]), (Spread(10, 4),))
