"""`pytube sink …`: checks of a sink. `pytube reindex …`: a new index beside the live one takes its place."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pytube import admin
from pytube.cli.backfill import Job, run_backfills
from pytube.cli.context import (
    Session,
    config_of,
    confirm,
    current_settings,
    database_options,
    flag,
    json_option,
    seconds_option,
    tube_argument,
    yes_option,
)
from pytube.cli.output import print_json, print_table, print_text, say, tell, wants_json
from pytube.cli.program import FAILED, NOT_WELL, Settings, first_signal, interrupted
from pytube.cli.verify import print_report, showing_progress
from pytube.config import BackfillConfig, Config, SinkConfig
from pytube.db.database import Database
from pytube.errors import ConfigError, UsageError
from pytube.health.doctor import check_sink
from pytube.health.findings import Level
from pytube.model import KeyType
from pytube.reindex import Reindex, Status, Unanswered
from pytube.sinks import build_sink
from pytube.sinks.base import Trial, Trying
from pytube.testing.trial import Checked, Interruption, names_of_checks, run_checks
from pytube.verify.report import Report
from pytube.verify.run import verify

if TYPE_CHECKING:
    from pytube.sinks.opensearch.reindex import IndexReindexer, ReindexState

_OF_PARTS = "the checks write whole documents, and how the configuration splits them is not judged"
_COLORS = {"ok": "green", "failed": "red", "not judged": "yellow"}


@click.group()
def sink() -> None:
    """Check a tube's sink, or accept it as complete."""


@sink.command()
@tube_argument()
@flag("--yes", help="Send even to a receiver that can't undo it.")
@json_option
@click.pass_obj
def check(settings: Settings, name: str, yes: bool) -> None:
    """Run the conformance suite against a tube's sink.

    Uses a separate index, table, topic, file, or key prefix and deletes it afterwards, even if interrupted.
    Reads and changes no document of the tube. Exits with 1 if a check fails or something remains.
    """
    configured = settings.config().tube(name).sink
    # Without its parts: the suite writes documents of any form.
    built = build_sink(configured.type, configured.options, request_timeout=configured.request_timeout)
    if not isinstance(built, Trying):
        raise ConfigError(
            f"the sink {configured.type} of tube {name!r} has no method `trial`, so the checks have no "
            "separate place to write to; see docs/sinks.md"
        )
    first = built.trial("trial-0", KeyType.BIGINT)
    if first.erase is None and not yes:
        raise UsageError(
            f"{len(names_of_checks())} checks would send to {first.where} and the like; the "
            "receiver can't undo that; --yes sends it"
        )
    if not wants_json():
        for note in (*first.notes, *_notes(name, configured)):
            click.echo(f"note: {note}")
    left: list[str] = []
    found: list[Checked] = []
    interruption = Interruption()
    # A sink warns at each of its many opens; a worker repeats the warning once, at its start.
    log = logging.getLogger("pytube")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with first_signal(interruption.ask) as received:
            for checked in run_checks(built.trial, left.append, interruption):
                found.append(checked)
                if checked.left is not None:
                    left.append(checked.left)
                _tell_checked(checked)
    finally:
        log.setLevel(level)
    if received:
        interrupted(128 + received[0], f"; {_about(left)}")
    if not wants_json():
        _sum_up(found, first, left)
    if left or any(one.result == "failed" for one in found):
        click.get_current_context().exit(NOT_WELL)


def _notes(tube: str, configured: SinkConfig) -> Iterator[str]:
    """Remarks on parts that the checks don't judge."""
    if configured.parts is not None:
        yield _OF_PARTS
    own = check_sink(tube, configured)
    if own.level is Level.WARN:
        yield f"of the place of the tube itself, which is not checked: {own.finding}: {own.remedy}"


@sink.command()
@tube_argument()
@database_options(opens=Session)
def accept(at: Session, name: str) -> None:
    """Accept a sink as complete although it lost documents.

    A `pytube verify` that finds no difference does the same, and so does a finished backfill of all tables.
    """
    found = admin.accept_sink(at.connection, name, at.schema)
    text = f"the sink of {name} counts as complete" if found else f"the sink of {name} was not found emptied"
    tell(text, {"tube": name, "accepted": bool(found)})


def _about(left: list[str]) -> str:
    return f"left at the sink, delete it: {'; '.join(left)}" if left else "nothing is left at the sink"


