"""`pytube backfill …`: every row of a table once more, at low priority; and how it is shown meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from pytube.backfill import queries
from pytube.backfill.admin import Backfills
from pytube.backfill.run import BackfillRun, Progress
from pytube.cli.context import current_settings, database_options, json_option, tube_argument
from pytube.cli.exits import INTERRUPTED, interrupted
from pytube.cli.output import LINE_INTERVAL, Meter, is_live, print_list, progress_meter, seconds, tell
from pytube.config import BackfillConfig
from pytube.db.database import Database
from pytube.db.session import Session
from pytube.delivered import wait_async
from pytube.errors import BackfillBusy, DatabaseUnavailable, UnknownBackfill, UsageError

_OFF = "off"
_METAVAR = f"NUMBER|{_OFF}"


def _number(text: str) -> float | str:
    """A finite number above zero, or `off`."""
    return text if text == _OFF else _positive(click.FLOAT, text)


def _whole(text: str) -> int | str:
    """A whole number above zero, or `off`."""
    return text if text == _OFF else int(_positive(click.INT, text))


def _positive(kind: Any, text: str) -> float:
    number = float(kind.convert(text, None, None))
    if not (math.isfinite(number) and number > 0):
        raise click.BadParameter(f"{text!r} is not a finite number above 0")
    return number


def _limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that replace `[tube.NAME.backfill]`, as `given`."""

    @click.option(
        "--backlog", type=click.IntRange(min=1), help="Pause while this many backfill pods wait in the tube."
    )
    @click.option(
        "--replica-lag",
        type=_number,
        metavar=_METAVAR,
        help="Pause while a replica lags by more than this many seconds.",
    )
    @click.option(
        "--replica-behind",
        type=_whole,
        metavar=_METAVAR,
        help="Pause while a replica is more than this many megabytes of WAL behind.",
    )
    @click.option("--rate", type=_number, metavar=_METAVAR, help="Maximum rows per second.")
    @click.option("--chunk", type=click.IntRange(1, 10_000), help="Maximum pods per transaction.")
    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        given = {name: options.pop(name) for name in BackfillConfig.model_fields}
        return command(*arguments, given={k: v for k, v in given.items() if v is not None}, **options)

    return wrapper


def _limits_of(tube: str, given: dict[str, Any]) -> BackfillConfig:
    """The configured limits of the tube, except for given ones."""
    settings, limits = current_settings(), BackfillConfig()
    if settings.has_file and (configured := settings.config().tubes.get(tube)) is not None:
        limits = configured.backfill
    return limits.model_copy(update={name: None if value == _OFF else value for name, value in given.items()})


_TUBE = tube_argument("tube")
_TABLE = click.option(
    "--table",
    metavar="TABLE",
    help="Table to backfill, as schema.table. [default: all root tables of the tube]",
)
_WAIT = click.option("--wait", is_flag=True, help="Wait until workers have delivered everything.")


@click.group()
def backfill() -> None:
    """Resend every row, then delete orphaned documents."""


@backfill.command()
@_TUBE
@_TABLE
@click.option(
    "--order-col", metavar="COLUMN", help="Resend in the order of this column. [default: the id column]"
)
@click.option("--supersede", is_flag=True, help="Replace a backfill of the table that is in progress.")
@click.option(
    "--in-worker", is_flag=True, help="Let a worker of the tube do the work, and return immediately."
)
@_WAIT
@_limit_options
@json_option
@database_options()
def start(
    database: Database,
    tube: str,
    table: str | None,
    order_col: str | None,
    supersede: bool,
    in_worker: bool,
    wait: bool,
    given: dict[str, Any],
    as_json: bool,
) -> None:
    """Start a backfill and queue its pods.

    You can interrupt it at any time: `pytube backfill resume` continues exactly where it stopped.
    """
    limits = _limits_of(tube, given)  # before anything is begun, since the file may be faulty
    with _backfills(database) as backfills:
        numbers: list[int] = []
        try:
            for one in backfills.tables(tube, table):
                number = backfills.create(
                    one.tube, one.oid, order_col, supersede=supersede, by_worker=in_worker
                )
                numbers.append(number)
        except UsageError:
            for number in numbers:
                backfills.command(number, "cancel")
            raise
    jobs = [Job(number, in_worker) for number in numbers]
    run_backfills(database, tube, jobs, limits, wait=wait, as_json=as_json)


