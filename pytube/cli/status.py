"""`pytube status`."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click
import psycopg

from pytube.cli.context import Database, database_options, json_option
from pytube.cli.output import (
    console,
    heading_line,
    is_terminal,
    lines,
    print_json,
    print_rows,
    seconds,
    shown,
    terminal_width,
)
from pytube.db.version import check
from pytube.errors import UnknownTube, UsageError
from pytube.health.prometheus import exposition, read_sizes, read_writers
from pytube.health.status import PartitionStatus, read_status

_COLUMNS = {
    "tube": "tube",
    "partition": "part",
    "waiting": "waiting",
    "backfill": "backfill",
    "lag": "lag",
    "parked": "parked",
    "state": "state",
    "leader": "leader",
    "epoch": "epoch",
    "renewed_ago": "renewed ago",
}

_NONE = "there are no tubes; make one with: pytube tube create NAME"


@click.command()
@click.option("--tube", "name", metavar="NAME", help="Only this tube.")
@click.option(
    "--watch",
    is_flag=True,
    help="Refresh until interrupted; without a terminal, or with --json, print lines.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two readings.",
)
@click.option(
    "--prometheus",
    is_flag=True,
    help="Print metrics of the fleet in the text format of Prometheus, for a textfile collector.",
)
@json_option
@database_options
def status(
    database: Database, name: str | None, watch: bool, interval: float, prometheus: bool, as_json: bool
) -> None:
    """What waits in each partition, who leads it, and how far behind it is.

    Lag is the age of the oldest touch that waits. A lost partition has a leader that renews its term no more.
    --json tells more.
    """
    if prometheus and (watch or as_json):
        raise UsageError("--prometheus prints once, in its own format; leave --watch and --json out")
    with database.connect() as connection:
        check(connection, database.schema)
        rows = _read(connection, database.schema, name)
        if prometheus:
            sizes = read_sizes(connection, database.schema)
            click.echo(exposition(rows, read_writers(connection), sizes), nl=False)
            return
        if not watch:
            if as_json:
                print_json([asdict(row) for row in rows])
            else:
                print_rows(_COLUMNS, _shown(rows), _NONE)
                for trouble in _troubles(rows):
                    click.echo(trouble, err=not is_terminal())  # no line of the table
            return
        try:
            if as_json:
                _watch_json(connection, database.schema, name, interval)
            elif is_terminal():
                _watch_table(connection, database.schema, name, interval)
            else:
                _watch_lines(connection, database.schema, name, interval)
        except KeyboardInterrupt:
            return


def _watch_json(connection: psycopg.Connection, schema: str, name: str | None, interval: float) -> None:
    while True:
        print_json([asdict(row) for row in _read(connection, schema, name)])
        time.sleep(interval)


def _watch_lines(connection: psycopg.Connection, schema: str, name: str | None, interval: float) -> None:
    columns = {"time": "time"} | _COLUMNS
    click.echo(heading_line(columns))
    while True:
        rows = _shown(_read(connection, schema, name))
        now = datetime.now().astimezone()
        for line in lines(columns, [row | {"time": now} for row in rows]):
            click.echo(line)  # which flushes
        time.sleep(interval)


def _watch_table(connection: psycopg.Connection, schema: str, name: str | None, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(), auto_refresh=False) as live:
        while True:
            rows = _read(connection, schema, name)
            table = shown(_COLUMNS, _shown(rows), terminal_width()) if rows else [_NONE]
            live.update(Text.from_ansi("\n".join([*table, *_troubles(rows)])), refresh=True)
            time.sleep(interval)


def _read(connection: psycopg.Connection, schema: str, name: str | None) -> list[PartitionStatus]:
    rows = read_status(connection, schema, name)
    if name is not None and not rows:
        raise UnknownTube(f"there is no tube {name!r}; `pytube tube list` names those that there are")
    return rows


def _troubles(rows: list[PartitionStatus]) -> list[str]:
    """A line for each sink and source that is down, of characters that do nothing to a terminal."""
    lines = (
        f"{row.tube} partition {row.partition}: {what} down for {seconds(since)}: {reason}"
        for row in rows
        for what, reason, since in (
            ("sink", row.sink_down, row.sink_down_for),
            ("source", row.source_down, row.source_down_for),
        )
        if reason is not None
    )
    return ["".join(c if c.isprintable() else " " for c in line) for line in lines]


def _shown(rows: list[PartitionStatus]) -> list[dict[str, Any]]:
    return [
        asdict(row)
        | {
            "lag": seconds(row.lag),
            "leader": row.leader or "nobody",
            "renewed_ago": seconds(row.renewed_ago),
        }
        for row in rows
    ]
