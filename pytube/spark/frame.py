"""What is done to a DataFrame before its keys are packed: which columns, and a fingerprint of the query."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from pytube.errors import UsageError
from pytube.model import KeyType
from pytube.spark import texts
from pytube.spark.kinds import KeyKind
from pytube.spark.pack import REFUSED

_SMALLEST, _GREATEST = -(2**63), 2**63 - 1
_WHOLE = (ByteType, ShortType, IntegerType, LongType)


def keys(df: DataFrame, key: str, shard: str | int | None, kind: KeyKind) -> DataFrame:
    """The column `id` of what is to be touched and, where `shard` names a column, `shard`.

    Args:
        df: any.
        key: the column of the ids.
        shard: the column of the shards; a number for all, or None, is not a column.
        kind: of the ids.

    Raises:
        UsageError: a column is not there, or of a type that it can't have.
    """
    columns = [(_whole(df, key, "id") if kind.is_number else _bytes(df, key, kind)).alias("id")]
    if isinstance(shard, str):
        columns.append(_whole(df, shard, "shard").alias("shard"))
    return df.select(*columns)


def apart(settings: Mapping[str, str], *frames: DataFrame) -> list[DataFrame]:
    """The same DataFrames in one session of their own: a copy of that of the first, but for some settings."""
    java: Any = getattr(frames[0], "_jdf", None)
    jvm: Any = getattr(frames[0].sparkSession, "_jvm", None)
    if java is None or jvm is None:  # Spark Connect
        return list(frames)
    session = java.sparkSession().cloneSession()
    for name, value in settings.items():
        session.conf().set(name, value)
    made = []
    for df in frames:
        plan = getattr(df, "_jdf").queryExecution().analyzed()  # noqa: B009 # it is not public
        copied = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)
        made.append(DataFrame(copied, df.sparkSession))
    return made


def required(value: Column, text: str) -> Column:
    """`value`; a NULL fails the query, and `text` says why."""
    return sf.when(value.isNull(), sf.raise_error(sf.lit(REFUSED + text))).otherwise(value)


def refusal(error: BaseException) -> str | None:
    """What a row was refused for, out of Spark's error; None when it failed for something else."""
    found = re.search(re.escape(REFUSED) + r"(.*?)(?: SQLSTATE:|\n|$)", str(error))
    return found[1].strip() if found else None


def fingerprint(df: DataFrame, *more: object) -> str:
    """What a DataFrame computes, as 32 hex digits: the same after any repartition, and in another session.

    It goes by the plan and by the folders of files, not by data: rows that a program has put into a DataFrame
    itself, and values within its functions, are not seen.
    """
    plan = _plan(df)
    folders = sorted({str(PurePosixPath(name).parent) for name in df.inputFiles()})
    text = "\n".join([plan, *folders, repr(more)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def normal_plan(text: str) -> str:
    """The text of a plan without what differs between sessions, and without what only moves rows."""
    lines = []
    for line in text.splitlines():
        node = re.sub(r"^[\s:+-]*", "", line)
        if node and not re.match(r"Repartition|RebalancePartitions|Coalesce\b", node):
            node = re.sub(r"#\d+L?", "", node)
            lines.append(re.sub(r"splits=\S+|RDD\[\d+\]|@[0-9a-f]{4,}", "", node))
    return "\n".join(lines)


def _plan(df: DataFrame) -> str:
    java: Any = getattr(df, "_jdf", None)
    if java is None:
        raise UsageError("a Spark Connect session has no plan that could be compared; give fingerprint=…")
    return normal_plan(java.queryExecution().analyzed().toString())


def holds(kind: KeyKind, column: DataType) -> bool:
    """Whether a column of a type can hold keys as they are."""
    match kind.type:
        case KeyType.BIGINT:
            return isinstance(column, _WHOLE)
        case KeyType.UUID:
            return isinstance(column, StringType | BinaryType)
        case KeyType.TEXT:
            return isinstance(column, StringType)


def _type(df: DataFrame, name: str, what: str) -> DataType:
    for field in df.schema.fields:
        if field.name == name:
            return field.dataType
    raise UsageError(f"there is no column {name!r} for the {what}; there are {', '.join(df.columns)}")


def _bytes(df: DataFrame, name: str, kind: KeyKind) -> Column:
    """A column of texts or of bytes."""
    column = _type(df, name, "id")
    if not holds(kind, column):
        raise UsageError(
            f"the column {name!r} for the id is of type {column.simpleString()}, and the keys of the tube "
            f"are {kind.type.value}: cast it to string"
        )
    if isinstance(column, BinaryType):
        return named(name)
    value = named(name).cast("string")  # without a collation
    # Refused here, before thousands of them come to a task.
    why = sf.concat(
        sf.lit(f"{REFUSED}an id has "),
        sf.octet_length(value).cast("string"),
        sf.lit(texts.TOO_LONG),
    )
    return sf.when(sf.octet_length(value) > texts.MOST, sf.raise_error(why)).otherwise(value)


def named(name: str) -> Column:
    """The column of that name, whatever characters are in it."""
    return sf.col(f"`{name.replace('`', '``')}`")


def _whole(df: DataFrame, name: str, what: str) -> Column:
    kind = _type(df, name, what)
    number = named(name)
    if isinstance(kind, _WHOLE):
        return number
    if not isinstance(kind, DecimalType) or kind.scale != 0:
        text = f"the column {name!r} for the {what} is of type {kind.simpleString()}; cast it to bigint"
        raise UsageError(text)
    why = sf.concat(sf.lit(f"{REFUSED}an {what} is beyond bigint: "), number.cast("string"))
    beyond = (number < sf.lit(_SMALLEST)) | (number > sf.lit(_GREATEST))
    return sf.when(beyond, sf.raise_error(why)).otherwise(number.cast("bigint"))
