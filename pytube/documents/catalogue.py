"""What Postgres knows of tables, as far as a document needs it: columns, keys, indexes, statistics."""

# ruff: noqa: S608 -- names are quoted

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg

from pytube.config.names import TableName
from pytube.errors import ConfigError
from pytube.keys import MOST_COLUMNS, KeyColumn, PartType
from pytube.model import KeyType

_TABLE = """
    SELECT c.oid, c.relkind::text, c.relpersistence::text, c.reltuples::float8,
        pg_catalog.row_security_active(c.oid),
        EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid),
        NOT c.relispartition AND EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid = c.oid),
        CASE WHEN c.relispartition THEN pg_catalog.pg_partition_root(c.oid)::text END,
        (SELECT p.oid::regclass::text
         FROM pg_catalog.pg_partition_tree(c.oid) AS t JOIN pg_catalog.pg_class AS p ON p.oid = t.relid
         WHERE c.relkind = 'p' AND p.relkind = 'f' ORDER BY 1 LIMIT 1),
        n.nspname IN ('pg_catalog', 'information_schema', 'pg_toast')
            OR EXISTS (SELECT FROM pg_catalog.pg_class AS r
                       WHERE r.relnamespace = n.oid AND r.relname = 'tube_registry')
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
"""

_COLUMNS = """
    SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), b.oid::regtype::text,
        pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(l.collname),
        coalesce(l.collisdeterministic, true),
        ARRAY(SELECT o.attname::text
              FROM pg_catalog.pg_attrdef AS f
              JOIN pg_catalog.pg_depend AS d
                  ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = f.oid
                  AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = a.attrelid
              JOIN pg_catalog.pg_attribute AS o ON o.attrelid = a.attrelid AND o.attnum = d.refobjsubid
              WHERE a.attgenerated = 'v' AND f.adrelid = a.attrelid AND f.adnum = a.attnum
                  AND d.refobjsubid NOT IN (0, a.attnum)
              ORDER BY 1),
        (SELECT pg_catalog.quote_ident(s.nspname)
         FROM pg_catalog.pg_opclass AS k
         JOIN pg_catalog.pg_am AS m ON m.oid = k.opcmethod AND m.amname = 'btree'
         JOIN pg_catalog.pg_amop AS e ON e.amopfamily = k.opcfamily AND e.amopstrategy = 3
             AND e.amoplefttype = k.opcintype AND e.amoprighttype = k.opcintype
         JOIN pg_catalog.pg_operator AS o ON o.oid = e.amopopr AND o.oprname = '='
         JOIN pg_catalog.pg_namespace AS s ON s.oid = o.oprnamespace
         WHERE k.opcintype = b.oid AND k.opcdefault),
        (SELECT pg_catalog.quote_ident(s.nspname) || '.' || pg_catalog.quote_ident(t.typname)
         FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS s ON s.oid = t.typnamespace
         WHERE t.oid = a.atttypid AND t.typtype = 'e')
    FROM pg_catalog.pg_attribute AS a
    LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = l.collnamespace
    CROSS JOIN LATERAL (
        WITH RECURSIVE base (oid, below) AS (
            SELECT t.oid, t.typbasetype FROM pg_catalog.pg_type AS t WHERE t.oid = a.atttypid
            UNION ALL
            SELECT t.oid, t.typbasetype FROM base JOIN pg_catalog.pg_type AS t ON t.oid = base.below
        )
        SELECT base.oid FROM base WHERE base.below = 0
    ) AS b
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
"""Names, types, the types below domains, collations, whether equal texts are the same bytes, of which others
a virtual one is computed, where the = is by which the type's indexes compare, and the name of an enum."""

_INDEXES = """
    SELECT i.indisprimary, i.indisunique AND i.indimmediate,
        ARRAY(SELECT coalesce(a.attname::text, '')
              FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (number, place)
              LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
              WHERE k.place <= i.indnkeyatts ORDER BY k.place)
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
    WHERE i.indrelid = %(oid)s AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree'
"""
"""Whole indexes that find values: whether each is the primary key, whether it is unique, its columns."""

_FOREIGN_KEYS = """
    SELECT c.conname::text,
        ARRAY(SELECT a.attname::text
              FROM pg_catalog.unnest(c.conkey) WITH ORDINALITY AS k (number, place)
              JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.number
              ORDER BY k.place),
        ARRAY(SELECT a.attname::text
              FROM pg_catalog.unnest(c.confkey) WITH ORDINALITY AS k (number, place)
              JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.confrelid AND a.attnum = k.number
              ORDER BY k.place)
    FROM pg_catalog.pg_constraint AS c
    WHERE c.contype = 'f' AND c.conrelid = %(from)s AND c.confrelid = %(to)s
    ORDER BY 1
"""

_STATISTICS = """
    SELECT s.attname::text, s.n_distinct::float8, (s.most_common_freqs)[1]::float8
    FROM pg_catalog.pg_stats AS s
    WHERE s.schemaname = %(schema)s AND s.tablename = %(table)s AND s.attname = ANY (%(columns)s)
    ORDER BY s.inherited
"""

