"""What the database is to have of a tube or an outbox: keys for `pytube apply`, which workers leave alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field

from pytube.config.names import table_name
from pytube.config.section import Section

MOST_PARTITIONS = 1024
_MOST = 2**31 - 1
"""Of shards, as Postgres' integer."""


def checked_table(value: object) -> object:
    """A table as `schema.table`."""
    if not isinstance(value, str):
        raise ValueError("expected the name of a table, a string")  # noqa: TRY004 # pydantic's way
    table_name(value)
    return value


Table = Annotated[str, BeforeValidator(checked_table)]


class DeclaringSection(Section):
    """A section with keys of which the database has to be told."""

    DECLARING: ClassVar[tuple[str, ...]]
    """Their names."""

    @property
    def declared(self) -> tuple[str, ...]:
        """Those that say something; none: the tube or outbox is made by hand, and left alone."""
        return tuple(name for name in self.DECLARING if getattr(self, name) != self._default(name))

    def as_served(self) -> Self:
        """The section without these: whether a worker has to begin anew does not depend on them."""
        return self.model_copy(update={name: self._default(name) for name in self.DECLARING})

    @classmethod
    def _default(cls, name: str) -> object:
        return cls.model_fields[name].get_default(call_default_factory=True)


class AttachmentConfig(Section):
    """`[tube.NAME.tables."schema.table"]`: how the tube follows a table."""

    key: str | None = Field(default=None, min_length=1)
    """The column of its ids; of a related table, the one that holds ids of the root table."""

    shard: int | None = Field(default=None, ge=0, le=_MOST)
    """Its shard, or the first of them; None: the number that its schema ends in, else 0."""

    shards: int | None = Field(default=None, ge=1, le=_MOST)
    """Over how many shards its ids are spread; None: as many as the root table of the shard has, else 1."""

    columns: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, min_length=1)
    """An UPDATE that changes none of these makes no touch; None: each one does."""

    replica: bool = False
    """Whether what logical replication writes here is touched, too."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A table as the file wants it followed."""

    schema: str
    table: str
    """As the catalogue has the two."""
    key: str | None
    """None: the column that names its rows, if something proves which one does."""
    shard: int
    shards: int
    columns: tuple[str, ...]
    """Sorted; none: each UPDATE makes a touch."""
    replica: bool
    root: bool
    """Whether its ids are those of the documents; else they are those of another table in the same shards."""

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
        there = {one.shard: one.shards for one in reversed(found)}
        shards = section.shards if section.shards is not None else there.get(shard, 1)
        new = Attachment(
            schema,
            table,
            section.key,
            shard,
            shards,
            tuple(sorted(set(section.columns or ()))),
            section.replica,
            root=not any(one.shard == shard for one in found),
        )
        _check_shards(new, found, written)
        found.append(new)
    return tuple(found)


def _check_shards(new: Attachment, found: list[Attachment], written: str) -> None:
    if new.range[1] - 1 > _MOST:
        raise ValueError(f"the shards of {written} are more than there are: {_MOST} is the last one")
    for other in found:
        if new.range[0] >= other.range[1] or other.range[0] >= new.range[1]:
            continue
        name = f"{other.schema}.{other.table}"
        if new.range != other.range:
            raise ValueError(
                f"{written} has {_shards(new)}, partly those of {name}, which has {_shards(other)}; "
                "give it as many if it holds ids of that table, else shards of its own"
            )
        if new.key is None:
            raise ValueError(
                f"{written} has the {_shards(new)} of {name}; say by key which column holds ids of {name}, "
                "or give it a shard of its own"
            )


def _shards(one: Attachment) -> str:
    return f"shard {one.shard}" if one.shards == 1 else f"shards {one.shard} to {one.range[1] - 1}"
