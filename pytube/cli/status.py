"""`pytube status`: partitions, or with `--fleet` the worker processes; metrics of the fleet. `pytube top`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import datetime
from importlib.util import find_spec
from typing import Any

import click

import pytube
from pytube.cli.context import database_options, flag, tube_argument
from pytube.cli.output import (
    Table,
    changing,
    heading_line,
    is_terminal,
    lines,
    partitions_shown,
    print_json,
    print_table,
    say,
    seconds,
    shown,
    terminal_width,
    wants_json,
)
from pytube.counts import printable
from pytube.db.database import Database
from pytube.errors import DatabaseUnavailable, UsageError, WrongKind, how_to_install
from pytube.health.disagreements import disagreements
from pytube.health.fleet import FleetSample, HostSample, Partition, Worker, place
from pytube.health.prometheus import Measured, exposition, measure
from pytube.health.troubles import down_lines, kafka_lines
from pytube.health.troubles import lines as trouble_lines
from pytube.health.watcher import PACE_LOOK, FleetWatcher
from pytube.tubes.calls import unknown_tube

TABLE: Table = {
    "tube": "name",
    "part": "partition",
    "waiting": "counted",
    "backfill": "backfill",
    "documents": "documents",
    "lag": lambda one: seconds(one.lag),
    "parked": "parked",
    "state": "state",
    "leader": lambda one: one.leader or "none",
    "epoch": "epoch",
    "renewed ago": lambda one: seconds(one.renewed_ago),
}
OUTBOX_TABLE: Table = {"outbox": "name"} | {
    heading: of for heading, of in TABLE.items() if heading not in ("tube", "backfill", "documents")
}
_WORKERS: Table = {
    "worker": lambda worker: worker.client_id or "?",
    "instance": "instance",
    "version": lambda worker: worker.version or "?",
    "election": lambda worker: ", ".join(sorted(worker.elections)) or "-",
    "seen": lambda worker: seconds(worker.seen_ago),
    "leads": lambda worker: len(worker.leads),
    "partitions": lambda worker: partitions_shown(worker.leads) or "-",
}
_JSON = (
    *(
        "partition",
        "waiting",
        "parked",
        "lag",
        "leader",
        "epoch",
        "leads_for",
        "renewed_ago",
        "state",
        "sink_down",
    ),
    *("sink_down_for", "failing", "failing_terms", "failing_for", "paused", "parked_error"),
)
_OF_TUBES = (
    *("backfill", "documents", "control", "backfill_lag", "election", "source_down", "source_down_for"),
    *("paused_kind", "paused_for", "sink_emptied_for"),
)
_OF_OUTBOXES = ("parked_failed", "parked_behind", "parked_overtaken", "problem", "resting", "host")
"""The fields of a partition that its JSON has."""

_OFTEN = 120
"""Between two readings pass this many times the seconds that the first one took the server: at most 0.8 % of
a core, as for `pytube top`."""

_NONE = "there are no tubes; make one with: pytube tube create NAME"
_NO_WORKER = "no worker is there; start one with: pytube worker"


@click.command()
@tube_argument(is_required=False)
@flag("--watch", help="Refresh until interrupted; prints lines without a terminal or with --json.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    help="Seconds between readings; longer if a reading is slow.",
)
@flag("--prometheus", help="Print fleet metrics in Prometheus text format, for a textfile collector.")
@flag("--fleet", "fleet_view", help="Show workers instead of partitions: what each leads, and conflicts.")
@database_options(several=True)
def status(
    databases: Sequence[Database],
    name: str | None,
    watch: bool,
    interval: float,
    prometheus: bool,
    fleet_view: bool,
) -> None:
    """Show backlog, lag, and leaders.

    Lag is the age of the oldest queued touch. `lost` means that the leader stopped renewing its term.
    --json has more detail, for tubes only, as have the lines of --watch; for outboxes, use `pytube outbox
    status --json`. Reads all configured hosts unless --host names one; exits with 3 if one of them is down.
    """
    if prometheus and (watch or wants_json()):
        raise UsageError("--prometheus prints once, in its own format; leave --watch and --json out")
    if fleet_view and (prometheus or watch or name is not None):
        raise UsageError(
            "--fleet prints all workers once; it can't be combined with --prometheus, --watch, or TUBE"
        )
    if prometheus:
        click.echo(exposition([_measure(database).of(name) for database in databases]), nl=False)
        return
    with closing(FleetWatcher(databases, "pytube cli", exact=not fleet_view)) as watcher:
        if watch:
            show = _lines_as_json if wants_json() else _live_table() if is_terminal() else _lines(databases)
            with suppress(KeyboardInterrupt):
                _watch(watcher, name, interval, show)
            return
        sample = _of(watcher.sample(), name)
        if not (fleet_view or wants_json()) and any(queue.is_behind for queue in sample.queues):
            time.sleep(PACE_LOOK)  # one look shows the age, and two show whether it catches up
            sample = _of(watcher.sample(), name)
    if fleet_view:
        _print_workers(sample)
    else:
        _print_once(sample)
    if sample.down:
        click.get_current_context().exit(DatabaseUnavailable.exit_code)


def _measure(database: Database) -> Measured:
    """Measure a host; if one of several is down, its metrics say so."""
    try:
        with database.connect() as connection:
            return measure(connection, database.schema, database.host)
    except DatabaseUnavailable as error:
        if database.host is None:
            raise
        return Measured(HostSample(database.host, error=error))


def _of(sample: FleetSample, tube: str | None) -> FleetSample:
    """The sample of one tube, or of all.

    Raises:
        UnknownTube: all hosts were read, and none has the tube.
        WrongKind: it is an outbox.
        PytubeError: the only host can't be read; or one of several is there, but not installed correctly.
    """
    for host in sample.hosts:
        if host.error is not None and (host.host is None or not isinstance(host.error, DatabaseUnavailable)):
            raise host.error
    found = sample if tube is None else sample.only(lambda one: one.name == tube)
    if tube is not None and any(queue.kind == "outbox" for queue in found.queues):
        raise WrongKind(f"{tube!r} is an outbox, not a tube: pytube outbox status {tube}")
    if tube is not None and not found.queues and not found.down:
        raise unknown_tube(tube)
    return found


# --- partitions -----------------------------------------------------------------------------------


def _print_once(sample: FleetSample) -> None:
    rows, outboxes = _by_kind(sample)
    if wants_json():
        print_json(_json(sample))
    else:
        if rows or not outboxes:
            print_table(_of_hosts(TABLE, sample), rows, _NONE if not sample.down else "")
        if outboxes:
            if rows:
                click.echo()
            print_table(_of_hosts(OUTBOX_TABLE, sample), outboxes, "")
    for line in _brief(sample) if wants_json() else _remarks(sample):
        say(line, err=wants_json() or not is_terminal())  # no line of the table


def _watch(
    watcher: FleetWatcher, name: str | None, interval: float, show: Callable[[FleetSample], object]
) -> None:
    while True:
        sample = _of(watcher.sample(), name)
        show(sample)
        # More than asked for where readings would cost the database too much.
        time.sleep(max(interval, _OFTEN * max(host.took for host in sample.hosts)))


def _lines_as_json(sample: FleetSample) -> None:
    print_json(_json(sample))
    for line in _brief(sample):
        say(line, err=True)


def _lines(databases: Sequence[Database]) -> Callable[[FleetSample], None]:
    named = any(database.host is not None for database in databases)
    hosts: Table = {"host": "host"} if named else {}
    table: Table = {"time": lambda _: datetime.now().astimezone(), **hosts, **TABLE}
    click.echo(heading_line(table))

    def show(sample: FleetSample) -> None:
        for line in lines(table, _by_kind(sample)[0]):
            click.echo(line)  # which flushes
        for line in _remarks(sample):
            say(line, err=True)

    return show


def _live_table() -> Callable[[FleetSample], None]:
    show_lines = click.get_current_context().with_resource(changing())

    def show(sample: FleetSample) -> None:
        told: list[str] = []
        for table, rows in zip((TABLE, OUTBOX_TABLE), _by_kind(sample), strict=True):
            if rows:
                told += shown(_of_hosts(table, sample), rows, terminal_width())
        show_lines([*(told or [_NONE]), *_remarks(sample)])

    return show


def _by_kind(sample: FleetSample) -> tuple[list[Partition], list[Partition]]:
    """The partitions of tubes, and of outboxes."""
    tubes, outboxes = ([one for one in sample.partitions if one.kind == kind] for kind in ("tube", "outbox"))
    return tubes, outboxes


def _of_hosts(table: Table, sample: FleetSample) -> Table:
    """The table, with the host before all else where there are several."""
    return table if sample.hosts[0].host is None else {"host": "host", **table}


def partition_json(one: Partition) -> dict[str, Any]:
    """For programs: counts as numbers, each with an `…_is_exact` behind it."""
    found: dict[str, Any] = {one.kind: one.name}
    for name in (*_JSON, *(_OF_TUBES if one.kind == "tube" else _OF_OUTBOXES)):
        found[name] = value = getattr(one, name)
        if name in ("waiting", "backfill", "documents", "control", "parked"):
            found[name] = None if value is None else value.number
            found[f"{name}_is_exact"] = value is not None and value.is_exact
    return found


def _json(sample: FleetSample) -> list[dict[str, Any]]:
    """The partitions of tubes; the host is left out where there is only one."""
    hosts = {host.host: host for host in sample.hosts}
    rows = []
    for one in _by_kind(sample)[0]:
        host = hosts[one.host]
        rows.append(
            partition_json(one)
            | ({} if one.host is None else {"host": one.host})
            | {
                "unverified": [asdict(found) for found in host.unverified if found.tube == one.name],
                "sample": next((asdict(found) for found in host.samples if found.tube == one.name), None),
                "hindered": [
                    {"what": each.what, "reason": each.reason, "seconds": each.seconds}
                    for each in host.hindered
                    if (each.tube, each.partition) == (one.name, one.partition)
                ],
            }
        )
    return rows


def _brief(sample: FleetSample) -> list[str]:
    """The remarks beside lines for programs."""
    return [*down_lines(sample), *kafka_lines(sample)]


def _remarks(sample: FleetSample) -> list[str]:
    samples = (
        f"{place(host.host)}{one.tube}: last sample: {one}" for host in sample.hosts for one in host.samples
    )
    return [*trouble_lines(sample), *samples]


# --- worker processes -----------------------------------------------------------------------------


def _print_workers(sample: FleetSample) -> None:
    """A row for each worker process, and a line for each disagreement."""
    found = disagreements(sample, pytube.__version__)
    unread = [*down_lines(sample), *sample.not_read]
    if wants_json():
        workers = [_worker_json(worker) for worker in sample.workers]
        print_json({"workers": workers, "disagreements": [asdict(one) for one in found], "not_read": unread})
        return
    print_table(_of_hosts(_WORKERS, sample), sample.workers, _NO_WORKER if not sample.down else "")
    for line in [*unread, *map(str, found)]:
        click.echo(printable(line), err=not is_terminal())


def _worker_json(worker: Worker) -> dict[str, Any]:
    return asdict(worker) | {
        "elections": sorted(worker.elections),
        "leads": [{"tube": name, "partition": partition} for name, partition in worker.leads],
    }


# --- the fleet as one live table, which needs the extra `top` -------------------------------------------


@click.command()
@click.option("--interval", type=click.FloatRange(min=0.2), default=1.0, help="Seconds between samples.")
@database_options(several=True, has_json=False)
def top(databases: Sequence[Database], interval: float) -> None:
    """Watch tubes, partitions, and workers on a terminal.

    The last line lists the keys. Requires the role tube_monitor.
    """
    if find_spec("textual") is None:
        raise UsageError(f"pytube top needs the package textual: {how_to_install('top')}")
    if not is_terminal():
        raise UsageError("pytube top draws on a terminal, and stdout is none; use pytube status --watch")
    from pytube.cli.top import TopApp

    # A line of a log would be written across the screen; what matters of it is in the samples.
    logging.disable(logging.CRITICAL)
    TopApp(databases, interval).run()
