"""Shards of ids and partitions of shards: always within their bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.model import ids_in, partition_of, shard_of

KEYS = json.loads((Path(__file__).parents[1] / "vectors" / "shards_of_keys.json").read_text())

bigints = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("key", "shard", "shards", "expected"),
    [(7, 3, 1, 3), (7, 0, 4, 3), (8, 10, 4, 10), (-1, 0, 4, 3), (-8, 0, 4, 0), (-(2**63), 5, 3, 6)],
)
def test_the_shard_of_an_id(key: int, shard: int, shards: int, expected: int) -> None:
    assert shard_of(key, shard, shards) == expected


@pytest.mark.parametrize("vector", KEYS)
def test_the_shard_of_a_key_that_is_no_number(vector: dict[str, Any]) -> None:
    assert shard_of(vector["id"], vector["shard"], vector["shards"]) == vector["expected"]


@given(bigints, st.integers(0, 10_000), st.integers(1, 1000))
def test_an_id_has_one_of_the_shards_of_its_table(key: int, shard: int, shards: int) -> None:
    assert shard <= shard_of(key, shard, shards) < shard + shards


@given(st.lists(bigints) | st.lists(st.text()), st.integers(0, 50), st.integers(0, 50), st.integers(1, 20))
def test_the_ids_of_one_shard(ids: list[Any], number: int, shard: int, shards: int) -> None:
    expected = [key for key in ids if shard_of(key, shard, shards) == number]
    assert list(ids_in(number, ids, shard, shards)) == expected


@given(st.integers(0, 10_000), st.integers(1, 100))
def test_a_shard_belongs_to_one_of_the_partitions(shard: int, partitions: int) -> None:
    assert 0 <= partition_of(shard, partitions) < partitions