def _tell_checked(checked: Checked) -> None:
    if wants_json():
        print_json(asdict(checked))
        return
    start = f"{checked.result:<10}  {checked.check}"
    mark = click.style(f"{checked.result:<10}", fg=_COLORS[checked.result])
    print_text(f"{start}: " if checked.reason else start, checked.reason or "", mark)


def _sum_up(found: list[Checked], first: Trial, left: list[str]) -> None:
    counts: Counter[str] = Counter(one.result for one in found)
    click.echo(", ".join(f"{counts[result]} {result}" for result in _COLORS))
    click.echo("the receiver keeps everything that was sent" if first.erase is None else _about(left))


# --- a new index --------------------------------------------------------------------------------------

_PATIENCE = seconds_option(
    "--timeout",
    "patience",
    default=30.0,
    help="Seconds to wait for deliveries before rechecking a key that seems to differ.",
)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Target:
    """A tube that is reindexed."""

    config: Config
    database: Database
    tube: str

    def run(self, step: Callable[[Reindex, IndexReindexer], Awaitable[Result]]) -> Result:
        """Run a step with a reindexer and a session."""
        sink = self.config.tube(self.tube).sink
        # Without its parts: copies are made and moved whatever is in them.
        built = build_sink(sink.type, sink.options, request_timeout=sink.request_timeout)
        make: Callable[[], IndexReindexer] | None = getattr(built, "reindexer", None)
        if make is None:
            raise ConfigError(
                f"tube {self.tube!r} can't be reindexed: its sink is {sink.type}, and only a sink that has "
                "an alias for its documents can be, such as opensearch"
            )
        reindexer = make()

        async def run() -> Result:
            try:
                with self.database.connect() as connection:
                    return await step(
                        Reindex(self.tube, reindexer, connection, self.database.schema), reindexer
                    )
            finally:
                await reindexer.close()

        return asyncio.run(run())

    async def compare(self, reindexer: IndexReindexer, state: ReindexState, patience: float) -> Report:
        """The report of `pytube verify` on the new index."""
        if state.new is None:
            raise UsageError(f"the new index of tube {self.tube!r} is gone; run `pytube reindex abandon`")
        settings = self.config.tube(self.tube)
        options = {**settings.sink.options, **reindexer.options_of(state.new)}
        there = settings.model_copy(update={"sink": settings.sink.model_copy(update={"options": options})})
        compared = self.config.model_copy(update={"tubes": {**self.config.tubes, self.tube: there}})
        with showing_progress(self.tube) as shown:
            return await verify(compared, self.tube, patience=patience, counted=shown)


