"""Messages become records of an outbox, in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, LiteralString

import orjson
import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from pytube.db.errors import translated
from pytube.errors import UsageError

# --- messages -------------------------------------------------------------------------------------

OUTBOX: Final = "pytube-outbox"
"""Which outbox: its name, a slash, and a uuid that was drawn when it was made, and that no other one has."""

OUTBOX_ID: Final = "pytube-outbox-id"
"""The record's id in the outbox, as a decimal number. It stays the same however often the record is sent."""

EPOCH: Final = "pytube-epoch"
"""The epoch of the term that sent the record, as a decimal number. Repeats of two leaders differ in it."""

ENQUEUED: Final = "pytube-enqueued"
"""When the record was written to the outbox, by the database's clock: Unix seconds with three decimals.
Missing where its `create_time` is infinite."""

Headers = Mapping[str, str] | Sequence[tuple[str, str | None]]
"""By name; or pairs, where a name may stand more than once."""


@dataclass(frozen=True, slots=True)
class Message:
    """What Kafka shall get.

    Two messages of one topic with the same partition key, or else the same key, are delivered in order.
    """

    topic: str
    key: str | None
    """None: no other message is ordered with this one, unless it has a partition key."""
    value: str | bytes | None
    """None is a tombstone: Kafka's compaction forgets the key."""
    headers: Headers = ()
    partition_key: str | None = None
    """Chooses the partition, in Kafka as in the outbox, and the order, in place of the key."""

    @property
    def ordering_key(self) -> str | None:
        """What orders it within its topic; None: nothing does."""
        return self.key if self.partition_key is None else self.partition_key

    @property
    def header_pairs(self) -> list[tuple[str, str | None]]:
        """Names and values of the headers, in order."""
        return list(self.headers.items() if isinstance(self.headers, Mapping) else self.headers)


# --- stash ----------------------------------------------------------------------------------------


_STASH: LiteralString = """
    SELECT {function}(%(outbox)s, %(topics)s::text[], %(keys)s::text[], %(bodies)s::{type}[],
        %(headers)s::jsonb, %(partition_keys)s::text[], %(in_order)s)
"""

# One message, without what only the statement for many needs: it is several times as fast.
_STASH_ONE: LiteralString = """
    SELECT ARRAY[{function}(
        %(outbox)s, %(topic)s, %(key)s, %(body)s::{type}, %(headers)s::jsonb, %(partition_key)s,
        %(in_order)s)]
"""


def stash(
    connection: psycopg.Connection[Any],
    messages: Iterable[Message],
    *,
    outbox: str,
    in_order: bool = False,
    schema: str = "tube",
) -> list[int]:
    """Put messages into an outbox: they are delivered if, and only if, the transaction commits.

    One statement for all of them, in the transaction that the connection is in; nothing is committed here.

    Args:
        connection: of psycopg; SQLAlchemy and Django have one behind theirs.
        messages: in their order.
        outbox: its name.
        in_order: other transactions that stash messages of the same keys, and ask for it, too, wait until
            this one is over. So messages of a key are delivered in the order of the commits. Transactions
            that do so more than once may wait for each other; Postgres ends one of them (40P01).
        schema: where pytube's SQL is.

    Returns:
        The ids of the records, in the order of the messages.

    Raises:
        UsageError: a value is neither `str`, `bytes` nor None; there is no such outbox (`UnknownTube`).
        psycopg.Error: Postgres refused something else, such as an invalid topic name (22023).
    """
    given = list(messages)
    if not given:
        return []
    statement, parameters = _prepared(given, outbox, schema, in_order=in_order)
    with translated(), psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        return _ids(cursor.execute(statement, parameters).fetchone())


async def stash_async(
    connection: psycopg.AsyncConnection[Any],
    messages: Iterable[Message],
    *,
    outbox: str,
    in_order: bool = False,
    schema: str = "tube",
) -> list[int]:
    """As `stash`, for a connection that is awaited."""
    given = list(messages)
    if not given:
        return []
    statement, parameters = _prepared(given, outbox, schema, in_order=in_order)
    with translated():
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement, parameters)
            return _ids(await cursor.fetchone())


@lru_cache
def _statement(schema: str, *, one: bool, binary: bool) -> sql.Composed:
    name = "outbox_stash" if one else "outbox_stash_many_bytea" if binary else "outbox_stash_many"
    return sql.SQL(_STASH_ONE if one else _STASH).format(
        function=sql.Identifier(schema, name), type=sql.SQL("bytea" if binary else "text")
    )


def _prepared(
    given: list[Message], outbox: str, schema: str, *, in_order: bool
) -> tuple[sql.Composed, dict[str, Any]]:
    """The statement for the messages, and its parameters."""
    _check_values(given)
    binary = any(isinstance(message.value, bytes) for message in given)
    # A JSON object does not keep the order of headers, so more than one of them travel as pairs.
    one = len(given) == 1 and len(given[0].headers) < 2
    parameters = _parameters_of_one(given[0]) if one else _parameters(given, binary=binary)
    return _statement(schema, one=one, binary=binary), parameters | {"outbox": outbox, "in_order": in_order}


def _check_values(given: list[Message]) -> None:
    for number, message in enumerate(given):
        if not isinstance(message.value, str | bytes | None):
            raise UsageError(
                f"message {number} for {message.topic!r} has a value of the type "
                f"{type(message.value).__name__}: encode it, as str, bytes or None"
            )


def _parameters_of_one(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "key": message.key,
        "body": message.value,
        "headers": orjson.dumps(dict(message.header_pairs)).decode(),
        "partition_key": message.partition_key,
    }


def _parameters(given: list[Message], *, binary: bool) -> dict[str, Any]:
    """An array for each part of the messages; None for a part that no message has.

    Texts become bytes where any of the values is bytes: the array has one type, and the SQL converts.
    """
    return {
        "topics": [message.topic for message in given],
        "keys": _or_none([message.key for message in given]),
        "bodies": [_as_bytes(message.value) if binary else message.value for message in given],
        "headers": _header_json(given),
        "partition_keys": _or_none([message.partition_key for message in given]),
    }


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _or_none(values: list[str | None]) -> list[str | None] | None:
    return values if any(value is not None for value in values) else None


def _header_json(messages: list[Message]) -> str | None:
    if not any(message.headers for message in messages):
        return None
    return orjson.dumps([message.header_pairs or None for message in messages]).decode()


def _ids(row: tuple[Any, ...] | None) -> list[int]:
    assert row is not None  # the function returns one
    return list(row[0])
