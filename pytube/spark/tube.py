"""The format `tube`: pods to read, once or as a stream, and ids to write."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import psycopg
from psycopg import sql
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pytube.errors import UsageError
from pytube.spark import arrays, frame, job, queries, source
from pytube.spark.arrays import BIGINT, Ints, KeyKind, Keys
from pytube.spark.hosts import Host
from pytube.spark.job import JobSpec, kind_of_tubes
from pytube.spark.pods import check_keys, cut_all, encode, send
from pytube.spark.queries import first_row, value
from pytube.spark.queues import PodRows, SettledStream, settled_reader

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "seq bigint, op string, shard int, ids array<{}>, payload string, ts timestamp"
_WHICH = "the tube, or with write several, joined by commas"


class TubeSource(DataSource):
    """`spark.read`, `readStream` and `write` of tubes."""

    hosts: ClassVar[Mapping[str, Host]] = {}

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tube"

    def schema(self) -> str:
        """The columns of pods. Ids that are no numbers are read as texts."""
        with self._host().connect() as connection:
            kind = kind_of_tubes(connection, [self._tube()])
        return SCHEMA.format("bigint" if kind.is_number else "string")

    def reader(self, schema: StructType) -> source.PieceReader:
        """A reader of the pods that are settled when it is planned."""
        host = self._host()
        return settled_reader(host, schema, PodRows(host, self._tube(), schema))

    def streamReader(self, schema: StructType) -> SettledStream:  # noqa: N802 # Spark's name
        """A reader of pods as they come."""
        host = self._host()
        purge = self.options.get("purge", "false").lower()
        if purge not in ("true", "false"):
            raise UsageError(f"the option 'purge' is {purge!r}; give true or false")
        rows = PodRows(host, self._tube(), schema, purge=purge == "true")
        return SettledStream(host, schema, rows, source.limit(self.options, "max_pods"))

    def writer(self, schema: StructType, overwrite: bool) -> TubeWriter:
        """A writer of ids."""
        if overwrite:
            raise UsageError("a tube can't be overwritten; write with mode('append')")
        tubes = tuple(source.listed(self._tube()))
        return TubeWriter(self._host(), schema, WriteOptions.of(tubes, self.options))

    def _host(self) -> Host:
        return source.host_of(self.options, self.hosts)

    def _tube(self) -> str:
        return source.required(self.options, "tube", _WHICH)


# --- writing --------------------------------------------------------------------------------------------
# Tasks stage their pods, and the driver publishes them. Spark does not say how rows get to tasks, so there
# are no units here: a task that is tried again stages its pods again under a new attempt, and the driver
# publishes one attempt of each task.


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write."""

    tubes: tuple[str, ...]
    job_id: str
    op: str
    key: str
    shard: str
    pod_size: int
    fingerprint: str
    """Identifies the query. The caller gives it, because Spark does not show a sink the query."""

    @classmethod
    def of(cls, tubes: tuple[str, ...], options: Mapping[str, str]) -> Self:
        """The options of a write to `tubes`. `shard` is a column, or a number for all ids."""
        op = options.get("op", "B")
        job.check_op(op)
        job_id = options.get("job_id") or f"write {uuid.uuid4()}"
        size = source.number(options, "pod_size", 250)
        key, shard = options.get("id", "id"), options.get("shard", "shard")
        return cls(tubes, job_id, op, key, shard, size, options.get("fingerprint", ""))


@dataclass
class Staged(WriterCommitMessage):
    """The attempt under which a task staged its pods; None: it staged nothing."""

    attempt: str | None


class TubeWriter(DataSourceArrowWriter):
    """Writes ids. It is pickled for the tasks and for the end of the write, so it holds no session."""

    def __init__(self, host: Host, schema: StructType, options: WriteOptions) -> None:
        self._host, self._options = host, options
        print_of = f"{options.op} {options.key} {options.shard} {options.fingerprint}".rstrip()
        spec = JobSpec(options.job_id, options.tubes, "attempts", print_of)
        try:
            with host.connect() as connection:
                self._kind = kind_of_tubes(connection, options.tubes)
                _check_columns(schema, options, self._kind)
                begun = job.begin(connection, spec, 0)
                tables = job.shards_of_tables(connection, options.tubes)
        except psycopg.Error as error:  # a missing right
            raise UsageError(host.reason(error)) from error
        self._spread = tuple(table for table in tables if table.shards > 1)
        self._stage = None if begun.state == "done" else begun.stage

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override] # as Spark has it
        """Stage the pods of a task's rows, in one transaction."""
        if self._stage is None:  # the job was done before
            for _ in iterator:
                pass
            return Staged(None)
        op, attempt = self._options.op, uuid.uuid4()
        keys = (piece for batch in iterator for piece in self._keys(batch))
        with self._host.connect() as connection, connection.transaction():
            for blocks in cut_all(keys, self._options.pod_size):
                if data := b"".join(encode(block, op, None, attempt.bytes, self._kind) for block in blocks):
                    send(connection, sql.SQL(self._stage), data, attempt=True)
        return Staged(str(attempt))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the pods of all tasks in one transaction."""
        attempts = [m.attempt for m in messages if isinstance(m, Staged) and m.attempt is not None]
        with self._host.connect() as connection:
            job.finish(connection, self._options.job_id, attempts)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Drop the staged pods, unless they are published and only the answer was lost."""
        with self._host.connect() as connection:
            row = first_row(connection, queries.JOB_STATE, job=self._options.job_id)
            if row is not None and row[0] != "done":
                value(connection, queries.JOB_FORGET, job=self._options.job_id)

    def _keys(self, batch: pa.RecordBatch) -> Iterator[tuple[Ints, Keys]]:
        options, names = self._options, batch.schema
        if options.shard.isdecimal():
            shards = np.full(len(batch), int(options.shard), np.int64)
        else:
            shards = arrays.read_shards(batch.column(names.get_field_index(options.shard)))
        for which, ids in self._kind.read(batch.column(names.get_field_index(options.key))):
            check_keys(shards[which], ids, self._spread, self._kind)
            # Copies, so that a batch with all its columns does not stay until its keys are cut.
            yield np.array(shards[which]), np.array(ids)


def _check_columns(schema: StructType, options: WriteOptions, kind: KeyKind) -> None:
    wanted = {options.key: kind} | ({} if options.shard.isdecimal() else {options.shard: BIGINT})
    for name, of_kind in wanted.items():
        if name not in schema.fieldNames() or not frame.holds(of_kind, schema[name].dataType):
            what = "whole numbers" if of_kind.is_number else f"{of_kind.type.value} keys (as string)"
            raise UsageError(f"there is no column {name!r} of {what}; there are {schema.simpleString()}")