def _of_tube(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the tube and the options of a database, as `target`.

    Several hosts are refused: which one would be the wrong question.
    """

    @tube_argument("tube")
    @database_options(several=True, configured=True)
    @functools.wraps(command)
    def wrapper(*arguments: Any, databases: Sequence[Database], tube: str, **options: Any) -> Any:
        if len(current_settings().config().hosts) > 1:
            raise UsageError(
                f"tube {tube!r} can't be reindexed: several hosts are configured, and the new index would be "
                "filled with the rows of one of them alone; fill another index by a second tube, "
                "see docs/reindex.md"
            )
        return command(*arguments, _Target(config_of(databases[0], tube), databases[0], tube), **options)

    return wrapper


@click.group()
def reindex() -> None:
    """Build a new index while the old one serves, then switch."""


@reindex.command()
@flag("--wait", help="Wait until workers have filled the new index.")
@_of_tube
def start(target: _Target, wait: bool) -> None:
    """Create and fill a new index; workers write to both.

    The tube's workers fill it with a backfill. Run it again after an interruption.
    """
    status = target.run(lambda job, _: job.start())
    _tell(target.tube, status)
    if wait:
        jobs = [Job(number, by_worker=True) for number in status.state.backfills]
        run_backfills(target.database, target.tube, jobs, BackfillConfig(), wait=True)


@reindex.command()
@_of_tube
def status(target: _Target) -> None:
    """Show a reindex's progress and the next step."""
    limit = target.config.tube(target.tube).sink.request_timeout
    found = target.run(lambda job, _: job.status_within(limit))
    if isinstance(found, Unanswered):
        _tell_unanswered(target.tube, found)
        click.get_current_context().exit(FAILED)
    if found is not None:
        _tell(target.tube, found)
    else:
        tell(f"no reindex of tube {target.tube} is under way", None)


@reindex.command()
@_PATIENCE
@_of_tube
def compare(target: _Target, patience: float) -> None:
    """Compare source and new index; exits with 1 if they differ."""

    async def run(job: Reindex, reindexer: IndexReindexer) -> Report:
        return await target.compare(reindexer, (await job.filled()).state, patience)

    found = target.run(run)
    if wants_json():
        print_json(found.as_json())
    else:
        print_report(found)
    if not found.is_equal:
        click.get_current_context().exit(NOT_WELL)


@reindex.command()
@flag("--force", help="Switch even if the new index differs from the source.")
@flag("--back", help="Move the alias back to the old index.")
@_PATIENCE
@_of_tube
def switch(target: _Target, force: bool, back: bool, patience: float) -> None:
    """Compare, then move the alias to the new index atomically.

    Workers keep writing to both until `finish`, so `--back` finds the old index up to date. Exits with 1 if
    the new index differs.
    """

    async def run(job: Reindex, reindexer: IndexReindexer) -> Report | None:
        if back:
            await job.switch(back=True)
            return None
        status = await job.filled()
        if status.phase == "switched":
            return None
        compared = await target.compare(reindexer, status.state, patience)
        if compared.is_equal or force:
            await job.switch()
        return compared

    compared = target.run(run)
    refused = compared is not None and not compared.is_equal and not force
    if wants_json():
        print_json({"switched": not refused, "back": back, "comparison": compared and compared.as_json()})
    elif compared is not None:
        print_report(compared)
    if refused:
        click.echo(
            "pytube: not switched, because the new index differs from the source; look at the keys, and at "
            f"pytube park list {target.tube}; --force switches all the same",
            err=True,
        )
        click.get_current_context().exit(NOT_WELL)
    if not wants_json():
        where, until = "old" if back else "new", _next(target.tube, "finish")
        click.echo(f"the alias is on the {where} index; workers write to both until: {until}")


@reindex.command()
@flag("--force", help="Don't wait until tombstone_seconds have passed since the start.")
@yes_option
@_of_tube
def finish(target: _Target, force: bool, yes: bool) -> None:
    """Delete the old index. This can't be undone.

    With --force, asks on a terminal.
    """
    if force:
        confirm(f"delete the old index of tube {target.tube}?", yes=yes, forced=True)
    target.run(lambda job, _: job.finish(force=force))
    text = "the old index is deleted; workers write to the new one alone"
    tell(text, {"tube": target.tube, "deleted": "old"})


@reindex.command()
@_of_tube
def abandon(target: _Target) -> None:
    """Delete the new index and keep the old one."""
    if target.run(lambda job, _: job.abandon()):
        text, deleted = "the new index is deleted; workers write to the old one alone", "new"
    else:
        text, deleted = f"no reindex of tube {target.tube} is under way; nothing was deleted", None
    tell(text, {"tube": target.tube, "deleted": deleted})


# --- how it is shown ----------------------------------------------------------------------------


def _tell(tube: str, status: Status) -> None:
    if wants_json():
        print_json(
            asdict(status.state)
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
    print_table({name: name for name in ("role", "index", "documents", "searched")}, rows, "")
    _tell_backfills(status.backfills)
    click.echo(f"{status.phase}; next: {_next(tube, _STEPS[status.phase])}")


def _tell_backfills(backfills: Sequence[dict[str, Any]]) -> None:
    for row in backfills:
        done = "" if row["rows_total"] is None else f", {row['rows_done']} of {row['rows_total']} rows"
        say(f"backfill {row['backfill_id']} of {row['tbl']}: {row['state']}{done}")


def _tell_unanswered(tube: str, found: Unanswered) -> None:
    """The database's part, and why the rest is missing."""
    if wants_json():
        again = _next(tube, "status")
        print_json({"phase": "unknown", "reason": found.reason, "backfills": found.backfills, "next": again})
    else:
        _tell_backfills(found.backfills)
    click.echo(
        f"pytube: the sink of tube {tube!r} does not answer, and it alone knows of the indices and which "
        f"backfills fill the new one: {found.reason}",
        err=True,
    )


_STEPS = {"filling": "status", "stopped": "start", "filled": "switch", "switched": "finish"}


def _next(tube: str, step: str) -> str:
    return f"pytube reindex {step} {tube}"
