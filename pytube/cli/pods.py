"""`pytube pods …`: the pods that wait in a tube."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import click
import psycopg

from pytube import admin
from pytube.admin import Pods, WaitingPod
from pytube.admin.pods import PodsCount, document
from pytube.cli.context import (
    config_of,
    confirm,
    database_options,
    json_option,
    keep_earlier_name,
    key_argument,
    limit_option,
    partition_option,
    tube_argument,
    yes_option,
)
from pytube.cli.output import and_some, is_terminal, key_shown, print_json, print_list, tell
from pytube.config import Config
from pytube.counts import is_or_are, printable, say_count
from pytube.db.database import Database
from pytube.errors import NotPaused, UsageError
from pytube.verify import Explanation

_COLUMNS = {
    "seq": "seq",
    "partition": "part",
    "op": "op",
    "shard": "shard",
    "ts": "since",
    "state": "state",
    "client_id": "by",
    "failures": "failing",
    "keys": "keys",
}
_PREVIEW = 5
_SHOWN = 10
_EVERY = 2**31 - 1


@click.group()
def pods() -> None:
    """List, show, retry, step through, or discard queued pods."""


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which pods, as `chosen`."""

    @tube_argument()
    @partition_option
    @click.option("--from", "first", type=int, metavar="SEQ", help="Only from this seq.")
    @click.option("--to", "last", type=int, metavar="SEQ", help="Only up to this seq.")
    @click.option("--shard", type=click.IntRange(min=0), help="Only this shard.")
    @click.option("--key", metavar="ID", help="Only pods with this id; scans all pods of the range.")
    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        chosen = Pods(*map(options.pop, ("name", "partition", "first", "last", "shard", "key")))
        return command(*arguments, chosen=chosen, **options)

    return wrapper


@pods.command("list")
@_filters
@limit_option
@json_option
@database_options()
def list_(database: Database, chosen: Pods, limit: int, as_json: bool) -> None:
    """List queued pods in processing order."""
    with database.connect() as connection:
        rows = admin.list_pods(connection, chosen, database.schema, and_some(limit))
    print_list(_COLUMNS, rows, "no such pods are queued", as_json=as_json, shown=_shown, limit=limit)


@pods.command()
@tube_argument()
@key_argument(is_required=False)
@click.option("--seq", type=int, metavar="SEQ", help="The pod with this seq, instead of all pods with KEY.")
@click.option("--shard", type=click.IntRange(min=0), help="Shard of the key, if several shards have it.")
@json_option
@database_options(configured=True)
def show(
    database: Database,
    name: str,
    seq: int | None,
    key: str | None,
    shard: int | None,
    as_json: bool,
) -> None:
    """Show pods with their documents at the source and at the sink."""
    if seq is None and key is None:
        raise UsageError("which pods? Give KEY or --seq")
    config = config_of(database, name)
    with database.connect() as connection:
        shown = admin.show(connection, config, Pods(name, None, seq, seq, shard, key))
    if as_json:
        print_json({"pods": shown.pods, "documents": [one.as_json() for one in shown.documents]})
        return
    print_list(_COLUMNS, shown.pods, "", as_json=False, shown=_shown)
    for found in shown.documents:
        click.echo(f"key {key_shown(str(found.id))} of shard {found.shard}")
        for line in _sides(found):
            click.echo(f"  {line}")


@pods.command()
@_filters
@yes_option
@json_option
@database_options()
def retry(database: Database, chosen: Pods, yes: bool, as_json: bool) -> None:
    """Move pods to the end of the queue; skips pods in flight."""
    _act(database, chosen, ("retry", "retried"), admin.retry_pods, yes=yes, as_json=as_json)


@pods.command()
@_filters
@yes_option
@json_option
@database_options()
def discard(database: Database, chosen: Pods, yes: bool, as_json: bool) -> None:
    """Discard pods, or one --key in them, without sending.

    Refused while a worker has them in flight: pause the tube or the partition first.
    """
    _act(database, chosen, ("discard", "discarded"), admin.ack_pods, yes=yes, as_json=as_json)


keep_earlier_name(pods, "ack", discard)


@pods.command()
@tube_argument()
@partition_option
@click.option("--shard", type=click.IntRange(min=0), help="Only this shard.")
@click.option("--key", metavar="ID", help="Only this id.")
@json_option
@database_options()
def reset(
    database: Database,
    name: str,
    partition: int | None,
    shard: int | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Reset attempt counts of failing keys and retry now.

    A worker keeps the counts of keys in flight until it is paused.
    """
    with database.connect() as connection:
        done = admin.reset_attempts(
            connection, name, database.schema, partition=partition, shard=shard, key=key
        )
    text = f"the attempts of {say_count(done, 'key')} are reset"
    tell(text, {"tube": name, "keys": done}, as_json=as_json)


@pods.command()
@tube_argument()
@click.option("--partition", type=click.IntRange(min=0), help="The partition, if the tube has several.")
@database_options(configured=True)
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
                click.echo(f"  {came.outcome}" + ("" if came.reason is None else f": {came.reason}"))
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
    database: Database,
    chosen: Pods,
    verb: tuple[str, str],
    act: Callable[[psycopg.Connection, Pods, str], int],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Act on pods after a question; `verb`: as a command, and as a participle."""
    with database.connect() as connection:
        count = admin.count_pods(connection, chosen, database.schema)
        if not count.pods:
            tell(
                "no such pods are queued",
                {"tube": chosen.tube, "key": chosen.key, verb[1]: 0},
                as_json=as_json,
            )
            return
        if not yes:
            if not as_json:
                rows = admin.list_pods(connection, chosen, database.schema, _PREVIEW)
                print_list(_COLUMNS, rows, "", as_json=False, shown=_shown)
            confirm(_question(verb[0], chosen, count), yes=yes)
        done = act(connection, chosen, database.schema)
    what = "" if chosen.key is None else f"key {chosen.key} in "
    text = f"{what}{say_count(done, 'pod')} {is_or_are(done)} {verb[1]}"
    tell(text, {"tube": chosen.tube, "key": chosen.key, verb[1]: done}, as_json=as_json)


def _question(verb: str, chosen: Pods, count: PodsCount) -> str:
    what = "" if chosen.key is None else f"key {chosen.key} in "
    parts = [f"{verb} {what}{say_count(count.pods, 'pod')} of tube {chosen.tube}"]
    parts += [f"{count.in_flight} in flight"] if count.in_flight else []
    parts += [f"{say_count(count.control, 'control pod')}, left alone"] if count.control else []
    return f"{', '.join(parts)}?"


def _shown(row: WaitingPod) -> dict[str, Any]:
    keys = [str(key_shown(key)) for key in row.keys[:_SHOWN]]
    if row.key_count > len(keys):
        keys.append(f"… ({row.key_count})")
    return {"keys": row.control or " ".join(keys)}
