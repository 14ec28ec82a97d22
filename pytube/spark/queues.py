"""The formats `tube`, which is written, too, and `outbox`: read once or as a stream, by settled numbers."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import psycopg
from psycopg import sql
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import ArrayType, StringType, StructType

from pytube.db.errors import translated
from pytube.errors import DatabaseUnavailable, UnknownTube, UsageError
from pytube.spark import frame, job
from pytube.spark.arrays import BIGINT, Ints, Keys, Spread
from pytube.spark.hosts import Host, first_row, value
from pytube.spark.job import JobSpec, kind_of_tubes
from pytube.spark.pods import read_keys, write
from pytube.spark.source import PARTITIONS, Format, Piece, PieceReader, even_edges, listed, read

if TYPE_CHECKING:
    import pyarrow as pa

_SEQ: Final = "SELECT tube_settle_seq()"
_XID: Final = "SELECT pg_current_xact_id()::text"
_DONE: Final = "SELECT tube_settle_done(%(xid)s::xid8)"
_HOLDERS: Final = "SELECT tube_settle_holders(%(tube)s)"
_LEFT: Final = "SELECT tube_settle_left(%(tube)s, %(holders)s::text[])"
_PARTITIONS: Final = "SELECT DISTINCT partitions FROM tube_list() WHERE tube = %(tube)s"
_PURGE: Final = "SELECT tube_stream_purge(%(tube)s, %(seq)s)"
_FORGET: Final = "SELECT tube_job_forget(%(job)s)"
_OUTBOX: Final = """
    SELECT n.nspname, c.relname, l.value_type::text, l.adopted
    FROM outbox_list() AS l
    JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.outbox = %(outbox)s
"""

_TIMEOUT = 60.0
_POLL = 0.02
_ASK_HOLDERS_AFTER = 0.5


class Rows(ABC):
    """The rows of a tube or an outbox, each of which has a number. It is pickled."""

    name: str

    @abstractmethod
    def nth(self, connection: psycopg.Connection, after: int, upto: int, limit: int) -> int:
        """The number of the `limit`th row beyond `after`; `upto` if there are fewer."""

    @abstractmethod
    def pieces(self, connection: psycopg.Connection, after: int, upto: int) -> list[Piece]:
        """The rows between two numbers; raises `UnknownTube` if there is nothing of that name."""

    def forget(self, connection: psycopg.Connection, upto: int) -> None:  # noqa: B027 # may stay as it is
        """A stream has finished the batch that ends there."""


def settled_reader(host: Host, schema: StructType, rows: Rows) -> PieceReader:
    """A reader of the rows that are settled now."""
    with host.connect() as connection:
        upto = SettledSeq(rows.name).reach(connection)
        return PieceReader(host, schema, rows.pieces(connection, -1, upto))


class SettledStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads rows as they come. Offsets are settled seqs, so no late commit is missed."""

    def __init__(self, host: Host, schema: StructType, rows: Rows, most: int | None) -> None:
        """`most`: rows that a batch may have; None: any number."""
        self._host, self._schema, self._rows, self._most = host, schema, rows, most
        self._settled = SettledSeq(rows.name)
        self._last: int | None = None
        """The end of a stream that reads only what is there when it starts."""
        self._connection: psycopg.Connection | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 # Spark's name
        """The offset before all. Fails here, not at the first row, if it can't be read."""
        self._rows.pieces(self._session(), 0, 0)
        return {"seq": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the seq that is drawn now, and then end."""
        self._last = self._settled.reach(self._session())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What bounds a batch."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The settled seq, or a lower seq if there is a limit."""
        after = int(start["seq"])
        upto = self._settled.advance(self._session()) if self._last is None else self._last
        upto = max(after, upto)
        if isinstance(limit, ReadMaxRows) and upto > after:
            upto = self._rows.nth(self._session(), after, upto, limit.max_rows)
        return {"seq": upto}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The pieces of a batch."""
        return [*self._rows.pieces(self._session(), int(start["seq"]), int(end["seq"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        return read(self._host, self._schema, partition)

    def commit(self, end: dict[str, int]) -> None:
        """A batch is finished. Spark calls this with the next one."""
        self._rows.forget(self._session(), int(end["seq"]))

    def stop(self) -> None:
        """End the session."""
        if self._connection is not None:
            self._connection.close()

    def _session(self) -> psycopg.Connection:
        """The session; opened when first needed, because the reader is pickled, and again after a loss."""
        try:
            if self._connection is not None and not self._connection.closed:
                self._connection.execute("SELECT 1")
                return self._connection
        except psycopg.Error:
            self._connection = None
        self._connection = self._host.connect()
        return self._connection


class SettledSeq:
    """Finds the settled seq of a tube or outbox: all at or below it that will ever exist is visible.

    The steps are those that `tube_settle_seq` describes. A lost session may be replaced at any time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.seq = 0
        self._drawn = 0
        """The seq that is being settled; that of `seq` if there is none."""
        self._xid = ""
        self._begun_at = 0.0
        self._holders: list[str] | None = None

    def advance(self, connection: psycopg.Connection) -> int:
        """Settle what can be settled now. Returns the newest seq that is known to be settled."""
        if self._drawn <= self.seq:
            drawn = int(value(connection, _SEQ))
            if drawn > self.seq:
                # Read after: a session that drew a seq up to this one has an older transaction id. Neither is
                # kept without the other, as the session may be lost between the two.
                xid = str(value(connection, _XID))
                self._drawn, self._xid = drawn, xid
                self._begun_at, self._holders = time.monotonic(), None
        if self._drawn > self.seq and self._is_over(connection):
            self.seq = self._drawn
        return self.seq

    def reach(self, connection: psycopg.Connection) -> int:
        """Wait until every seq that is drawn by now is settled.

        Raises:
            DatabaseUnavailable: transactions of writers stay open for longer than a minute.
        """
        drawn = int(value(connection, _SEQ))
        deadline = time.monotonic() + _TIMEOUT
        while self.advance(connection) < drawn:
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"transactions that may write to {self._name!r} are open for {_TIMEOUT:g} s"
                )
            time.sleep(_POLL)
        return self.seq

    def _is_over(self, connection: psycopg.Connection) -> bool:
        """Whether every transaction has ended that may have drawn a seq up to the drawn one."""
        if value(connection, _DONE, xid=self._xid):
            return True
        if time.monotonic() - self._begun_at < _ASK_HOLDERS_AFTER:
            return False
        # The open transaction may belong to another database. Ask for those that have the table open.
        if self._holders is None:
            self._holders = list(value(connection, _HOLDERS, tube=self._name))
        return bool(value(connection, _LEFT, tube=self._name, holders=self._holders))


