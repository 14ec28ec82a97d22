"""The doctor: looks at all that a worker needs, in order of what depends on what, and says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from pytube.config import Config, SinkConfig
from pytube.db import version
from pytube.db.connect import connect_sync
from pytube.db.errors import describe, translated
from pytube.errors import ConfigError, PooledSession, PytubeError, SchemaMismatch
from pytube.health.brokers import check_brokers
from pytube.health.delivery import check_delivery
from pytube.health.findings import Check, Level, fail, ok, warn
from pytube.health.fleet import place
from pytube.health.queues import (
    check_ids,
    check_outboxes,
    check_owners,
    check_reach,
    check_shards,
    check_sources,
    check_tubes,
    read_outboxes,
    read_tubes,
)
from pytube.health.server import check_slots, check_wake
from pytube.logs import Logger, UserFaults
from pytube.sinks import build_sink, open_existing
from pytube.sources import rights
from pytube.transforms import Transforms

OLDEST_SERVER, NEWEST_SERVER = 15, 18
_ROOM = 10
"""Connections that should be left: a worker takes a handful."""
_OLD = 60.0
"""Seconds after which the doctor reports an open transaction."""


def examine(config: Config, origin: str = "postgres.dsn") -> Iterator[Check]:
    """Every finding, as it is made. Does not raise: what fails is a finding.

    Nothing is said about tubes where they could not be looked at. Of several hosts each is looked at, and
    named. What a worker refuses when it starts is the last finding: a worker is made, and opens nothing.

    Args:
        config: what a worker would use.
        origin: what names the database.
    """
    partitions: dict[str | None, Mapping[str, int]] = {}
    reported: set[str] = set()
    for host in config.hosts:
        there: dict[str, int] = {}
        for check in _examine_host(config.of_host(host), origin, there):
            reported.add(check.subject)
            yield _of_host(host, check)
        partitions[host] = there
    if len(config.hosts) > 1:
        yield from check_shards(config)
    failed: set[str] = set()
    for check in _examine_targets(config, partitions, reported):
        if check.level is Level.FAIL:
            failed.add(check.finding)
        yield check
    start = check_start(config)
    if start.finding not in failed:
        yield start


def _of_host(host: str | None, check: Check) -> Check:
    return replace(check, subject=f"{place(host)}{check.subject}")


def _examine_targets(
    config: Config, partitions: Mapping[str | None, Mapping[str, int]], reported: Collection[str]
) -> Iterator[Check]:
    """What documents and records are sent to, whatever host they come from, and what elections need.

    `reported`: the subjects of the findings of hosts.
    """
    for name, tube in config.tubes.items():
        check, loss = check_sink(name, tube.sink), f"documents of {name}"
        if check.level is not Level.OK and loss in reported:
            # An index that has taken the place of ours can be made to open; then it would stay.
            check = replace(check, remedy=f"see above: {loss}; if this is still said then: {check.remedy}")
        yield check
        if tube.transforms:
            yield check_transforms(name, tube.transforms)
    for host, check in check_brokers(config, partitions):
        yield _of_host(host, check)


def _examine_host(config: Config, origin: str, partitions: dict[str, int]) -> Iterator[Check]:
    """What is of one host; `partitions` gets how many its tubes and outboxes have."""
    tubes: dict[str, int] | None = None
    dsn, schema = config.postgres.only_dsn.get_secret_value(), config.postgres.schema_name
    try:
        with connect_sync(dsn, schema, application_name="pytube doctor") as connection, translated():
            yield ok("Postgres", f"{_where(connection)} answers ({origin})")
            yield check_pooler(connection)
            yield from check_server(connection)
            installed = check_version(connection, schema)
            yield installed
            there = installed.level is Level.OK
            yield check_rights(connection, schema)
            if there:
                yield check_sequence(connection, schema)
                tubes = read_tubes(connection, schema)
            if tubes is not None:
                partitions |= tubes | read_outboxes(connection, schema)
                yield from check_delivery(connection, schema, config)
                yield from check_ids(connection, schema)
                yield from check_owners(connection, schema)
                yield from check_reach(connection, schema, config)
                yield from check_outboxes(connection, schema, config)
            yield check_connections(connection)
            yield from check_settings(connection)
            yield from check_transactions(connection)
            yield from check_slots(connection)
            yield from check_wake(connection)
    except PooledSession as error:
        finding, _, remedy = str(error).rpartition("; ")
        yield fail("pooler", finding, remedy)
    except PytubeError as error:
        yield fail("Postgres", f"{error} ({origin})", "correct postgres.dsn, or start the server")
    except psycopg.Error as error:
        yield fail("Postgres", f"it refused: {describe(error)}", "see the server's log")
    if tubes is not None:
        yield from check_tubes(config, tubes)
        yield from check_sources(config, [name for name in config.tubes if name in tubes])


def _where(connection: psycopg.Connection) -> str:
    """Which database it is, and as whom."""
    info = connection.info
    return f"database {info.dbname} at {info.host}:{info.port}, as {info.user},"


# --- Postgres ---------------------------------------------------------------------------

_SERVER = """
    SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
        pg_catalog.pg_is_in_recovery()
"""

_RIGHTS_TO_INSTALL = """
    SELECT current_user,
        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
