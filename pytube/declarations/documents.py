"""The steps until the database follows a document as the file declares it. It asks no server.

The order is what keeps each touch: a table is followed by all columns that the old document *or* the new one
uses before the new one is declared, and by fewer only afterwards. The steps depend on the present state
alone: an interrupted run continues anywhere, and steps that another one has done are not repeated.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NoReturn

from pytube.config.names import TableName
from pytube.config.tubes import Attached
from pytube.declarations.model import Action, Kind, Plan, Step, There, only, planned, widens
from pytube.documents.model import Companion, Document, Link, Tube, companions_of
from pytube.errors import KeysWouldChange, UsageError

_LONGEST = 57
"""Bytes of a tube's name."""


def plan(document: Document, there: There) -> Plan:
    """All that has to be done about a document to make it as it is declared.

    Raises:
        UsageError: the present state can't become it; the message says what to do.
    """
    _refuse(document, there)
    tubes = there.tubes
    found = list(_Steps(document, there.tubes).all())
    where = {link: tube for tube, link, _ in _wanted(document, companions_of(document, tubes), tubes)}
    followed = tuple((where[link], link) for link in document.links)
    details = {
        "tables": [_as_json(tube, link) for tube, link in followed],
        "missing_indexes": list(document.missing_indexes),
    }
    return planned(Kind.DOCUMENT, document, there, found, details, list(_rescues(found, tubes)), followed)


def _as_json(tube: str, link: Link) -> dict[str, Any]:
    return {
        "table": str(link.table),
        "column": only(link.by),
        "by": list(link.by),
        "tube": tube,
        "sections": list(link.sections),
        "columns": list(link.columns),
        "documents": {"mean": link.documents[0], "worst": link.documents[1]},
    }


def _rescues(found: Sequence[Step], tubes: Mapping[str, Tube]) -> Iterator[str]:
    """What the database does where a relation goes (tube_private_rescue_links)."""
    losing = {step.name for step in found if step.loses and step.name in tubes}
    if names := sorted(name for name in losing if tubes[name].companion_of):
        yield (
            f"if changes of removed relations are queued in {', '.join(names)}, apply requests a backfill of "
            "all documents, with or without --backfill"
        )


# --- one step after another -------------------------------------------------------------------------

_Wanted = tuple[str, Link, Attached]
"""A tube, a link, and how that tube is to follow it."""


def _wanted(
    document: Document, companions: Sequence[Companion], tubes: Mapping[str, Tube]
) -> Iterator[_Wanted]:
    """In the order of the document, but that of its relations comes last."""
    for link in document.own:
        yield document.name, link, _attached(link, document.shard, document.shards, tubes.get(document.name))
    places = {link: (one.name, shard) for one in companions for shard, link in one.relations.items()}
    for link in document.relations:
        where, shard = places[link]
        yield where, link, _attached(link, shard, 1, tubes.get(where))


def _attached(link: Link, shard: int, shards: int, tube: Tube | None) -> Attached:
    was = None if tube is None else tube.table(link.table)
    replica = was is not None and was.replica  # an operator's choice stays
    return Attached(
        link.table, link.by, shard, shards, frozenset(link.columns), replica, shard_by=link.shard_by
    )


