"""Tables of the application: found by their names, and locked while others use them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus

from pytube.db.errors import TRANSIENT, translated
from pytube.errors import PytubeError, UnknownTable
from pytube.logs import Logger
from pytube.tubes.calls import rows_of
from pytube.tubes.queries import BUILDER, HOLDERS, JOB_LIST, TABLE, within

_log = Logger("pytube.tubes")

# Older servers raise these where newer ones answer NULL.
_NO_NAME = (errors.InvalidName, errors.SyntaxError, errors.FeatureNotSupported, errors.UndefinedTable)

_LOCK_NOT_GRANTED = (*TRANSIENT, errors.LockNotAvailable, errors.QueryCanceled)
"""What an attempt fails with while others hold the table; pytube's limits end it with the last two."""

_PAUSE = 0.5
"""Seconds between two attempts."""

_MET = (
    errors.DeadlockDetected,
    errors.UndefinedObject,
    errors.UndefinedTable,
    errors.DuplicateTable,
    errors.InternalError_,  # tuple concurrently updated
)
"""What building or dropping an index fails with where another session does so, too."""

_MEETINGS = 10
"""Attempts in that case: each time, one of the two sessions succeeds."""

_BRIEF = 1.0
"""Seconds for which a session may hold a table without being named."""

_IN_TRANSACTION = (
    "in a transaction, none can be built CONCURRENTLY: a worker builds it once the table holds at most 8 MB, "
    "and until then all works without; to have it built now, do the same again outside of a transaction"
)

_Result = TypeVar("_Result")

_FOLLOWING: LiteralString = """
    SELECT l.tube, l.id_col::text, l.shard, l.root AND l.companion_of IS NULL
    FROM tube_list(%(table)s::oid::regclass) AS l
    WHERE %(tube)s IN (l.tube, l.companion_of) ORDER BY l.companion_of IS NULL, l.tube, l.shard
"""
"""For sessions that have our schema first in their search path."""


def find_table(connection: psycopg.Connection, name: str) -> int:
    """The oid of the table `name`; `UnknownTable` when there is none in this database."""
    try:
        row = connection.execute(TABLE, {"table": name}).fetchone()
    except _NO_NAME:
        row = None
    if row is None or row[0] is None:
        raise UnknownTable(
            f"there is no table {name!r} in this database; write schema.table, "
            'with quotes where SQL wants them: "My Schema"."My Table"'
        )
    return int(row[0])


class Way(NamedTuple):
    """How a table leads to documents of a tube."""

    tube: str
    """The tube whose keys the values of the column are, or a companion of it, whose links they are."""
    column: str
    shard: int
    is_root: bool
    """Whether the rows of the table are the documents."""


def following(connection: psycopg.Connection, tube: str, table: int) -> list[Way]:
    """The ways in which a tube follows a table; those by companions, which touch the tube, come first."""
    with translated():
        return [Way(*row) for row in connection.execute(_FOLLOWING, {"tube": tube, "table": table})]


def resending(connection: psycopg.Connection, tube: str, table: int) -> list[str]:
    """The tubes whose backfills of a table resend all documents that its rows lead to; none: none follows it.

    A backfill of a root table resends all documents, so a companion that follows it, too, adds nothing.
    """
    ways = following(connection, tube, table)
    if any(way.is_root for way in ways):
        return [tube]
    return list(dict.fromkeys(way.tube for way in ways))


class LockBusy(PytubeError):
    """A table stayed locked by others for as long as we were to wait. Nothing was changed."""


def with_retries(
    connection: psycopg.Connection,
    action: Callable[[], _Result],
    *,
    table: int,
    name: str,
    limit: float,
) -> _Result:
    """Run `action` until it gets its locks.

    The SQL itself waits for a lock in many short steps, so that writers do not queue behind it, and gives up
    after half a minute or so. An attempt is one transaction, or a savepoint of the caller's.

    `table` is the oid of the table that others may hold, `name` what messages call it. After `limit` seconds
    this gives up, in the middle of an attempt if need be. Before each attempt for which others stand in the
    way, it logs who does.

    Raises:
        LockBusy: after `limit` seconds; the message names who holds the table.
    """
    ends = time.monotonic() + limit
    before = _statement_timeout(connection)
    try:
        while True:
            holders = _holders(connection, table)
            if holders:
                _log.warning("lock_awaited", reason=f"{name} is held by {holders}; waiting")
            left = max(ends - time.monotonic(), _BRIEF)
            _set_statement_timeout(connection, f"{int(left * 1000)}ms")
            try:
                with connection.transaction():
                    return action()
            except _LOCK_NOT_GRANTED:
                if time.monotonic() + _PAUSE > ends:
                    raise _busy(connection, table, name, limit) from None
            time.sleep(_PAUSE)
    finally:
        if not connection.closed:
            _set_statement_timeout(connection, before)


