"""Obstacles to applying a document: existing tubes have other keys, or serve another purpose.

It asks no server.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import takewhile
from typing import NoReturn

from pytube.documents.companions import TubeState, companions_of
from pytube.documents.model import Document
from pytube.errors import KeysWouldChange, UsageError

_LONGEST = 57
"""Bytes of a tube's name."""


def refuse(document: Document, tubes: Mapping[str, TubeState], predicates: Mapping[str, str]) -> None:
    """Refuse existing tubes that can't become the document.

    Raises:
        KeysWouldChange: its documents would get other keys.
        UsageError: any other reason.
    """
    name = document.name
    for one in (name, *(companion.name for companion in companions_of(document, tubes))):
        if len(one.encode()) > _LONGEST:
            raise UsageError(
                f"document.{name}: its tube {one} would have a name of {len(one.encode())} bytes, and "
                f"{_LONGEST} are the most; give it a shorter one"
            )
    tube = tubes.get(name)
    if tube is None:
        return
    if tube.companion_of is not None:
        raise UsageError(
            f"document.{name}: {name} is a tube that belongs to the document {tube.companion_of}; "
            "give the new document another name"
        )
    if name in predicates:
        raise UsageError(
            f"document.{name}: tube {name} has a predicate ({predicates[name]}), which a document's tube "
            "can't have: say it as `where` in the file, and run: "
            f"pytube tube create {shlex.quote(name)} --predicate ''"
        )
    if tube.key_type is not document.key_type:
        raise KeysWouldChange(
            f"document.{name}: the keys of tube {name} are {tube.key_type}, but the keys of "
            f"{document.root.table} are {document.key_type}; {_start_again(name)}"
        )
    if tube.declared is None:
        _refuse_other_tables(document, tube)
    _refuse_other_keys(document, tube)


def _refuse_other_tables(document: Document, tube: TubeState) -> None:
    """Of a tube that was created manually."""
    own = {(link.table, link.by) for link in document.own}
    for one in tube.tables:
        if (one.table, one.by) not in own:
            words = f"pytube tube detach {shlex.quote(tube.name)} {shlex.quote(str(one.table))}"
            raise UsageError(
                f"document.{tube.name}: tube {tube.name} was created manually, with {one.table} attached by "
                f"{', '.join(one.by)}, which the document does not follow that way; give the document "
                f"another name, or run `{words}`"
            )


def _refuse_other_keys(document: Document, tube: TubeState) -> None:
    if not tube.tables:
        return
    name, root = document.name, document.root
    there = {one.table: one for one in tube.tables}
    was = there.get(root.table)
    if was is None or tube.tables[0].table != root.table:
        _refuse_another_root(document, tube)
    elif was.by != root.by:
        raise KeysWouldChange(
            f"document.{name}: the keys of its documents are {', '.join(was.by)} of {root.table}, and are to "
            f"be {', '.join(root.by)}; {_start_again(name)}. If a column was only renamed, let a worker run, "
            "or run `SELECT tube.tube_sync()`, and apply again"
        )
    elif was.shard_by != root.shard_by:
        as_it_was = "take shard_by out" if was.shard_by is None else f'set shard_by = "{was.shard_by}"'
        raise KeysWouldChange(
            f"document.{name}: shards are computed from {was.shard_by or 'the whole key'}, and would be from "
            f"{root.shard_by or 'the whole key'}, which gives each document another key; {as_it_was}, or "
            f"{_start_again(name)}"
        )
    for link in document.own:
        one = there.get(link.table)
        if one is not None and (one.shard, one.shards) != (0, document.shards):
            raise KeysWouldChange(
                f"document.{name}: {one.table} has {_shards(one.shard, one.shards)}, and is to have "
                f"{_shards(0, document.shards)}, which gives each document another key; set "
                f"shards = {one.shards}, or {_start_again(name)}"
            )


def _refuse_another_root(document: Document, tube: TubeState) -> NoReturn:
    """Of a tube whose first table is not the root: backfills, sweeps and verify take the first one for it."""
    name, root = document.name, document.root.table
    before = list(takewhile(lambda table: table != root, (one.table for one in tube.tables)))
    names = ", ".join(map(str, before))
    commands = ", ".join(
        f"`pytube tube detach {shlex.quote(name)} {shlex.quote(str(one))}`" for one in before
    )
    own = {link.table for link in document.own}
    if tube.declared in (None, document.digest) and own.issuperset(before):
        where = "before" if len(before) < len(tube.tables) else "without"
        reason = "" if tube.declared is None else ", which was detached, or dropped and made again"
        raise UsageError(
            f"document.{name}: tube {name} follows {names} {where} its root table {root}{reason}; the root "
            f"table has to be the first one. Run {commands}, and apply then"
        )
    raise KeysWouldChange(
        f"document.{name}: tube {name} follows {names} without {root} as the first, which is to be its root "
        f"table, so its documents have other keys; {_start_again(name)}. If {root} was its root table "
        f"already, and was dropped and made again, run {commands}, and apply then"
    )


def _shards(first: int, count: int) -> str:
    return f"shard {first}" if count == 1 else f"shards {first} to {first + count - 1}"


def _start_again(name: str) -> str:
    return (
        f"declare it under another name, and fill another index; or drop it with its queue "
        f"(`pytube tube drop {shlex.quote(name)} --force`), empty the index, and apply with --backfill"
    )
