"""`pytube park …`: what was set aside with its error."""

from __future__ import annotations

import click

from pytube.cli.context import Database, database_options, json_option
from pytube.cli.output import key_shown, print_json, print_rows
from pytube.db.version import check
from pytube.tubes.parked import parked


@click.group()
def park() -> None:
    """Documents that could not be delivered."""


@park.command("list")
@click.option("--tube", "name", metavar="NAME", help="Only of this tube.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@json_option
@database_options
def list_(database: Database, name: str | None, limit: int, as_json: bool) -> None:
    """List parked documents, with their errors."""
    with database.connect() as connection:
        check(connection, database.schema)
        rows = parked(connection, database.schema, name, limit)
    if as_json:
        print_json(rows)
        return
    columns = {
        "tube": "tube",
        "shard": "shard",
        "id": "id",
        "op": "op",
        "attempts": "attempts",
        "parked_at": "since",
        "error": "error",
    }
    print_rows(columns, [row | {"id": key_shown(row["id"])} for row in rows], "nothing is parked")
