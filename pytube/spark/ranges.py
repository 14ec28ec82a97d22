"""Fan-outs of queries, and backfills: the database does the work, in ranges that several sessions run.

All state is in the databases. So a driver may be killed at any time, and the next call continues with the
missing ranges.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql import Row, SparkSession

from pytube.db.errors import describe, translated
from pytube.errors import BackfillBusy, BackfillEnded, PytubeError, StatementFailed, UsageError
from pytube.spark import arrays, job
from pytube.spark.arrays import KeyKind
from pytube.spark.hosts import Host, TaskSession, Where, first_row, rows, shard_map, value
from pytube.spark.job import FAILED, LOST, RESULT, THERE, WRITTEN, JobSpec, PartFailed, refusal, result
from pytube.spark.pods import Counts
from pytube.spark.source import between, even_edges, key_bounds
from pytube.spark.touch import CONNECTIONS, POD_SIZE, Touched, by_relation
from pytube.tubes.calls import inserted, notices
from pytube.tubes.tables import find_table, resending

_INSERT: Final = """
    SELECT tube_pods_insert(%(tubes)s, %(query)s, %(shard)s, %(op)s, NULL, 20000, %(pod_size)s)
"""
_CREATE: Final = """
    SELECT tube_backfill_create(%(tube)s, %(table)s::oid::regclass, %(order_col)s, %(supersede)s)
"""
_ACTIVE: Final = """
    SELECT l.backfill_id, l.state, l.order_col,
        EXISTS (SELECT FROM tube_job_list('backfill ' || l.backfill_id)) AS split
    FROM tube_backfill_list(%(tube)s) AS l
    WHERE l.relation = %(table)s::oid AND l.state IN ('waiting', 'inserting', 'delivering')
