"""Sends calls of pytube's SQL, and explains their failures to an operator."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import errors
from psycopg.rows import BaseRowFactory, class_row

from pytube.db.errors import TRANSIENT, describe, translated
from pytube.errors import UnknownTube, UsageError
from pytube.tubes.queries import within

T = TypeVar("T")

_TRIES = 10
_PAUSE = 0.1
"""Seconds between two tries, on average. Without a pause, the retry overtakes the session that waits for the
locks just released, and deadlocks with it again; a fixed pause would keep two administrators in step."""
_IS_TUBE: Final = "SELECT EXISTS (SELECT FROM {s}.tube_list() AS l WHERE l.tube = %(tube)s)"
AT_ONCE = 10_000
"""Pods or keys that one transaction works on, so that no worker waits for long."""


def rows_of(
    kind: type[T], connection: psycopg.Connection, schema: str, query: LiteralString, **arguments: object
) -> list[T]:
    """The rows that a query of pytube gives, as objects of a class.

    A query that was rolled back for an external reason, such as a deadlock with a worker, is tried again,
    unless in a transaction.
    """
    return _run(connection, schema, query, arguments, class_row(kind))


def value_of(connection: psycopg.Connection, schema: str, query: LiteralString, **arguments: object) -> Any:
    """The one value that a query of pytube gives; else as `rows_of`."""
    found = _run(connection, schema, query, arguments, lambda _: lambda row: row[0])
    return found[0]


_INSERTED = re.compile(r"insert_finished=t -- (?s:.*?): (\d+) ids in (\d+) pods, in")


@contextmanager
def notices(connection: psycopg.Connection) -> Iterator[list[str]]:
    """The notices of the statements in the block, which is within a transaction."""
    heard: list[str] = []
    handler = lambda notice: heard.append(notice.message_primary or "")  # noqa: E731 # to be removed
    connection.add_notice_handler(handler)
    try:
        connection.execute("SET LOCAL client_min_messages = notice")
        yield heard
    finally:
        connection.remove_notice_handler(handler)


def inserted(heard: list[str]) -> tuple[int, int]:
    """How many ids and pods `tube_pods_insert` has put into its tubes, by its notices."""
    ids, pods = _INSERTED.findall("\n".join(heard))[-1]
    return int(ids), int(pods)


def unknown_tube(tube: str) -> UnknownTube:
    """The error for a name that no tube has."""
    return UnknownTube(f"there is no tube {tube!r}; `pytube tube list` lists all tubes")


def check_tube(connection: psycopg.Connection, schema: str, tube: str) -> None:
    """Raise `UnknownTube` if no tube has the name."""
    if not value_of(connection, schema, _IS_TUBE, tube=tube):
        raise unknown_tube(tube)


def in_pieces(work: Callable[[], int]) -> int:
    """Call `work`, a transaction each time, until nothing is left to do; the sum of its results."""
    total = 0
    while done := work():
        total += done
    return total


def _run(
    connection: psycopg.Connection,
    schema: str,
    query: LiteralString,
    arguments: Mapping[str, object],
    factory: BaseRowFactory[T],
) -> list[T]:
    for left in reversed(range(_TRIES)):
        with explained(), translated(), connection.cursor(row_factory=factory) as cursor:
            try:
                return cursor.execute(within(query, schema), arguments).fetchall()
            except TRANSIENT:
                if not left or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    raise
        time.sleep(random.uniform(0.5, 1.5) * _PAUSE)  # noqa: S311 # spreads load, guards nothing
    raise AssertionError("the last try returns or raises")


@contextmanager
def explained() -> Iterator[None]:
    """Raise errors that an operator can fix as `UsageError`: a missing role, a read-only database."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise UsageError(
            f"this role may not do that: {describe(error)}; log in as a member of tube_monitor to look, of "
            "tube_writer to touch, of tube_admin to act"
        ) from error
    except errors.ReadOnlySqlTransaction as error:
        raise UsageError(
            "the database is read-only (a standby, or default_transaction_read_only is on), and this writes; "
            "connect to the primary"
        ) from error
    except (errors.InvalidTextRepresentation, errors.NumericValueOutOfRange) as error:
        raise UsageError(f"not a valid id of this tube: {describe(error)}") from error
    except errors.InvalidParameterValue as error:
        raise UsageError(describe(error)) from error
