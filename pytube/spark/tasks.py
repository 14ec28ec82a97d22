"""What Spark's tasks do for a job: they assign keys to units, and write units, each in one transaction.

Spark moves single rows, and that costs more than all other work. So the keys of a unit are packed into a few
large rows of bytes, by numpy.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql import Row, SparkSession

from pytube.db.errors import is_outage, translated
from pytube.errors import ConfigError, DatabaseUnavailable, PytubeError, UsageError
from pytube.spark import arrays, job
from pytube.spark.arrays import BIGINT, Ints, KeyKind, Keys, Spread, runs
from pytube.spark.hosts import Host, ShardMap, TaskSession
from pytube.spark.job import Counts
from pytube.spark.pods import check_keys, cut_all, encode, send

REFUSED = "pytube refuses: "
"""How a message about an invalid key begins, within the error that Spark makes of it."""
PACKED = "unit int, shards binary, ids binary"
"""The columns of packed rows."""
BLOCK = 1 << 16
"""Keys that are sorted by unit at a time. A block fits the processor's cache."""
PIECE = 1 << 11
"""Keys of a row at most. A task gets rows by thousands."""
_BLOCK_BYTES = 1 << 22
_PIECE_BYTES = 1 << 14
"""Bytes of a block and of a row, if keys are longer than numbers; a row has at least one key."""
_PRIME = np.uint64(0x9E3779B185EBCA87)

RESULT = "unit int, state string, error string"
"""The columns that a task returns, one row for each unit."""
WRITTEN, THERE, FAILED, LOST = "written", "there", "failed", "lost"
"""This task wrote the unit; it was written before; it can't be written; its connection was lost."""

_TRIES = 5
_PAUSE = 2.0
"""Seconds until a task makes a call again that lost its connection, or that has to wait."""

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
            for shards, ids in _blocks(piece for batch in batches for piece in _read(plan, batch)):
                if len(packed := _pack(plan, shards, ids)):
                    yield packed
        except UsageError as error:
            raise UsageError(REFUSED + str(error)) from None

    return work


def _read(plan: Plan, batch: pa.RecordBatch) -> Iterator[tuple[Ints, Keys]]:
    """The shards and the ids of a batch, keys of one width together."""
    given = None if plan.shards is not None else arrays.read_shards(batch.column(1))
    for which, ids in plan.kind.read(batch.column(0)):
        if given is not None:
            yield given[which], ids
        elif plan.shards is not None:
            yield plan.kind.shards(ids, *plan.shards), ids


