"""`pytube backfill …`: every row of a table once more, at low priority; and how it is shown meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import click

from pytube.backfill import queries
from pytube.backfill.admin import Backfills
from pytube.backfill.run import BackfillRun, Progress
from pytube.cli.context import current_settings, database_options, flag, options, tube_argument
from pytube.cli.output import (
    LINE_INTERVAL,
    Table,
    is_live,
    print_table,
    progress_meter,
    say,
    seconds,
    tell,
    wants_json,
)
from pytube.cli.program import INTERRUPTED, interrupted
from pytube.config import BackfillConfig
from pytube.counts import is_or_are, say_count
from pytube.db.database import Database
from pytube.db.session import Session
from pytube.delivered import PARKED, wait_async
from pytube.errors import BackfillBusy, DatabaseUnavailable, UnknownBackfill, UsageError, WaitTimeout

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


_LIMITS = options(
    click.option(
        "--backlog", type=click.IntRange(min=1), help="Pause while this many backfill pods wait in the tube."
    ),
    click.option(
        "--replica-lag",
        type=_number,
        metavar=_METAVAR,
        help="Pause while a replica lags by more than this many seconds.",
    ),
    click.option(
        "--replica-behind",
        type=_whole,
        metavar=_METAVAR,
        help="Pause while a replica is more than this many megabytes of WAL behind.",
    ),
    click.option("--rate", type=_number, metavar=_METAVAR, help="Maximum rows per second."),
    click.option("--chunk", type=click.IntRange(1, 10_000), help="Maximum pods per transaction."),
)
"""The fields of `[tube.NAME.backfill]`."""


def _limits_of(tube: str, given: dict[str, Any]) -> BackfillConfig:
    """The configured limits of the tube, except for given ones."""
    settings, limits = current_settings(), BackfillConfig()
    if settings.has_file and (configured := settings.config().tubes.get(tube)) is not None:
        limits = configured.backfill
    changed = {key: None if value == _OFF else value for key, value in given.items() if value is not None}
    return limits.model_copy(update=changed)


_TUBE = tube_argument("tube")
_TABLE = click.option(
    "--table",
    metavar="TABLE",
    help="Table to backfill, as schema.table. [default: all root tables of the tube]",
)
_WAIT = flag("--wait", help="Wait until workers have delivered everything.")


@click.group()
def backfill() -> None:
    """Resend every row, then delete orphaned documents."""


@backfill.command()
@_TUBE
@_TABLE
@click.option(
    "--order-col", metavar="COLUMN", help="Resend in the order of this column. [default: the id column]"
)
@flag("--supersede", help="Replace a backfill of the table that is in progress.")
@flag("--in-worker", help="Let a worker of the tube do the work, and return immediately.")
@_WAIT
@_LIMITS
@database_options()
def start(
    database: Database,
    tube: str,
    table: str | None,
    order_col: str | None,
    supersede: bool,
    in_worker: bool,
    wait: bool,
    **given: Any,
) -> None:
    """Start a backfill and queue its pods.

    You can interrupt it at any time: `pytube backfill resume` continues exactly where it stopped.
    """
    limits = _limits_of(tube, given)  # before anything is begun, since the file may be faulty
    with database.connect() as connection:
        backfills = Backfills(connection, database.schema)
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
    run_backfills(database, tube, jobs, limits, wait=wait)


@backfill.command()
@_TUBE
@_TABLE
@_WAIT
@_LIMITS
@database_options()
def resume(database: Database, tube: str, table: str | None, wait: bool, **given: Any) -> None:
    """Resume a backfill; workers resume those left to them."""
    limits = _limits_of(tube, given)
    with database.connect() as connection:
        backfills = Backfills(connection, database.schema)
        rows = _active(backfills, tube, table)
        for row in rows:
            backfills.command(row["backfill_id"], "resume")
    jobs = [Job(row["backfill_id"], row["by_worker"]) for row in rows]
    run_backfills(database, tube, jobs, limits, wait=wait)


@backfill.command()
@_TUBE
@_TABLE
@database_options(opens=Backfills)
def pause(backfills: Backfills, tube: str, table: str | None) -> None:
    """Pause a backfill until it is resumed."""
    rows = _active(backfills, tube, table)
    _command(backfills, rows, ("pause", "paused"), ("waiting", "inserting"))


@backfill.command()
@_TUBE
@_TABLE
@database_options(opens=Backfills)
def cancel(backfills: Backfills, tube: str, table: str | None) -> None:
    """Cancel a backfill and remove its queued pods."""
    rows = _active(backfills, tube, table)
    states = ("waiting", "inserting", "delivering")
    _command(backfills, rows, ("cancel", "canceled"), states)


@backfill.command()
@tube_argument("tube", is_required=False)
@_TABLE
@database_options(opens=Backfills)
def status(backfills: Backfills, tube: str | None, table: str | None) -> None:
    """Show backfills, newest first."""
    names = [None] if tube is None else backfills.family(tube)
    rows = [row for name in names for row in backfills.all(name, table)]
    rows.sort(key=lambda row: row["backfill_id"], reverse=True)
    print_table(_STATUS, rows, "there was no backfill yet")


def _inserted(row: dict[str, Any]) -> str | None:
    return None if row["rows_total"] is None else f"{row['rows_done']} of {row['rows_total']}"


def _delivered(row: dict[str, Any]) -> str | None:
    total, delivered = row["rows_total"], row["rows_delivered"]
    if total is None or delivered is None:
        return None
    return f"{'~' if delivered < row['rows_done'] else ''}{delivered}"


_STATUS: Table = {
    "number": "backfill_id",
    "tube": "tube",
    "table": "tbl",
    "state": lambda row: f"{row['state']}, paused" if row["paused"] else row["state"],
    "rows inserted": _inserted,
    "delivered": _delivered,
    "rows/s": lambda row: f"{row['rate']:.0f}" if row["rate"] and row["state"] == "inserting" else None,
    "time left": lambda row: seconds(row["seconds_left"]),
    "worked on by pid": lambda row: row["pid"] or ("left to workers" if _waits_for_a_worker(row) else None),
    "note": "note",
}


def _waits_for_a_worker(row: dict[str, Any]) -> bool:
    return bool(row["by_worker"]) and row["state"] in ("waiting", "inserting")


def _active(backfills: Backfills, tube: str, table: str | None) -> list[dict[str, Any]]:
    rows = [row for name in backfills.family(tube) for row in backfills.active(name, table)]
    if not rows:
        raise UnknownBackfill(f"no backfill of {table or 'any table'} is under way for tube {tube!r}")
    return rows


def _command(
    backfills: Backfills, rows: Sequence[dict[str, Any]], verb: tuple[str, str], states: Sequence[str]
) -> None:
    """Give a command to the backfills in these states, if any are; `verb`: it, and its participle."""
    chosen = [row for row in rows if row["state"] in states] or rows
    for row in chosen:
        backfills.command(row["backfill_id"], verb[0])
    text = "\n".join(f"backfill {row['backfill_id']} of {row['tbl']} is {verb[1]}" for row in chosen)
    value = [{"backfill_id": row["backfill_id"], "table": row["tbl"], "done": verb[1]} for row in chosen]
    tell(text, value)


# --- the work, and its display ------------------------------------------------------------

_LEAD = """
    SELECT count(*) FILTER (WHERE NOT l.lost), min(coalesce(l.sink_down, l.source_down)),
        (SELECT min(p.reason) FROM tube_pause_list(%(tube)s) AS p)
    FROM tube_leaders(%(tube)s) AS l
