"""`pytube status --fleet`: the worker processes, and what does not fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import Any

import click

import pytube
from pytube.cli.context import Database
from pytube.cli.output import is_terminal, print_json, print_rows, seconds
from pytube.config import Config
from pytube.counts import runs_of
from pytube.db.connect import database_of
from pytube.errors import DatabaseUnavailable
from pytube.health.disagreements import Disagreement, disagreements
from pytube.health.fleet import FleetSample, Worker
from pytube.health.watcher import FleetWatcher, Target

_COLUMNS = {
    "worker": "worker",
    "instance": "instance",
    "version": "version",
    "election": "election",
    "seen": "seen",
    "heard": "heartbeat",
    "count": "leads",
    "leads": "partitions",
}
_OTHER = (
    "--dsn (PYTUBE_DSN) or --schema names another database or schema than the configuration, whose Kafka is "
    "that of other workers; leave them out, give the --config of its workers, or write host, port and name "
    "of the database as there"
)
_NONE = "no worker is there; start one with: pytube worker"


def targets(databases: Sequence[Database], config: Config | None) -> list[Target]:
    """The databases, as a `FleetWatcher` takes them.

    Args:
        databases: one for each host.
        config: of all hosts; None: there is none, so that nobody listens to heartbeats at Kafka. A database
            that was named in place of the configuration's, and is none of them, is not listened to either:
            its workers are others, and beat elsewhere.
    """
    return [_target(database, config) for database in databases]


def _target(database: Database, config: Config | None) -> Target:
    target = Target(database.dsn, database.schema, database.host)
    if config is None:
        return target
    meant = [config.of_host(name) for name in config.hosts if database.host in (None, name)]
    for one in meant:
        postgres = one.postgres
        if (database_of(postgres.only_dsn), postgres.schema_name) == (
            database_of(database.dsn),
            database.schema,
        ):
            return replace(target, config=one)
    return replace(target, why_deaf=_OTHER)


def show_workers(databases: Sequence[Database], config: Config | None, *, as_json: bool) -> None:
    """Print a row for each worker process, and a line for each disagreement.

    Raises:
        DatabaseUnavailable: the only host can't be read. Of several, those that are down are told of, and the
            exit code is the same.
    """
    with closing(FleetWatcher(targets(databases, config), "pytube cli")) as watcher:
        sample = watcher.first_sample()
    if None in sample.down:
        raise DatabaseUnavailable(sample.down[None])
    found = disagreements(sample, pytube.__version__)
    if as_json:
        print_json(_json(sample, found))
    else:
        named = any(worker.host is not None for worker in sample.workers)
        columns = {"host": "host"} | _COLUMNS if named else _COLUMNS
        print_rows(columns, [_row(worker) for worker in sample.workers], _NONE if not sample.down else "")
        for line in [*_unread(sample), *map(str, found)]:
            click.echo(printable(line), err=not is_terminal())
    if sample.down:
        click.get_current_context().exit(DatabaseUnavailable.exit_code)


def partitions_shown(leads: Iterable[tuple[str, int]]) -> str:
    """As `es-live 0-3,7, orders 1`."""
    groups = groupby(sorted(leads), key=lambda one: one[0])
    return ", ".join(f"{name} {_ranges([number for _, number in group])}" for name, group in groups)


def _ranges(numbers: Sequence[int]) -> str:
    """As `0-3,7`, of ascending numbers."""
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs_of(numbers))


def printable(text: str) -> str:
    """Without characters that do something to a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def _unread(sample: FleetSample) -> Iterator[str]:
    for host in sample.hosts:
        name = "" if host.host is None else f"host {host.host}: "
        if host.down is not None:
            yield f"{name}was not read: {host.down}"
        yield from (f"{name}{what}" for what in host.not_read)


def _row(worker: Worker) -> dict[str, Any]:
    return {
        "host": worker.host,
        "worker": worker.client_id or "?",
        "instance": worker.instance,
        "version": worker.version or "?",
        "election": ", ".join(sorted(worker.elections)) or "-",
        "seen": seconds(worker.seen_ago),
        "heard": seconds(worker.heard_ago),
        "count": len(worker.leads),
        "leads": partitions_shown(worker.leads) or "-",
    }


def _json(sample: FleetSample, found: Sequence[Disagreement]) -> dict[str, Any]:
    return {
        "workers": [
            {
                "host": worker.host,
                "client_id": worker.client_id,
                "instance": worker.instance,
                "version": worker.version,
                "elections": sorted(worker.elections),
                "seen_ago": worker.seen_ago,
                "heard_ago": worker.heard_ago,
                "leads": [{"tube": name, "partition": partition} for name, partition in worker.leads],
                "waits_for": list(worker.waits_for),
            }
            for worker in sample.workers
        ],
        "disagreements": [
            {"host": one.host, "subject": one.subject, "finding": one.finding} for one in found
        ],
        "not_read": list(_unread(sample)),
    }
