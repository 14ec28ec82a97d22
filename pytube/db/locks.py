"""Locked tables that pytube's statements wait for, and who holds the locks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pytube.db.session import Queries
from pytube.errors import PytubeError

PATIENCE = 3.0
"""Seconds for which a session may hold a lock without being reported."""
_INTERVAL = 3.0
"""Seconds between two looks at a statement that keeps waiting."""
_NAMED = 5
"""Holders that are named."""

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
        ARRAY(SELECT b.pid FROM unnest(pg_catalog.pg_blocking_pids(l.pid)) AS b (pid) ORDER BY b.pid)
    FROM pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.pid = %(pid)s AND NOT l.granted AND l.locktype = 'relation'
        AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
"""

# Who may have a table or its rows locked, once a statement of pytube has given up waiting: sessions that have
# done more than read it, in transactions that began so long ago.
_HOLDERS: Final = """
    SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), %(seconds)s::float8,
        coalesce(array_agg(h.text ORDER BY h.strong DESC, h.pid) FILTER (WHERE h.text IS NOT NULL), '{}'),
        coalesce(array_agg(h.pid ORDER BY h.strong DESC, h.pid) FILTER (WHERE h.pid IS NOT NULL), '{}')
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

# The given sessions that have the table, or rows of it, or wait for it before pytube; 0: a prepared one.
_STILL: Final = """
    SELECT l.pid, CASE WHEN l.pid = 0 THEN 'a prepared transaction' ELSE concat('pid ', l.pid,
        ' (' || nullif(concat_ws(', ', nullif(a.application_name, ''), a.state), '') || ')') END
    FROM (
        SELECT DISTINCT coalesce(k.pid, 0) AS pid
        FROM pg_catalog.pg_locks AS k
        WHERE k.locktype = 'relation' AND k.relation = to_regclass(%(table)s) AND k.mode <> 'AccessShareLock'
            AND k.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    ) AS l
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid AND a.state IS NOT NULL
    WHERE l.pid = ANY(%(pids)s)
    ORDER BY l.pid
"""


@dataclass(frozen=True, slots=True)
class TableLock:
    """A table that another session has locked, or rows of it."""

    table: str
    """`schema.table`, as SQL writes it."""
    seconds: float
    """For so long we have waited."""
    holders: Sequence[str]
    """Who is in the way, as far as that may be seen."""
    pids: Sequence[int]
    """Their processes; 0 is a prepared transaction."""
    record: str | None = None
    """The first record that is locked, where it is not the table."""

    @property
    def pid(self) -> int | None:
        """The first of them that can be ended."""
        return next(filter(None, self.pids), None)

    @property
    def finding(self) -> str:
        """For people."""
        by = f" by {', '.join(self.holders)}" if self.holders else ""
        if self.record is None:
            return f"{self.table} is locked{by}"
        return (
            f"of {self.table} {self.record} is locked{by}, perhaps some after it, too; later ones of such "
            "keys wait, the others don't"
        )

    @property
    def reason(self) -> str:
        """The finding, with what to do."""
        remedy = f"; if that session is not needed: SELECT pg_terminate_backend({self.pid})"
        return self.finding if self.pid is None else self.finding + remedy


class LockListener(Protocol):
    """Learns of tables that are waited for."""

    def note(self, lock: TableLock) -> None:
        """A statement waits for it; called again while it does."""

    def free(self, table: str) -> None:
        """A statement has got it, that had waited."""


async def waited_for(queries: Queries, pid: int) -> TableLock | None:
    """The table that the session of that process waits for; None: it waits for none."""
    row = await queries.row(_WAITED_FOR, {"pid": pid})
    return None if row is None else TableLock(row[0], row[1] or 0.0, tuple(row[2]), tuple(row[3]))


async def holders_of_outbox(
    queries: Queries, outbox: str, seconds: float, record: str | None
) -> TableLock | None:
    """Who has kept the table of an outbox, or `record` of it, locked for so long; None: the table is gone."""
    row = await queries.row(_HOLDERS, {"outbox": outbox, "seconds": seconds})
    return None if row is None else TableLock(row[0], row[1], tuple(row[2]), tuple(row[3]), record)


async def still_held(queries: Queries, lock: TableLock) -> TableLock | None:
    """The lock, with its remaining holders; None: none is left."""
    rows = await queries.rows(_STILL, {"table": lock.table, "pids": list(lock.pids)})
    if not rows:
        return None
    pids, holders = zip(*rows, strict=True)
    return lock if set(pids) == set(lock.pids) else replace(lock, holders=holders[:_NAMED], pids=pids)


class Reads:
    """Reads that are under way, and share the locks that they wait for.

    There are fewer sessions than reads: a read that waits for a session that waits for a lock waits for the
    lock.
    """

    def __init__(self) -> None:
        self.under_way: set[OneRead] = set()

    @contextmanager
    def begin(self, listener: LockListener, tables: Callable[[], Set[object]]) -> Iterator[LockListener]:
        """A read is under way in the block; report the locks that it waits for to the yielded object.

        `tables`: the tables that it reads, as far as is known; any value works that other reads of them
        share.
        """
        read = OneRead(self, listener, tables, time.monotonic())
        self.under_way.add(read)
        try:
            yield read
        finally:
            self.under_way.discard(read)


@dataclass(frozen=True, slots=True, eq=False)
class OneRead:
    """One of them."""

    reads: Reads
    listener: LockListener
    tables: Callable[[], Set[object]]
    began: float

    def note(self, lock: TableLock) -> None:
        """It waits for it, and so do all that have waited for long and want the same tables."""
        self.listener.note(lock)
        now, tables = time.monotonic(), self.tables()
        for other in self.reads.under_way - {self}:
            waits = now - other.began
            if waits >= PATIENCE and other.listener is not self.listener and other.tables() & tables:
                other.listener.note(replace(lock, seconds=min(lock.seconds, waits)))

    def free(self, table: str) -> None:
        """The statement has got the table, so none waits for it."""
        for listener in {self.listener, *(other.listener for other in self.reads.under_way)}:
            listener.free(table)


class Waiting:
    """The locks that a statement was seen to wait for, and their listeners."""

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