def _blocks(pieces: Iterable[tuple[Ints, Keys]]) -> Iterator[tuple[Ints, Keys]]:
    """The same keys, joined to blocks of one width."""
    waiting: dict[int, list[tuple[Ints, Keys]]] = {}
    for shards, ids in pieces:
        held = waiting.setdefault(ids.itemsize, [])
        held.append((shards, ids))
        if sum(len(keys) for _, keys in held) >= min(BLOCK, _BLOCK_BYTES // ids.itemsize):
            yield _joined(waiting.pop(ids.itemsize))
    yield from map(_joined, waiting.values())


def _joined(pieces: Sequence[tuple[Ints, Keys]]) -> tuple[Ints, Keys]:
    shards, ids = zip(*pieces, strict=True)
    return np.concatenate(shards), np.concatenate(ids)


def _pack(plan: Plan, shards: Ints, ids: Keys) -> pa.RecordBatch:
    """A batch of `PACKED`: keys of one width, sorted by unit."""
    check_keys(shards, ids, plan.spread, plan.kind)
    units = units_of(plan, shards, ids)
    if plan.skipped:
        keep = ~np.isin(units, list(plan.skipped))
        units, shards, ids = units[keep], shards[keep], ids[keep]
    narrow = units.astype(np.uint16) if len(units) and units.max() < 1 << 16 else units
    order = np.argsort(narrow, kind="stable")  # 16 bits are sorted by radix
    units, ids = units[order], ids[order]
    places = shards.astype(np.int32)[order]
    # The width of keys that are no numbers follows from the number of shards.
    same = plan.kind.is_number and bool((places == places[:1]).all())
    piece = PIECE if plan.kind.is_number else max(1, min(PIECE, _PIECE_BYTES // ids.itemsize))
    cuts = [
        slice(start, min(start + piece, last))
        for first, last in runs(units)
        for start in range(first, last, piece)
    ]
    columns = [
        arrays.of_numbers([int(units[cut.start]) for cut in cuts], np.int32),
        arrays.of_bytes([(places[:1] if same else places[cut]).tobytes() for cut in cuts], pa.binary()),
        arrays.of_bytes([ids[cut].tobytes() for cut in cuts], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["unit", "shards", "ids"])


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
    units = arrays.numbers(batch.column(0))
    of_shards, shards = arrays.pieces(batch.column(1), np.int32)
    of_ids, ids = arrays.pieces(batch.column(2), np.uint8)
    given, size = np.diff(of_shards), np.diff(of_ids)
    widths = np.full(len(units), kind.width) if kind.is_number else size // np.maximum(given, 1)
    counts = size // np.maximum(widths, 1)
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
                try:
                    connection = None if place in dead else session.at(place)
                except (ConfigError, DatabaseUnavailable) as error:
                    connection, dead[place] = None, str(error)
                if connection is None:
                    yield _result(unit, LOST, dead[place])
                    continue
                state, reason = write_unit(plan, connection, place, bucket, of_unit)
                if state == LOST:
                    session.close()
                yield _result(unit, state, reason)
        finally:
            session.close()

    return work


def write_unit(
    plan: Plan, connection: psycopg.Connection, place: int, bucket: int, pieces: Iterable[Keyed]
) -> tuple[str, str | None]:
    """Write one unit. An error of the database fails the unit, not the task: returns its state and reason."""
    state = THERE
    try:
        if bucket not in job.units_done(connection, plan.job_id):
            with connection.transaction() as transaction:
                counts, shards = _copy(plan, connection, place, pieces)
                if not job.done(connection, plan.job_id, bucket, counts, sorted(shards)):
                    raise psycopg.Rollback(transaction)
                state = WRITTEN
    except (psycopg.Error, PytubeError) as error:
        return _refusal(plan.hosts.hosts[place], error)
    return state, None


def _copy(
    plan: Plan, connection: psycopg.Connection, place: int, pieces: Iterable[Keyed]
) -> tuple[Counts, set[int]]:
    """Copy the pods of a unit to all tubes, or to the stage; how much it was, and the shards."""
    schema, stage = plan.hosts.hosts[place].schema, plan.stages.get(place)
    targets: list[sql.Composable] = [sql.Identifier(schema, tube) for tube in plan.tubes]
    if stage is not None:
        targets = [sql.SQL(stage)]  # as SQL has the name
    rows = ids = pods = 0
    shards: set[int] = set()

    def keys() -> Iterator[tuple[Ints, Keys]]:
        nonlocal rows
        for _, of_keys, some in pieces:
            rows += len(some)
            yield of_keys, some

    for blocks in cut_all(keys(), plan.pod_size):
        data = b"".join(encode(block, plan.op, plan.payload, kind=plan.kind) for block in blocks)
        for target in targets if data else ():
            send(connection, target, data)
        for block in blocks:
            shards.update(np.unique(block.shards).tolist())
            ids, pods = ids + block.ids.size, pods + len(block)
    return Counts(rows, ids, pods), shards


def _refusal(host: Host, error: psycopg.Error | PytubeError) -> tuple[str, str]:
    """State and reason of a unit that a database did not take."""
    return LOST if is_outage(error) else FAILED, host.reason(error)


def _result(unit: int, state: str, reason: str | None = None) -> pa.RecordBatch:
    """A row of `RESULT`."""
    columns = [
        arrays.of_numbers([unit], np.int32),
        arrays.of_bytes([state.encode()], pa.string()),
        arrays.of_bytes([None if reason is None else reason.encode()], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["unit", "state", "error"])


# --- units written by a call ------------------------------------------------------------------------


Call = Callable[[psycopg.Connection, int, int], bool]
"""Writes one unit of a database, by the numbers of both, in one transaction; returns whether it was not
written before, and raises `NotYet` if it must not be written now. It is pickled."""


class NotYet(Exception):
    """The task should try again after a pause."""


def run_calls(
    spark: SparkSession,
    hosts: Sequence[Host],
    units: Sequence[tuple[int, int]],
    call: Call,
    connections: int,
) -> list[Row]:
    """Write units by at most `connections` tasks that make calls to the databases.

    `units` are pairs of host and unit, in about the order in which the tasks take them. Returns rows of
    `RESULT`, where `unit` is the index in `units`.
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
                    for index in range(first, len(units), slices):
                        yield _result(index, *_try_call(session, call, *units[index]))
        finally:
            session.close()

    return spark.range(0, slices, 1, slices).mapInArrow(work, RESULT).collect()


def _try_call(session: TaskSession, call: Call, host: int, unit: int) -> tuple[str, str | None]:
    tries = 0
    while True:
        try:
            connection = session.at(host)
            with translated():
                return WRITTEN if call(connection, host, unit) else THERE, None
        except NotYet:
            time.sleep(_PAUSE)
        except (psycopg.Error, PytubeError) as error:
            state, reason = _refusal(session.hosts[host], error)
            tries += 1
            if state == FAILED or tries == _TRIES:
                return state, reason
            session.close()
            time.sleep(_PAUSE)
