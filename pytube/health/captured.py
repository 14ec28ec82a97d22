"""The doctor's look at attached tables: whether their writes are captured."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from pytube.counts import say_count
from pytube.health.findings import Check, Look, fail, judged, ok, warn
from pytube.tubes.queries import within

_NAMED = 3
"""Parts of a table that a finding names, where more are concerned."""

_SYNC = "SELECT pg_catalog.format('SELECT %%I.tube_sync();', %s::text)"
_NOT_AGREED = """
    SELECT a.tbl::text, c.relowner::regrole::text, a.tube
    FROM {s}.tube_attachment AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.tbl
    WHERE NOT EXISTS (
        SELECT FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
        WHERE t.tgrelid = a.tbl AND p.proname = a.trigger_function AND p.proowner = c.relowner
            AND p.prosecdef)
    ORDER BY 1, 3
"""

# A table has a trigger for each kind of write that may name it, and so has each of its parts. A restored one
# has other parts than are stored, until its owner looks.
_NOT_FIRING = """
    SELECT a.tube, a.tbl::text, k.oid::regclass::text, k.oid = a.tbl, k.relowner::regrole::text,
        (SELECT o.relowner::regrole::text FROM pg_catalog.pg_class AS o WHERE o.oid = a.tbl),
        array_agg(e.event ORDER BY e.place) FILTER (WHERE t.tgname IS NULL),
        array_agg(e.event ORDER BY e.place) FILTER (WHERE t.tgname IS NOT NULL),
        array_agg(CASE WHEN a.replica THEN e.always ELSE 'ENABLE' END
            || ' TRIGGER ' || pg_catalog.quote_ident(t.tgname) ORDER BY e.place)
            FILTER (WHERE t.tgname IS NOT NULL)
    FROM {s}.tube_attachment AS a
    CROSS JOIN LATERAL unnest(
        CASE WHEN a.tbl = ANY (a.members) THEN a.members ELSE ARRAY[a.tbl::oid] END) AS m (rel)
    JOIN pg_catalog.pg_class AS k ON k.oid = m.rel
    JOIN (VALUES
        (1, 'INSERT', 4, 'rp', 'DR', 'ENABLE'), (2, 'UPDATE', 16, 'rp', 'DR', 'ENABLE'),
        (3, 'DELETE', 8, 'rp', 'DR', 'ENABLE'), (4, 'TRUNCATE', 34, 'r', 'DR', 'ENABLE ALWAYS'),
        (5, 'rows of replication', 29, 'r', 'DO', 'ENABLE REPLICA')
    ) AS e (place, event, tgtype, kinds, silent, always)
        ON pg_catalog.strpos(e.kinds, k.relkind::text) > 0 AND (e.place < 5 OR a.replica)
    LEFT JOIN (pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid)
        ON t.tgrelid = k.oid AND t.tgtype = e.tgtype AND p.proname = a.trigger_function
    WHERE t.tgname IS NULL OR pg_catalog.strpos(e.silent, t.tgenabled::text) > 0
    GROUP BY a.tube, a.tbl, k.oid
    ORDER BY a.tube, a.tbl::text, k.oid <> a.tbl, 5, 7, 8, 3
"""


# The rows of these sessions fire only the triggers of tables that are attached with --replica.
_AS_REPLICA = """
    WITH setting AS (
        SELECT DISTINCT ON (s.setrole) s.setrole, s.setdatabase, pg_catalog.lower(c) AS text
        FROM pg_catalog.pg_db_role_setting AS s, unnest(s.setconfig) AS c
        WHERE pg_catalog.lower(c) LIKE 'session_replication_role=%' AND s.setdatabase IN (0, (
            SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()))
        ORDER BY s.setrole, s.setdatabase DESC
    ), found AS (
        SELECT r.rolname::text, CASE WHEN s.setrole = 0 AND s.setdatabase <> 0 THEN 'DATABASE %2$I'
            ELSE 'ROLE ' || CASE WHEN s.setrole = 0 THEN 'ALL' ELSE '%1$I' END
                || CASE WHEN s.setdatabase <> 0 THEN ' IN DATABASE %2$I' ELSE '' END END AS altered
        FROM setting AS s LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole
        WHERE s.text = 'session_replication_role=replica' AND (s.setrole = 0 OR r.rolcanlogin)
        UNION ALL
        SELECT NULL, 'SYSTEM' FROM pg_catalog.pg_settings AS s
        WHERE s.name = 'session_replication_role' AND s.setting = 'replica'
            AND s.source IN ('configuration file', 'command line', 'environment variable')
    )
    SELECT f.rolname, pg_catalog.format('ALTER ' || f.altered || ' RESET session_replication_role', f.rolname,
            pg_catalog.current_database())
        || CASE f.altered WHEN 'SYSTEM' THEN '; SELECT pg_reload_conf()' ELSE '' END
    FROM found AS f WHERE EXISTS (SELECT FROM {s}.tube_attachment AS a WHERE NOT a.replica)
    ORDER BY 1 NULLS FIRST, 2
