"""What Postgres knows of tables and expressions, as far as a document needs it.

Expressions are parsed by Postgres, never by us: as a view over their one table, which is made and taken back. So a
name can't mean a column of another table, today or after DDL, and the columns that an expression reads are those that
Postgres found. It needs the right to create temporary objects, and none to read the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg import errors

from pytube.documents.model import TableName
from pytube.errors import ConfigError
from pytube.model import KeyType

_TABLE = """
    SELECT c.oid, c.relkind::text, c.relpersistence::text, c.reltuples::float8,
        pg_catalog.row_security_active(c.oid),
        EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
"""

_COLUMNS = """
    SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), b.oid::regtype::text,
        CASE WHEN a.attcollation <> 0 THEN
            (SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(l.collname)
             FROM pg_catalog.pg_collation AS l JOIN pg_catalog.pg_namespace AS n ON n.oid = l.collnamespace
             WHERE l.oid = a.attcollation) END,
        coalesce((SELECT l.collisdeterministic FROM pg_catalog.pg_collation AS l WHERE l.oid = a.attcollation), true)
    FROM pg_catalog.pg_attribute AS a
    CROSS JOIN LATERAL (
        WITH RECURSIVE base (oid) AS (
            SELECT a.atttypid
            UNION ALL
            SELECT t.typbasetype FROM base JOIN pg_catalog.pg_type AS t ON t.oid = base.oid WHERE t.typtype = 'd'
        )
        SELECT base.oid FROM base JOIN pg_catalog.pg_type AS t ON t.oid = base.oid WHERE t.typtype <> 'd'
    ) AS b
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
"""Names, types, the types below domains, collations, and whether equal texts are the same bytes."""

_INDEXES = """
    SELECT i.indisprimary, i.indisunique AND i.indpred IS NULL AND i.indimmediate, i.indnkeyatts,
        ARRAY(SELECT coalesce(a.attname::text, '')
              FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (number, place)
              LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
              WHERE k.place <= i.indnkeyatts ORDER BY k.place)
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
    WHERE i.indrelid = %(oid)s AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree'
"""
"""Whole indexes that find values: whether each is the primary key, whether it is unique, its columns in order."""

_FOREIGN_KEYS = """
    SELECT c.conname::text,
        ARRAY(SELECT a.attname::text
              FROM pg_catalog.unnest(c.conkey) WITH ORDINALITY AS k (number, place)
              JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place),
        ARRAY(SELECT a.attname::text
              FROM pg_catalog.unnest(c.confkey) WITH ORDINALITY AS k (number, place)
              JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY k.place)
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

_VIEW = """
    SELECT pg_catalog.pg_get_viewdef(r.ev_class), r.ev_action::text,
        ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
              WHERE a.attrelid = r.ev_class AND a.attnum > 0 ORDER BY a.attnum),
        (SELECT t.typcategory::text FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
         WHERE a.attrelid = r.ev_class AND a.attnum = 1),
        ARRAY(SELECT DISTINCT a.attname::text
              FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_attribute AS a
                  ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
              WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
                  AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = %(oid)s AND d.refobjsubid > 0
              ORDER BY 1)
    FROM pg_catalog.pg_rewrite AS r
    WHERE r.ev_class = 'pg_temp._pytube_expression'::regclass
"""

_UNSTABLE = """
    SELECT p.oid::regprocedure::text
    FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
    WHERE p.oid = ANY (%(functions)s::pg_catalog.oid[])
        AND (p.provolatile = 'v'
            OR p.provolatile = 's' AND (n.nspname <> 'pg_catalog'
                OR p.oid = 'pg_catalog.age(timestamp)'::regprocedure OR p.oid = 'pg_catalog.age(timestamptz)'::regprocedure
                OR p.proname IN ('now', 'statement_timestamp', 'transaction_timestamp', 'version', 'row_security_active')
                OR p.proname ~ '^(pg|has|current|session|inet_client|inet_server|txid|col|obj|shobj|query|table|schema|database|cursor)_'))
    ORDER BY 1
    LIMIT 1
"""
"""The first function that gives another result without another row. Of Postgres' own stable ones those are meant that
tell the time or look at the server: what depends on settings alone, as to_char and a timestamp's text, depends on
them in each query."""

_FUNCTIONS = re.compile(r":(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
_WHOLE_ROW = re.compile(r"\{VAR :varno \d+ :varattno (0|-\d+) ")
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "i": "an index",
    "S": "a sequence",
    "c": "a type",
}
_LONGEST_NAME = 63


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: TableName) -> str:
    """A table with its schema: the caller's search_path must not matter."""
    return f"{quoted(table.schema)}.{quoted(table.table)}"


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

    @property
    def key_type(self) -> KeyType | None:
        """Of a tube that holds its values as keys; None: no tube does."""
        return _KEY_TYPES.get(self.base)


_KEY_TYPES = {
    "smallint": KeyType.BIGINT,
    "integer": KeyType.BIGINT,
    "bigint": KeyType.BIGINT,
    "uuid": KeyType.UUID,
    "text": KeyType.TEXT,
    "character varying": KeyType.TEXT,
}