def _busy(connection: psycopg.Connection, table: int, name: str, limit: float) -> LockBusy:
    _set_statement_timeout(connection, "0")
    holders = _holders(connection, table)
    remedy = (
        f"it is held by {holders}; end that session" if holders else "its holder has just ended; try again"
    )
    return LockBusy(
        f"{name} could not be locked within {limit:g} s, so nothing was changed; {remedy}, or wait longer "
        "with --lock-timeout"
    )


def _statement_timeout(connection: psycopg.Connection) -> str:
    row = connection.execute("SELECT pg_catalog.current_setting('statement_timeout')").fetchone()
    assert row is not None
    return str(row[0])


def _set_statement_timeout(connection: psycopg.Connection, setting: str) -> None:
    connection.execute("SELECT pg_catalog.set_config('statement_timeout', %s, false)", [setting])


def _holders(connection: psycopg.Connection, table: int) -> str:
    """Who has held a lock on the table for more than a moment."""
    rows = connection.execute(HOLDERS, {"table": table, "age": _BRIEF}).fetchall()
    return ", ".join(
        f"{application} (pid {pid}, {state or 'working'}, for {age:.0f} s)"
        for pid, application, state, age in rows
    )


# --- the index of a tube or an outbox, built and dropped while it is in use -----------------------


@dataclass(frozen=True, slots=True)
class IndexQueries:
    """The differences between tubes and outboxes. Parameters: `schema`, `queue`, `partitions`."""

    table: LiteralString
    """The oid of its table, as an expression."""
    next_statement: LiteralString
    """The statement to run next; NULL: none is left."""
    leftovers: LiteralString
    """Schemas and names of what an interrupted build left behind."""


def fit_index(
    connection: psycopg.Connection,
    schema: str,
    queries: IndexQueries,
    queue: str,
    partitions: int,
    log: Logger,
) -> str | None:
    """Give a queue the index for `partitions`; where these are its own, drop others.

    Two sessions at once get in each other's way, as each waits for the other's build: Postgres breaks one
    off, and it looks anew. Only who has the rights of the table's owner can do so CONCURRENTLY, and not in a
    transaction. For others the SQL function that changes the number does it where that is quick, and so do
    workers later.

    Returns:
        Why this role does not build the index that is missing, and who does; None when none is missing.
    """
    arguments = {"schema": schema, "queue": queue, "partitions": partitions}
    builder = within(BUILDER.replace("{table}", queries.table), schema)
    row = connection.execute(builder, arguments).fetchone()
    obstacle = None if row is None else row[0]
    if connection.info.transaction_status != TransactionStatus.IDLE:
        obstacle = obstacle or _IN_TRANSACTION
    statement = within(queries.next_statement, schema)
    if obstacle is not None:
        row = connection.execute(statement, arguments).fetchone()
        is_missing = row is not None and row[0] is not None and not row[0].startswith("DROP")
        return str(obstacle) if is_missing else None
    for last in (False,) * (_MEETINGS - 1) + (True,):
        try:
            _build_and_drop(connection, schema, queries, arguments, log)
            break
        except _MET:
            if last:
                raise
    return None


def _build_and_drop(
    connection: psycopg.Connection,
    schema: str,
    queries: IndexQueries,
    arguments: Mapping[str, object],
    log: Logger,
) -> None:
    """All that is left of `fit_index`; it may be called again."""
    queue, statement = arguments["queue"], within(queries.next_statement, schema)
    for where, name in connection.execute(within(queries.leftovers, schema), arguments).fetchall():
        log.info("index_drop_started", tube=queue, index=name, reason="an interrupted build left it behind")
        connection.execute(
            sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(where, name))
        )
    while (row := connection.execute(statement, arguments).fetchone()) and row[0]:
        if row[0].startswith("DROP"):
            log.info("index_drop_started", tube=queue, reason="it is for another number of partitions")
        else:
            log.info("index_build_started", tube=queue, partitions=arguments["partitions"])
        connection.execute(str(row[0]).encode())


# --- the ledger of jobs that write tubes in units -------------------------------------------------


def jobs(connection: psycopg.Connection, schema: str, job_id: str | None = None) -> list[dict[str, Any]]:
    """All jobs, or the one of this name, as rows of `tube_job_list`, the newest first."""
    return rows_of(dict, connection, schema, JOB_LIST, job=job_id)
