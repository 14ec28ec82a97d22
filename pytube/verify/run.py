"""One verification: all tables of a tube, or a sample, and then the keys that only the sink has.

Tables are walked by their ids, a page at a time, some pages at once. Where the walk is goes to a file now and
then, so that an interrupted run can resume. Memory holds some pages, and the keys to be looked at again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

import pytube
from pytube.comparison import Difference
from pytube.config import Config, masked
from pytube.counts import say_count
from pytube.db.connect import connect_async
from pytube.db.errors import describe, translated
from pytube.enrich.statements import Root, Roots
from pytube.errors import PytubeError, StatementFailed, UsageError
from pytube.model import Id, Key, KeyType, touch_op
from pytube.sinks import Reading, why_no_read, why_no_scan
from pytube.sinks.base import EVERY_SEQ, READ_MOST, Scanning
from pytube.sinks.parts import PartsSink
from pytube.verify.compare import Compared, Comparer, Judged
from pytube.verify.report import Progress, Report
from pytube.verify.sides import Absent, Source, chosen, keys_in, open_to_read, opened

AT_ONCE = 4
"""Pages that are compared at the same time."""
_SUSPECTS = 500
"""Keys that seem to differ, and are looked at again together."""
_LOOK_AT_ONCE = 100
_BYTES = 8 * 1024 * 1024
"""Of documents that one page should have at most; pages are shorter where documents are large."""
_SAVE_EVERY = 1.0
_TELL_EVERY = 2.0
_REMEMBERED = 100_000
"""Keys that only the sink has and that are kept in mind, so as not to count one twice."""
MOST_SAMPLED = 1_000_000
_LARGE = 1_000_000
"""Rows of a table of which whole pages are drawn, so that the others need not be read."""
_MARGIN = 1.5
"""More rows of a sample are asked for than are wanted, as statistics are estimates."""

Told = Callable[[str], object]
Counted = Callable[[Report, int], object]
Pace = Callable[[float], Awaitable[None]]

_IS_STANDBY = "SELECT pg_catalog.pg_is_in_recovery()"
_MAY_REPAIR = """
    SELECT current_setting('transaction_read_only') = 'off',
        has_function_privilege('tube_keys_put(text, integer, text, text[], integer, boolean)', 'EXECUTE')
            AND has_function_privilege('tube_audit_add(text, text, jsonb)', 'EXECUTE')
"""
_UNVERIFIED = "SELECT max(u.since)::text FROM tube_unverified_list(%(tube)s) AS u"
_VERIFIED = "SELECT tube_verified(%(tube)s, 'verify', %(up_to)s)"
_TOUCH = "SELECT tube_keys_put(%(tube)s, %(shard)s, %(op)s, %(ids)s)"
_EMPTIED = (
    "SELECT clock_timestamp() FROM tube_sink_list() AS s WHERE s.tube = %(tube)s AND s.emptied_at IS NOT NULL"
)
_ACCEPT = "SELECT tube_sink_accept(%(tube)s, %(before)s)"
_EMPTIED_SINCE = """
    SELECT EXISTS (SELECT FROM tube_sink_list() AS s WHERE s.tube = %(tube)s AND s.emptied_at >= %(before)s)
"""
_AUDIT = "SELECT tube_audit_add('verify repair', %(tube)s, %(details)s)"
_PARKED = """
    SELECT count(*) FROM tube_parked AS p
    JOIN ROWS FROM (unnest(%(shards)s::integer[]), unnest(%(ids)s::text[])) AS k (shard, id)
        ON p.shard = k.shard AND md5(p.id) = md5(k.id) AND p.id = k.id
    WHERE p.tube = %(tube)s
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """Compare some keys only: so many, or so many of a hundred."""

    keys: int | None = None
    percent: float | None = None

    @classmethod
    def parse(cls, text: str) -> Sample:
        """`1000` or `1%`; `UsageError` for anything else."""
        number, is_percent = text.removesuffix("%"), text.endswith("%")
        try:
            value = float(number) if is_percent else int(number)
        except ValueError:
            value = math.nan
        if not 0 < value <= (100 if is_percent else MOST_SAMPLED):
            raise UsageError(
                f"a sample is a number of keys, 1 to {MOST_SAMPLED}, or a part such as 1%; got {text!r}"
            )
        return cls(percent=value) if is_percent else cls(keys=int(value))