_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "i": "an index",
    "S": "a sequence",
    "c": "a type",
}


POSTGRES = "pg_catalog"
"""The schema of Postgres' own operators, including the operators of all types of keys."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    base: str
    """The type below its domains."""
    collation: str | None
    """As it is written in SQL; None where the type has none."""
    is_exact: bool
    """Whether equal values have the same bytes, as far as the collation decides."""
    computed_of: tuple[str, ...]
    """The columns that a virtual column is computed of, which no row holds; empty for all others."""
    equality: str
    """The schema of the = by which indexes of its type compare, as in SQL; for types without their own, which
    are compared as another type, the schema of that one's."""
    enum: str | None = None
    """The name in SQL of the enum whose labels it holds; None: it is of another type, be it a domain."""

    @property
    def key_type(self) -> KeyType | None:
        """Of a tube that holds its values as keys; None: no tube does."""
        return _KEY_TYPES.get(self.base)

    @property
    def part(self) -> PartType | None:
        """What its values are in a key of several columns; None: they can't be there."""
        return PartType.ENUM if self.enum else _PARTS.get(self.base)


_KEY_TYPES = {
    "smallint": KeyType.BIGINT,
    "integer": KeyType.BIGINT,
    "bigint": KeyType.BIGINT,
    "uuid": KeyType.UUID,
    "text": KeyType.TEXT,
    "character varying": KeyType.TEXT,
}
_PARTS = {
    **{name: PartType(key_type.value) for name, key_type in _KEY_TYPES.items()},
    "boolean": PartType.BOOLEAN,
    "date": PartType.DATE,
}
"""Numbers of another scale, padded texts and times of another zone are equal, and have other texts."""


def comparison(read: str, column: Column, value: str, source: Column) -> str:
    """That a column equals a value of another column: by the collation of the column that is read.

    So its index can be used.
    """
    collation = needed_collation(column, source)
    return f"{read} {equals(column, source)} {value}" + (f" COLLATE {collation}" if collation else "")


def equals(column: Column, source: Column) -> str:
    """The operator by which values of two columns are equal, whatever the search path.

    It is the operator that foreign keys use. By its name alone another one might be found: made by any role
    that may create one in a schema of the path; or, for a type whose own one is missing, the one of another
    type.
    """
    schema = column.equality if column.equality == source.equality else POSTGRES
    return f"OPERATOR({schema}.=)"


def needed_collation(column: Column, source: Column) -> str | None:
    """The collation to write where values of one column are looked up in another; None: none."""
    if None in {column.collation, source.collation} or column.collation == source.collation:
        return None
    return column.collation


@dataclass(frozen=True, slots=True)
class Index:
    """A whole index that finds values."""

    is_primary: bool
    is_unique: bool
    columns: tuple[str, ...]
    """In order; an empty name for an expression."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key between two tables."""

    name: str
    columns: tuple[str, ...]
    referred: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table, with its catalog data."""

    name: TableName
    oid: int
    rows: float
    """About."""
    columns: dict[str, Column]
    """In order."""
    indexes: tuple[Index, ...]
    hides_rows: bool
    """Whether row security hides rows from this session's role, or may."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key; none when there is none."""
        return next((index.columns for index in self.indexes if index.is_primary), ())

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return self.name.sql

    def is_unique(self, columns: Sequence[str]) -> bool:
        """Whether at most one row has given values in these columns."""
        return any(index.is_unique and set(index.columns) <= set(columns) for index in self.indexes)

    def finds(self, columns: Sequence[str]) -> bool:
        """Whether an index leads to the rows that have given values in these columns."""
        count = len(columns)
        return any(
            set(index.columns[:count]) == set(columns)
            or (index.is_unique and set(index.columns) <= set(columns))
            for index in self.indexes
        )


