"""The types of a tube's keys: how numpy holds their keys, and the shard and the hash of each key.

All other code is the same for all types. It sorts, cuts and joins arrays of int64, or of bytes of one width.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pytube.errors import UsageError
from pytube.model import KeyType
from pytube.spark.keys import arrays
from pytube.spark.keys.arrays import Ints

Keys: TypeAlias = npt.NDArray[Any]
"""Keys of one kind and of one width."""
Rows: TypeAlias = slice | Ints
"""Rows of a column."""
Words: TypeAlias = npt.NDArray[np.uint64]

SEED: Final = np.uint64(42)
"""The seed of Spark's hash."""


class KeyKind(abc.ABC):
    """One type of keys. It has no state; each task makes its own."""

    type: ClassVar[KeyType]
    oid: ClassVar[int]
    """The type's oid in Postgres."""
    width: ClassVar[int | None]
    """Bytes of a key in a pod; None: keys differ in length."""

    @property
    def is_number(self) -> bool:
        """Whether keys are held as int64."""
        return self.type is KeyType.BIGINT

    def read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        """Yield the keys of a column with their rows, one array for each width.

        Raises:
            UsageError: a value is NULL or is no valid key.
        """
        if column.null_count:
            raise UsageError("an id is NULL")
        yield from self._read(column)

    @abc.abstractmethod
    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]: ...

    @abc.abstractmethod
    def shards(self, keys: Keys, shard: int, shards: int) -> Ints:
        """The shard of each key in a spread table, as `pytube.model.shard_of` gives it."""

    @abc.abstractmethod
    def hashed(self, keys: Keys, seeds: Words) -> Words:
        """Spark's `xxhash64` of each key; a uuid is hashed as its 16 bytes."""

    @abc.abstractmethod
    def shown(self, key: Any) -> str:
        """A key for a message."""


class Bigint(KeyKind):
    """Keys as int64."""

    type = KeyType.BIGINT
    oid = 20
    width = 8

    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        yield slice(None), arrays.numbers(column).astype(np.int64, copy=False)

    def shards(self, keys: Keys, shard: int, shards: int) -> Ints:
        """By the remainder."""
        return shard + np.mod(keys, shards)

    def hashed(self, keys: Keys, seeds: Words) -> Words:
        """As a bigint."""
        return hash_long(keys.view(np.uint64), seeds)

    def shown(self, key: Any) -> str:
        """The number."""
        return str(key)


class Uuid(KeyKind):
    """Keys as 16 bytes. The form in which a uuid was written is lost."""

    type = KeyType.UUID
    oid = 2950
    width = arrays.UUID_WIDTH

    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        yield slice(None), arrays.read_uuids(column)

    def shards(self, keys: Keys, shard: int, shards: int) -> Ints:
        """By the md5 of the text that Postgres writes."""
        return arrays.shards_of_texts(arrays.uuid_texts(keys).tolist(), shard, shards)

    def hashed(self, keys: Keys, seeds: Words) -> Words:
        """As 16 bytes."""
        return hash_words(keys.view("<u8").reshape(len(keys), -1), seeds)

    def shown(self, key: Any) -> str:
        """As Postgres writes it."""
        return str(arrays.uuid_texts(np.array([key], f"S{self.width}"))[0].decode())


class Text(KeyKind):
    """Keys as bytes in UTF-8, padded with zeros to one of `arrays.WIDTHS`."""

    type = KeyType.TEXT
    oid = 25
    width = None

    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        yield from arrays.read_texts(column)

    def shards(self, keys: Keys, shard: int, shards: int) -> Ints:
        """By the md5."""
        return arrays.shards_of_texts(keys.tolist(), shard, shards)

    def hashed(self, keys: Keys, seeds: Words) -> Words:
        """As a string, without the padding."""
        return hash_bytes(keys, np.strings.str_len(keys), seeds)

    def shown(self, key: Any) -> str:
        """Quoted, and shortened if it is long."""
        return arrays.shown(bytes(key))


