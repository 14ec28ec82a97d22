"""The format `outbox`: records to read, once or as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import psycopg
from psycopg import sql
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pytube.db.errors import translated
from pytube.errors import UnknownTube, UsageError
from pytube.spark import queries
from pytube.spark.hosts import Host
from pytube.spark.queries import first_row
from pytube.spark.sources import base
from pytube.spark.sources.settled import SettledSeq, SettledStream

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = (
    "id bigint, create_time timestamp, topic string, key string, value {}, header_keys array<string>, "
    "header_values array<string>, partition_key string"
)
PARTITIONS = 8
_LEAST = 1000
"""Ids of a part: fewer are not worth a task."""
_GREATEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Table:
    """Where the records of an outbox are."""

    schema: str
    name: str
    value_type: str
    adopted: bool

    @classmethod
    def of(cls, connection: psycopg.Connection, outbox: str) -> Self:
        """The table of an outbox.

        Raises:
            UnknownTube: there is no such outbox, or its table was dropped.
        """
        row = first_row(connection, queries.OUTBOX, outbox=outbox)
        if row is None:
            raise UnknownTube(f"there is no outbox {outbox!r}")
        return cls(*row)

    @property
    def identifier(self) -> sql.Identifier:
        """The table, quoted."""
        return sql.Identifier(self.schema, self.name)


class OutboxSource(DataSource):
    """`spark.read` and `readStream` of outboxes."""

    hosts: ClassVar[Mapping[str, Host]] = {}

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "outbox"

    def schema(self) -> str:
        """The columns of records."""
        return SCHEMA.format("binary" if self._table().value_type == "bytea" else "string")

    def reader(self, schema: StructType) -> RecordReader:
        """A reader of the records that are there when it is planned."""
        return RecordReader(self._host(), self._outbox(), self._table(), schema, self._parts())

    def streamReader(self, schema: StructType) -> RecordStream:  # noqa: N802 # Spark's name
        """A reader of records as they come."""
        if "purge" in self.options:
            raise UsageError(
                "the option 'purge' is for tubes: the records of an outbox are deleted by its workers"
            )
        table = self._table()
        if table.adopted:
            raise UsageError(
                f"the outbox {self._outbox()!r} can't be a stream, as its table was adopted: its ids are "
                "drawn from a sequence of its own, so nothing tells which of them may still be committed. "
                "Read it with spark.read"
            )
        most = base.number(self.options, "max_records", 1) if "max_records" in self.options else None
        return RecordStream(self._host(), self._outbox(), table, schema, self._parts(), most)

    def _host(self) -> Host:
        return base.host_of(self.options, self.hosts)

    def _outbox(self) -> str:
        return base.required(self.options, "outbox", "its name")

    def _parts(self) -> int:
        return base.number(self.options, "partitions", PARTITIONS)

    def _table(self) -> Table:
        with self._host().connect() as connection:
            return Table.of(connection, self._outbox())


class RecordReader(DataSourceReader):
    """Reads the records that are there when the read is planned."""

    def __init__(self, host: Host, outbox: str, table: Table, schema: StructType, parts: int) -> None:
        self._host, self._outbox, self._table = host, outbox, table
        self._schema, self._parts = schema, parts

    def partitions(self) -> list[InputPartition]:
        """Ranges of ids. Those of an adopted table are not settled: each task reads what it sees."""
        with self._host.connect() as connection:
            upto = _GREATEST if self._table.adopted else SettledSeq(self._outbox).reach(connection)
            return [*_spans(connection, self._table, -1, upto, self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a part."""
        return _read(self._host, self._table, self._schema, partition)


class RecordStream(SettledStream):
    """Reads records as they come."""

    def __init__(
        self, host: Host, outbox: str, table: Table, schema: StructType, parts: int, most: int | None
    ) -> None:
        super().__init__(host, outbox, most)
        self._outbox, self._table, self._schema, self._parts = outbox, table, schema, parts

    def check(self, connection: psycopg.Connection) -> None:
        """Raise `UnknownTube` if there is no such outbox."""
        Table.of(connection, self._outbox)

    def nth(self, connection: psycopg.Connection, after: int, upto: int, limit: int) -> int:
        """The id of the `limit`th record."""
        query = sql.SQL("SELECT id FROM {} WHERE id > {} AND id <= {} ORDER BY id OFFSET {} LIMIT 1")
        with translated():
            row = connection.execute(query.format(self._table.identifier, after, upto, limit - 1)).fetchone()
        return upto if row is None else int(row[0])

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Ranges of ids."""
        return [*_spans(self.session(), self._table, int(start["seq"]), int(end["seq"]), self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a part."""
        return _read(self._host, self._table, self._schema, partition)


# --- records in parts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span(InputPartition):
    """The records after one id and up to another."""

    after: int
    upto: int


def _spans(connection: psycopg.Connection, table: Table, after: int, upto: int, parts: int) -> list[Span]:
    """Ranges of equal width between the least and the greatest id; the last one is open up to `upto`."""
    query = sql.SQL("SELECT min(id), max(id) FROM {} WHERE id > {} AND id <= {}")
    with translated():
        row = connection.execute(query.format(table.identifier, after, upto)).fetchone()
    if row is None or row[0] is None:
        return []
    least, greatest = int(row[0]), int(row[1])
    width = max(_LEAST, -(-(greatest - least + 1) // parts))
    starts = range(least - 1, greatest, width)
    return [Span(start, start + width if start + width < greatest else upto) for start in starts]


def _read(host: Host, table: Table, schema: StructType, span: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(span, Span):  # Spark's own, if there is nothing to read
        return iter(())
    kind = "bytea" if table.value_type == "bytea" else "text"
    partition_key = "NULL::text" if table.adopted else "partition_key"
    statement = (
        "SELECT id::bigint AS id, create_time, kafka_topic::text AS topic, kafka_key::text AS key, "  # noqa: S608
        f"kafka_value::{kind} AS value, kafka_header_keys::text[] AS header_keys, "
        f"kafka_header_values::text[] AS header_values, {partition_key} AS partition_key "
        f"FROM {table.identifier.as_string()} WHERE id > {span.after} AND id <= {span.upto} ORDER BY id"
    )
    # By the primary key, whatever the statistics of a table say that fills and empties.
    return base.read(host, ["SET LOCAL enable_seqscan = off"], statement, schema)
