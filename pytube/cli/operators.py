"""The acts of operators: `pytube touch`, `pause`, `resume` and `audit`, and `pytube park …`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click
import orjson
import psycopg

from pytube import admin
from pytube.admin import Parking, Seen
from pytube.cli.context import (
    PREVIEW,
    Duration,
    Session,
    confirm_rows,
    database_options,
    key_argument,
    limit_option,
    options,
    partition_option,
    seconds_option,
    tube_argument,
    yes_option,
)
from pytube.cli.output import (
    Table,
    and_some,
    key_shown,
    print_fields,
    print_json,
    print_table,
    say,
    tell,
    wants_json,
)
from pytube.cli.program import NOT_WELL
from pytube.counts import is_or_are, say_count
from pytube.db.database import Database
from pytube.errors import UsageError
from pytube.model import TOUCHED_AT_ONCE


@click.command()
@tube_argument()
@click.argument("table")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--query", metavar="SQL", help="A query of one column that returns the ids, instead of IDS.")
@database_options()
def touch(database: Database, name: str, table: str, ids: tuple[str, ...], query: str | None) -> None:
    """Resend documents of TUBE by ids of TABLE.

    TABLE is schema.table. An id without a row is deleted at the sink. More than 1000 ids go behind live
    changes. Put -- before negative ids.
    """
    if bool(ids) == (query is not None):
        raise UsageError("give ids, or --query, and not both")
    with database.connect() as connection:
        if query is not None:
            count = admin.touch_query(connection, name, table, query, database.schema)
        else:
            count = admin.touch(connection, name, table, ids, database.schema)
    text = f"{say_count(count, 'document')} {is_or_are(count)} touched in {name}"
    if count > TOUCHED_AT_ONCE:
        text += ", behind live changes"
    tell(text, {"tube": name, "table": table, "touched": count})


@click.command()
@tube_argument()
@partition_option
@click.option(
    "--for", "lasts", type=Duration(), help="End the pause automatically after, e.g., 90s, 10m, 2h, 1d."
)
@click.option("--reason", metavar="TEXT", help="Reason; `pytube status` shows it.")
@seconds_option("--drain", "--wait", "wait", default=30.0, help="Seconds to wait until nothing is in flight.")
@database_options(opens=Session)
def pause(
    at: Session, name: str, partition: int | None, lasts: timedelta | None, reason: str | None, wait: float
) -> None:
    """Pause delivery of a tube or one partition.

    The companions of a declared document pause with its tube. The pause is stored in the database, so
    workers that restart or take over respect it. Writers continue, and the backlog grows. Exits with 1 if
    something is still in flight after --drain seconds.
    """
    admin.pause(at.connection, name, at.schema, partition=partition, lasts=lasts, reason=reason)
    if not wants_json():
        click.echo(f"{_what(name, partition)} is paused{'' if lasts is None else f' for {lasts}'}")
    left = admin.wait_until_halted(at.connection, name, at.schema, partition=partition, timeout=wait)
    if wants_json():
        print_json(
            {
                "tube": name,
                "partition": partition,
                "seconds": None if lasts is None else lasts.total_seconds(),
                "reason": reason,
                "in_flight": [
                    {"tube": one.tube, "partition": one.partition, "leader": one.leader, "lost": one.lost}
                    for one in left
                ],
            }
        )
    for one in left:
        why = "is lost" if one.lost else "has not come to rest yet"
        say(f"{_what(one.tube, one.partition)}: its leader {one.leader} {why}", err=True)
    if left:
        click.get_current_context().exit(NOT_WELL)


@click.command()
@tube_argument()
@partition_option
@database_options(opens=Session)
def resume(at: Session, name: str, partition: int | None) -> None:
    """Resume a paused tube or partition, or one a worker stopped."""
    ended = admin.resume(at.connection, name, at.schema, partition=partition)
    left = admin.pauses_of(at.connection, name, at.schema, partition=partition)
    text = f"{_what(name, partition)} is resumed" if ended else f"{_what(name, partition)} was not paused"
    still = [{"partition": one.partition, "reason": one.reason} for one in left]
    value = {"tube": name, "partition": partition, "resumed": bool(ended), "still_paused": still}
    tell(text, value)
    for one in left:
        click.echo(
            f"partition {one.partition} is still paused, {one.reason}: resume the whole tube", err=True
        )


def _what(name: str, partition: int | None) -> str:
    return name if partition is None else f"partition {partition} of {name}"


@click.command()
@tube_argument(is_required=False)
@limit_option
@database_options(opens=Session)
def audit(at: Session, name: str | None, limit: int) -> None:
    """List what operators did, newest first; dropped tubes included."""
    rows = admin.audit(at.connection, at.schema, name, and_some(limit))
    table: Table = {
        "when": "done_at",
        "who": "done_by",
        "client": "client",
        "action": "action",
        "tube": "tube",
        "details": lambda row: orjson.dumps(row.details).decode(),
    }
    print_table(table, rows, "no operator has done anything", limit=limit)


# --- documents that failed: `pytube park …` ---------------------------------------------------

_TABLE: Table = {
    "tube": "tube",
    "shard": "shard",
    "id": lambda row: key_shown(row.id),
    "op": "op",
    "attempts": "attempts",
    "first": "first_at",
    "since": "parked_at",
    "retried": "retried_at",
    "error": "error",
}


@click.group()
def park() -> None:
    """List, show, retry, or discard documents that failed."""


_WHICH = options(
    tube_argument("tube", is_required=False),
    key_argument("Only this id; requires TUBE.", is_required=False),
    click.option("--shard", type=click.IntRange(min=0), help="Only this shard."),
    click.option(
        "--error", metavar="TEXT", help="Only documents whose error contains this text; case is ignored."
    ),
    click.option(
        "--older-than", "older", type=Duration(), help="Only documents parked longer ago than this, e.g. 2h."
    ),
)
"""The fields of `Parking`."""


@park.command("list")
@_WHICH
@limit_option
@database_options(opens=Session)
def list_(at: Session, limit: int, **which: Any) -> None:
    """List parked documents with their errors."""
    rows = admin.list_parked(at.connection, Parking(**which), at.schema, and_some(limit))
    print_table(_TABLE, rows, "nothing is parked", limit=limit)


@park.command()
@tube_argument()
@key_argument()
@click.option("--shard", type=click.IntRange(min=0), help="Shard of the key, if several shards have it.")
@database_options(opens=Session)
def show(at: Session, name: str, key: str, shard: int | None) -> None:
    """Show a parked document: full error, and body if it was kept."""
    rows = admin.list_parked(at.connection, Parking(name, shard, key), at.schema, 2)
    if not rows:
        raise UsageError(
            f"the key {key!r} of tube {name!r} is not parked; `pytube park list` lists parked keys"
        )
    if len(rows) > 1:
        raise UsageError(f"several shards of tube {name!r} have the key {key!r}; give --shard")
    text: str | None = None
    try:
        document = admin.parked_document(at.connection, rows[0].park_id, at.schema)
        text = None if document is None else document.decode(errors="backslashreplace")
        missing = "not kept"
    except UsageError:
        missing = "not shown: only tube_admin may see it"
    table: Table = {**_TABLE, "document": lambda _: missing if text is None else text}
    print_fields(table, rows[0], asdict(rows[0]) | {"document": text})


@park.command()
@_WHICH
@yes_option
@database_options()
def retry(database: Database, yes: bool, **which: Any) -> None:
    """Resend parked documents."""
    _act(database, Parking(**which), ("retry", "retried"), admin.retry_parked, yes=yes)


@park.command()
@_WHICH
@yes_option
@database_options()
def discard(database: Database, yes: bool, **which: Any) -> None:
    """Discard parked documents; the sink does not change."""
    _act(database, Parking(**which), ("discard", "discarded"), admin.drop_parked, yes=yes)


def _act(
    database: Database,
    parking: Parking,
    verb: tuple[str, str],
    act: Callable[[psycopg.Connection, Parking, str, Seen], int],
    *,
    yes: bool,
) -> None:
    """Act on parked documents after a question; `verb`: as a command, and as a participle."""
    if parking.tube is None:
        raise UsageError("name the tube whose parked documents are meant: TUBE")
    with database.connect() as connection:
        seen = admin.see_parked(connection, parking, database.schema)
        count = seen.count
        if not count:
            tell("no such documents are parked", {"tube": parking.tube, verb[1]: 0})
            return
        if not yes:
            rows = admin.list_parked(connection, parking, database.schema, PREVIEW)
            what = f"{say_count(count, 'parked document')} of tube {parking.tube}"
            confirm_rows(verb[0], what, count, _TABLE, rows)
        acted = act(connection, parking, database.schema, seen)
    rest = "" if acted >= count else "; the others changed meanwhile, or had been retried before"
    what = say_count(acted, "parked document") if acted >= count else f"{acted} of {count} parked documents"
    text = f"{what} {is_or_are(acted)} {verb[1]}{rest}"
    tell(text, {"tube": parking.tube, verb[1]: acted})