@backfill.command()
@_TUBE
@_TABLE
@_WAIT
@_limit_options
@json_option
@database_options()
def resume(
    database: Database, tube: str, table: str | None, wait: bool, given: dict[str, Any], as_json: bool
) -> None:
    """Resume a backfill; workers resume those left to them."""
    limits = _limits_of(tube, given)
    with _backfills(database) as backfills:
        rows = _active(backfills, tube, table)
        for row in rows:
            backfills.command(row["backfill_id"], "resume")
    jobs = [Job(row["backfill_id"], row["by_worker"]) for row in rows]
    run_backfills(database, tube, jobs, limits, wait=wait, as_json=as_json)


@backfill.command()
@_TUBE
@_TABLE
@json_option
@database_options()
def pause(database: Database, tube: str, table: str | None, as_json: bool) -> None:
    """Pause a backfill until it is resumed."""
    done = _command(database, tube, table, "pause", ("waiting", "inserting"))
    _tell_commanded(done, "paused", as_json=as_json)


@backfill.command()
@_TUBE
@_TABLE
@json_option
@database_options()
def cancel(database: Database, tube: str, table: str | None, as_json: bool) -> None:
    """Cancel a backfill and remove its queued pods."""
    done = _command(database, tube, table, "cancel", ("waiting", "inserting", "delivering"))
    _tell_commanded(done, "canceled", as_json=as_json)


@backfill.command()
@tube_argument("tube", is_required=False)
@_TABLE
@json_option
@database_options()
def status(database: Database, tube: str | None, table: str | None, as_json: bool) -> None:
    """Show backfills, newest first."""
    with _backfills(database) as backfills:
        names = [None] if tube is None else backfills.family(tube)
        rows = [row for name in names for row in backfills.all(name, table)]
        rows.sort(key=lambda row: row["backfill_id"], reverse=True)
    columns = {
        "backfill_id": "number",
        "tube": "tube",
        "tbl": "table",
        "state": "state",
        "rows": "rows inserted",
        "delivered": "delivered",
        "rate": "rows/s",
        "left": "time left",
        "by": "worked on by pid",
        "note": "note",
    }
    print_list(columns, rows, "there was no backfill yet", as_json=as_json, shown=_shown)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    total, delivered = row["rows_total"], row["rows_delivered"]
    waits = delivered is not None and delivered < row["rows_done"]
    inserting = row["state"] == "inserting"
    return {
        "state": f"{row['state']}, paused" if row["paused"] else row["state"],
        "rows": None if total is None else f"{row['rows_done']} of {total}",
        "delivered": None if total is None or delivered is None else f"{'~' if waits else ''}{delivered}",
        "rate": f"{row['rate']:.0f}" if row["rate"] and inserting else None,
        "left": seconds(row["seconds_left"]) if row["seconds_left"] is not None else None,
        "by": row["pid"] or ("left to workers" if _waits_for_a_worker(row) else None),
    }


def _waits_for_a_worker(row: dict[str, Any]) -> bool:
    return bool(row["by_worker"]) and row["state"] in ("waiting", "inserting")


@contextmanager
def _backfills(database: Database) -> Iterator[Backfills]:
    with database.connect() as connection:
        yield Backfills(connection, database.schema)


def _active(backfills: Backfills, tube: str, table: str | None) -> list[dict[str, Any]]:
    rows = [row for name in backfills.family(tube) for row in backfills.active(name, table)]
    if not rows:
        raise UnknownBackfill(f"no backfill of {table or 'any table'} is under way for tube {tube!r}")
    return rows


def _command(
    database: Database, tube: str, table: str | None, command: str, states: Sequence[str]
) -> list[dict[str, Any]]:
    """Give a command to the backfills in these states; those backfills."""
    with _backfills(database) as backfills:
        rows = _active(backfills, tube, table)
        chosen = [row for row in rows if row["state"] in states] or rows
        for row in chosen:
            backfills.command(row["backfill_id"], command)
    return chosen


def _tell_commanded(rows: Sequence[dict[str, Any]], done: str, *, as_json: bool) -> None:
    text = "\n".join(f"backfill {row['backfill_id']} of {row['tbl']} is {done}" for row in rows)
    value = [{"backfill_id": row["backfill_id"], "table": row["tbl"], "done": done} for row in rows]
    tell(text, value, as_json=as_json)


# --- the work, and its display ------------------------------------------------------------

_BY_WORKERS = "left to the workers of the tube"


