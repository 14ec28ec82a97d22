"""The doctor's look at the server: what fills its disk, and whose writes wake no worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import psycopg
from psycopg import sql

from pytube.health.findings import Check, ok, warn

# Everybody may read these. A slot that nobody uses holds back all WAL from now on; one that is used counts
# where it holds back more than max_wal_size.
_SLOTS: Final = """
    SELECT slot_name::text, active, wal_status = 'lost',
        pg_catalog.pg_size_pretty(pg_catalog.pg_wal_lsn_diff(
            CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                ELSE pg_catalog.pg_current_wal_lsn() END, restart_lsn)),
        current_setting('max_slot_wal_keep_size')
    FROM pg_catalog.pg_replication_slots
    WHERE wal_status = 'lost' OR restart_lsn IS NOT NULL AND (
        NOT active AND NOT temporary OR wal_status IN ('extended', 'unreserved'))
    ORDER BY restart_lsn, slot_name
"""

# Whose sessions have it off: of roles that may log in, by the setting that is theirs here; role 0: others.
# What is no boolean counts as off (tube_wakes). No row where this session has it off: workers poll then.
_WAKE: Final = """
    WITH setting AS (
        SELECT DISTINCT ON (s.setrole) s.setrole, s.setdatabase,
            lower(pg_catalog.substr(c, pg_catalog.length('pytube.wake=') + 1)) AS value
        FROM pg_catalog.pg_db_role_setting AS s, unnest(s.setconfig) AS c
        WHERE c LIKE 'pytube.wake=%%' AND s.setdatabase IN (0, (
            SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()))
        ORDER BY s.setrole, s.setdatabase DESC
    ), session AS (
        SELECT lower(coalesce(nullif(pg_catalog.current_setting('pytube.wake', true), ''),
            CASE current_setting('max_prepared_transactions') WHEN '0' THEN 'on' ELSE 'off' END)) AS value
    )
    SELECT r.rolname::text, s.setdatabase <> 0, pg_catalog.current_database()::text
    FROM session AS me, setting AS s LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole
    WHERE me.value = ANY (%(on)s) AND s.value <> ALL (%(on)s) AND s.value <> ''
        AND (s.setrole = 0 OR r.rolcanlogin)
    ORDER BY 1 NULLS LAST
"""
_ON: Final = ["on", "true", "tru", "tr", "t", "yes", "ye", "y", "1"]
"""What Postgres reads as true."""


def check_slots(connection: psycopg.Connection) -> Iterator[Check]:
    """Replication slots that hold WAL back: the server stops when its disk is full."""
    try:
        rows = connection.execute(_SLOTS).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        yield warn(
            "replication slots", "were not looked at", "grant this role SELECT on pg_replication_slots"
        )
        return
    for name, active, is_lost, held, limit in rows:
        drop = f"SELECT pg_drop_replication_slot({sql.Literal(name).as_string()})"
        subject = f"replication slot {name}"
        if is_lost:
            finding = "lost WAL that its consumer had not read, which has to start anew"
            yield warn(subject, finding, f"set that consumer up again, and drop the slot: {drop}")
            continue
        until = "until the disk is full" if limit == "-1" else f"up to max_slot_wal_keep_size ({limit})"
        if active:
            finding = (
                f"its consumer is behind, and it holds back {held} of WAL, more than max_wal_size; {until}"
            )
            yield warn(subject, finding, "see why its consumer is slow, or give the disk room")
        else:
            finding = f"nobody uses it, and it holds back {held} of WAL, more with each write, {until}"
            yield warn(
                subject, finding, f"start its consumer; if that is gone for good, as a superuser: {drop}"
            )
    if not rows:
        yield ok("replication slots", "none holds WAL back")


def check_wake(connection: psycopg.Connection) -> Iterator[Check]:
    """Roles with `pytube.wake` off, where workers sleep because this role has it on."""
    rows = connection.execute(_WAKE, {"on": _ON}).fetchall()
    for role, is_here, database in rows:
        where = sql.Identifier(database).as_string()
        if role is None:
            who = f"roles of database {database} without a setting of their own"
            reset = f"ALTER DATABASE {where} RESET pytube.wake"
        else:
            who = f"role {role}"
            reset = f"ALTER ROLE {sql.Identifier(role).as_string()}"
            reset += f" IN DATABASE {where} RESET pytube.wake" if is_here else " RESET pytube.wake"
        yield warn(
            "wake-ups",
            f"writes of {who} wake no worker (pytube.wake is off), and this role's workers sleep until they "
            "are woken: such a change may wait for up to 60 s",
            f"run: {reset}; or have workers poll: ALTER DATABASE {where} SET pytube.wake = off, "
            "and restart them",
        )
    if not rows:
        yield ok("wake-ups", "pytube.wake is off for no role whose writes a worker sleeps through")
