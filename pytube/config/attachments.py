"""What the database is to have of a tube or an outbox: keys for `pytube apply`, which workers leave alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from pytube.config.names import table_name
from pytube.config.section import Section
from pytube.keys import MOST_COLUMNS

MOST_PARTITIONS = 1024
_MOST = 2**31 - 1
"""Of shards, as Postgres' integer."""
_KEY = f"expected the name of a column, or a list of 2 to {MOST_COLUMNS} columns"


def checked_table(value: object) -> object:
    """A table as `schema.table`."""
    if not isinstance(value, str):
        raise ValueError("expected the name of a table, a string")  # noqa: TRY004 # pydantic's way
    table_name(value)
    return value


Table = Annotated[str, BeforeValidator(checked_table)]


def _checked_key(value: object) -> object:
    """A column, or several; checked before its types are, whose errors would be one for each of them."""
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError(_KEY)
    if isinstance(value, list) and not 2 <= len(value) <= MOST_COLUMNS:
        raise ValueError(f"{_KEY}, not {len(value)}")
    if len({*names}) < len(names):
        raise ValueError(f"a column stands twice in it; {_KEY}")
    return value


class DeclaringSection(Section):
    """A section with keys that are applied to the database."""

    DECLARING: ClassVar[tuple[str, ...]]
    """Their names."""

    @property
    def declared(self) -> tuple[str, ...]:
        """The given ones; none: the tube or outbox is managed manually, and left alone."""
        return tuple(name for name in self.DECLARING if getattr(self, name) != self._default(name))

    def as_served(self) -> Self:
        """The section without these: whether a worker has to begin anew does not depend on them."""
        return self.model_copy(update={name: self._default(name) for name in self.DECLARING})

    @classmethod
    def _default(cls, name: str) -> object:
        return cls.model_fields[name].get_default(call_default_factory=True)


class AttachmentConfig(Section):
    """`[tube.NAME.tables."schema.table"]`: how the tube follows a table."""

    key: Annotated[str | list[str] | None, BeforeValidator(_checked_key)] = None
    """Column of the ids, or a list of 2 to 8 columns; for a related table, the columns with the root table's
    ids. Default for a root table: unchanged; if new, `id` if it is a key, else the primary key of one
    column."""

    shard_by: str | None = Field(default=None, min_length=1)
    """The one of several key columns that decides the shard. Default: as for the shard's root table, else the
    whole key."""

    shard: int | None = Field(default=None, ge=0, le=_MOST)
    """The shard, or the first of several. Default: the number that the schema's name ends in, else 0."""

    shards: int | None = Field(default=None, ge=1, le=_MOST)
    """Number of shards that the ids are spread over. Default: as many as the shard's root table has, else
    1."""

    columns: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, min_length=1)
    """An UPDATE that changes none of these makes no touch. Default: each UPDATE makes one."""

    replica: bool = False
    """Also capture rows that logical replication writes here."""

    @model_validator(mode="after")
    def _shard_by_of_key(self) -> Self:
        if self.shard_by is None:
            return self
        if not isinstance(self.key, list):
            raise ValueError(  # noqa: TRY004 # pydantic's way
                "shard_by chooses one column of a key of several; name them by key, as a list, or take "
                "shard_by out"
            )
        if self.shard_by not in self.key:
            raise ValueError(
                f"shard_by is {self.shard_by}, which the key does not have, so an id would not decide its "
                f"shard; write one of: {', '.join(self.key)}"
            )
        return self

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; none: the file leaves it out."""
        if isinstance(self.key, list):
            return tuple(self.key)
        return () if self.key is None else (self.key,)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A table as the file wants it followed."""

    schema: str
    table: str
    """As the catalogue has the two."""
    key: tuple[str, ...]
    """None at all: the column that names its rows, if something proves which one does."""
    shard: int
    shards: int
    columns: tuple[str, ...]
    """Sorted; none: each UPDATE makes a touch."""
    replica: bool
    root: bool
    """Whether its ids are the documents' ids; else they are ids of another table in the same shards."""
    shard_by: str | None
    """The one column of a key of several that decides the shard; None: the whole key."""

    @property
    def range(self) -> tuple[int, int]:
        """The first of its shards, and the first behind them."""
        return self.shard, self.shard + self.shards


def attachments(tables: Mapping[str, AttachmentConfig]) -> tuple[Attachment, ...]:
    """The tables of a tube, in the order in which they are attached, with what the file leaves out.

    Raises:
        ValueError: two sections are for one table; or its shards are partly another one's; or it is related
            to another one, and its section does not say by which column.
    """
    found: list[Attachment] = []
    for written, section in tables.items():
        schema, table = table_name(written)
        if any((one.schema, one.table) == (schema, table) for one in found):
            raise ValueError(f"two sections are for {schema}.{table}; take one of them out")
        number = re.search(r"[0-9]+$", schema)
        shard = section.shard if section.shard is not None else int(number[0]) if number else 0
        root = next((one for one in found if one.shard == shard), None)
        shards = section.shards if section.shards is not None else 1 if root is None else root.shards
        new = Attachment(
            schema,
            table,
            section.key_columns,
            shard,
            shards,
            tuple(sorted(set(section.columns or ()))),
            section.replica,
            root is None,
            section.shard_by if section.shard_by or root is None else _shard_by(section.key_columns, root),
        )
        _check_shards(new, found, written)
        found.append(new)
    return tuple(found)


def _shard_by(key: tuple[str, ...], root: Attachment) -> str | None:
    """The column of a related table that decides the shard, as that of its root table does."""
    if root.shard_by is None or len(key) != len(root.key):
        return None
    return key[root.key.index(root.shard_by)]


def _check_shards(new: Attachment, found: list[Attachment], written: str) -> None:
    if new.range[1] - 1 > _MOST:
        raise ValueError(f"the shards of {written} are more than there are: {_MOST} is the last one")
    for other in found:
        if new.range[0] >= other.range[1] or other.range[0] >= new.range[1]:
            continue
        name = f"{other.schema}.{other.table}"
        if new.range != other.range:
            raise ValueError(
                f"{written} has {_shards(new)}, overlapping {_shards(other)} of {name}; give it the same "
                f"shards if it holds ids of {name}, or else separate shards"
            )
        if not new.key:
            raise ValueError(
                f"{written} has the {_shards(new)} of {name}; name the column that holds ids of {name} in "
                "key, or give it a separate shard"
            )


def _shards(one: Attachment) -> str:
    return f"shard {one.shard}" if one.shards == 1 else f"shards {one.shard} to {one.range[1] - 1}"
