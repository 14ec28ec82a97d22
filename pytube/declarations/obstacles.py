"""What keeps a tube or an outbox from being made as the file declares it. It asks no server."""

from __future__ import annotations

import shlex

from pytube.declarations.model import DeclaredOutbox, DeclaredTube
from pytube.declarations.state import Attached, Outbox, Tube
from pytube.declarations.tubes import manner, shards_of
from pytube.errors import InvalidShard, KeysWouldChange, RelatedTables, UsageError
from pytube.tubes.attachments import changes


def refuse_tube(tube: DeclaredTube, now: Tube | None) -> None:
    """Refuse a present tube that can't become the declared one.

    Raises:
        KeysWouldChange: its documents would get other keys.
        UsageError: any other reason.
    """
    if now is None:
        return
    _refuse_another_kind(tube, now)
    if now.key_type is not tube.key_type:
        raise KeysWouldChange(
            f"tube.{tube.name}.key_type: the keys of tube {tube.name} are {now.key_type}, for good; declare "
            f"a tube of another name, or drop it with its queue (`pytube tube drop {shlex.quote(tube.name)} "
            "--force`), empty its sink, and apply with --backfill"
        )
    if now.applied is None and tube.predicate != now.predicate:
        said = (
            f'set predicate = "{now.predicate}" in the file' if now.predicate else "remove it from the file"
        )
        raise UsageError(
            f"tube.{tube.name}: tube {tube.name} was created manually, with the predicate "
            f"{now.predicate or 'none'}; {said}, or run `pytube tube create {shlex.quote(tube.name)} "
            f"--predicate {shlex.quote(tube.predicate or '')}`"
        )
    for one in tube.tables:
        was = next((each for each in now.tables if each.table == one.table), None)
        if was is not None:
            _refuse_change(tube, one, was, by_hand=now.applied is None or not was.made)
        _refuse_shards(tube, one, now)
    _refuse_heirs(tube, now)


def _refuse_another_kind(tube: DeclaredTube, now: Tube) -> None:
    if now.companion_of is not None:
        raise UsageError(
            f"tube.{tube.name}: {tube.name} is a tube that belongs to the document {now.companion_of}; give "
            "the new tube another name"
        )
    if now.document is not None:
        raise UsageError(
            f"tube.{tube.name}: tube {tube.name} is that of a document which the file does not declare any "
            "more; leave out for now what the section declares of the database, run `pytube apply --prune`, "
            "and put it back"
        )


def _refuse_shards(tube: DeclaredTube, one: Attached, now: Tube) -> None:
    """Shards that are another table's by now."""
    where = f'tube.{tube.name}.tables."{one.table}"'
    for other in now.tables:
        if other.table != one.table and one.overlaps(other) and not one.same_shards(other):
            raise InvalidShard(
                f"{where}: its {shards_of(one)} would overlap {shards_of(other)} of {other.table} in tube "
                f"{tube.name}; give it the same shards if it holds ids of {other.table}, or else separate "
                "shards"
            )
    root = now.root_of(one)
    if root is not None and root.table != tube.root_of(one):
        raise KeysWouldChange(
            f"{where}: {root.table} has {shards_of(one)} of tube {tube.name}, and its ids name the "
            f'documents; put [tube.{tube.name}.tables."{root.table}"] before it, and name the column that '
            f"holds ids of {root.table} in key; or give it a separate shard"
        )


def _refuse_change(tube: DeclaredTube, one: Attached, was: Attached, *, by_hand: bool) -> None:
    changed = changes(manner(was), manner(one))
    if not changed:
        return
    where = f'tube.{tube.name}.tables."{one.table}"'
    words = f"pytube tube attach {shlex.quote(tube.name)} {shlex.quote(str(one.table))}"
    moves = not was.same_shards(one) or was.shard_place != one.shard_place
    if moves or (was.root and was.key != one.key):
        raise KeysWouldChange(
            f"{where}: each row of {one.table} would have a document under another key "
            f"({', '.join(changed)}); put it back in the file; or run `{words}{_options(one, was)} --force`, "
            f"and then `pytube backfill start {shlex.quote(tube.name)} --table "
            f"{shlex.quote(str(one.table))}`"
        )
    if by_hand:
        raise UsageError(
            f"{where}: {one.table} was attached to tube {tube.name} manually, with other options "
            f"({', '.join(changed)}); change the file to match, or run `{words}{_options(one, was)}`"
        )


def _options(one: Attached, was: Attached) -> str:
    """Of `pytube tube attach`, that make of an attachment what the file declares."""
    words = ""
    if one.shard != was.shard:
        words += f" --shard {one.shard}"
    if one.shards != was.shards:
        words += f" --shards {one.shards}"
    if one.key != was.key:
        words += f" {manner(one).option}"
    if one.shard_by != (was.shard_by if was.shard_by in one.key_cols else None):
        words += f" --shard-by {shlex.quote(one.shard_by or '')}"
    if one.columns != was.columns:
        words += f" --columns {shlex.quote(','.join(sorted(one.columns)))}"
    if one.replica != was.replica:
        words += " --replica" if one.replica else " --no-replica"
    return words


def _refuse_heirs(tube: DeclaredTube, now: Tube) -> None:
    """A root table that goes while tables that are related to it stay."""
    for root in now.tables:
        if not (root.root and root.made and tube.table(root.table) is None):
            continue
        stay = [
            str(one.table)
            for one in now.tables
            if one is not root and one.same_shards(root) and (not one.made or tube.table(one.table))
        ]
        if stay:
            commands = ", ".join(
                f"`pytube tube detach {shlex.quote(tube.name)} {shlex.quote(one)}`" for one in stay
            )
            raise RelatedTables(
                f"tube.{tube.name}: the file no longer names {root.table}, so the related table {stay[0]} "
                f"would become the root table, whose rows are the documents; put {root.table} back, or "
                f"remove {', '.join(stay)} from the file, too (if attached manually: {commands})"
            )


def refuse_outbox(outbox: DeclaredOutbox, now: Outbox | None) -> None:
    """Refuse a present outbox that can't become the declared one.

    Raises:
        UsageError: the reason.
    """
    if now is None:
        return
    name = outbox.name
    command = f"pytube outbox drop {shlex.quote(name)}"
    again = f"declare an outbox of another name, or drop this one first (`{command}`)"
    if outbox.value_type not in (None, now.value_type):
        raise UsageError(
            f"outbox.{name}.value_type: the values of outbox {name} are {now.value_type}, for good; {again}"
        )
    if now.adopted != (outbox.table is not None) or (now.adopted and now.table != outbox.table):
        has = f"the table {now.table or 'that was dropped'}" if now.adopted else "its own table"
        wanted = "its own table" if outbox.table is None else f"the table {outbox.table}"
        raise UsageError(f"outbox.{name}.adopt: outbox {name} uses {has}, not {wanted}; {again}")
    if now.applied is None and now.adopted and now.wakes != outbox.wakes:
        raise UsageError(
            f"outbox.{name}.wake: {now.table} was adopted manually, with wake = "
            f"{'true' if now.wakes else 'false'}; set the same in the file, or run `pytube outbox adopt "
            f"{shlex.quote(name)} {shlex.quote(str(now.table))} {'--wake' if outbox.wakes else '--no-wake'}`"
        )
