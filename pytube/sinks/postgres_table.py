"""The tables of the sink `postgres`: requirements, and creation.

The target is the user's own table: key and document, or key and columns. Beside it stands a table of
stamps: of each key the token and seq of its last write, and when it was deleted. So the target has no
column of pytube and no row that is deleted, and a late write finds the token of a delete.

Every write first takes the row of its key in the table of stamps. The unique index there makes two writers
of one key wait for each other, also where the target has no row: a late insert can't slip past a delete
that another session has not committed yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import psycopg
from psycopg import sql
from pydantic import Field, SecretStr, field_validator

from pytube.errors import ConfigError
from pytube.model import KeyType
from pytube.sinks.registry import SinkOptions

_LONGEST_NAME = 63
"""Bytes; Postgres would cut a longer one."""

_KEY_TYPES = {
    "int2": KeyType.BIGINT,
    "int4": KeyType.BIGINT,
    "int8": KeyType.BIGINT,
    "uuid": KeyType.UUID,
    "text": KeyType.TEXT,
    "varchar": KeyType.TEXT,
}
_SHARD_TYPES = ("int2", "int4", "int8")
STAMPS: Final = ("shard", "tube", "token", "seq", "deleted_at")
_TYPE = re.compile(r'[A-Za-z_"][\w ."]*(\(\d+(, ?\d+)?\))?( with(out)? time zone)?(\[\])?')


class PostgresOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold for `type = "postgres"`."""

    dsn: SecretStr = Field(description="a connection string, as postgresql://user@host/database")
    schema_name: str = Field(default="public", alias="schema", description="the name of a schema")
    table: str = Field(description="the name of a table")
    stamps: str | None = Field(default=None, description="the name of the table of stamps")
    key: tuple[str] | tuple[str, str] = Field(
        default=("shard", "id"), description='the columns of the key: ["shard", "id"] or ["id"]'
    )
    document: str = Field(default="doc", description="the name of a column of type jsonb")
    columns: dict[str, str] | None = Field(
        default=None,
        min_length=1,
        description="a list of columns, or a table of the document's fields by column",
    )
    create: bool = Field(default=False, description="true or false")
    id_type: Literal["bigint", "uuid", "text"] = Field(default="bigint", description="bigint, uuid or text")
    types: dict[str, str] = Field(
        default_factory=dict, description='types of Postgres by column, as { price = "numeric(10,2)" }'
    )
    tombstone_seconds: float = Field(default=3600.0, gt=0, description="a number of seconds above 0")
    lock_timeout: float = Field(default=5.0, ge=0.001, description="a number of seconds, 0.001 or more")
    synchronous_commit: Literal["on", "remote_apply"] = Field(
        default="on", description='"on" or "remote_apply"; less than "on" would lose answered writes'
    )
    pool_size: int = Field(default=4, ge=1, description="a number of sessions, 1 or more")

    @field_validator("columns", mode="before")
    @classmethod
    def _named_as_their_fields(cls, value: object) -> object:
        return {name: name for name in value} if isinstance(value, list) else value

    @field_validator("types")
    @classmethod
    def _look_like_types(cls, value: dict[str, str]) -> dict[str, str]:
        if not all(_TYPE.fullmatch(text) for text in value.values()):
            raise ValueError("not a type")
        return value

    def faults(self) -> Iterator[str]:
        """See `SinkOptions.faults`."""
        for name in (self.schema_name, self.table, self.stamps_table, *self.key, *self.data, *self.fields):
            if not name or "\0" in name or len(name.encode()) > _LONGEST_NAME:
                yield f'"{name}" can\'t be a name in Postgres: expected 1 to 63 bytes'
        names = [*self.key, *self.data]
        twice = {name for name in names if names.count(name) > 1}
        twice |= {field for field in self.fields if self.fields.count(field) > 1}
        if twice:
            yield f"{_quoted(twice)} stands for two things; name each column once"

    @property
    def stamps_table(self) -> str:
        """The name of the table of stamps."""
        return self.stamps or f"{self.table}_pytube"

    def qualified(self, table: str) -> str:
        """`schema.table`, for people."""
        return f"{self.schema_name}.{table}"

    @property
    def data(self) -> tuple[str, ...]:
        """The columns that are not of the key."""
        return (self.document,) if self.columns is None else tuple(self.columns)

    @property
    def fields(self) -> list[str]:
        """The fields of the document that have their own columns."""
        return [] if self.columns is None else list(self.columns.values())

    @property
    def id(self) -> str:
        """The column of ids."""
        return self.key[-1]

    @property
    def shard(self) -> str | None:
        """The column of shards, if there is one."""
        return self.key[0] if len(self.key) > 1 else None

    @property
    def stamps_key(self) -> tuple[str, ...]:
        """The key of the table of stamps: the key of the target, by pytube's names."""
        return ("shard", "id") if self.shard else ("id",)


