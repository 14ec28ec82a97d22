"""Which companion tube, and which shard of it, has the touches of each relation.

A companion tube holds the values of links in place of ids, all of one type. Each shard is one relation. A
tube follows a table by one column, so a table that is followed by two has its second one in a second
companion. An attached table stays where it is: pods may wait there, and the shard alone says what their
values are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from pytube.documents.model import Document, Link, TableName
from pytube.model import KeyType

_TUBES = """
    SELECT d.tube, d.companion_of, d.declared, d.key_type::text, d.partitions,
        n.nspname, c.relname, d.id_col::text, d.shard, d.shards, d.columns::text[],
        d.key_cols::text[], d.shard_by::text
    FROM {s}.tube_documents() AS d
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = d.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
"""


@dataclass(frozen=True, slots=True)
class Followed:
    """A table as a tube follows it now."""

    table: TableName
    column: str
    """The first one."""
    shard: int
    shards: int
    columns: tuple[str, ...] | None
    """None: each UPDATE counts."""
    key_cols: tuple[str, ...] = ()
    """The columns that are the key, in order; empty: `column` alone."""
    shard_by: str | None = None
    """The only one of them that a key's shard depends on; None: all count."""

    @property
    def by(self) -> tuple[str, ...]:
        """The columns by which the table is followed."""
        return self.key_cols or (self.column,)


@dataclass(slots=True)
class TubeState:
    """A tube of a document, or a companion of one, as it is in the database."""

    name: str
    companion_of: str | None
    declared: str | None
    """The digest of the document that was applied last; None: none was, or this is a companion."""
    key_type: KeyType
    partitions: int
    tables: list[Followed] = field(default_factory=list)


def read_tubes(connection: psycopg.Connection[Any], schema: str) -> dict[str, TubeState]:
    """All tubes of the installation by name, with the tables that they follow."""
    found: dict[str, TubeState] = {}
    for row in connection.execute(sql.SQL(_TUBES).format(s=sql.Identifier(schema))):
        name, companion_of, declared, keys, partitions, *table = row
        tube = found.setdefault(name, TubeState(name, companion_of, declared, KeyType(keys), partitions))
        if table[0] is not None:
            schema_name, table_name, column, shard, shards, columns, key_cols, shard_by = table
            counting = None if columns is None else tuple(columns)
            place = TableName(schema_name, table_name)
            tube.tables.append(
                Followed(place, column, shard, shards, counting, tuple(key_cols or ()), shard_by)
            )
    return found


@dataclass(slots=True)
class Companion:
    """A companion tube as it is to be."""

    name: str
    key_type: KeyType
    relations: dict[int, Link] = field(default_factory=dict)
    """By shard."""


def companions_of(document: Document, tubes: Mapping[str, TubeState]) -> Sequence[Companion]:
    """The companions of a document, with each of its relations in one of them.

    Args:
        document: has the relations.
        tubes: the present ones, as `read_tubes` gives them.
    """
    there = {name: tube for name, tube in tubes.items() if tube.companion_of == document.name}
    companions = {name: Companion(name, tube.key_type) for name, tube in sorted(there.items())}
    new = []
    for relation in document.relations:
        place = next(_places(relation, there), None)
        if place is None:
            new.append(relation)
        else:
            companions[place[0]].relations[place[1]] = relation
    for relation in new:
        companion = next(
            (one for one in companions.values() if _has_room(one, relation, there.get(one.name))), None
        )
        if companion is None:
            companion = Companion(_free_name(document.name, {*tubes, *companions}), relation.key_type)
            companions[companion.name] = companion
        companion.relations[_shard(relation)] = relation
    return list(companions.values())


def _places(relation: Link, there: Mapping[str, TubeState]) -> Iterator[tuple[str, int]]:
    """Where a relation is followed already."""
    for name, tube in there.items():
        for one in tube.tables:
            if (one.table, one.column) == (relation.table, relation.column) and (
                tube.key_type is relation.key_type
            ):
                yield name, one.shard


def _has_room(companion: Companion, relation: Link, there: TubeState | None) -> bool:
    """Whether a tube can follow the relation's table: it has these keys, and not the table by another column.

    A table that the document no longer names is in the way until it is detached.
    """
    tables = {link.table for link in companion.relations.values()}
    shards = set(companion.relations)
    for one in [] if there is None else there.tables:
        tables.add(one.table)
        shards.add(one.shard)
    return (
        companion.key_type is relation.key_type
        and relation.table not in tables
        and _shard(relation) not in shards
    )


def _shard(relation: Link) -> int:
    """The shard of a new relation: a number that no other relation is likely to have, now or later.

    A pod may wait for a relation that is gone. Another relation must not get its number.
    """
    name = json.dumps([relation.table.schema, relation.table.table, relation.column], ensure_ascii=False)
    return zlib.crc32(name.encode()) & 0x7FFF_FFFF


def _free_name(document: str, taken: set[str]) -> str:
    name, number = f"{document}_relations", 2
    while name in taken:
        name, number = f"{document}_relations_{number}", number + 1
    return name