class _Steps:
    def __init__(self, document: Document, tubes: Mapping[str, Tube]) -> None:
        self._document = document
        self._tubes = tubes
        self._companions = companions_of(document, tubes)
        self._wanted = [(where, one) for where, _, one in _wanted(document, self._companions, tubes)]
        self._ours = [
            one for _, one in sorted(tubes.items()) if document.name in (one.name, one.companion_of)
        ]
        self._now = {(tube.name, one.table): one for tube in self._ours for one in tube.tables}
        """How tables are followed after the steps so far."""

    def _step(self, action: Action, name: str, text: str, **details: Any) -> Step:
        return Step(Kind.DOCUMENT, action, name, text, **details)

    def all(self) -> Iterator[Step]:
        yield from self._tubes_there()
        tube = self._tubes.get(self._document.name)
        if tube is None or tube.document != self._document.digest:
            yield from self._declare()
        for where, one in self._wanted:
            was = self._now.get((where, one.table))
            if was is None or (was.key, was.columns) != (one.key, one.columns):
                yield self._attach(where, one)
        yield from self._removals()

    def _tubes_there(self) -> Iterator[Step]:
        document, tube = self._document, self._tubes.get(self._document.name)
        count = document.partitions
        if tube is None:
            text = f"make tube {document.name}: {document.key_type} keys, partitions {count}"
            yield self._step(Action.MAKE, document.name, text)
        elif tube.partitions != count:
            text = f"give tube {document.name} partitions {count}"
            yield self._step(Action.PARTITIONS, document.name, text)
        for one in self._companions:
            if one.name not in self._tubes:
                text = f"make tube {one.name}, its companion: {one.key_type} links"
                yield self._step(Action.COMPANION, one.name, text, key_type=one.key_type)

    def _declare(self) -> Iterator[Step]:
        """What the new document needs besides what the old one has; then the declaration."""
        switches = []
        for where, one in self._wanted:
            was = self._now.get((where, one.table))
            if was is None:
                yield self._attach(where, one)
            elif was.key != one.key:
                switches.append(one)
                self._now[where, one.table] = one
            elif was.columns and not one.columns <= was.columns:
                yield self._attach(where, replace(one, columns=one.columns | was.columns))
        text = "declare the document" + "".join(
            f"; {one.table} is followed by {', '.join(one.key)} from then on" for one in switches
        )
        root = self._document.root.table
        yield self._step(Action.DECLARE, self._document.name, text, roots=(root,), switches=tuple(switches))

    def _attach(self, where: str, one: Attached) -> Step:
        was = self._now.get((where, one.table))
        self._now[where, one.table] = one
        if was is None:
            action, counting = Action.ATTACH, f"columns that count: {', '.join(sorted(one.columns))}"
            text = f"attach {one.table} to {where} by {', '.join(one.key)}; {counting}"
        else:
            action, text = Action.CHANGE, f"change {one.table} in {where}: {_change(was, one)}"
        roots = (self._document.root.table,) if widens(was, one) else ()
        return self._step(action, where, text, table=one.table, roots=roots, attached=one)

    def _removals(self) -> Iterator[Step]:
        places = {(where, one.table) for where, one in self._wanted}
        for tube in self._ours:
            for one in tube.tables:
                if (tube.name, one.table) not in places:
                    text = f"detach {one.table} from {tube.name}"
                    was = Attached(one.table, one.key)
                    yield self._step(Action.DETACH, tube.name, text, table=one.table, attached=was)
        used = {where for where, _ in self._wanted}
        for tube in self._ours:
            if tube.companion_of is not None and tube.name not in used:
                text = f"drop tube {tube.name} and its queued changes"
                yield self._step(Action.DROP, tube.name, text)


def _change(was: Attached, now: Attached) -> str:
    before = was.columns or now.columns
    parts = [] if was.columns else ["not every UPDATE counts any more"]
    for words, names in (
        ("now counts, too", now.columns - before),
        ("counts no longer", before - now.columns),
    ):
        if names:
            parts.append(f"{', '.join(sorted(names))} {words}")
    return "; ".join(parts)


# --- refusals ---------------------------------------------------------------------------------------


def _refuse(document: Document, there: There) -> None:
    """Refuse existing tubes that can't become the document.

    Raises:
        KeysWouldChange: its documents would get other keys.
        UsageError: any other reason.
    """
    name = document.name
    if name in there.outboxes:
        raise UsageError(f"document.{name}: {name} is an outbox; give the document another name")
    for one in (name, *(companion.name for companion in companions_of(document, there.tubes))):
        if len(one.encode()) > _LONGEST:
            raise UsageError(
                f"document.{name}: its tube {one} would have a name of {len(one.encode())} bytes, and "
                f"{_LONGEST} are the most; give it a shorter one"
            )
    tube = there.tubes.get(name)
    if tube is None:
        return
    if tube.companion_of is not None:
        raise UsageError(
            f"document.{name}: {name} is a tube that belongs to the document {tube.companion_of}; "
            "give the new document another name"
        )
    if tube.predicate is not None:
        raise UsageError(
            f"document.{name}: tube {name} has a predicate ({tube.predicate}), which a document's tube "
            "can't have: say it as `where` in the file, and run: "
            f"pytube tube create {shlex.quote(name)} --predicate ''"
        )
    if tube.key_type is not document.key_type:
        raise KeysWouldChange(
            f"document.{name}: the keys of tube {name} are {tube.key_type}, but the keys of "
            f"{document.root.table} are {document.key_type}; {_start_again(name)}"
        )
    if tube.document is None:
        _refuse_other_tables(document, tube)
    if tube.tables:
        _refuse_other_keys(document, tube)


