"""Locked tables that our statements wait for, and who holds the locks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from pytube.db.session import Queries
from pytube.errors import PytubeError

PATIENCE = 3.0
"""Seconds for which anybody may hold a lock without being told of."""
_INTERVAL = 3.0
"""Seconds between two looks at a statement that goes on waiting."""

# The table that a session waits for, and who is in the way. `pg_locks` is for everybody; what a session does
# is seen by its own role, and by members of pg_read_all_stats.
_WAITED_FOR: Final = """
    SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname),
        extract(epoch FROM clock_timestamp() - l.waitstart)::float8,
        ARRAY(
            SELECT concat('pid ', b.pid,
                ' (' || nullif(concat_ws(', ', nullif(a.application_name, ''), a.state), '') || ')')
            FROM unnest(pg_catalog.pg_blocking_pids(l.pid)) AS b (pid)
            LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = b.pid AND a.state IS NOT NULL
            ORDER BY b.pid LIMIT 5),
        (pg_catalog.pg_blocking_pids(l.pid))[1]
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.pid = %(pid)s AND NOT l.granted AND l.locktype = 'relation'
        AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
"""

# Who may have a table or its rows locked, once a statement of ours has given up waiting: sessions that have
# done more than read it, in transactions that began so long ago.
_HOLDERS: Final = """
    SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), %(seconds)s::float8,
        coalesce(array_agg(h.text ORDER BY h.strong DESC, h.pid) FILTER (WHERE h.text IS NOT NULL), '{}'),
        (array_agg(h.pid ORDER BY h.strong DESC, h.pid) FILTER (WHERE h.pid IS NOT NULL))[1]
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN LATERAL (
        SELECT l.pid, bool_or(l.mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareLock')) AS strong,
            CASE WHEN l.pid IS NULL THEN 'a prepared transaction' ELSE concat('pid ', l.pid,
                ' (' || nullif(concat_ws(', ', nullif(min(a.application_name), ''), min(a.state)), '') || ')')
            END AS text
        FROM pg_catalog.pg_locks AS l
        LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid AND a.state IS NOT NULL
        WHERE l.locktype = 'relation' AND l.relation = c.oid AND l.granted AND l.mode <> 'AccessShareLock'
            AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
            AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
            AND coalesce(a.xact_start <= clock_timestamp() - %(seconds)s * interval '1 second', true)
        GROUP BY l.pid
    ) AS h ON true
    WHERE c.oid = (SELECT o.tbl FROM outbox_list() AS o WHERE o.outbox = %(outbox)s)
    GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class TableLock:
    """A table that somebody has locked, or rows of it."""

    table: str
    """`schema.table`, as SQL writes it."""
    seconds: float
    """For so long we have waited."""
    holders: Sequence[str]
    """Who is in the way, as far as that may be seen."""
    pid: int | None
    """The first of them."""
    record: str | None = None
    """The first record that is locked, where it is not the table."""

    @property
    def reason(self) -> str:
        """For people, with what to do."""
        by = f" by {', '.join(self.holders)}" if self.holders else ""
        remedy = f"; if nobody needs that session: SELECT pg_terminate_backend({self.pid})"
        end = "" if self.pid is None else remedy
        if self.record is None:
            return f"{self.table} is locked{by}{end}"
        return (
            f"of {self.table} {self.record} is locked{by}, perhaps some after it, too; later ones of such "
            f"keys wait, the others don't{end}"
        )


class LockListener(Protocol):
    """Learns of tables that are waited for."""

    def note(self, lock: TableLock) -> None:
        """A statement waits for it; told again while it does."""

    def free(self, table: str) -> None:
        """A statement has got it, that had waited."""


async def waited_for(queries: Queries, pid: int) -> TableLock | None:
    """The table that the session of that process waits for; None: it waits for none."""
    row = await queries.row(_WAITED_FOR, {"pid": pid})
    return None if row is None else TableLock(row[0], row[1] or 0.0, tuple(row[2]), row[3])


async def holders_of_outbox(
    queries: Queries, outbox: str, seconds: float, record: str | None
) -> TableLock | None:
    """Who has kept the table of an outbox, or `record` of it, locked for so long; None: the table is gone."""
    row = await queries.row(_HOLDERS, {"outbox": outbox, "seconds": seconds})
    return None if row is None else TableLock(row[0], row[1], tuple(row[2]), row[3], record)


class Waiting:
    """What a statement has been seen to wait for, and who is told of it."""

    def __init__(self, listener: LockListener | None = None) -> None:
        self.lock: TableLock | None = None
        self._listener = listener

    def see(self, lock: TableLock | None) -> None:
        """It waits for that now; None: for nothing any more."""
        before, self.lock = self.lock, lock
        if self._listener is None:
            return
        if lock is not None:
            self._listener.note(lock)
        elif before is not None:
            self._listener.free(before.table)


@contextmanager
def told_of_locks(queries: Queries, pid: int, listener: LockListener | None) -> Iterator[Waiting]:
    """Look now and then, by other sessions, whether what runs in the block waits for a table's lock.

    It costs a timer, unless the block takes long. A lock is over when the block ends without an error: who
    was cut off may have waited for it to the end.
    """
    waiting, looks = Waiting(listener), set[asyncio.Task[None]]()
    loop = asyncio.get_running_loop()
    timer = loop.call_later(PATIENCE, lambda: looks.add(loop.create_task(_look(queries, pid, waiting))))
    try:
        yield waiting
        waiting.see(None)
    finally:
        timer.cancel()
        for look in looks:
            look.cancel()


async def _look(queries: Queries, pid: int, waiting: Waiting) -> None:
    while True:
        began = time.monotonic()
        try:
            waiting.see(await waited_for(queries, pid))
        except PytubeError:
            return  # the statement itself learns of an outage
        await asyncio.sleep(max(0.0, began + _INTERVAL - time.monotonic()))
