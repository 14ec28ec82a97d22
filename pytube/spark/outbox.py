"""The format `outbox`: records to read, once or as a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import psycopg
from psycopg import sql
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pytube.db.errors import translated
from pytube.errors import UnknownTube, UsageError
from pytube.spark import queries, source
from pytube.spark.hosts import Host
from pytube.spark.queries import first_row

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
            return source.settled_reader(host, schema, records)
        with host.connect() as connection:  # they are not settled: each task reads what it sees
            return source.PieceReader(host, schema, records.pieces(connection, -1, _GREATEST))

    def streamReader(self, schema: StructType) -> source.SettledStream:  # noqa: N802 # Spark's name
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
        most = source.number_or_none(self.options, "max_records")
        return source.SettledStream(self._host(), schema, records, most)

    def _host(self) -> Host:
        return source.host_of(self.options, self.hosts)

    def _records(self) -> Records:
        name = source.required(self.options, "outbox", "its name")
        with self._host().connect() as connection:
            return Records(connection, name, source.number(self.options, "partitions", PARTITIONS))


class Records(source.Rows):
    """The records of an outbox, by their id."""

    def __init__(self, connection: psycopg.Connection, outbox: str, parts: int) -> None:
        """Raises `UnknownTube` if there is no such outbox, or its table was dropped."""
        self.name, self._parts = outbox, parts
        schema, table, self.value_type, self.adopted = self._look(connection)
        self._table = sql.Identifier(schema, table)

    def _look(self, connection: psycopg.Connection) -> tuple[str, str, str, bool]:
        row = first_row(connection, queries.OUTBOX, outbox=self.name)
        if row is None:
            raise UnknownTube(f"there is no outbox {self.name!r}")
        schema, table, value_type, adopted = row
        return schema, table, value_type, adopted

    def check(self, connection: psycopg.Connection) -> None:
        """Raise `UnknownTube` if there is no such outbox."""
        self._look(connection)

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
