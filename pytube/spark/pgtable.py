"""The format `pgtable`: several tasks read a table or a query as of one moment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow
from pyspark.sql import types
from pyspark.sql.datasource import DataSource

from pytube.errors import UsageError
from pytube.spark import ranges, source
from pytube.spark.hosts import Host

PARTITIONS = 8
_SNAPSHOT = re.compile(r"[0-9A-Fa-f-]+")
_EACH = "each"
"""A value of `snapshot`: each task reads as of its own start."""


class TableSource(DataSource):
    """`spark.read.format("pgtable")`."""

    hosts: ClassVar[Mapping[str, Host]] = {}

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "pgtable"

    def schema(self) -> types.StructType:
        """The columns that the options name, as the database has them."""
        with self._host().connect() as connection, connection.transaction():
            return self._select(connection, self._relation(connection)[0])[0]

    def reader(self, schema: types.StructType) -> source.PieceReader:
        """A reader, with the parts that it reads."""
        host = self._host()
        with host.connect() as connection, connection.transaction():
            for statement in self._before():
                connection.execute(statement.encode())
            relation, rows = self._relation(connection)
            _, columns = self._select(connection, relation)
            parts = self._divide(connection, relation, rows)
        where, before = self.options.get("where", "true"), self._before()
        pieces = [
            # The caller's own table, query and condition, read with the caller's own rights.
            source.Piece(f"SELECT {columns} FROM {of} AS q WHERE ({condition}) AND (\n{where}\n)", before)  # noqa: S608
            for of, condition in parts
        ]
        return source.PieceReader(host, schema, pieces)

    def _host(self) -> Host:
        return source.host_of(self.options, self.hosts)

    def _relation(self, connection: psycopg.Connection) -> tuple[str, int | None]:
        """The table or query as SQL has it, and about how many rows a table has."""
        table, query = self.options.get("table"), self.options.get("query")
        if (table is None) == (query is None):
            raise UsageError("give one of the options table and query")
        if table is not None:
            return ranges.relation_of(connection, table)
        return f"(\n{str(query).strip().rstrip(';')}\n)", None

    def _select(self, connection: psycopg.Connection, relation: str) -> tuple[types.StructType, str]:
        return select(connection, relation, source.listed(self.options.get("columns", "")))

    def _before(self) -> tuple[str, ...]:
        snapshot = source.required(
            self.options,
            "snapshot",
            "read within `with pytube.spark.snapshot(spark, dsn) as moment:`, which gives it; "
            "or give 'each', so that each task takes its own snapshot",
        )
        begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        if snapshot == _EACH:
            return (begin,)
        if not _SNAPSHOT.fullmatch(snapshot):
            raise UsageError(f"{snapshot!r} is not a valid Postgres snapshot")
        return (begin, f"SET TRANSACTION SNAPSHOT '{snapshot}'")

    def _divide(
        self, connection: psycopg.Connection, relation: str, rows: int | None
    ) -> list[tuple[str, str]]:
        """The relation and the condition of each part."""
        count, key = source.number(self.options, "partitions", PARTITIONS), self.options.get("key")
        if key is not None:
            return [(relation, part) for part in ranges.by_key(connection, relation, key, count, rows)]
        return [(relation, "true")] if rows is None else ranges.by_pages(connection, relation, count)


# --- columns ----------------------------------------------------------------------------------------

_PLAIN: dict[int, types.DataType] = {
    16: types.BooleanType(),
    17: types.BinaryType(),
    20: types.LongType(),
    21: types.ShortType(),
    23: types.IntegerType(),
    25: types.StringType(),
    700: types.FloatType(),
    701: types.DoubleType(),
    1043: types.StringType(),
    1082: types.DateType(),
    1114: types.TimestampNTZType(),
    1184: types.TimestampType(),
    1000: types.ArrayType(types.BooleanType()),
    1005: types.ArrayType(types.ShortType()),
    1007: types.ArrayType(types.IntegerType()),
    1009: types.ArrayType(types.StringType()),
    1015: types.ArrayType(types.StringType()),
    1016: types.ArrayType(types.LongType()),
    1021: types.ArrayType(types.FloatType()),
    1022: types.ArrayType(types.DoubleType()),
}
"""By oid. All other types are read as text."""
_NUMERIC = 1700
_WIDEST = 38


def select(
    connection: psycopg.Connection, relation: str, wanted: Sequence[str]
) -> tuple[types.StructType, str]:
    """Select the `wanted` columns of a relation, a table's name as SQL has it or a query in parentheses.

    Returns their types, and their expressions for a SELECT of the relation as `q`.

    Raises:
        UsageError: a column does not exist, two columns have the same name, or the query fails.
    """
    try:
        cursor = connection.execute(sql.SQL("SELECT * FROM {} AS q LIMIT 0").format(sql.SQL(relation)))
    except psycopg.Error as error:
        raise UsageError(f"{relation} can't be read: {error.diag.message_primary}") from error
    fields = _fields(cursor)
    if len(fields) < len(cursor.description or ()):
        raise UsageError(f"two columns of {relation} have the same name; give each its own")
    lacking = [name for name in wanted if name not in fields]
    if lacking:
        raise UsageError(
            f"{relation} has no column {', '.join(map(repr, lacking))}; it has {', '.join(fields)}"
        )
    names = list(wanted) or list(fields)
    columns = (f"{fields[name][1]} AS {sql.Identifier(name).as_string()}" for name in names)
    return types.StructType([types.StructField(name, fields[name][0]) for name in names]), ", ".join(columns)


def _fields(cursor: psycopg.Cursor[TupleRow]) -> dict[str, tuple[types.DataType, str]]:
    fields: dict[str, tuple[types.DataType, str]] = {}
    for column in cursor.description or ():
        name = f"q.{sql.Identifier(column.name).as_string()}"
        kind = _PLAIN.get(column.type_code)
        precision, scale = column.precision, column.scale
        if kind is not None:
            fields[column.name] = (kind, name)
        elif column.type_code == _NUMERIC and precision and precision <= _WIDEST:
            # Arrow makes a decimal of the text.
            fields[column.name] = (types.DecimalType(precision, scale or 0), f"{name}::text")
        else:
            fields[column.name] = (types.StringType(), f"{name}::text")
    return fields
