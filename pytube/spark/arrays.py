"""Keys as arrays of numpy: columns of Arrow by their buffers, and the types of a tube's keys.

All other code is the same for all types. It sorts, cuts and joins arrays of int64, or of bytes of one width.

pyarrow's own conversions import pandas if it is installed. Tasks don't need pandas, and the import takes
half a second in each new worker.
"""

from __future__ import annotations

import abc
import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pytube.errors import UsageError
from pytube.model import KeyType, part_of

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Strings: TypeAlias = npt.NDArray[np.bytes_]
"""Strings of bytes of one width; shorter ones are padded with zeros."""
Keys: TypeAlias = npt.NDArray[Any]
"""Keys of one type and of one width."""
Rows: TypeAlias = slice | Ints
"""Rows of a column."""

# --- columns of Arrow -------------------------------------------------------------------------------


def numbers(column: pa.Array[Any]) -> Ints:
    """Whole numbers, none NULL, without a copy."""
    return cast("Ints", np.from_dlpack(column))


def read_shards(column: pa.Array[Any]) -> Ints:
    """A column of shards; raises `UsageError` if one is NULL."""
    if column.null_count:
        raise UsageError("a shard is NULL")
    return numbers(column).astype(np.int64, copy=False)


def pieces(column: pa.Array[Any], kind: type[np.integer[Any]]) -> tuple[Ints, npt.NDArray[Any]]:
    """Where each row of a column of bytes begins, and the last one ends; and its numbers, without a copy."""
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


def runs(values: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Where each run of equal values begins and ends."""
    edges = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    return pairwise(edges if len(values) else ())


def order_of(values: Ints) -> Ints:
    """The order that sorts numbers of at least 0; 16 bits are sorted by radix."""
    narrow = values.astype(np.uint16) if len(values) and values.max() < 1 << 16 else values
    return np.argsort(narrow, kind="stable")


def of_numbers(values: Sequence[int], kind: type[np.integer[Any]]) -> pa.Array[Any]:
    """A column of whole numbers."""
    array = np.array(values, kind)
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [None, _buffer(array)])


def of_bytes(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array[Any]:
    """A column of `kind`, binary or string; None is NULL."""
    edges = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=edges[1:])
    there = np.packbits(np.array([value is not None for value in values], np.bool_), bitorder="little")
    data = pa.py_buffer(b"".join(value or b"" for value in values))
    return pa.Array.from_buffers(kind, len(values), [_buffer(there), _buffer(edges), data])


def _buffer(array: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(array.data)


# --- the types of keys ------------------------------------------------------------------------------


class Spread(NamedTuple):
    """The shards of a table, and what tells the shard of a key."""

    shard: int
    """The first."""
    shards: int
    place: int = -1
    """The part of a key of several columns that alone tells its shard, from 0; -1: the whole key does."""


class KeyKind(abc.ABC):
    """One type of keys. It has no state; each task makes its own."""

    type: ClassVar[KeyType]
    oid: ClassVar[int]
    """The type's oid in Postgres."""
    width: ClassVar[int | None]
    """Bytes of a key in a pod; None: keys differ in length."""
    is_number: ClassVar[bool] = False
    """Whether keys are held as int64; else as bytes."""

    def read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        """The keys of a column with their rows, one array for each width.

        Raises:
            UsageError: a value is NULL or is no valid key; the message names the first.
        """
        if column.null_count:
            raise UsageError("an id is NULL")
        return self._read(column)

    @abc.abstractmethod
    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]: ...

    def shards(self, keys: Keys, shard: int, shards: int, place: int = -1) -> Ints:
        """The shard of each key in a spread table, as `pytube.model.shard_of` gives it."""
        if shards == 1:
            return np.full(len(keys), shard, np.int64)
        return shard + np.mod(self._number(keys, place), shards)

    @abc.abstractmethod
    def _number(self, keys: Keys, place: int) -> Ints:
        """The number of each key whose remainder gives its shard; see `Spread.place`."""

    @abc.abstractmethod
    def shown(self, key: Any) -> str:
        """A key for a message."""


