"""Works on one backfill: waits, collects the ids, and inserts pods chunk by chunk.

All its state is in the database. So it can be killed at any moment, and its successor continues from the
same place. The right to work on the backfill belongs to the session: a process that lost its session inserts
nothing more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytube.backfill import queries
from pytube.config import BackfillConfig
from pytube.db.session import Session
from pytube.errors import BackfillBusy, BackfillEnded, DatabaseUnavailable, PytubeError, UnknownBackfill
from pytube.faults import Point, fault

_POLL_INTERVAL = 0.2
"""Seconds between checks while waiting."""
_PRESSURE_INTERVAL = 0.25
_PATIENCE = 10.0
"""Seconds for which a run waits for a tube or a replica that has enough to do, before it gives way."""
_MB = 1024 * 1024
_WINDOW = 30.0
"""Seconds over which the rate is taken, so that a pause shows in it, and one chunk does not."""
_BURST = 0.5
"""Seconds' worth of rows that are inserted at once."""
_IDS = 250
"""Ids of a pod at most."""

# --- what slows it, how fast it goes, and how far it is: pure, the clock is the caller's --------------


class Replica(NamedTuple):
    """How far a replica is behind."""

    name: str
    lag: float | None
    """Seconds, by its own account."""
    behind: int | None
    """Bytes of WAL that it is behind."""


def reason_to_wait(limits: BackfillConfig, waiting: int, replicas: Sequence[Replica]) -> str | None:
    """Why nothing is to be inserted now, while so many pods wait; None when it may continue."""
    if waiting >= limits.backlog:
        return f"{waiting} backfill pods or more wait in the tube (limit {limits.backlog})"
    lag, name = max(((one.lag or 0.0, one.name) for one in replicas), default=(0.0, ""))
    if limits.replica_lag is not None and lag > limits.replica_lag:
        return f"the replica {name} is {lag:.1f} s behind (limit {limits.replica_lag:g} s)"
    behind, name = max(((one.behind or 0, one.name) for one in replicas), default=(0, ""))
    if limits.replica_behind is not None and behind > limits.replica_behind * _MB:
        return f"the replica {name} is {behind // _MB} MB of WAL behind (limit {limits.replica_behind} MB)"
    return None


def pods_of_chunk(limits: BackfillConfig) -> int:
    """The pods of a chunk that fits the rate."""
    fitting = limits.chunk if limits.rate is None else min(limits.chunk, limits.rate * _BURST / _IDS)
    return max(1, int(fitting))


@dataclass(frozen=True, slots=True)
class Progress:
    """A backfill at one moment."""

    backfill: int
    tube: str
    table: str
    state: str
    paused: bool
    rows_done: int
    rows_total: int | None
    rate: float | None
    """Rows a second, lately."""
    note: str | None
    rows_delivered: int | None = None
    """Of those inserted, about; None while that is not looked at."""

    @property
    def seconds_left(self) -> float | None:
        """Until all rows are inserted at this rate; None when that is not known."""
        if self.rows_total is None or not self.rate:
            return None
        return (self.rows_total - self.rows_done) / self.rate


