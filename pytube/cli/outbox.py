"""`pytube outbox …`: administration of outboxes, and a load generator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any

import click

from pytube.cli.context import (
    PREVIEW,
    confirm,
    confirm_rows,
    database_options,
    flag,
    limit_option,
    lock_option,
    seconds_option,
    yes_option,
)
from pytube.cli.output import (
    Table,
    and_some,
    changing,
    heading_line,
    is_terminal,
    key_shown,
    lines,
    print_fields,
    print_json,
    print_table,
    say,
    seconds,
    shown,
    tell,
    terminal_width,
    wants_json,
)
from pytube.cli.program import NOT_WELL, first_signal
from pytube.cli.status import OUTBOX_TABLE, partition_json
from pytube.counts import is_or_are, say_count
from pytube.db.database import Database
from pytube.errors import UsageError
from pytube.health.troubles import lines as trouble_lines
from pytube.health.watcher import FleetWatcher
from pytube.outbox.admin import COME_LATE, Outboxes, OutboxSettings, say_failed, unknown_outbox
from pytube.outbox.pump import Load, Pump, PumpReading, planned

_NONE = "there are no outboxes; make one with: pytube outbox create OUTBOX"


@click.group()
def outbox() -> None:
    """Create, adopt, list, and drop outboxes; act on parked records."""


_PARTITIONS = click.option(
    "--partitions",
    type=int,
    help="Number of partitions: the most workers that can share it. Changes an existing outbox. [default: 1]",
)


@outbox.command()
@click.argument("name", metavar="OUTBOX")
@_PARTITIONS
@click.option(
    "--value-type",
    type=click.Choice(["text", "bytea"]),
    help="Type of message values; can't be changed later. [default: text]",
)
@database_options(opens=Outboxes)
def create(outboxes: Outboxes, name: str, partitions: int | None, value_type: str | None) -> None:
    """Create OUTBOX, or change its partitions."""
    before, now = outboxes.create(name, partitions, value_type)
    _print_change("created", before, now)


@outbox.command()
@click.argument("name", metavar="OUTBOX")
@click.argument("table")
@_PARTITIONS
@click.option(
    "--wake/--no-wake",
    default=None,
    help="Add a trigger to TABLE with which writers wake a sleeping worker. Without it, workers poll.",
)
@lock_option
@database_options(opens=Outboxes)
def adopt(
    outboxes: Outboxes, name: str, table: str, partitions: int | None, wake: bool | None, lock_timeout: float
) -> None:
    """Create OUTBOX over TABLE, an existing goharvest table."""
    before, now = outboxes.adopt(name, table, partitions, wake=wake, limit=lock_timeout)
    _print_change("adopted", before, now)


def _print_change(made: str, before: OutboxSettings | None, now: OutboxSettings) -> None:
    """What `create` or `adopt` has done; `made`: the word for an outbox that is new."""
    changes = [] if before is None else _changes(before, now)
    done = made if before is None else "changed" if changes else "unchanged"
    text = f"outbox {now.outbox} is {done}"
    if before is None:
        wakes = "wake workers" if now.wakes else "do not wake workers, which poll"
        text += f": table {now.tbl}, partitions {now.partitions}, values {now.value_type}; writers {wakes}"
    elif changes:
        text += f": {', '.join(changes)}"
    tell(text, asdict(now) | {"done": done})


def _changes(before: OutboxSettings, now: OutboxSettings) -> list[str]:
    changes = []
    if before.partitions != now.partitions:
        changes.append(f"partitions {before.partitions} -> {now.partitions}")
    if before.wakes != now.wakes:
        changes.append("writers wake workers" if now.wakes else "writers do not wake workers")
    return changes


@outbox.command()
@click.argument("name", metavar="OUTBOX")
@flag("--force", help="Drop it even if records are queued or parked (deletes them).")
@yes_option
@database_options(opens=Outboxes)
def drop(outboxes: Outboxes, name: str, force: bool, yes: bool) -> None:
    """Drop OUTBOX; an adopted table stays as it is.

    With --force, asks on a terminal.
    """
    if force:
        confirm(f"drop outbox {name} with its queued and parked records?", yes=yes, forced=True)
    was = outboxes.drop(name, force=force)
    text = f"outbox {name} is dropped" + (f"; its table {was.tbl} stays" if was.adopted else "")
    tell(text, asdict(was) | {"done": "dropped"})


@outbox.command("list")
@database_options(opens=Outboxes)
def list_(outboxes: Outboxes) -> None:
    """List outboxes and their tables."""
    table: Table = {
        "outbox": "outbox",
        "partitions": "partitions",
        "table": "tbl",
        "values": "value_type",
        "adopted": lambda row: "yes" if row.adopted else "no",
        "wakes workers": lambda row: "yes" if row.wakes else "no",
    }
    print_table(table, outboxes.list(), _NONE)


@outbox.command()
@click.argument("name", metavar="[OUTBOX]", required=False)
@database_options()
def status(database: Database, name: str | None) -> None:
    """Show backlog, lag, and leaders of outboxes.

    Lag is the age of the oldest queued record.
    """
    with closing(FleetWatcher([database], "pytube cli", tubes=False)) as watcher:
        sample = watcher.sample()
    if (error := sample.hosts[0].error) is not None:
        raise error
    sample = sample.only(lambda one: name in (None, one.name))
    rows, unverified = sample.hosts[0].partitions, sample.hosts[0].unverified
    if name is not None and not rows:
        raise unknown_outbox(name)
    if wants_json():
        print_json(
            [
                partition_json(one)
                | {"unverified": [asdict(each) for each in unverified if each.tube == one.name]}
                for one in rows
            ]
        )
    else:
        print_table(OUTBOX_TABLE, rows, _NONE)
        for trouble in trouble_lines(sample):
            say(trouble, err=True)


@outbox.command()
@click.argument("name", metavar="OUTBOX")
@database_options(opens=Outboxes)
def acknowledge(outboxes: Outboxes, name: str) -> None:
    """Stop reporting lost commits of OUTBOX after you checked it."""
    reasons = outboxes.acknowledge(name)
    text = f"{name} is no longer reported" if reasons else f"nothing was reported of {name}"
    tell(text, {"outbox": name, "acknowledged": reasons})


@outbox.command()
@click.argument("name", metavar="OUTBOX")
@click.option("--topic", required=True, help="The topic; `pytube outbox status` lists resting topics.")
@seconds_option("--drain", "--wait", "wait", default=30.0, help="Seconds to wait for the leaders.")
@yes_option
@database_options(opens=Outboxes)
def park(outboxes: Outboxes, name: str, topic: str, wait: float, yes: bool) -> None:
    """Park the records of OUTBOX for a topic that accepts nothing.

    The leaders park them, because they know which records are in flight. Records written later are sent,
    possibly before parked records of the same key, unless the outbox has on_poison = "hold".
    """
    confirm(
        f"park the records of outbox {name} that wait for topic {topic}? Otherwise they are sent "
        "once the topic accepts records. Parked, later records of their keys overtake them, unless on_poison "
        'is "hold"',
        yes=yes,
    )
    count, left = outboxes.park_topic(name, topic, wait)
    see = f"; see: pytube outbox parked list {name}" if count else ""
    told = f"records of outbox {name} for topic {topic} that are parked: {count}{see}"
    done = {"outbox": name, "topic": topic, "parked": count, "partitions_left": left}
    tell(told, done)
    if left:
        click.echo(f"after {wait:g} s this is still to be done in {say_count(left, 'partition')}", err=True)
        click.get_current_context().exit(NOT_WELL)


# --- records that were set aside --------------------------------------------------------------------

_WAITS = "none: it waits behind a failed record of its key"

_PARKED: Table = {
    "outbox": "outbox",
    "id": "id",
    "topic": "topic",
    "key": lambda row: key_shown(row["key"]),
    "key is": lambda row: "waiting" if row["behind"] else "held" if row["hold"] else "free",
    "attempts": "attempts",
    "since": "parked_at",
    "error": lambda row: row["error"] or (_WAITS if row["behind"] else ""),
}


@outbox.group()
def parked() -> None:
    """List, show, retry, or discard records that failed."""


@parked.command("list")
@click.argument("name", metavar="[OUTBOX]", required=False)
@limit_option
@database_options(opens=Outboxes)
def list_parked(outboxes: Outboxes, name: str | None, limit: int) -> None:
    """List parked records with their errors, latest first.

    Later records of a held key wait behind its first one. They come last in the list.
    """
    rows = outboxes.parked(name, and_some(limit))
    print_table(_PARKED, rows, "nothing is parked", limit=limit)
    if wants_json() or not rows:
        return
    counts = outboxes.parked_counts(name)
    if counts.behind:
        click.echo(f"parked: {say_failed(counts.failed, counts.behind)}", err=True)
    if counts.overtaken:
        click.echo(f"if retried, {COME_LATE}", err=True)


@parked.command()
@click.argument("name", metavar="OUTBOX")
@click.argument("id_", metavar="ID", type=int)
@database_options(opens=Outboxes)
def show(outboxes: Outboxes, name: str, id_: int) -> None:
    """Show a parked record of OUTBOX: topic, key, and full error.

    The record itself stays in the outbox's table under this id.
    """
    (row,) = outboxes.parked_of(name, [id_])
    print_fields(_PARKED, row)


@parked.command()
@click.argument("name", metavar="OUTBOX")
@click.argument("ids", type=int, nargs=-1, metavar="[ID]...")
@click.option("--topic", help="Only records of this topic.")
@click.option("--key", help="Only records with this partition key, or with this key if they have none.")
@flag("--all", "everything", help="All parked records.")
@database_options(opens=Outboxes)
def retry(
    outboxes: Outboxes, name: str, ids: tuple[int, ...], topic: str | None, key: str | None, everything: bool
) -> None:
    """Resend parked records of OUTBOX, by ID or by the options.

    All records of a held key are resent together, in order. Records of a free key are sent after the later
    records of their key, which overtook them.
    """
    chosen = bool(ids) or topic is not None or key is not None
    if chosen == everything:
        raise UsageError("which records? Give ids, --topic or --key; or --all alone")
    if ids:
        outboxes.parked_of(name, ids)  # refuses ids that are not parked, before anything changes
    count = outboxes.retry(name, ids or None, topic=topic, key=key)
    text = f"{say_count(count, 'parked record')} of outbox {name} {is_or_are(count)} retried"
    tell(text, {"outbox": name, "retried": count})


@parked.command()
@click.argument("name", metavar="OUTBOX")
@click.argument("ids", type=int, nargs=-1, metavar="[ID]...")
@click.option("--topic", help="All failed records of this topic; records that wait behind them stay.")
@yes_option
@database_options(opens=Outboxes)
def discard(outboxes: Outboxes, name: str, ids: Sequence[int], topic: str | None, yes: bool) -> None:
    """Discard parked records of OUTBOX: delete them without sending.

    Records that wait behind a discarded one are then sent.
    """
    if bool(ids) == (topic is not None):
        raise UsageError("which records? Give ids, or --topic")
    if topic is not None:
        ids = outboxes.parked_of_topic(name, topic)
    rows = outboxes.parked_of(name, ids)
    if not yes:
        what = f"{say_count(len(rows), 'parked record')} of outbox {name}{_healthy(outboxes, rows, topic)}"
        confirm_rows("discard", what, len(rows), _PARKED, rows[:PREVIEW])
    count = outboxes.discard(name, ids)
    rest = "" if count >= len(rows) else f" of {len(rows)}; the others were retried or discarded meanwhile"
    text = f"parked records of outbox {name} that are discarded: {count}{rest}"
    tell(text, {"outbox": name, "discarded": count})


def _healthy(outboxes: Outboxes, rows: Sequence[Mapping[str, Any]], topic: str | None) -> str:
    """What becomes of records that did not fail, if these are discarded."""
    if chosen := sum(row["behind"] for row in rows):
        return (
            f", {chosen} of which did not fail and only {'waits' if chosen == 1 else 'wait'} behind another"
        )
    behind = 0 if topic is None else outboxes.parked_counts(rows[0]["outbox"], topic).behind
    return f", and send the {say_count(behind, 'record')} behind them" if behind else ""


# --- a load -----------------------------------------------------------------------------------

_READING: Table = {
    "time": lambda reading: f"{reading.seconds:.1f} s",
    "records": "records",
    "transactions": "transactions",
    "records/s": lambda reading: f"{reading.rate:.0f}",
    "a transaction takes": lambda reading: seconds(reading.transaction),
}


@outbox.command()
@click.argument("name", metavar="OUTBOX")
@click.option("--topic", help="Topic of the messages.  [default: OUTBOX]")
@click.option(
    "--rate", type=click.FloatRange(min=0), help="Records per second; 0 means no limit.  [default: 1000]"
)
@click.option(
    "--transactions",
    type=click.FloatRange(min=0, min_open=True),
    help="Transactions per second, instead of --rate or --batch.",
)
@click.option("--batch", type=click.IntRange(min=1), help="Records per transaction.  [default: 10]")
@click.option(
    "--keys",
    type=click.IntRange(min=0),
    default=1000,
    help="Number of different keys; 0 means messages without a key.",
)
@click.option("--size", type=click.IntRange(min=0), default=100, help="Size of a value in bytes.")
@click.option("--headers", type=click.IntRange(min=0), default=0, help="Number of headers per message.")
@click.option(
    "--duration",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds to run.  [default: until interrupted]",
)
@database_options()
def pump(
    database: Database,
    name: str,
    topic: str | None,
    rate: float | None,
    transactions: float | None,
    batch: int | None,
    keys: int,
    size: int,
    headers: int,
    duration: float | None,
) -> None:
    """Load-test OUTBOX with messages at a steady rate.

    The messages are real: workers deliver them, and consumers of the topic receive them. Each value begins
    with the number of the record within its key. SIGINT and SIGTERM end it after the current transaction;
    the last line is the total.
    """
    records, pace = planned(rate, transactions, batch)
    load = Load(topic or name, keys, size, headers, records, pace)
    stop = threading.Event()
    with database.connect() as connection, first_signal(stop.set), _display() as show:
        Outboxes(connection, database.schema)
        work = Pump(connection, name, load, database.schema)
        try:
            work.run(duration, stop, show)
        finally:
            show(work.total())  # also where the database went away: so much was committed


@contextmanager
def _display() -> Iterator[Callable[[PumpReading], None]]:
    """What shows readings: one row that changes on a terminal, a line each in a pipe, or JSON."""
    if wants_json():
        yield lambda reading: print_json(asdict(reading))
    elif is_terminal():
        with changing() as show:
            yield lambda reading: show(shown(_READING, [reading], terminal_width()))
    else:
        click.echo(heading_line(_READING))
        yield lambda reading: click.echo(lines(_READING, [reading])[0])  # which flushes
