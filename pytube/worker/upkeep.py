"""What a worker process does beside delivering: follows DDL, runs backfills, sees whether copies are whole.

Copies have lost delivered documents where their sink was emptied, and have missed changes where a sample
differs. A Redis that comes back empty accepts documents as before. Postgres keeps the marks by which a sink
is known, see `sql/tubes/sinks.sql`.

Beside the mark stands a note: how far the source was when something was last read of it, and an id that was
committed there before. A source that was put back while no worker ran does not know it; then it is behind
the note, or, having passed it again, does not have the id. All processes look at it before they leave
another one, and whichever finds it unchanged since its last look leaves one: the same process each time,
while it runs. A fixed partition's would not do, as nothing may be read of that partition.

A sample of each tube's copy is compared with the source now and then, by the rules of `pytube verify`. The
process that delivers the first partition of a tube does it, so that one does. When the last sample ended
stands in the database: a worker that takes over continues from there, and repeats an interrupted sample.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from pytube.backfill import queries as backfills
from pytube.backfill.run import BackfillRun
from pytube.clock import for_people
from pytube.config import Config
from pytube.db.session import Queries
from pytube.errors import (
    RECOVERABLE,
    BackfillBusy,
    DatabaseUnavailable,
    PytubeError,
    SchemaMismatch,
    SinkUnavailable,
    StatementFailed,
    UnknownTube,
    UsageError,
)
from pytube.events import CopyDiffers, SinkEmptied, SinkRefilled
from pytube.logs import is_news
from pytube.pipeline.retry_queue import BackOff
from pytube.sinks import Noting
from pytube.sources import queries
from pytube.verify.report import Report
from pytube.verify.run import Sample, verify
from pytube.worker.database import Database
from pytube.worker.queues import Tube
from pytube.worker.services import end

# --- DDL and backfills ---------------------------------------------------------------------------


SYNC_INTERVAL = 30.0
"""Seconds; partitions that came are followed within a minute, a lost session included."""
_LOOK_INTERVAL = 1.0
_PAUSE_AFTER_TROUBLE = 5.0
_TIDY_INTERVAL = 30.0
"""Seconds between attempts to drop tables that a pg_dump, say, read when their backfill ended."""
_REST = 5.0
"""Seconds for which a backfill that is held up leaves its place to others."""
_MOST_AT_ONCE = 4
"""Backfills that one process runs at the same time; each has a dedicated session."""


async def follow_ddl(database: Database, interval: float = SYNC_INTERVAL) -> None:
    """Call `tube_sync`, then `tube_index_fit`, after DDL and every `interval` seconds.

    Of many workers one is enough: whichever leads the first partition of some queue.
    """
    told: dict[object, str] = {}
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await database.ddl.wait()
        database.ddl.clear()
        if not any(partition == 0 for _, partition in database.terms):
            continue
        try:
            session = await database.open_session("upkeep")  # none is kept for so rare a thing
            try:
                said = "; ".join(await session.warnings(queries.SYNC))
                await session.warnings(queries.FIT_INDEX)  # apart: each holds its locks to its end
            finally:
                await session.close()
        except (DatabaseUnavailable, SchemaMismatch):
            continue  # logged by what keeps the sessions
        except (StatementFailed, UsageError) as error:
            said = str(error)
        if not said:
            told.pop(None, None)
        elif is_news(told, None, said):
            database.log.warning("tables_not_followed", reason=said)


class BackfillRunner:
    """Runs the backfills left to workers that no process runs, one at a time for each tube.

    If this process is killed, another worker continues them. A backfill that fails is logged, noted in the
    database, and retried later, after the others. A backfill that is held up, because the sink of its tube
    takes nothing, say, gives way to the others: else a few of these would stop the backfills of all tubes.
    """

    def __init__(self, database: Database, tubes: Mapping[str, Tube]) -> None:
        self._database = database
        self._tubes = tubes
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tidied_at = -_TIDY_INTERVAL
        self._told: dict[object, str] = {}
        self._back_offs: dict[int, BackOff] = {}
        """Of backfills that fail."""

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(_LOOK_INTERVAL)
                try:
                    await self._tidy()
                    await self._start_untaken()
                except DatabaseUnavailable:
                    # Logged by what renews the terms; whether there is a backfill at all is not known.
                    await asyncio.sleep(_PAUSE_AFTER_TROUBLE)
                except PytubeError as error:
                    self._warn_once(None, error)
                    await asyncio.sleep(_PAUSE_AFTER_TROUBLE)
                else:
                    self._told.pop(None, None)
        finally:
            await end(self._running.values())

    async def _tidy(self) -> None:
        now = time.monotonic()
        if now >= self._tidied_at + _TIDY_INTERVAL:
            await self._database.pool.value(backfills.TIDY)
            self._tidied_at = now

    async def _start_untaken(self) -> None:
        self._running = {tube: task for tube, task in self._running.items() if not task.done()}
        untaken = await self._database.pool.rows(backfills.UNTAKEN, {"tubes": list(self._tubes)})
        # The ones tried longest ago come first, so that held-up backfills starve no other.
        for backfill, tube in sorted(untaken, key=lambda one: self._rests_until(one[0])):
            rests = time.monotonic() < self._rests_until(backfill)
            if not rests and tube not in self._running and len(self._running) < _MOST_AT_ONCE:
                self._running[tube] = asyncio.create_task(self._try(backfill, self._tubes[tube]))

    def _rests_until(self, backfill: int) -> float:
        return self._back_offs[backfill].until if backfill in self._back_offs else float("-inf")

    async def _try(self, backfill: int, tube: Tube) -> None:
        try:
            is_held_up = await self._work_on(backfill, tube)
        except PytubeError as error:
            self._warn_once(backfill, error, tube.name)
            self._back_offs.setdefault(backfill, BackOff()).fail(time.monotonic())
        else:
            self._told.pop(backfill, None)
            self._back_offs.pop(backfill, None)
            if is_held_up:
                self._back_offs[backfill] = BackOff(until=time.monotonic() + _REST)

    async def _work_on(self, backfill: int, tube: Tube) -> bool:
        """Run it; whether it was left because it is held up: its place is needed for another tube's."""
        session = await self._database.open_session("backfill runner")
        try:
            progress = await BackfillRun(
                session,
                backfill,
                tube.settings.backfill,
                lambda _: None,  # the database has the progress for everyone to see
                gives_way=lambda: len(self._running) >= _MOST_AT_ONCE,
            ).run()
        except BackfillBusy:
            return False  # another worker was faster
        finally:
            await session.close()
        return progress.state == "inserting" and not progress.paused

    def _warn_once(self, backfill: int | None, error: PytubeError, tube: str | None = None) -> None:
        """Log the error unless it was the last one logged for this backfill; None: for looking at them."""
        if is_news(self._told, backfill, str(error)):
            where = {} if backfill is None else {"tube": tube, "backfill": backfill}
            self._database.log.write(logging.WARNING, "backfill_stuck", where | {"reason": str(error)})


