"""Keys of two to eight columns: one text, the same from SQL, Python and Spark, and its columns back from it.

The text is the JSON array that Postgres' `json_build_array` makes: `[7, "acme", true]`.
`tests/vectors/keys.json` holds values that all three give.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, TypeAlias
from uuid import UUID

from pytube.model import KeyType, shard_of

MOST_COLUMNS: Final = 8

Part: TypeAlias = int | str | bool
"""The value of one column; a date or a uuid is the text that Postgres writes for it."""


class PartType(enum.StrEnum):
    """The type of a column of a key, as `tube_key_types` names it; domains count as their base types."""

    BIGINT = "bigint"
    """Also smaller integers."""
    TEXT = "text"
    """Also varchar."""
    UUID = "uuid"
    BOOLEAN = "boolean"
    DATE = "date"
    ENUM = "enum"
    """Its labels are texts here; only Postgres knows which there are."""

    @property
    def array(self) -> str:
        """The type, in SQL, of the array in which a statement gets the values."""
        return "text[]" if self is PartType.ENUM else f"{self.value}[]"


def part_parameter(place: int) -> str:
    """The parameter of a statement that has the values of a column of the key, counted from 0.

    Those by the names of columns are for queries of one's own: a column may have another parameter's name.
    """
    return f"part {place}"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key."""

    name: str
    type: PartType


@dataclass(frozen=True, slots=True)
class CompositeKey:
    """The columns of a table's key, in the order of the key."""

    columns: tuple[KeyColumn, ...]
    shard_place: int | None = None
    """The column, counted from 0, that alone determines a key's shard; None: all of them."""

    def text(self, values: Sequence[Part]) -> str:
        """The key of a row with these values."""
        return json.dumps(list(values), ensure_ascii=False)

    def values(self, text: str) -> tuple[Part, ...] | None:
        """The values of a key, in order; None for a text that is the key of no row."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(values, list) or len(values) != len(self.columns):
            return None
        for column, value in zip(self.columns, values, strict=True):
            if not _FITS[column.type](value):
                return None
        return tuple(values) if self.text(values) == text else None

    def of_words(self, words: Sequence[str]) -> str | None:
        """The key whose columns people write like that; None where it is the key of no row."""
        try:
            values = [
                _READ.get(column.type, str)(word) for column, word in zip(self.columns, words, strict=True)
            ]
        except (KeyError, ValueError):
            return None
        text = self.text(values)
        return None if self.values(text) is None else text

    def columns_of(self, texts: Sequence[str]) -> tuple[Sequence[str], Sequence[Sequence[Part]]]:
        """The texts that a row can have, and the values of each column in their order."""
        columns = self._all_columns_of(texts)
        if columns is not None:
            return texts, columns
        known = [(text, values) for text in texts if (values := self.values(text)) is not None]
        return [text for text, _ in known], [[row[place] for _, row in known] for place in self.places]

    def _all_columns_of(self, texts: Sequence[str]) -> Sequence[Sequence[Part]] | None:
        """As `columns_of`, in a third of the time, if a row can have each text, as is the rule; else None.

        They are read as one array of arrays. No string in it continues beyond a line; so where all begin and
        end with brackets, and there are as many arrays without others in them, each is one of the texts.
        """
        if not all(text[:1] == "[" and text[-1:] == "]" for text in texts):
            return None
        try:
            rows = json.loads("[" + ",\n".join(texts) + "]")
        except (ValueError, RecursionError):
            return None
        if len(rows) != len(texts) or {len(row) for row in rows} != {len(self.columns)}:
            return None
        columns: list[Sequence[Part]] = list(zip(*rows, strict=True))
        for column, values in zip(self.columns, columns, strict=True):
            if not all(map(_FITS[column.type], values)):
                return None
        return columns if json.dumps(rows, ensure_ascii=False) == f"[{', '.join(texts)}]" else None

    @property
    def places(self) -> range:
        """Of the columns, from 0."""
        return range(len(self.columns))

    def by_name(self, text: str) -> Mapping[str, Part] | None:
        """The values of a key by the names of their columns; None as for `values`."""
        values = self.values(text)
        if values is None:
            return None
        return {column.name: value for column, value in zip(self.columns, values, strict=True)}

    def shard(self, text: str, shard: int, shards: int) -> int:
        """The shard of a key in a table spread over `shards` shards from `shard` on."""
        return shard_of(text, shard, shards, self.shard_place)


_DATE = re.compile(r"(\d{4,7})-(\d\d)-(\d\d)( BC)?")
_LAST_YEAR = 5874897
_FIRST = (-4713, "11", "24")
"""The first date of Postgres, which is in 4714 BC, as year, month and day."""


def _is_date(value: object) -> bool:
    """Whether Postgres writes a date like that. Its calendar repeats itself every 400 years."""
    if value in ("infinity", "-infinity"):
        return True
    found = _DATE.fullmatch(value) if isinstance(value, str) and value.isascii() else None
    if found is None:
        return False
    written = int(found[1])
    if not 1 <= written <= (4714 if found[4] else _LAST_YEAR) or len(found[1]) != max(4, len(str(written))):
        return False
    year = 1 - written if found[4] else written
    try:
        date(year % 400 + 400, int(found[2]), int(found[3]))
    except ValueError:
        return False
    return (year, found[2], found[3]) >= _FIRST


def _is_text(value: object) -> bool:
    return type(value) is str and "\0" not in value


def _is_bigint(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


_FITS: Mapping[PartType, Callable[[object], bool]] = {
    PartType.BIGINT: _is_bigint,
    PartType.UUID: KeyType.UUID.has,
    PartType.BOOLEAN: lambda value: isinstance(value, bool),
    PartType.DATE: _is_date,
    PartType.TEXT: _is_text,
    PartType.ENUM: _is_text,
}
_READ: Mapping[PartType, Callable[[str], Part]] = {
    PartType.BIGINT: int,
    PartType.BOOLEAN: {"true": True, "false": False}.__getitem__,
    PartType.UUID: lambda word: str(UUID(word)),
}
"""What people write for a value; other types are written as they are."""
