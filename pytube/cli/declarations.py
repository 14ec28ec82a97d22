"""Plans of tubes and outboxes that the file declares, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytube.declarations.apply import Applied
from pytube.declarations.model import DeclaredTube, Kind, Plan, Refused
from pytube.declarations.tubes import shards_of
from pytube.documents.plan import Action, State

STATES = {
    State.NEW: "new",
    State.CHANGED: "changed in the file",
    State.DRIFTED: "not as it was applied",
    State.APPLIED: "applied, nothing to do",
    State.GONE: "no longer in the file",
}
_HEADINGS = ("table", "followed by", "shards", "an UPDATE counts that changes")


def planned(one: Plan | Refused, signs: Sequence[str]) -> Iterator[str]:
    """The steps of a plan, and its result; `signs`: one for each step."""
    if isinstance(one, Refused):
        yield f"{one.kind} {one.name}: can't be applied"
        yield f"  {one.problem}"
        return
    yield f"{one.kind} {one.name}: {STATES[one.state]}"
    for sign, step in zip(signs, one.steps, strict=True):
        yield f"  {sign} {step.text}"
    if isinstance(one.target, DeclaredTube) and one.target.tables:
        yield ""
        yield from (f"  {line}" for line in aligned([_HEADINGS, *_tree(one.target)]))
    if one.notes or one.wants_backfill:
        yield ""
    for note in one.notes:
        yield f"  ! {note}"
    if one.missed_changes:
        yield "  ! changes were missed where it was not followed: pytube apply has workers send all documents"
    elif one.wants_backfill:
        yield (
            "  ! documents at the sink stay as they are until a row changes: pytube apply --backfill has "
            "workers send all of them"
        )


def result(one: Plan, applied: Applied, *, backfill: bool) -> str:
    """The result of one plan."""
    if one.target is None:
        dropped = any(step.action is Action.DROP for step in applied.steps)
        return f"{one.name}: dropped" if dropped else f"{one.name}: no longer declared"
    text = f"{one.name}: applied" if applied.steps else f"{one.name}: nothing to do"
    if one.kind is Kind.OUTBOX:
        return text
    start = f"pytube backfill start {one.name}"
    if applied.backfills:
        why = ", as changes were missed" if one.missed_changes else ""
        return f"{text}; workers send all documents{why}; see pytube backfill status {one.name}"
    if backfill:
        return f"{text}; no table is new, so no backfill was asked for; to have one: {start}"
    if one.wants_backfill:
        return f"{text}; documents at the sink stay as they are until a row changes; to resend all: {start}"
    return text


def _tree(tube: DeclaredTube) -> Iterator[tuple[str, ...]]:
    """Each root table, with its related tables below."""
    for root in tube.tables:
        if not root.root:
            continue
        related = [one for one in tube.tables if not one.root and one.same_shards(root)]
        for one in (root, *related):
            branch = "" if one is root else "└─ " if one is related[-1] else "├─ "
            counting = ", ".join(sorted(one.columns)) or "anything"
            shards = shards_of(one).partition(" ")[2] if one is root else ""
            yield f"{branch}{one.table}", ", ".join(one.key), shards, counting


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, their columns below each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
