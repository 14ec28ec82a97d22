"""Pods of a tube and records of an outbox, read once or as a stream: rows with numbers that get settled."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import psycopg
from psycopg import sql
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import ArrayType, StringType, StructType

from pytube.db.errors import translated
from pytube.errors import DatabaseUnavailable, UnknownTube, UsageError
from pytube.spark import queries, source
from pytube.spark.hosts import Host
from pytube.spark.queries import first_row, value

if TYPE_CHECKING:
    import pyarrow as pa

_TIMEOUT = 60.0
_POLL = 0.02
_ASK_HOLDERS_AFTER = 0.5


class Rows(ABC):
    """The rows of a tube or an outbox, each of which has a number. It is pickled."""

    name: str

    @abstractmethod
    def check(self, connection: psycopg.Connection) -> None:
        """Raise if there is nothing of that name."""

    @abstractmethod
    def nth(self, connection: psycopg.Connection, after: int, upto: int, limit: int) -> int:
        """The number of the `limit`th row beyond `after`; `upto` if there are fewer."""

    @abstractmethod
    def pieces(self, connection: psycopg.Connection, after: int, upto: int) -> list[source.Piece]:
        """The rows between two numbers."""

    def forget(self, connection: psycopg.Connection, upto: int) -> None:  # noqa: B027 # may stay as it is
        """A stream has finished the batch that ends there."""


def settled_reader(host: Host, schema: StructType, rows: Rows) -> source.PieceReader:
    """A reader of the rows that are settled now."""
    with host.connect() as connection:
        upto = SettledSeq(rows.name).reach(connection)
        return source.PieceReader(host, schema, rows.pieces(connection, -1, upto))


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
        self._rows.check(self._session())
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
        return source.read_piece(self._host, self._schema, partition)

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
            drawn = int(value(connection, queries.SETTLE_SEQ))
            if drawn > self.seq:
                # Read after: a session that drew a seq up to this one has an older transaction id. Neither is
                # kept without the other, as the session may be lost between the two.
                xid = str(value(connection, queries.SETTLE_XID))
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
        drawn = int(value(connection, queries.SETTLE_SEQ))
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
        if value(connection, queries.SETTLE_DONE, xid=self._xid):
            return True
        if time.monotonic() - self._begun_at < _ASK_HOLDERS_AFTER:
            return False
        # The open transaction may belong to another database. Ask for those that have the table open.
        if self._holders is None:
            self._holders = list(value(connection, queries.SETTLE_HOLDERS, tube=self._name))
        return bool(value(connection, queries.SETTLE_LEFT, tube=self._name, holders=self._holders))


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


# --- records ----------------------------------------------------------------------------------------

SCHEMA = (
    "id bigint, create_time timestamp, topic string, key string, value {}, header_keys array<string>, "
    "header_values array<string>, partition_key string"
)
PARTITIONS = 8
_LEAST = 1000
"""Ids of a part: fewer are not worth a task."""
_GREATEST = 2**63 - 1


class OutboxSource(DataSource):
    """`spark.read` and `readStream` of outboxes."""

    hosts: ClassVar[Mapping[str, Host]] = {}

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "outbox"

    def schema(self) -> str:
        """The columns of records."""
        return SCHEMA.format("binary" if self._records().value_type == "bytea" else "string")

    def reader(self, schema: StructType) -> source.PieceReader:
        """A reader of the records that are there when it is planned."""
        host, records = self._host(), self._records()
        if not records.adopted:
            return settled_reader(host, schema, records)
        with host.connect() as connection:  # they are not settled: each task reads what it sees
            return source.PieceReader(host, schema, records.pieces(connection, -1, _GREATEST))

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
        return SettledStream(self._host(), schema, records, source.limit(self.options, "max_records"))

    def _host(self) -> Host:
        return source.host_of(self.options, self.hosts)

    def _records(self) -> Records:
        name = source.required(self.options, "outbox", "its name")
        with self._host().connect() as connection:
            return Records(connection, name, source.number(self.options, "partitions", PARTITIONS))


class Records(Rows):
    """The records of an outbox, by their id."""

    def __init__(self, connection: psycopg.Connection, outbox: str, parts: int) -> None:
        """Raises `UnknownTube` if there is no such outbox, or its table was dropped."""
        self.name, self._parts = outbox, parts
        self.check(connection)

    def check(self, connection: psycopg.Connection) -> None:
        """Raise `UnknownTube` if there is no such outbox."""
        row = first_row(connection, queries.OUTBOX, outbox=self.name)
        if row is None:
            raise UnknownTube(f"there is no outbox {self.name!r}")
        schema, table, self.value_type, self.adopted = row
        self._table = sql.Identifier(schema, table)

    def nth(self, connection: psycopg.Connection, after: int, upto: int, limit: int) -> int:
        """The id of the `limit`th record."""
        query = sql.SQL("SELECT id FROM {} WHERE id > {} AND id <= {} ORDER BY id OFFSET {} LIMIT 1")
        with translated():
            row = connection.execute(query.format(self._table, after, upto, limit - 1)).fetchone()
        return upto if row is None else int(row[0])

    def pieces(self, connection: psycopg.Connection, after: int, upto: int) -> list[source.Piece]:
        """Ranges of equal width between the least and the greatest id; the last is open up to `upto`."""
        query = sql.SQL("SELECT min(id), max(id) FROM {} WHERE id > {} AND id <= {}")
        with translated():
            row = connection.execute(query.format(self._table, after, upto)).fetchone()
        if row is None or row[0] is None:
            return []
        least, greatest = int(row[0]), int(row[1])
        width = max(_LEAST, -(-(greatest - least + 1) // self._parts))
        starts = range(least - 1, greatest, width)
        return [self._piece(start, start + width if start + width < greatest else upto) for start in starts]

    def _piece(self, after: int, upto: int) -> source.Piece:
        kind = "bytea" if self.value_type == "bytea" else "text"
        partition_key = "NULL::text" if self.adopted else "partition_key"
        return source.Piece(
            "SELECT id::bigint AS id, create_time, kafka_topic::text AS topic, kafka_key::text AS key, "  # noqa: S608
            f"kafka_value::{kind} AS value, kafka_header_keys::text[] AS header_keys, "
            f"kafka_header_values::text[] AS header_values, {partition_key} AS partition_key "
            f"FROM {self._table.as_string()} WHERE id > {after} AND id <= {upto} ORDER BY id"
        )