async def create(connection: psycopg.AsyncConnection, options: PostgresOptions) -> None:
    """Create missing tables. An existing table's type of ids counts, not `id_type`."""
    id_type: str = options.id_type
    types = {options.document: "jsonb"} if options.columns is None else options.types
    name = options.qualified(options.table)
    async with connection.transaction():
        # Of processes that start together, one creates; IF NOT EXISTS alone does not keep them apart.
        lock = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))"
        await connection.execute(lock, [f"pytube {name}"])
        target = await _columns(connection, options, options.table)
        if options.id in target and target[options.id].type in _KEY_TYPES:
            id_type = _KEY_TYPES[target[options.id].type].value
        missing = _quoted(set(options.data) - types.keys())
        if missing and not target:
            raise ConfigError(
                f'sink "postgres": there is no table {name}, and option "types" does not name {missing}; '
                "create the table, or give each of its columns a type"
            )
        stamps = await _columns(connection, options, options.stamps_table)
        if not target or not stamps:
            await connection.execute(_creation(options, id_type, None if target else types))


def _creation(options: PostgresOptions, id_type: str, types: Mapping[str, str] | None) -> sql.Composed:
    """The statements that create the table of stamps and, where `types` are given, the target."""
    statements = []
    if types is not None:
        shard = [sql.SQL("{} integer").format(sql.Identifier(options.shard))] if options.shard else []
        key = [*shard, sql.SQL("{} {}").format(sql.Identifier(options.id), as_it_is(id_type))]
        data = [sql.SQL("{} {}").format(sql.Identifier(name), as_it_is(types[name])) for name in options.data]
        statements.append(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}))").format(
                sql.Identifier(options.schema_name, options.table),
                commas([*key, *data]),
                _names(options.key),
            )
        )
    stamps = sql.Identifier(options.schema_name, options.stamps_table)
    statements.append(
        # Free space lets updates of stamps stay on their page, without a new entry in the index.
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (shard integer NOT NULL, id {} NOT NULL, tube text NOT NULL, "
            "token bigint NOT NULL, seq bigint NOT NULL, deleted_at timestamptz, PRIMARY KEY ({})) "
            "WITH (fillfactor = 80)"
        ).format(stamps, as_it_is(id_type), _names(options.stamps_key))
    )
    statements.append(
        sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} (deleted_at) WHERE deleted_at IS NOT NULL").format(
            sql.Identifier(_index_name(options.stamps_table)), stamps
        )
    )
    return sql.SQL(";\n").join(statements)


def _index_name(stamps: str) -> str:
    suffix = "_deleted"
    return stamps.encode()[: _LONGEST_NAME - len(suffix)].decode(errors="ignore") + suffix


# --- the present state ------------------------------------------------------------------------------

_COLUMNS = """
    SELECT a.attname, t.typname, pg_catalog.format_type(a.atttypid, a.atttypmod),
        pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT'),
        pg_catalog.has_column_privilege(c.oid, a.attnum, 'INSERT'),
        pg_catalog.has_column_privilege(c.oid, a.attnum, 'UPDATE'),
        pg_catalog.has_table_privilege(c.oid, 'DELETE')
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s AND c.relkind IN ('r', 'p')
"""
_HAS_KEY = """
    SELECT EXISTS (
        SELECT FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %(schema)s AND c.relname = %(table)s
            AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
            AND ARRAY(
                SELECT a.attname::text FROM pg_catalog.pg_attribute a
                WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey[0 : i.indnkeyatts - 1])
                ORDER BY a.attname::text COLLATE "C"
            ) = ARRAY(SELECT k FROM pg_catalog.unnest(%(key)s::text[]) k ORDER BY k COLLATE "C"))
"""