# --- emptied sinks -------------------------------------------------------------------------------


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


# --- samples -------------------------------------------------------------------------------------


_PATIENCE = 30.0
"""Seconds to wait for the delivery of keys that seem to differ."""
_BEHIND = 2.0
"""Seconds that a tube may be behind while a sample of it is compared."""
_LONGEST_HOLD = 60.0
"""Seconds after which a sample is given up that waits for its tube to catch up."""
_LONGEST = 1800.0
"""Seconds after which a sample is given up that does not end: some sinks never answer."""
_RETRY = 60.0
"""Seconds at most after which a failed sample is begun again."""
_NAMED = 5
"""Keys of each kind that are named."""


class _GivenUp(Exception):
    """The sample is not finished now: live changes, or another worker, come first."""


class Sampler:
    """Compares samples, one at a time."""

    def __init__(
        self,
        config: Config,
        database: Database,
        tubes: Mapping[str, Tube],
    ) -> None:
        self._config = config
        self._database = database
        self.tubes = {name: tube for name, tube in tubes.items() if config.tube(name).verify is not None}
        """The tubes whose copies are sampled."""
        self._due: dict[str, float] = {}
        """When the next sample of each tube that is led here begins."""
        self._told: dict[object, str] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_INTERVAL)
            try:
                await self._follow_leadership()
            except RECOVERABLE:
                continue  # the renewals report it
            now = time.monotonic()
            for name in [name for name, due in self._due.items() if due <= now]:
                await self._try(name)

    async def _follow_leadership(self) -> None:
        """Know when samples are due of the tubes that are led here, and of no other."""
        led = {name for name in self.tubes if self._database.works_on(name, 0)}
        self._due = {name: due for name, due in self._due.items() if name in led}
        if not (new := led - self._due.keys()):
            return
        ages: dict[str, float] = dict(
            await self._database.pool.rows(queries.SAMPLE_AGES, {"tubes": list(new)})
        )
        now = time.monotonic()
        self._due |= {name: now + max(0.0, self._every(name) - ages.get(name, float("inf"))) for name in new}

    def _every(self, name: str) -> float:
        settings = self._config.tube(name).verify
        assert settings is not None
        return settings.every

    async def _try(self, name: str) -> None:
        """Compare a sample; an error is logged, and the sample begun again later."""
        limit = asyncio.timeout(_LONGEST)
        try:
            async with limit:
                await self._compare(name)
        except _GivenUp:
            pause = _LOOK_INTERVAL
        except Exception as error:  # noqa: BLE001 # sinks and transforms may be anybody's code
            pause = min(self._every(name), _RETRY)
            said = str(error)
            if not isinstance(error, PytubeError):
                said = f"{type(error).__name__}: {said}" if said else type(error).__name__
            if limit.expired():
                said = f"it was not done within {for_people(_LONGEST)}; compare fewer keys: lower `sample`"
            if is_news(self._told, name, said):
                self._database.log.warning("sample_not_compared", tube=name, reason=said)
        else:
            self._told.pop(name, None)
            pause = self._every(name)
        self._due[name] = time.monotonic() + pause

    async def _compare(self, name: str) -> None:
        settings = self._config.tube(name).verify
        assert settings is not None

        async def pace(seconds: float) -> None:
            await self._give_way(name, seconds)

        await pace(0.0)
        report = await verify(
            self._config, name, sample=Sample(keys=settings.sample), patience=_PATIENCE, pace=pace
        )
        differing = report.missing + report.extra + report.different - report.parked
        detail = _detail(report)
        await self._database.pool.execute(
            queries.SAMPLED,
            {
                "tube": name,
                "checked": report.compared,
                "differing": differing,
                "undecided": report.waiting + report.changing + report.unsendable,
                "detail": detail,
            },
        )
        if differing:
            self._database.emit(CopyDiffers(name, report.compared, differing, detail))

    async def _give_way(self, name: str, seconds: float) -> None:
        """Take no more of the time than backfills may of the sends, and none while the tube is behind."""
        share = self._config.tube(name).backfill_share
        await asyncio.sleep(seconds * (1 / share - 1))
        ends_at = time.monotonic() + _LONGEST_HOLD
        while self._database.works_on(name, 0):
            lag = await self._database.pool.value(queries.TUBE_LAG, {"tube": name})
            if (lag or 0.0) < _BEHIND:
                return
            if time.monotonic() >= ends_at:
                break
            await asyncio.sleep(_LOOK_INTERVAL)
        raise _GivenUp


def _detail(report: Report) -> str:
    named = [
        f"{kind} shard {shard} id {str(key)[:50]!r}"
        if isinstance(key, str)
        else f"{kind} shard {shard} id {key}"
        for kind in ("missing", "extra", "different")
        for shard, key in report.examples.get(kind, [])[:_NAMED]
    ]
    return f"{report}: {', '.join(named)}" if named else str(report)
