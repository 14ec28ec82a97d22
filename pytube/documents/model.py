"""A declared document, resolved by the catalog: the links that its tubes follow, and its query. Its tubes.

The words: a *link* is the column by which a row joins its parent in the document. A change of a row touches
the link's values, old and new, never the row's own id: a row that is gone can't be looked up, and its link
is all that leads back to the document. Where the link holds keys of the document, that touches the
document. Any other link is a *relation*: its values are touched in a companion tube, and the *path* leads
from them to the keys of the documents.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import sql

from pytube.config.names import TableName
from pytube.config.tubes import Attached
from pytube.keys import CompositeKey, KeyColumn
from pytube.model import KeyType


@dataclass(frozen=True, slots=True)
class Link:
    """One table, followed by one column; or by several, which hold the key of the document."""

    table: TableName
    by: tuple[str, ...]
    """The columns by which it is followed; several are in the order of the root's key."""
    key_type: KeyType
    """Of the column's values; of several columns, text."""
    columns: tuple[str, ...]
    """An UPDATE that changes none of these changes no document. Sorted; has those by which the table is
    followed, and the primary key."""
    path: str | None
    """A SELECT of the keys of documents, in one column and each once, that rows lead to whose link has one of
    the values `%(keys)s`, an array of `key_type`. None: the values are keys of documents."""
    sections: tuple[str, ...]
    """Where the file names the table, e.g. `document.orders.items`."""
    documents: tuple[float, float] = (1.0, 1.0)
    """How many documents a changed row touches, by Postgres' statistics: the mean, and the worst."""
    shard_by: str | None = None
    """The only one of them that a document's shard depends on; None: all count."""

    @property
    def column(self) -> str:
        """The first of the columns by which it is followed."""
        return self.by[0]


@dataclass(frozen=True, slots=True)
class Document:
    """One declared document."""

    name: str
    """Of its tube, too."""
    key_type: KeyType
    partitions: int
    shards: int
    query: str
    """Gives id and JSON text of the documents with the ids `%(ids)s`; as `[tube.NAME.enrich] query`."""
    links: tuple[Link, ...]
    """The first is the root table by its primary key. No table is there twice without a path, nor twice by
    one column with a path; it may be there without one and with one."""
    missing_indexes: tuple[str, ...]
    """`CREATE INDEX CONCURRENTLY …`, each with why as a comment behind it."""
    digest: str
    """Changes whenever a worker would read or follow something else."""
    key_columns: tuple[KeyColumn, ...] = ()
    """Of the root table, where its primary key has several; empty: it has one."""
    shard: int = 0
    """The first of its shards; another one on each of several hosts."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The type of each column that it depends on, by the name of its table and its own."""

    @property
    def key(self) -> CompositeKey | None:
        """The key of several columns; None: it has one."""
        return CompositeKey(self.key_columns) if self.key_columns else None

    @property
    def root(self) -> Link:
        """The root table, by its primary key."""
        return self.links[0]

    @property
    def own(self) -> tuple[Link, ...]:
        """The links that touch documents at once."""
        return tuple(link for link in self.links if link.path is None)

    @property
    def relations(self) -> tuple[Link, ...]:
        """The links from which a path leads to documents."""
        return tuple(link for link in self.links if link.path is not None)


# --- its tubes in the database ------------------------------------------------------------------------
#
# A companion tube holds the values of links in place of ids, all of one type. Each shard is one relation. A
# tube follows a table by one column, so a table that is followed by two has its second one in a second
# companion. An attached table stays where it is: pods may wait there, and the shard alone says what their
# values are.

_TUBES: Final = """
    SELECT l.tube, l.partitions, l.key_type::text, l.predicate, l.companion_of, a.declared, a.applied, a.made,
        n.nspname, c.relname, coalesce(l.key_cols, ARRAY[l.id_col])::text[], l.shard, l.shards,
        coalesce(l.columns, '{{}}')::text[], l.replica, l.root, l.shard_by::text, a.attached
    FROM {s}.tube_list() WITH ORDINALITY AS l
    JOIN {s}.tube_applied() AS a ON a.tube = l.tube AND a.tbl IS NOT DISTINCT FROM l.tbl
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    ORDER BY l.ordinality
"""


@dataclass(slots=True)
class Tube:
    """A tube that is there."""

    name: str
    partitions: int
    key_type: KeyType
    predicate: str | None = None
    companion_of: str | None = None
    document: str | None = None
    """The digest of the document that was applied last; None: it is of none, or a companion."""
    applied: str | None = None
    """The digest of the section applied last; None: it was created manually, or by a document."""
    made: bool = False
    """Whether it was made because of that."""
    tables: list[Attached] = field(default_factory=list)
    """By shard and order of attachment."""

    def table(self, name: TableName) -> Attached | None:
        """How it follows a table; None: it does not."""
        return next((one for one in self.tables if one.table == name), None)


def read_tubes(connection: psycopg.Connection[Any], schema: str) -> dict[str, Tube]:
    """All tubes of the installation by name, with the tables that they follow."""
    found: dict[str, Tube] = {}
    for row in connection.execute(sql.SQL(_TUBES).format(s=sql.Identifier(schema))):
        (name, partitions, keys, *of_tube), (place, table, *how) = row[:8], row[8:]
        tube = found.setdefault(name, Tube(name, partitions, KeyType(keys), *of_tube))
        if table is not None:
            key, shard, shards, columns, *rest = how
            where = TableName(place, table)
            tube.tables.append(Attached(where, tuple(key), shard, shards, frozenset(columns), *rest))
    return found


@dataclass(slots=True)
class Companion:
    """A companion tube as it is to be."""

    name: str
    key_type: KeyType
    relations: dict[int, Link] = field(default_factory=dict)
    """By shard."""


def companions_of(document: Document, tubes: Mapping[str, Tube]) -> Sequence[Companion]:
    """The companions of a document, with each of its relations in one of them; `tubes`: the present ones."""
    there = {name: tube for name, tube in tubes.items() if tube.companion_of == document.name}
    companions = {name: Companion(name, tube.key_type) for name, tube in sorted(there.items())}
    places = {
        (one.table, one.key, tube.key_type): (tube.name, one.shard)
        for tube in reversed(there.values())
        for one in tube.tables
    }
    new = []
    for relation in document.relations:
        place = places.get((relation.table, relation.by, relation.key_type))
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


def _has_room(companion: Companion, relation: Link, there: Tube | None) -> bool:
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
    name = json.dumps([*relation.table, relation.column], ensure_ascii=False)
    return zlib.crc32(name.encode()) & 0x7FFF_FFFF


def _free_name(document: str, taken: set[str]) -> str:
    name, number = f"{document}_relations", 2
    while name in taken:
        name, number = f"{document}_relations_{number}", number + 1
    return name