"""

_NO_TABLE = """
    SELECT l.tube FROM {s}.tube_list() AS l WHERE l.tbl IS NULL
        AND l.tube NOT IN (SELECT d.tube FROM {s}.tube_documents() AS d WHERE d.companion_of IS NOT NULL)
    ORDER BY l.tube
"""


class _Silent(NamedTuple):
    """A table, or a part of it, some of whose triggers are missing or don't fire."""

    tube: str
    table: str
    part: str
    is_table: bool
    owner: str
    owner_of_table: str
    missing: list[str] | None
    disabled: list[str] | None
    enable: list[str] | None


def check_capture(look: Look) -> Iterator[Check]:
    """Whether owners of tables have agreed, and all triggers are there and fire."""
    yield from _check_attached(look)
    yield from _check_roles(look)
    given_away = set()
    ((sync,),) = look.connection.execute(_SYNC, [look.schema]).fetchall()
    for table, owner, tube in look.connection.execute(within(_NOT_AGREED, look.schema)).fetchall():
        given_away.add((tube, table))
        yield fail(
            f"owner of {table}",
            f"is {owner}, who has not agreed to be captured by tube {tube}: its writes are missed",
            f"run as {owner}, or as a role with its rights: {sync}",
        )
    if not given_away:
        yield ok("owners", "of attached tables have agreed to be captured")
    rows = [_Silent(*row) for row in look.connection.execute(within(_NOT_FIRING, look.schema)).fetchall()]
    silent = [row for row in rows if (row.tube, row.table) not in given_away]
    for _, alike in groupby((row for row in silent if row.missing), _kind_of_missing):
        yield _check_missing(list(alike), sync)
    for _, alike in groupby((row for row in silent if row.disabled), _kind_of_disabled):
        yield _check_disabled(list(alike))
    if not silent:
        yield ok("triggers", "of attached tables are there, and fire")


def _check_attached(look: Look) -> Iterator[Check]:
    """Whether each tube has a table: a dropped one is detached, and a new one of its name is another."""
    for (tube,) in look.connection.execute(within(_NO_TABLE, look.schema)).fetchall():
        section = look.config.tubes.get(tube)
        if section is not None and section.enrich.mode == "none":
            continue  # its keys come from manual touches, and nothing is read
        check = warn(
            f"tables of {tube}",
            "none is attached, so no write is captured; of a table that was dropped, the documents stay",
            shlex.join(["pytube", "tube", "attach", tube, "TABLE"]) + ", then backfill it",
        )
        yield judged(check, look.config, tube)


def _check_roles(look: Look) -> Iterator[Check]:
    """Whether writers have `session_replication_role` set so that no trigger fires for their writes."""
    for role, reset in look.connection.execute(within(_AS_REPLICA, look.schema)).fetchall():
        who, judge = ("all roles without their own setting", fail) if role is None else (f"role {role}", warn)
        yield judge(
            "replication role",
            f"session_replication_role is replica for {who}: writes to tables attached without --replica are "
            "missed",
            f"run: {reset}; then reconnect its sessions, and backfill the tables that it has written to",
        )


def _kind_of_missing(row: _Silent) -> tuple[object, ...]:
    """Equal for the parts of a table that share a finding."""
    return row.tube, row.table, row.is_table, row.owner, row.missing


def _kind_of_disabled(row: _Silent) -> tuple[object, ...]:
    return row.tube, row.table, row.is_table, row.owner, row.disabled


def _check_missing(rows: list[_Silent], sync: str) -> Check:
    row = rows[0]
    who = f"{row.owner}, or as a role with its rights"
    if row.owner != row.owner_of_table:  # both have to agree
        who = f"a role with the rights of {row.owner_of_table} and {row.owner}"
    finding = f"tube {row.tube} has none there for {', '.join(row.missing or ())}{_missed(rows)}"
    # Most writes name the table.
    return (fail if row.is_table else warn)(f"triggers of {_named(rows)}", finding, f"run as {who}: {sync}")


def _check_disabled(rows: list[_Silent]) -> Check:
    row = rows[0]
    enable = " ".join(f"ALTER TABLE {one.part} {', '.join(one.enable or ())};" for one in rows)
    backfill = shlex.join(["pytube", "backfill", "start", row.tube, "--table", row.table])
    finding = f"of tube {row.tube}, they don't fire for {', '.join(row.disabled or ())}{_missed(rows)}"
    remedy = f"run as {row.owner}: {enable} then: {backfill}"
    return (fail if row.is_table else warn)(f"triggers of {_named(rows)}", finding, remedy)


def _named(rows: list[_Silent]) -> str:
    """The table, its only part that is concerned, or how many of its parts are."""
    return rows[0].part if len(rows) == 1 else f"{say_count(len(rows), 'part')} of {rows[0].table}"


def _missed(rows: list[_Silent]) -> str:
    if len(rows) == 1:
        return f"{'' if rows[0].is_table else ' by its name'}, so such writes are missed"
    some = ", ".join(row.part for row in rows[:_NAMED])
    return f" by their names ({some}{', …' if len(rows) > _NAMED else ''}), so such writes are missed"
