"""A backfill in ranges: several sessions run step 3 at once. Steps 1 and 2 are those of any backfill.

All state is in the database, in the table of backfills and in the ledger. So a driver may be killed at any
time, and the next call continues with the missing ranges.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from pyspark.sql import SparkSession

from pytube.db.errors import describe
from pytube.errors import BackfillBusy, BackfillEnded, StatementFailed
from pytube.spark import job, queries
from pytube.spark.hosts import Host
from pytube.spark.job import PartFailed
from pytube.spark.queries import first_row, rows, value
from pytube.spark.tasks import FAILED, LOST, Call, NotYet, run_calls
from pytube.spark.touch import CONNECTIONS
from pytube.tubes.tables import find_table, resending

RANGES = 64
_POLL_INTERVAL = 0.2


@dataclass(frozen=True, slots=True)
class Backfilled:
    """Backfills whose pods are all in their tubes."""

    backfill_ids: tuple[int, ...]
    """One; of a table that a document follows in several ways, one for each."""
    rows: int
    ranges: int
    """Ranges that this run inserted."""
    seconds: float


def _inserting(tube: str, backfill: int, backlog: int | None) -> Call:
    """The call that touches the rows of one range."""

    def call(connection: psycopg.Connection, _: int, unit: int) -> bool:
        if backlog is not None:
            waiting = _value(connection, queries.BACKFILL_WAITING, tube=tube, pods_limit=backlog)
            if int(waiting) >= backlog:
                raise NotYet
        if _value(connection, queries.BACKFILL_RANGE, backfill=backfill, unit=unit) is None:
            raise NotYet  # it is paused
        return True

    return call


def backfill(
    spark: SparkSession,
    tube: str,
    table: str,
    order_col: str | None = None,
    *,
    dsn: str | Host,
    ranges: int = RANGES,
    max_connections: int = CONNECTIONS,
    backlog: int | None = None,
    supersede: bool = False,
    schema: str = "tube",
    began: Callable[[int], None] | None = None,
) -> Backfilled:
    """Touch every row of an attached table at low priority; after a root table, a sweep of the sink follows.

    A backfill of a table that a document follows by a companion resends the documents that its rows lead to.

    An interrupted backfill continues. `pytube backfill status`, `pause` and `cancel` work as for any other.

    Args:
        spark: the session.
        tube: the tube.
        table: schema.table, attached to the tube or to a companion of it.
        order_col: rows of a range are touched in the order of this column, and ranges in about this order;
            default: the column of the ids. The column should have an index.
        dsn: the database.
        ranges: about how many ranges.
        max_connections: sessions that insert at the same time. The driver has one more.
        backlog: wait while so many backfill pods wait in the tube; None: never wait.
        supersede: end another backfill of the table that is under way.
        schema: the schema of our SQL.
        began: is called with the number of the backfill.

    Raises:
        UsageError: the tube, the table or the column does not exist.
        BackfillBusy: another backfill of the table is under way, or another process works on this one.
        BackfillEnded: the backfill was cancelled or superseded.
        PartFailed: some ranges are missing, and why; call again.
    """
    start = time.monotonic()
    host = dsn if isinstance(dsn, Host) else Host(dsn, schema)
    numbers: list[int] = []
    touched = ranges_done = 0
    with host.connect() as connection:
        oid = find_table(connection, table)
        for name in resending(connection, tube, oid) or [tube]:  # one that is not followed is refused below
            number = _number(connection, name, oid, order_col, supersede=supersede)
            numbers.append(number)
            if began is not None:
                began(number)
            _begin(connection, name, number)
            job_id = str(_value(connection, queries.BACKFILL_SPLIT, backfill=number, ranges=ranges))
            missing = _missing(connection, job_id)
            call = _inserting(name, number, backlog)
            done = run_calls(spark, [host], [(0, unit) for unit in missing], call, max_connections)
            failures = [str(row["error"]) for row in done if row["state"] in (FAILED, LOST)]
            state = _state(connection, name, number)
            if state[0] in ("cancelled", "superseded", "failed"):
                raise BackfillEnded(f"backfill {number} of {table} was {state[0]}")
            if failures or not _value(connection, queries.BACKFILL_JOIN, backfill=number):
                raise PartFailed(job_id, {host.name: failures[0] if failures else "ranges are not in yet"})
            touched += int(_state(connection, name, number)[1])
            ranges_done += len(missing)
    return Backfilled(tuple(numbers), touched, ranges_done, time.monotonic() - start)


def _begin(connection: psycopg.Connection, tube: str, number: int) -> None:
    """Take the right to work on a backfill, and bring it past step 2."""
    if not _value(connection, queries.BACKFILL_LOCK, backfill=number):
        raise BackfillBusy(f"another process is running backfill {number}; see `pytube backfill status`")
    if _state(connection, tube, number)[0] == "waiting":
        _wait_for_transactions(connection, number)


def _number(
    connection: psycopg.Connection, tube: str, table: int, order_col: str | None, *, supersede: bool
) -> int:
    """The backfill to continue, or a new one."""
    for number, state, column, split in rows(connection, queries.BACKFILL_ACTIVE, tube=tube, table=table):
        goes_on = state == "waiting" or (split and state == "inserting")
        if not supersede and goes_on and order_col in (None, column):
            return int(number)
    created = _value(
        connection, queries.BACKFILL_CREATE, tube=tube, table=table, order_col=order_col, supersede=supersede
    )
    return int(created)


def _wait_for_transactions(connection: psycopg.Connection, number: int) -> None:
    """Wait for the transactions that ran when the start seq was drawn, so that their rows are visible."""
    xids: list[str] | None = None
    while True:
        found = rows(connection, queries.BACKFILL_HOLDERS, xids=xids)
        if not found:
            return
        xids = [xid for xid, _ in found]
        names = ", ".join(sorted({holder for _, holder in found})[:3])
        note = f"waits for transactions to end: {names}"
        if _value(connection, queries.BACKFILL_NOTE, backfill=number, note=note) != "waiting":
            raise BackfillEnded(f"backfill {number} was ended while it waited for transactions")
        time.sleep(_POLL_INTERVAL)


def _missing(connection: psycopg.Connection, job_id: str) -> list[int]:
    """The ranges that are not inserted yet."""
    units, done = job.known_units(connection, job_id), job.units_done(connection, job_id)
    if units is None:
        raise StatementFailed(f"job {job_id!r} is gone")
    return [unit for unit in range(units) if unit not in done]


def _state(connection: psycopg.Connection, tube: str, number: int) -> tuple[str, int]:
    row = first_row(connection, queries.BACKFILL_STATE, tube=tube, backfill=number)
    if row is None:
        raise BackfillEnded(f"backfill {number} is gone: its tube was dropped")
    return str(row[0]), int(row[2])


def _value(connection: psycopg.Connection, query: LiteralString, **arguments: Any) -> Any:
    """As `value`; any error of Postgres is one of ours, so that `pytube` prints it without a traceback."""
    try:
        return value(connection, query, **arguments)
    except psycopg.Error as error:
        raise StatementFailed(f"Postgres refused: {describe(error)}") from error
