"""Results of statements as Arrow, through ADBC, in the types that Spark was told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from pytube.errors import DatabaseUnavailable, StatementFailed
from pytube.spark.hosts import Host

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Reading:
    """A statement, and what is to be set before it."""

    statement: str
    before: tuple[str, ...] = ()


def read(host: Host, readings: Sequence[Reading], schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of statements, one after the other, each in a transaction that changes nothing.

    Raises:
        DatabaseUnavailable: the session can't be had.
        StatementFailed: Postgres refuses the statement. No text holds the password.
    """
    import adbc_driver_postgresql.dbapi
    from adbc_driver_manager import Error
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    try:
        session = adbc_driver_postgresql.dbapi.connect(host.conninfo())
    except Error as error:
        raise DatabaseUnavailable(f"{host.name}: {_brief(host, error)}") from None
    try:
        with session, session.cursor() as cursor:
            for reading in readings:
                for statement in reading.before:
                    cursor.execute(statement)
                cursor.execute(reading.statement)
                for batch in cursor.fetch_record_batch():
                    yield conform(batch, wanted)
                session.rollback()
    except Error as error:
        raise StatementFailed(f"{host.name}: {_brief(host, error)}") from None


def conform(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns in the types and with the names of `wanted`, which Spark compares exactly."""
    import pyarrow as pa

    columns: list[Any] = []
    for column, field in zip(batch.columns, wanted, strict=True):
        plain: Any = column.storage if isinstance(column, pa.ExtensionArray) else column
        columns.append(plain if plain.type == field.type else plain.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _brief(host: Host, error: Exception) -> str:
    text = " ".join(str(error).split())
    return host.redacted(text.split(" Query was:")[0])
