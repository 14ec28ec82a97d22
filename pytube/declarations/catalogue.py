"""What the file declares of tubes and outboxes, with what the catalogue has to say of their tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

import psycopg

from pytube.config import OutboxConfig, TubeConfig
from pytube.config.attachments import Attachment, attachments
from pytube.config.names import table_name
from pytube.config.section import key_path
from pytube.declarations.model import DeclaredOutbox, DeclaredTube
from pytube.declarations.state import Attached, Tube
from pytube.declarations.tubes import digest_of
from pytube.documents.catalogue import Catalogue, Column
from pytube.documents.catalogue import Table as KnownTable
from pytube.documents.model import TableName
from pytube.errors import ConfigError
from pytube.keys import MOST_COLUMNS, PartType
from pytube.model import KeyType
from pytube.tubes import queries

_WHOLE: Final = """
    SELECT pg_catalog.pg_partition_root(c.oid)::text FROM pg_catalog.pg_class AS c
    WHERE c.oid = %(table)s AND c.relispartition
"""


def declared_tube(
    name: str, section: TubeConfig, now: Tube | None, connection: psycopg.Connection, schema: str
) -> DeclaredTube:
    """A tube of the file; `now`: as it is in the database.

    Raises:
        ConfigError: a table or a column is not there, or can't be followed so.
    """
    key_type = KeyType.BIGINT if now is None else now.key_type
    if section.key_type is not None:
        key_type = KeyType(section.key_type)
    catalogue = Catalogue(connection)
    tables: list[Attached] = []
    for one in attachments(section.tables):
        place = TableName(one.schema, one.table)
        where = key_path(("tube", name, "tables", str(place)))
        table = catalogue.table(place, where)
        if (whole := connection.execute(_WHOLE, {"table": table.oid}).fetchone()) is not None:
            raise ConfigError(f"{where}: {place} is a partition of {whole[0]}; name that table")
        was = None if now is None else next((each for each in now.tables if each.table == place), None)
        key, shard_by = one.key, one.shard_by
        if not key and was is not None:  # what the file leaves out of these two is as it is
            key, shard_by = was.key, was.shard_by
        key = key or (_key_of(table, where, connection, schema),)
        _check_columns(where, table, one, key)
        _check_types(name, where, [table.columns[each] for each in key], table, key_type)
        new = Attached(
            place,
            key[0],
            one.shard,
            one.shards,
            frozenset(one.columns),
            one.replica,
            one.root,
            key_cols=key if len(key) > 1 else (),
            shard_by=shard_by,
        )
        root = next((each for each in tables if each.root and each.same_shards(new)), None)
        if root is not None:
            _check_related(where, new, root, catalogue)
        tables.append(new)
    predicate = (section.predicate or "").strip() or None
    return DeclaredTube(name, section.partitions, key_type, predicate, tuple(tables), digest_of(section))


def _key_of(table: KnownTable, where: str, connection: psycopg.Connection, schema: str) -> str:
    """The column that names the rows of a table."""
    row = connection.execute(
        queries.within(queries.ID_COLUMN, schema), {"table": table.oid, "id_col": None}
    ).fetchone()
    if 2 <= len(table.key) <= MOST_COLUMNS and (row is None or not row[1]):
        raise ConfigError(
            f"{where}: the primary key of {table.name} has several columns; name them all, in a tube with "
            f'key_type = "text", as key = {json.dumps(table.key, ensure_ascii=False)}, or a unique column'
        )
    if row is None:
        raise ConfigError(
            f"{where}: {table.name} has no column id, and no primary key of one column; name by key the "
            "column of its ids"
        )
    found, is_key, reason = row
    if not is_key:
        raise ConfigError(
            f"{where}: nothing proves which column names the rows of {table.name} ({found}: {reason}); name "
            f'it by key, as key = "{found}" if no two rows can have one {found}'
        )
    return str(found)


def _check_columns(where: str, table: KnownTable, one: Attachment, columns: Sequence[str]) -> None:
    """Refuse columns that are not there, or that no trigger sees."""
    for name, key in (*((each, "key") for each in columns), *((each, "columns") for each in one.columns)):
        if name not in table.columns:
            there = ", ".join(table.columns)
            raise ConfigError(f"{where}.{key}: {table.name} has no column {name}; it has {there}")
        if table.columns[name].computed_of:
            raise ConfigError(
                f"{where}.{key}: {name} of {table.name} is a virtual generated column, which has no value "
                "when a row is written; name the columns it is computed from "
                f"({', '.join(table.columns[name].computed_of)}), or make it STORED"
            )


def _check_types(tube: str, where: str, key: Sequence[Column], table: KnownTable, key_type: KeyType) -> None:
    """Refuse a key that is none of the tube."""
    if len(key) > 1:
        _check_parts(tube, where, key, table, key_type)
        return
    (column,) = key
    if column.key_type is not key_type:
        said = _set_type(tube, column.key_type) if column.key_type else ""
        raise ConfigError(
            f"{where}.key: {column.name} of {table.name} is {column.type}, and the keys of the tube are "
            f"{key_type}{said or '; name another column'}"
        )


def _check_parts(tube: str, where: str, key: Sequence[Column], table: KnownTable, key_type: KeyType) -> None:
    if key_type is not KeyType.TEXT:
        raise ConfigError(
            f"{where}.key: a key of several columns is a text, and the keys of the tube are "
            f"{key_type}{_set_type(tube, KeyType.TEXT)}"
        )
    for column in key:
        if column.part is None:
            raise ConfigError(
                f"{where}.key: {column.name} of {table.name} is {column.type}, and a key of several columns "
                "has integers, text, varchar, uuid, boolean, date and enums, but no domains over enums, as "
                "equal values of others may have different texts; name another column"
            )


def _set_type(tube: str, key_type: KeyType) -> str:
    return f'; set key_type = "{key_type}" in [{key_path(("tube", tube))}]'


def _check_related(where: str, one: Attached, root: Attached, catalogue: Catalogue) -> None:
    """Refuse a related table whose columns can't hold the ids of the root table."""
    if len(one.key) != len(root.key):
        raise ConfigError(
            f"{where}.key: ids of {root.table} have {len(root.key)} of its columns in them "
            f"({', '.join(root.key)}), and this key has {len(one.key)}; name the columns with these, in "
            "their order"
        )
    if one.shard_place != root.shard_place:
        same = None if root.shard_place is None else one.key[root.shard_place]
        raise ConfigError(
            f"{where}.shard_by: the shards of {root.table} are decided by "
            f"{root.shard_by or 'its whole key'}, not {one.shard_by or 'the whole key'}; "
            + ("take it out" if same is None else f'say shard_by = "{same}"')
        )
    here, there = (catalogue.table(each.table, where).columns for each in (one, root))
    for name, of in zip(one.key, root.key, strict=True):
        if _kind(here[name]) != _kind(there[of]):
            raise ConfigError(
                f"{where}.key: {name} is {here[name].type}, and can't hold {of} of {root.table}, which is "
                f"{there[of].type}; name another column"
            )


def _kind(column: Column) -> PartType:
    """As what JSON has a value in the text of a key."""
    return column.part if column.part in (PartType.BIGINT, PartType.BOOLEAN) else PartType.TEXT


def declared_outbox(name: str, section: OutboxConfig) -> DeclaredOutbox:
    """An outbox of the file."""
    table = None if section.adopt is None else TableName(*table_name(section.adopt))
    said = [section.partitions, section.value_type, str(table), section.wake]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    return DeclaredOutbox(name, section.partitions, section.value_type, table, section.wake, digest)
