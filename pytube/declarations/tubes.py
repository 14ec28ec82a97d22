"""The steps until a tube is as the file declares it. It asks no server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

from pytube.config import TubeConfig
from pytube.config.attachments import attachments
from pytube.declarations.model import DeclaredTube, Kind, Plan, Step, state_of
from pytube.declarations.state import Attached, Tube
from pytube.documents.plan import UNFINISHED, Action, State
from pytube.tubes.attachments import Manner, changes


def digest_of(section: TubeConfig) -> str:
    """Changes whenever the file declares something else; omitted keys count as written."""
    said = [section.partitions, section.key_type, (section.predicate or "").strip()]
    tables = [
        [one.schema, one.table, one.key, one.shard, one.shards, one.columns, one.replica, one.shard_by]
        for one in attachments(section.tables)
    ]
    return hashlib.sha256(json.dumps([said, tables]).encode()).hexdigest()


def manner(one: Attached) -> Manner:
    """As `pytube tube attach` has it."""
    return Manner(one.shard, one.shards, one.column, one.columns, one.replica, one.key_cols, one.shard_by)


def plan(tube: DeclaredTube, now: Tube | None) -> Plan:
    """All that has to be done about a tube which `refuse` has nothing against."""
    steps = steps_left(tube, now)
    applied = None if now is None else now.applied
    details = {
        "partitions": tube.partitions or (1 if now is None else now.partitions),
        "key_type": tube.key_type.value,
        "predicate": tube.predicate,
        "tables": [
            {
                "table": str(one.table),
                "column": one.column,
                "key": list(one.key),
                "shard_by": one.shard_by,
                "shard": one.shard,
                "shards": one.shards,
                "columns": sorted(one.columns),
                "replica": one.replica,
                "root": one.root,
            }
            for one in tube.tables
        ],
    }
    state = state_of(tube.digest, applied, steps)
    return Plan(Kind.TUBE, tube.name, state, tuple(steps), tuple(_notes(tube, now)), details, tube, applied)


def farewell(now: Tube, *, stays: bool) -> Plan:
    """What --prune does about a tube that is declared no more; `stays`: its section is there."""
    by_hand = [str(one.table) for one in now.tables if not one.made]
    if stays or not now.made or by_hand:
        action, text = Action.RELEASE, f"keep tube {now.name}, no longer managed by the file"
        reason = (
            f"[tube.{now.name}] stays in the file, but no longer declares anything in the database"
            if stays
            else "it was created manually"
            if not now.made
            else f"{', '.join(by_hand)} was attached to it manually"
        )
        note = f"{reason}: --prune keeps tube {now.name} as it is, no longer managed by the file"
    else:
        action, text = Action.DROP, f"drop tube {now.name} and its queued changes"
        note = "the file no longer declares it; --prune drops it. Documents at the sink stay there"
    step = Step(Kind.TUBE, action, now.name, text)
    return Plan(Kind.TUBE, now.name, State.GONE, (step,), (note,), {}, None, now.applied)


def _notes(tube: DeclaredTube, now: Tube | None) -> Iterator[str]:
    if now is None:
        return
    if now.applied is None:
        yield f"the file takes over tube {tube.name}, created manually; --prune never drops it"
    elif now.applied == UNFINISHED:
        yield "an earlier apply was interrupted; this one continues it"
    others = [str(one.table) for one in now.tables if not one.made and tube.table(one.table) is None]
    if others and tube.tables:
        yield f"attached manually, so left alone: {', '.join(others)}"


# --- one step after another -------------------------------------------------------------------------


def steps_left(tube: DeclaredTube, now: Tube | None) -> Sequence[Step]:
    """All steps that are left: additions come first, removals last."""
    steps = list(_made(tube, now))
    if now is None or now.applied != tube.digest:
        steps.append(Step(Kind.TUBE, Action.DECLARE, tube.name, "note that the file declares it so"))
    if now is not None:
        # Related tables before their root.
        for one in reversed(now.tables):
            if one.made and tube.table(one.table) is None:
                text = f"detach {one.table} from {tube.name}"
                steps.append(Step(Kind.TUBE, Action.DETACH, tube.name, text, one.table))
    return steps


def _made(tube: DeclaredTube, now: Tube | None) -> Iterator[Step]:
    name = tube.name
    if now is None:
        text = f"make tube {name}: {tube.key_type} keys, partitions {tube.partitions or 1}"
        text += f", predicate {tube.predicate}" if tube.predicate else ""
        yield Step(Kind.TUBE, Action.MAKE, name, text)
    else:
        if tube.partitions not in (None, now.partitions):
            text = f"give tube {name} partitions {tube.partitions}, not {now.partitions}"
            yield Step(Kind.TUBE, Action.PARTITIONS, name, text)
        if tube.predicate != now.predicate:
            text = f"give tube {name} the predicate {tube.predicate or 'none'}, not {now.predicate or 'none'}"
            roots = tuple(one.table for one in now.tables if one.root)
            yield Step(Kind.TUBE, Action.PREDICATE, name, text, roots=roots)
    there = {} if now is None else {one.table: one for one in now.tables}
    for one in tube.tables:
        was = there.get(one.table)
        if was is None:
            text = f"attach {one.table} to {name} by {', '.join(one.key)}{_how(one)}"
            yield Step(Kind.TUBE, Action.ATTACH, name, text, one.table, (tube.root_of(one),))
        elif manner(was) != manner(one):
            text = f"change {one.table} in {name}: {', '.join(changes(manner(was), manner(one)))}"
            roots = (tube.root_of(one),) if _widens(was, one) else ()
            yield Step(Kind.TUBE, Action.CHANGE, name, text, one.table, roots)


def _how(one: Attached) -> str:
    counting = (
        f"columns that count: {', '.join(sorted(one.columns))}" if one.columns else "each UPDATE counts"
    )
    shards = "" if (one.shard, one.shards, one.shard_by) == (0, 1, None) else f"; {shards_of(one)}"
    return f"; {counting}{shards}{'; what replication writes, too' if one.replica else ''}"


def shards_of(one: Attached) -> str:
    """For people."""
    found = f"shard {one.shard}" if one.shards == 1 else f"shards {one.shard} to {one.end - 1}"
    return found if one.shard_by is None else f"{found} by {one.shard_by}"


def _widens(was: Attached, now: Attached) -> bool:
    """Whether changes count from then on that did not before."""
    return (
        was.key != now.key
        or (now.replica and not was.replica)
        or (bool(was.columns) and (not now.columns or not now.columns <= was.columns))
    )