"""

# What this role lacks of what a worker needs; no row when nothing is installed.
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
        yield fail("server", "it is a standby, which takes no writes", "connect to the primary")


def check_version(connection: psycopg.Connection, schema: str) -> Check:
    """Whether our SQL is there in the version that is needed."""
    try:
        version.check(connection, schema)
    except SchemaMismatch as error:
        finding, _, remedy = str(error).rpartition("; ")
        return fail("SQL", finding, remedy)
    except psycopg.errors.InsufficientPrivilege:
        return fail("SQL", "its version can't be read", "see below: rights")
    return ok("SQL", f"version {version.needed()} in the schema {schema}")


def check_rights(connection: psycopg.Connection, schema: str) -> Check:
    """Whether this role may do what a worker does; before an installation, whether it may install."""
    needs = {"schema": schema, "functions": sorted(rights.FUNCTIONS), "tables": sorted(rights.TABLES)}
    row = connection.execute(_RIGHTS, needs).fetchone()
    if row is None:
        role, may = _row(connection, _RIGHTS_TO_INSTALL)
        if may:
            return ok("rights", f"{role} may install")
        return fail(
            "rights",
            f"{role} may not create a schema in this database",
            f"as its owner, run: GRANT CREATE ON DATABASE … TO {role}",
        )
    role, usage, functions, tables, worker = row
    grants = [] if usage else [f"GRANT USAGE ON SCHEMA {schema} TO {role}"]
    if tables:
        grants.append(f"GRANT SELECT ON {_qualified(schema, tables)} TO {role}")
    if functions:
        grants.append(f"GRANT EXECUTE ON FUNCTION {_qualified(schema, functions)} TO {role}")
    if grants and worker is not None:
        grants = [f"GRANT {sql.Identifier(worker).as_string()} TO {sql.Identifier(role).as_string()}"]
    if grants:
        return fail(
            "rights",
            f"{role} may not do what a worker does",
            "run the doctor as the worker's role; if that is this one, as the role that installed, run: "
            + "; ".join(grants),
        )
    return ok("rights", f"{role} may do what a worker does")


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
        return warn("connections", finding, "raise max_connections, or close what is not needed")
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
    """Which way the session takes; where a pooler gives us none of our own, there is no session to check."""
    (pid,) = _row(connection, "SELECT pg_catalog.pg_backend_pid()")
    if pid == connection.info.backend_pid:
        return ok("pooler", "none")
    return ok("pooler", "in session mode")


def _row(connection: psycopg.Connection, query: LiteralString) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None  # these queries always have one
    return row


# --- sinks ------------------------------------------------------------------------------


def check_sink(tube: str, config: SinkConfig) -> Check:
    """Open the sink of a tube without making anything there, and close it."""
    subject = f"sink of {tube}"
    try:
        missing = asyncio.run(_open_and_close(config))
    except ConfigError as error:
        return fail(subject, str(error), f'correct [tube."{tube}".sink]')
    except TimeoutError:
        finding = f"{config.type} did not open within {config.request_timeout:g} s"
        return fail(subject, finding, "see that it is up and can be reached from here")
    except PytubeError as error:
        return fail(subject, str(error), "see that it is up and can be reached from here")
    except Exception as error:  # noqa: BLE001 - a sink may be anybody's code
        finding = f"{config.type} failed to open: {type(error).__name__}: {error}"
        return fail(subject, finding, "see the sink's documentation")
    if missing is not None:
        remedy = (
            f"start a worker: pytube worker --tube {tube}; after a loss: pytube backfill start --tube {tube}"
        )
        return warn(
            subject, f"{missing}; a worker makes it for a tube that is new, or is filled again", remedy
        )
    return ok(subject, f"{config.type} opens")


def check_transforms(tube: str, targets: Sequence[str]) -> Check:
    """Import the transforms of a tube; none is called."""
    subject = f"transforms of {tube}"
    log = Logger("pytube.doctor", tube=tube)
    try:
        Transforms.load(targets, tube, log, UserFaults(log))
    except ConfigError as error:
        return fail(subject, str(error), f'correct [tube."{tube}"]')
    return ok(subject, f"{', '.join(targets)}: there, and not called")


async def _open_and_close(config: SinkConfig) -> str | None:
    """What a worker would have to make first; None: it was open."""
    sink = build_sink(config.type, config.options, request_timeout=config.request_timeout, parts=config.parts)
    try:
        async with asyncio.timeout(config.request_timeout):
            return await open_existing(sink)
    finally:
        await sink.close()


# --- the worker itself ------------------------------------------------------------------


def check_start(config: Config) -> Check:
    """Whether a worker can be made: with the packages and options that it needs. It opens nothing."""
    from pytube.worker import Worker  # late: it takes as long to load as the rest of the doctor

    if not (config.tubes or config.outboxes):
        return warn(
            "worker",
            "nothing is configured to be served, so none was tried",
            'add a section [tube."NAME"] with its sink, or [outbox."NAME"]',
        )
    try:
        worker = Worker(config)
    except ConfigError as error:
        return fail("worker", str(error), "a worker ends with that as it starts: mend it")
    asyncio.run(worker.stop())
    listens = (
        "" if config.worker.listen is None else f"; whether {config.worker.listen} is free was not tried"
    )
    return ok("worker", f"can be made as configured: packages and options{listens}")
