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
    ), meant AS (
        SELECT * FROM denied AS d
        WHERE d.is_known OR %(kind)s = 'table' AND NOT EXISTS (SELECT FROM denied AS o WHERE o.is_known)
    )
    SELECT grant_it || ' TO ' || quote_ident(current_user) FROM (
        SELECT 1, format('GRANT USAGE ON SCHEMA %%I', n.nspname) FROM pg_catalog.pg_namespace AS n
        WHERE NOT has_schema_privilege(n.oid, 'USAGE') AND (
            %(kind)s = 'schema' AND n.nspname = %(name)s OR n.oid IN (SELECT m.schema_oid FROM meant AS m))
        UNION ALL
        SELECT 2, format('GRANT SELECT ON %%I.%%I', m.nspname, m.relname) FROM meant AS m
        UNION ALL
        SELECT 3, format('GRANT EXECUTE ON FUNCTION %%I.%%I(%%s)', n.nspname, p.proname,
            pg_catalog.pg_get_function_identity_arguments(p.oid))
        FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
        WHERE %(kind)s = 'function' AND p.proname = %(name)s AND NOT has_function_privilege(p.oid, 'EXECUTE')
    ) AS found (place, grant_it)
    ORDER BY place, grant_it
    LIMIT 5
"""
"""The statements; to be asked as the role that was refused. Postgres names a table without its schema."""

_DENIED = re.compile(r"permission denied for (?P<kind>schema|function|[a-z ]*(?:table|view)) (?P<name>.+)")


def about(error: psycopg.Error, tables: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any]:
    """The arguments of `GRANTS` for a refusal; `tables`: known to be read, as schema and name."""
    found = _DENIED.fullmatch(error.diag.message_primary or "")
    kind, name = ("", "") if found is None else (found["kind"], found["name"])
    return {
        "kind": kind if kind in ("schema", "function", "") else "table",
        "name": name,
        "schemas": [schema for schema, _ in tables],
        "tables": [table for _, table in tables],
    }


def how_to_let_read(error: psycopg.Error, role: str, rows: Sequence[Sequence[Any]] = ()) -> str:
    """The remedy where a role may not read; `rows`: as `GRANTS` gives them."""
    quoted = psycopg.sql.Identifier(role).as_string()
    if "row-level security" in (error.diag.message_primary or ""):
        return f"as a superuser, run: ALTER ROLE {quoted} BYPASSRLS"
    if rows:
        return f"as the owner, run: {'; '.join(str(grant) for (grant,) in rows)}"
    return (
        f"grant {role} SELECT on all that the query reads, and USAGE on the schemas; where row-level "
        "security applies, BYPASSRLS, too"
    )
