"""What is in a database, as far as pytube makes it: for comparisons of installations."""

from __future__ import annotations

from typing import Any

from tests.helpers.capture import Conn


def _rights(acl: str, default: str) -> str:
    return f"""(SELECT array_agg(
        format('%s %s by %s', a.grantee::regrole, a.privilege_type, a.grantor::regrole)
        ORDER BY a.grantee::regrole::text COLLATE "C", a.privilege_type)
        FROM aclexplode(coalesce({acl}, {default})) AS a)::text"""


_OF_FUNCTION = _rights("p.proacl", "acldefault('f', p.proowner)")
_OF_RELATION = _rights(
    "c.relacl", """acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner)"""
)
_OF_COLUMN = _rights("t.attacl", "NULL")
_OF_SCHEMA = _rights("n.nspacl", "acldefault('n', n.nspowner)")

_OBJECTS = f"""
SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid), p.proowner::regrole::text,
    {_OF_FUNCTION}, obj_description(p.oid, 'pg_proc')
FROM pg_proc AS p WHERE p.oid >= 16384
UNION ALL
SELECT c.relkind::text, c.oid::regclass::text, concat_ws(' ', c.reloptions, pg_get_indexdef(i.indexrelid), (
    SELECT json_agg(json_build_array(t.attname, format_type(t.atttypid, t.atttypmod), t.attnotnull,
        t.attstorage, t.attidentity, pg_get_expr(d.adbin, d.adrelid), {_OF_COLUMN}) ORDER BY t.attnum)
    FROM pg_attribute AS t LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = t.attnum
    WHERE t.attrelid = c.oid AND t.attnum > 0 AND NOT t.attisdropped)), c.relowner::regrole::text,
    {_OF_RELATION}, NULL
FROM pg_class AS c LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
WHERE c.oid >= 16384 AND c.relnamespace <> 'pg_toast'::regnamespace
UNION ALL
SELECT 'constraint', concat_ws(' ', n.conrelid::regclass, n.contypid::regtype, n.conname),
    pg_get_constraintdef(n.oid), '', '', NULL
FROM pg_constraint AS n WHERE n.oid >= 16384
UNION ALL
SELECT 'trigger', t.tgname, pg_get_triggerdef(t.oid), t.tgenabled::text, '', NULL
FROM pg_trigger AS t WHERE NOT t.tgisinternal
UNION ALL
SELECT 'event trigger', e.evtname, concat_ws(' ', e.evtevent, e.evtfoid::regproc, e.evtenabled, e.evttags),
    e.evtowner::regrole::text, '', NULL
FROM pg_event_trigger AS e
UNION ALL
SELECT 'schema', n.nspname, '', n.nspowner::regrole::text, {_OF_SCHEMA}, NULL
FROM pg_namespace AS n WHERE n.oid >= 16384 AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY 1, 2, 3
"""

_RELATIONS = """
SELECT c.oid::regclass::text, CASE c.relkind WHEN 'S' THEN 'r.last_value, r.is_called' ELSE 'r' END
FROM pg_class AS c WHERE c.relnamespace = 'tube'::regnamespace AND c.relkind IN ('r', 'S')
    AND c.relname <> 'tube_sleeper'
ORDER BY 1
"""

_GENERATED = """
SELECT pg_describe_object(d.classid, d.objid, 0)
FROM pg_depend AS d LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
    LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.objid >= 16384
    AND (p.prosrc LIKE E'\\n-- Made by%' OR p.pronamespace = 'tube_capture'::regnamespace
        OR c.relkind = 'v' OR c.relname !~ '^tube_' OR c.relname ~ '^tube_sleeps')
UNION ALL
SELECT 'rights on ' || pg_describe_object(i.classoid, i.objoid, 0) FROM pg_init_privs AS i
WHERE i.privtype = 'e' AND NOT EXISTS (SELECT FROM pg_depend AS d
    WHERE d.classid = i.classoid AND d.objid = i.objoid AND d.deptype = 'e')
"""

OF_THE_EXTENSION = ("tube_private_restore_installation", "tube_installation_restored_trigger")


def objects(conn: Conn) -> list[tuple[Any, ...]]:
    """All objects but the system's, with their definitions, owners and rights."""
    rows = conn.execute(_OBJECTS.encode()).fetchall()
    return [row for row in rows if not any(name in f"{row[1]} {row[2]}" for name in OF_THE_EXTENSION)]


def content(conn: Conn) -> dict[str, list[str]]:
    """The rows of all tables in the schema `tube`, but of sleeping workers; and where its sequences are."""
    return {
        name: [
            row for (row,) in conn.execute(f"SELECT ROW({wanted})::text FROM {name} AS r ORDER BY 1".encode())
        ]
        for name, wanted in conn.execute(_RELATIONS.encode()).fetchall()
    }


def wrong_members(conn: Conn) -> list[str]:
    """Of the extension's objects, those made for tubes and attached tables: a dump would lack them.

    And what is not of the extension, but has rights that a dump would lack.
    """
    return [name for (name,) in conn.execute(_GENERATED.encode())]
