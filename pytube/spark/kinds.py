"""What depends on the type of a tube's keys: how numpy holds them, and their shards, hashes and lengths.

All else is the same for all: it sorts, cuts and joins arrays whose items are int64, or bytes of one width.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pytube.errors import UsageError
from pytube.model import KeyType
from pytube.spark import arrow, hashing, texts, uuids
from pytube.spark.hashing import Words

Ints: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = npt.NDArray[Any]
"""Keys of one kind, and of one width."""
Rows: TypeAlias = slice | Ints
"""Which rows of a column."""


class KeyKind(abc.ABC):
    """One type of keys. It has no state; each task makes its own."""

    type: ClassVar[KeyType]
    oid: ClassVar[int]
    """Of the type, in Postgres."""
    width: ClassVar[int | None]
    """Bytes of a key in a pod; None: each its own."""

    @property
    def is_number(self) -> bool:
        """Whether its arrays are of numbers."""
        return self.type is KeyType.BIGINT

    def read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        """The keys of a column: which rows, and their keys; those of each width together.

        Raises:
            UsageError: one of them is NULL, or can't be a key.
        """
        if column.null_count:
            raise UsageError("an id is NULL")
        yield from self._read(column)

    @abc.abstractmethod
    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]: ...

    def joined(self, pieces: Sequence[Keys]) -> Keys:
        """Arrays of one width as one."""
        return np.concatenate(pieces)

    @abc.abstractmethod
    def shards(self, keys: Keys, shard: int, shards: int) -> Ints:
        """The shard of each in a table that is spread: `pytube.model.shard_of`."""

    @abc.abstractmethod
    def hashed(self, keys: Keys, seeds: Words) -> Words:
        """Spark's `xxhash64` of each; of a uuid that of its 16 bytes."""

    @abc.abstractmethod
    def lengths(self, keys: Keys) -> Ints:
        """Bytes of each in a pod, in an array of the same shape."""

    @abc.abstractmethod
    def shown(self, key: Any) -> str:
        """A key for a message."""


class Bigint(KeyKind):
    """As int64."""

    type = KeyType.BIGINT
    oid = 20
    width = 8

    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        yield slice(None), arrow.numbers(column)

    def joined(self, pieces: Sequence[Keys]) -> Keys:
        """Likewise; from narrower numbers, too."""
        return np.concatenate(pieces).astype(np.int64, copy=False)

    def shards(self, keys: Keys, shard: int, shards: int) -> Ints:
        """By the remainder."""
        return shard + np.mod(keys, shards)

    def hashed(self, keys: Keys, seeds: Words) -> Words:
        """Of a bigint."""
        return hashing.of_long(keys.view(np.uint64), seeds)

    def lengths(self, keys: Keys) -> Ints:
        """All 8."""
        return np.full(keys.shape, self.width, np.int64)

    def shown(self, key: Any) -> str:
        """The number."""
        return str(key)


class Uuid(KeyKind):
    """As 16 bytes; the form in which a uuid was written is gone."""

    type = KeyType.UUID
    oid = 2950
    width = uuids.WIDTH

    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        yield slice(None), uuids.read(column)

    def shards(self, keys: Keys, shard: int, shards: int) -> Ints:
        """By the md5 of what Postgres writes."""
        return texts.shards_of(uuids.written(keys).tolist(), shard, shards)

    def hashed(self, keys: Keys, seeds: Words) -> Words:
        """Of the 16 bytes."""
        return hashing.of_words(keys.view("<u8").reshape(len(keys), -1), seeds)

    def lengths(self, keys: Keys) -> Ints:
        """All 16."""
        return np.full(keys.shape, self.width, np.int64)

    def shown(self, key: Any) -> str:
        """As Postgres writes it."""
        return str(uuids.written(np.array([key], f"S{self.width}"))[0].decode())


class Text(KeyKind):
    """As bytes in UTF-8; see `pytube.spark.texts`."""

    type = KeyType.TEXT
    oid = 25
    width = None

    def _read(self, column: pa.Array[Any]) -> Iterator[tuple[Rows, Keys]]:
        yield from texts.by_width(column)

    def shards(self, keys: Keys, shard: int, shards: int) -> Ints:
        """By the md5."""
        return texts.shards_of(keys.tolist(), shard, shards)

    def hashed(self, keys: Keys, seeds: Words) -> Words:
        """Of the text."""
        return hashing.of_bytes(keys, self.lengths(keys), seeds)

    def lengths(self, keys: Keys) -> Ints:
        """In UTF-8."""
        return texts.lengths_of(keys)

    def shown(self, key: Any) -> str:
        """Quoted, and cut where it is long."""
        return texts.shown(bytes(key))


BIGINT: Final[KeyKind] = Bigint()
_KINDS: Final[dict[str, KeyKind]] = {kind.type.value: kind for kind in (BIGINT, Uuid(), Text())}


def kind_of(name: str) -> KeyKind:
    """The kind of keys of a type, by the name that Postgres has for it."""
    return _KINDS[name]
