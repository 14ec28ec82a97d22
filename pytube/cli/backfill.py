"""`pytube backfill …`: every row of a table once more, at low priority."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from pytube.backfill.admin import Backfills
from pytube.backfill.limits import BackfillLimits
from pytube.backfill.run import BackfillRun
from pytube.cli.context import Database, Settings, database_options, json_option
from pytube.cli.output import print_json, print_rows, seconds
from pytube.cli.progress import Told, told
from pytube.errors import BackfillBusy, DatabaseUnavailable, UsageError
from pytube.sources.session import Session

_INTERRUPTED = 130

_TUBE = click.option("--tube", "tube", required=True, metavar="NAME", help="The tube.")
_TABLE = click.option("--table", metavar="NAME", help="schema.table; default: all root tables of the tube.")
_WAIT = click.option("--wait", is_flag=True, help="End only when a worker has delivered it all.")


@click.group()
def backfill() -> None:
    """Touch every row of a table, at low priority; what the source lacks is swept from the sink."""


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what replaces `[tube.NAME.backfill]`, as `given`."""

    @click.option("--backlog", type=click.IntRange(min=1), help="Wait while so many backfill pods wait.")
    @click.option("--replica-lag", type=click.FloatRange(min=0, min_open=True), help="Seconds, likewise.")
    @click.option("--replica-behind", type=click.IntRange(min=1), help="Megabytes of WAL, likewise.")
    @click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Rows a second at most.")
    @click.option("--chunk", type=click.IntRange(1, 10_000), help="Pods in one transaction.")
    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        names = [field.name for field in dataclasses.fields(BackfillLimits)]
        given = {name: options.pop(name) for name in names}
        return command(*arguments, given={k: v for k, v in given.items() if v is not None}, **options)

    return wrapper


@backfill.command()
@_TUBE
@_TABLE
@click.option("--order-col", metavar="COLUMN", help="Touch in the order of this column; default: the ids'.")
@click.option("--supersede", is_flag=True, help="End the one that is under way for the table.")
@click.option("--in-worker", is_flag=True, help="Leave the work to a worker of the tube, and end at once.")
@_WAIT
@limit_options
@json_option
@database_options
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
    """Begin a backfill, and insert its pods.

    It can be interrupted at any moment: `pytube backfill resume` goes on exactly where it was.
    """
    with _backfills(database) as backfills:
        numbers: list[int] = []
        try:
            for oid, _ in backfills.tables(tube, table):
                numbers.append(
                    backfills.create(tube, oid, order_col, supersede=supersede, by_worker=in_worker)
                )
        except UsageError:
            for number in numbers:
                backfills.command(number, "cancel")
            raise
    _go_on(database, tube, numbers, given, here=not in_worker, wait=wait, as_json=as_json)


@backfill.command()
@_TUBE
@_TABLE
@_WAIT
@limit_options
@json_option
@database_options
def resume(
    database: Database, tube: str, table: str | None, wait: bool, given: dict[str, Any], as_json: bool
) -> None:
    """Go on with what was paused or interrupted."""
    with _backfills(database) as backfills:
        rows = _active(backfills, tube, table)
        for row in rows:
            backfills.command(row["backfill_id"], "resume")
    numbers = [row["backfill_id"] for row in rows if not row["by_worker"]]
    _go_on(database, tube, numbers, given, here=True, wait=wait, as_json=as_json)


@backfill.command()
@_TUBE
@_TABLE
@database_options
def pause(database: Database, tube: str, table: str | None) -> None:
    """Insert nothing more until it is resumed."""
    _command(database, tube, table, "pause", "is paused", ("waiting", "inserting"))


@backfill.command()
@_TUBE
@_TABLE
@database_options
def cancel(database: Database, tube: str, table: str | None) -> None:
    """End it, and take back what waits of it in the tube."""
    _command(database, tube, table, "cancel", "is cancelled", ("waiting", "inserting", "delivering"))


@backfill.command()
@click.option("--tube", metavar="NAME", help="Of this tube only.")
@_TABLE
@json_option
@database_options
def status(database: Database, tube: str | None, table: str | None, as_json: bool) -> None:
    """Show backfills, the newest first."""
    with _backfills(database) as backfills:
        rows = backfills.all(tube, table)
    if as_json:
        print_json(rows)
        return
    columns = {
        "backfill_id": "number",
        "tube": "tube",
        "tbl": "table",
        "state": "state",
        "rows": "rows",
        "rate": "rows/s",
        "left": "time left",
        "pid": "worked on by pid",
        "note": "note",
    }
    print_rows(columns, [_shown(row) for row in rows], "there was no backfill yet")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    total = row["rows_total"]
    inserting = row["state"] == "inserting"
    return row | {
        "state": f"{row['state']}, paused" if row["paused"] else row["state"],
        "rows": None if total is None else f"{row['rows_done']} of {total}",
        "rate": f"{row['rate']:.0f}" if row["rate"] and inserting else None,
        "left": seconds(row["seconds_left"]) if row["seconds_left"] is not None else None,
    }


@contextmanager
def _backfills(database: Database) -> Iterator[Backfills]:
    with database.connect() as connection:
        yield Backfills(connection, database.schema)


def _active(backfills: Backfills, tube: str, table: str | None) -> list[dict[str, Any]]:
    rows = backfills.active(tube, table)
    if not rows:
        raise UsageError(f"no backfill of {table or 'any table'} is under way for tube {tube!r}")
    return rows


def _command(
    database: Database, tube: str, table: str | None, command: str, done: str, states: Sequence[str]
) -> None:
    with _backfills(database) as backfills:
        rows = _active(backfills, tube, table)
        chosen = [row for row in rows if row["state"] in states] or rows
        for row in chosen:
            backfills.command(row["backfill_id"], command)
            click.echo(f"backfill {row['backfill_id']} of {row['tbl']} {done}")


# --- the work itself ------------------------------------------------------------------------------


def _go_on(
    database: Database,
    tube: str,
    numbers: Sequence[int],
    given: dict[str, Any],
    *,
    here: bool,
    wait: bool,
    as_json: bool,
) -> None:
    resume = f"go on with: pytube backfill resume --tube {tube}"
    try:
        with told(as_json=as_json) as tell:
            asyncio.run(_work(database, numbers, _limits(tube, given), tell, here=here, wait=wait))
    except DatabaseUnavailable:
        click.echo(f"pytube: nothing is lost; {resume}", err=True)
        raise
    except KeyboardInterrupt:
        click.echo(f"pytube: interrupted; {resume}", err=True)
        click.get_current_context().exit(_INTERRUPTED)


def _limits(tube: str, given: dict[str, Any]) -> BackfillLimits:
    settings = click.get_current_context().find_object(Settings)
    limits = BackfillLimits()
    if settings is not None and settings.path.exists():
        configured = settings.config().tubes.get(tube)
        limits = BackfillLimits.of(configured.backfill) if configured is not None else limits
    return dataclasses.replace(limits, **given)


async def _work(
    database: Database,
    numbers: Sequence[int],
    limits: BackfillLimits,
    tell: Told,
    *,
    here: bool,
    wait: bool,
) -> None:
    session = await Session.open(
        database.dsn.get_secret_value(),
        database.schema,
        "pytube filling",
        answer_timeout=database.answer_timeout,
    )
    try:
        for number in numbers:
            run = BackfillRun(session, number, limits, tell.progress)
            if here:
                try:
                    await run.run()
                except BackfillBusy as error:
                    tell.line(str(error))
        for number in numbers if wait else ():
            await BackfillRun(session, number, limits, tell.progress).wait_until_delivered()
    finally:
        await session.close()
