"""Writes units, within a task: the pods of a unit, and its row in the ledger, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from pytube.db.errors import describe, is_outage
from pytube.errors import ConfigError, DatabaseUnavailable, PytubeError
from pytube.spark import arrow, copy, ledger
from pytube.spark.gc_tuning import freeze_imports
from pytube.spark.hosts import Host
from pytube.spark.kinds import BIGINT, KeyKind, Keys
from pytube.spark.ledger import Counts
from pytube.spark.pack import unpack, unpack_wide
from pytube.spark.pods import Cutters, Ints, Pods

if TYPE_CHECKING:
    from collections.abc import Callable

RESULT = "unit int, rows bigint, ids bigint, pods bigint, state string, error string"
"""The columns that a task gives, a row for each unit."""
WRITTEN, THERE, FAILED, LOST = "written", "there", "failed", "lost"
"""A unit is in by us; was in before; can't be written; was not written, because of its connection."""


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """What a task has to know. It is pickled; its `repr` shows no connection string."""

    hosts: tuple[Host, ...]
    job_id: str
    tubes: tuple[str, ...]
    op: str
    buckets: int
    """The number of a unit is that of its host, times this, and its bucket."""
    pod_size: int
    stages: Mapping[int, str] = field(default_factory=dict)
    """By host: the table that pods are staged in."""
    payload: Mapping[str, Any] | None = None
    probe: Callable[[str, int], None] | None = None
    """For tests: is told `copied` and `committed`, and the unit."""
    kind: KeyKind = BIGINT
    """Of the keys."""


@dataclass(slots=True)
class Outcome:
    """What became of a unit."""

    unit: int
    counts: Counts
    state: str
    error: str | None = None


class UnitWriter:
    """Writes the units that come to one task, one after the other, over one session at a time."""

    def __init__(self, plan: UnitPlan) -> None:
        self._plan = plan
        self._connection: psycopg.Connection | None = None
        self._connected: int | None = None
        self._dead: dict[int, str] = {}
        self._seen: set[int] = set()
        self._unit: _Unit | None = None

    def take(self, unit: int, shards: Ints, ids: Keys) -> Iterator[Outcome]:
        """Take keys of a unit; what became of the unit before, if this is another one."""
        if self._unit is None or self._unit.number != unit:
            yield from self.end()
            self._unit = self._begin(unit)
        self._unit.add(shards, ids)

    def end(self) -> Iterator[Outcome]:
        """No more rows come; what became of the last unit."""
        if self._unit is None:
            return
        unit, self._unit = self._unit, None
        outcome = unit.end()
        if outcome.state == LOST:
            self._drop()
        yield outcome

    def close(self) -> None:
        """End the session. What is not committed never was."""
        self._drop()

    def _begin(self, number: int) -> _Unit:
        if number in self._seen:
            # Its first part is in, and the second one can't be any more. Spark has mixed the units.
            raise RuntimeError(f"the rows of unit {number} came apart; nothing more of it was written")
        self._seen.add(number)
        place, bucket = divmod(number, self._plan.buckets)
        unit = _Unit(self._plan, number, place, bucket)
        if place not in self._dead:
            try:
                unit.begin(self._session(place))
                return unit
            except DatabaseUnavailable as error:
                self._dead[place] = str(error)
                self._drop()
            except ConfigError as error:
                self._dead[place] = str(error)
        unit.fail(LOST, self._dead[place])
        return unit

    def _session(self, place: int) -> psycopg.Connection:
        if self._connected != place or self._connection is None or self._connection.closed:
            self._drop()
            self._connection = self._plan.hosts[place].connect()
            self._connected = place
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = self._connected = None


