"""`pytube outbox …`: administration of outboxes, and what they have parked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from pytube.cli.acting import confirm, yes_option
from pytube.cli.context import Database, database_options, json_option
from pytube.cli.outbox_pump import pump
from pytube.cli.output import key_shown, print_json, print_rows, seconds, with_numbers
from pytube.counts import say_count
from pytube.errors import UsageError
from pytube.outbox.admin import Outboxes, OutboxPartition, OutboxSettings, read_outboxes, unknown_outbox

COLUMNS = {
    "outbox": "outbox",
    "partition": "part",
    "waiting": "waiting",
    "lag": "lag",
    "parked": "parked",
    "state": "state",
    "leader": "leader",
    "epoch": "epoch",
    "renewed_ago": "renewed ago",
}
"""What `pytube outbox status` and `pytube status` show of a partition."""

_PREVIEW = 5
"""Parked records that are shown before somebody is asked."""

_NONE = "there are no outboxes; make one with: pytube outbox create NAME"


@click.group()
def outbox() -> None:
    """Make, adopt, list and drop outboxes; retry what they have parked."""


outbox.add_command(pump)


@contextmanager
def _outboxes(database: Database) -> Iterator[Outboxes]:
    with database.connect() as connection:
        yield Outboxes(connection, database.schema)


_PARTITIONS = click.option(
    "--partitions",
    type=int,
    help="How many workers can share it at most (1). Changed on an outbox that is there.",
)


@outbox.command()
@click.argument("name")
@_PARTITIONS
@click.option(
    "--value-type",
    type=click.Choice(["text", "bytea"]),
    help="The type of its values, for good; for a new outbox text by default.",
)
@json_option
@database_options
def create(
    database: Database, name: str, partitions: int | None, value_type: str | None, as_json: bool
) -> None:
    """Make the outbox NAME with a table of its own, or change its partitions."""
    with _outboxes(database) as outboxes:
        before, now = outboxes.create(name, partitions, value_type)
    _print_change("created", before, now, as_json=as_json)


@outbox.command()
@click.argument("name")
@click.argument("table")
@_PARTITIONS
@click.option(
    "--wake/--no-wake",
    default=None,
    help="Give TABLE a trigger by which its writers wake a sleeping worker. Without it, workers poll.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to try for the table's lock; nobody queues behind us meanwhile.",
)
@json_option
@database_options
def adopt(
    database: Database,
    name: str,
    table: str,
    partitions: int | None,
    wake: bool | None,
    wait: float,
    as_json: bool,
) -> None:
    """Make the outbox NAME over TABLE (schema.table), which goharvest's writers may go on writing."""
    with _outboxes(database) as outboxes:
        before, now = outboxes.adopt(name, table, partitions, wake=wake, limit=wait)
    _print_change("adopted", before, now, as_json=as_json)


def _print_change(made: str, before: OutboxSettings | None, now: OutboxSettings, *, as_json: bool) -> None:
    """What `create` or `adopt` has done; `made`: the word for an outbox that is new."""
    changes = [] if before is None else _changes(before, now)
    done = made if before is None else "changed" if changes else "unchanged"
    if as_json:
        print_json(asdict(now) | {"done": done})
    elif before is None:
        wakes = "wake workers" if now.wakes else "do not wake workers, which poll"
        click.echo(
            f"outbox {now.outbox} is {done}: table {now.tbl}, partitions {now.partitions}, "
            f"values {now.value_type}; writers {wakes}"
        )
    else:
        click.echo(f"outbox {now.outbox} is {done}" + (f": {', '.join(changes)}" if changes else ""))


def _changes(before: OutboxSettings, now: OutboxSettings) -> list[str]:
    changes = []
    if before.partitions != now.partitions:
        changes.append(f"partitions {before.partitions} -> {now.partitions}")
    if before.wakes != now.wakes:
        changes.append("writers wake workers" if now.wakes else "writers do not wake workers")
    return changes


@outbox.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also while records wait or are parked, which are lost then.")
@json_option
@database_options
def drop(database: Database, name: str, force: bool, as_json: bool) -> None:
    """Drop the outbox NAME. Refused while records wait in its own table; an adopted table stays, as it is."""
    with _outboxes(database) as outboxes:
        was = outboxes.drop(name, force=force)
    if as_json:
        print_json(asdict(was) | {"done": "dropped"})
    else:
        click.echo(f"outbox {name} is dropped" + (f"; its table {was.tbl} stays" if was.adopted else ""))


@outbox.command("list")
@json_option
@database_options
def list_(database: Database, as_json: bool) -> None:
    """List outboxes and their tables."""
    with _outboxes(database) as outboxes:
        rows = [asdict(row) for row in outboxes.list()]
    if as_json:
        print_json(rows)
        return
    columns = {
        "outbox": "outbox",
        "partitions": "partitions",
        "tbl": "table",
        "value_type": "values",
        "adopted": "adopted",
        "wakes": "wakes workers",
    }
    yes_or_no = {True: "yes", False: "no"}
    shown = [row | {name: yes_or_no[row[name]] for name in ("adopted", "wakes")} for row in rows]
    print_rows(columns, shown, _NONE)


