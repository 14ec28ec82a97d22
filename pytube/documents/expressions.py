"""Expressions of a declaration, parsed by Postgres, never by pytube: each as a view over its one table.

So a name can't mean a column of another table, today or after DDL, and the columns that an expression reads
are the ones that Postgres found. The view is rolled back. It needs the right to create temporary objects, and
none to read the tables.
"""

# ruff: noqa: S608 -- names are quoted, and expressions are the file's own

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import errors

from pytube.config.names import TableName, quoted
from pytube.documents.catalogue import Table, comparison, rows_of
from pytube.errors import ConfigError

_VIEW = """
    SELECT pg_catalog.pg_get_viewdef(r.ev_class), r.ev_action::text,
        ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
              WHERE a.attrelid = r.ev_class AND a.attnum > 0 ORDER BY a.attnum),
        (SELECT t.typcategory::text
         FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
         WHERE a.attrelid = r.ev_class AND a.attnum = 1),
        ARRAY(SELECT DISTINCT a.attname::text
              FROM pg_catalog.pg_depend AS d
              JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
              WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
                  AND d.refclassid = 'pg_catalog.pg_class'::regclass
                  AND d.refobjid = %(oid)s AND d.refobjsubid > 0
              ORDER BY 1)
    FROM pg_catalog.pg_rewrite AS r
    WHERE r.ev_class = 'pg_temp._pytube_expression'::regclass
"""
"""Of the view: its text and its tree, its columns, the kind of the first, and what columns it reads."""

_UNSTABLE = """
    SELECT p.oid::regprocedure::text
    FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
    WHERE p.oid = ANY (%(functions)s::pg_catalog.oid[]) AND (
        p.provolatile = 'v'
        OR p.provolatile = 's' AND (
            n.nspname <> 'pg_catalog'
            OR p.proname = 'age' AND p.pronargs = 1
            OR p.proname IN ('now', 'statement_timestamp', 'transaction_timestamp', 'version')
            OR p.proname ~ '^(pg|has|current|session|inet|txid|row_security|col|obj|shobj|query|table)_'
            OR p.proname ~ '^(cursor_to_xml|database_to_xml|schema_to_xml|to_reg)'
        )
    )
    ORDER BY 1
    LIMIT 1
"""
"""The first function whose result may change without a row.

Of Postgres' stable functions, the ones are meant that read the time or the server. The others depend on
settings, as to_char and the text of a timestamp do, and so does JSON itself.
"""

_READ_AS_TIME = """
    SELECT pg_catalog.format_type(t.oid, NULL)
    FROM pg_catalog.pg_type AS t
    LEFT JOIN pg_catalog.pg_type AS e ON e.oid = t.typelem AND t.typcategory = 'A'
    LEFT JOIN pg_catalog.pg_range AS r ON r.rngtypid = t.oid
    LEFT JOIN pg_catalog.pg_type AS s ON s.oid = r.rngsubtype
    WHERE t.oid = ANY (%(types)s::pg_catalog.oid[]) AND 'D' IN (t.typcategory, e.typcategory, s.typcategory)
    ORDER BY 1
    LIMIT 1
"""
"""The first type of times among some; arrays and ranges of times are such, too."""

