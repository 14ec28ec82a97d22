"""What names a document: the primary key of its root table, of one column or of several.

A key of several columns is one text, a JSON array of their values. Each value is cast to a type of Postgres
that has one text for it: so equal keys have equal texts, in this SQL and wherever else such texts are made.
"""

# ruff: noqa: S608 -- names are quoted

from __future__ import annotations

from collections.abc import Sequence

from pytube.documents.catalogue import POSTGRES, Column, Table
from pytube.errors import ConfigError
from pytube.keys import MOST_COLUMNS, KeyColumn, PartType
from pytube.model import KeyType

_CASTS = {
    KeyType.BIGINT: "{}::pg_catalog.int8",
    KeyType.UUID: "{}::pg_catalog.uuid",
    KeyType.TEXT: '{}::pg_catalog.text COLLATE "C"',  # texts are compared byte by byte
}

SQL_TYPES = {
    PartType.BIGINT: "pg_catalog.int8",
    PartType.TEXT: "pg_catalog.text",
    PartType.UUID: "pg_catalog.uuid",
    PartType.BOOLEAN: "pg_catalog.bool",
    PartType.DATE: "pg_catalog.date",
    PartType.ENUM: "pg_catalog.text",
}
"""As which values of a key's columns come into a statement."""
_LABEL = "pg_catalog.concat({})"
"""Of an enum, without a cast: anybody may have made one from the type."""


def refuse_key(path: str, table: Table) -> None:
    """Raise `ConfigError` if the table has no primary key that can name documents."""
    if not table.key:
        raise ConfigError(
            f"{path}: {table.name} has no primary key to name the documents by; add one, or write a query in "
            '[tube.NAME.enrich] with mode = "query", and attach the table by one of its columns'
        )
    if len(table.key) == 1:
        key = table.columns[table.key[0]]
        if key.key_type is None:
            raise ConfigError(
                f"{path}: the primary key {key.name} of {table.name} is of type {key.type}, but keys of "
                "documents are integers, uuids or texts (text, varchar); change the type of the key"
            )
        return
    if len(table.key) > MOST_COLUMNS:
        raise ConfigError(
            f"{path}: the primary key of {table.name} has {len(table.key)} columns, and {MOST_COLUMNS} are "
            "the most that name a document; give the table a shorter one"
        )
    for column in columns_of(table):
        if column.part is None:
            raise ConfigError(
                f"{path}: {column.name} of the primary key of {table.name} is of type {column.type}, but a "
                "key of several columns may only have integers, text, varchar, uuid, boolean, date, and "
                "enums, and no domains over enums: equal values of other types may have different texts; "
                "change the key of the table"
            )


def refuse_shard_by(path: str, table: Table, shard_by: str | None) -> None:
    """Raise `ConfigError` if the shards of documents can't depend on that column alone."""
    if shard_by is None:
        return
    if len(table.key) == 1:
        raise ConfigError(
            f"{path}.shard_by: the primary key of {table.name} has one column, {table.key[0]}, and shard_by "
            "chooses one of several; take it out"
        )
    if shard_by not in table.key:
        raise ConfigError(
            f"{path}.shard_by: {shard_by!r} is not a column of the primary key of {table.name}, so the key "
            f"of a document would not determine its shard; write one of: {', '.join(table.key)}"
        )


def columns_of(table: Table) -> list[Column]:
    """The columns of the primary key."""
    return [table.columns[name] for name in table.key]


def parts_of(table: Table) -> tuple[KeyColumn, ...]:
    """The columns of a primary key of several; none of one."""
    found = []
    for column in columns_of(table):
        if len(table.key) > 1:
            assert column.part is not None
            found.append(KeyColumn(column.name, column.part))
    return tuple(found)


def type_of(table: Table) -> KeyType:
    """Of the keys of documents whose root table it is."""
    key_type = KeyType.TEXT if len(table.key) > 1 else table.columns[table.key[0]].key_type
    assert key_type is not None
    return key_type


def is_same(column: Column, key: Column) -> bool:
    """Whether values of a column that equal a document's key are that key, to the byte."""
    return column.key_type is key.key_type and column.is_exact and key.is_exact


def are_parts(columns: Sequence[Column], key: Sequence[Column]) -> bool:
    """Whether values of columns equal to the columns of a key of several make the text of that key.

    And a trigger has to see them: for a virtual column it has no value.
    """
    return all(
        (here.part, here.enum) == (there.part, there.enum)
        and here.is_exact
        and there.is_exact
        and not here.computed_of
        for here, there in zip(columns, key, strict=True)
    )


def key_sql(table: Table, values: Sequence[str]) -> str:
    """The key of a document of the root table from the values of its columns, as tubes have it."""
    if len(values) == 1:
        return _CASTS[type_of(table)].format(values[0])
    parts = ", ".join(
        _LABEL.format(value) if part.type is PartType.ENUM else f"{value}::{SQL_TYPES[part.type]}"
        for value, part in zip(values, parts_of(table), strict=True)
    )
    return f'pg_catalog.json_build_array({parts})::pg_catalog.text COLLATE "C"'


def enum_value(column: Column, label: str) -> str:
    """A value of the enum by its label; NULL for a label that it does not have any more."""
    labels = f"pg_catalog.unnest(pg_catalog.enum_range(NULL::{column.enum}))"
    return f"(SELECT e.v FROM {labels} AS e (v) WHERE {_LABEL.format('e.v')} OPERATOR({POSTGRES}.=) {label})"
