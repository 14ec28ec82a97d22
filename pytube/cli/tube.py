"""`pytube tube …`: administration of tubes."""

from __future__ import annotations

import shlex
from typing import Any

import click

from pytube.cli.context import database_options, json_option, lock_option
from pytube.cli.output import print_list
from pytube.model import KeyType
from pytube.tubes.admin import Attachment, AttachResult, Tubes, TubeSettings
from pytube.tubes.attachments import changes


@click.group()
def tube() -> None:
    """Create, attach, list, and drop tubes."""


@tube.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=int,
    help="Number of partitions: the most workers that can share the tube. Changes an existing "
    "tube. [default: 1]",
)
@click.option("--predicate", metavar="SQL", help="SQL condition that a row must meet; '' removes it.")
@click.option(
    "--keys",
    type=click.Choice([keys.value for keys in KeyType]),
    help="Type of the ids; can't be changed later. bigint includes smaller integers. [default: bigint]",
)
@database_options(opens=Tubes)
def create(tubes: Tubes, name: str, partitions: int | None, predicate: str | None, keys: str | None) -> None:
    """Create tube NAME, or update only the given options."""
    before, now = tubes.create(name, partitions, predicate, None if keys is None else KeyType(keys))
    click.echo(_creation(name, before, now))


def _creation(name: str, before: TubeSettings | None, now: TubeSettings) -> str:
    """What `create` has done."""
    if before is None:
        return f"tube {name} is created: partitions {now.partitions}, keys {now.key_type}"
    changes = []
    if before.partitions != now.partitions:
        changes.append(f"partitions {before.partitions} -> {now.partitions}")
    if before.predicate != now.predicate:
        changes.append(f"predicate {before.predicate or 'none'} -> {now.predicate or 'none'}")
    return f"tube {name} is " + (f"changed: {', '.join(changes)}" if changes else "unchanged")


@tube.command()
@click.argument("name")
@click.option(
    "--epoch",
    type=click.IntRange(0, 2**31 - 2),
    required=True,
    help="Highest epoch at the sink, from the event `sink_ahead`.",
)
@database_options(opens=Tubes)
def rebase(tubes: Tubes, name: str, epoch: int) -> None:
    """Raise epochs of tube NAME above EPOCH after a restore."""
    issued = tubes.rebase(name, epoch)
    click.echo(f"the terms of tube {name} go on above epoch {issued}")


@tube.command()
@click.argument("name")
@database_options(opens=Tubes)
def acknowledge(tubes: Tubes, name: str) -> None:
    """Stop reporting that tube NAME must be verified.

    A full `pytube verify` that finds no difference, or a backfill of all tables, ends the report
    automatically.
    """
    reasons = tubes.acknowledge(name)
    click.echo(f"{name} is no longer reported" if reasons else f"nothing was reported of {name}")


@tube.command()
@click.argument("name")
@click.option(
    "--force",
    is_flag=True,
    help="Drop it even if tables are attached or changes are queued or parked (deletes them).",
)
@database_options(opens=Tubes)
def drop(tubes: Tubes, name: str, force: bool) -> None:
    """Drop tube NAME."""
    tubes.drop(name, force=force)
    click.echo(f"tube {name} is dropped")


@tube.command()
@click.argument("name")
@click.argument("table")
@click.option(
    "--shard",
    type=int,
    help="First shard of the table. [default for a new table: the number its schema ends in, else 0]",
)
@click.option(
    "--shards",
    type=int,
    help="Spread the ids over this many shards. [default for a new table: 1, or with --id-col as "
    "many as the root table]",
)
@click.option(
    "--id-col",
    metavar="COLUMN",
    help="Column of the ids; for a related table, the column with ids of the root table. [default"
    " for a new table: id if it is a key, else the primary key]",
)
@click.option(
    "--key",
    "key_cols",
    metavar="COLUMN,…",
    help="Columns of a key of several columns, instead of --id-col; the tube's keys are text. For a "
    "related table, the columns with the root table's key, in its order.",
)
@click.option(
    "--shard-by",
    metavar="COLUMN",
    help="Column of --key that alone decides the shard; '' means all of them. [default for a new table: all]",
)
@click.option(
    "--columns",
    metavar="COLUMN,…",
    help="Capture only UPDATEs that change these columns; '' means all. [default for a new table: all]",
)
@click.option(
    "--replica/--no-replica",
    default=None,
    help="Also capture rows that logical replication writes here. [default for a new table: no]",
)
@click.option(
    "--force",
    is_flag=True,
    help="Allow changes that give documents another key, such as other shards. Backfill afterwards.",
)
@lock_option
@database_options(opens=Tubes)
def attach(
    tubes: Tubes,
    name: str,
    table: str,
    columns: str | None,
    key_cols: str | None,
    wait: float,
    **options: Any,
) -> None:
    """Attach TABLE to tube NAME, or change how it is attached."""
    names = None if columns is None else _names(columns)
    key = None if key_cols is None else _names(key_cols)
    result = tubes.attach(name, table, columns=names, key_cols=key, limit=wait, **options)
    click.echo(_attaching(name, table, result))


def _names(text: str) -> list[str]:
    """The names between commas; none in an empty text."""
    return [name.strip() for name in text.split(",")] if text.strip() else []


def _attaching(name: str, table: str, result: AttachResult) -> str:
    """What `attach` has done."""
    was, now = result.before, result.now
    if was is None:
        return f"{table} is attached to {name} by {result.column.name}: {result.column.reason}"
    found = changes(was, now)
    said = f"{table} in tube {name} is " + (f"changed: {', '.join(found)}" if found else "unchanged")
    if was.same_shards(now) and (was.key, was.shard_by) == (now.key, now.shard_by):
        return said
    words = f"{shlex.quote(name)} --table {shlex.quote(table)}"
    return f"{said}\nto bring the documents up to date, run: pytube backfill start {words}"


@tube.command()
@click.argument("name")
@click.argument("table")
@click.option(
    "--force",
    is_flag=True,
    help="Detach it even if other tables are related to it; the first of them becomes the root table.",
)
@lock_option
@database_options(opens=Tubes)
def detach(tubes: Tubes, name: str, table: str, force: bool, wait: float) -> None:
    """Detach TABLE from tube NAME."""
    was_attached = tubes.detach(name, table, force=force, limit=wait)
    click.echo(f"{table} is detached from {name}" if was_attached else f"{table} was not attached to {name}")


@tube.command("list")
@json_option
@database_options(opens=Tubes)
def list_(tubes: Tubes, as_json: bool) -> None:
    """List tubes and their tables."""
    rows = tubes.list()
    columns = {
        "tube": "tube",
        "partitions": "partitions",
        "predicate": "predicate",
        "tbl": "table",
        "shard": "shard",
        "shards": "shards",
        "id_col": "id column",
        "key_type": "keys",
    }
    if any(row.key_cols for row in rows):
        columns |= {"key_cols": "key", "shard_by": "spread by"}
    if any(row.companion_of for row in rows):
        columns["companion_of"] = "companion of"
    empty = "there are no tubes; make one with: pytube tube create NAME"
    print_list(columns, rows, empty, as_json=as_json, shown=_shown)


def _shown(row: Attachment) -> dict[str, Any]:
    return {"key_cols": ", ".join(row.key_cols or [])}
