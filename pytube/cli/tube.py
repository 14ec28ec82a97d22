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
    """Make, attach, list and drop tubes."""


@tube.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=int,
    help="How many workers can share it at most (1). Changed on a tube that is there.",
)
@click.option("--predicate", metavar="SQL", help="Which rows belong to it; '' removes it.")
@click.option(
    "--keys",
    type=click.Choice([keys.value for keys in KeyType]),
    help="The type of its ids, for good; bigint also for smaller integers, and for a new tube by default.",
)
@database_options(opens=Tubes)
def create(tubes: Tubes, name: str, partitions: int | None, predicate: str | None, keys: str | None) -> None:
    """Make the tube NAME, or change it; what is not given stays."""
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
    "--epoch", type=click.IntRange(0, 2**31 - 2), required=True, help="The highest that the sink holds."
)
@database_options(opens=Tubes)
def rebase(tubes: Tubes, name: str, epoch: int) -> None:
    """Let the terms of tube NAME go on above EPOCH, after a restore: the worker says when to."""
    issued = tubes.rebase(name, epoch)
    click.echo(f"the terms of tube {name} go on above epoch {issued}")


@tube.command()
@click.argument("name")
@database_options(opens=Tubes)
def acknowledge(tubes: Tubes, name: str) -> None:
    """Answer for the copy of tube NAME, which is to be verified: it is no longer reported.

    A full `pytube verify` that finds nothing ends the report by itself, and so does a backfill of all tables.
    """
    reasons = tubes.acknowledge(name)
    click.echo(f"{name} is no longer reported" if reasons else f"nothing was reported of {name}")


@tube.command()
@click.argument("name")
@click.option(
    "--force",
    is_flag=True,
    help="Also while tables are attached, pods wait or documents are parked, which are lost then.",
)
@database_options(opens=Tubes)
def drop(tubes: Tubes, name: str, force: bool) -> None:
    """Drop the tube NAME. Refused while tables are attached, pods wait in it, or documents are parked."""
    tubes.drop(name, force=force)
    click.echo(f"tube {name} is dropped")


@tube.command()
@click.argument("name")
@click.argument("table")
@click.option(
    "--shard",
    type=int,
    help="The table's shard, or the first of them. For a new one the number that its schema ends in, else 0.",
)
@click.option(
    "--shards",
    type=int,
    help="Spread its ids over so many shards. For a new one 1; with --id-col, as many as the root table of "
    "the shard has. To go back: 1.",
)
@click.option(
    "--id-col",
    metavar="COLUMN",
    help="The column of the ids; of a related table, the one that holds ids of the root table. "
    "For a new one id where it is a key, else the primary key of one column.",
)
@click.option(
    "--key",
    "key_cols",
    metavar="COLUMN,…",
    help="The columns of a key of several, in place of --id-col; the tube's keys are texts. Of a related "
    "table, those that hold the key of the root table, in its order.",
)
@click.option(
    "--shard-by",
    metavar="COLUMN",
    help="The column of --key that alone tells the shard. For a new one all of them do. To go back: ''.",
)
@click.option(
    "--columns",
    metavar="COLUMN,…",
    help="An UPDATE that changes none of these makes no touch. For a new one each one does. To go back: ''.",
)
@click.option(
    "--replica/--no-replica",
    default=None,
    help="Touch rows that logical replication writes here, too. Not for a new one.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Also if each row gets a document under another key, as with other shards. Run a backfill then.",
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
    """Attach TABLE (schema.table) to tube NAME, or change how it is attached; what is not given stays."""
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
    words = f"--tube {shlex.quote(name)} --table {shlex.quote(table)}"
    return f"{said}\nto bring the documents up to date, run: pytube backfill start {words}"


@tube.command()
@click.argument("name")
@click.argument("table")
@click.option(
    "--force",
    is_flag=True,
    help="Also while other tables are related to it: the first of them becomes the root table then.",
)
@lock_option
@database_options(opens=Tubes)
def detach(tubes: Tubes, name: str, table: str, force: bool, wait: float) -> None:
    """Detach TABLE from tube NAME. Refused while other tables are related to it."""
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