_FROM_TEXT = {
    "date": "to_date(text, 'YYYY-MM-DD')",
    "timestamp with time zone": "to_timestamp(text, 'YYYY-MM-DD HH24:MI:SS')",
    "timestamp without time zone": "to_timestamp(text, 'YYYY-MM-DD HH24:MI:SS')::timestamp",
    "time without time zone": "to_timestamp(text, 'HH24:MI:SS')::time",
}
"""What to write in place of a cast: with a format, 'now' is refused."""
_FUNCTIONS = re.compile(r":(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
_READ_FROM_TEXT = re.compile(r":resulttype (\d+) :resultcollid")
"""Of a value that is made of the text of another one; no other kind of expression has these two together."""
_WHOLE_ROW = re.compile(r"\{VAR :varno \d+ :varattno (0|-\d+) ")
_ALIAS = re.compile(r"\bn\d+\.")
_TRUNCATED = "42622"
"""The SQLSTATE of the notice that a name is too long."""

_ORDER = "pg_catalog.row_number() OVER (ORDER BY "
_WINDOW = ":hasWindowFuncs true"
_NO_FRAME = ":frameOptions 1058 "
"""Of a window with an order and nothing else."""
_FAULTS = {
    ":hasSubLinks true": "a subquery, which may read other rows; declare them as a child section",
    _WINDOW: "a window function, which reads other rows; write a query",
    ":hasTargetSRFs true": "a function that returns several rows; write a query",
    ":distinctClause (": "DISTINCT, which is not an expression; remove it",
    "{SETOPERATIONSTMT": "UNION, INTERSECT or EXCEPT, which is not an expression; remove it",
    "{SQLVALUEFUNCTION": (
        "the time or the user, which change without a row; leave it out, or have a column hold it"
    ),
}
"""Signs in the tree, and their meanings."""

_LOCK_TIMEOUT = "2s"
"""The longest wait for a table's lock. A query that is only parsed needs it, too."""
_LOCKED_BY: Final = """
    SELECT pg_catalog.format('%%I.%%I', n.nspname, c.relname), pg_catalog.concat('pid ', l.pid,
        ' (' || nullif(pg_catalog.concat_ws(', ', nullif(a.application_name, ''), a.state), '') || ')')
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid AND a.state IS NOT NULL
    WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
        AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
        AND pg_catalog.strpos(%(text)s, pg_catalog.quote_ident(c.relname)) > 0
    ORDER BY NOT l.granted, 1, l.pid
    LIMIT 1
"""
"""A locked table that a text names, and the session that holds it; there may be none any more."""

_MANY: Final = 30
"""Columns of a table, beyond which a message does not list them."""


@dataclass(frozen=True, slots=True)
class Expression:
    """What Postgres made of an expression."""

    sql: str
    """In full: all names are qualified."""
    columns: frozenset[str]
    """That it reads."""
    name: str
    """Of the column that it would be in a SELECT list."""
    is_aggregate: bool
    is_array: bool = False
    is_boolean: bool = False


@dataclass(slots=True)
class Expressions:
    """Has Postgres parse the expressions of one declaration. Everything is rolled back."""

    connection: psycopg.Connection[Any]
    _frames: dict[tuple[TableName, str], tuple[str, str]] = field(default_factory=dict)
    _statement: str = ""
    """That was run last."""

    def field(self, table: Table, alias: str, text: str, where: str) -> Expression:
        """An entry of a SELECT list over the one table."""
        with self._taken_back(repr(text), where, table) as notices:
            found = self._parse(table, alias, text, where)
        if _TRUNCATED in notices:
            raise ConfigError(
                f"{where}: {text!r}: the name is longer than 63 bytes; give a shorter one with AS"
            )
        if found.name == "?column?":
            raise ConfigError(f"{where}: {text!r} has no name; give it one with AS")
        return found

    def expression(self, table: Table, alias: str, text: str, where: str) -> Expression:
        """An expression over the one table; may be an aggregate."""
        with self._taken_back(repr(text), where, table):
            text = quoted(text) if text in table.columns else text
            return self._parse(table, alias, f"({text}\n) AS e", where)

    def condition(self, table: Table, alias: str, text: str, where: str) -> Expression:
        """A condition over the one table, true or false and nothing else."""
        with self._taken_back(repr(text), where, table):
            found = self._parse(table, alias, f"({text}\n) AS e", where)
        if found.is_aggregate:
            raise ConfigError(
                f"{where}: {text!r} is an aggregate, and a condition is on one row; take it out"
            )
        if not found.is_boolean:
            raise ConfigError(f"{where}: {text!r} is neither true nor false; write a condition")
        return found

    def order(self, table: Table, alias: str, texts: Sequence[str], where: str) -> Expression:
        """The text after ORDER BY, over the one table."""
        text = ", ".join(texts)
        parts = ", ".join(quoted(one) if one in table.columns else one for one in texts)
        with self._taken_back(repr(text), where, table):
            found = self._parse(table, alias, f"{_ORDER}{parts}\n) AS e", where, window=True)
        match = re.fullmatch(r".*?\bOVER \(ORDER BY (.*)\)", found.sql, re.DOTALL)
        if match is None or found.is_aggregate:
            raise ConfigError(
                f"{where}: {text!r} is not a list of expressions to order by; write it as after ORDER BY"
            )
        return Expression(match[1], found.columns, "", is_aggregate=False)

    def check_join(self, parent: Table, here: str, table: Table, there: str, where: str) -> None:
        """Refuse columns that don't compare."""
        left, right = parent.columns[here], table.columns[there]
        text = comparison(f"b.{quoted(there)}", right, f"a.{quoted(here)}", left)
        try:
            self.check_query(f"SELECT FROM {parent.sql} AS a, {table.sql} AS b WHERE {text}", where)
        except ConfigError as error:
            if isinstance(error.__context__, errors.InsufficientPrivilege):
                raise
            raise ConfigError(
                f"{where}: {parent.name}.{here} is of type {left.type} and {table.name}.{there} of type "
                f"{right.type}, which don't compare; join by columns of one type"
            ) from None

    def check_query(self, text: str, where: str) -> None:
        """Have Postgres parse a whole query, which reads many tables."""
        with self._taken_back("what the section amounts to", where):
            self._run_one(f"CREATE TEMP VIEW _pytube_expression AS {text}")

    @contextmanager
    def _taken_back(self, what: str, where: str, table: Table | None = None) -> Iterator[list[str]]:
        """A transaction that is rolled back; gives Postgres' notices, and turns its errors into pytube's."""
        notices: list[str] = []

        def note(diagnostic: psycopg.errors.Diagnostic) -> None:
            notices.append(diagnostic.sqlstate or "")

        self.connection.add_notice_handler(note)
        try:
            with self.connection.transaction(force_rollback=True):
                self.connection.execute(
                    f"SET LOCAL client_min_messages = notice; SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"
                )
                yield notices
        except errors.InsufficientPrivilege as error:
            raise ConfigError(f"{where}: {self._missing_right(error)}") from None
        except errors.ReadOnlySqlTransaction:
            raise ConfigError(
                f"{where}: expressions are parsed in temporary views, which a standby or a read-only session "
                "can't make; connect to the primary"
            ) from None
        except errors.LockNotAvailable:
            raise ConfigError(f"{where}: not checked, as {self._who_locks()}") from None
        except psycopg.DatabaseError as error:
            is_too_much = (error.sqlstate or "").startswith("54")  # a limit of Postgres
            if isinstance(error, psycopg.OperationalError) and not is_too_much:  # no fault of the text
                raise
            hint = _ALIAS.sub("", error.diag.message_hint or "")
            reason = f"{error.diag.message_primary or error}" + (f" ({hint})" if hint else "")
            raise ConfigError(f"{where}: {what}: {reason}; {_remedy(error, table)}") from None
        finally:
            self.connection.remove_notice_handler(note)

    def _who_locks(self) -> str:
        """Why the statement that was run last did not get its locks, and what to do."""
        found = rows_of(self.connection, _LOCKED_BY, {"text": self._statement})
        what = f"{found[0][0]} is locked by {found[0][1]}" if found else "a table that it reads is locked"
        return f"{what}; try again once that session has ended"

    def _missing_right(self, error: psycopg.Error) -> str:
        row = rows_of(
            self.connection,
            "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMP'), "
            "pg_catalog.quote_ident(pg_catalog.current_database()), pg_catalog.quote_ident(current_user)",
        )[0]
        if row[0]:
            return f"{error.diag.message_primary}; grant {row[2]} the missing right"
        return (
            f"the role {row[2]} may not make temporary views, in which expressions are parsed; "
            f"GRANT TEMP ON DATABASE {row[1]} TO {row[2]}"
        )

    def _parse(self, table: Table, alias: str, text: str, where: str, *, window: bool = False) -> Expression:
        prefix, suffix = self._frame(table, alias)
        self._make_view(table, alias, text)
        definition, tree, names, category, columns = rows_of(self.connection, _VIEW, {"oid": table.oid})[0]
        is_framed = definition.startswith(prefix) and definition.endswith(suffix)
        if not is_framed or len(names) != 1:
            raise ConfigError(f"{where}: {_own(text)!r} is more than one expression; write each separately")
        reason = next(self._faults(tree, window=window), None)
        if reason is not None:
            raise ConfigError(f"{where}: {_own(text)!r} uses {reason}")
        self._plan()
        return Expression(
            _without_name(definition[len(prefix) : -len(suffix)].strip(), names[0]),
            frozenset(columns),
            names[0],
            is_aggregate=":hasAggs true" in tree,
            is_array=category == "A",
            is_boolean=category == "B",
        )

    def _frame(self, table: Table, alias: str) -> tuple[str, str]:
        """What Postgres prints before and behind the one expression of a view."""
        known = self._frames.get((table.name, alias))
        if known is None:
            with self.connection.transaction(force_rollback=True):
                self._make_view(table, alias, "0 AS e")
                definition = str(rows_of(self.connection, _VIEW, {"oid": table.oid})[0][0])
            prefix, _, suffix = definition.partition(" 0 AS e")
            known = self._frames[table.name, alias] = prefix, suffix
        return known

    def _make_view(self, table: Table, alias: str, text: str) -> None:
        # Beside a second relation, be it without columns, Postgres prints columns with their table's alias.
        self._run_one(
            f"CREATE TEMP VIEW _pytube_expression AS SELECT {text}\n "
            f"FROM {table.sql} AS {alias}, (SELECT) AS _nothing"
        )
        self.connection.execute("SET LOCAL search_path = ''")

    def _plan(self) -> None:
        """Have Postgres compute what depends on no row: it does so at planning, before it looks at rights."""
        with suppress(errors.InsufficientPrivilege), self.connection.transaction():
            self.connection.execute("EXPLAIN TABLE pg_temp._pytube_expression")

    def _run_one(self, statement: str) -> None:
        """Run a statement with text of the file in it; Postgres refuses several statements.

        They would be run, and a COMMIT among them would keep their effects.
        """
        self._statement = statement
        # With binary results psycopg uses the extended protocol, by which a text is one statement.
        self.connection.execute(statement.encode(), binary=True)

    def _faults(self, tree: str, *, window: bool) -> Iterator[str]:
        """What makes a document depend on more than this table's rows, by what Postgres parsed."""
        for sign, what in _FAULTS.items():
            if sign in tree and not (window and sign == _WINDOW):
                yield what
        if window and _NO_FRAME not in tree:
            yield "more than expressions to order by; write it as behind ORDER BY"
        if _WHOLE_ROW.search(tree):
            yield 'the whole row or a system column; name the columns, or "*" for all'
        functions = [int(number) for number in _FUNCTIONS.findall(tree)]
        for (name,) in rows_of(self.connection, _UNSTABLE, {"functions": functions}):
            yield (
                f"{name}, whose result may change without a row; leave it out, have a column hold it, or "
                "declare it IMMUTABLE, if it depends on its arguments alone"
            )
        types = [int(number) for number in _READ_FROM_TEXT.findall(tree)]
        for (name,) in rows_of(self.connection, _READ_AS_TIME, {"types": types}):
            remedy = _FROM_TEXT.get(name)
            write = (
                "have a column hold it" if remedy is None else f"write {remedy}, by the format of your texts"
            )
            yield f"a text as {name}, and texts as 'now' mean another time whenever they are read; {write}"


def _without_name(target: str, name: str) -> str:
    for written in (name, quoted(name)):
        if target.endswith(f" AS {written}"):
            return target.removesuffix(f" AS {written}")
    return target


def _own(text: str) -> str:
    """What the file says of what we had parsed."""
    for before in (_ORDER, "("):
        if text.startswith(before) and text.endswith("\n) AS e"):
            return text.removeprefix(before).removesuffix("\n) AS e")
    return text


def _remedy(error: psycopg.Error, table: Table | None) -> str:
    """What to do about a text that Postgres refuses. Its own hint is for misspelled columns."""
    renamed = isinstance(error, errors.UndefinedColumn) and not error.diag.message_hint
    if not renamed or table is None or len(table.columns) > _MANY:
        return "correct it"
    return f"correct it; {table.name} has {', '.join(table.columns)}"
