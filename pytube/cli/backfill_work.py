"""The work on backfills that a command does or waits for, and how it is shown meanwhile.

It is shown as a bar on a terminal, as lines elsewhere, and as JSON for machines.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import click
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

from pytube.backfill import queries
from pytube.backfill.limits import BackfillLimits, Progress
from pytube.backfill.run import BackfillRun
from pytube.cli.context import Database
from pytube.cli.output import console, print_json, seconds
from pytube.db.session import Session
from pytube.errors import BackfillBusy, DatabaseUnavailable

_INTERRUPTED = 130
_BY_WORKERS = "left to the workers of the tube"
_LINE_INTERVAL = 5.0
"""Seconds between two lines of the same state."""


class Job(NamedTuple):
    """A backfill that is under way."""

    number: int
    by_worker: bool
    """Whether a worker inserts its pods, not the command."""


def run_backfills(
    database: Database, tube: str, jobs: Sequence[Job], limits: BackfillLimits, *, wait: bool, as_json: bool
) -> None:
    """Insert what is left of each, one after the other; with `wait`, until workers have delivered it.

    Raises:
        PytubeError: as `BackfillRun.run`.
    """
    resume = f"go on with: pytube backfill resume --tube {tube}"
    try:
        with progress_display(as_json=as_json) as display:
            asyncio.run(_work(database, jobs, limits, display, wait=wait))
    except DatabaseUnavailable:
        click.echo(f"pytube: nothing is lost; {resume}", err=True)
        raise
    except KeyboardInterrupt:
        click.echo(f"pytube: interrupted; {resume}", err=True)
        click.get_current_context().exit(_INTERRUPTED)


async def _work(
    database: Database, jobs: Sequence[Job], limits: BackfillLimits, display: ProgressDisplay, *, wait: bool
) -> None:
    session = await Session.open(
        database.dsn.get_secret_value(),
        database.schema,
        "pytube filling",
        answer_timeout=database.answer_timeout,
    )
    try:
        for job in jobs:
            if job.by_worker:
                await _show(job, session, display)
            else:
                await _insert(BackfillRun(session, job.number, limits, display.progress), display)
        for job in jobs if wait else ():
            await BackfillRun(session, job.number, limits, display.progress).wait_until_delivered()
        await session.value(queries.TIDY)
    finally:
        await session.close()


async def _insert(run: BackfillRun, display: ProgressDisplay) -> None:
    try:
        await run.run()
    except BackfillBusy as error:
        display.message(str(error))


async def _show(job: Job, session: Session, display: ProgressDisplay) -> None:
    """How far it is; a worker does the rest."""
    progress = await BackfillRun(session, job.number, BackfillLimits(), lambda _: None).look()
    if progress.note is None and progress.state in ("waiting", "inserting"):
        progress = dataclasses.replace(progress, note=_BY_WORKERS)
    display.progress(progress)


# --- how it is shown --------------------------------------------------------------------


class ProgressDisplay(Protocol):
    """Shows progress and messages of backfills."""

    def progress(self, progress: Progress) -> None:
        """Show how far a backfill is."""

    def message(self, text: str) -> None:
        """Show any other message."""


@contextmanager
def progress_display(*, as_json: bool) -> Iterator[ProgressDisplay]:
    """The display that suits standard output: bars on a terminal, lines elsewhere."""
    if as_json or not sys.stdout.isatty():
        yield _Lines(as_json=as_json)
        return
    detail = TextColumn("{task.fields[detail]}", table_column=Column(overflow="fold"))
    columns = (TextColumn("{task.description}"), BarColumn(20), detail)
    with Bar(*columns, console=console()) as bar:
        yield _Bars(bar)


class _Lines:
    """One line every few seconds, and whenever the state has changed.

    While it inserts, its note comes and goes with every chunk, and is no change of state.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._last: tuple[object, ...] = ()
        self._at = 0.0

    def progress(self, progress: Progress) -> None:
        waits_for = (progress.note or "").split(":")[0] if progress.state == "waiting" else None
        state = (progress.backfill, progress.state, progress.paused, waits_for)
        if state == self._last and time.monotonic() < self._at + _LINE_INTERVAL:
            return
        self._last, self._at = state, time.monotonic()
        if self._as_json:
            print_json(dataclasses.asdict(progress) | {"seconds_left": progress.seconds_left})
        else:
            click.echo(f"backfill {progress.backfill} of {progress.table}: {_detail(progress)}")
        sys.stdout.flush()

    def message(self, text: str) -> None:
        if self._as_json:
            print_json({"message": text})
        else:
            click.echo(text)


class _Bars:
    """A bar for each backfill."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._tasks: dict[int, int] = {}

    def progress(self, progress: Progress) -> None:
        task = self._tasks.get(progress.backfill)
        if task is None:
            task = self._tasks[progress.backfill] = int(self._bar.add_task(progress.table, detail=""))
        self._bar.update(
            task,  # type: ignore[arg-type] # a number with a name of its own
            total=progress.rows_total,
            completed=progress.rows_done,
            detail=_detail(progress),
        )

    def message(self, text: str) -> None:
        self._bar.console.print(text)


def _detail(progress: Progress) -> str:
    parts = ["paused" if progress.paused else progress.state]
    if progress.rows_total is not None:
        parts.append(f"{progress.rows_done} of {progress.rows_total} rows")
    if progress.rate and progress.state == "inserting":
        parts.append(f"{progress.rate:.0f} rows/s")
    left = progress.seconds_left
    if left is not None and progress.state == "inserting":
        parts.append(f"{seconds(left)} left")
    if progress.note:
        parts.append(progress.note)
    return ", ".join(parts)