"""
_PATIENCE = 30.0
"""Seconds for which `apply --wait` waits for a worker."""
_BY_WORKERS = "left to the workers of the tube"


class Job(NamedTuple):
    """A backfill that is under way."""

    number: int
    by_worker: bool
    """Whether a worker inserts its pods, not the command."""


def run_backfills(
    database: Database, tube: str, jobs: Sequence[Job], limits: BackfillConfig, *, wait: bool
) -> None:
    """Insert the rest of each, one after the other; with `wait`, until workers have delivered it.

    Raises:
        PytubeError: as `BackfillRun.run`.
    """
    resume = f"continue with: pytube backfill resume {tube}"
    try:
        with progress_display() as display:
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
    display: Display,
    *,
    wait: bool,
) -> None:
    async with _session(database) as session:
        for job in jobs:
            if job.by_worker:
                await _show(job, session, display)
                continue
            try:
                await BackfillRun(session, job.number, limits, display).run()
            except BackfillBusy as error:
                tell(str(error), {"message": str(error)})
        if wait and not await session.value(_LEAD, {"tube": tube}):
            click.echo(
                f"no worker leads tube {tube}, so nothing is delivered: pytube status says why", err=True
            )
        by_companion = False
        for job in jobs if wait else ():
            done = await BackfillRun(session, job.number, limits, display).wait_until_delivered()
            by_companion = by_companion or done.tube != tube
        await session.value(queries.TIDY)
    if by_companion:  # what a companion delivers are touches of documents, which are still to come
        await wait_async(tube, dsn=database.dsn, timeout=None, ignore_parked=True, schema=database.schema)


@asynccontextmanager
async def _session(database: Database) -> AsyncIterator[Session]:
    session = await Session.open(
        database.dsn.get_secret_value(),
        database.schema,
        "pytube filling",
        answer_timeout=database.answer_timeout,
    )
    try:
        yield session
    finally:
        await session.close()


def await_backfills(database: Database, tubes: Collection[str], again: str, *, timeout: float) -> None:
    """Wait until workers have delivered all backfills of these tubes that they have to do.

    Args:
        database: theirs.
        tubes: any; the ones without a backfill are not waited for.
        again: the command that waits again.
        timeout: seconds.

    Raises:
        WaitTimeout: after `timeout`, or when no worker has led a tube for half a minute.
        PytubeError: as `BackfillRun.run`.
    """
    with database.connect() as connection:
        backfills = Backfills(connection, database.schema)
        rows = [row for tube in tubes for row in backfills.active(tube)]
    rows = [row for row in rows if row["by_worker"] or row["state"] == "delivering"]
    numbers = [row["backfill_id"] for row in rows]
    try:
        with progress_display() as display:
            asyncio.run(
                _until_sent(database, numbers, (lambda _: None) if wants_json() else display, timeout)
            )
    except WaitTimeout as error:
        raise WaitTimeout(f"{error}; the backfill stays: wait again with: {again}") from None
    except KeyboardInterrupt:
        interrupted(INTERRUPTED, f"; workers continue the backfill; wait again with: {again}")
    if not wants_json():
        for line in _sent(database, dict.fromkeys(row["tube"] for row in rows)):
            say(line)


async def _until_sent(database: Database, numbers: Sequence[int], display: Display, timeout: float) -> None:
    ends = time.monotonic() + timeout
    led_at = time.monotonic()  # when a worker led the tube last
    async with _session(database) as session:

        async def watch(progress: Progress) -> None:
            nonlocal led_at
            leaders, down, pause = await session.row(_LEAD, {"tube": progress.tube}) or (0, None, None)
            now = time.monotonic()
            led_at = now if leaders else led_at
            if now >= min(ends, led_at + _PATIENCE):
                after = f"after {timeout:g} s, " if now >= ends else ""
                why = _why_not_sent(progress.tube, leaders, down, pause)
                raise WaitTimeout(f"{after}{_name(progress)} is not delivered ({_detail(progress)}): {why}")

        for number in numbers:
            led_at = time.monotonic()
            await BackfillRun(session, number, BackfillConfig(), display).wait_until_delivered(watch)


def _why_not_sent(tube: str, leaders: int, down: str | None, pause: str | None) -> str:
    if pause:
        return f"tube {tube} is paused: {pause} (`pytube resume {tube}` ends the pause)"
    if not leaders:
        return (
            f"no worker leads tube {tube}: start one with `pytube worker`, or send a running one SIGHUP, so "
            "that it takes up the file (`pytube status` shows why a worker refuses a tube)"
        )
    return f"its worker can't deliver: {down}" if down else "its worker is at work"


def _sent(database: Database, tubes: Collection[str]) -> Iterator[str]:
    """The result for each tube."""
    with database.connect() as connection:
        for tube in tubes:
            parked = sum(count for count, *_ in connection.execute(PARKED, {"tube": tube}))
            but = f", but for {say_count(parked, 'key')} that {is_or_are(parked)} parked" if parked else ""
            yield f"{tube}: all documents are sent{but}"


async def _show(job: Job, session: Session, display: Display) -> None:
    """How far it is; a worker does the rest."""
    progress = await BackfillRun(session, job.number, BackfillConfig(), lambda _: None).look()
    if progress.note is None and progress.state in ("waiting", "inserting"):
        progress = dataclasses.replace(progress, note=_BY_WORKERS)
    display(progress)


# --- the display --------------------------------------------------------------------

Display = Callable[[Progress], None]


@contextmanager
def progress_display() -> Iterator[Display]:
    """Shows how far backfills are: a bar for each on a terminal, else a line every few seconds.

    There is a line, too, whenever the state has changed. While a backfill inserts, its note comes and goes
    with every chunk, and does not change the state.
    """
    last: tuple[object, ...] = ()
    told_at = 0.0

    def print_line(progress: Progress) -> None:
        nonlocal last, told_at
        waits_for = (progress.note or "").split(":")[0] if progress.state == "waiting" else None
        state = (progress.backfill, progress.state, progress.paused, waits_for)
        if state == last and time.monotonic() < told_at + LINE_INTERVAL:
            return
        last, told_at = state, time.monotonic()
        value = dataclasses.asdict(progress) | {"seconds_left": progress.seconds_left}
        tell(f"{_name(progress)}: {_detail(progress)}", value)

    if wants_json() or not is_live(sys.stdout):
        yield print_line
        return
    with progress_meter() as meter:
        yield lambda one: meter(_name(one), one.rows_done, one.rows_total, _detail(one))


def _name(progress: Progress) -> str:
    return f"backfill {progress.backfill} of {progress.table}"


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