async def verify(
    config: Config,
    tube: str,
    *,
    tables: Sequence[str] = (),
    sample: Sample | None = None,
    repair: bool = False,
    patience: float = 60.0,
    state: Path | None = None,
    told: Told = lambda _: None,
    counted: Counted | None = None,
    pace: Pace | None = None,
) -> Report:
    """Compare the documents at the sink of a tube with its source.

    Args:
        config: the worker's; its role has to be able to read the tables.
        tube: configured there.
        tables: root tables, as schema.table; none: all.
        sample: compare some keys only.
        repair: touch the keys that differ, so that workers deliver them.
        patience: seconds to wait for deliveries before a key that seems to differ is looked at again.
        state: the file that keeps where it stopped; with the file of an interrupted run, it resumes there.
        told: is called with a sentence now and then.
        counted: is called now and then with the report so far, and about how many keys are to be compared;
            by default, `told` is called with the report.
        pace: is awaited after each page, of which there is one at a time then, with the seconds that it took.

    When all was compared and is equal, the tube's copy no longer counts as unverified, as far
    as it did when the run began.

    Raises:
        ConfigError: `state` is not a state of a run like this, or is damaged. Nothing was changed.
        UsageError: the sink can't be read; no such tube or table; the database is a standby; a repair is
            asked for, and the role or the database does not allow it. Nothing was changed.
        SinkUnavailable, DatabaseUnavailable: it can't continue; another run resumes.
    """
    began = time.monotonic()
    if sample is not None:
        state = None  # another run draws another sample
    async with opened(config, tube, "verify") as (source, sink):
        if (why := why_no_read(sink)) is not None:
            raise UsageError(
                f"the sink of tube {tube!r} can't be compared: {why}; "
                f"to have all sent again: pytube backfill start {tube}"
            )
        roots = await source.roots()
        await _check(source, repair=repair)
        held = await open_to_read(sink)
        if isinstance(held, Absent):
            told(f"{held.missing}, so nothing is there")
        emptied_before = await source.pool.value(_EMPTIED, {"tube": tube})
        writer = _Writer(config, tube)
        comparer = Comparer(source, held, patience=patience)
        unverified = await source.pool.value(_UNVERIFIED, {"tube": tube})
        choice = [*tables, str(sample), f"unverified since {unverified}"]
        fingerprint = _fingerprint(config, tube, roots, choice, repair=repair)
        progress = None if state is None else Progress.load(state, tube, fingerprint, told)
        if progress is not None:
            told(f"resuming an interrupted run: {progress.report}")
        run = _Run(
            source,
            held,
            comparer,
            chosen(roots, tube, tables),
            progress or Progress(fingerprint, Report(tube)),
            repair=writer if repair else None,
            state=state,
            told=told,
            counted=counted or (lambda report, _: told(str(report))),
            pace=pace,
        )
        try:
            await (run.all(roots) if sample is None else run.some(roots, sample))
            await run.close(roots)
        except BaseException:
            run.stop()
            raise
    is_whole = run.report.is_equal and not (tables or sample)
    if unverified is not None and is_whole:
        await writer.record(unverified, told)
    run.forget()
    run.report.seconds += time.monotonic() - began
    if emptied_before is not None and is_whole:
        told(await writer.accept(emptied_before))
    return run.report