class Bigint(KeyKind):
    """Keys as int64."""

    type = KeyType.BIGINT
    oid = 20
    width = 8
    is_number = True

    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        yield slice(None), numbers(column).astype(np.int64, copy=False)

    def _number(self, keys: Keys, place: int) -> Ints:  # noqa: ARG002 # has one part
        return keys

    def shown(self, key: Any) -> str:
        """The number."""
        return str(key)


# --- texts ------------------------------------------------------------------------------------------
# A text is held at the least of `WIDTHS` that it fits into, so that a few long texts don't make all others
# long. The same text always has the same width. No text of Postgres has a zero, so the
# padding is unambiguous.

MOST = 1 << 16
"""Bytes of a text at most. Postgres takes longer texts, but a task holds thousands of texts at a time."""
TOO_LONG = f" bytes, and {MOST} is the most; touch it by SQL, which takes longer ones"
"""The end of the message about a longer text."""
WIDTHS = tuple(1 << power for power in range(5, 17))
_SHOWN = 60


class Text(KeyKind):
    """Keys as bytes in UTF-8, padded with zeros to one of `WIDTHS`."""

    type = KeyType.TEXT
    oid = 25
    width = None

    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        edges, data = pieces(column, np.uint8)
        lengths = np.diff(edges)
        _check_texts(edges, data)
        below = -1
        for width in WIDTHS:
            here = (lengths > below) & (lengths <= width)
            if here.all():
                yield slice(None), _padded(lengths, data, width)
                return
            if here.any():
                yield np.flatnonzero(here), _padded(lengths[here], data[np.repeat(here, lengths)], width)
            below = width

    def _number(self, keys: Keys, place: int) -> Ints:
        texts = keys.tolist()
        return _md5(texts if place < 0 else [part_of(text.decode(), place).encode() for text in texts])

    def shown(self, key: Any) -> str:
        """Quoted, and shortened if it is long."""
        return _shown(bytes(key))


def _md5(texts: Sequence[bytes]) -> Ints:
    """The first 32 bits of the md5 of each text."""
    firsts = [hashlib.md5(text, usedforsecurity=False).digest()[:4] for text in texts]
    return np.frombuffer(b"".join(firsts), ">u4").astype(np.int64)


def _shown(value: bytes) -> str:
    """A value for a message, shortened if it is long."""
    try:
        text = repr(value.decode())
    except UnicodeDecodeError:
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _padded(lengths: Ints, data: Bytes, width: int) -> Strings:
    rows = np.zeros((len(lengths), width), np.uint8)
    rows[np.arange(width) < lengths[:, None]] = data
    return rows.view(f"S{width}").reshape(-1)


def _check_texts(edges: Ints, data: Bytes) -> None:
    """Refuse texts that can't be keys: all at once, and one by one only after an error."""
    lengths = np.diff(edges)
    if (lengths > MOST).any():
        raise UsageError(f"an id has {lengths[lengths > MOST][0]}{TOO_LONG}")
    if not data.all():
        row = int(np.searchsorted(edges, np.flatnonzero(data == 0)[0], side="right")) - 1
        text = _shown(data[edges[row] : edges[row + 1]].tobytes())
        raise UsageError(f"an id has a NUL character: {text}; no text of Postgres has one")
    if (data >= 0x80).any() and not _is_utf8(edges, data):
        texts = (data[first:last].tobytes() for first, last in pairwise(edges))
        wrong = next(text for text in texts if not _decodes(text))
        raise UsageError(f"an id is not UTF-8: {_shown(wrong)}; decode it before")


