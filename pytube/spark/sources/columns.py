"""Columns of Postgres as columns of Spark: the types, and what is selected so that they come so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pytube.errors import UsageError

_PLAIN: dict[int, DataType] = {
    16: BooleanType(),
    17: BinaryType(),
    20: LongType(),
    21: ShortType(),
    23: IntegerType(),
    25: StringType(),
    700: FloatType(),
    701: DoubleType(),
    1043: StringType(),
    1082: DateType(),
    1114: TimestampNTZType(),
    1184: TimestampType(),
    1000: ArrayType(BooleanType()),
    1005: ArrayType(ShortType()),
    1007: ArrayType(IntegerType()),
    1009: ArrayType(StringType()),
    1015: ArrayType(StringType()),
    1016: ArrayType(LongType()),
    1021: ArrayType(FloatType()),
    1022: ArrayType(DoubleType()),
}
"""By oid; all others come as their text."""
_NUMERIC = 1700
_WIDEST = 38


@dataclass(frozen=True, slots=True)
class Selected:
    """What is read."""

    schema: StructType
    expressions: tuple[str, ...]
    """As many, in SQL, of the columns of a relation `q`."""


def select(connection: psycopg.Connection, relation: str, wanted: Sequence[str]) -> Selected:
    """The columns of a relation.

    Args:
        connection: its transaction sees the relation.
        relation: a table's name as SQL has it, or a query in parentheses.
        wanted: names; none: all.

    Raises:
        UsageError: there is no such column, or two have one name, or the query fails.
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
    return Selected(
        StructType([StructField(name, fields[name][0]) for name in names]),
        tuple(fields[name][1] for name in names),
    )


def _fields(cursor: psycopg.Cursor[TupleRow]) -> dict[str, tuple[DataType, str]]:
    fields: dict[str, tuple[DataType, str]] = {}
    for column in cursor.description or ():
        name = f"q.{sql.Identifier(column.name).as_string()}"
        kind = _PLAIN.get(column.type_code)
        precision, scale = column.precision, column.scale
        if kind is not None:
            fields[column.name] = (kind, name)
        elif column.type_code == _NUMERIC and precision and precision <= _WIDEST:
            # As text, of which Arrow makes a decimal.
            fields[column.name] = (DecimalType(precision, scale or 0), f"{name}::text")
        else:
            fields[column.name] = (StringType(), f"{name}::text")
    return fields
