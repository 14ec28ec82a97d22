"""What the doctor looks at in Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
from psycopg import errors, sql

from pytube.db import version
from pytube.db.connect import connect_sync
from pytube.errors import SchemaMismatch
from pytube.health import queries
from pytube.health.check import Check, fail, ok, warn
from pytube.sources import rights

OLDEST_SERVER, NEWEST_SERVER = 15, 18
_ROOM = 10
"""Connections that should be left: a worker takes a handful."""

_OLD = 60.0
"""Seconds after which an open transaction is worth a word."""


def check_server(connection: psycopg.Connection) -> Iterator[Check]:
    """Which server it is."""
    number, name, standby = _row(connection, queries.SERVER)
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
    except errors.InsufficientPrivilege:
        return fail("SQL", "its version can't be read", "see below: rights")
    return ok("SQL", f"version {version.needed()} in the schema {schema}")


def check_rights(connection: psycopg.Connection, schema: str) -> Check:
    """Whether this role may do what a worker does; before an installation, whether it may install."""
    needs = {"schema": schema, "functions": sorted(rights.FUNCTIONS), "tables": sorted(rights.TABLES)}
    row = connection.execute(queries.RIGHTS, needs).fetchone()
    if row is None:
        role, may = _row(connection, queries.RIGHTS_TO_INSTALL)
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
        grants.append(f"GRANT SELECT ON {_within(schema, tables)} TO {role}")
    if functions:
        grants.append(f"GRANT EXECUTE ON FUNCTION {_within(schema, functions)} TO {role}")
    if grants and worker is not None:
        grants = [f"GRANT {sql.Identifier(worker).as_string()} TO {sql.Identifier(role).as_string()}"]
    if grants:
        return fail(
            "rights",
            f"{role} may not do what a worker does",
            "as the role that installed, run: " + "; ".join(grants),
        )
    return ok("rights", f"{role} may do what a worker does")


def _within(schema: str, names: list[str]) -> str:
    return ", ".join(sql.Identifier(schema, name).as_string() for name in names)


def check_sequence(connection: psycopg.Connection, schema: str) -> Check:
    """The sequence of seqs must hand out numbers in order."""
    name = sql.Identifier(schema, "tube_seq").as_string()
    row = connection.execute(queries.SEQUENCE, {"sequence": name}).fetchone()
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
    most, used = _row(connection, queries.CONNECTIONS)
    finding = f"{used} of {most} in use"
    if most - used < _ROOM:
        return warn("connections", finding, "raise max_connections, or close what is not needed")
    return ok("connections", finding)


def check_settings(connection: psycopg.Connection) -> Iterator[Check]:
    """Settings of the server that matter to queues."""
    settings: dict[str, str] = dict(connection.execute(queries.SETTINGS).fetchall())
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
    rows = connection.execute(queries.OLD_TRANSACTIONS, {"age": _OLD}).fetchall()
    for who, age, prepared in rows:
        kind = "prepared transaction" if prepared else "transaction"
        yield warn(
            "transactions",
            f"the {kind} of {who} is open for {age:.0f} s and slows workers down",
            "COMMIT PREPARED or ROLLBACK PREPARED it" if prepared else "end it",
        )
    if not rows:
        yield ok("transactions", f"none that wrote is open for more than {_OLD:.0f} s")


def check_pooler(connection: psycopg.Connection, dsn: str, schema: str) -> Check:
    """Whether LISTEN works on such a session, or a transaction pooler stands in front.

    A pooler makes up the process id that it tells clients. Behind one that hands a server session
    to another client at the end of a transaction, what a session sets is gone once another client
    has taken that server session.
    """
    (pid,) = _row(connection, "SELECT pg_catalog.pg_backend_pid()")
    if pid == connection.info.backend_pid:
        return ok("pooler", "none: LISTEN works")
    connection.execute("SELECT set_config('pytube.pooler', 'kept', false)")
    with connect_sync(dsn, schema, application_name="pytube doctor") as other, other.transaction():
        other.execute("SELECT 1")
        (kept,) = _row(connection, "SELECT current_setting('pytube.pooler', true)")
        (now,) = _row(connection, "SELECT pg_catalog.pg_backend_pid()")
    if kept == "kept" and now == pid:
        return ok("pooler", "a session pooler: LISTEN works")
    return warn(
        "pooler",
        "a transaction pooler stands in front, so LISTEN does not work and workers poll",
        "connect workers to Postgres directly, or through a session pool",
    )


def _row(connection: psycopg.Connection, query: LiteralString) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None  # these queries always have one
    return row