@dataclass(slots=True)
class Catalogue:
    """What Postgres knows. Read when it is asked first, and kept: for one compilation."""

    connection: psycopg.Connection[Any]
    _tables: dict[TableName, Table] = field(default_factory=dict)
    _statistics: dict[tuple[TableName, tuple[str, ...]], tuple[float, float]] = field(default_factory=dict)

    def table(self, name: TableName, where: str) -> Table:
        """A table that can be followed; `where`: the key that names it, for the error."""
        if name not in self._tables:
            self._tables[name] = self._read_table(name, where)
        return self._tables[name]

    def _read_table(self, name: TableName, where: str) -> Table:
        row = self._rows(_TABLE, {"schema": name.schema, "table": name.table})
        if not row:
            raise ConfigError(f"{where}: there is no table {name}; correct the name, or create it first")
        oid, kind, persistence, rows, hides_rows, has_heirs, is_heir, whole, foreign, is_own = row[0]
        if kind in ("v", "m"):
            raise ConfigError(
                f"{where}: {name} is {_KINDS[kind]}, whose changes no trigger sees; name the tables below "
                "it, or "
                'write a query in [tube.NAME.enrich] with mode = "query", and attach them'
            )
        if kind not in ("r", "p"):
            raise ConfigError(f"{where}: {name} is {_KINDS.get(kind, 'no table')}; name a table")
        if persistence == "t" or is_own:
            raise ConfigError(
                f"{where}: {name} is temporary, or Postgres' or pytube's own; name a table of yours"
            )
        if foreign is not None:
            raise ConfigError(
                f"{where}: the partition {foreign} of {name} is a foreign table, whose changes no trigger "
                "sees; detach it"
            )
        if whole is not None:
            raise ConfigError(f"{where}: {name} is a partition of {whole}; name that table")
        if kind == "r" and has_heirs:
            raise ConfigError(
                f"{where}: other tables inherit from {name}, and their rows can't be followed; name them one "
                "by one, or make it a partitioned table"
            )
        if is_heir:
            raise ConfigError(
                f"{where}: {name} inherits from another table, and writes by the name of that one can't be "
                "followed; name a table without inheritance, or make both one partitioned table"
            )
        columns = {
            column: Column(
                column, kind, base, collation, is_exact, tuple(computed_of), equality or POSTGRES, enum
            )
            for column, kind, base, collation, is_exact, computed_of, equality, enum in self._rows(
                _COLUMNS, {"oid": oid}
            )
        }
        indexes = [
            Index(primary, unique, tuple(names))
            for primary, unique, names in self._rows(_INDEXES, {"oid": oid})
        ]
        return Table(name, oid, max(1.0, rows), columns, tuple(indexes), hides_rows)

    def foreign_keys(self, child: Table, parent: Table) -> list[ForeignKey]:
        """The keys of one table that refer to another, by name; of equal ones, the first."""
        rows = self._rows(_FOREIGN_KEYS, {"from": child.oid, "to": parent.oid})
        found: dict[frozenset[tuple[str, str]], ForeignKey] = {}
        for name, columns, referred in rows:
            pairs = frozenset(zip(columns, referred, strict=True))
            found.setdefault(pairs, ForeignKey(name, tuple(columns), tuple(referred)))
        return list(found.values())

    def matches(self, table: Table, columns: tuple[str, ...]) -> tuple[float, float]:
        """How many rows have one value of these columns, by statistics: the mean, and the worst.

        Of several columns the most selective one counts.
        """
        if table.is_unique(columns):
            return 1.0, 1.0
        known = self._statistics.get((table.name, columns))
        if known is None:
            known = self._statistics[table.name, columns] = self._read_matches(table, columns)
        return known

    def _read_matches(self, table: Table, columns: tuple[str, ...]) -> tuple[float, float]:
        place = {"schema": table.name.schema, "table": table.name.table, "columns": list(columns)}
        guesses = []
        for _, distinct, most in self._rows(_STATISTICS, place):
            if distinct:
                count = distinct if distinct > 0 else -distinct * table.rows
                guesses.append((table.rows / max(count, 1.0), table.rows * (most or 0.0)))
        mean, worst = min(guesses, default=(table.rows, table.rows))
        return max(mean, 1.0), max(mean, worst, 1.0)

    def _rows(self, query: LiteralString, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        return rows_of(self.connection, query, parameters)


def rows_of(
    connection: psycopg.Connection[Any], query: LiteralString, parameters: dict[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """The rows of a query that is asked once."""
    return connection.execute(query, parameters, prepare=False).fetchall()


# --- what names a document --------------------------------------------------------------------------
#
# The primary key of its root table. A key of several columns is one text, a JSON array of their values. Each
# value is cast to a type of Postgres that has one text for it: so equal keys have equal texts, in this SQL
# and wherever else such texts are made.

SQL_TYPES: Mapping[str, str] = {
    PartType.BIGINT: "pg_catalog.int8",
    PartType.TEXT: "pg_catalog.text",
    PartType.UUID: "pg_catalog.uuid",
    PartType.BOOLEAN: "pg_catalog.bool",
    PartType.DATE: "pg_catalog.date",
    PartType.ENUM: "pg_catalog.text",
}
"""As which values of a key, or of its columns, come into a statement."""
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
        key_type = type_of(table)
        exactly = ' COLLATE "C"' if key_type is KeyType.TEXT else ""  # texts are compared byte by byte
        return f"{values[0]}::{SQL_TYPES[key_type]}{exactly}"
    parts = ", ".join(
        _LABEL.format(value) if part.type is PartType.ENUM else f"{value}::{SQL_TYPES[part.type]}"
        for value, part in zip(values, parts_of(table), strict=True)
    )
    return f'pg_catalog.json_build_array({parts})::pg_catalog.text COLLATE "C"'


def enum_value(column: Column, label: str) -> str:
    """A value of the enum by its label; NULL for a label that it does not have any more."""
    labels = f"pg_catalog.unnest(pg_catalog.enum_range(NULL::{column.enum}))"
    return f"(SELECT e.v FROM {labels} AS e (v) WHERE {_LABEL.format('e.v')} OPERATOR({POSTGRES}.=) {label})"
