"""`pytube pods …`: the pods that wait in a tube."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import click
import psycopg

from pytube import admin
from pytube.admin import Pods, WaitingPod
from pytube.admin.pods import PodsCount, document
from pytube.cli.context import (
    PREVIEW,
    Session,
    config_of,
    confirm_rows,
    database_options,
    key_argument,
    limit_option,
    options,
    partition_option,
    tube_argument,
    yes_option,
)
from pytube.cli.output import (
    Table,
    and_some,
    is_terminal,
    key_shown,
    print_json,
    print_table,
    say,
    tell,
    wants_json,
)
from pytube.config import Config
from pytube.counts import is_or_are, printable, say_count
from pytube.db.database import Database
from pytube.errors import NotPaused, UsageError
from pytube.verify import Explanation

_SHOWN = 10
_EVERY = 2**31 - 1


def _keys_shown(row: WaitingPod) -> str:
    keys = [str(key_shown(key)) for key in row.keys[:_SHOWN]]
    if row.key_count > len(keys):
        keys.append(f"… ({row.key_count})")
    return row.control or " ".join(keys)


_TABLE: Table = {
    "seq": "seq",
    "part": "partition",
    "op": "op",
    "shard": "shard",
    "since": "ts",
    "state": "state",
    "by": "client_id",
    "failing": "failures",
    "keys": _keys_shown,
}


@click.group()
def pods() -> None:
    """List, show, retry, step through, or discard queued pods."""


_WHICH = options(
    tube_argument("tube"),
    partition_option,
    key_argument("Only pods with this id; scans all pods of the range.", is_required=False),
    click.option("--from", "first", type=int, metavar="SEQ", help="Only from this seq."),
    click.option("--to", "last", type=int, metavar="SEQ", help="Only up to this seq."),
    click.option("--shard", type=click.IntRange(min=0), help="Only this shard."),
)
"""The fields of `Pods`."""


@pods.command("list")
@_WHICH
@limit_option
@database_options(opens=Session)
def list_(at: Session, limit: int, **which: Any) -> None:
    """List queued pods in processing order."""
    rows = admin.list_pods(at.connection, Pods(**which), at.schema, and_some(limit))
    print_table(_TABLE, rows, "no such pods are queued", limit=limit)


@pods.command()
@tube_argument()
@key_argument(is_required=False)
@click.option("--seq", type=int, metavar="SEQ", help="The pod with this seq, instead of all pods with KEY.")
@click.option("--shard", type=click.IntRange(min=0), help="Shard of the key, if several shards have it.")
@database_options(configured=True)
def show(database: Database, name: str, seq: int | None, key: str | None, shard: int | None) -> None:
    """Show pods with their documents at the source and at the sink."""
    if seq is None and key is None:
        raise UsageError("which pods? Give KEY or --seq")
    config = config_of(database, name)
    with database.connect() as connection:
        waiting, documents = admin.show(connection, config, Pods(name, None, seq, seq, shard, key))
    if wants_json():
        print_json({"pods": waiting, "documents": [one.as_json() for one in documents]})
        return
    print_table(_TABLE, waiting, "")
    for found in documents:
        click.echo(f"key {key_shown(str(found.id))} of shard {found.shard}")
        for line in _sides(found):
            click.echo(f"  {line}")


@pods.command()
@_WHICH
@yes_option
@database_options(opens=Session)
def retry(at: Session, yes: bool, **which: Any) -> None:
    """Move pods to the end of the queue; skips pods in flight."""
    _act(at, Pods(**which), ("retry", "retried"), admin.retry_pods, yes=yes)


@pods.command()
@_WHICH
@yes_option
@database_options(opens=Session)
def discard(at: Session, yes: bool, **which: Any) -> None:
    """Discard pods, or one --key in them, without sending.

    Refused while a worker has them in flight: pause the tube or the partition first.
    """
    _act(at, Pods(**which), ("discard", "discarded"), admin.ack_pods, yes=yes)


@pods.command()
@tube_argument()
@partition_option
@key_argument("Only this id.", is_required=False)
@click.option("--shard", type=click.IntRange(min=0), help="Only this shard.")
@database_options(opens=Session)
def reset(at: Session, name: str, **which: Any) -> None:
    """Reset attempt counts of failing keys and retry now.

    A worker keeps the counts of keys in flight until it is paused.
    """
    done = admin.reset_attempts(at.connection, name, at.schema, **which)
    text = f"the attempts of {say_count(done, 'key')} are reset"
    tell(text, {"tube": name, "keys": done})


@pods.command()
@tube_argument()
@click.option("--partition", type=click.IntRange(min=0), help="The partition, if the tube has several.")
@database_options(configured=True, has_json=False)
def step(database: Database, name: str, partition: int | None) -> None:
    """Step through a paused partition, asking before each document.

    The partition's worker sends them, so a worker must be running and the partition paused.
    """
    config = config_of(database, name)
    with database.connect() as connection:
        _wait_until_paused(connection, database.schema, name, partition)
        done = 0
        for pod, key in _keys(connection, database.schema, Pods(name, partition)):
            answer = _ask(config, name, pod, key)
            if answer == "q":
                break
            if answer == "a":
                acked = Pods(name, None, pod.seq, pod.seq, pod.shard, key)
                admin.ack_pods(connection, acked, database.schema)
                click.echo("  acknowledged: not sent")
            elif answer == "y":
                came = admin.step(connection, name, pod.seq, pod.shard, key, database.schema)
                done += came.is_done
                say(f"  {came.outcome}" + ("" if came.reason is None else f": {came.reason}"))
    click.echo(f"{say_count(done, 'document')} stepped over; the tube stays paused")


def _wait_until_paused(connection: psycopg.Connection, schema: str, name: str, partition: int | None) -> None:
    # An unknown tube or partition is refused here.
    admin.list_pods(connection, Pods(name, partition), schema, 1)
    found = [one for one in admin.pauses(connection, name, schema) if partition in (None, one.partition)]
    if not found:
        where = f"tube {name}" if partition is None else f"partition {partition} of tube {name}"
        raise NotPaused(f"{where} is not paused, so a worker delivers it; run `pytube pause {name}` first")


def _keys(connection: psycopg.Connection, schema: str, chosen: Pods) -> Iterator[tuple[WaitingPod, str]]:
    """Each key of each pod that is there now, in processing order, read as one comes to it."""
    seen: set[int] = set()
    while True:
        # The first ones are listed again: a pod that was stepped over is gone, and a failed one was seen.
        rows = admin.list_pods(connection, chosen, schema, len(seen) + 1, _EVERY)
        row = next((row for row in rows if row.seq not in seen), None)
        if row is None:
            return
        seen.add(row.seq)
        if row.control is None:
            for key in row.keys:
                yield row, key


def _ask(config: Config, name: str, pod: WaitingPod, key: str) -> str:
    """Show a key of a pod with its documents, and ask what to do."""
    click.echo(f"pod {pod.seq}, op {pod.op}, shard {pod.shard}, key {key_shown(key)}")
    for line in _sides(document(config, name, pod.shard, key)):
        click.echo(f"  {line}")
    return str(
        click.prompt(
            "  send it? y: yes, n: leave it, a: acknowledge without sending, q: quit",
            type=click.Choice(["y", "n", "a", "q"]),
            show_choices=False,
            err=True,
        )
    )


def _sides(found: Explanation) -> Iterator[str]:
    """What would be sent now, what the sink has, and why not."""
    for what, side in (("now", found.source), ("sink", found.sink)):
        if side.unknown is not None:
            text = f"not known: {side.unknown}"
        elif side.exists:
            text = json.dumps(side.document, ensure_ascii=not is_terminal())
        else:
            text = "no document"
        yield f"{what}: {printable(text)}"
    if found.parked is not None:
        yield f"parked after {say_count(found.parked.attempts, 'attempt')}: {found.parked.error}"
    if found.fields:
        yield f"they differ in {', '.join(found.fields)}"


def _act(
    at: Session,
    chosen: Pods,
    verb: tuple[str, str],
    act: Callable[[psycopg.Connection, Pods, str], int],
    *,
    yes: bool,
) -> None:
    """Act on pods after a question; `verb`: as a command, and as a participle."""
    count = admin.count_pods(at.connection, chosen, at.schema)
    if not count.pods:
        tell("no such pods are queued", {"tube": chosen.tube, "key": chosen.key, verb[1]: 0})
        return
    if not yes:
        rows = admin.list_pods(at.connection, chosen, at.schema, PREVIEW)
        what = _what(chosen, count)
        confirm_rows(verb[0], what, count.pods, _TABLE, rows)
    done = act(at.connection, chosen, at.schema)
    what = "" if chosen.key is None else f"key {chosen.key} in "
    text = f"{what}{say_count(done, 'pod')} {is_or_are(done)} {verb[1]}"
    tell(text, {"tube": chosen.tube, "key": chosen.key, verb[1]: done})


def _what(chosen: Pods, count: PodsCount) -> str:
    """In words, for a question."""
    key = "" if chosen.key is None else f"key {chosen.key} in "
    parts = [f"{key}{say_count(count.pods, 'pod')} of tube {chosen.tube}"]
    parts += [f"{count.in_flight} in flight"] if count.in_flight else []
    parts += [f"{say_count(count.control, 'control pod')}, left alone"] if count.control else []
    return ", ".join(parts)