# A partitioned table has no file; the files of its partitions come and go.
_FILES = """
    SELECT pg_catalog.string_agg(pg_catalog.concat_ws('.', c.oid, pg_catalog.pg_relation_filenode(c.oid)), ' '
        ORDER BY c.relname = %(stamps)s)
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname IN (%(table)s, %(stamps)s) AND c.relkind IN ('r', 'p')
    HAVING count(*) = 2
"""


_NOTED: Final = "pytube: "
"""The begin of pytube's comment of the table of stamps."""
_NOTE = """
    SELECT pg_catalog.obj_description(c.oid, 'pg_class')
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(stamps)s AND c.relkind IN ('r', 'p')
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and what the role may do with it."""

    type: str
    """As `pg_type` names it."""
    shown: str
    """As it is written in a statement, with its length or precision."""
    select: bool
    insert: bool
    update: bool
    delete: bool


async def look(
    connection: psycopg.AsyncConnection, options: PostgresOptions
) -> tuple[KeyType, dict[str, Column]]:
    """The type of the tables' ids, and the other columns, as they are now.

    Raises:
        ConfigError: names everything that is missing: a table, columns, a key, rights.
    """
    target = await _columns(connection, options, options.table)
    stamps = await _columns(connection, options, options.stamps_table)
    faults = _faults_of_target(options, target)
    if not faults and not await _has_key(connection, options, options.table, options.key):
        faults.append(f"{options.qualified(options.table)} needs a primary key or unique index on "
                      f"({', '.join(options.key)}), not deferrable and without a condition")  # fmt: skip
    if faults:
        raise ConfigError(f'sink "postgres": {"; ".join(faults)}')
    id_type = target[options.id]
    faults = _faults_of_stamps(options, stamps, _KEY_TYPES[id_type.type])
    if not faults and not await _has_key(connection, options, options.stamps_table, options.stamps_key):
        faults.append(f"{options.qualified(options.stamps_table)} needs a primary key on "
                      f"({', '.join(options.stamps_key)})")  # fmt: skip
    if faults:
        raise ConfigError(f'sink "postgres": {"; ".join(faults)}')
    return _KEY_TYPES[id_type.type], {name: target[name] for name in options.data}


async def read_files(connection: psycopg.AsyncConnection, options: PostgresOptions) -> str | None:
    """What the server calls the tables and their files; None when one of the tables is missing."""
    names = {"schema": options.schema_name, "table": options.table, "stamps": options.stamps_table}
    cursor = await connection.execute(_FILES, names)
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def read_note(connection: psycopg.AsyncConnection, options: PostgresOptions, key: str) -> str | None:
    """The note of that key in the comment of the table of stamps; None, too, when there is no such table."""
    notes = await _read_notes(connection, options)
    return None if notes is None else notes.get(key)


async def write_note(
    connection: psycopg.AsyncConnection, options: PostgresOptions, key: str, text: str
) -> None:
    """Set it there; nothing is done where another comment stands.

    Raises:
        psycopg.errors.LockNotAvailable: another session has the table locked.
        psycopg.errors.InsufficientPrivilege: the user is not its owner.
    """
    if await _read_notes(connection, options) is None:
        return
    table = sql.Identifier(options.schema_name, options.stamps_table)
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '100ms'")
        # As COMMENT does, but before the notes of others are read.
        await connection.execute(sql.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE").format(table))
        notes = await _read_notes(connection, options)
        if notes is not None:
            said = sql.Literal(_NOTED + json.dumps(notes | {key: text}))
            await connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, said))


