"""What the formats share; and `pgtable`: several tasks read a table or a query as of one moment.

No option is a secret: plans and the UI show options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow
from pyspark.sql import types
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pytube.errors import DatabaseUnavailable, StatementFailed, UsageError
from pytube.spark.hosts import Host, first_row, rows
from pytube.tubes.tables import find_table

if TYPE_CHECKING:
    import pyarrow as pa

# --- options ------------------------------------------------------------------------------------------


class Format(DataSource):
    """A format, with the databases that are registered."""

    called: ClassVar[str]
    hosts: ClassVar[Mapping[str, Host]] = {}

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return cls.called

    def host(self) -> Host:
        """The database that the options name."""
        return host_of(self.options, self.hosts)

    def required(self, name: str, what: str) -> str:
        """An option that must be given; `what` explains it in the error."""
        given = self.options.get(name)
        if not given:
            raise UsageError(f"the option {name!r} is missing: {what}")
        return given

    def number(self, name: str, default: int) -> int:
        """An option with a number of at least 1."""
        text = self.options.get(name, str(default))
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"the option {name!r} is {text!r}; give a number of at least 1")
        return int(text)

    def limit(self, name: str) -> int | None:
        """As `number`, for an option that may be missing."""
        return self.number(name, 1) if name in self.options else None


def host_of(options: Mapping[str, str], bound: Mapping[str, Host]) -> Host:
    """The database that the options name: by `host`, if it is `bound`, or by `dsn` and `schema`."""
    name, dsn = options.get("host"), options.get("dsn")
    if name is not None:
        if name not in bound:
            known = ", ".join(sorted(bound)) or "none"
            raise UsageError(f"no database {name!r} is registered (there is {known}): pytube.spark.register")
        return bound[name]
    if dsn is None:
        if "default" in bound:
            return bound["default"]
        raise UsageError(
            "which database? Call pytube.spark.register(spark, dsn), or give the option dsn (no password)"
        )
    host = Host(dsn, options.get("schema", "tube"))
    if host.has_password():
        raise UsageError(
            "an option must not hold a password, because plans and the UI show it: use "
            "pytube.spark.register, dsn=env:NAME with the variable on all machines, or a service or "
            "passfile of libpq"
        )
    return host


def listed(names: str) -> list[str]:
    """The names in an option that joins them by commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


# --- reading ------------------------------------------------------------------------------------------


BY_INDEX = ("SET LOCAL enable_seqscan = off",)
"""Reads by the index, whatever the statistics of a table say that fills and empties."""


@dataclass(frozen=True, slots=True)
class Piece(InputPartition):
    """What one task reads: a statement, and the settings of its transaction."""

    statement: str
    before: tuple[str, ...] = BY_INDEX