def comparison(read: str, column: Column, value: str, source: Column | None) -> str:
    """That a column equals a value, which comes from another column; by the collation of the one that is read.

    So the index of that one can be used.
    """
    if source is not None and None not in {source.collation, column.collation}:
        if source.collation != column.collation:
            value = f"{value} COLLATE {column.collation}"
    return f"{read} = {value}"


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
    """A table, with what is known of it."""

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
        return quoted_table(self.name)

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


@dataclass(frozen=True, slots=True)
class Expression:
    """What Postgres made of an expression."""

    sql: str
    """In full: all names with what they belong to."""
    columns: frozenset[str]
    """That it reads."""
    name: str
    """Of the column that it would be in a SELECT list."""
    is_aggregate: bool
    is_array: bool


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
        oid, kind, persistence, rows, hides_rows, has_heirs = row[0]
        if kind in ("v", "m"):
            raise ConfigError(
                f"{where}: {name} is {_KINDS[kind]}, whose changes no trigger sees; name the tables below it, or "
                'write a query in [tube.NAME.enrich] with mode = "query", and attach them'
            )
        if kind not in ("r", "p"):
            raise ConfigError(f"{where}: {name} is {_KINDS.get(kind, 'no table')}; name a table")
        if persistence == "t" or name.schema in ("pg_catalog", "information_schema"):
            raise ConfigError(f"{where}: {name} is temporary or Postgres' own, and can't be followed")
        if kind == "r" and has_heirs:
            raise ConfigError(
                f"{where}: other tables inherit from {name}, and their rows can't be followed; name them one by "
                "one, or make it a partitioned table"
            )
        columns = {one[0]: Column(*one) for one in self._rows(_COLUMNS, {"oid": oid})}
        indexes = [
            Index(primary, unique, tuple(names))
            for primary, unique, _, names in self._rows(_INDEXES, {"oid": oid})
        ]
        return Table(name, oid, max(1.0, rows), columns, tuple(indexes), hides_rows)

    def foreign_keys(self, child: Table, parent: Table) -> list[ForeignKey]:
        """Those of one table that refer to another, by name."""
        rows = self._rows(_FOREIGN_KEYS, {"from": child.oid, "to": parent.oid})
        return [ForeignKey(name, tuple(columns), tuple(referred)) for name, columns, referred in rows]

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

    # --- expressions --------------------------------------------------------------------------------------

    def field(self, table: Table, alias: str, text: str, where: str) -> Expression:
        """An entry of a SELECT list over the one table."""
        with self._named_fully(text, where) as notices:
            found = self._parse(table, alias, text, where)
        if notices or len(found.name.encode()) > _LONGEST_NAME:
            raise ConfigError(
                f"{where}: {text!r}: the name is longer than 63 bytes; give a shorter one with AS"
            )
        if found.name == "?column?":
            raise ConfigError(f"{where}: {text!r} has no name; give it one with AS")
        return found

    def expression(self, table: Table, alias: str, text: str, where: str) -> Expression:
        """An expression over the one table; may be an aggregate."""
        with self._named_fully(text, where):
            return self._parse(table, alias, f"({text}\n) AS e", where)

    def condition(self, table: Table, alias: str, text: str, where: str) -> Expression:
        """A condition over the one table, true or false and nothing else."""
        with self._named_fully(text, where):
            found = self._parse(table, alias, f"(({text}\n) IS TRUE) AS e", where)
        if found.is_aggregate:
            raise ConfigError(f"{where}: {text!r}: an aggregate has no place in a condition on one row")
        return found

    def order(self, table: Table, alias: str, texts: Sequence[str], where: str) -> Expression:
        """What stands behind ORDER BY, over the one table."""
        text = ", ".join(texts)
        before, after = "pg_catalog.row_number() OVER (ORDER BY ", "\n) AS e"
        with self._named_fully(text, where):
            found = self._parse(table, alias, before + text + after, where, window=True)
        match = re.fullmatch(r".*?\bOVER \(ORDER BY (.*)\)", found.sql, re.DOTALL)
        if match is None or found.is_aggregate:
            raise ConfigError(
                f"{where}: {text!r} is no list of expressions to order by; write it as behind ORDER BY"
            )
        return Expression(match[1], found.columns, "", is_aggregate=False, is_array=False)

    def check_join(self, parent: Table, here: str, table: Table, there: str, where: str) -> None:
        """Refuse columns that don't compare."""
        left, right = parent.columns[here], table.columns[there]
        text = comparison(f"b.{quoted(there)}", right, f"a.{quoted(here)}", left)
        query = f"SELECT FROM {parent.sql} AS a, {table.sql} AS b WHERE {text}"
        try:
            self.check_query(query, where)
        except ConfigError:
            raise ConfigError(
                f"{where}: {parent.name}.{here} is of type {left.type} and {table.name}.{there} of type {right.type}, "
                "which don't compare; join by columns of one type"
            ) from None

    def check_query(self, text: str, where: str) -> None:
        """Have Postgres parse a whole query, which reads many tables."""
        with self._named_fully(text, where):
            self.connection.execute(f"CREATE TEMP VIEW _pytube_expression AS {text}".encode())

    @contextmanager
    def _named_fully(self, text: str, where: str) -> Iterator[list[str]]:
        """A transaction that is rolled back; what Postgres says of the text, as our errors. Gives its notices."""
        notices: list[str] = []

        def note(diagnostic: psycopg.errors.Diagnostic) -> None:
            if diagnostic.sqlstate == "42622":
                notices.append(diagnostic.message_primary or "")

        self.connection.add_notice_handler(note)
        try:
            with self.connection.transaction(force_rollback=True):
                yield notices
        except errors.InsufficientPrivilege as error:
            raise ConfigError(f"{where}: {self._missing_right(error)}") from None
        except errors.ReadOnlySqlTransaction:
            raise ConfigError(
                f"{where}: expressions are parsed in temporary views, which a standby or a read-only session can't "
                "make; connect to the primary"
            ) from None
        except (
            errors.SyntaxErrorOrAccessRuleViolation,
            errors.DataError,
            errors.FeatureNotSupported,
        ) as error:
            reason = error.diag.message_primary or str(error)
            hint = f" ({error.diag.message_hint})" if error.diag.message_hint else ""
            raise ConfigError(f"{where}: {text!r}: {reason}{hint}; correct it") from None
        finally:
            self.connection.remove_notice_handler(note)

    def _missing_right(self, error: psycopg.Error) -> str:
        row = self._rows(
            "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMP'), "
            "pg_catalog.quote_ident(pg_catalog.current_database()), pg_catalog.quote_ident(current_user)"
        )[0]
        if row[0]:
            return f"{error.diag.message_primary}; grant {row[2]} what is missing"
        return (
            f"the role {row[2]} may not make temporary views, in which expressions are parsed; "
            f"GRANT TEMP ON DATABASE {row[1]} TO {row[2]}"
        )

    def _parse(self, table: Table, alias: str, text: str, where: str, *, window: bool = False) -> Expression:
        prefix, suffix = self._frame(table, alias)
        self._make_view(table, alias, text)
        definition, tree, names, category, columns = self._rows(_VIEW, {"oid": table.oid})[0]
        ending = re.escape(suffix)
        match = re.fullmatch(re.escape(prefix) + r"(.*?)" + ending, definition, re.DOTALL)
        if match is None or len(names) != 1:
            raise ConfigError(f"{where}: {text!r} is more than one expression; give each its own place")
        self._check_tree(tree, text, where, window=window)
        return Expression(
            _without_name(match[1], names[0]),
            frozenset(columns),
            names[0],
            ":hasAggs true" in tree,
            category == "A",
        )

    def _frame(self, table: Table, alias: str) -> tuple[str, str]:
        """What Postgres prints before and behind the one expression of a view."""
        with self.connection.transaction(force_rollback=True):
            self._make_view(table, alias, "0 AS e")
            definition = str(self._rows(_VIEW, {"oid": table.oid})[0][0])
        prefix, _, suffix = definition.partition("0 AS e")
        return prefix, suffix

    def _make_view(self, table: Table, alias: str, text: str) -> None:
        # Beside a second relation, even one without columns, Postgres prints columns with their table's alias.
        self.connection.execute(
            f"CREATE TEMP VIEW _pytube_expression AS SELECT {text}\n "
            f"FROM {table.sql} AS {alias}, (SELECT) AS _nothing".encode()
        )
        self.connection.execute("SET LOCAL search_path = ''")

    def _check_tree(self, tree: str, text: str, where: str, *, window: bool) -> None:
        """Refuse what makes a document depend on more than this table's row, by the tree that Postgres parsed."""
        what = None
        if ":hasSubLinks true" in tree:
            what = "a subquery, which may read other rows; declare them as a child section"
        elif ":hasWindowFuncs true" in tree and not window:
            what = "a window function, which reads other rows; write a query"
        elif ":hasTargetSRFs true" in tree:
            what = "a function that returns several rows; write a query"
        elif "{SQLVALUEFUNCTION" in tree:
            what = "the time or the user, which change without a row; leave it out, or have a column hold it"
        elif _WHOLE_ROW.search(tree):
            what = 'the whole row or a system column; name the columns, or "*" for all'
        else:
            functions = [int(number) for number in _FUNCTIONS.findall(tree)]
            unstable = self._rows(_UNSTABLE, {"functions": functions})
            if unstable:
                what = (
                    f"{unstable[0][0]}, whose result may change without a row; leave it out, have a column hold it, "
                    "or, if it depends on its arguments alone, declare it IMMUTABLE"
                )
        if what is not None:
            raise ConfigError(f"{where}: {_cut(text)!r} uses {what}")

    def _rows(self, query: LiteralString, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, parameters, prepare=False).fetchall()


def _without_name(target: str, name: str) -> str:
    """An entry of a SELECT list as Postgres prints it, without its AS."""
    for written in (name, quoted(name)):
        if target.endswith(f" AS {written}"):
            return target.removesuffix(f" AS {written}")
    return target


def _cut(text: str) -> str:
    return text.removesuffix("\n) AS e").removesuffix("\n) IS TRUE) AS e").removeprefix("(").removeprefix("(")