BIGINT: Final[KeyKind] = Bigint()
_KINDS: Final[dict[str, KeyKind]] = {kind.type.value: kind for kind in (BIGINT, Uuid(), Text())}


def kind_of(name: str) -> KeyKind:
    """The kind of keys for a type, by the type's name in Postgres."""
    return _KINDS[name]


# --- xxhash64, as Spark computes it -----------------------------------------------------------------
# Many values at a time, each with a seed of its own. The hash of several columns is that of the last one,
# seeded with the hash of the columns before.

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
_STRIPE = 32
"""Bytes of a stripe. The rest of a value is hashed in smaller steps."""


def hash_int(words: Words, seed: np.uint64) -> Words:
    """Hash numbers of 32 bits."""
    hashed = (seed + _P5 + np.uint64(4)) ^ (words * _P1)
    return _mixed(_rotated(hashed, 23) * _P2 + _P3)


def hash_long(words: Words, seeds: Words) -> Words:
    """Hash numbers of 64 bits."""
    hashed = (seeds + _P5 + np.uint64(8)) ^ _lane(words)
    return _mixed(_rotated(hashed, 27) * _P1 + _P4)


def hash_words(words: Words, seeds: Words) -> Words:
    """Hash rows of whole words; a row has fewer than four."""
    hashed = seeds + _P5 + np.uint64(8 * words.shape[1])
    for place in range(words.shape[1]):
        hashed = _rotated(hashed ^ _lane(words[:, place]), 27) * _P1 + _P4
    return _mixed(hashed)


def hash_bytes(values: npt.NDArray[np.bytes_], lengths: npt.NDArray[np.int64], seeds: Words) -> Words:
    """Hash bytes, padded with zeros to one width, a multiple of 8; `lengths` are without the padding."""
    words: Words = values.view("<u8").reshape(len(values), -1)
    taken = lengths - lengths % _STRIPE
    hashed = np.where(taken > 0, _stripes(words, lengths, seeds), seeds + _P5) + lengths.astype(np.uint64)
    for place in range(words.shape[1]):
        here = (taken <= 8 * place) & (8 * place + 8 <= lengths)
        next_ = _rotated(hashed ^ _lane(words[:, place]), 27) * _P1 + _P4
        hashed = np.where(here, next_, hashed)
    # A value that ends with a whole word has no rest; any word will do for it.
    last = words[np.arange(len(words)), np.minimum(lengths // 8, words.shape[1] - 1)]
    four = (lengths & 4) > 0
    low = last & np.uint64(0xFFFFFFFF)
    hashed = np.where(four, _rotated(hashed ^ (low * _P1), 23) * _P2 + _P3, hashed)
    last = np.where(four, last >> np.uint64(32), last)
    for number in range(3):
        byte = (last >> np.uint64(8 * number)) & np.uint64(0xFF)
        hashed = np.where((lengths & 3) > number, _rotated(hashed ^ (byte * _P5), 11) * _P1, hashed)
    return _mixed(hashed)


def _stripes(words: Words, lengths: npt.NDArray[np.int64], seeds: Words) -> Words:
    """Hash the whole stripes of each value; a value without one gets an arbitrary number."""
    lanes: list[Words] = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
    for stripe in range(int(lengths.max(initial=0)) // _STRIPE):
        here = lengths >= _STRIPE * (stripe + 1)
        for number, lane in enumerate(lanes):
            next_ = _rotated(lane + words[:, 4 * stripe + number] * _P2, 31) * _P1
            lanes[number] = np.where(here, next_, lane)
    first, second, third, fourth = lanes
    hashed: Words = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
    for lane in lanes:
        hashed = (hashed ^ _lane(lane)) * _P1 + _P4
    return hashed


def _lane(words: Words) -> Words:
    return _rotated(words * _P2, 31) * _P1


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(33))) * _P2
    words = (words ^ (words >> np.uint64(29))) * _P3
    return words ^ (words >> np.uint64(32))
