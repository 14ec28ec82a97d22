"""A backfill in ranges: steps 1 and 2 as ever, step 3 by several sessions at once.

All that is known of it is in the database, in the table of all backfills and in the ledger. So a driver can
be killed at any moment, and whoever calls again goes on with what lacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from pytube.db.errors import describe, translated
from pytube.errors import BackfillBusy, BackfillEnded, StatementFailed
from pytube.spark import queries
from pytube.spark.calls import NotYet, Units, run_calls
from pytube.spark.errors import PartFailed
from pytube.spark.hosts import Host
from pytube.spark.ledger import Counts
from pytube.spark.touch import CONNECTIONS
from pytube.spark.unit import FAILED, LOST
from pytube.tubes.tables import find_table

RANGES = 64
_POLL_INTERVAL = 0.2


@dataclass(frozen=True, slots=True)
class Backfilled:
    """A backfill whose pods are all in the tube."""

    backfill_id: int
    rows: int
    ranges: int
    """That this run has inserted."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Range:
    """What a task calls for each range."""

    tube: str
    backfill: int
    backlog: int | None

    def __call__(self, connection: psycopg.Connection, host: int, unit: int) -> Counts | None:  # noqa: ARG002
        """Touch the rows of one range; see `pytube.spark.calls.Call`."""
        if self.backlog is not None:
            limit = {"tube": self.tube, "pods_limit": self.backlog}
            if int(_value(connection, queries.BACKFILL_WAITING, limit)) >= self.backlog:
                raise NotYet
        rows = _value(connection, queries.BACKFILL_RANGE, {"backfill": self.backfill, "unit": unit})
        if rows is None:
            raise NotYet  # it is paused
        return Counts(int(rows), int(rows), 0)


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
    """Touch every row of an attached table at low priority, and have the sink swept after it.

    One that was interrupted goes on. `pytube backfill status`, `pause` and `cancel` see it like any other.

    Args:
        spark: the session.
        tube: it.
        table: schema.table, attached to it.
        order_col: rows of a range are touched in this order, and ranges about so; default: the column of the
            ids. It wants an index.
        dsn: the database.
        ranges: about how many.
        max_connections: that insert at the same time. One more is the driver's.
        backlog: wait while so many backfill pods wait in the tube; None: never.
        supersede: end another backfill of the table that is under way.
        schema: of our SQL.
        began: is told the number of the backfill.

    Raises:
        UsageError: the tube, table or column is not there.
        BackfillBusy: another backfill of the table is under way, or somebody else works on this one.
        BackfillEnded: it was cancelled or superseded meanwhile.
        PartFailed: some ranges are not in, and why; call again.
    """
    start = time.monotonic()
    host = dsn if isinstance(dsn, Host) else Host(dsn, schema)
    with host.connect() as connection:
        number = _number(connection, tube, table, order_col, supersede=supersede)
        if began is not None:
            began(number)
        if not _value(connection, queries.BACKFILL_LOCK, {"backfill": number}):
            raise BackfillBusy(f"somebody else works on backfill {number}; `pytube backfill status` says who")
        if _state(connection, tube, number)[0] == "waiting":
            _wait_for_transactions(connection, number)
        job = _value(connection, queries.BACKFILL_SPLIT, {"backfill": number, "ranges": ranges})
        lacking = _lacking(connection, str(job))
        rows = run_calls(
            spark,
            Units((host,), tuple((0, unit) for unit in lacking)),
            Range(tube, number, backlog),
            max_connections,
        )
        failures = [str(row["error"]) for row in rows if row["state"] in (FAILED, LOST)]
        state = _state(connection, tube, number)
        if state[0] in ("cancelled", "superseded", "failed"):
            raise BackfillEnded(f"backfill {number} of {table} was {state[0]}")
        if failures or not _value(connection, queries.BACKFILL_JOIN, {"backfill": number}):
            raise PartFailed(str(job), {host.name: failures[0] if failures else "ranges are not in yet"})
        done = int(_state(connection, tube, number)[1])
    return Backfilled(number, done, len(lacking), time.monotonic() - start)


def _number(
    connection: psycopg.Connection, tube: str, table: str, order_col: str | None, *, supersede: bool
) -> int:
    """The backfill that goes on, or a new one."""
    oid = find_table(connection, table)
    with translated():
        rows = connection.execute(queries.BACKFILL_ACTIVE, {"tube": tube, "table": oid}).fetchall()
    for number, state, column, split in rows:
        goes_on = state == "waiting" or (split and state == "inserting")
        if not supersede and goes_on and order_col in (None, column):
            return int(number)
    arguments = {"tube": tube, "table": oid, "order_col": order_col, "supersede": supersede}
    return int(_value(connection, queries.BACKFILL_CREATE, arguments))


def _wait_for_transactions(connection: psycopg.Connection, number: int) -> None:
    """Until all are over that ran after the start seq was drawn: what they wrote is seen then."""
    xids: list[str] | None = None
    while True:
        with translated():
            rows = connection.execute(queries.BACKFILL_HOLDERS, {"xids": xids}).fetchall()
        if not rows:
            return
        xids = [xid for xid, _ in rows]
        names = ", ".join(sorted({holder for _, holder in rows})[:3])
        note = {"backfill": number, "note": f"waits for transactions to end: {names}"}
        if _value(connection, queries.BACKFILL_NOTE, note) != "waiting":
            raise BackfillEnded(f"backfill {number} was ended while it waited for transactions")
        time.sleep(_POLL_INTERVAL)


def _lacking(connection: psycopg.Connection, job: str) -> list[int]:
    with translated():
        row = connection.execute(queries.JOB_KNOWN, {"job": job}).fetchone()
        done = connection.execute(queries.JOB_UNITS, {"job": job}).fetchone()
    if row is None or done is None:
        raise StatementFailed(f"job {job!r} is gone")
    return [unit for unit in range(int(row[0])) if unit not in set(done[0])]


def _state(connection: psycopg.Connection, tube: str, number: int) -> tuple[str, int]:
    with translated():
        row = connection.execute(queries.BACKFILL_STATE, {"tube": tube, "backfill": number}).fetchone()
    if row is None:
        raise BackfillEnded(f"backfill {number} is gone: its tube was dropped")
    return str(row[0]), int(row[2])


def _value(connection: psycopg.Connection, query: str, arguments: dict[str, Any]) -> Any:
    try:
        with translated():
            row = connection.execute(query.encode(), arguments).fetchone()
    except psycopg.Error as error:
        raise StatementFailed(f"Postgres refused: {describe(error)}") from error
    return None if row is None else row[0]