"""
_LOCK: Final = "SELECT tube_backfill_lock(%(backfill)s)"
_NOTE: Final = "SELECT state FROM tube_backfill_note(%(backfill)s, %(note)s)"
_HOLDERS: Final = "SELECT xid, holder FROM tube_backfill_holders(%(xids)s)"
_SPLIT: Final = "SELECT tube_backfill_split(%(backfill)s, %(ranges)s)"
_RANGE: Final = "SELECT tube_backfill_range(%(backfill)s, %(unit)s)"
_JOIN: Final = "SELECT tube_backfill_join(%(backfill)s)"
_STATE: Final = "SELECT state, rows_done FROM tube_backfill_list(%(tube)s) WHERE backfill_id = %(backfill)s"
_WAITING: Final = "SELECT waiting FROM tube_backfill_pressure(%(tube)s, %(pods_limit)s)"

_WHOLE = (20, 21, 23)
_TRIES = 5
_PAUSE = 2.0
"""Seconds until a task makes a call again that lost its connection, or that has to wait."""
_POLL_INTERVAL = 0.2

# --- calls ------------------------------------------------------------------------------------------

Call = Callable[[psycopg.Connection, int, int], bool | None]
"""Writes one unit of a database, by the numbers of both, in one transaction; returns whether it was not
written before, or None: it must not be written now, but after a pause. It is pickled."""


def run_calls(
    spark: SparkSession,
    hosts: Sequence[Host],
    units: Sequence[tuple[int, int]],
    call: Call,
    connections: int,
) -> list[Row]:
    """Write units by at most `connections` tasks that make calls to the databases; returns rows of `RESULT`.

    `units` are pairs of host and unit, in about the order in which the tasks take them.
    """
    if not units:
        return []
    slices = min(connections, len(units))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        session = TaskSession(hosts)
        try:
            for batch in batches:
                for first in arrays.numbers(batch.column(0)).tolist():
                    # Neighbors go to different tasks, so that the first ranges are written first.
                    for place, unit in units[first::slices]:
                        yield result(place, unit, *_try_call(session, call, place, unit))
        finally:
            session.close()

    return spark.range(0, slices, 1, slices).mapInArrow(work, RESULT).collect()


def _try_call(session: TaskSession, call: Call, host: int, unit: int) -> tuple[str, str | None]:
    tries = 0
    while True:
        try:
            connection = session.at(host)
            with translated():
                written = call(connection, host, unit)
            if written is not None:
                return WRITTEN if written else THERE, None
        except (psycopg.Error, PytubeError) as error:
            state, reason = refusal(session.hosts[host], error)
            tries += 1
            if state == FAILED or tries == _TRIES:
                return state, reason
            session.close()
        time.sleep(_PAUSE)


# --- fan-outs of queries ----------------------------------------------------------------------------


def fanout_sql(
    spark: SparkSession,
    query: str,
    *,
    tubes: str | Sequence[str],
    dsn: Where,
    shard: int = 0,
    op: str = "B",
    ranges: int = 32,
    pod_size: int = POD_SIZE,
    job_id: str | None = None,
    max_connections: int = CONNECTIONS,
    schema: str = "tube",
    relation: str | None = None,
) -> Touched:
    """Touch the ids that a query returns, by a call of `tube_pods_insert` for each range of ids.

    The data stay in the database; Spark only keeps several of its sessions busy. This pays off if the query
    finds a range of its first column by an index.

    Args:
        spark: the session.
        query: a SELECT whose first column is the id. It runs with the rights of the role that connects.
        tubes: as for `touch`.
        dsn: the database, or several. Each runs the query and touches the ids that the query returns there.
        shard: the shard of all ids; if `shard` is one of several over which a table of the tube is spread,
            each id gets its own.
        op: as for `touch`.
        ranges: how many ranges, from the least id to the greatest; ranges of uuids and texts have about the
            same number of rows. A job that began before keeps its ranges.
        pod_size: ids of a pod.
        job_id: the name of the job; by default a new name.
        max_connections: sessions with all databases together.
        schema: the schema of our SQL.
        relation: as for `touch`.

    Raises:
        UsageError, JobConflict, PartFailed: as `touch`. An error of the query in a range is a `PartFailed`.
    """
    began = time.monotonic()
    names = job.names_of(tubes)
    if not names or any("," in name for name in names):
        raise UsageError("give tubes, none with a comma in its name")
    if ranges < 1 or max_connections < 1:
        raise UsageError("ranges and max_connections are at least 1")
    hosts = shard_map(dsn, schema)
    if relation is not None:
        names, found = by_relation(hosts, names, relation)
        shard = shard if found is None else found
    text = query.strip().rstrip(";").strip()
    print_of = hashlib.sha256(repr((text, shard, op)).encode()).hexdigest()[:32]
    spec = JobSpec(job_id or f"fanout {uuid.uuid4()}", names, "ranges", print_of)
    parts = job.look(spec, hosts)
    parts.begin(ranges, lambda connection, kind: divided(connection, text, ranges, kind))
    bounds = {part.place: part.job.bounds or () for part in parts.parts if part.job}

    def call(connection: psycopg.Connection, place: int, unit: int) -> bool:
        arguments = {
            "tubes": ",".join(names),
            "query": within(text, bounds[place], unit),
            "shard": shard,
            "op": op,
            "pod_size": pod_size,
        }
        return _insert_pods(connection, spec, unit, arguments)

    missing = sorted(parts.missing, key=itemgetter(1))
    written = parts.note(run_calls(spark, hosts.hosts, missing, call, max_connections))
    counts = parts.finish()
    return Touched(spec.job_id, *counts, written, time.monotonic() - began)


def _insert_pods(
    connection: psycopg.Connection, spec: JobSpec, unit: int, arguments: Mapping[str, object]
) -> bool:
    """Touch the ids of one range."""
    if unit in job.units_done(connection, spec.job_id):
        return False
    with connection.transaction() as transaction, notices(connection) as heard:
        connection.execute(_INSERT, arguments)
        ids, pods = inserted(heard)
        written = job.done(connection, spec.job_id, unit, Counts(ids, ids, pods // len(spec.tubes)), None)
        if not written:
            raise psycopg.Rollback(transaction)
    return written


def divided(connection: psycopg.Connection, query: str, ranges: int, kind: KeyKind) -> list[str]:
    """Where all ranges of a query's ids but the first begin; empty if the query returns no id.

    Numbers are divided evenly between the least and the greatest id. Other ids are sorted once, and the
    ranges have about the same number of rows.

    Raises:
        UsageError: the query fails, or its ids are no keys of the `kind`.
    """
    # The caller's own query, which is run with the caller's own rights.
    relation = f"(SELECT q.id FROM (\n{query}\n) AS q (id))"  # noqa: S608
    try:
        with translated():
            columns = connection.execute(f"{relation} LIMIT 0".encode()).description
            if kind.is_number or (columns and columns[0].type_code in _WHOLE):
                ends = sql.SQL("SELECT min(q.id), max(q.id) FROM {} AS q").format(sql.SQL(relation))
                ((low, high),) = connection.execute(ends).fetchall()
                if low is None:
                    return []
                if not isinstance(low, int):
                    raise UsageError(f"the first column of the query holds {low!r}, not a whole number")
                return [str(edge) for edge in even_edges(low, high, ranges)]
    except psycopg.Error as error:
        raise UsageError(f"the query fails: {describe(error)}") from error
    return key_bounds(connection, relation, "id", ranges)[0]


def within(query: str, bounds: Sequence[str], unit: int) -> str:
    """The query of one range. The first and the last are open; the first has the NULLs, to be refused."""
    # A literal without a type gets the type of the ids.
    condition = between("q.id", [sql.Literal(bound).as_string() for bound in bounds])[unit]
    if unit == 0:
        condition += " OR q.id IS NULL"
    # As in `divided`.
    return f"SELECT q.id, row_number() OVER () FROM (\n{query}\n) AS q (id) WHERE {condition}"  # noqa: S608


# --- backfills --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Backfilled:
    """Backfills whose pods are all in their tubes."""

    backfill_ids: tuple[int, ...]
    """One; of a table that a document follows in several ways, one for each."""
    rows: int
    ranges: int
    """Ranges that this run inserted."""
    seconds: float


def backfill(
    spark: SparkSession,
    tube: str,
    table: str,
    order_col: str | None = None,
    *,
    dsn: str | Host,
    ranges: int = 64,
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
    touched = inserted = 0
    with host.connect() as connection, _refused():
        oid = find_table(connection, table)
        for name in resending(connection, tube, oid) or [tube]:  # one that is not followed is refused below
            number = _number(connection, name, oid, order_col, supersede=supersede)
            numbers.append(number)
            if began is not None:
                began(number)
            # Steps 1 and 2 are those of any backfill.
            if not value(connection, _LOCK, backfill=number):
                raise BackfillBusy(
                    f"another process is running backfill {number}; see `pytube backfill status`"
                )
            if _state(connection, name, number)[0] == "waiting":
                _wait_for_transactions(connection, number)
            job_id = str(value(connection, _SPLIT, backfill=number, ranges=ranges))
            missing = _missing(connection, job_id)
            call = _inserting(name, number, backlog)
            results = run_calls(spark, [host], [(0, unit) for unit in missing], call, max_connections)
            failures = [str(row["error"]) for row in results if row["state"] in (FAILED, LOST)]
            state = _state(connection, name, number)[0]
            if state in ("cancelled", "superseded", "failed"):
                raise BackfillEnded(f"backfill {number} of {table} was {state}")
            if failures or not value(connection, _JOIN, backfill=number):
                raise PartFailed(job_id, {host.name: failures[0] if failures else "ranges are not in yet"})
            touched += _state(connection, name, number)[1]
            inserted += len(missing)
    return Backfilled(tuple(numbers), touched, inserted, time.monotonic() - start)


def _inserting(tube: str, backfill: int, backlog: int | None) -> Call:
    """The call that touches the rows of one range."""

    def call(connection: psycopg.Connection, _: int, unit: int) -> bool | None:
        if backlog is not None and value(connection, _WAITING, tube=tube, pods_limit=backlog) >= backlog:
            return None
        is_paused = value(connection, _RANGE, backfill=backfill, unit=unit) is None
        return None if is_paused else True

    return call


def _number(
    connection: psycopg.Connection, tube: str, table: int, order_col: str | None, *, supersede: bool
) -> int:
    """The backfill to continue, or a new one."""
    for number, state, column, split in rows(connection, _ACTIVE, tube=tube, table=table):
        goes_on = state == "waiting" or (split and state == "inserting")
        if not supersede and goes_on and order_col in (None, column):
            return int(number)
    return int(value(connection, _CREATE, tube=tube, table=table, order_col=order_col, supersede=supersede))


def _wait_for_transactions(connection: psycopg.Connection, number: int) -> None:
    """Wait for the transactions that ran when the start seq was drawn, so that their rows are visible."""
    xids: list[str] | None = None
    while found := rows(connection, _HOLDERS, xids=xids):
        xids = [xid for xid, _ in found]
        names = ", ".join(sorted({holder for _, holder in found})[:3])
        note = f"waits for transactions to end: {names}"
        if value(connection, _NOTE, backfill=number, note=note) != "waiting":
            raise BackfillEnded(f"backfill {number} was ended while it waited for transactions")
        time.sleep(_POLL_INTERVAL)


def _missing(connection: psycopg.Connection, job_id: str) -> list[int]:
    """The ranges that are not inserted yet."""
    known, done = job.known(connection, job_id), job.units_done(connection, job_id)
    if known is None:
        raise StatementFailed(f"job {job_id!r} is gone")
    return [unit for unit in range(known[1]) if unit not in done]


def _state(connection: psycopg.Connection, tube: str, number: int) -> tuple[str, int]:
    """The state of a backfill, and how many rows are in."""
    row: tuple[str, int] | None = first_row(connection, _STATE, tube=tube, backfill=number)
    if row is None:
        raise BackfillEnded(f"backfill {number} is gone: its tube was dropped")
    return row


@contextmanager
def _refused() -> Iterator[None]:
    """Translates errors of Postgres, so that `pytube` prints them without a traceback."""
    try:
        yield
    except psycopg.Error as error:
        raise StatementFailed(f"Postgres refused: {describe(error)}") from error
