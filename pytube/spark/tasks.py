"""What Spark's tasks do for a job: they write units, each in one transaction, by COPY or by a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql import Row, SparkSession

from pytube.db.errors import is_outage, translated
from pytube.errors import ConfigError, DatabaseUnavailable, PytubeError
from pytube.spark import arrays, job
from pytube.spark.arrays import BIGINT, Ints, KeyKind, Keys
from pytube.spark.hosts import Host, TaskSession
from pytube.spark.job import Counts
from pytube.spark.pack import freeze_imports, unpack, unpack_wide
from pytube.spark.pods import Cutters, Pods, encode, send

RESULT = "unit int, rows bigint, ids bigint, pods bigint, state string, error string"
"""The columns that a task returns, one row for each unit."""
WRITTEN, THERE, FAILED, LOST = "written", "there", "failed", "lost"
"""This task wrote the unit; it was written before; it can't be written; its connection was lost."""

_TRIES = 5
_PAUSE = 2.0
"""Seconds until a task makes a call again that lost its connection, or that has to wait."""

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task applies to its rows."""


@dataclass(slots=True)
class Outcome:
    """What became of a unit."""

    unit: int
    counts: Counts
    state: str
    error: str | None = None


def result_row(outcome: Outcome) -> pa.RecordBatch:
    """A row of `RESULT`."""
    error = None if outcome.error is None else outcome.error.encode()
    columns = [
        arrays.of_numbers([outcome.unit], np.int32),
        *(arrays.of_numbers([count], np.int64) for count in outcome.counts),
        arrays.of_bytes([outcome.state.encode()], pa.string()),
        arrays.of_bytes([error], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["unit", "rows", "ids", "pods", "state", "error"])


def _refusal(host: Host, error: psycopg.Error | PytubeError) -> tuple[str, str]:
    """State and reason of a unit that a database did not take."""
    return LOST if is_outage(error) else FAILED, host.reason(error)


# --- units written by COPY ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """How tasks write units. It is pickled; its `repr` shows no connection string."""

    hosts: tuple[Host, ...]
    job_id: str
    tubes: tuple[str, ...]
    op: str
    buckets: int
    """A unit's number is `index of its host * buckets + bucket`."""
    pod_size: int
    stages: Mapping[int, str] = field(default_factory=dict)
    """The table that collects the pods, by host."""
    payload: Mapping[str, Any] | None = None
    kind: KeyKind = BIGINT


def write_units(plan: UnitPlan) -> Work:
    """The function by which a task writes the units in its rows of `PACKED`, and returns rows of `RESULT`."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        writer = UnitWriter(plan)
        unpacked = unpack if plan.kind.is_number else unpack_wide
        try:
            for batch in batches:
                for unit, shards, ids in unpacked(batch):
                    yield from map(result_row, writer.take(unit, shards, ids))
            yield from map(result_row, writer.end())
        finally:
            writer.close()

    return work


class UnitWriter:
    """Writes the units of a task one after the other, over one session."""

    def __init__(self, plan: UnitPlan) -> None:
        self._plan = plan
        self._session = TaskSession(plan.hosts)
        self._dead: dict[int, str] = {}
        """Hosts that can't be reached, and why."""
        self._seen: set[int] = set()
        self._unit: _Unit | None = None

    def take(self, unit: int, shards: Ints, ids: Keys) -> Iterator[Outcome]:
        """Take keys of a unit. The first keys of a unit end the unit before; yields its outcome."""
        if self._unit is None or self._unit.number != unit:
            yield from self.end()
            self._unit = self._begin(unit)
        self._unit.add(shards, ids)

    def end(self) -> Iterator[Outcome]:
        """End the last unit, and yield its outcome."""
        if self._unit is None:
            return
        unit, self._unit = self._unit, None
        outcome = unit.end()
        if outcome.state == LOST:
            self._session.close()
        yield outcome

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _begin(self, number: int) -> _Unit:
        if number in self._seen:
            # The first part is committed, so the second can't be written. Spark has mixed the units.
            raise RuntimeError(f"the rows of unit {number} came apart; nothing more of it was written")
        self._seen.add(number)
        place = number // self._plan.buckets
        unit = _Unit(self._plan, number)
        if place not in self._dead:
            try:
                unit.begin(self._session.at(place))
                return unit
            except (ConfigError, DatabaseUnavailable) as error:
                self._dead[place] = str(error)
        unit.fail(LOST, self._dead[place])
        return unit


