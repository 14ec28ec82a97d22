"""Arrow's columns as arrays of numpy, and back, by their buffers.

pyarrow's own conversions import pandas where there is one. Tasks need none, and it takes half a second in
each new worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


def numbers(column: pa.Array[Any]) -> Ints:
    """Whole numbers, none NULL; not copied."""
    return cast("Ints", np.from_dlpack(column))


def pieces(column: pa.Array[Any], kind: type[np.integer[Any]]) -> tuple[Ints, npt.NDArray[Any]]:
    """Where the numbers of each row begin, and where those of the last end; and all numbers, not copied.

    Args:
        column: of bytes or texts, none NULL.
        kind: of the numbers that are in the bytes.
    """
    _, places, data = column.buffers()
    if not len(column) or places is None or data is None:
        return np.zeros(len(column) + 1, np.int64), np.empty(0, kind)
    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    width = np.dtype(np.int64 if is_large else np.int32)
    edges = np.frombuffer(memoryview(places), width, len(column) + 1, column.offset * width.itemsize)
    first, last = int(edges[0]), int(edges[-1])
    size = np.dtype(kind).itemsize
    begins = (edges - first).astype(np.int64) // size
    return begins, np.frombuffer(memoryview(data), kind, (last - first) // size, first)


def of_numbers(values: Sequence[int], kind: type[np.integer[Any]]) -> pa.Array[Any]:
    """A column of whole numbers."""
    array = np.array(values, kind)
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [None, _buffer(array)])


def of_bytes(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array[Any]:
    """A column of `kind`, binary or string; None is NULL."""
    edges = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=edges[1:])
    there = np.packbits([value is not None for value in values], bitorder="little")
    data = pa.py_buffer(b"".join(value or b"" for value in values))
    return pa.Array.from_buffers(kind, len(values), [_buffer(there), _buffer(edges), data])


def _buffer(array: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(array.data)
