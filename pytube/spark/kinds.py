"""The types of a tube's keys: how numpy holds their keys, and the shard of each key.

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
from pytube.spark import arrays
from pytube.spark.arrays import Ints

Keys: TypeAlias = npt.NDArray[Any]
"""Keys of one kind and of one width."""
Rows: TypeAlias = slice | Ints
"""Rows of a column."""


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

    def shown(self, key: Any) -> str:
        """Quoted, and shortened if it is long."""
        return arrays.shown(bytes(key))


BIGINT: Final[KeyKind] = Bigint()
_KINDS: Final[dict[str, KeyKind]] = {kind.type.value: kind for kind in (BIGINT, Uuid(), Text())}


def kind_of(name: str) -> KeyKind:
    """The kind of keys for a type, by the type's name in Postgres."""
    return _KINDS[name]
