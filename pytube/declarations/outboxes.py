"""The steps until an outbox is as the file declares it. It asks no server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytube.declarations.model import DeclaredOutbox, Kind, Plan, Step, state_of
from pytube.declarations.state import Outbox
from pytube.documents.plan import UNFINISHED, Action, State


def plan(outbox: DeclaredOutbox, now: Outbox | None) -> Plan:
    """All that has to be done about an outbox which `refuse_outbox` has nothing against."""
    steps = steps_left(outbox, now)
    applied = None if now is None else now.applied
    details = {
        "partitions": outbox.partitions or (1 if now is None else now.partitions),
        "value_type": outbox.value_type if now is None else now.value_type,
        "table": None if outbox.table is None else str(outbox.table),
        "wakes": outbox.wakes if outbox.table is not None else True,
    }
    notes = []
    if now is not None and now.applied is None:
        notes.append(f"the file takes over outbox {now.name}, created manually; --prune never drops it")
    elif applied == UNFINISHED:
        notes.append("an earlier apply was interrupted; this one continues it")
    state = state_of(outbox.digest, applied, steps)
    return Plan(Kind.OUTBOX, outbox.name, state, tuple(steps), tuple(notes), details, outbox, applied)


def farewell(now: Outbox, *, stays: bool) -> Plan:
    """What --prune does about an outbox that is declared no more; `stays`: its section is there."""
    if stays or not now.made:
        action, text = Action.RELEASE, f"keep outbox {now.name}, no longer managed by the file"
        reason = (
            f"[outbox.{now.name}] no longer declares anything in the database"
            if stays
            else "it was created manually"
        )
        note = f"{reason}: --prune keeps outbox {now.name} as it is, no longer managed by the file"
    else:
        action = Action.DROP
        left = f"; its table {now.table} stays" if now.adopted else ""
        text = f"drop outbox {now.name}{left}"
        note = "the file no longer declares it; --prune drops it" + (
            "" if now.adopted else ", once no records are in it"
        )
    step = Step(Kind.OUTBOX, action, now.name, text)
    return Plan(Kind.OUTBOX, now.name, State.GONE, (step,), (note,), {}, None, now.applied)


def steps_left(outbox: DeclaredOutbox, now: Outbox | None) -> Sequence[Step]:
    """All that is left to do."""
    return list(_steps(outbox, now))


def _steps(outbox: DeclaredOutbox, now: Outbox | None) -> Iterator[Step]:
    name = outbox.name
    waking = "wake workers" if outbox.wakes else "do not wake workers, which poll"
    if now is None:
        count = outbox.partitions or 1
        if outbox.table is None:
            text = f"make outbox {name}: values {outbox.value_type or 'text'}, partitions {count}"
        else:
            text = f"adopt {outbox.table} as outbox {name}: partitions {count}; writers {waking}"
        yield Step(Kind.OUTBOX, Action.MAKE, name, text, outbox.table)
    else:
        if outbox.partitions not in (None, now.partitions):
            text = f"give outbox {name} partitions {outbox.partitions}, not {now.partitions}"
            yield Step(Kind.OUTBOX, Action.PARTITIONS, name, text)
        if now.adopted and now.wakes != outbox.wakes:
            yield Step(Kind.OUTBOX, Action.WAKE, name, f"have writers of {now.table} {waking}", now.table)
    if now is None or now.applied != outbox.digest:
        yield Step(Kind.OUTBOX, Action.DECLARE, name, "note that the file declares it so")
