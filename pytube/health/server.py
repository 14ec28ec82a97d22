"""The doctor's look at the server: what a worker needs, what fills its disk, whose writes wake no worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from pytube.db import version
from pytube.errors import SchemaMismatch
from pytube.health.findings import Check, fail, ok, refused, warn
from pytube.sources import queries

OLDEST_SERVER, NEWEST_SERVER = 15, 18
_ROOM = 10
"""Connections that should be left: a worker takes a handful."""
_OLD = 60.0
"""Seconds after which the doctor reports an open transaction."""

_SERVER = """
    SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
        pg_catalog.pg_is_in_recovery()
"""

_RIGHTS_TO_INSTALL = """
    SELECT current_user,
        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
"""

# The rights of a worker that this role does not have; no row when nothing is installed.
_RIGHTS = r"""
    SELECT current_user, pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
        ARRAY(
            SELECT p.proname::text FROM pg_catalog.pg_proc p
            WHERE p.pronamespace = n.oid AND p.proname = ANY(%(functions)s)
                AND NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
            ORDER BY 1),
        ARRAY(
            SELECT c.relname::text FROM pg_catalog.pg_class c
            WHERE c.relnamespace = n.oid AND c.relname = ANY(%(tables)s)
                AND NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
            ORDER BY 1),
        (SELECT w.rolname::text FROM pg_catalog.pg_roles o JOIN pg_catalog.pg_roles w
                ON w.rolname = pg_catalog.left(o.rolname, -6) || '_worker'
            WHERE o.oid = n.nspowner AND o.rolname LIKE '%%\_owner')
    FROM pg_catalog.pg_namespace n
    WHERE n.nspname = %(schema)s AND EXISTS (
        SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'tube_version')
"""

_SEQUENCE = """
    SELECT seqcache, seqincrement, seqcycle
    FROM pg_catalog.pg_sequence WHERE seqrelid = to_regclass(%(sequence)s)
"""

# pg_stat_activity hides from most roles what kind of session another one is.
_CONNECTIONS = """
    SELECT current_setting('max_connections')::integer
            - current_setting('superuser_reserved_connections')::integer
            - coalesce(current_setting('reserved_connections', true)::integer, 0),
        (SELECT sum(numbackends)::bigint FROM pg_catalog.pg_stat_database)
"""

_SETTINGS = """
    SELECT name, reset_val FROM pg_catalog.pg_settings
    WHERE name IN ('idle_in_transaction_session_timeout', 'synchronous_commit', 'fsync',
        'full_page_writes')
"""

# Only a transaction that has an xid holds back the settled seq, in whatever database it is.
_OLD_TRANSACTIONS = """
    SELECT 'transaction of pid ' || pid || ' (' || coalesce(nullif(application_name, ''), backend_type)
        || ', ' || coalesce(state, 'hidden') || ')',
        extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age,
        'end it: SELECT pg_terminate_backend(' || pid || ')'
    FROM pg_catalog.pg_stat_activity
    WHERE backend_xid IS NOT NULL AND xact_start < clock_timestamp() - %(age)s * interval '1 second'
    UNION ALL
    SELECT 'prepared transaction ' || quote_literal(gid) || ' in ' || quote_ident(database),
        extract(epoch FROM clock_timestamp() - prepared)::float8,
        'if its coordinator has forgotten it, in database ' || quote_ident(database)
            || ': ROLLBACK PREPARED ' || quote_literal(gid) || ', or COMMIT PREPARED'
    FROM pg_catalog.pg_prepared_xacts
    WHERE prepared < clock_timestamp() - %(age)s * interval '1 second'
    ORDER BY age DESC
    LIMIT 10
"""

_SEES_ALL = """
    SELECT pg_catalog.quote_ident(current_user), pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
"""

# All roles may read these. An unused slot holds back all WAL from now on; a used one counts
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

# The roles whose sessions have it off: roles that may log in, by their setting here; role 0: others. A value
# that is not a boolean counts as off (tube_wakes). No row if this session has it off: workers poll then.
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


def check_server(connection: psycopg.Connection) -> Iterator[Check]:
    """Which server it is."""
    number, name, standby = _row(connection, _SERVER)
    major = number // 10_000
    supported = f"{OLDEST_SERVER} to {NEWEST_SERVER}"
    if major < OLDEST_SERVER:
        yield fail("server", f"Postgres {name} is too old", f"use Postgres {supported}")
    elif major > NEWEST_SERVER:
        yield warn("server", f"Postgres {name} is not tested", f"use {supported}, or a newer pytube")
    else:
        yield ok("server", f"Postgres {name}")
    if standby:
        yield fail("server", "it is a standby, so it is read-only", "connect to the primary")


def check_version(connection: psycopg.Connection, schema: str) -> Check:
    """Whether pytube's SQL is installed in the needed version."""
    try:
        version.check(connection, schema)
    except SchemaMismatch as error:
        return refused("SQL", str(error))
    except psycopg.errors.InsufficientPrivilege:
        return fail("SQL", "its version can't be read", "see below: rights")
    return ok("SQL", f"version {version.needed()} in the schema {schema}")


