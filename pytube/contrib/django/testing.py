"""What an application's tests assert of capture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, LiteralString

from psycopg import errors, sql

from pytube.contrib.django import options, session
from pytube.tubes.calls import unknown_tube

_LAST: Final = "SELECT coalesce(max(seq), 0) FROM {}"
_KEYS: Final = """
    SELECT id FROM {} AS pod CROSS JOIN unnest(pod.ids) WITH ORDINALITY AS key (id, place)
    WHERE pod.seq > %s ORDER BY pod.seq, key.place
"""


@contextmanager
def captured(tube: str, *, using: str | None = None) -> Iterator[list[Any]]:
    """The list gets, at the end of the block, the keys whose rows changed in it, each once.

    It works in `TestCase`, whose transaction never commits, and in `TransactionTestCase`. Changes of tables
    that a document refers to may be in its companion, the tube `NAME_relations`.

    Raises:
        UnknownTube: there is no such tube.
    """
    keys: list[Any] = []
    ((before,),) = _rows(_LAST, tube, using)
    yield keys
    keys += dict.fromkeys(key for (key,) in _rows(_KEYS, tube, using, before))


def _rows(query: LiteralString, tube: str, using: str | None, *arguments: object) -> list[tuple[Any, ...]]:
    statement = sql.SQL(query).format(sql.Identifier(options().schema, tube))
    with session(using) as connection:
        try:
            return connection.execute(statement, arguments or None).fetchall()
        except errors.UndefinedTable:
            raise unknown_tube(tube) from None
