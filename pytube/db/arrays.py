"""Arrays of ids as arguments of statements."""

from __future__ import annotations

import psycopg
from psycopg.adapt import Dumper

_INT8_ARRAY = 1016
"""The oid of `bigint[]`."""


class Int8Array(list[int]):
    """A list that is sent as `bigint[]`, whatever its length and values.

    psycopg looks at each element of a plain list, to find the least type that holds them all. That
    takes longer than Postgres takes to find the rows.
    """

    __slots__ = ()


class _Int8ArrayDumper(Dumper):
    oid = _INT8_ARRAY

    def dump(self, obj: list[int]) -> bytes:
        return b"{%s}" % ",".join(map(str, obj)).encode()


psycopg.adapters.register_dumper(Int8Array, _Int8ArrayDumper)
