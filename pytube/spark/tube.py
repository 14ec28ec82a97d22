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
from pyspark.sql.types import ArrayType, StringType, StructType

from pytube.db.errors import translated
from pytube.errors import UnknownTube, UsageError
from pytube.spark import arrays, frame, job, queries, source
from pytube.spark.arrays import BIGINT, Ints, KeyKind, Keys
from pytube.spark.hosts import Host
from pytube.spark.job import JobSpec, kind_of_tubes
from pytube.spark.pods import Cutters, Pods, check_keys, encode, send
from pytube.spark.queries import first_row, value

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "seq bigint, op string, shard int, ids array<{}>, payload string, ts timestamp"
_WHICH = "the tube, or with write several, joined by commas"
_CLASSES = "(CASE WHEN op = 'B' THEN 1 ELSE 0 END)"


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
        return source.settled_reader(host, schema, PodRows(host, self._tube(), schema))

    def streamReader(self, schema: StructType) -> source.SettledStream:  # noqa: N802 # Spark's name
        """A reader of pods as they come."""
        host = self._host()
        rows = PodRows(host, self._tube(), schema, purge=source.flag(self.options, "purge"))
        return source.SettledStream(host, schema, rows, source.number_or_none(self.options, "max_pods"))

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


class PodRows(source.Rows):
    """The pods of a tube, by their seq."""

    def __init__(self, host: Host, tube: str, schema: StructType, *, purge: bool = False) -> None:
        """`purge`: whether a stream purges the pods of each batch that is finished."""
        self.name, self._purge = tube, purge
        self._table = sql.Identifier(host.schema, tube)
        kind = schema["ids"].dataType
        is_text = isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
        self._ids = "text" if is_text else "bigint"

    def check(self, connection: psycopg.Connection) -> None:
        """Raise `UnknownTube` if there is no such tube."""
        self._partitions(connection)

    def _partitions(self, connection: psycopg.Connection) -> int:
        row = first_row(connection, queries.PARTITIONS, tube=self.name)
        if row is None:
            raise UnknownTube(f"there is no tube {self.name!r}")
        return int(row[0])

    def nth(self, connection: psycopg.Connection, after: int, upto: int, limit: int) -> int:
        """The seq of the `limit`th pod."""
        count = self._partitions(connection)
        firsts = sql.SQL(" UNION ALL ").join(
            sql.SQL(
                "(SELECT seq FROM {} WHERE (shard % {}) = {} AND {} = {} "
                "AND seq > {} AND seq <= {} ORDER BY seq LIMIT {})"
            ).format(self._table, count, part, sql.SQL(_CLASSES), kind, after, upto, limit)
            for part in range(count)
            for kind in (0, 1)
        )
        nth = sql.SQL("SELECT f.seq FROM ({}) AS f ORDER BY f.seq OFFSET {} LIMIT 1")
        with translated():
            row = connection.execute(nth.format(firsts, limit - 1)).fetchone()
        return upto if row is None else int(row[0])

    def pieces(self, connection: psycopg.Connection, after: int, upto: int) -> list[source.Piece]:
        """A piece for each partition of the tube."""
        count = self._partitions(connection)
        return [
            source.Piece(
                f"SELECT seq, op::text AS op, shard::integer AS shard, ids::{self._ids}[] AS ids, "  # noqa: S608
                f"payload::text AS payload, ts FROM {self._table.as_string()} "
                f"WHERE (shard % {count}) = {partition} AND {_CLASSES} = ANY ('{{0,1}}') "
                f"AND seq > {after} AND seq <= {upto} ORDER BY seq"
            )
            for partition in range(count if upto > after else 0)
        ]

    def forget(self, connection: psycopg.Connection, upto: int) -> None:
        """Purge the pods, if the option says so."""
        if self._purge:
            value(connection, queries.STREAM_PURGE, tube=self.name, seq=upto)


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
        op = options.get("op", "T")
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
            # Copies, so that a batch with all its columns does not stay until its keys are cut.
            yield np.array(shards[which]), np.array(ids)

    def _copy(self, connection: psycopg.Connection, pods: Iterator[Pods], attempt: bytes) -> None:
        data = b"".join(encode(block, self._options.op, None, attempt, self._kind) for block in pods)
        if data and self._stage is not None:
            send(connection, sql.SQL(self._stage), data, attempt=True)


def _check_columns(schema: StructType, options: WriteOptions, kind: KeyKind) -> None:
    wanted = {options.key: kind} | ({} if options.shard.isdecimal() else {options.shard: BIGINT})
    for name, of_kind in wanted.items():
        if name not in schema.fieldNames() or not frame.holds(of_kind, schema[name].dataType):
            what = "whole numbers" if of_kind.is_number else f"{of_kind.type.value} keys (as string)"
            raise UsageError(f"there is no column {name!r} of {what}; there are {schema.simpleString()}")
