"""Sees whether sinks were emptied or replaced, by their marks, and whether the source was put back, by notes.

Copies have lost delivered documents where their sink was emptied: a Redis that comes back empty accepts
documents as before. Postgres keeps the marks by which a sink is known, see `sql/tubes/sinks.sql`.

Beside the mark stands a note: how far the source was when something was last read of it, and an id that was
committed there before. A source that was put back while no worker ran does not know it; then it is behind
the note, or, having passed it again, does not have the id. All processes look at it before they leave
another one, and whichever finds it unchanged since its last look leaves one: the same process each time,
while it runs. A fixed partition's would not do, as nothing may be read of that partition.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from pytube.db.session import Queries
from pytube.errors import (
    RECOVERABLE,
    DatabaseUnavailable,
    PytubeError,
    SchemaMismatch,
    SinkUnavailable,
    UnknownTube,
)
from pytube.events import SinkEmptied, SinkRefilled
from pytube.logs import is_news
from pytube.sinks import Noting
from pytube.sources import queries
from pytube.worker.database import Database
from pytube.worker.queues import Tube
from pytube.worker.services import end

INTERVAL = 10.0
"""Seconds between two looks at one sink."""
_STEP = 1.0
NOTE_INTERVAL = 60.0
"""Seconds between two looks at the note at one sink; each process leaves a last one at its end."""
_NOTE_PATIENCE = 5.0
"""Seconds at most for the last notes."""
_GREATEST_SEQ = 2**63 - 1
_TRIES = 3
"""Looks in a row: the mark that is left is to be seen, before the sink may be emptied again."""


async def note_made_sinks(session: Queries, tubes: Mapping[str, Tube]) -> None:
    """Have nothing made at sinks that have held documents; before they are opened."""
    for (name,) in await session.rows(queries.SINKS_MADE, {}):
        if name in tubes:
            tubes[name].shared_sink.may_make = False


class SinkMarks:
    """Reads the marks of the sinks of one host's tubes, of which something is led here."""

    def __init__(
        self,
        database: Database,
        tubes: Mapping[str, Tube],
    ) -> None:
        self._database = database
        self._pool: Queries = database.pool
        self._tubes = tubes
        self._told: dict[object, str] = {}
        self._source = ""
        """Which database it is, once that is known: others may leave notes at the same sink."""
        self._noted: dict[str, _Noted] = {}
        """The note at the sink of each tube, as it was seen last."""

    async def run(self) -> None:
        """Look at all sinks again and again; a sink that does not answer delays no other."""
        try:
            await self._run()
        finally:
            await self._leave_last_notes()

    async def _run(self) -> None:
        looking: dict[str, tuple[float, asyncio.Task[None]]] = {}
        try:
            while True:
                led = self._database.led() & self._tubes.keys()
                now = time.monotonic()
                # A look is over when another one is due, or something of the tube is led again.
                looking = {
                    name: (began, task)
                    for name, (began, task) in looking.items()
                    if not task.done() or (name in led and now < began + INTERVAL)
                }
                due = [name for name in led - looking.keys() if self._tubes[name].shared_sink.has_mark]
                known = await self._known() if due else None
                if known is not None:
                    for name in due:
                        look = self._look(self._tubes[name], known.get(name))
                        looking[name] = now, asyncio.create_task(look)
                await asyncio.sleep(_STEP)
        finally:
            await end(task for _, task in looking.values())

    async def _known(self) -> dict[str, str] | None:
        """The marks of all healthy sinks, in one statement; None: the database does not answer now."""
        try:
            rows = await self._pool.rows(queries.SINK_MARKS, {})
        except RECOVERABLE:
            return None  # the renewals report it
        self._source = rows[0][2] if rows else self._source
        return {tube: mark for tube, mark, _ in rows}

    async def _look(self, tube: Tube, known: str | None) -> None:
        has_mark = False
        try:
            await self._compare(tube, known)
            has_mark = True
            if not self._source:  # this was the first sink of the database that was looked at
                await self._known()
            await self._note(tube)
        except (DatabaseUnavailable, SchemaMismatch, UnknownTube):
            pass  # reported by the renewals and by the task that follows partitions
        except PytubeError as error:
            # The partitions that send to a sink report when it is down.
            if not isinstance(error, SinkUnavailable) and is_news(self._told, tube.name, str(error)):
                if has_mark:
                    tube.log.warning("sink_note_unwritten", reason=str(error))
                else:
                    tube.log.warning("sink_mark_unread", reason=str(error))
        except Exception as error:  # noqa: BLE001 - a sink may be anybody's code
            tube.faults.log_sink("read_mark", error)
        else:
            self._told.pop(tube.name, None)

    async def _compare(self, tube: Tube, known: str | None) -> None:
        sink = tube.shared_sink
        held = await sink.read_mark()
        if held is not None and held == known:
            return  # as nearly always: so hundreds of tubes ask no more than one does
        for _ in range(_TRIES):
            row = await self._pool.row(queries.SINK_NOTE, {"tube": tube.name, "held": held})
            assert row is not None
            wanted, _, is_new, is_over = row
            if is_new:
                self._database.emit(SinkEmptied(tube.name, _reason(held)))
            if is_over:
                self._database.emit(SinkRefilled(tube.name))
            if wanted is None:
                return
            held = await sink.leave_mark(wanted)
            if held is None:
                return

    # --- notes ------------------------------------------------------------------------------

    async def _note(self, tube: Tube) -> None:
        """Compare the source with the note once, and then leave a new one now and then."""
        notes = tube.shared_sink.notes
        if not self._source or notes is None:
            return
        noted = self._noted.get(tube.name)
        if noted is None:
            held, commit = _parsed(await notes.read_note(self._source))
            if held and not await self._database.compare_source(held, commit):
                return
            self._noted[tube.name] = _Noted(held, float("-inf"))
        elif time.monotonic() >= noted.at + NOTE_INTERVAL:
            await self._leave_note(tube.name, notes, noted, is_last=False)

    async def _leave_note(self, name: str, notes: Noting, noted: _Noted, *, is_last: bool) -> None:
        """Leave one, unless another process does so, or has left a later one."""
        noted.at = time.monotonic()
        source, before = self._source, noted.seq
        noted.seq, commit = _parsed(await notes.read_note(source))
        is_down = bool(self._database.down_for)
        if noted.seq and not is_down and not await self._database.compare_source(noted.seq, commit):
            return
        seq = self._database.seen_seq
        if seq > noted.seq and (is_last or noted.seq <= before):
            if not is_down:  # or else only the seq is newer than in the note before
                commit = await self._pool.value(queries.SOURCE_NOTE, {"tube": name})
            await notes.write_note(source, f"seq {seq} {commit or ''}".rstrip())
            noted.seq = seq

    async def _leave_last_notes(self) -> None:
        leaving = [
            self._look_once_more(name, notes, noted)
            for name, noted in self._noted.items()
            if (notes := self._tubes[name].shared_sink.notes) is not None
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(_NOTE_PATIENCE):
                await asyncio.gather(*leaving)

    async def _look_once_more(self, name: str, notes: Noting, noted: _Noted) -> None:
        with suppress(Exception):  # the note before is still there
            await self._leave_note(name, notes, noted, is_last=True)


@dataclass(slots=True)
class _Noted:
    seq: int
    at: float


def _parsed(note: str | None) -> tuple[int, str | None]:
    """How far the source was by a note, and what that names; 0 for none, and for a text without a seq."""
    digits, _, commit = (note or "").removeprefix("seq ").partition(" ")
    if not (digits.isdecimal() and len(digits) <= len(str(_GREATEST_SEQ))):
        return 0, None
    return seq if (seq := int(digits)) <= _GREATEST_SEQ else 0, commit or None


def _reason(held: str | None) -> str:
    if held is None:
        return "its mark is gone, and so are the documents that were delivered before"
    return f"its mark is another one: it was replaced, or emptied and used by others ({held})"
