"""Keys in DataFrames: their columns, the form in which keys are compared, and a fingerprint of the query."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as sf

from pytube.errors import UsageError
from pytube.model import Id, KeyType
from pytube.spark import arrays
from pytube.spark.arrays import KeyKind, kind_of

REFUSED = "pytube refuses: "
"""How a message about an invalid key begins, within the error that Spark makes of it."""
_SMALLEST, _GREATEST = -(2**63), 2**63 - 1
_WHOLE = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)


def keys(df: DataFrame, key: str, shard: str | int | None, kind: KeyKind) -> DataFrame:
    """The keys to touch: `key` as the column `id` and, if `shard` names a column, the column `shard`."""
    columns = [(_whole(df, key, "id") if kind.is_number else _bytes(df, key, kind)).alias("id")]
    if isinstance(shard, str):
        columns.append(_whole(df, shard, "shard").alias("shard"))
    return df.select(*columns)


def apart(settings: Mapping[str, str], *frames: DataFrame) -> list[DataFrame]:
    """The same DataFrames in one new session: a copy of the first one's session with other settings."""
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


def checked(value: Column, wrong: Column, *why: str | Column) -> Column:
    """`value`. Where it is `wrong`, the query fails, with the texts `why` as the reason."""
    texts = (sf.lit(part) if isinstance(part, str) else part.cast("string") for part in why)
    return sf.when(wrong, sf.raise_error(sf.concat(sf.lit(REFUSED), *texts))).otherwise(value)


def required(value: Column, text: str) -> Column:
    """`value`. A NULL fails the query, with `text` as the reason."""
    return checked(value, value.isNull(), text)


@contextmanager
def refusals() -> Iterator[None]:
    """Raise `UsageError`, with the reason, if Spark fails inside the block because a row is refused."""
    try:
        yield
    except PySparkException as error:
        found = re.search(re.escape(REFUSED) + r"(.*?)(?: SQLSTATE:|\n|$)", str(error))
        if found is None:
            raise
        raise UsageError(found[1].strip()) from None


def fingerprint(df: DataFrame, *more: object) -> str:
    """What a DataFrame computes, as 32 hex digits: the same after a repartition and in another session.

    The fingerprint is made of the plan and of the folders of files, not of data: it misses rows that a
    program puts into a DataFrame itself, and values within functions.
    """
    java: Any = getattr(df, "_jdf", None)
    if java is None:
        raise UsageError("a Spark Connect session has no plan that could be compared; give fingerprint=…")
    plan = normal_plan(java.queryExecution().analyzed().toString())
    folders = sorted({str(PurePosixPath(name).parent) for name in df.inputFiles()})
    text = "\n".join([plan, *folders, repr(more)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def normal_plan(text: str) -> str:
    """The text of a plan without the parts that differ between sessions or that only move rows."""
    lines = []
    for line in text.splitlines():
        node = re.sub(r"^[\s:+-]*", "", line)
        if node and not re.match(r"Repartition|RebalancePartitions|Coalesce\b", node):
            node = re.sub(r"#\d+L?", "", node)
            lines.append(re.sub(r"splits=\S+|RDD\[\d+\]|@[0-9a-f]{4,}", "", node))
    return "\n".join(lines)


def holds(kind: KeyKind, column: types.DataType) -> bool:
    """Whether a column can hold keys without a cast."""
    match kind.type:
        case KeyType.BIGINT:
            return isinstance(column, _WHOLE)
        case KeyType.UUID:
            return isinstance(column, types.StringType | types.BinaryType)
        case KeyType.TEXT:
            return isinstance(column, types.StringType)


def _type(df: DataFrame, name: str, what: str) -> types.DataType:
    for field in df.schema.fields:
        if field.name == name:
            return field.dataType
    raise UsageError(f"there is no column {name!r} for the {what}; there are {', '.join(df.columns)}")


def _bytes(df: DataFrame, name: str, kind: KeyKind) -> Column:
    """A column of uuids or texts."""
    column = _type(df, name, "id")
    if not holds(kind, column):
        raise UsageError(
            f"the column {name!r} for the id is of type {column.simpleString()}, and the keys of the tube "
            f"are {kind.type.value}: cast it to string"
        )
    if isinstance(column, types.BinaryType):
        return named(name)
    value = named(name).cast("string")  # drops a collation
    # Refused here, before a task gets thousands of long texts.
    length = sf.octet_length(value)
    return checked(value, length > arrays.MOST, "an id has ", length, arrays.TOO_LONG)


def named(name: str) -> Column:
    """The column of a name with any characters."""
    return sf.col(f"`{name.replace('`', '``')}`")


def _whole(df: DataFrame, name: str, what: str) -> Column:
    kind = _type(df, name, what)
    number = named(name)
    if isinstance(kind, _WHOLE):
        return number
    if not isinstance(kind, types.DecimalType) or kind.scale != 0:
        text = f"the column {name!r} for the {what} is of type {kind.simpleString()}; cast it to bigint"
        raise UsageError(text)
    beyond = (number < sf.lit(_SMALLEST)) | (number > sf.lit(_GREATEST))
    return checked(number.cast("bigint"), beyond, f"an {what} is beyond bigint: ", number)


# --- keys that are compared -------------------------------------------------------------------------

_DIGITS = "[0-9a-f]{4}(?:-?[0-9a-f]{4}){7}"
_UUID = rf"\A(?i:{_DIGITS}|\{{{_DIGITS}\}})\z"
"""The forms that `arrays.Uuid` reads, as a pattern for Java."""


def kind_to_compare(source: DataFrame, key: str, key_type: str | None, of_tubes: KeyKind | None) -> KeyKind:
    """The kind of the keys to compare: `key_type`, that of the tubes, or that of the source's column."""
    if key_type is not None and key_type not in list(KeyType):
        raise UsageError(f"key_type={key_type!r} is none of {', '.join(KeyType)}")
    if of_tubes is not None:
        if key_type not in (None, of_tubes.type.value):
            raise UsageError(f"the keys of the tubes are {of_tubes.type.value}, and not {key_type}")
        return of_tubes
    if key_type is None:
        key_type = "text" if isinstance(source.schema[key].dataType, types.StringType) else "bigint"
    return kind_of(key_type)


def normal(value: Column, column: types.DataType, kind: KeyKind) -> Column:
    """An id, not NULL, as it is compared; a uuid as 16 bytes. An invalid id fails the query."""
    match kind.type:
        case KeyType.BIGINT:
            return value.cast("bigint")
        case KeyType.TEXT:
            return value.cast("string")
        case KeyType.UUID if isinstance(column, types.BinaryType):
            return value
    text = value.cast("string")
    digits = sf.unhex(sf.regexp_replace(text, "[{}-]", ""))
    why = (
        "an id is not a valid uuid: '",
        sf.substring(text, 1, 60),
        f"'; write it like {arrays.UUID_EXAMPLE}",
    )
    return checked(digits, ~text.rlike(_UUID), *why)


def document_id(key: object) -> Id:
    """An id of the form of `normal`, as documents have it."""
    if isinstance(key, bytes | bytearray):
        return str(UUID(bytes=bytes(key)))
    return key if isinstance(key, int) else str(key)
