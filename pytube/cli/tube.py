"""`pytube tube …`: administration of tubes."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

import click

from pytube.cli.context import confirm, database_options, flag, lock_option, tube_argument, yes_option
from pytube.cli.output import print_table, tell
from pytube.model import KeyType
from pytube.tubes.admin import AttachResult, Tubes, TubeSettings
from pytube.tubes.attachments import changes


@click.group()
def tube() -> None:
    """Create, attach, list, and drop tubes."""


_TUBE = tube_argument()


@tube.command()
@_TUBE
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
    """Create TUBE, or update only the given options."""
    before, now = tubes.create(name, partitions, predicate, None if keys is None else KeyType(keys))
    changes = [] if before is None else _changes(before, now)
    done = "created" if before is None else "changed" if changes else "unchanged"
    text = f"tube {name} is {done}"
    if before is None:
        text += f": partitions {now.partitions}, keys {now.key_type}"
    elif changes:
        text += f": {', '.join(changes)}"
    tell(text, {"tube": name} | asdict(now) | {"done": done})


def _changes(before: TubeSettings, now: TubeSettings) -> list[str]:
    changes = []
    if before.partitions != now.partitions:
        changes.append(f"partitions {before.partitions} -> {now.partitions}")
    if before.predicate != now.predicate:
        changes.append(f"predicate {before.predicate or 'none'} -> {now.predicate or 'none'}")
    return changes


@tube.command()
@_TUBE
@click.option(
    "--epoch",
    type=click.IntRange(0, 2**31 - 2),
    required=True,
    help="Highest epoch at the sink, from the event `sink_ahead`.",
)
@database_options(opens=Tubes)
def rebase(tubes: Tubes, name: str, epoch: int) -> None:
    """Raise epochs of TUBE above EPOCH after a restore."""
    issued = tubes.rebase(name, epoch)
    tell(f"new terms of tube {name} begin above epoch {issued}", {"tube": name, "epoch": issued})


@tube.command()
@_TUBE
@database_options(opens=Tubes)
def acknowledge(tubes: Tubes, name: str) -> None:
    """Stop reporting that TUBE must be verified.

    A full `pytube verify` that finds no difference, or a backfill of all tables, ends the report
    automatically.
    """
    reasons = tubes.acknowledge(name)
    text = f"{name} is no longer reported" if reasons else f"nothing was reported of {name}"
    tell(text, {"tube": name, "acknowledged": reasons})


@tube.command()
@_TUBE
@flag("--force", help="Drop it even if tables are attached or changes are queued or parked (deletes them).")
@yes_option
@database_options(opens=Tubes)
def drop(tubes: Tubes, name: str, force: bool, yes: bool) -> None:
    """Drop TUBE.

    With --force, asks on a terminal.
    """
    if force:
        tables = ", ".join(str(row.tbl) for row in tubes.list() if row.tube == name and row.tbl) or "none"
        confirm(
            f"drop tube {name} with its queued and parked changes? Attached tables: {tables}",
            yes=yes,
            forced=True,
        )
    tubes.drop(name, force=force)
    tell(f"tube {name} is dropped", {"tube": name, "done": "dropped"})


@tube.command()
@_TUBE
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
    "--key-cols",
    "--key",
    "key_cols",
    metavar="COLUMN,...",
    help="Columns of a key of several columns, instead of --id-col; the tube's keys are text. For a "
    "related table, the columns with the root table's key, in its order.",
)
@click.option(
    "--shard-by",
    metavar="COLUMN",
    help="Column of --key-cols that alone decides the shard; '' means all of them. [default for a new "
    "table: all]",
)
@click.option(
    "--columns",
    metavar="COLUMN,...",
    help="Capture only UPDATEs that change these columns; '' means all. [default for a new table: all]",
)
@click.option(
    "--replica/--no-replica",
    default=None,
    help="Also capture rows that logical replication writes here. [default for a new table: no]",
)
@flag(
    "--force",
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
    lock_timeout: float,
    **options: Any,
) -> None:
    """Attach TABLE to TUBE, or change how it is attached."""
    names = None if columns is None else _names(columns)
    key = None if key_cols is None else _names(key_cols)
    result = tubes.attach(name, table, columns=names, key_cols=key, limit=lock_timeout, **options)
    _tell_attached(name, table, result)


def _names(text: str) -> list[str]:
    """The names between commas; none in an empty text."""
    return [name.strip() for name in text.split(",")] if text.strip() else []


def _tell_attached(name: str, table: str, result: AttachResult) -> None:
    """What `attach` has done."""
    was, now, column = result.before, result.now, result.column
    found = [] if was is None else changes(was, now)
    done = "attached" if was is None else "changed" if found else "unchanged"
    moves = was is not None and not (
        was.same_shards(now) and (was.key, was.shard_by) == (now.key, now.shard_by)
    )
    backfill = f"pytube backfill start {shlex.quote(name)} --table {shlex.quote(table)}" if moves else None
    if was is None:
        text = f"{table} is attached to {name} by {column.name}: {column.reason}"
    else:
        text = f"{table} in tube {name} is {done}" + (f": {', '.join(found)}" if found else "")
    if backfill is not None:
        text += f"\nto bring the documents up to date, run: {backfill}"
    value = {"tube": name, "table": table, "done": done, "changes": found, "next": backfill}
    value |= {"column": column.name, "reason": column.reason, **asdict(now), "columns": sorted(now.columns)}
    tell(text, value)


@tube.command()
@_TUBE
@click.argument("table")
@flag(
    "--force",
    help="Detach it even if other tables are related to it; the first of them becomes the root table.",
)
@lock_option
@database_options(opens=Tubes)
def detach(tubes: Tubes, name: str, table: str, force: bool, lock_timeout: float) -> None:
    """Detach TABLE from TUBE."""
    was_attached = tubes.detach(name, table, force=force, limit=lock_timeout)
    text = f"{table} is detached from {name}" if was_attached else f"{table} was not attached to {name}"
    tell(text, {"tube": name, "table": table, "detached": was_attached})


@tube.command("list")
@database_options(opens=Tubes)
def list_(tubes: Tubes) -> None:
    """List tubes and their tables."""
    rows = tubes.list()
    table: dict[str, Any] = {
        "tube": "tube",
        "partitions": "partitions",
        "predicate": "predicate",
        "table": "tbl",
        "shard": "shard",
        "shards": "shards",
        "id column": "id_col",
        "keys": "key_type",
    }
    if any(row.key_cols for row in rows):
        table |= {"key": lambda row: ", ".join(row.key_cols or []), "spread by": "shard_by"}
    if any(row.companion_of for row in rows):
        table |= {"companion of": "companion_of"}
    print_table(table, rows, "there are no tubes; make one with: pytube tube create NAME")