def _is_utf8(edges: Ints, data: Bytes) -> bool:
    begins = edges[:-1][edges[:-1] < edges[1:]]
    # Joined with the next text, a text that ends within a character would decode.
    return not ((data[begins] & 0xC0) == 0x80).any() and _decodes(data.tobytes())


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- uuids ------------------------------------------------------------------------------------------

UUID_WIDTH = 16
UUID_EXAMPLE = "6ecd8c99-4036-403d-bf84-cf8400f67836"
_ANY_UUID = re.compile(rb"(\{)?[0-9a-f]{4}(?:-?[0-9a-f]{4}){7}(?(1)\})", re.IGNORECASE)
"""As Postgres reads uuids: a hyphen may follow each group of four digits, braces may enclose all."""
_LENGTH = len(UUID_EXAMPLE)
_HYPHENS = np.array([place for place, mark in enumerate(UUID_EXAMPLE) if mark == "-"])
_DIGITS = np.array([place for place, mark in enumerate(UUID_EXAMPLE) if mark != "-"])
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


class Uuid(KeyKind):
    """Keys as 16 bytes. The form in which a uuid was written is lost."""

    type = KeyType.UUID
    oid = 2950
    width = UUID_WIDTH

    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        """Texts in any form, or 16 bytes each."""
        edges, data = pieces(column, np.uint8)
        lengths = np.diff(edges)
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            wrong = lengths[lengths != UUID_WIDTH]
            if len(wrong):
                raise UsageError(f"an id has {wrong[0]} bytes; a uuid has {UUID_WIDTH}")
            found = data.tobytes()
        else:
            found = _parse_canonical(lengths, data) or b"".join(
                _parse_uuid(data[first:last].tobytes()) for first, last in pairwise(edges)
            )
        yield slice(None), np.frombuffer(found, f"S{UUID_WIDTH}")

    def _number(self, keys: Keys, place: int) -> Ints:  # noqa: ARG002 # has one part
        return _md5(uuid_texts(keys).tolist())

    def shown(self, key: Any) -> str:
        """As Postgres writes it."""
        return str(uuid_texts(np.array([key], f"S{UUID_WIDTH}"))[0].decode())


def uuid_texts(uuids: Strings) -> Strings:
    """Uuids as Postgres writes them: lower case, with four hyphens."""
    values = uuids.view(np.uint8).reshape(-1, UUID_WIDTH)
    rows = np.full((len(uuids), _LENGTH), ord("-"), np.uint8)
    rows[:, _DIGITS[0::2]] = _HEX[values >> 4]
    rows[:, _DIGITS[1::2]] = _HEX[values & 15]
    return rows.view(f"S{_LENGTH}").reshape(-1)


def _parse_canonical(lengths: Ints, data: Bytes) -> bytes | None:
    """The bytes of uuids that are all written as Postgres does, or in capitals; None: some are not."""
    if (lengths != _LENGTH).any():
        return None
    rows = data.reshape(-1, _LENGTH)
    if (rows[:, _HYPHENS] != ord("-")).any():
        return None
    try:
        found = bytes.fromhex(rows[:, _DIGITS].tobytes().decode("ascii"))
    except ValueError:
        return None
    return found if len(found) == UUID_WIDTH * len(lengths) else None  # it leaves out spaces


def _parse_uuid(text: bytes) -> bytes:
    if _ANY_UUID.fullmatch(text) is None:
        example = f"write it like {UUID_EXAMPLE}, or give its {UUID_WIDTH} bytes"
        raise UsageError(f"an id is not a valid uuid: {_shown(text)}; {example}")
    return bytes.fromhex(text.strip(b"{}").replace(b"-", b"").decode())


# --- all of them ------------------------------------------------------------------------------------

BIGINT: Final[KeyKind] = Bigint()
_KINDS: Final[dict[str, KeyKind]] = {kind.type.value: kind for kind in (BIGINT, Uuid(), Text())}


def kind_of(name: str) -> KeyKind:
    """The kind of keys for a type, by the type's name in Postgres."""
    return _KINDS[name]
