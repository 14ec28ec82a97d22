"""Arrow's columns by their buffers are what pyarrow itself reads and makes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.spark import arrays

LISTS = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1)))


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_whole_numbers(kind: pa.DataType) -> None:
    column = pa.array([1, -2, 3], kind)
    assert arrays.numbers(column).tolist() == [1, -2, 3]
    assert arrays.numbers(column.slice(1)).tolist() == [-2, 3]
    assert arrays.numbers(column.slice(3)).tolist() == []


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
@given(lists=LISTS, skipped=st.integers(0, 3))
def test_numbers_in_bytes(kind: pa.DataType, lists: list[list[int]], skipped: int) -> None:
    column = pa.array([np.array(numbers, np.int64).tobytes() for numbers in lists], kind).slice(skipped)
    begins, numbers = arrays.pieces(column, np.int64)
    found = [numbers[begin:end].tolist() for begin, end in pairwise(begins)]
    assert found == lists[skipped:]


def test_columns_that_are_made() -> None:
    assert arrays.of_numbers([1, 2**31 - 1], np.int32).equals(pa.array([1, 2**31 - 1], pa.int32()))
    assert arrays.of_numbers([], np.int64).equals(pa.array([], pa.int64()))
    values = [b"one", None, b"", "übel".encode()]
    assert arrays.of_bytes(values, pa.string()).to_pylist() == ["one", None, "", "übel"]
    assert arrays.of_bytes(values[:1] * 20, pa.binary()).to_pylist() == [b"one"] * 20