def read(host: Host, schema: types.StructType, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, through ADBC, in a transaction that is rolled back.

    `schema` has the types and names that Spark expects. No message holds the password.
    """
    if not isinstance(piece, Piece):  # Spark's own, if there is nothing to read
        return
    import adbc_driver_postgresql.dbapi
    from adbc_driver_manager import Error
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    host.connect().close()  # ADBC does not tell the process id that shows a pooler
    try:
        session = adbc_driver_postgresql.dbapi.connect(host.conninfo())
    except Error as error:
        raise DatabaseUnavailable(_brief(host, error)) from None
    try:
        with session, session.cursor() as cursor:
            for setting in piece.before:
                cursor.execute(setting)
            cursor.execute(piece.statement)
            for batch in cursor.fetch_record_batch():
                yield _conform(batch, wanted)
            session.rollback()
    except Error as error:
        raise StatementFailed(_brief(host, error)) from None


def _conform(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns with the types and names of `wanted`, which Spark compares exactly."""
    import pyarrow as pa

    columns: list[Any] = []
    for column, field in zip(batch.columns, wanted, strict=True):
        plain: Any = column.storage if isinstance(column, pa.ExtensionArray) else column
        columns.append(plain if plain.type == field.type else plain.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _brief(host: Host, error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{host.name}: {host.redacted(text.split(' Query was:')[0])}"


class PieceReader(DataSourceReader):
    """Reads pieces that were found when the read was planned."""

    def __init__(self, host: Host, schema: types.StructType, pieces: Sequence[Piece]) -> None:
        self._host, self._schema, self._pieces = host, schema, pieces

    def partitions(self) -> list[InputPartition]:
        """The pieces, one a task."""
        return [*self._pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        return read(self._host, self._schema, partition)


# --- tables and queries -----------------------------------------------------------------------------

PARTITIONS = 8
_SNAPSHOT = re.compile(r"[0-9A-Fa-f-]+")
_EACH = "each"
"""A value of `snapshot`: each task reads as of its own start."""
_RELATION: Final = """
    SELECT c.oid::regclass::text,
        CASE WHEN c.relkind IN ('r', 'p', 'm') THEN greatest(c.reltuples, 0)::bigint END
    FROM pg_catalog.pg_class AS c WHERE c.oid = %(table)s::oid
"""


class TableSource(Format):
    """`spark.read.format("pgtable")`."""

    called = "pgtable"

    def schema(self) -> types.StructType:
        """The columns that the options name, as the database has them."""
        with self.host().connect() as connection, connection.transaction():
            return self._select(connection, self._relation(connection)[0])[0]

    def reader(self, schema: types.StructType) -> PieceReader:
        """A reader, with the parts that it reads."""
        host, where, before = self.host(), self.options.get("where", "true"), self._before()
        with host.connect() as connection, connection.transaction():
            for statement in before:
                connection.execute(statement.encode())
            relation, count = self._relation(connection)
            _, columns = self._select(connection, relation)
            parts = self._divide(connection, relation, count)
        pieces = [
            # The caller's own table, query and condition, read with the caller's own rights.
            Piece(f"SELECT {columns} FROM {of} AS q WHERE ({condition}) AND (\n{where}\n)", before)  # noqa: S608
            for of, condition in parts
        ]
        return PieceReader(host, schema, pieces)

    def _relation(self, connection: psycopg.Connection) -> tuple[str, int | None]:
        """The table or query as SQL has it, and about how many rows a table has; None: it has no pages."""
        table, query = self.options.get("table"), self.options.get("query")
        if (table is None) == (query is None):
            raise UsageError("give one of the options table and query")
        if query is not None:
            return f"(\n{str(query).strip().rstrip(';')}\n)", None
        name, count = first_row(connection, _RELATION, table=find_table(connection, str(table)))
        return name, count

    def _select(self, connection: psycopg.Connection, relation: str) -> tuple[types.StructType, str]:
        return select(connection, relation, listed(self.options.get("columns", "")))

    def _before(self) -> tuple[str, ...]:
        snapshot = self.required(
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
        self, connection: psycopg.Connection, relation: str, count: int | None
    ) -> list[tuple[str, str]]:
        """The relation and the condition of each part."""
        parts, key = self.number("partitions", PARTITIONS), self.options.get("key")
        if key is not None:
            return [(relation, part) for part in by_key(connection, relation, key, parts, count)]
        return [(relation, "true")] if count is None else by_pages(connection, relation, parts)


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
    """The types of the `wanted` columns of a relation, and their expressions for a SELECT of it as `q`.

    Raises `UsageError` if a column does not exist, two columns have the same name, or the query fails.
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


# --- how the rows of a table or a query are divided --------------------------------------------------

_SAMPLE = 1000
"""Rows of the sample for each part."""
_PAGES: Final = """
    SELECT c.oid::regclass::text,
        pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint
    FROM pg_catalog.pg_class AS c
    WHERE c.relkind IN ('r', 'm') AND c.oid IN (
        SELECT l.relid FROM pg_catalog.pg_partition_tree(%(table)s::regclass) AS l
        UNION SELECT %(table)s::regclass)
    ORDER BY 1
"""


def by_pages(connection: psycopg.Connection, table: str, parts: int) -> list[tuple[str, str]]:
    """Relations and conditions that divide a table by its pages: `(table or leaf, condition)`.

    The last part of each relation is open, because the table may grow.
    """
    relations = [(str(name), int(pages)) for name, pages in rows(connection, _PAGES, table=table)]
    total = sum(pages for _, pages in relations) or 1
    found: list[tuple[str, str]] = []
    for name, pages in relations:
        edges = even_edges(0, pages - 1, max(1, min(pages, round(parts * pages / total))))
        found += [(f"ONLY {name}", part) for part in between("q.ctid", [f"'({at},0)'::tid" for at in edges])]
    return found


def by_key(
    connection: psycopg.Connection, relation: str, key: str, parts: int, count: int | None
) -> list[str]:
    """The conditions that divide a relation by a column, as `key_bounds`. Each value is in one, NULL too."""
    bounds, kind = key_bounds(connection, relation, key, parts, count)
    name = f"q.{sql.Identifier(key).as_string()}"
    found = between(name, [f"{sql.Literal(bound).as_string()}::{kind}" for bound in bounds])
    return [*found[:-1], f"{found[-1]} OR {name} IS NULL"]


def key_bounds(
    connection: psycopg.Connection, relation: str, key: str, parts: int, count: int | None = None
) -> tuple[list[str], str]:
    """Where all parts but the first begin, as texts, and the type of these values.

    The parts have about the same number of rows. `relation` is a table's name as SQL has it, or a query in
    parentheses. If its number of rows is known, a sample is read, else all rows. Raises `UsageError` if the
    column can't be sorted.
    """
    share = 100.0 if count is None else min(100.0, 100.0 * _SAMPLE * parts / max(1, count))
    sample = sql.SQL("") if count is None else sql.SQL("TABLESAMPLE SYSTEM ({})").format(share)
    shares = [number / parts for number in range(1, parts)]
    if not shares:
        return [], ""
    # The database sorts as it compares.
    statement = sql.SQL(
        "SELECT b.v::text, pg_typeof(b.v)::text FROM (SELECT DISTINCT unnest("
        "percentile_disc({}::float8[]) WITHIN GROUP (ORDER BY q.{})) AS v FROM {} AS q {}) AS b ORDER BY b.v"
    ).format(shares, sql.Identifier(key), sql.SQL(relation), sample)
    try:
        found = connection.execute(statement).fetchall()
    except psycopg.Error as error:
        raise UsageError(f"{relation} can't be divided by {key!r}: {error.diag.message_primary}") from error
    bounds = [str(value) for value, _ in found if value is not None]
    return bounds, str(found[0][1]) if found else ""


def between(name: str, edges: Sequence[str]) -> list[str]:
    """The conditions for the ranges that begin at `edges`. The first range and the last are open."""
    found = []
    for low, high in pairwise([None, *edges, None]):
        parts = [f"{name} >= {low}"] if low is not None else []
        parts += [f"{name} < {high}"] if high is not None else []
        found.append(" AND ".join(parts) or "true")
    return found


def even_edges(low: int, high: int, ranges: int) -> list[int]:
    """Where all ranges but the first begin, from the least number to the greatest."""
    width = high - low + 1
    edges = [low + width * number // ranges for number in range(1, ranges)]
    return [edge for edge in sorted(set(edges)) if edge > low]
