"""Fan-outs: touch the keys of a DataFrame.

Spark moves single rows, and that costs more than all other work. So tasks pack the keys of a unit into a few
large rows of bytes, by numpy. After a shuffle by unit, tasks write units, each in one transaction.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame

from pytube.errors import ConfigError, DatabaseUnavailable, PytubeError, UnknownTable, UsageError
from pytube.spark import arrays, frame, job
from pytube.spark.arrays import BIGINT, Ints, KeyKind, Keys, Spread, runs
from pytube.spark.hosts import ShardMap, TaskSession, Where, shard_map
from pytube.spark.job import LOST, RESULT, THERE, WRITTEN, JobSpec, Parts, refusal, result
from pytube.spark.pods import blocks, read_keys, write
from pytube.tubes.tables import find_table, following

ROUNDS = 3
"""How often a job tries units whose connection is lost."""
BUCKETS = 64
"""Units of a new job. Each is a transaction: after a fault, a task repeats one unit at most."""
POD_SIZE = 250
CONNECTIONS = 8
PACKED = "unit int, width int, shards binary, ids binary"
"""The columns of packed rows: the bytes of a key, one shard for all keys or one for each, and the keys."""
BLOCK = 1 << 16
"""Keys that are sorted by unit at a time. A block fits the processor's cache."""
PIECE = 1 << 11
"""Keys of a row at most. A task gets rows by thousands."""
_BLOCK_BYTES = 1 << 22
_PIECE_BYTES = 1 << 14
"""Bytes of a block and of a row of long keys; a row has at least one key."""
_PRIME = np.uint64(0x9E3779B185EBCA87)
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
        buckets: units of a new job in each database. Each unit may have one shorter pod for each shard and
            million of keys: a million ids over 16, 256 and 1024 shards are 4096, 16384 and 65536 pods with 64
            units, and at most 4096 with 1.
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
    shards = parts.only_spread() if shard is None else Spread(shard, 1) if isinstance(shard, int) else None
    parts.begin(buckets)
    plan = Plan(
        hosts=hosts,
        job_id=spec.job_id,
        tubes=names,
        op=op,
        buckets=parts.units,
        pod_size=pod_size,
        stages={part.place: part.job.stage for part in parts.parts if part.job and part.job.stage},
        payload=payload,
        kind=parts.kind,
        shards=shards,
        spread=() if shard is None else tuple(one for one in parts.spread if one.shards > 1),
    )
    written = _write(keyed, plan, max_connections, parts) if parts.missing else 0
    counts = parts.finish()
    return Touched(spec.job_id, *counts, written, time.monotonic() - began)


def _write(keyed: DataFrame, plan: Plan, connections: int, parts: Parts) -> int:
    """Write the missing units, in rounds. Returns the number of units that were written."""
    written = 0
    total = len(parts.parts) * plan.buckets
    for number in range(ROUNDS):
        if number:
            parts.refresh()
        missing = {place * plan.buckets + bucket for place, bucket in parts.missing}
        skipped = frozenset(range(total)) - missing
        packed = keyed.mapInArrow(pack_keys(replace(plan, skipped=skipped)), PACKED)
        # Each unit is a partition. A task gets its partitions one after the other.
        shuffled = packed.repartitionById(total, "unit").coalesce(min(connections, total))
        with frame.refusals():
            rows = shuffled.mapInArrow(write_units(plan), RESULT).collect()
        if len({(row["place"], row["unit"]) for row in rows}) < len(rows):
            raise RuntimeError("the rows of a unit came to two tasks, and the second part was not written")
        written += parts.note(rows)
        if not any(row["state"] == LOST for row in rows):
            break
    return written


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


# --- tasks ------------------------------------------------------------------------------------------


Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task applies to its rows."""
Keyed = tuple[int, Ints, Keys]
"""A unit with some of its shards and ids."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How tasks write the keys of a job. It is pickled; its `repr` shows no connection string."""

    hosts: ShardMap
    job_id: str
    tubes: tuple[str, ...]
    op: str
    buckets: int
    """Units of each database. A unit's number is `index of the database * buckets + bucket`."""
    pod_size: int
    stages: Mapping[int, str] = field(default_factory=dict)
    """The table that collects the pods, by database."""
    payload: Mapping[str, Any] | None = None
    kind: KeyKind = BIGINT
    shards: Spread | None = None
    """The shards of all keys; None: a column has the shard of each."""
    spread: tuple[Spread, ...] = ()
    """The shards of spread tables of the tubes, whose keys are checked."""
    skipped: frozenset[int] = frozenset()
    """Units that are written already."""


# --- keys are packed by unit ------------------------------------------------------------------------


