"""The format `pgtable`: a table or a query, read by several tasks as of one moment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import psycopg
from psycopg import sql
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pytube.errors import UsageError
from pytube.spark.hosts import Host
from pytube.spark.sources import options as given
from pytube.spark.sources import ranges
from pytube.spark.sources.arrow import Reading, read
from pytube.spark.sources.columns import Selected, select

if TYPE_CHECKING:
    import pyarrow as pa

PARTITIONS = 8
_SNAPSHOT = re.compile(r"[0-9A-Fa-f-]+")
_EACH = "each"
"""As `snapshot`: each task reads as of its own beginning."""


@dataclass(frozen=True, slots=True)
class Piece(InputPartition):
    """What one task reads."""

    statement: str
    before: tuple[str, ...]


class TableSource(DataSource):
    """`spark.read.format("pgtable")`."""

    hosts: ClassVar[Mapping[str, Host]] = {}

    @classmethod
    def name(cls) -> str:
        """How it is called."""
        return "pgtable"

    def schema(self) -> StructType:
        """The columns that are read, as the database has them."""
        with self._host().connect() as connection, connection.transaction():
            return self._selected(connection)[1].schema

    def reader(self, schema: StructType) -> TableReader:
        """Divides it."""
        host = self._host()
        with host.connect() as connection, connection.transaction():
            for statement in self._before():
                connection.execute(statement.encode())
            relation, selected = self._selected(connection)
            pieces = self._pieces(connection, relation, selected)
        return TableReader(host, schema, pieces)

    def _host(self) -> Host:
        return given.host_of(self.options, self.hosts)

    def _selected(self, connection: psycopg.Connection) -> tuple[str, Selected]:
        """The relation as SQL has it, and its columns."""
        table, query = self.options.get("table"), self.options.get("query")
        if (table is None) == (query is None):
            raise UsageError("give one of the options table and query")
        wanted = given.listed(self.options, "columns")
        if table is not None:
            relation = ranges.relation_of(connection, table)[0]
        else:
            relation = f"(\n{str(query).strip().rstrip(';')}\n)"
        return relation, select(connection, relation, wanted)

    def _before(self) -> tuple[str, ...]:
        snapshot = given.required(
            self.options,
            "snapshot",
            "read within `with pytube.spark.snapshot(spark, dsn) as moment:`, which gives it; "
            "or give 'each', and each task reads as of its own beginning",
        )
        begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        if snapshot == _EACH:
            return (begin,)
        if not _SNAPSHOT.fullmatch(snapshot):
            raise UsageError(f"{snapshot!r} is no snapshot of Postgres")
        return (begin, f"SET TRANSACTION SNAPSHOT '{snapshot}'")

    def _pieces(self, connection: psycopg.Connection, relation: str, selected: Selected) -> list[Piece]:
        count = given.number(self.options, "partitions", PARTITIONS)
        where = self.options.get("where", "true")
        columns = ", ".join(
            f"{expression} AS {sql.Identifier(name).as_string()}"
            for expression, name in zip(selected.expressions, selected.schema.names, strict=True)
        )
        before = self._before()
        return [
            # The caller's own table, query and condition, read with the caller's own rights.
            Piece(f"SELECT {columns} FROM {source} AS q WHERE ({condition}) AND (\n{where}\n)", before)  # noqa: S608
            for source, condition in self._divided(connection, relation, count)
        ]

    def _divided(self, connection: psycopg.Connection, relation: str, count: int) -> list[tuple[str, str]]:
        key, table = self.options.get("key"), self.options.get("table")
        kind, rows = "query", None
        if table is not None:
            _, kind, rows = ranges.relation_of(connection, table)
        if key is None:
            if ranges.has_pages(kind):
                return ranges.by_pages(connection, relation, count)
            return [(relation, "true")]
        sampled = rows if ranges.has_pages(kind) else None
        return [
            (relation, condition) for condition in ranges.by_key(connection, relation, key, count, sampled)
        ]


class TableReader(DataSourceReader):
    """Its parts were found when it was made."""

    def __init__(self, host: Host, schema: StructType, pieces: list[Piece]) -> None:
        self._host, self._schema, self._pieces = host, schema, pieces

    def partitions(self) -> list[InputPartition]:
        """The parts."""
        return [*self._pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one."""
        if not isinstance(partition, Piece):  # Spark's own, where there is nothing to read
            return iter(())
        return read(self._host, [Reading(partition.statement, partition.before)], self._schema)
