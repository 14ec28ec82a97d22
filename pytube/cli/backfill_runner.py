"""The work on backfills that a command does, or waits for."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import click

from pytube.backfill import queries
from pytube.backfill.limits import BackfillLimits
from pytube.backfill.run import BackfillRun
from pytube.cli.context import Database
from pytube.cli.progress_display import ProgressDisplay, progress_display
from pytube.db.session import Session
from pytube.errors import BackfillBusy, DatabaseUnavailable

_INTERRUPTED = 130
_BY_WORKERS = "left to the workers of the tube"


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
