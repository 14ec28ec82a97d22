"""Does steps one after the other, a transaction for each, so that no table is locked for long.

Each transaction looks anew at the present state and does the first missing step. Two at once do the steps
together, by a lock until the end of the transaction: an interrupted run continues, and nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol, TypeVar

import psycopg

from pytube.db.errors import translated
from pytube.documents.model import TableName
from pytube.errors import StatementFailed, UsageError
from pytube.logs import Logger
from pytube.tubes.tables import LockBusy, with_retries

_log = Logger("pytube.documents")

_LOCK: Final = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%(text)s, 0))"
_OID: Final = """
    SELECT c.oid FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
"""
# Tables that the role can't attach: it is not their owner, or may not create in their schema.
_OTHERS: Final = """
    SELECT n.nspname || '.' || c.relname, pg_catalog.pg_get_userbyid(c.relowner)::text, current_user::text
    FROM unnest(%(schemas)s::text[], %(tables)s::text[]) AS t (schema, name)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = t.schema
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.name
    WHERE NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
    ORDER BY 1
"""


class Doable(Protocol):
    """A step."""

    @property
    def table(self) -> TableName | None:
        """The table that it locks."""

    @property
    def text(self) -> str:
        """For people."""


S = TypeVar("S", bound=Doable)
T = TypeVar("T")


def do_all(
    connection: psycopg.Connection,
    subject: str,
    *,
    lock: str,
    upcoming: Callable[[], S | None],
    do: Callable[[S], None],
    afterwards: Callable[[S], None],
    limit: float,
    told: Callable[[S], None],
) -> Sequence[S]:
    """Do steps until none is left.

    Args:
        connection: autocommit.
        subject: the object that they concern, for errors: `document.orders`.
        lock: the name of the lock by which others wait.
        upcoming: looks at the present state, and returns the step to do first; None: none is left.
        do: does it, within the transaction that looked.
        afterwards: does the part that can't be in a transaction; repeating it does no harm.
        limit: seconds to wait for the lock of a table.
        told: called with each step when it is done.

    Returns:
        The steps that were done.

    Raises:
        LockBusy: a table stayed locked; finished steps stay.
    """

    def transaction() -> S | None:
        with connection.transaction():
            connection.execute(_LOCK, {"text": lock})
            step = upcoming()
            if step is not None:
                do(step)
        return step

    def one() -> S | None:
        expected = upcoming()
        table = None if expected is None else expected.table
        step = patiently(connection, transaction, subject, table, limit)
        if step is not None:
            afterwards(step)
        return step

    done: list[S] = []
    try:
        while (step := one()) is not None:
            if step in done[-1:]:
                raise StatementFailed(f"{subject}: still to be done, though done: {step.text}")
            done.append(step)
            told(step)
    except LockBusy as error:
        if not done:
            raise
        raise LockBusy(f"{error}; finished steps stay, and the next apply continues from there") from error
    return done


def patiently(
    connection: psycopg.Connection,
    transaction: Callable[[], T],
    subject: str,
    table: TableName | None,
    limit: float,
) -> T:
    """Run a transaction of what `subject` names until it gets its locks, also that of `table`.

    Raises:
        LockBusy: after `limit` seconds.
    """
    return with_retries(
        connection,
        transaction,
        table=0 if table is None else oid_of(connection, table),
        name=subject.partition(".")[2] if table is None else str(table),
        limit=limit,
        on_wait=lambda text: _log.warning("lock_awaited", reason=text),
    )


def oid_of(connection: psycopg.Connection, table: TableName) -> int:
    """The oid of a table; `UsageError` where it is gone."""
    row = connection.execute(_OID, {"schema": table.schema, "table": table.table}).fetchone()
    if row is None:
        raise UsageError(f"the table {table} no longer exists; run `pytube plan` again")
    return int(row[0])


def check_owners(connection: psycopg.Connection, tables: Collection[TableName]) -> None:
    """Refuse to begin if this role can't finish: attaching a table needs the rights of its owner.

    Raises:
        UsageError: it does not have them.
    """
    names = {"schemas": [one.schema for one in tables], "tables": [one.table for one in tables]}
    with translated():
        rows = connection.execute(_OTHERS, names).fetchall()
    if rows:
        owned = ", ".join(f"{table} of {owner}" for table, owner, _ in rows)
        owners = " and ".join(sorted({owner for _, owner, _ in rows}))
        raise UsageError(
            f"nothing was changed: the role {rows[0][2]} does not own {owned}, and only its owner can "
            f"have a table followed; run it as a role that is a member of {owners} and of tube_admin"
        )


def renamed_note(tables: Sequence[str]) -> str:
    """For a plan where columns of these tables were renamed or dropped, and nothing has followed that yet."""
    return (
        f"columns of {', '.join(tables)} were renamed or dropped, and nothing has followed that yet: apply "
        "does so first (tube_sync), so its steps may be others"
    )