class Job(NamedTuple):
    """A backfill that is under way."""

    number: int
    by_worker: bool
    """Whether a worker inserts its pods, not the command."""


def run_backfills(
    database: Database, tube: str, jobs: Sequence[Job], limits: BackfillConfig, *, wait: bool, as_json: bool
) -> None:
    """Insert the rest of each, one after the other; with `wait`, until workers have delivered it.

    Raises:
        PytubeError: as `BackfillRun.run`.
    """
    resume = f"continue with: pytube backfill resume {tube}"
    try:
        with progress_display(as_json=as_json) as display:
            asyncio.run(_work(database, tube, jobs, limits, display, wait=wait))
    except DatabaseUnavailable:
        click.echo(f"pytube: nothing is lost; {resume}", err=True)
        raise
    except KeyboardInterrupt:
        interrupted(INTERRUPTED, f"; {resume}")


async def _work(
    database: Database,
    tube: str,
    jobs: Sequence[Job],
    limits: BackfillConfig,
    display: ProgressDisplay,
    *,
    wait: bool,
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
                run = BackfillRun(session, job.number, limits, display.progress)
                await _insert(run, display)
        by_companion = False
        for job in jobs if wait else ():
            done = await BackfillRun(session, job.number, limits, display.progress).wait_until_delivered()
            by_companion = by_companion or done.tube != tube
        await session.value(queries.TIDY)
    finally:
        await session.close()
    if by_companion:  # what a companion delivers are touches of documents, which are still to come
        await wait_async(tube, dsn=database.dsn, timeout=None, ignore_parked=True, schema=database.schema)


async def _insert(run: BackfillRun, display: ProgressDisplay) -> None:
    try:
        await run.run()
    except BackfillBusy as error:
        display.message(str(error))


async def _show(job: Job, session: Session, display: ProgressDisplay) -> None:
    """How far it is; a worker does the rest."""
    progress = await BackfillRun(session, job.number, BackfillConfig(), lambda _: None).look()
    if progress.note is None and progress.state in ("waiting", "inserting"):
        progress = dataclasses.replace(progress, note=_BY_WORKERS)
    display.progress(progress)


# --- the display --------------------------------------------------------------------


class ProgressDisplay:
    """Shows how far backfills are: a bar for each on a terminal, else a line every few seconds.

    There is a line, too, whenever the state has changed. While a backfill inserts, its note comes and goes
    with every chunk, and does not change the state.
    """

    def __init__(self, meter: Meter | None, *, as_json: bool) -> None:
        """`meter`: draws bars; None: there is no terminal."""
        self._meter = meter
        self._as_json = as_json
        self._last: tuple[object, ...] = ()
        self._at = 0.0

    def progress(self, progress: Progress) -> None:
        """Show how far a backfill is."""
        name = f"backfill {progress.backfill} of {progress.table}"
        if self._meter is not None:
            self._meter(name, progress.rows_done, progress.rows_total, _detail(progress))
            return
        waits_for = (progress.note or "").split(":")[0] if progress.state == "waiting" else None
        state = (progress.backfill, progress.state, progress.paused, waits_for)
        if state == self._last and time.monotonic() < self._at + LINE_INTERVAL:
            return
        self._last, self._at = state, time.monotonic()
        value = dataclasses.asdict(progress) | {"seconds_left": progress.seconds_left}
        tell(f"{name}: {_detail(progress)}", value, as_json=self._as_json)

    def message(self, text: str) -> None:
        """Show any other message."""
        tell(text, {"message": text}, as_json=self._as_json)


@contextmanager
def progress_display(*, as_json: bool) -> Iterator[ProgressDisplay]:
    """The display that suits standard output."""
    if as_json or not is_live(sys.stdout):
        yield ProgressDisplay(None, as_json=as_json)
        return
    with progress_meter() as meter:
        yield ProgressDisplay(meter, as_json=False)


def _detail(progress: Progress) -> str:
    parts = ["paused" if progress.paused else progress.state]
    if progress.rows_total is not None:
        parts.append(f"{progress.rows_done} of {progress.rows_total} rows")
    if progress.rows_delivered is not None and progress.state == "delivering":
        parts.append(f"about {progress.rows_delivered} delivered")
    if progress.rate and progress.state == "inserting":
        parts.append(f"{progress.rate:.0f} rows/s")
    left = progress.seconds_left
    if left is not None and progress.state == "inserting":
        parts.append(f"{seconds(left)} left")
    if progress.note:
        parts.append(progress.note)
    return ", ".join(parts)