# --- pods -------------------------------------------------------------------------------------------

_CLASSES = "(CASE WHEN op = 'B' THEN 1 ELSE 0 END)"


class PodRows(Rows):
    """The pods of a tube, by their seq."""

    def __init__(self, host: Host, tube: str, schema: StructType, *, purge: bool = False) -> None:
        """`purge`: whether a stream purges the pods of each batch that is finished."""
        self.name, self._purge = tube, purge
        self._table = sql.Identifier(host.schema, tube)
        kind = schema["ids"].dataType
        is_text = isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
        self._ids = "text" if is_text else "bigint"

    def _partitions(self, connection: psycopg.Connection) -> int:
        row = first_row(connection, _PARTITIONS, tube=self.name)
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

    def pieces(self, connection: psycopg.Connection, after: int, upto: int) -> list[Piece]:
        """A piece for each partition of the tube."""
        count = self._partitions(connection)
        return [
            Piece(
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
            value(connection, _PURGE, tube=self.name, seq=upto)


class TubeSource(Format):
    """`spark.read`, `readStream` and `write` of tubes."""

    called = "tube"

    def schema(self) -> str:
        """The columns of pods. Ids that are no numbers are read as texts."""
        with self.host().connect() as connection:
            kind = "bigint" if kind_of_tubes(connection, [self._tube()]).is_number else "string"
        return f"seq bigint, op string, shard int, ids array<{kind}>, payload string, ts timestamp"

    def reader(self, schema: StructType) -> PieceReader:
        """A reader of the pods that are settled when it is planned."""
        host = self.host()
        return settled_reader(host, schema, PodRows(host, self._tube(), schema))

    def streamReader(self, schema: StructType) -> SettledStream:  # noqa: N802 # Spark's name
        """A reader of pods as they come."""
        host = self.host()
        purge = self.options.get("purge", "false").lower()
        if purge not in ("true", "false"):
            raise UsageError(f"the option 'purge' is {purge!r}; give true or false")
        rows = PodRows(host, self._tube(), schema, purge=purge == "true")
        return SettledStream(host, schema, rows, self.limit("max_pods"))

    def writer(self, schema: StructType, overwrite: bool) -> TubeWriter:
        """A writer of ids."""
        if overwrite:
            raise UsageError("a tube can't be overwritten; write with mode('append')")
        size = self.number("pod_size", 250)
        return TubeWriter(self.host(), schema, tuple(listed(self._tube())), size, self.options)

    def _tube(self) -> str:
        return self.required("tube", "the tube, or with write several, joined by commas")


# --- pods, written ------------------------------------------------------------------------------------
# Tasks stage their pods, and the driver publishes them. Spark does not say how rows get to tasks, so there
# are no units here: a task that is tried again stages its pods again under a new attempt, and the driver
# publishes one attempt of each task.


@dataclass
class Staged(WriterCommitMessage):
    """The attempt under which a task staged its pods; None: it staged nothing."""

    attempt: str | None


class TubeWriter(DataSourceArrowWriter):
    """Writes ids. It is pickled for the tasks and for the end of the write, so it holds no session."""

    def __init__(
        self, host: Host, schema: StructType, tubes: tuple[str, ...], size: int, options: Mapping[str, str]
    ) -> None:
        """Begin the job that the options name; its fingerprint is among them, as no sink gets the query."""
        self._host, self._size, self._op = host, size, options.get("op", "B")
        job.check_op(self._op)
        self._key, self._shard = options.get("id", "id"), options.get("shard", "shard")
        self._job_id = options.get("job_id") or f"write {uuid.uuid4()}"
        print_of = f"{self._op} {self._key} {self._shard} {options.get('fingerprint', '')}".rstrip()
        spec = JobSpec(self._job_id, tubes, "attempts", print_of)
        try:
            with host.connect() as connection:
                self._kind = kind_of_tubes(connection, tubes)
                self._check_columns(schema)
                begun = job.begin(connection, spec, 0)
                tables = job.shards_of_tables(connection, tubes)
        except psycopg.Error as error:  # a missing right
            raise UsageError(host.reason(error)) from error
        self._spread = tuple(table for table in tables if table.shards > 1)
        self._stage = None if begun.state == "done" else begun.stage

    def _check_columns(self, schema: StructType) -> None:
        wanted = {self._key: self._kind} | ({} if self._shard.isdecimal() else {self._shard: BIGINT})
        for name, kind in wanted.items():
            if name not in schema.fieldNames() or not frame.holds(kind, schema[name].dataType):
                what = "whole numbers" if kind.is_number else f"{kind.type.value} keys (as string)"
                raise UsageError(f"there is no column {name!r} of {what}; there are {schema.simpleString()}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override] # as Spark has it
        """Stage the pods of a task's rows, in one transaction."""
        if self._stage is None:  # the job was done before
            for _ in iterator:
                pass
            return Staged(None)
        attempt = uuid.uuid4()
        keys = (piece for batch in iterator for piece in self._keys(batch))
        stage = [sql.SQL(self._stage)]
        with self._host.connect() as connection, connection.transaction():
            write(connection, stage, keys, self._size, self._op, self._kind, attempt=attempt.bytes)
        return Staged(str(attempt))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the pods of all tasks in one transaction."""
        attempts = [m.attempt for m in messages if isinstance(m, Staged) and m.attempt is not None]
        with self._host.connect() as connection:
            job.finish(connection, self._job_id, attempts)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Drop the staged pods, unless they are published and only the answer was lost."""
        with self._host.connect() as connection:
            known = job.known(connection, self._job_id)
            if known is not None and known[0] != "done":
                value(connection, _FORGET, job=self._job_id)

    def _keys(self, batch: pa.RecordBatch) -> Iterator[tuple[Ints, Keys]]:
        ids, shards = (batch.schema.get_field_index(name) for name in (self._key, self._shard))
        given = Spread(int(self._shard), 1) if self._shard.isdecimal() else batch.column(shards)
        for found, keys in read_keys(self._kind, batch.column(ids), given, self._spread):
            # Copies, so that a batch with all its columns does not stay until its keys are cut.
            yield np.array(found), np.array(keys)


# --- records ----------------------------------------------------------------------------------------

_LEAST = 1000
"""Ids of a part: fewer are not worth a task."""
_GREATEST = 2**63 - 1


class Records(Rows):
    """The records of an outbox, by their id."""

    def __init__(self, connection: psycopg.Connection, outbox: str, parts: int) -> None:
        """Raises `UnknownTube` if there is no such outbox, or its table was dropped."""
        self.name, self._parts = outbox, parts
        row = first_row(connection, _OUTBOX, outbox=outbox)
        if row is None:
            raise UnknownTube(f"there is no outbox {outbox!r}")
        schema, table, self.value_type, self.adopted = row
        self._table = sql.Identifier(schema, table)

    def nth(self, connection: psycopg.Connection, after: int, upto: int, limit: int) -> int:
        """The id of the `limit`th record."""
        query = sql.SQL("SELECT id FROM {} WHERE id > {} AND id <= {} ORDER BY id OFFSET {} LIMIT 1")
        with translated():
            row = connection.execute(query.format(self._table, after, upto, limit - 1)).fetchone()
        return upto if row is None else int(row[0])

    def pieces(self, connection: psycopg.Connection, after: int, upto: int) -> list[Piece]:
        """Ranges of equal width between the least and the greatest id; the last is open up to `upto`."""
        query = sql.SQL("SELECT min(id), max(id) FROM {} WHERE id > {} AND id <= {}")
        with translated():
            ((least, greatest),) = connection.execute(query.format(self._table, after, upto)).fetchall()
        if least is None:
            return []
        parts = min(self._parts, -(-(greatest - least + 1) // _LEAST))
        edges = [edge - 1 for edge in even_edges(least, greatest, parts)]
        return [self._piece(low, high) for low, high in pairwise([least - 1, *edges, upto])]

    def _piece(self, after: int, upto: int) -> Piece:
        kind = "bytea" if self.value_type == "bytea" else "text"
        partition_key = "NULL::text" if self.adopted else "partition_key"
        return Piece(
            "SELECT id::bigint AS id, create_time, kafka_topic::text AS topic, kafka_key::text AS key, "  # noqa: S608
            f"kafka_value::{kind} AS value, kafka_header_keys::text[] AS header_keys, "
            f"kafka_header_values::text[] AS header_values, {partition_key} AS partition_key "
            f"FROM {self._table.as_string()} WHERE id > {after} AND id <= {upto} ORDER BY id"
        )


class OutboxSource(Format):
    """`spark.read` and `readStream` of outboxes."""

    called = "outbox"

    def schema(self) -> str:
        """The columns of records."""
        kind = "binary" if self._records().value_type == "bytea" else "string"
        return (
            f"id bigint, create_time timestamp, topic string, key string, value {kind}, "
            "header_keys array<string>, header_values array<string>, partition_key string"
        )

    def reader(self, schema: StructType) -> PieceReader:
        """A reader of the records that are there when it is planned."""
        host, records = self.host(), self._records()
        if not records.adopted:
            return settled_reader(host, schema, records)
        with host.connect() as connection:  # they are not settled: each task reads what it sees
            return PieceReader(host, schema, records.pieces(connection, -1, _GREATEST))

    def streamReader(self, schema: StructType) -> SettledStream:  # noqa: N802 # Spark's name
        """A reader of records as they come."""
        if "purge" in self.options:
            raise UsageError(
                "the option 'purge' is for tubes: the records of an outbox are deleted by its workers"
            )
        records = self._records()
        if records.adopted:
            raise UsageError(
                f"the outbox {records.name!r} can't be a stream, as its table was adopted: its ids come "
                "from another sequence, and smaller ones may still be committed at any time. "
                "Read it with spark.read"
            )
        return SettledStream(self.host(), schema, records, self.limit("max_records"))

    def _records(self) -> Records:
        name = self.required("outbox", "its name")
        with self.host().connect() as connection:
            return Records(connection, name, self.number("partitions", PARTITIONS))
