"""The statements that let a role read tables which Postgres has refused it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg

GRANTS: Final = """
    WITH denied AS (
        SELECT c.relname, n.oid AS schema_oid, n.nspname, (n.nspname, c.relname) IN (
            SELECT * FROM unnest(%(schemas)s::text[], %(tables)s::text[])) AS is_known
        FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT has_table_privilege(c.oid, 'SELECT')
            AND %(name)s
                = CASE %(kind)s WHEN 'table' THEN c.relname WHEN 'schema' THEN n.nspname ELSE %(name)s END
    ), guessed AS (
        SELECT d.*, count(*) OVER () AS guesses FROM denied AS d
        WHERE %(kind)s = 'table' AND NOT EXISTS (SELECT FROM denied AS o WHERE o.is_known)
            AND has_schema_privilege(d.schema_oid, 'USAGE')
    ), meant AS (
        SELECT d.schema_oid, d.nspname, d.relname FROM denied AS d WHERE d.is_known
        UNION ALL
        SELECT g.schema_oid, g.nspname, g.relname FROM guessed AS g WHERE g.guesses = 1
    ), called AS (
        SELECT n.nspname, p.oid, p.proname, count(*) OVER () AS guesses
        FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
        WHERE %(kind)s = 'function' AND p.proname = %(name)s AND NOT has_function_privilege(p.oid, 'EXECUTE')
            AND has_schema_privilege(n.oid, 'USAGE')
    )
    SELECT grant_it || ' TO ' || quote_ident(current_user) FROM (
        SELECT 1, format('GRANT USAGE ON SCHEMA %%I', n.nspname) FROM pg_catalog.pg_namespace AS n
        WHERE NOT has_schema_privilege(n.oid, 'USAGE') AND (
            %(kind)s = 'schema' AND n.nspname = %(name)s OR n.oid IN (SELECT m.schema_oid FROM meant AS m))
        UNION ALL
        SELECT 2, format('GRANT SELECT ON %%I.%%I', m.nspname, m.relname) FROM meant AS m
        UNION ALL
        SELECT 3, format('GRANT EXECUTE ON FUNCTION %%I.%%I(%%s)', c.nspname, c.proname,
            pg_catalog.pg_get_function_identity_arguments(c.oid))
        FROM called AS c WHERE c.guesses = 1
    ) AS found (place, grant_it)
    ORDER BY place, grant_it
    LIMIT 5
"""
"""The statements; to be asked as the role that was refused.

Postgres names a table or a function without its schema. Unless the table is known to be read, its name has to
be unique in the schemas that the role may use: a grant on another table would give a needless right.
"""

_DENIED = re.compile(r"permission denied for (?P<kind>schema|function|[a-z ]*(?:table|view)) (?P<name>.+)")


def about(error: psycopg.Error, tables: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any]:
    """The arguments of `GRANTS` for a refusal; `tables`: known to be read, as schema and name."""
    kind, name = _denied(error)
    return {
        "kind": kind,
        "name": name,
        "schemas": [schema for schema, _ in tables],
        "tables": [table for _, table in tables],
    }


def _denied(error: psycopg.Error) -> tuple[str, str]:
    """The kind and the name of the refused object; both empty if unknown."""
    found = _DENIED.fullmatch(error.diag.message_primary or "")
    if found is None:
        return "", ""
    return found["kind"] if found["kind"] in ("schema", "function") else "table", found["name"]


def how_to_let_read(error: psycopg.Error, role: str, rows: Sequence[Sequence[Any]] = ()) -> str:
    """The remedy where a role may not read; `rows`: as `GRANTS` gives them."""
    quoted = psycopg.sql.Identifier(role).as_string()
    if "row-level security" in (error.diag.message_primary or ""):
        return f"as a superuser, run: ALTER ROLE {quoted} BYPASSRLS"
    if rows:
        return f"as the owner, run: {'; '.join(str(grant) for (grant,) in rows)}"
    if _denied(error)[0] == "function":
        return f"grant {role} EXECUTE on the function of this name that the query calls"
    return (
        f"grant {role} SELECT on all that the query reads, and USAGE on the schemas; where row-level "
        "security applies, BYPASSRLS, too"
    )