def _refuse_other_tables(document: Document, tube: Tube) -> None:
    """Of a tube that was created manually."""
    own = {(link.table, link.by) for link in document.own}
    for one in tube.tables:
        if (one.table, one.key) not in own:
            raise UsageError(
                f"document.{tube.name}: tube {tube.name} was created manually, with {one.table} attached by "
                f"{', '.join(one.key)}, which the document does not follow that way; give the document "
                f"another name, or run {_detach(tube.name, one.table)}"
            )


def _refuse_other_keys(document: Document, tube: Tube) -> None:
    name, root = document.name, document.root
    was = tube.table(root.table)
    if was is None or tube.tables[0] is not was:
        _refuse_another_root(document, tube)
    elif was.key != root.by:
        raise KeysWouldChange(
            f"document.{name}: the keys of its documents are {', '.join(was.key)} of {root.table}, and are "
            f"to be {', '.join(root.by)}; {_start_again(name)}. If a column was only renamed, let a worker "
            "run, or run `SELECT tube.tube_sync()`, and apply again"
        )
    elif was.shard_by != root.shard_by:
        as_it_was = "take shard_by out" if was.shard_by is None else f'set shard_by = "{was.shard_by}"'
        raise KeysWouldChange(
            f"document.{name}: shards are computed from {was.shard_by or 'the whole key'}, and would be from "
            f"{root.shard_by or 'the whole key'}, which gives each document another key; {as_it_was}, or "
            f"{_start_again(name)}"
        )
    wanted = Attached(root.table, root.by, document.shard, document.shards)
    for link in document.own:
        one = tube.table(link.table)
        if one is not None and not one.same_shards(wanted):
            raise KeysWouldChange(
                f"document.{name}: {one.table} has {one.range}, and is to have {wanted.range}, which gives "
                f"each document another key; set shards = {one.shards}, or {_start_again(name)}"
            )


def _refuse_another_root(document: Document, tube: Tube) -> NoReturn:
    """Of a tube whose first table is not the root: backfills, sweeps and verify take the first one for it."""
    name, root = document.name, document.root.table
    before = list(takewhile(lambda table: table != root, (one.table for one in tube.tables)))
    names = ", ".join(map(str, before))
    commands = ", ".join(_detach(name, one) for one in before)
    own = {link.table for link in document.own}
    if tube.document in (None, document.digest) and own.issuperset(before):
        where = "before" if len(before) < len(tube.tables) else "without"
        reason = "" if tube.document is None else ", which was detached, or dropped and made again"
        raise UsageError(
            f"document.{name}: tube {name} follows {names} {where} its root table {root}{reason}; the root "
            f"table has to be the first one. Run {commands}, and apply then"
        )
    raise KeysWouldChange(
        f"document.{name}: tube {name} follows {names} without {root} as the first, which is to be its root "
        f"table, so its documents have other keys; {_start_again(name)}. If {root} was its root table "
        f"already, and was dropped and made again, run {commands}, and apply then"
    )


def _detach(name: str, table: TableName) -> str:
    return f"`pytube tube detach {shlex.quote(name)} {shlex.quote(str(table))}`"


def _start_again(name: str) -> str:
    return (
        f"declare it under another name, and fill another index; or drop it with its queue "
        f"(`pytube tube drop {shlex.quote(name)} --force`), empty the index, and apply with --backfill"
    )