def pack_keys(plan: Plan) -> Work:
    """The function by which a task makes rows of `PACKED` from rows of `id`, or `id` and `shard`."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_imports()
        try:
            pieces = (
                piece
                for batch in batches
                for piece in read_keys(
                    plan.kind, batch.column(0), plan.shards or batch.column(1), plan.spread
                )
            )
            for shards, ids in blocks(pieces, BLOCK, _BLOCK_BYTES):
                if len(packed := _pack(plan, shards, ids)):
                    yield packed
        except UsageError as error:
            raise UsageError(frame.REFUSED + str(error)) from None

    return work


def _pack(plan: Plan, shards: Ints, ids: Keys) -> pa.RecordBatch:
    """A batch of `PACKED`: keys of one width, sorted by unit."""
    units = units_of(plan, shards, ids)
    if plan.skipped:
        keep = ~np.isin(units, list(plan.skipped))
        units, shards, ids = units[keep], shards[keep], ids[keep]
    order = arrays.order_of(units)
    units, ids, places = units[order], ids[order], shards.astype(np.int32)[order]
    same = bool((places == places[:1]).all())
    piece = max(1, min(PIECE, _PIECE_BYTES // ids.itemsize))
    cuts = [
        slice(start, min(start + piece, last))
        for first, last in runs(units)
        for start in range(first, last, piece)
    ]
    columns = [
        arrays.of_numbers([int(units[cut.start]) for cut in cuts], np.int32),
        arrays.of_numbers([ids.itemsize] * len(cuts), np.int32),
        arrays.of_bytes([(places[:1] if same else places[cut]).tobytes() for cut in cuts], pa.binary()),
        arrays.of_bytes([ids[cut].tobytes() for cut in cuts], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["unit", "width", "shards", "ids"])


def units_of(plan: Plan, shards: Ints, ids: Keys) -> Ints:
    """The unit of each key; raises `UsageError` if no database has the shard of a key."""
    return plan.hosts.places(shards) * plan.buckets + bucket_of(shards, ids, plan.buckets)


def bucket_of(shards: Ints, ids: Keys, buckets: int) -> Ints:
    """The bucket of each key: by a hash of the shard and of the words of the id."""
    words = np.ascontiguousarray(ids).view("<u8").reshape(len(ids), ids.itemsize // 8)
    hashed = shards.astype(np.uint64) * _PRIME
    for place in range(words.shape[1]):
        hashed ^= hashed >> np.uint64(32)
        hashed = (hashed ^ words[:, place]) * _PRIME
    # The upper half, which all bits have a part in, as a share of the buckets.
    return ((hashed >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def unpack(batch: pa.RecordBatch, kind: KeyKind) -> Iterator[Keyed]:
    """Yield the unit, shards and ids of rows of `PACKED`. Adjacent rows of a unit and width come as one."""
    units, widths = arrays.numbers(batch.column(0)), arrays.numbers(batch.column(1))
    of_shards, shards = arrays.pieces(batch.column(2), np.int32)
    of_ids, ids = arrays.pieces(batch.column(3), np.uint8)
    given, counts = np.diff(of_shards), np.diff(of_ids) // widths
    for first, last in runs(units.astype(np.int64) << 32 | widths):
        keys = ids[of_ids[first] : of_ids[last]].view(np.int64 if kind.is_number else f"S{widths[first]}")
        places = shards[of_shards[first] : of_shards[last]].astype(np.int64)
        if len(places) < len(keys):  # some rows have one shard for all their ids
            places = np.repeat(places, np.repeat(counts[first:last] // given[first:last], given[first:last]))
        yield int(units[first]), places, keys


def _freeze_imports() -> None:
    """Exclude all present objects of a task from garbage collection: mostly modules, which stay anyway.

    Spark collects garbage after each task and visits all objects each time. That takes 30 to 40 ms, as long
    as some tasks.
    """
    if not gc.get_freeze_count():
        gc.freeze()


# --- units written by COPY --------------------------------------------------------------------------


def write_units(plan: Plan) -> Work:
    """The function by which a task writes the units in its rows of `PACKED`, and returns rows of `RESULT`."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_imports()
        session = TaskSession(plan.hosts.hosts)
        dead: dict[int, str] = {}  # databases that can't be reached
        pieces = (piece for batch in batches for piece in unpack(batch, plan.kind))
        try:
            for unit, of_unit in groupby(pieces, key=itemgetter(0)):
                place, bucket = divmod(unit, plan.buckets)
                state, reason = LOST, dead.get(place)
                if reason is None:
                    try:
                        state, reason = write_unit(plan, session.at(place), place, bucket, of_unit)
                    except (ConfigError, DatabaseUnavailable) as error:
                        reason = dead[place] = str(error)
                if state == LOST:
                    session.close()
                yield result(place, bucket, state, reason)
        finally:
            session.close()

    return work


def write_unit(
    plan: Plan, connection: psycopg.Connection, place: int, bucket: int, pieces: Iterable[Keyed]
) -> tuple[str, str | None]:
    """Write one unit. An error of the database fails the unit, not the task: returns its state and reason."""
    host, stage = plan.hosts.hosts[place], plan.stages.get(place)
    tables: list[sql.Composable] = [sql.Identifier(host.schema, tube) for tube in plan.tubes]
    if stage is not None:
        tables = [sql.SQL(stage)]  # as SQL has the name
    keys = ((shards, ids) for _, shards, ids in pieces)
    state = THERE
    try:
        if bucket in job.units_done(connection, plan.job_id):
            return state, None
        with connection.transaction() as transaction:
            counts, shards = write(connection, tables, keys, plan.pod_size, plan.op, plan.kind, plan.payload)
            if not job.done(connection, plan.job_id, bucket, counts, sorted(shards)):
                raise psycopg.Rollback(transaction)
            state = WRITTEN
    except (psycopg.Error, PytubeError) as error:
        return refusal(host, error)
    return state, None
