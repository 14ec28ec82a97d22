"""Fan-outs: touch the keys of a DataFrame, or the ids that a query in the database returns."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import psycopg
from psycopg.errors import Diagnostic
from pyspark.sql import DataFrame, SparkSession

from pytube.errors import PytubeError, UnknownTable, UsageError
from pytube.spark import frame, job, queries
from pytube.spark.arrays import Spread
from pytube.spark.hosts import ShardMap, Where, shard_map
from pytube.spark.job import Counts, JobSpec, Parts
from pytube.spark.ranges import divided, within
from pytube.spark.tasks import FAILED, LOST, PACKED, RESULT, WRITTEN, Plan, pack_keys, run_calls, write_units
from pytube.tubes.tables import find_table, following

BUCKETS = 64
"""Units of a new job. Each is a transaction: after a fault, a task repeats one unit at most."""
RANGES = 32
"""Ranges of a new job that runs a query."""
POD_SIZE = 250
CONNECTIONS = 8
_COUNTS = re.compile(r": (\d+) ids in (\d+) pods")
_ARROW = {
    # With a limit, Spark measures the batch again for each row, which costs more than all other work.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # These take 48 KB as keys, and at most 100 MB as packed rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
}


@dataclass(frozen=True, slots=True)
class Touched:
    """How much a job wrote, in this run and before. Each of several tubes got as much."""

    job_id: str
    rows: int
    """Rows of the DataFrame."""
    ids: int
    """Touched keys. A repeated key may be touched once or more often."""
    pods: int
    units: int
    """Units that this run wrote; 0 if all were written before."""
    seconds: float


def touch(
    df: DataFrame,
    *,
    tubes: str | Sequence[str],
    dsn: Where,
    op: str = "B",
    id: str = "id",  # noqa: A002 # what the column is called
    shard: str | int | None = "shard",
    pod_size: int = POD_SIZE,
    job_id: str | None = None,
    publish: Literal["direct", "staged"] = "direct",
    max_connections: int = CONNECTIONS,
    buckets: int = BUCKETS,
    schema: str = "tube",
    fingerprint: str | None = None,
    payload: Mapping[str, Any] | None = None,
    relation: str | None = None,
) -> Touched:
    """Touch the keys in a DataFrame.

    A job is written exactly once: a task that is retried, speculated or killed leaves no second copy, and a
    job that is run again writes only the missing units.

    Args:
        df: has the columns of ids and shards; other columns are ignored.
        tubes: one tube or several, which are written in one transaction.
        dsn: the database, or several by ranges of shards; see `pytube.spark.hosts.Where`.
        op: B goes behind live changes, like a backfill; I, U, D and T go in turn with them.
        id: the column of the ids, without NULLs: whole numbers; for a tube of uuids, texts in any form that
            Postgres reads, or 16 bytes; for a tube of texts, texts.
        shard: the column of the shards, or one shard for all ids; None: the shard of the only table that is
            attached to the tubes, and if the table is spread, the shard of each id.
        pod_size: ids of a pod; pods of long texts have fewer.
        job_id: the name of the job; by default a new name.
        publish: `direct`: workers see a unit as soon as it is written; `staged`: all units at the end, in one
            transaction of each database.
        max_connections: sessions with all databases together; speculative copies of tasks have more.
        buckets: units of a new job in each database.
        schema: the schema of our SQL.
        fingerprint: identifies the query; by default made of the plan of `df`. A job that began with another
            fingerprint is refused.
        payload: the payload of all pods.
        relation: schema.table, or schema.table.column: the ids are values of the column by which documents
            of the tube follow this table, such as ids of products. All documents with these are touched.

    Raises:
        UsageError: a column is missing or has a wrong type, a key is invalid, or a tube does not exist.
            Nothing is written then, because all rows are checked first.
        JobConflict: another job has the name.
        PartFailed: some databases did not get their part. What the others got stays.
    """
    began = time.monotonic()
    names = job.names_of(tubes)
    _check(op, pod_size, max_connections, publish)
    hosts = shard_map(dsn, schema)
    if relation is not None:
        names, found = by_relation(hosts, names, relation)
        given = None if shard == "shard" and "shard" not in df.columns else shard
        shard = given if found is None else found
    if df.isStreaming:
        raise UsageError("a stream can't be touched; call touch within foreachBatch")
    print_of = fingerprint or frame.fingerprint(df, id, shard, op, payload)
    spec = JobSpec(job_id or f"touch {uuid.uuid4()}", names, publish, print_of)
    parts = job.look(spec, hosts)
    [keyed] = frame.apart(_ARROW, frame.keys(df, id, shard, parts.kind))
    parts.begin(buckets)
    written = 0
    if any(part.is_open for part in parts.parts):
        plan = Plan(
            hosts=hosts,
            job_id=spec.job_id,
            tubes=names,
            op=op,
            buckets=parts.units,
            pod_size=pod_size,
            stages=parts.stages(),
            payload=payload,
            kind=parts.kind,
            **_shards(parts, shard),
        )
        written = _write(keyed, plan, max_connections, parts)
    counts = parts.finish()
    return Touched(spec.job_id, *counts, written, time.monotonic() - began)


def _write(keyed: DataFrame, plan: Plan, connections: int, parts: Parts) -> int:
    """Write the missing units, in rounds. Returns the number of units that were written."""
    written = 0
    for number in range(job.ROUNDS):
        if number:
            parts.refresh()
        total = len(parts.parts) * parts.units
        skipped = frozenset(unit for unit in range(total) if not parts.is_wanted(unit))
        packed = keyed.mapInArrow(pack_keys(replace(plan, skipped=skipped)), PACKED)
        # Each unit is a partition. A task gets its partitions one after the other.
        shuffled = packed.repartitionById(total, "unit").coalesce(min(connections, total))
        with frame.refusals():
            rows = shuffled.mapInArrow(write_units(plan), RESULT).collect()
        if len({row["unit"] for row in rows}) < len(rows):
            raise RuntimeError("the rows of a unit came to two tasks, and the second part was not written")
        written += sum(row["state"] == WRITTEN for row in rows)
        for row in rows:
            if row["state"] in (FAILED, LOST):
                parts.parts[row["unit"] // parts.units].failure = row["error"]
        if not any(row["state"] == LOST for row in rows):
            break
    return written


def _shards(parts: Parts, shard: str | int | None) -> dict[str, Any]:
    """The shards in a plan."""
    if shard is None:
        return {"shards": derived_shard(parts)}  # which need no check
    spread = tuple(one for one in shards_of_tables(parts) if one.shards > 1)
    return {"shards": Spread(shard, 1) if isinstance(shard, int) else None, "spread": spread}


def shards_of_tables(parts: Parts) -> list[Spread]:
    """The shards of the tables that are attached to the tubes of a job, in order."""
    return sorted({found for part in parts.parts for found in part.spread})


def derived_shard(parts: Parts) -> Spread:
    """The shards of the tables that are attached to the tubes of a job.

    Raises:
        UsageError: there is none, or they differ.
    """
    spread = shards_of_tables(parts)
    if len(spread) != 1:
        has = ", ".join(str(shard) if n == 1 else f"{shard} to {shard + n - 1}" for shard, n, _ in spread)
        raise UsageError(
            "which shard? Give a column or a number: shard=…; you can only omit it if the tables of the "
            f"tubes have the same shards (they have: {has or 'none, as no table is attached'})"
        )
    return spread[0]


def by_relation(hosts: ShardMap, tubes: tuple[str, ...], relation: str) -> tuple[tuple[str, ...], int | None]:
    """The tube for values by which documents follow a table, and their shard; None: each has its own.

    Raises:
        UsageError: several tubes; the table is not followed, or by several columns and none is given.
    """
    if len(tubes) != 1:
        raise UsageError("relation=… is a table that one tube follows; give one tube")
    with hosts.hosts[0].connect() as connection:
        name, column = relation, ""
        try:
            table = find_table(connection, name)
        except UnknownTable as unknown:
            name, _, column = relation.rpartition(".")
            try:
                table = find_table(connection, name)
            except UnknownTable:
                raise unknown from None
        ways = following(connection, tubes[0], table)
    chosen = [way for way in ways if column in ("", way.column)]
    if len(chosen) != 1:
        has = ", ".join(f"{name}.{way.column}" for way in ways)
        raise UsageError(
            f"documents of tube {tubes[0]!r} don't follow {relation} in exactly one way; "
            + (f"name one of: {has}" if ways else "`pytube tube list` shows what they follow")
        )
    way = chosen[0]
    return (way.tube,), None if way.tube == tubes[0] else way.shard


def _check(op: str, pod_size: int, connections: int, publish: str) -> None:
    job.check_op(op)
    if pod_size < 1 or connections < 1:
        raise UsageError("pod_size and max_connections are at least 1")
    if publish not in ("direct", "staged"):
        raise UsageError(f"publish={publish!r} is neither 'direct' nor 'staged'")


# --- queries ----------------------------------------------------------------------------------------


def fanout_sql(
    spark: SparkSession,
    query: str,
    *,
    tubes: str | Sequence[str],
    dsn: Where,
    shard: int = 0,
    op: str = "B",
    ranges: int = RANGES,
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
    which = sorted(
        (
            (part.place, unit)
            for part in parts.parts
            if part.is_open and part.job is not None
            for unit in range(part.job.units)
            if unit not in part.done
        ),
        key=lambda one: one[1],
    )
    bounds = [part.job.bounds or () if part.job else () for part in parts.parts]

    def call(connection: psycopg.Connection, place: int, unit: int) -> bool:
        arguments = {
            "tubes": ",".join(names),
            "query": within(text, bounds[place], unit),
            "shard": shard,
            "op": op,
            "pod_size": pod_size,
        }
        return _insert_pods(connection, spec, unit, arguments)

    rows = run_calls(spark, parts.hosts.hosts, which, call, max_connections)
    for row in rows:
        if row["state"] in (FAILED, LOST):
            parts.parts[which[row["unit"]][0]].failure = row["error"]
    counts = parts.finish()
    written = sum(row["state"] == WRITTEN for row in rows)
    return Touched(spec.job_id, *counts, written, time.monotonic() - began)


def _insert_pods(
    connection: psycopg.Connection, spec: JobSpec, unit: int, arguments: Mapping[str, object]
) -> bool:
    """Touch the ids of one range; see `pytube.spark.tasks.Call`."""
    if unit in job.units_done(connection, spec.job_id):
        return False
    notices: list[str] = []
    written = False

    def on_notice(notice: Diagnostic) -> None:
        notices.append(notice.message_primary or "")

    connection.add_notice_handler(on_notice)
    try:
        with connection.transaction() as transaction:
            connection.execute("SET LOCAL client_min_messages = notice")
            connection.execute(queries.PODS_INSERT, arguments)
            ids, pods = _counts(notices)
            counts = Counts(ids, ids, pods // len(spec.tubes))
            written = job.done(connection, spec.job_id, unit, counts, None)
            if not written:
                raise psycopg.Rollback(transaction)
        return written
    finally:
        connection.remove_notice_handler(on_notice)


def _counts(notices: Sequence[str]) -> tuple[int, int]:
    for text in reversed(notices):
        if found := _COUNTS.search(text):
            return int(found[1]), int(found[2])
    raise PytubeError(f"tube_pods_insert did not report its counts: {notices!r}")
