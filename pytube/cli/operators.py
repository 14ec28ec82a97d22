"""`pytube touch`, `pytube pause`, `pytube resume`, `pytube audit`."""

from __future__ import annotations

from datetime import timedelta

import click
import orjson

from pytube import admin
from pytube.cli.context import (
    Duration,
    database_options,
    json_option,
    limit_option,
    partition_option,
    tube_option,
)
from pytube.cli.output import print_list
from pytube.counts import is_or_are, say_count
from pytube.db.database import Database
from pytube.errors import UsageError


@click.command()
@click.argument("name", metavar="TUBE")
@click.argument("table")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--query", metavar="SQL", help="In place of ids: a query of one column that gives them.")
@database_options()
def touch(database: Database, name: str, table: str, ids: tuple[str, ...], query: str | None) -> None:
    """Touch documents of TUBE by the ids of TABLE (schema.table), so that they are sent again.

    An id without a row is deleted at the sink. Put -- before ids that begin with a minus.
    """
    if bool(ids) == (query is not None):
        raise UsageError("give ids, or --query, and not both")
    with database.connect() as connection:
        if query is not None:
            admin.touch_query(connection, name, table, query, database.schema)
            click.echo(f"what the query gives is touched in {name}")
            return
        count = admin.touch(connection, name, table, ids, database.schema)
    click.echo(f"{say_count(count, 'document')} {is_or_are(count)} touched in {name}")


@click.command()
@tube_option
@partition_option
@click.option("--for", "lasts", type=Duration(), help="End by itself after, e.g., 90s, 10m, 2h, 1d.")
@click.option("--reason", metavar="TEXT", help="For people; `pytube status` shows it.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to wait until nothing is in flight.",
)
@database_options()
def pause(
    database: Database,
    name: str,
    partition: int | None,
    lasts: timedelta | None,
    reason: str | None,
    wait: float,
) -> None:
    """Stop delivering a tube, or one partition: leaders keep leading, and mark and send nothing.

    The pause stands in the database: workers that are restarted or take over keep to it. Writers go on, and
    the tube fills. Exit code 1 when the wait ends before all leaders have come to rest.
    """
    with database.connect() as connection:
        admin.pause(connection, name, database.schema, partition=partition, lasts=lasts, reason=reason)
        click.echo(f"{_what(name, partition)} is paused{'' if lasts is None else f' for {lasts}'}")
        left = admin.wait_until_halted(connection, name, database.schema, partition=partition, timeout=wait)
    for one in left:
        why = "is lost" if one.lost else "has not come to rest yet"
        click.echo(f"partition {one.partition}: its leader {one.leader} {why}", err=True)
    if left and wait:
        click.get_current_context().exit(1)


@click.command()
@tube_option
@partition_option
@database_options()
def resume(database: Database, name: str, partition: int | None) -> None:
    """End the pauses of a tube, also when a worker has stopped it; or those of one partition."""
    with database.connect() as connection:
        ended = admin.resume(connection, name, database.schema, partition=partition)
        left = [
            one
            for one in admin.pauses(connection, name, database.schema)
            if partition in (None, one.partition)
        ]
    click.echo(
        f"{_what(name, partition)} is resumed" if ended else f"{_what(name, partition)} was not paused"
    )
    for one in left:
        click.echo(
            f"partition {one.partition} is still paused, {one.reason}: resume the whole tube", err=True
        )


def _what(name: str, partition: int | None) -> str:
    return f"tube {name}" if partition is None else f"partition {partition} of tube {name}"


@click.command()
@click.option("--tube", "name", metavar="NAME", help="Only what concerned this tube.")
@limit_option
@json_option
@database_options()
def audit(database: Database, name: str | None, limit: int, as_json: bool) -> None:
    """List who did what by hand, the latest first; also with tubes that are gone."""
    with database.connect() as connection:
        rows = admin.audit(connection, database.schema, name, limit)
    columns = {
        "done_at": "when",
        "done_by": "who",
        "client": "client",
        "action": "action",
        "tube": "tube",
        "details": "details",
    }
    print_list(
        columns,
        rows,
        "nothing was done by hand",
        as_json=as_json,
        shown=lambda row: {"details": orjson.dumps(row.details).decode()},
    )
