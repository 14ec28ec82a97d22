"""`pytube reindex …`: a new index is filled beside the live one, compared, and takes its place."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import click

from pytube.backfill.limits import BackfillLimits
from pytube.cli.backfill_work import Job, run_backfills
from pytube.cli.context import Database, database_options, json_option
from pytube.cli.output import print_json, print_rows
from pytube.cli.settings import Settings
from pytube.config import Config
from pytube.db.session import Session, SessionPool
from pytube.enrich import build_enricher
from pytube.errors import ConfigError
from pytube.logs import Logger, UserFaults
from pytube.reindex.compare import Comparer, Comparison
from pytube.reindex.run import Reindex, Status
from pytube.sinks import build_sink
from pytube.sinks.reindexing import Reindexer, Reindexing, ReindexState, why_no_reindex
from pytube.sources.terms import read_partitions
from pytube.transforms import Transforms

_TUBE = click.option("--tube", "tube", required=True, metavar="NAME", help="The tube.")
_PATIENCE = click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds for which keys that differ are looked at again: a change may be on its way.",
)
_SESSIONS = 2
_READS = {"row_security": "off"}
"""A row that a policy hides would look like one that is gone."""

Result = TypeVar("Result")


@click.group()
def reindex() -> None:
    """Fill a new index while the old one stays live, compare it, and move the alias to it."""


@reindex.command()
@_TUBE
@click.option("--wait", is_flag=True, help="End only when workers have filled the new index.")
@json_option
@database_options
@click.pass_obj
def start(settings: Settings, database: Database, tube: str, wait: bool, as_json: bool) -> None:
    """Make a new index as it is configured now, have workers write to both, and fill the new one.

    The workers of the tube fill it by a backfill. Run it again after an interruption.
    """
    status = _run(settings, database, tube, lambda job, _: job.start())
    _tell(tube, status, as_json=as_json)
    if wait:
        jobs = [Job(number, by_worker=True) for number in status.state.backfills]
        run_backfills(database, tube, jobs, BackfillLimits(), wait=True, as_json=as_json)


@reindex.command()
@_TUBE
@json_option
@database_options
@click.pass_obj
def status(settings: Settings, database: Database, tube: str, as_json: bool) -> None:
    """Show how far a reindex is, and what to do next."""
    found = _run(settings, database, tube, lambda job, _: job.status())
    if found is not None:
        _tell(tube, found, as_json=as_json)
    elif as_json:
        print_json(None)
    else:
        click.echo(f"no reindex of tube {tube} is under way")


@reindex.command()
@_TUBE
@_PATIENCE
@json_option
@database_options
@click.pass_obj
def compare(settings: Settings, database: Database, tube: str, patience: float, as_json: bool) -> None:
    """Compare the source with the new index, key by key; exit code 1 if they differ."""

    async def run(job: Reindex, reindexer: Reindexer) -> Comparison:
        return await _compare(
            settings.config(), database, tube, reindexer, (await job.filled()).state, patience
        )

    found = _run(settings, database, tube, run)
    if as_json:
        print_json(_as_json(found))
    else:
        _tell_comparison(found)
    if not found.is_equal:
        click.get_current_context().exit(1)


@reindex.command()
@_TUBE
@click.option("--force", is_flag=True, help="Switch although the new index differs from the source.")
@click.option("--back", is_flag=True, help="Move the alias to the old index again.")
@_PATIENCE
@json_option
@database_options
@click.pass_obj
def switch(
    settings: Settings,
    database: Database,
    tube: str,
    force: bool,
    back: bool,
    patience: float,
    as_json: bool,
) -> None:
    """Compare, then move the alias to the new index in one step; exit code 1 if they differ.

    Workers go on writing to both until `finish`, so that `--back` finds the old index up to date.
    """

    async def run(job: Reindex, reindexer: Reindexer) -> Comparison | None:
        if back:
            await job.switch(back=True)
            return None
        status = await job.filled()
        if status.phase == "switched":
            return None
        compared = await _compare(settings.config(), database, tube, reindexer, status.state, patience)
        if compared.is_equal or force:
            await job.switch()
        return compared

    compared = _run(settings, database, tube, run)
    refused = compared is not None and not compared.is_equal and not force
    if as_json:
        print_json({"switched": not refused, "back": back, "comparison": _as_json(compared)})
    elif compared is not None:
        _tell_comparison(compared)
    if refused:
        click.echo(
            "pytube: not switched, because the new index differs from the source; look at the keys, and at "
            f"pytube park list --tube {tube}; --force switches all the same",
            err=True,
        )
        click.get_current_context().exit(1)
    if not as_json:
        where = "old" if back else "new"
        click.echo(f"the alias is on the {where} index; workers write to both until: {_next(tube, 'finish')}")


@reindex.command()
@_TUBE
@click.option(
    "--force", is_flag=True, help="Do not wait until tombstone_seconds have passed since the start."
)
@database_options
@click.pass_obj
def finish(settings: Settings, database: Database, tube: str, force: bool) -> None:
    """Delete the old index, and write to the new one alone. There is no way back."""
    _run(settings, database, tube, lambda job, _: job.finish(force=force))
    click.echo("the old index is deleted; workers write to the new one alone")


@reindex.command()
@_TUBE
@database_options
@click.pass_obj
def abandon(settings: Settings, database: Database, tube: str) -> None:
    """Delete the new index, and leave everything as it was before the start."""
    if _run(settings, database, tube, lambda job, _: job.abandon()):
        click.echo("the new index is deleted; workers write to the old one alone")
    else:
        click.echo(f"no reindex of tube {tube} is under way; nothing was deleted")


# --- how it is run ------------------------------------------------------------------------------


def _run(
    settings: Settings,
    database: Database,
    tube: str,
    step: Callable[[Reindex, Reindexer], Awaitable[Result]],
) -> Result:
    """Run a step with what it needs."""
    config = settings.config()
    sink = config.tube(tube).sink
    built = build_sink(sink.type, sink.options, request_timeout=sink.request_timeout)
    reason = why_no_reindex(built)
    if reason is not None or not isinstance(built, Reindexing):
        raise ConfigError(f"tube {tube!r} can't be reindexed: its sink is {sink.type}, and {reason}")
    reindexer = built.reindexer()

    async def run() -> Result:
        try:
            with database.connect() as connection:
                return await step(Reindex(tube, reindexer, connection, database.schema), reindexer)
        finally:
            await reindexer.close()

    return asyncio.run(run())


async def _compare(
    config: Config, database: Database, tube: str, reindexer: Reindexer, state: ReindexState, patience: float
) -> Comparison:
    settings = config.tube(tube)
    log = Logger("pytube.reindex", tube=tube)
    transforms = Transforms.load(settings.transforms, tube, log, UserFaults(log))
    sink = reindexer.reader(state)
    await sink.open()
    try:
        async with _pool(database) as pool:
            partitions = (await read_partitions(pool, [tube]))[tube]
            enricher = build_enricher(settings.enrich, tube, pool, database.answer_timeout)
            return await Comparer(tube, partitions, pool, enricher, transforms, sink).run(patience)
    finally:
        await sink.close()


@asynccontextmanager
async def _pool(database: Database) -> AsyncIterator[SessionPool]:
    async def open_session() -> Session:
        return await Session.open(
            database.dsn.get_secret_value(),
            database.schema,
            "pytube reindex",
            answer_timeout=database.answer_timeout,
            settings=_READS,
        )

    pool = SessionPool(open_session, _SESSIONS)
    try:
        yield pool
    finally:
        await pool.close()


# --- how it is shown ----------------------------------------------------------------------------


def _tell(tube: str, status: Status, *, as_json: bool) -> None:
    if as_json:
        print_json(
            dataclasses.asdict(status.state)
            | {
                "phase": status.phase,
                "old_documents": status.old_documents,
                "new_documents": status.new_documents,
                "backfills": status.backfills,
                "next": _next(tube, _STEPS[status.phase]),
            }
        )
        return
    rows = [
        {"role": role, "index": name or "gone", "documents": count, "searched": "yes" if searched else "no"}
        for role, name, count, searched in (
            ("old", status.state.old, status.old_documents, not status.state.is_switched),
            ("new", status.state.new, status.new_documents, status.state.is_switched),
        )
    ]
    print_rows({name: name for name in ("role", "index", "documents", "searched")}, rows, "")
    for row in status.backfills:
        done = "" if row["rows_total"] is None else f", {row['rows_done']} of {row['rows_total']} rows"
        click.echo(f"backfill {row['backfill_id']} of {row['tbl']}: {row['state']}{done}")
    click.echo(f"{status.phase}; next: {_next(tube, _STEPS[status.phase])}")


_STEPS = {"filling": "status", "stopped": "start", "filled": "switch", "switched": "finish"}


def _next(tube: str, step: str) -> str:
    return f"pytube reindex {step} --tube {tube}"


def _as_json(found: Comparison | None) -> dict[str, object] | None:
    return None if found is None else dataclasses.asdict(found) | {"is_equal": found.is_equal}


def _tell_comparison(found: Comparison) -> None:
    click.echo(str(found))
    for kind, shard, id_ in found.examples:
        click.echo(f"  {kind}: shard {shard}, id {id_}")