class _Unit:
    """One unit. After its first error it only counts."""

    def __init__(self, plan: UnitPlan, number: int, place: int, bucket: int) -> None:
        self.number = number
        self._plan = plan
        self._host = plan.hosts[place]
        self._stage = plan.stages.get(place)
        self._bucket = bucket
        self._cutter = Cutters(plan.pod_size)
        self._counts = Counts()
        self._rows = 0
        self._shards: set[int] = set()
        self._state: str | None = None
        self._error: str | None = None
        self._connection: psycopg.Connection | None = None

    def begin(self, connection: psycopg.Connection) -> None:
        """Open its transaction, unless it is in already."""
        self._connection = connection
        with self._failing():
            if self._bucket in ledger.units_done(connection, self._plan.job_id):
                self._state = THERE
            else:
                connection.execute("BEGIN")

    def add(self, shards: Ints, ids: Keys) -> None:
        """Take rows of it."""
        self._rows += len(ids)
        if self._state is None:
            self._write(self._cutter.add(shards, ids))

    def end(self) -> Outcome:
        """Commit it."""
        if self._state is None:
            self._write(self._cutter.rest())
        if self._state is None:
            with self._failing():
                self._commit()
        return Outcome(
            self.number, self._counts._replace(rows=self._rows), self._state or WRITTEN, self._error
        )

    def fail(self, state: str, error: str) -> None:
        """Nothing of it is written, or what was is taken back."""
        self._state, self._error = state, error
        self._counts = Counts()
        if self._connection is not None and not self._connection.closed:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def _write(self, pods: Iterable[Pods]) -> None:
        blocks = list(pods)
        plan = self._plan
        data = b"".join(copy.encode(block, plan.op, plan.payload, kind=plan.kind) for block in blocks)
        if not data or self._connection is None:
            return
        with self._failing():
            for target in self._targets():
                with self._connection.cursor().copy(target) as stream:
                    stream.write(copy.HEADER)
                    stream.write(data)
                    stream.write(copy.TRAILER)
        for block in blocks:
            self._shards.update(np.unique(block.shards).tolist())
            self._counts = self._counts.plus(Counts(0, block.ids.size, len(block)))

    def _targets(self) -> list[sql.Composed]:
        names: list[sql.Composable] = [
            sql.SQL("{}").format(sql.Identifier(self._host.schema, tube)) for tube in self._plan.tubes
        ]
        if self._stage is not None:
            # As the database wrote it, quoted.
            names = [sql.SQL(self._stage)]
        columns = sql.SQL(", ").join(map(sql.Identifier, copy.COLUMNS))
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)")
        return [statement.format(name, columns) for name in names]

    def _commit(self) -> None:
        assert self._connection is not None
        self._probe("copied")
        counts = self._counts._replace(rows=self._rows)
        if not ledger.done(self._connection, self._plan.job_id, self._bucket, counts, sorted(self._shards)):
            self._connection.execute("ROLLBACK")
            self._counts, self._state = Counts(), THERE
            return
        self._connection.execute("COMMIT")
        self._state = WRITTEN
        self._probe("committed")

    def _probe(self, moment: str) -> None:
        if self._plan.probe is not None:
            self._plan.probe(moment, self.number)

    def _failing(self) -> _Failing:
        return _Failing(self)

    def failed_by(self, error: psycopg.Error | PytubeError) -> None:
        """Note what Postgres has against it."""
        lost = is_outage(error)
        text = describe(error) if isinstance(error, psycopg.Error) else str(error)
        self.fail(LOST if lost else FAILED, f"{self._host.name}: {self._host.redacted(text)}")


@dataclass(frozen=True, slots=True)
class _Failing:
    """Within it, an error of the database is the unit's."""

    unit: _Unit

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, psycopg.Error | PytubeError):
            return False
        self.unit.failed_by(error)
        return True


def write_units(plan: UnitPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a task applies to its rows of `PACKED`; it gives rows of `RESULT`."""

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


def result_row(outcome: Outcome) -> pa.RecordBatch:
    """A row of `RESULT`."""
    error = None if outcome.error is None else outcome.error.encode()
    columns = [
        arrow.of_numbers([outcome.unit], np.int32),
        *(arrow.of_numbers([count], np.int64) for count in outcome.counts),
        arrow.of_bytes([outcome.state.encode()], pa.string()),
        arrow.of_bytes([error], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["unit", "rows", "ids", "pods", "state", "error"])
