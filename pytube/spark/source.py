"""What the formats share: their options, and readers of statements as Arrow.

No option is a secret: plans and the UI show options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pytube.errors import DatabaseUnavailable, StatementFailed, UsageError
from pytube.spark.hosts import Host

if TYPE_CHECKING:
    import pyarrow as pa

_TIMEOUT = 60.0
_POLL = 0.02
_ASK_HOLDERS_AFTER = 0.5

# --- options ------------------------------------------------------------------------------------------


def host_of(options: Mapping[str, str], bound: Mapping[str, Host]) -> Host:
    """The database that the options name: by `host`, if it is `bound`, or by `dsn` and `schema`.

    Raises:
        UsageError: both options are missing, no database has the name, or the DSN holds a password.
        ConfigError: the DSN is no connection string.
    """
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


def required(options: Mapping[str, str], name: str, what: str) -> str:
    """An option that must be given; `what` explains it in the error."""
    given = options.get(name)
    if not given:
        raise UsageError(f"the option {name!r} is missing: {what}")
    return given


def number(options: Mapping[str, str], name: str, default: int) -> int:
    """An option with a number of at least 1."""
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"the option {name!r} is {text!r}; give a number of at least 1")
    return int(text)


def limit(options: Mapping[str, str], name: str) -> int | None:
    """As `number`, for an option that may be missing."""
    return number(options, name, 1) if name in options else None


def listed(names: str) -> list[str]:
    """The names in an option that joins them by commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


# --- reading ------------------------------------------------------------------------------------------


def read(host: Host, before: Sequence[str], statement: str, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a statement, through ADBC, in a transaction that is rolled back.

    `before` are settings to make in the transaction, `schema` has the types and names that Spark expects.

    Raises:
        DatabaseUnavailable: the database can't be reached.
        PooledSession: a pooler gives us no session of our own.
        StatementFailed: Postgres refuses the statement. No message holds the password.
    """
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
            for setting in before:
                cursor.execute(setting)
            cursor.execute(statement)
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


# --- readers ------------------------------------------------------------------------------------------

BY_INDEX = ("SET LOCAL enable_seqscan = off",)
"""Reads by the index, whatever the statistics of a table say that fills and empties."""


@dataclass(frozen=True, slots=True)
class Piece(InputPartition):
    """What one task reads: a statement, and the settings of its transaction."""

    statement: str
    before: tuple[str, ...] = BY_INDEX


class PieceReader(DataSourceReader):
    """Reads pieces that were found when the read was planned."""

    def __init__(self, host: Host, schema: StructType, pieces: Sequence[Piece]) -> None:
        self._host, self._schema, self._pieces = host, schema, pieces

    def partitions(self) -> list[InputPartition]:
        """The pieces, one a task."""
        return [*self._pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        return read_piece(self._host, self._schema, partition)


def read_piece(host: Host, schema: StructType, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    if not isinstance(piece, Piece):  # Spark's own, if there is nothing to read
        return iter(())
    return read(host, piece.before, piece.statement, schema)
