"""Tubes and outboxes as they are in the database, and what of them was made because a file declares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import psycopg

from pytube.documents.model import TableName
from pytube.model import KeyType
from pytube.tubes.queries import within

_TUBES: Final = """
    SELECT l.tube, l.partitions, l.predicate, l.key_type::text, l.companion_of, a.declared, a.applied, a.made,
        n.nspname, c.relname, l.id_col::text, l.shard, l.shards, coalesce(l.columns, '{{}}')::text[],
        l.replica, l.root, a.attached, coalesce(l.key_cols, '{{}}')::text[], l.shard_by::text
    FROM {s}.tube_list() WITH ORDINALITY AS l
    JOIN {s}.tube_applied() AS a ON a.tube = l.tube AND a.tbl IS NOT DISTINCT FROM l.tbl
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    ORDER BY l.ordinality
"""
_OUTBOXES: Final = """
    SELECT o.outbox, o.partitions, o.value_type::text, o.adopted, o.wakes, a.applied, a.made,
        n.nspname, c.relname
    FROM {s}.outbox_list() AS o
    JOIN {s}.tube_applied() AS a ON a.tube = o.outbox
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = o.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    ORDER BY o.outbox
"""


@dataclass(frozen=True, slots=True)
class Attached:
    """A table, and how a tube follows it."""

    table: TableName
    column: str
    """That of its ids; of a key of several, the first."""
    shard: int
    shards: int
    columns: frozenset[str]
    """An UPDATE that changes none of these makes no touch; none: each one does."""
    replica: bool
    root: bool
    """Whether its ids are the ids of the documents."""
    made: bool = False
    """Whether it was attached because a file declares it."""
    key_cols: tuple[str, ...] = ()
    """The columns of a key of several; else none."""
    shard_by: str | None = None
    """The one of them that alone decides the shard; None: the whole key."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key."""
        return self.key_cols or (self.column,)

    @property
    def shard_place(self) -> int | None:
        """Which part of the key alone decides its shard, from 0; None: all of them."""
        return None if self.shard_by is None else self.key.index(self.shard_by)

    @property
    def end(self) -> int:
        """The first shard behind its own."""
        return self.shard + self.shards

    def same_shards(self, other: Attached) -> bool:
        """Whether one is related to the other."""
        return (self.shard, self.shards) == (other.shard, other.shards)

    def overlaps(self, other: Attached) -> bool:
        """Whether the two have a shard in common."""
        return self.shard < other.end and other.shard < self.end


@dataclass(slots=True)
class Tube:
    """A tube that is there."""

    name: str
    partitions: int
    predicate: str | None
    key_type: KeyType
    companion_of: str | None
    document: str | None
    """The digest of the document that it is."""
    applied: str | None
    """The digest of the section applied last; None: it was created manually, or by a document."""
    made: bool
    """Whether it was made because of that."""
    tables: list[Attached] = field(default_factory=list)
    """By shard and order of attachment."""

    def root_of(self, one: Attached) -> Attached | None:
        """The table whose ids are the documents' in the shards of this one."""
        return next((other for other in self.tables if other.root and other.same_shards(one)), None)


@dataclass(frozen=True, slots=True)
class Outbox:
    """An outbox that is there."""

    name: str
    partitions: int
    value_type: str
    adopted: bool
    wakes: bool
    applied: str | None
    made: bool
    table: TableName | None
    """None: an adopted table that was dropped."""


def read_tubes(connection: psycopg.Connection, schema: str) -> Mapping[str, Tube]:
    """All tubes, by name."""
    found: dict[str, Tube] = {}
    for name, partitions, predicate, keys, *rest in connection.execute(within(_TUBES, schema)):
        companion_of, document, applied, made, schema_name, table, *how = rest
        tube = found.setdefault(
            name, Tube(name, partitions, predicate, KeyType(keys), companion_of, document, applied, made)
        )
        if table is not None:
            tube.tables.append(_attached(TableName(schema_name, table), *how))
    return found


def _attached(
    table: TableName,
    column: str,
    shard: int,
    shards: int,
    columns: Sequence[str],
    replica: bool,
    root: bool,
    made: bool,
    key_cols: Sequence[str],
    shard_by: str | None,
) -> Attached:
    """As a row has it."""
    return Attached(
        table, column, shard, shards, frozenset(columns), replica, root, made, tuple(key_cols), shard_by
    )


def read_outboxes(connection: psycopg.Connection, schema: str) -> Mapping[str, Outbox]:
    """All outboxes, by name."""
    found: dict[str, Outbox] = {}
    for name, partitions, values, adopted, wakes, applied, made, schema_name, table in connection.execute(
        within(_OUTBOXES, schema)
    ):
        place = None if table is None else TableName(schema_name, table)
        found[name] = Outbox(name, partitions, values, adopted, wakes, applied, made, place)
    return found