@outbox.command()
@click.argument("name", required=False)
@json_option
@database_options
def status(database: Database, name: str | None, as_json: bool) -> None:
    """What waits in each partition of NAME, or of all outboxes, and who leads it.

    Lag is the age of the oldest record that waits.
    """
    with database.connect() as connection:
        Outboxes(connection, database.schema)
        rows = read_outboxes(connection, database.schema, name)
    if name is not None and not rows:
        raise unknown_outbox(name)
    if as_json:
        print_json([with_numbers(asdict(row), "waiting", "parked") for row in rows])
    else:
        print_rows(COLUMNS, shown_rows(rows), _NONE)
        for trouble in troubles(rows):
            click.echo(trouble, err=True)


def shown_rows(rows: list[OutboxPartition]) -> list[dict[str, Any]]:
    """The rows for a table of `COLUMNS`."""
    return [
        asdict(row)
        | {
            "waiting": row.waiting or "?",
            "lag": seconds(row.lag),
            "leader": row.leader or "nobody",
            "renewed_ago": seconds(row.renewed_ago),
        }
        for row in rows
    ]


def _host(row: OutboxPartition) -> str:
    return "" if row.host is None else f"host {row.host}: "


def troubles(rows: list[OutboxPartition]) -> list[str]:
    """A line for what keeps a partition from being delivered, or from being looked at."""
    lines = (
        f"{_host(row)}{row.outbox} partition {row.partition}: {what}: {reason}"
        for row in rows
        for what, reason in (
            ("Kafka takes nothing", row.sink_down),
            ("paused", row.paused),
            ("not looked at", row.problem),
        )
        if reason is not None
    )
    return ["".join(c if c.isprintable() else " " for c in line) for line in lines]


# --- what is parked -----------------------------------------------------------------------------


@outbox.command()
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@json_option
@database_options
def parked(database: Database, name: str | None, limit: int, as_json: bool) -> None:
    """List parked records of NAME, or of all outboxes, with their errors.

    A held key's later records wait behind the first one.
    """
    with _outboxes(database) as outboxes:
        rows = outboxes.parked(name, limit)
    if as_json:
        print_json(rows)
        return
    _print_parked(rows)


def _print_parked(rows: Sequence[dict[str, Any]]) -> None:
    columns = {
        "outbox": "outbox",
        "id": "id",
        "topic": "topic",
        "key": "key",
        "holds": "key is",
        "attempts": "attempts",
        "parked_at": "since",
        "error": "error",
    }
    print_rows(
        columns,
        [row | {"key": key_shown(row["key"]), "holds": _holds(row)} for row in rows],
        "nothing is parked",
    )


def _holds(row: dict[str, Any]) -> str:
    """Whether the record holds its key."""
    return "waiting" if row["behind"] else "held" if row["hold"] else "free"


@outbox.command()
@click.argument("name")
@click.argument("ids", type=int, nargs=-1)
@click.option("--topic", help="Only records for this topic.")
@click.option("--key", help="Only records with this partition key, or else this key.")
@click.option("--all", "everything", is_flag=True, help="All that is parked.")
@json_option
@database_options
def retry(
    database: Database,
    name: str,
    ids: tuple[int, ...],
    topic: str | None,
    key: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Have parked records of NAME sent again: those with the IDS, or as the options say.

    Of a held key all records go together, in order.
    """
    chosen = bool(ids) or topic is not None or key is not None
    if chosen == everything:
        raise UsageError("which records? Give ids, --topic or --key; or --all alone")
    with _outboxes(database) as outboxes:
        if ids:
            outboxes.parked_of(name, ids)  # refuses those that are not parked, before it does anything
        count = outboxes.retry(name, ids or None, topic=topic, key=key)
    if as_json:
        print_json({"outbox": name, "retried": count})
    else:
        click.echo(f"records of outbox {name} to be sent again: {count}")


@outbox.command()
@click.argument("name")
@click.argument("ids", type=int, nargs=-1, required=True)
@yes_option
@json_option
@database_options
def discard(database: Database, name: str, ids: tuple[int, ...], yes: bool, as_json: bool) -> None:
    """Delete parked records of NAME: they are never sent. What waited behind them is sent again."""
    with _outboxes(database) as outboxes:
        rows = outboxes.parked_of(name, ids)
        if not yes:
            if not as_json:
                _print_parked(rows[:_PREVIEW])
            rest = f", {len(rows) - _PREVIEW} of them not shown" if len(rows) > _PREVIEW else ""
            confirm(f"delete {say_count(len(rows), 'parked record')} of outbox {name}{rest}?", yes=yes)
        count = outboxes.discard(name, ids)
    if as_json:
        print_json({"outbox": name, "discarded": count})
    else:
        gone = (
            "" if count >= len(rows) else f" of {len(rows)}; the others were retried or discarded meanwhile"
        )
        click.echo(f"records of outbox {name} that are discarded: {count}{gone}")