def _fingerprint(config: Config, tube: str, roots: Roots, choice: Sequence[str], *, repair: bool) -> str:
    """The settings that must be the same for an interrupted run to resume.

    `repair` is part of it: a run without it touches none of its findings, and finds them only once.
    """
    dsn = conninfo_to_dict(config.postgres.only_dsn.get_secret_value())
    what = {
        "version": pytube.__version__,  # another one may compare otherwise
        "registry": roots.state.decode(),
        "choice": sorted(choice),
        "repair": repair,
        "database": [dsn.get(part) for part in ("service", "host", "port", "dbname")],
        "settings": masked(config)["tube"][tube],
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()


async def _check(source: Source, *, repair: bool) -> None:
    """Refuse runs that can't end well, before anything is done."""
    if await source.pool.value(_IS_STANDBY):
        raise UsageError(
            "this server is a standby, which lags behind the delivered changes; connect to the primary"
        )
    if not repair:
        return
    # In a session that is not made read-only by us.
    async with source.pool.session() as session:
        await session.execute("SET default_transaction_read_only = DEFAULT")
        try:
            is_writable, is_allowed = await session.row(_MAY_REPAIR) or (False, False)
        finally:
            await session.execute("SET default_transaction_read_only = on")
    if not is_writable:
        raise UsageError("the database is read-only, so nothing can be touched; leave --repair out")
    if not is_allowed:
        raise UsageError(
            "the configured role may not touch: grant it tube_worker or tube_writer, or leave --repair out"
        )


class _Writer:
    """The writes of a verification, in writable sessions, unlike the sessions that read the source."""

    def __init__(self, config: Config, tube: str) -> None:
        self._dsn = config.postgres.only_dsn.get_secret_value()
        self._schema = config.postgres.schema_name
        self._tube = tube
        self._touched = 0

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[psycopg.AsyncConnection]:
        connection = await connect_async(self._dsn, self._schema, "pytube verify", lock_timeout=10.0)
        try:
            with translated():
                yield connection
        finally:
            await connection.close()

    async def touch(self, differing: Mapping[Key, Difference]) -> None:
        """Touch keys, with a line in the audit: all of them or, on an error, none."""
        shards: dict[int, list[str]] = {}
        counts = dict.fromkeys(Difference, 0)
        for (shard, key), kind in differing.items():
            shards.setdefault(shard, []).append(str(key))
            counts[kind] += 1
        details = {kind.value: count for kind, count in counts.items() if count}
        self._touched += len(differing)
        op = touch_op(self._touched)
        try:
            async with self._session() as connection, connection.transaction():
                for shard, ids in shards.items():
                    await connection.execute(
                        _TOUCH, {"tube": self._tube, "shard": shard, "op": op, "ids": ids}
                    )
                await connection.execute(_AUDIT, {"tube": self._tube, "details": Jsonb(details)})
        except psycopg.Error as error:
            raise StatementFailed(f"the keys that differ can't be touched: {describe(error)}") from error

    async def record(self, unverified: str, told: Told) -> None:
        """The copy is equal: what made it doubtful when the run began is over."""
        try:
            async with self._session() as connection:
                await connection.execute(_VERIFIED, {"tube": self._tube, "up_to": unverified})
        except (psycopg.Error, PytubeError) as error:
            text = describe(error) if isinstance(error, psycopg.Error) else str(error)
            told(
                f"that the copy is equal could not be recorded: {text}; as a role that may, run: "
                f"pytube tube acknowledge {self._tube}"
            )

    async def accept(self, before: datetime) -> str:
        """Count the sink as complete, unless it was found emptied since `before`; returns the result."""
        try:
            async with self._session() as connection:
                what = {"tube": self._tube, "before": before}
                await connection.execute(_ACCEPT, what)
                # Where nothing was to be accepted, a worker may have seen that a backfill had filled it.
                cursor = await connection.execute(_EMPTIED_SINCE, what)
                row = await cursor.fetchone()
        except psycopg.Error as error:
            return (
                f"the sink still counts as emptied ({describe(error)}); run `pytube sink accept {self._tube}`"
            )
        if row != (False,):
            return "the sink was found emptied again meanwhile; compare it again"
        return "the sink, which was found emptied, counts as complete again"


@dataclass(slots=True)
class _Run:
    """The work of one verification."""

    source: Source
    sink: Reading
    comparer: Comparer
    tables: Sequence[Root]
    progress: Progress
    repair: _Writer | None
    state: Path | None
    told: Told
    counted: Counted
    pace: Pace | None
    total: int = 0
    """About how many keys are to be compared."""
    is_walking: bool = True
    saved_at: float = field(default_factory=time.monotonic)
    told_at: float = field(default_factory=time.monotonic)
    unknown: int = 0
    """Documents at the sink of whose keys it can't be found out whether rows have them."""
    example: str = ""
    """One of these keys, and the reason."""
    page: int = _LOOK_AT_ONCE
    """Keys of a page; what documents there are is learned from the first."""

    @property
    def report(self) -> Report:
        """The findings so far."""
        return self.progress.report

    # --- walks ----------------------------------------------------------------------------

    async def all(self, roots: Roots) -> None:
        """Compare all ids of the tables; then look for keys that only the sink has."""
        self.total = round(sum([max(0, await self.source.rows(root)) for root in self.tables]))
        for table in range(self.progress.table, len(self.tables)):
            root = self.tables[table]
            pages = self._pages(roots, root, self.progress.after)
            await self._compare_all(pages, root)
            self.progress.table, self.progress.after = table + 1, None
        await self._look_again()
        # From here on an interrupted run begins again, or keys that only the sink has would count twice.
        self.save()
        self.is_walking = False
        await self._find_extra(roots.keys)

    async def some(self, roots: Roots, sample: Sample) -> None:
        """Compare a sample of each table."""
        for root in self.tables:
            rows = await self.source.rows(root)
            percent, limit = sample.percent, MOST_SAMPLED
            if sample.keys is not None:
                limit = sample.keys
                percent = min(100.0, max(1e-6, 100 * _MARGIN * limit / rows)) if rows else None
            drawn = None if percent is None else (percent, rows > _LARGE)
            ids = await self.source.ids(roots, root, None, limit, drawn)
            self.total += len(ids)
            await self._compare_all(self._slices(ids), root)
        await self._look_again()
        self.report.not_checked.append(
            "a sample was compared, and keys that only the sink has were not looked for"
        )
        if not self.report.compared:
            self.report.is_complete = False
            self.report.not_checked.append("no key was drawn; take a larger sample")

    async def close(self, roots: Roots) -> None:
        """Note the parts that were not checked."""
        report = self.report
        if (await self.source.roots()).state != roots.state:
            report.is_complete = False
            report.not_checked.append("the tube or its attached tables were changed meanwhile; run again")
        if report.skipped:
            report.not_checked.append(
                f"{say_count(report.skipped, 'key')} that a transform lets nothing be sent of"
            )
        if report.waiting:
            report.not_checked.append(
                f"keys that seem to differ and were not delivered in time: {report.waiting} wait in the "
                "tube; are its workers running (`pytube status`)?"
            )
        if report.changing:
            report.not_checked.append(
                "keys that changed each time they were looked at, or whose documents are not the same twice: "
                f"{report.changing}; does the query or a transform depend on the time?"
            )

    async def _pages(self, roots: Roots, root: Root, after: Id | None) -> AsyncIterator[list[Id]]:
        while True:
            ids = await self.source.ids(roots, root, after, self.page)
            if not ids:
                return
            after = ids[-1]
            yield ids

    async def _slices(self, ids: Sequence[Id]) -> AsyncIterator[list[Id]]:
        start = 0
        while start < len(ids):
            end = start + self.page
            yield list(ids[start:end])
            start = end

    async def _compare_all(self, pages: AsyncIterator[list[Id]], root: Root) -> None:
        """Compare pages of ids, some at once; the results are taken in their order."""
        running: deque[tuple[Id, int, asyncio.Task[Compared]]] = deque()
        try:
            async for ids in pages:
                keys = list(keys_in(root, ids))
                running.append((ids[-1], len(keys), asyncio.create_task(self._compare(keys))))
                if len(running) >= (AT_ONCE if self.pace is None else 1):
                    await self._take(running)
            while running:
                await self._take(running)
        finally:
            for _, _, task in running:
                task.cancel()
            await asyncio.gather(*(task for _, _, task in running), return_exceptions=True)

    async def _compare(self, keys: Sequence[Key]) -> Compared:
        began = time.monotonic()
        came = await self.comparer.compare(keys)
        if self.pace is not None:
            await self.pace(time.monotonic() - began)
        if keys and came.bytes:
            self.page = max(1, min(READ_MOST, _BYTES * len(keys) // came.bytes))
        elif keys:
            self.page = READ_MOST
        return came

    async def _take(self, running: deque[tuple[Id, int, asyncio.Task[Compared]]]) -> None:
        after, number, task = running[0]
        came = await task
        running.popleft()
        self._count(came, number)
        self.progress.after = after
        if len(self.progress.suspects) >= _SUSPECTS:
            await self._look_again()
        now = time.monotonic()
        if now - self.saved_at >= _SAVE_EVERY:
            self.save()
        if now - self.told_at >= _TELL_EVERY:
            self.told_at = now
            self.counted(self.report, self.total)

    def _count(self, came: Compared, compared: int) -> None:
        report = self.report
        report.compared += compared
        report.skipped += len(came.skipped)
        for key in came.unsendable:
            report.note("unsendable", key)
        self.progress.suspects += came.suspects

    # --- keys that differ -----------------------------------------------------------------

    async def _look_again(self) -> None:
        suspects = self.progress.suspects
        while suspects:
            group = suspects[:_LOOK_AT_ONCE]
            judged = await self.comparer.judge(group)
            if self.pace is not None:
                await self.pace(0.0)  # it was a wait, for the most part
            parked = 0
            if judged.differing:
                parked = await self._parked(judged.differing)
                if self.repair is not None:
                    await self.repair.touch(judged.differing)
            # All at once, so that an interrupted run counts none of them twice.
            del suspects[: len(group)]
            self._note(judged, parked)

    def _note(self, judged: Judged, parked: int) -> None:
        report = self.report
        report.parked += parked
        if self.repair is not None:
            report.touched += len(judged.differing)
        for key, found in judged.differing.items():
            report.note(found.value, key)
        report.skipped += len(judged.skipped)
        for kind, keys in (
            ("waiting", judged.waiting),
            ("changing", judged.changing),
            ("unsendable", judged.unsendable),
        ):
            for key in keys:
                report.note(kind, key)

    async def _parked(self, keys: Iterable[Key]) -> int:
        shards, ids = zip(*keys, strict=True)
        arguments = {"tube": self.report.tube, "shards": list(shards), "ids": [str(key) for key in ids]}
        return int(await self.source.pool.value(_PARKED, arguments))

    # --- keys that only the sink has ------------------------------------------------------

    async def _find_extra(self, keys: KeyType) -> None:
        """Scan the sink for keys that no row has."""
        sink, report = self.sink, self.report
        why = why_no_scan(sink)
        if why is not None or not isinstance(sink, Scanning):
            report.not_checked.append(f"keys that only the sink has were not looked for: {why}")
            return
        self.told("looking for keys that only the sink has")
        known: set[Key] = set()
        strange, example = 0, ""  # documents that no row can be: workers never write their keys
        for shard in sorted(
            {shard for root in self.tables for shard in range(root.shard, root.shard + root.shards)}
        ):
            async for page in sink.scan(report.tube, shard, EVERY_SEQ):
                possible = [key for key in page if keys.has(key)]
                if len(possible) < len(page):
                    strange += len(page) - len(possible)
                    key = next(key for key in page if not keys.has(key))
                    example = f"shard {shard} id {str(key)[:50]!r}"
                await self._suspect(shard, possible, known)
        await self._look_again()
        left_out = [sink.overlooked()] if isinstance(sink, PartsSink) else []
        if self.unknown:
            left_out.append(
                f"whether the sink alone has {say_count(self.unknown, 'key')} that can't be read, "
                f"e.g. {self.example}"
            )
        if strange:
            left_out.append(
                f"{strange} documents at the sink have ids that no row of this tube can have, e.g. "
                f"{example}; the tube had other keys, or `parts`, when they were written: see "
                "docs/transforms.md"
            )
        if said := [one for one in left_out if one is not None]:
            report.is_complete = False
            report.not_checked += said

    async def _suspect(self, shard: int, ids: Sequence[Id], known: set[Key]) -> None:
        """Suspect the keys of a page of the scan that no row has; `known`: the keys met before.

        Some sinks give a key several times, as a rule close to each other. A key that can't be read is not
        judged: where a row has it, the walk has counted it.
        """
        new = [key for key in ((shard, id_) for id_ in dict.fromkeys(ids)) if key not in known]
        for start in range(0, len(new), READ_MOST):
            unknown: dict[Key, str] = {}
            found = await self.source.without_row(new[start : start + READ_MOST], unknown)
            self.progress.suspects += found
            self.unknown += len(unknown)
            for (_, id_), reason in unknown.items():
                self.example = f"shard {shard} id {str(id_)[:50]!r}: {reason}"
            if len(known) >= _REMEMBERED:
                known.clear()
            known.update(found, unknown)
        if len(self.progress.suspects) >= _SUSPECTS:
            await self._look_again()

    # --- the file -------------------------------------------------------------------------

    def save(self) -> None:
        """Keep where the walk is; once, say why that can't be kept."""
        self.saved_at = time.monotonic()
        if self.state is None or not self.is_walking:
            return
        try:
            self.progress.save(self.state)
        except OSError as error:
            self.told(
                f"where it stops can't be kept in {self.state}: {error.strerror}; name another by --state"
            )
            self.state = None

    def stop(self) -> None:
        """Keep where the walk is, and say so."""
        self.save()
        if self.state is not None:
            self.told(
                f"stopped: {self.report}; run it again with the same options to resume from {self.state}"
            )

    def forget(self) -> None:
        """Remove the file: the run is over."""
        if self.state is not None:
            self.state.unlink(missing_ok=True)
