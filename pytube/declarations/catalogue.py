"""What the file declares of tubes and outboxes, with what the catalogue has to say of their tables."""

from __future__ import annotations

import hashlib
import json
from typing import Final

import psycopg

from pytube.config import OutboxConfig, TubeConfig
from pytube.config.attachments import Attachment, attachments
from pytube.config.names import table_name
from pytube.config.section import key_path
from pytube.declarations.model import DeclaredOutbox, DeclaredTube
from pytube.declarations.state import Attached, Tube
from pytube.declarations.tubes import digest_of
from pytube.documents.catalogue import Catalogue
from pytube.documents.catalogue import Table as KnownTable
from pytube.documents.model import TableName
from pytube.errors import ConfigError
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
    tables = []
    for one in attachments(section.tables):
        place = TableName(one.schema, one.table)
        where = key_path(("tube", name, "tables", str(place)))
        table = catalogue.table(place, where)
        if (whole := connection.execute(_WHOLE, {"table": table.oid}).fetchone()) is not None:
            raise ConfigError(f"{where}: {place} is a partition of {whole[0]}; name that table")
        was = None if now is None else next((each for each in now.tables if each.table == place), None)
        column = one.key or (None if was is None else was.column)
        if column is None:
            column = _key_of(table, where, connection, schema)
        _check_columns(name, table, one, column, key_type)
        columns = frozenset(one.columns)
        tables.append(Attached(place, column, one.shard, one.shards, columns, one.replica, one.root))
    predicate = (section.predicate or "").strip() or None
    return DeclaredTube(name, section.partitions, key_type, predicate, tuple(tables), digest_of(section))


def _key_of(table: KnownTable, where: str, connection: psycopg.Connection, schema: str) -> str:
    """The column that names the rows of a table."""
    row = connection.execute(
        queries.within(queries.ID_COLUMN, schema), {"table": table.oid, "id_col": None}
    ).fetchone()
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


def _check_columns(tube: str, table: KnownTable, one: Attachment, column: str, key_type: KeyType) -> None:
    where = key_path(("tube", tube, "tables", str(table.name)))
    for name, key in ((column, "key"), *((each, "columns") for each in one.columns)):
        if name not in table.columns:
            there = ", ".join(table.columns)
            raise ConfigError(f"{where}.{key}: {table.name} has no column {name}; it has {there}")
        if table.columns[name].computed_of:
            raise ConfigError(
                f"{where}.{key}: {name} of {table.name} is a virtual generated column, and has no value when "
                "a row is written; name what it is computed of "
                f"({', '.join(table.columns[name].computed_of)}), or make it STORED"
            )
    kind = table.columns[column]
    if kind.key_type is not key_type:
        said = f'; set key_type = "{kind.key_type}" in [{key_path(("tube", tube))}]' if kind.key_type else ""
        raise ConfigError(
            f"{where}.key: {column} of {table.name} is {kind.type}, and the keys of the tube are "
            f"{key_type}{said or '; name another column'}"
        )


def declared_outbox(name: str, section: OutboxConfig) -> DeclaredOutbox:
    """An outbox of the file."""
    table = None if section.adopt is None else TableName(*table_name(section.adopt))
    said = [section.partitions, section.value_type, str(table), section.wake]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    return DeclaredOutbox(name, section.partitions, section.value_type, table, section.wake, digest)
