"""Arrays of ids, and of parts of them, as arguments of statements.

psycopg looks at each element of a plain list, to find the least type that holds them all. That takes
longer than Postgres takes to find the rows. These are sent with their own type, whatever their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.adapt import Dumper

from pytube.keys import Part, PartType
from pytube.model import Id, KeyType

_INT8_ARRAY = 1016
_TEXT_ARRAY = 1009
_UUID_ARRAY = 2951
_BOOLEAN_ARRAY = 1000
_DATE_ARRAY = 1182
"""The oids of `bigint[]`, `text[]`, `uuid[]`, `boolean[]` and `date[]`."""


class Int8Array(list[int]):
    """A list that is sent as `bigint[]`."""

    __slots__ = ()


class TextArray(list[str]):
    """A list that is sent as `text[]`; none of its texts has a NUL, which Postgres does not take."""

    __slots__ = ()


class UuidArray(list[str]):
    """A list that is sent as `uuid[]`, of uuids as Postgres writes them."""

    __slots__ = ()


class BooleanArray(list[bool]):
    """A list that is sent as `boolean[]`."""

    __slots__ = ()


class DateArray(TextArray):
    """A list that is sent as `date[]`, of dates as Postgres writes them."""

    __slots__ = ()


class _Int8ArrayDumper(Dumper):
    oid = _INT8_ARRAY

    def dump(self, obj: list[int]) -> bytes:
        return b"{%s}" % ",".join(map(str, obj)).encode()


class _TextArrayDumper(Dumper):
    oid = _TEXT_ARRAY

    def dump(self, obj: list[str]) -> bytes:
        if not obj:
            return b"{}"
        # Joined before they are quoted, by a character that no text has: no text is looked at separately.
        joined = "\0".join(obj).replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","')
        return b'{"%b"}' % joined.encode()  # the sessions speak UTF-8


class _DateArrayDumper(_TextArrayDumper):
    oid = _DATE_ARRAY


class _BooleanArrayDumper(Dumper):
    oid = _BOOLEAN_ARRAY

    def dump(self, obj: list[bool]) -> bytes:
        return b"{%b}" % ",".join("t" if value else "f" for value in obj).encode()


class _UuidArrayDumper(Dumper):
    oid = _UUID_ARRAY

    def dump(self, obj: list[str]) -> bytes:
        return b"{%b}" % ",".join(obj).encode()


psycopg.adapters.register_dumper(Int8Array, _Int8ArrayDumper)
psycopg.adapters.register_dumper(TextArray, _TextArrayDumper)
psycopg.adapters.register_dumper(UuidArray, _UuidArrayDumper)
psycopg.adapters.register_dumper(BooleanArray, _BooleanArrayDumper)
psycopg.adapters.register_dumper(DateArray, _DateArrayDumper)

_ARRAYS: dict[KeyType, type[list[Any]]] = {
    KeyType.BIGINT: Int8Array,
    KeyType.UUID: UuidArray,
    KeyType.TEXT: TextArray,
}


_PARTS: dict[PartType, type[list[Any]]] = {
    PartType.BIGINT: Int8Array,
    PartType.UUID: UuidArray,
    PartType.TEXT: TextArray,
    PartType.ENUM: TextArray,
    PartType.BOOLEAN: BooleanArray,
    PartType.DATE: DateArray,
}


def array_of_parts(part: PartType, values: Sequence[Part]) -> list[Any]:
    """The values of a column of keys as an argument of its type; labels of an enum as texts."""
    return _PARTS[part](values)


def array_of(keys: KeyType, ids: Sequence[Id]) -> list[Any]:
    """`ids` as an argument of the type that a tube of such keys has for them."""
    return _ARRAYS[keys](ids)