class _Unit:
    """One unit. After its first error it only counts its rows."""

    def __init__(self, plan: UnitPlan, number: int) -> None:
        self.number = number
        place, self._bucket = divmod(number, plan.buckets)
        self._plan = plan
        self._host = plan.hosts[place]
        stage = plan.stages.get(place)
        # The database gives the stage's name as SQL has it.
        self._targets: list[sql.Composable] = (
            [sql.Identifier(self._host.schema, tube) for tube in plan.tubes]
            if stage is None
            else [sql.SQL(stage)]
        )
        self._cutter = Cutters(plan.pod_size)
        self._counts = Counts()
        self._shards: set[int] = set()
        self._state: str | None = None
        self._error: str | None = None
        self._connection: psycopg.Connection | None = None

    def begin(self, connection: psycopg.Connection) -> None:
        """Begin its transaction, unless the unit is written already."""
        self._connection = connection
        with self._failing():
            if self._bucket in job.units_done(connection, self._plan.job_id):
                self._state = THERE
            else:
                connection.execute("BEGIN")

    def add(self, shards: Ints, ids: Keys) -> None:
        """Take keys of it."""
        self._counts = self._counts.plus(Counts(rows=len(ids)))
        if self._state is None:
            self._write(self._cutter.add(shards, ids))

    def end(self) -> Outcome:
        """Commit it."""
        if self._state is None:
            self._write(self._cutter.rest())
        if self._state is None:
            with self._failing():
                self._commit()
        return Outcome(self.number, self._counts, self._state or WRITTEN, self._error)

    def fail(self, state: str, error: str) -> None:
        """Roll back whatever is written of it."""
        self._state, self._error = state, error
        self._counts = Counts(self._counts.rows)
        if self._connection is not None and not self._connection.closed:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def _write(self, pods: Iterable[Pods]) -> None:
        blocks = list(pods)
        plan = self._plan
        data = b"".join(encode(block, plan.op, plan.payload, kind=plan.kind) for block in blocks)
        if not data or self._connection is None:
            return
        with self._failing():
            for target in self._targets:
                send(self._connection, target, data)
            for block in blocks:
                self._shards.update(np.unique(block.shards).tolist())
                self._counts = self._counts.plus(Counts(0, block.ids.size, len(block)))

    def _commit(self) -> None:
        assert self._connection is not None
        shards = sorted(self._shards)
        if job.done(self._connection, self._plan.job_id, self._bucket, self._counts, shards):
            self._connection.execute("COMMIT")
            self._state = WRITTEN
        else:
            self._connection.execute("ROLLBACK")
            self._counts, self._state = Counts(self._counts.rows), THERE

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Let the unit fail, not the task, if the database raises an error inside the block."""
        try:
            yield
        except (psycopg.Error, PytubeError) as error:
            self.fail(*_refusal(self._host, error))


# --- units written by a call ----------------------------------------------------------------------------


Call = Callable[[psycopg.Connection, int, int], Counts | None]
"""Writes one unit of a database, by the numbers of both, in one transaction; returns None if it is written
already, and raises `NotYet` if it must not be written now. It is pickled."""


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
                        host, unit = units[index]
                        yield result_row(_try_call(session, call, index, host, unit))
        finally:
            session.close()

    return spark.range(0, slices, 1, slices).mapInArrow(work, RESULT).collect()


def _try_call(session: TaskSession, call: Call, index: int, host: int, unit: int) -> Outcome:
    tries = 0
    while True:
        try:
            connection = session.at(host)
            with translated():
                counts = call(connection, host, unit)
        except NotYet:
            time.sleep(_PAUSE)
        except (psycopg.Error, PytubeError) as error:
            state, reason = _refusal(session.hosts[host], error)
            tries += 1
            if state == FAILED or tries == _TRIES:
                return Outcome(index, Counts(), state, reason)
            session.close()
            time.sleep(_PAUSE)
        else:
            return Outcome(index, counts or Counts(), THERE if counts is None else WRITTEN)
