"""The doctor's look at outboxes: whether this role may deliver them, and how quickly that would go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import psycopg

from pytube.config import Config
from pytube.counts import say_count
from pytube.health.findings import Check, fail, is_expected, of_others, ok, warn
from pytube.tubes.queries import within

_PARTITIONS: Final = "SELECT outbox, partitions FROM {s}.outbox_list()"

# A worker marks and deletes records with its own rights.
_OUTBOXES: Final = """
    SELECT l.outbox, l.partitions, l.adopted, l.wakes,
        coalesce(quote_ident(n.nspname) || '.' || quote_ident(c.relname), ''),
        array_remove(ARRAY[
            CASE WHEN NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
                THEN format('USAGE ON SCHEMA %%I', n.nspname) END,
            CASE WHEN NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
                THEN format('SELECT ON %%I.%%I', n.nspname, c.relname) END,
            CASE WHEN NOT pg_catalog.has_column_privilege(c.oid, 'leader_id', 'UPDATE')
                THEN format('UPDATE (leader_id) ON %%I.%%I', n.nspname, c.relname) END,
            CASE WHEN NOT pg_catalog.has_table_privilege(c.oid, 'DELETE')
                THEN format('DELETE ON %%I.%%I', n.nspname, c.relname) END], NULL),
        c.relrowsecurity,
        l.partitions = 1 OR EXISTS (
            SELECT FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
            WHERE i.indrelid = l.tbl AND i.indisvalid
                AND x.relname ~ format('_%%s_p%%s_idx$', left(md5('outbox ' || l.outbox), 8), l.partitions)),
        (SELECT count(*) FROM (
            SELECT FROM {s}.tube_outbox_parked AS k WHERE k.outbox = l.outbox LIMIT 1000) AS p)
    FROM {s}.outbox_list() AS l
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    ORDER BY l.outbox
"""


def read_outboxes(connection: psycopg.Connection, schema: str) -> dict[str, int]:
    """The outboxes that are there, with their numbers of partitions; none when we may not look."""
    try:
        return dict(connection.execute(within(_PARTITIONS, schema)).fetchall())
    except psycopg.errors.InsufficientPrivilege:
        return {}


def check_outboxes(connection: psycopg.Connection, schema: str, config: Config) -> Iterator[Check]:
    """A finding for each outbox that is there, or should be, and more where something is wrong."""
    try:
        rows = connection.execute(within(_OUTBOXES, schema), {}).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        yield warn("outboxes", "were not looked at", f"grant this role EXECUTE on {schema}.outbox_list")
        return
    for row in rows:
        for check in _check(*row):
            yield check if is_expected(config, row[0]) else of_others(check)
    there = {row[0] for row in rows}
    for name in config.outboxes:
        if name not in there:
            yield fail(f"outbox {name}", "is not in the database", f"pytube outbox create {name}")


def _check(
    outbox: str,
    partitions: int,
    adopted: bool,
    wakes: bool,
    table: str,
    lacking: list[str],
    row_security: bool | None,
    indexed: bool,
    parked: int,
) -> Iterator[Check]:
    subject = f"outbox {outbox}"
    if not table:
        yield fail(subject, "its table was dropped", f"pytube outbox drop {outbox}")
        return
    whose = "adopted" if adopted else "its own"
    yield ok(subject, f"{say_count(partitions, 'partition')}, table {table} ({whose})")
    if lacking:
        yield fail(
            subject,
            f"this role may not do what a worker does with {table}",
            f"as its owner, grant the worker's role: {', '.join(lacking)}"
            if adopted
            else "grant this role tube_worker, or the role of this installation that stands for it",
        )
    if row_security:
        yield fail(
            subject,
            f"row-level security of {table} could hide records",
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
        )
    if not indexed:
        yield warn(
            subject,
            f"it has no index for its {partitions} partitions, so each mark reads the records of all",
            _build(outbox, table, adopted),
        )
    if not wakes:
        yield warn(
            subject,
            f"writers of {table} do not wake workers, which poll",
            f"pytube outbox adopt {outbox} {table} --wake",
        )
    if parked:
        count = "1000 or more" if parked >= 1000 else str(parked)
        yield warn(subject, f"parked records: {count}", f"pytube outbox parked {outbox}")


def _build(outbox: str, table: str, adopted: bool) -> str:
    return f"pytube outbox adopt {outbox} {table}" if adopted else f"pytube outbox create {outbox}"
