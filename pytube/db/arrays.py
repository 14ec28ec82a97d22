"""Arrays of ids, and of parts of them, as arguments of statements.

psycopg looks at each element of a plain list, to find the least type that holds them all. That takes
longer than Postgres takes to find the rows. These are sent with their own type, whatever their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import psycopg
from psycopg.adapt import Dumper

from pytube.keys import Part, PartType
from pytube.model import Id, KeyType


class Array(list[Any]):
    """A list that is sent with the type of its class, of values in the form that Postgres writes."""

    __slots__ = ()
    oid: ClassVar[int]
    """Of the array's type."""

    def text(self) -> str:
        """What stands between the braces."""
        return ",".join(self)


class Int8Array(Array):
    """`bigint[]`."""

    __slots__ = ()
    oid = 1016

    def text(self) -> str:
        """The numbers."""
        return ",".join(map(str, self))


class TextArray(Array):
    """`text[]`; none of its texts has a NUL, which Postgres does not take."""

    __slots__ = ()
    oid = 1009

    def text(self) -> str:
        """The texts, quoted."""
        if not self:
            return ""
        # Joined before they are quoted, by a character that no text has: no text is looked at separately.
        joined = "\0".join(self).replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","')
        return f'"{joined}"'


class UuidArray(Array):
    """`uuid[]`."""

    __slots__ = ()
    oid = 2951


class DateArray(TextArray):
    """`date[]`."""

    __slots__ = ()
    oid = 1182


class BooleanArray(Array):
    """`boolean[]`."""

    __slots__ = ()
    oid = 1000

    def text(self) -> str:
        """A letter for each."""
        return ",".join("t" if value else "f" for value in self)


class _ArrayDumper(Dumper):
    def dump(self, obj: Array) -> bytes:
        return b"{%b}" % obj.text().encode()  # the sessions speak UTF-8


for _kind in (Int8Array, TextArray, UuidArray, DateArray, BooleanArray):
    psycopg.adapters.register_dumper(_kind, type("_Dumper", (_ArrayDumper,), {"oid": _kind.oid}))

_ARRAYS: Mapping[str, type[Array]] = {
    PartType.BIGINT: Int8Array,
    PartType.UUID: UuidArray,
    PartType.TEXT: TextArray,
    PartType.ENUM: TextArray,  # its labels
    PartType.BOOLEAN: BooleanArray,
    PartType.DATE: DateArray,
}
"""By the name of the type, which types of keys and of parts of keys share."""


def array_of(kind: KeyType | PartType, values: Sequence[Id] | Sequence[Part]) -> Array:
    """`values` as an argument of the type that Postgres has for them."""
    return _ARRAYS[kind](values)