async def _read_notes(connection: psycopg.AsyncConnection, options: PostgresOptions) -> dict[str, str] | None:
    """The notes in the comment, by key; None: it is not pytube's, or there is no table."""
    names = {"schema": options.schema_name, "stamps": options.stamps_table}
    cursor = await connection.execute(_NOTE, names)
    row = await cursor.fetchone()
    if row is None or not (row[0] is None or row[0].startswith(_NOTED)):
        return None
    try:
        held = json.loads((row[0] or "{}").removeprefix(_NOTED))
    except ValueError:  # it was edited
        return {}
    return held if isinstance(held, dict) else {}


async def _columns(
    connection: psycopg.AsyncConnection, options: PostgresOptions, table: str
) -> dict[str, Column]:
    cursor = await connection.execute(_COLUMNS, {"schema": options.schema_name, "table": table})
    return {name: Column(*rest) for name, *rest in await cursor.fetchall()}


async def _has_key(
    connection: psycopg.AsyncConnection, options: PostgresOptions, table: str, key: Sequence[str]
) -> bool:
    cursor = await connection.execute(
        _HAS_KEY, {"schema": options.schema_name, "table": table, "key": list(key)}
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


def _faults_of_target(options: PostgresOptions, found: Mapping[str, Column]) -> list[str]:
    name = options.qualified(options.table)
    if not found:
        # Of a sink that is open, by the mark that a backfill leaves: see `PostgresSink.write_mark`.
        made = "create it, or set create = true" if not options.create else "a backfill creates and fills it"
        return [f"there is no table {name}; {made}"]
    missing = [column for column in (*options.key, *options.data) if column not in found]
    if missing:
        return [f"{name} has no column {_quoted(missing)}"]
    faults = []
    if found[options.id].type not in _KEY_TYPES:
        faults.append(f'column "{options.id}" of {name} is {found[options.id].shown}; '
                      "expected bigint, integer, uuid, text or varchar")  # fmt: skip
    if options.shard and found[options.shard].type not in _SHARD_TYPES:
        faults.append(f'column "{options.shard}" of {name} is {found[options.shard].shown}; expected integer')
    if options.columns is None and found[options.document].type not in ("json", "jsonb"):
        faults.append(
            f'column "{options.document}" of {name} is {found[options.document].shown}; expected jsonb'
        )
    return faults + _missing_rights(name, found, options.key, options.data)


def _faults_of_stamps(options: PostgresOptions, found: Mapping[str, Column], keys: KeyType) -> list[str]:
    name = options.qualified(options.stamps_table)
    if not found:
        text = _creation(options, keys.value, None).as_string().replace("\n", " ")
        return [f"there is no table {name}; set create = true, or run: {text}"]
    needed = [*STAMPS, "id"]
    missing = [column for column in needed if column not in found]
    if missing:
        return [f"{name} has no column {_quoted(missing)}"]
    if _KEY_TYPES.get(found["id"].type) is not keys:
        return [f'column "id" of {name} is {found["id"].shown}; expected {keys.value}, as the table has it']
    return _missing_rights(
        name, found, options.stamps_key, [c for c in needed if c not in options.stamps_key]
    )


def _missing_rights(
    name: str, found: Mapping[str, Column], key: Sequence[str], data: Sequence[str]
) -> list[str]:
    """What the role may not do; SELECT and UPDATE are needed on fewer columns than INSERT."""
    columns = [*key, *data]
    missing = [
        right
        for right, has in (
            ("SELECT", all(found[column].select for column in columns)),
            ("INSERT", all(found[column].insert for column in columns)),
            ("UPDATE", all(found[column].update for column in data)),
            ("DELETE", found[key[0]].delete),
        )
        if not has
    ]
    return [f"the role has no right to {', '.join(missing)} on {name}"] if missing else []


def _names(names: Sequence[str]) -> sql.Composed:
    return commas([sql.Identifier(name) for name in names])


def _quoted(names: Sequence[str] | set[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))


def as_it_is(text: str) -> sql.SQL:
    """A type, as the catalog or the checked configuration writes it."""
    return sql.SQL(text)


def commas(parts: Sequence[sql.Composable]) -> sql.Composed:
    """The parts as a list."""
    return sql.SQL(", ").join(parts)
