"""`pytube outbox parked …`: records that were set aside with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from pytube.cli.context import (
    confirm,
    database_options,
    json_option,
    limit_option,
    yes_option,
)
from pytube.cli.output import and_some, key_shown, print_fields, print_list, tell
from pytube.counts import is_or_are, say_count
from pytube.errors import UsageError
from pytube.outbox.admin import Outboxes

_PREVIEW = 5
"""Parked records that are shown before the question."""
_COLUMNS = {
    "outbox": "outbox",
    "id": "id",
    "topic": "topic",
    "key": "key",
    "holds": "key is",
    "attempts": "attempts",
    "parked_at": "since",
    "error": "error",
}


class _ListByDefault(click.Group):
    """`outbox parked [OUTBOX]` works, too: the earlier spelling of `outbox parked list [OUTBOX]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` before arguments that begin with no command."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListByDefault)
def parked() -> None:
    """List, show, retry, or discard records that failed."""


@parked.command("list")
@click.argument("name", metavar="[OUTBOX]", required=False)
@limit_option
@json_option
@database_options(opens=Outboxes)
def list_(outboxes: Outboxes, name: str | None, limit: int, as_json: bool) -> None:
    """List parked records with their errors.

    Later records of a held key wait behind its first one.
    """
    _print(outboxes.parked(name, and_some(limit)), as_json=as_json, limit=limit)


def _print(rows: Sequence[dict[str, Any]], *, as_json: bool = False, limit: int | None = None) -> None:
    print_list(_COLUMNS, rows, "nothing is parked", as_json=as_json, shown=_shown, limit=limit)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {"key": key_shown(row["key"]), "holds": _holds(row)}


def _holds(row: dict[str, Any]) -> str:
    """Whether the record holds its key."""
    return "waiting" if row["behind"] else "held" if row["hold"] else "free"


@parked.command()
@click.argument("name", metavar="OUTBOX")
@click.argument("id_", metavar="ID", type=int)
@json_option
@database_options(opens=Outboxes)
def show(outboxes: Outboxes, name: str, id_: int, as_json: bool) -> None:
    """Show a parked record of OUTBOX: topic, key, and full error.

    The record itself stays in the outbox's table under this id.
    """
    (row,) = outboxes.parked_of(name, [id_])
    print_fields(_COLUMNS, row, as_json=as_json, shown=_shown)


@parked.command()
@click.argument("name", metavar="OUTBOX")
@click.argument("ids", type=int, nargs=-1, metavar="[ID]...")
@click.option("--topic", help="Only records of this topic.")
@click.option("--key", help="Only records with this partition key, or with this key if they have none.")
@click.option("--all", "everything", is_flag=True, help="All parked records.")
@json_option
@database_options(opens=Outboxes)
def retry(
    outboxes: Outboxes,
    name: str,
    ids: tuple[int, ...],
    topic: str | None,
    key: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Resend parked records of OUTBOX, by ID or by the options.

    All records of a held key are resent together, in order.
    """
    chosen = bool(ids) or topic is not None or key is not None
    if chosen == everything:
        raise UsageError("which records? Give ids, --topic or --key; or --all alone")
    if ids:
        outboxes.parked_of(name, ids)  # refuses ids that are not parked, before anything changes
    count = outboxes.retry(name, ids or None, topic=topic, key=key)
    text = f"{say_count(count, 'parked record')} of outbox {name} {is_or_are(count)} retried"
    tell(text, {"outbox": name, "retried": count}, as_json=as_json)


@parked.command()
@click.argument("name", metavar="OUTBOX")
@click.argument("ids", type=int, nargs=-1, metavar="[ID]...")
@click.option("--topic", help="All parked records of this topic.")
@yes_option
@json_option
@database_options(opens=Outboxes)
def discard(
    outboxes: Outboxes, name: str, ids: Sequence[int], topic: str | None, yes: bool, as_json: bool
) -> None:
    """Discard parked records of OUTBOX: delete them without sending."""
    if bool(ids) == (topic is not None):
        raise UsageError("which records? Give ids, or --topic")
    if topic is not None:
        ids = outboxes.parked_of_topic(name, topic)
    rows = outboxes.parked_of(name, ids)
    if not yes:
        if not as_json:
            _print(rows[:_PREVIEW])
        rest = f", {len(rows) - _PREVIEW} of them not shown" if len(rows) > _PREVIEW else ""
        confirm(f"discard {say_count(len(rows), 'parked record')} of outbox {name}{rest}?", yes=yes)
    count = outboxes.discard(name, ids)
    rest = "" if count >= len(rows) else f" of {len(rows)}; the others were retried or discarded meanwhile"
    text = f"parked records of outbox {name} that are discarded: {count}{rest}"
    tell(text, {"outbox": name, "discarded": count}, as_json=as_json)