class Rate:
    """Rows a second over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def observe(self, rows: int, now: float) -> float | None:
        """The rate, after `rows` in all were done at `now` (monotonic seconds)."""
        self._seen.append((now, rows))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        return (rows - before) / (now - began) if now > began else None


# --- the run ------------------------------------------------------------------------------------------


class BackfillRun:
    """One backfill, over a dedicated session."""

    def __init__(
        self,
        session: Session,
        backfill: int,
        limits: BackfillConfig,
        on_progress: Callable[[Progress], None],
        *,
        gives_way: Callable[[], bool] | None = None,
    ) -> None:
        """Nothing is asked yet. The right to work on the backfill is the session's, a dedicated one.

        `on_progress` receives the progress now and then, and at the end. While the backfill is paused or held
        up, a run waits; with `gives_way`, it ends if paused, and after a while if others need its place.
        """
        self._session = session
        self._arguments = {"backfill": backfill}
        self._backfill = backfill
        self._limits = limits
        self._pods = pods_of_chunk(limits)
        self._on_progress = on_progress
        self._rate = Rate()
        self._known_rate: float | None = None
        self._waiting: int | None = None
        """Rows in the tube, as last looked at."""
        self._pressed_at = 0.0
        self._unwatched = 0
        """Pods inserted since the pressure was looked at."""
        self._gives_way = gives_way
        self._held_up_since: float | None = None

    async def run(self) -> Progress:
        """Run until all pods are inserted; while it is paused or held up, wait, or leave it.

        Raises:
            BackfillBusy: another process runs it.
            BackfillEnded: it was cancelled or superseded, or has failed; the message says why.
            DatabaseUnavailable: the session was lost.
            PytubeError: Postgres refused something; its note says so, too.
        """
        if not await self._session.value(queries.LOCK, self._arguments):
            raise BackfillBusy(
                f"another process is running backfill {self._backfill}; see `pytube backfill status`"
            )
        try:
            now = self._check(await self._note(None))
            if now.state == "waiting":
                await self._wait_for_transactions()
                await self._collect()
            return await self._insert()
        except _Left as left:
            return left.progress
        except (BackfillBusy, BackfillEnded, DatabaseUnavailable):
            raise
        except PytubeError as error:
            # For `backfill status`; the next run removes it.
            if not self._session.closed:
                with suppress(PytubeError):
                    await self._note(f"{queries.STUCK}: {error}")
            raise
        finally:
            if not self._session.closed:
                await self._session.value(queries.UNLOCK, self._arguments)

    async def look(self) -> Progress:
        """How far it is, no matter who works on it."""
        return self._progress(await self._session.row(queries.STATE, self._arguments))

    async def wait_until_delivered(
        self, watch: Callable[[Progress], Awaitable[object]] | None = None
    ) -> Progress:
        """Wait until workers have acted upon its end in all shards; raises as `run`, and as `watch`.

        `watch` is called now and then, and may raise to end the wait.
        """
        progress = self._check(await self.look())
        due = 0.0
        while progress.state != "finished":
            if time.monotonic() >= due:
                self._waiting = int(await self._session.value(queries.WAITING, self._arguments))
                due = time.monotonic() + _PRESSURE_INTERVAL
                if watch is not None:
                    await watch(progress)
            await asyncio.sleep(_POLL_INTERVAL)
            progress = self._check(await self.look())
        return progress

    # --- before anything is inserted ------------------------------------------------------

    async def _wait_for_transactions(self) -> None:
        """Until all are over that ran after the start seq was drawn: then their rows are visible."""
        xids: list[str] | None = None
        while True:
            rows = await self._session.rows(queries.HOLDERS, {"xids": xids})
            if not rows:
                return
            xids = [xid for xid, _ in rows]
            names = sorted({holder for _, holder in rows})
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._check(await self._note(f"waits for transactions to end: {', '.join(names[:3])}{more}"))
            await asyncio.sleep(_POLL_INTERVAL)

    async def _collect(self) -> None:
        progress = self._check(await self._note("collects the ids"))
        while progress.state == "waiting":
            if progress.paused:
                await asyncio.sleep(_POLL_INTERVAL)
            else:
                await fault(Point.BEFORE_COLLECT)
                await self._session.long_value(queries.COLLECT, self._arguments)
                await fault(Point.AFTER_COLLECT)
            progress = self._check(await self.look())

    # --- chunk by chunk -------------------------------------------------------------------

    async def _insert(self) -> Progress:
        progress = self._check(await self.look())
        while progress.state == "inserting":
            began = time.monotonic()
            if progress.paused or await self._is_pressed(progress):
                await asyncio.sleep(_POLL_INTERVAL)
                progress = self._check(await self.look())
                continue
            before = progress.rows_done
            row = await self._session.row(
                queries.CHUNK,
                self._arguments | {"pods": self._pods, "rate": self._known_rate},
            )
            await fault(Point.AFTER_CHUNK)
            self._unwatched += self._pods
            progress = self._check(self._progress(row))
            if self._limits.rate is not None:
                due = began + (progress.rows_done - before) / self._limits.rate
                progress = await self._wait_until(due, progress)
        return progress

    async def _wait_until(self, due: float, progress: Progress) -> Progress:
        """Until the next chunk is due, while watching for a pause or cancel."""
        while progress.state == "inserting" and not progress.paused:
            left = due - time.monotonic()
            if left <= 0:
                break
            await asyncio.sleep(min(left, _POLL_INTERVAL))
            if left > _POLL_INTERVAL:
                progress = self._check(await self.look())
        return progress

    async def _is_pressed(self, progress: Progress) -> bool:
        """Whether the tube or a replica has enough to do; looked at now and then."""
        soon = time.monotonic() < self._pressed_at + _PRESSURE_INTERVAL
        if soon and self._unwatched * 4 < self._limits.backlog:
            return False
        rows = await self._session.rows(
            queries.PRESSURE, {"tube": progress.tube, "pods_limit": self._limits.backlog}
        )
        # A row for each replica, or one for none; each says how many pods wait.
        waiting = max((int(row[0]) for row in rows), default=0)
        replicas = [Replica(*row[1:]) for row in rows if row[1] is not None]
        reason = reason_to_wait(self._limits, waiting, replicas)
        now = time.monotonic()
        if reason is None:
            self._pressed_at, self._unwatched, self._held_up_since = now, 0, None
            return False
        noted = await self._note(f"waits: {reason}")
        if self._held_up_since is None:
            self._held_up_since = now
        elif now > self._held_up_since + _PATIENCE and self._gives_way is not None and self._gives_way():
            raise _Left(noted)
        return True

    # --- its state --------------------------------------------------------------

    async def _note(self, note: str | None) -> Progress:
        return self._progress(await self._session.row(queries.NOTE, self._arguments | {"note": note}))

    def _progress(self, row: tuple[Any, ...] | None) -> Progress:
        if row is None:
            raise UnknownBackfill(f"backfill {self._backfill} is gone: its tube was dropped")
        tube, table, state, paused, rows_done, rows_total, note = row
        if state == "inserting":
            self._known_rate = self._rate.observe(rows_done, time.monotonic())
        delivered = None if self._waiting is None else max(0, rows_done - self._waiting)
        progress = Progress(
            self._backfill,
            tube,
            table,
            state,
            paused,
            rows_done,
            rows_total,
            self._known_rate,
            note,
            delivered,
        )
        self._on_progress(progress)
        return progress

    def _check(self, progress: Progress) -> Progress:
        """As given; raises when it was ended from outside, or is to be left."""
        if progress.state in ("cancelled", "superseded", "failed"):
            reason = f": {progress.note}" if progress.note else ""
            raise BackfillEnded(f"backfill {self._backfill} of {progress.table} was {progress.state}{reason}")
        if progress.paused and self._gives_way is not None:
            raise _Left(progress)
        return progress


class _Left(Exception):
    """It is paused, or held up, and not waited for."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress
