"""`pytube status`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from pytube.cli.context import Database, databases_options, json_option
from pytube.cli.fleet import Fleet, Reading
from pytube.cli.outbox import COLUMNS as OUTBOX_COLUMNS
from pytube.cli.outbox import shown_rows as shown_outboxes
from pytube.cli.outbox import troubles as outbox_troubles
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
    with_numbers,
)
from pytube.cli.settings import Settings
from pytube.cli.workers import show_workers
from pytube.errors import DatabaseUnavailable, UsageError
from pytube.health.prometheus import exposition
from pytube.health.status import PartitionStatus

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

_OFTEN = 120
"""A reading is followed by another one when so many times what it took the server has passed: 0.8 % of a core
at most, as for `pytube top`."""

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
    help="Seconds between two readings; more where a reading takes the database long.",
)
@click.option(
    "--prometheus",
    is_flag=True,
    help="Print metrics of the fleet in the text format of Prometheus, for a textfile collector.",
)
@click.option(
    "--fleet",
    "fleet_view",
    is_flag=True,
    help="Show the workers in place of the partitions: what each leads, and what does not fit together.",
)
@json_option
@databases_options
@click.pass_obj
def status(
    settings: Settings,
    databases: Sequence[Database],
    name: str | None,
    watch: bool,
    interval: float,
    prometheus: bool,
    fleet_view: bool,
    as_json: bool,
) -> None:
    """What waits in each partition, who leads it, and how far behind it is.

    Lag is the age of the oldest touch that waits. A lost partition has a leader that renews its term no more.
    --json tells more, of tubes only, as do the lines of --watch; pytube outbox status --json is for outboxes.
    Of several hosts all are read, unless --host names one; the exit code is 3 when one of them is down.
    """
    if prometheus and (watch or as_json):
        raise UsageError("--prometheus prints once, in its own format; leave --watch and --json out")
    if fleet_view:
        if prometheus or watch or name is not None:
            raise UsageError("--fleet prints all workers once; leave --prometheus, --watch and --tube out")
        show_workers(databases, settings.config() if settings.has_file else None, as_json=as_json)
        return
    with closing(Fleet(databases)) as fleet:
        if prometheus:
            click.echo(exposition(fleet.read_metrics(name)), nl=False)
        elif watch:
            with suppress(KeyboardInterrupt):
                _watch(fleet, name, interval, as_json=as_json)
        else:
            _print_once(fleet, fleet.read(name), as_json=as_json)


def _print_once(fleet: Fleet, reading: Reading, *, as_json: bool) -> None:
    if as_json:
        print_json(_json(reading))
    else:
        if reading.rows or not reading.outboxes:
            print_rows(_columns(fleet), _shown(reading.rows), _NONE if not reading.down else "")
        if reading.outboxes:
            if reading.rows:
                click.echo()
            print_rows(_outbox_columns(fleet), shown_outboxes(reading.outboxes), "")
    for trouble in _down(reading) if as_json else _troubles(reading):
        click.echo(trouble, err=as_json or not is_terminal())  # no line of the table
    if reading.down:
        click.get_current_context().exit(DatabaseUnavailable.exit_code)


def _watch(fleet: Fleet, name: str | None, interval: float, *, as_json: bool) -> None:
    if as_json:
        _watch_json(fleet, name, interval)
    elif is_terminal():
        _watch_table(fleet, name, interval)
    else:
        _watch_lines(fleet, name, interval)


def _watch_json(fleet: Fleet, name: str | None, interval: float) -> None:
    while True:
        reading = fleet.read(name)
        print_json(_json(reading))
        for line in _down(reading):
            click.echo(line, err=True)
        time.sleep(_until_next(reading, interval))


def _watch_lines(fleet: Fleet, name: str | None, interval: float) -> None:
    columns = {"time": "time"} | _columns(fleet)
    click.echo(heading_line(columns))
    while True:
        reading = fleet.read(name)
        now = datetime.now().astimezone()
        for line in lines(columns, [row | {"time": now} for row in _shown(reading.rows)]):
            click.echo(line)  # which flushes
        for line in _down(reading):
            click.echo(line, err=True)
        time.sleep(_until_next(reading, interval))


def _watch_table(fleet: Fleet, name: str | None, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(), auto_refresh=False) as live:
        while True:
            reading = fleet.read(name)
            rows, outboxes = _shown(reading.rows), shown_outboxes(reading.outboxes)
            table = shown(_columns(fleet), rows, terminal_width()) if rows else [] if outboxes else [_NONE]
            if outboxes:
                table += shown(_outbox_columns(fleet), outboxes, terminal_width())
            live.update(Text.from_ansi("\n".join([*table, *_troubles(reading)])), refresh=True)
            time.sleep(_until_next(reading, interval))


def _until_next(reading: Reading, interval: float) -> float:
    """Seconds until the next reading: more than asked for where readings would cost the database too much."""
    return max(interval, reading.took * _OFTEN)


def _columns(fleet: Fleet) -> dict[str, str]:
    return {"host": "host"} | _COLUMNS if fleet.has_names else _COLUMNS


def _outbox_columns(fleet: Fleet) -> dict[str, str]:
    return {"host": "host"} | OUTBOX_COLUMNS if fleet.has_names else OUTBOX_COLUMNS


def _json(reading: Reading) -> list[dict[str, Any]]:
    """The rows, with numbers; the host is left out where there is only one."""
    rows = [with_numbers(asdict(row), "waiting", "backfill", "control") for row in reading.rows]
    return [row if row["host"] is not None else {k: v for k, v in row.items() if k != "host"} for row in rows]


def _down(reading: Reading) -> list[str]:
    return [f"host {host} was not read: {reason}" for host, reason in reading.down.items()]


def _troubles(reading: Reading) -> list[str]:
    """A line for each host, sink and source that is down, of characters that do nothing to a terminal."""
    lines = [
        *_down(reading),
        *(line for row in reading.rows for line in _troubles_of(row)),
        *outbox_troubles(reading.outboxes),
    ]
    return ["".join(c if c.isprintable() else " " for c in line) for line in lines]


def _troubles_of(row: PartitionStatus) -> Iterator[str]:
    host = "" if row.host is None else f"host {row.host}: "
    yield from (
        f"{host}{row.tube} partition {row.partition}: {what} down for {seconds(since)}: {reason}"
        for what, reason, since in (
            ("sink", row.sink_down, row.sink_down_for),
            ("source", row.source_down, row.source_down_for),
        )
        if reason is not None
    )
    if row.paused is not None:
        yield f"{host}{row.tube} partition {row.partition}: {_pause(row)}"


def _pause(row: PartitionStatus) -> str:
    what = "paused" if row.paused_kind == "operator" else "stopped"
    left = "until it is resumed" if row.paused_for is None else f"for another {seconds(row.paused_for)}"
    return f"{what} {left}: {row.paused}"


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
