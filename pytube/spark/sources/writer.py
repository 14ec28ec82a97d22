"""`df.write.format("tube")`: tasks stage their pods, and the driver publishes those that count.

Spark does not say how rows come to tasks, so there are no units here: a task that is tried again stages its
pods again, under another number, and the first ones are never published.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import psycopg
from psycopg import sql
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pytube.db.errors import describe
from pytube.errors import UsageError
from pytube.spark import arrow, copy, frame, ledger, queries, tubes
from pytube.spark.hosts import Host
from pytube.spark.kinds import BIGINT, KeyKind, Keys
from pytube.spark.ledger import JobSpec
from pytube.spark.pods import Cutters, Ints, Pods, check_keys
from pytube.spark.sources import options as given

if TYPE_CHECKING:
    import pyarrow as pa

_OPS = "IUDTB"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What is written, and where to."""

    tubes: tuple[str, ...]
    job_id: str
    op: str
    key: str
    shard: str
    pod_size: int
    fingerprint: str
    """Of the query, as the caller says: Spark does not show it to a sink."""

    @classmethod
    def of(cls, tubes: tuple[str, ...], options: Mapping[str, str]) -> Self:
        """As the options say. `shard` is a column, or a number for all."""
        op = options.get("op", "T")
        if len(op) != 1 or op not in _OPS:
            raise UsageError(f"there is no op {op!r}; give one of {', '.join(_OPS)}")
        job_id = options.get("job_id") or f"write {uuid.uuid4()}"
        size = given.number(options, "pod_size", 250)
        key, shard = options.get("id", "id"), options.get("shard", "shard")
        return cls(tubes, job_id, op, key, shard, size, options.get("fingerprint", ""))


@dataclass
class Staged(WriterCommitMessage):
    """The number under which a task has staged its pods."""

    attempt: str | None


class TubeWriter(DataSourceArrowWriter):
    """Pickled for the tasks and, later, for the end; so it holds no session."""

    def __init__(self, host: Host, schema: StructType, options: WriteOptions) -> None:
        self._host, self._options = host, options
        print_of = f"{options.op} {options.key} {options.shard} {options.fingerprint}".rstrip()
        spec = JobSpec(options.job_id, options.tubes, "attempts", print_of)
        try:
            with host.connect() as connection:
                self._kind = tubes.kind_of(connection, options.tubes)
                _check_columns(schema, options, self._kind)
                begun = ledger.begin(connection, spec, 0)
                rows = connection.execute(queries.ATTACHED, {"tubes": list(options.tubes)}).fetchall()
        except psycopg.Error as error:  # a right that lacks
            raise UsageError(f"{host.name}: {describe(error)}") from error
        self._spread = tuple(sorted({(int(row[0]), int(row[1])) for row in rows if row[1] > 1}))
        self._stage = None if begun.state == "done" else begun.stage

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override] # as Spark has it
        """Stage the pods of a task's rows, in one transaction."""
        if self._stage is None:  # the job was done before
            for _ in iterator:
                pass
            return Staged(None)
        attempt = uuid.uuid4()
        cutter = Cutters(self._options.pod_size)
        with self._host.connect() as connection, connection.transaction():
            for batch in iterator:
                for shards, ids in self._keys(batch):
                    check_keys(shards, ids, self._spread, self._kind)
                    self._copy(connection, cutter.add(shards, ids), attempt.bytes)
            self._copy(connection, cutter.rest(), attempt.bytes)
        return Staged(str(attempt))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what was staged, all in one transaction."""
        attempts = [m.attempt for m in messages if isinstance(m, Staged) and m.attempt is not None]
        with self._host.connect() as connection:
            ledger.finish(connection, self._options.job_id, attempts)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Throw away what was staged, unless it was published and only the answer was lost."""
        with self._host.connect() as connection:
            row: Any = connection.execute(queries.JOB_STATE, {"job": self._options.job_id}).fetchone()
            if row is not None and row[0] != "done":
                ledger.forget(connection, self._options.job_id)

    def _keys(self, batch: pa.RecordBatch) -> Iterator[tuple[Ints, Keys]]:
        shards = self._shards(batch)
        for which, ids in self._kind.read(_column(batch, self._options.key)):
            yield shards[which], self._kind.joined([ids])

    def _shards(self, batch: pa.RecordBatch) -> Ints:
        if self._options.shard.isdecimal():
            return np.full(len(batch), int(self._options.shard), np.int64)
        column = _column(batch, self._options.shard)
        if column.null_count:
            raise UsageError("a shard is NULL")
        return arrow.numbers(column).astype(np.int64, copy=False)

    def _copy(self, connection: psycopg.Connection, pods: Iterator[Pods], attempt: bytes) -> None:
        data = b"".join(copy.encode(block, self._options.op, None, attempt, self._kind) for block in pods)
        if not data or self._stage is None:
            return
        statement = sql.SQL("COPY {} (op, shard, ids, payload, attempt) FROM STDIN (FORMAT binary)")
        with connection.cursor().copy(statement.format(sql.SQL(self._stage))) as stream:
            stream.write(copy.HEADER)
            stream.write(data)
            stream.write(copy.TRAILER)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
    return batch.column(batch.schema.get_field_index(name))


def _check_columns(schema: StructType, options: WriteOptions, kind: KeyKind) -> None:
    wanted = {options.key: kind} | ({} if options.shard.isdecimal() else {options.shard: BIGINT})
    for name, of_kind in wanted.items():
        if name not in schema.fieldNames() or not frame.holds(of_kind, schema[name].dataType):
            what = "whole numbers" if of_kind.is_number else f"{of_kind.type.value} keys (as string)"
            raise UsageError(f"there is no column {name!r} of {what}; there are {schema.simpleString()}")
