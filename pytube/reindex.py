"""The steps of a reindex of one tube: start, look, compare, switch, finish, abandon.

Each can be interrupted anywhere and run again. The state of a reindex is at the sink (see
`pytube.sinks.opensearch.reindex`), and of its backfills in Postgres; nothing is kept here.

The order of the start is what makes the new copy complete. First every write goes to both copies; writes to
the old one alone were read before that. Then the backfill begins: it collects the ids of all rows, and each
is read and written again, to both. So a change is read by the backfill, or was written to both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import psycopg

from pytube.backfill.admin import ACTIVE, Backfills
from pytube.db.errors import translated
from pytube.errors import (
    BackfillBusy,
    BackfillEnded,
    SinkTimeout,
    SinkUnavailable,
    UnknownBackfill,
    UsageError,
)

if TYPE_CHECKING:
    from pytube.sinks.opensearch.reindex import IndexReindexer, ReindexState

Phase = Literal["filling", "stopped", "filled", "switched"]

_LOCK = "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('pytube reindex ' || %s, 0))"
_UNLOCK = "SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended('pytube reindex ' || %s, 0))"


@dataclass(frozen=True, slots=True)
class Status:
    """A reindex at one moment."""

    state: ReindexState
    old_documents: int | None
    new_documents: int | None
    backfills: list[dict[str, Any]]
    """Rows of `Backfills.all`."""

    @property
    def phase(self) -> Phase:
        """`stopped`: a backfill is not under way, and has not finished."""
        if self.state.is_switched:
            return "switched"
        states = {row["state"] for row in self.backfills}
        if not self.is_complete or not states <= {*ACTIVE, "finished"}:
            return "stopped"
        return "filled" if states == {"finished"} else "filling"

    @property
    def is_complete(self) -> bool:
        """Whether the backfills that fill the new copy are known, and are all there."""
        return bool(self.backfills) and len(self.backfills) == len(self.state.backfills)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The known state of a reindex while the sink, which keeps its state, does not answer."""

    reason: str
    """Why the state at the sink is missing."""
    backfills: list[dict[str, Any]]
    """The last backfill of each table of the tube, as rows of `Backfills.all`."""


class Reindex:
    """The reindex of one tube."""

    def __init__(
        self, tube: str, reindexer: IndexReindexer, connection: psycopg.Connection, schema: str
    ) -> None:
        """`connection`: autocommit, with pytube's schema in its path."""
        self._tube = tube
        self._reindexer = reindexer
        self._connection = connection
        self._backfills = Backfills(connection, schema)
        self._name = f"{schema} {tube}"

    async def status(self) -> Status | None:
        """The reindex under way; None without one."""
        state = await self._reindexer.look()
        if state is None:
            return None
        old, new = [
            None if name is None else await self._reindexer.count(name) for name in (state.old, state.new)
        ]
        rows = [row for row in self._backfills.all(self._tube) if row["backfill_id"] in state.backfills]
        return Status(state, old, new, rows)

    async def status_within(self, seconds: float) -> Status | Unanswered | None:
        """As `status`; or what Postgres knows, if the sink does not answer within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                return await self.status()
        except TimeoutError:
            reason = f"it did not answer within {seconds:g} s"
        except (SinkUnavailable, SinkTimeout) as error:
            reason = str(error)
        newest_last = reversed(self._backfills.all(self._tube))
        return Unanswered(reason, list({row["tbl"]: row for row in newest_last}.values()))

    async def start(self) -> Status:
        """Begin, or continue an interrupted start: write to both copies, then fill the new one.

        Raises:
            UsageError: it can't begin as things are; nothing was changed.
        """
        with self._locked():
            tables = self._backfills.tables(self._tube)
            state = await self._reindexer.look()
            if state is None:
                self._refuse_busy()
            elif state.is_switched:
                raise UsageError(
                    f"a reindex of tube {self._tube!r} is under way, and switched already; "
                    "`pytube reindex finish` ends it"
                )
            state = await self._reindexer.begin(self._tube)
            status = await self._existing()
            if status.phase == "stopped":
                # An unknown one, begun by an interrupted start, is superseded.
                numbers = [
                    self._backfills.create(self._tube, one.oid, None, supersede=True, by_worker=True)
                    for one in tables
                ]
                await self._reindexer.record(numbers)
                status = await self._existing()
            return status

    async def filled(self) -> Status:
        """The state, once the new copy was filled.

        Raises:
            UsageError: nothing is under way, or it was not filled yet.
        """
        status = await self._existing()
        if status.phase == "filling":
            raise UsageError(
                f"the new index of tube {self._tube!r} is not filled yet; see `pytube reindex status`"
            )
        if status.phase == "stopped":
            raise UsageError(
                f"the backfill that fills the new index of tube {self._tube!r} was ended; "
                "`pytube reindex start` begins another one"
            )
        return status

    async def switch(self, *, back: bool = False) -> None:
        """Have readers see the new copy, or the old one again; nothing is done when they do already."""
        with self._locked():
            status = await self._existing()
            if status.state.is_switched is back:
                await self._reindexer.switch(back=back)

    async def finish(self, *, force: bool) -> None:
        """Delete the old copy; `force` as for the reindexer."""
        with self._locked():
            await self._reindexer.finish(force=force)

    async def abandon(self) -> bool:
        """Cancel the backfills and delete the new copy; False when there was none."""
        with self._locked():
            state = await self._reindexer.look()
            if state is not None and not state.is_switched:
                for number in state.backfills:
                    with suppress(BackfillEnded, UnknownBackfill):
                        self._backfills.command(number, "cancel")
            return await self._reindexer.abandon()

    async def _existing(self) -> Status:
        status = await self.status()
        if status is None:
            raise UsageError(
                f"no reindex of tube {self._tube!r} is under way; `pytube reindex start` begins one"
            )
        return status

    def _refuse_busy(self) -> None:
        for row in self._backfills.active(self._tube):
            raise BackfillBusy(
                f"backfill {row['backfill_id']} of {row['tbl']} is under way, and a reindex begins another "
                f"one; wait until it is delivered, or run `pytube backfill cancel {self._tube}`"
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One command at a time changes the reindex of a tube; the server unlocks it if we die."""
        with translated():
            row = self._connection.execute(_LOCK, (self._name,)).fetchone()
        if row != (True,):
            raise UsageError(f"another command changes the reindex of tube {self._tube!r} now; try again")
        try:
            yield
        finally:
            if not self._connection.closed:
                with translated():
                    self._connection.execute(_UNLOCK, (self._name,))
