"""When keys of two DataFrames are the same: the form in which they are compared."""

from __future__ import annotations

from uuid import UUID

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, DataType, StringType

from pytube.errors import UsageError
from pytube.model import Id, KeyType
from pytube.spark.kinds import KeyKind, kind_of
from pytube.spark.pack import REFUSED
from pytube.spark.uuids import EXAMPLE

_DIGITS = "[0-9a-f]{4}(?:-?[0-9a-f]{4}){7}"
_UUID = rf"\A(?i:{_DIGITS}|\{{{_DIGITS}\}})\z"
"""The forms that `pytube.spark.uuids` reads, as Java writes it."""


def chosen(source: DataFrame, key: str, key_type: str | None, of_tubes: KeyKind | None) -> KeyKind:
    """The kind of keys that are compared.

    Args:
        source: with the column `key`.
        key: its name.
        key_type: as the caller says, if so.
        of_tubes: of the tubes that are touched, if any.

    Raises:
        UsageError: there is no such type, or the tubes have another.
    """
    if key_type is not None and key_type not in list(KeyType):
        raise UsageError(f"key_type={key_type!r} is none of {', '.join(KeyType)}")
    if of_tubes is not None:
        if key_type not in (None, of_tubes.type.value):
            raise UsageError(f"the keys of the tubes are {of_tubes.type.value}, and not {key_type}")
        return of_tubes
    if key_type is None:
        key_type = "text" if isinstance(source.schema[key].dataType, StringType) else "bigint"
    return kind_of(key_type)


def normal(value: Column, column: DataType, kind: KeyKind) -> Column:
    """An id as it is compared: of a uuid its 16 bytes. What can't be one fails the query.

    Args:
        value: none NULL.
        column: its type.
        kind: of the ids.
    """
    match kind.type:
        case KeyType.BIGINT:
            return value.cast("bigint")
        case KeyType.TEXT:
            return value.cast("string")
        case KeyType.UUID if isinstance(column, BinaryType):
            return value
    text = value.cast("string")
    why = sf.concat(
        sf.lit(f"{REFUSED}an id is no uuid: '"),
        sf.substring(text, 1, 60),
        sf.lit(f"'; write it like {EXAMPLE}"),
    )
    digits = sf.when(text.rlike(_UUID), sf.regexp_replace(text, "[{}-]", "")).otherwise(sf.raise_error(why))
    return sf.unhex(digits)


def shown(key: object) -> Id:
    """An id of the form of `normal` as documents have it."""
    if isinstance(key, bytes | bytearray):
        return str(UUID(bytes=bytes(key)))
    return key if isinstance(key, int) else str(key)
