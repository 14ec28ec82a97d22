"""`pytube reindex …`: a new index is filled beside the live one, compared, and takes its place."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click

from pytube.backfill.limits import BackfillLimits
from pytube.cli.backfill_work import Job, run_backfills
from pytube.cli.context import Database, configured_databases_options, json_option
from pytube.cli.output import key_shown, print_json, print_rows
from pytube.cli.settings import Settings
from pytube.config import Config
from pytube.errors import ConfigError, UsageError
from pytube.reindex.run import Reindex, Status
from pytube.sinks import build_sink
from pytube.sinks.reindexing import Reindexer, Reindexing, ReindexState, why_no_reindex
from pytube.verify.report import KINDS, Report
from pytube.verify.run import verify

_TUBE = click.option("--tube", "tube", required=True, metavar="NAME", help="The tube.")
_PATIENCE = click.option(
    "--timeout",
    "patience",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for deliveries before a key that seems to differ is looked at again.",
)
Result = TypeVar("Result")


def _database_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `database_options`, but several hosts are refused: which one would be the wrong question."""

    @configured_databases_options
    @functools.wraps(command)
    def wrapper(*arguments: Any, databases: Sequence[Database], tube: str, **options: Any) -> Any:
        settings = click.get_current_context().find_object(Settings)
        assert settings is not None
        if len(settings.config().hosts) > 1:
            raise UsageError(
                f"tube {tube!r} can't be reindexed: several hosts are configured, and the new index would be "
                "filled with the rows of one of them alone; fill another index by a second tube, "
                "see docs/reindex.md"
            )
        return command(*arguments, database=databases[0], tube=tube, **options)

    return wrapper


@click.group()
def reindex() -> None:
    """Fill a new index while the old one stays live, compare it, and move the alias to it."""


@reindex.command()
@_TUBE
@click.option("--wait", is_flag=True, help="End only when workers have filled the new index.")
@json_option
@_database_options
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
@_database_options
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
@_database_options
@click.pass_obj
def compare(settings: Settings, database: Database, tube: str, patience: float, as_json: bool) -> None:
    """Compare the source with the new index, key by key; exit code 1 if they differ."""

    async def run(job: Reindex, reindexer: Reindexer) -> Report:
        return await _compare(
            settings.config(), database, tube, reindexer, (await job.filled()).state, patience
        )

    found = _run(settings, database, tube, run)
    if as_json:
        print_json(found.as_json())
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
@_database_options
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

    async def run(job: Reindex, reindexer: Reindexer) -> Report | None:
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
        print_json({"switched": not refused, "back": back, "comparison": compared and compared.as_json()})
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
@_database_options
@click.pass_obj
def finish(settings: Settings, database: Database, tube: str, force: bool) -> None:
    """Delete the old index, and write to the new one alone. There is no way back."""
    _run(settings, database, tube, lambda job, _: job.finish(force=force))
    click.echo("the old index is deleted; workers write to the new one alone")


@reindex.command()
@_TUBE
@_database_options
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
    sink = settings.config().tube(tube).sink
    # Without its parts: copies are made and moved whatever is in them.
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
) -> Report:
    """What `pytube verify` says of the new index."""
    if state.new is None:
        raise UsageError(f"the new index of tube {tube!r} is gone; run `pytube reindex abandon`")
    settings = config.tube(tube)
    options = {**settings.sink.options, **reindexer.options_of(state.new)}
    there = settings.model_copy(update={"sink": settings.sink.model_copy(update={"options": options})})
    postgres = config.postgres.model_copy(update={"dsn": database.dsn, "schema_name": database.schema})
    compared = config.model_copy(update={"tubes": {**config.tubes, tube: there}, "postgres": postgres})
    return await verify(compared, tube, patience=patience)


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


def _tell_comparison(found: Report) -> None:
    click.echo(str(found))
    for kind in KINDS:
        for shard, key in found.examples.get(kind, []):
            click.echo(f"  {kind}: shard {shard}, id {key_shown(str(key))}")
    for what in found.not_checked:
        click.echo(f"  not checked: {what}")