def check_rights(connection: psycopg.Connection, schema: str) -> Check:
    """Whether this role may do what a worker does; before an installation, whether it may install."""
    needs = {"schema": schema, "functions": sorted(queries.FUNCTIONS), "tables": sorted(queries.TABLES)}
    row = connection.execute(_RIGHTS, needs).fetchone()
    if row is None:
        role, may = _row(connection, _RIGHTS_TO_INSTALL)
        if may:
            return ok("rights", f"{role} may install")
        return fail(
            "rights",
            f"{role} may not create a schema in this database",
            f"as its owner, run: GRANT CREATE ON DATABASE … TO {sql.Identifier(role).as_string()}",
        )
    role, usage, functions, tables, worker = row
    to = sql.Identifier(role).as_string()
    grants = [] if usage else [f"GRANT USAGE ON SCHEMA {sql.Identifier(schema).as_string()} TO {to}"]
    if tables:
        grants.append(f"GRANT SELECT ON {_qualified(schema, tables)} TO {to}")
    if functions:
        grants.append(f"GRANT EXECUTE ON FUNCTION {_qualified(schema, functions)} TO {to}")
    if grants and worker is not None:
        grants = [f"GRANT {sql.Identifier(worker).as_string()} TO {to}"]
    if grants:
        return fail(
            "rights",
            f"{role} does not have a worker's rights",
            "run the doctor as the worker's role; if that is this one, as the role that installed, run: "
            + "; ".join(grants),
        )
    return ok("rights", f"{role} has a worker's rights")


def _qualified(schema: str, names: list[str]) -> str:
    return ", ".join(sql.Identifier(schema, name).as_string() for name in names)


def check_sequence(connection: psycopg.Connection, schema: str) -> Check:
    """The sequence of seqs must hand out numbers in order."""
    name = sql.Identifier(schema, "tube_seq").as_string()
    row = connection.execute(_SEQUENCE, {"sequence": name}).fetchone()
    if row == (1, 1, False):
        return ok("tube_seq", "CACHE 1, INCREMENT 1")
    found = "is missing" if row is None else "was altered: {} {} {}".format(*row)
    return fail(
        "tube_seq",
        f"{name} {found}; pods could be overlooked",
        f"ALTER SEQUENCE {name} INCREMENT 1 CACHE 1 NO CYCLE, then restart the workers",
    )


def check_connections(connection: psycopg.Connection) -> Check:
    """Whether there is room for a worker's sessions."""
    most, used = _row(connection, _CONNECTIONS)
    finding = f"{used} of {most} in use"
    if most - used < _ROOM:
        return warn("connections", finding, "raise max_connections, or close connections that are not needed")
    return ok("connections", finding)


def check_settings(connection: psycopg.Connection) -> Iterator[Check]:
    """Settings of the server that matter to queues."""
    settings: dict[str, str] = dict(connection.execute(_SETTINGS).fetchall())
    if settings["idle_in_transaction_session_timeout"] == "0":
        yield warn(
            "idle transactions",
            "idle_in_transaction_session_timeout is off, so a forgotten transaction slows "
            "every queue down for as long as it is open",
            "set it for the applications' roles, e.g. to 5min",
        )
    else:
        yield ok("idle transactions", "idle_in_transaction_session_timeout is set")
    for name in ("synchronous_commit", "fsync", "full_page_writes"):
        if settings[name] == "off":
            yield warn(
                name,
                "is off, so a crash of the server can lose changes that sinks have seen",
                f"set {name} to on",
            )


def check_transactions(connection: psycopg.Connection) -> Iterator[Check]:
    """Transactions that hold back what workers may take for granted."""
    rows = connection.execute(_OLD_TRANSACTIONS, {"age": _OLD}).fetchall()
    role, may_see = _row(connection, _SEES_ALL)
    for which, age, remedy in rows:
        yield warn("transactions", f"the {which} is open for {age:.0f} s and slows workers down", remedy)
    if not rows:
        whose = "none" if may_see else "none of this role's"
        hidden = (
            "" if may_see else f"; others are hidden from it (GRANT pg_read_all_stats TO {role} shows them)"
        )
        yield ok("transactions", f"{whose} that wrote is open for more than {_OLD:.0f} s{hidden}")


def check_pooler(connection: psycopg.Connection) -> Check:
    """The way of the session; if a pooler gives no dedicated one, there is no session to check."""
    (pid,) = _row(connection, "SELECT pg_catalog.pg_backend_pid()")
    if pid == connection.info.backend_pid:
        return ok("pooler", "none")
    return ok("pooler", "in session mode")


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
            finding = "lost WAL that its consumer had not read, so the consumer has to start anew"
            yield warn(subject, finding, f"set that consumer up again, and drop the slot: {drop}")
            continue
        until = "until the disk is full" if limit == "-1" else f"up to max_slot_wal_keep_size ({limit})"
        if active:
            finding = (
                f"its consumer is behind, and it holds back {held} of WAL, more than max_wal_size; {until}"
            )
            yield warn(subject, finding, "see why its consumer is slow, or give the disk room")
        else:
            finding = f"it has no consumer, and retains {held} of WAL, more with each write, {until}"
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
            who = f"roles of database {database} without their own setting"
            reset = f"ALTER DATABASE {where} RESET pytube.wake"
        else:
            who = f"role {role}"
            reset = f"ALTER ROLE {sql.Identifier(role).as_string()}"
            reset += f" IN DATABASE {where} RESET pytube.wake" if is_here else " RESET pytube.wake"
        yield warn(
            "wake-ups",
            f"writes of {who} wake no worker (pytube.wake is off), and this role's workers sleep until they "
            "are woken: a change may wait for up to 60 s",
            f"run: {reset}; or have workers poll: ALTER DATABASE {where} SET pytube.wake = off, "
            "and restart them",
        )
    if not rows:
        yield ok("wake-ups", "pytube.wake is off for no role whose writes a worker sleeps through")


def _row(connection: psycopg.Connection, query: LiteralString) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None  # these queries always have one
    return row
