"""The statements of each step: `pytube apply` sends them, and `pytube apply --print` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString

from pytube.config.names import TableName
from pytube.config.tubes import Attached
from pytube.declarations.model import (
    UNFINISHED,
    Action,
    DeclaredOutbox,
    DeclaredTube,
    Kind,
    Plan,
    Step,
    Target,
    There,
)
from pytube.documents.model import Document
from pytube.outbox import queries as outbox_queries
from pytube.tubes import queries

_LOCK: Final = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%(text)s, 0))"
_DECLARE: Final = "SELECT {s}.tube_document_declare(%(name)s, %(digest)s)"
_APPLIED: Final = "SELECT {s}.tube_applied_set(%(name)s, %(digest)s, %(made)s)"
_ATTACHED: Final = "SELECT {s}.tube_applied_attached(%(name)s, %(table)s)"
_COMPANION: Final = (
    "SELECT {s}.tube_companion_ensure(%(tube)s, %(companion)s, %(key_type)s::pg_catalog.regtype)"
)
_DROP: Final = "SELECT {s}.tube_ensure_absent(%(name)s)"
_BACKFILL: Final = (
    "SELECT {s}.tube_backfill_create(%(tube)s, %(table)s, NULL, supersede => true, by_worker => true)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement; `{s}` stands for pytube's schema."""

    query: LiteralString
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """A `TableName` stands for the table."""


SYNC: Final = Statement("SELECT {s}.tube_sync()")
"""Before the steps of a tube or a document: or names of before a renaming look like other columns."""


def lock(plan: Plan, schema: str) -> Statement:
    """Begins each transaction: two at once do the steps together."""
    return Statement(_LOCK, {"text": f"{schema} {plan.kind} {plan.name}"})


def of_step(step: Step, plan: Plan, there: There) -> Iterator[Statement]:
    """The statements of a step, all in one transaction; of another number of partitions: see `repartition`.

    `there`: before the step; or before the plan, if only steps of it were taken since.
    """
    match step.action:
        case Action.MAKE | Action.PREDICATE | Action.WAKE:
            is_outbox = step.kind is Kind.OUTBOX
            yield _make_outbox(plan, there) if is_outbox else _make_tube(step, plan, there)
            if step.action is Action.MAKE:
                yield _note(plan, UNFINISHED, made=True)
        case Action.COMPANION:
            key_type = str(step.key_type)
            yield Statement(_COMPANION, {"tube": plan.name, "companion": step.name, "key_type": key_type})
        case Action.ATTACH | Action.CHANGE:
            assert step.attached is not None
            yield _attach(step.name, step.attached)
            if step.kind is Kind.TUBE and step.action is Action.ATTACH:
                yield from _note_attached(plan, step.attached.table, there)
        case Action.DECLARE:
            yield from (_attach(step.name, switch) for switch in step.switches)
            yield _note(plan, None if plan.target is None else plan.target.digest)
        case Action.DETACH | Action.RELEASE | Action.DROP:
            yield from _lose(step, plan)


def _lose(step: Step, plan: Plan) -> Iterator[Statement]:
    match step.action:
        case Action.DETACH:
            yield Statement(queries.DETACH, {"tube": step.name, "table": step.table})
        case Action.RELEASE:
            # First: for pods in a companion of a document, a backfill would be asked for.
            yield _note(plan, None)
            for companion in step.companions:
                yield Statement(_DROP, {"name": companion})
        case Action.DROP if step.kind is Kind.OUTBOX:
            yield Statement(outbox_queries.DROP, {"outbox": step.name, "force": False})
        case Action.DROP:
            yield Statement(_DROP, {"name": step.name})


def _make_tube(step: Step, plan: Plan, there: There) -> Statement:
    target = plan.target
    assert isinstance(target, Document | DeclaredTube)
    arguments = {
        "tube": plan.name,
        "partitions": partitions(plan.name, target, there),
        "predicate": (isinstance(target, DeclaredTube) and target.predicate) or "",
        "key_type": target.key_type.value if step.action is Action.MAKE else None,
    }
    return Statement(queries.ENSURE_EXISTS, arguments)


def _make_outbox(plan: Plan, there: There) -> Statement:
    outbox = plan.target
    assert isinstance(outbox, DeclaredOutbox)
    common = {"outbox": outbox.name, "partitions": partitions(outbox.name, outbox, there)}
    if outbox.table is None:
        return Statement(outbox_queries.ENSURE_EXISTS, {**common, "value_type": outbox.value_type})
    return Statement(outbox_queries.ADOPT, {**common, "table": outbox.table, "wake": outbox.wakes})


def partitions(name: str, target: Target, there: There) -> int:
    """How many it has: a change of the number is the first step."""
    now = (there.outboxes if isinstance(target, DeclaredOutbox) else there.tubes).get(name)
    return target.partitions or (1 if now is None else now.partitions)


def repartition(plan: Plan) -> Statement:
    """Gives it its number of partitions, between building the index for it and dropping the one of before."""
    target = plan.target
    if isinstance(target, DeclaredOutbox):
        return _make_outbox(plan, There())
    assert target is not None
    arguments = {"tube": plan.name, "partitions": target.partitions, "predicate": None, "key_type": None}
    return Statement(queries.ENSURE_EXISTS, arguments)


def _attach(tube: str, one: Attached) -> Statement:
    arguments = {
        "tube": tube,
        "table": one.table,
        "shard": one.shard,
        "shards": one.shards,
        "id_col": one.key[0] if len(one.key) == 1 else None,
        "columns": sorted(one.columns),
        "replica": one.replica,
        "key_cols": list(one.key) if len(one.key) > 1 else None,
        "shard_by": one.shard_by,
    }
    return Statement(queries.ATTACH, arguments)


def _note_attached(plan: Plan, table: TableName, there: There) -> Iterator[Statement]:
    """From here on the table is the file's, and so is a tube that was created manually."""
    yield Statement(_ATTACHED, {"name": plan.name, "table": table})
    if plan.name in there.tubes and there.applied(Kind.TUBE).get(plan.name) is None:
        yield _note(plan, UNFINISHED)


def _note(plan: Plan, digest: str | None, *, made: bool = False) -> Statement:
    if plan.kind is Kind.DOCUMENT:
        return Statement(_DECLARE, {"name": plan.name, "digest": digest})
    return Statement(_APPLIED, {"name": plan.name, "digest": digest, "made": made})


# --- backfills -------------------------------------------------------------------------------------


def settled_roots(step: Step, later: Sequence[Step]) -> Sequence[TableName]:
    """The root tables whose documents are others, or were missed, and wait for no later step.

    A backfill has to read after the last table is followed that its documents are made of.
    """
    return [root for root in step.roots if not any(root in one.roots for one in later)]


def roots(target: Target | None) -> Sequence[TableName]:
    """The root tables of a document or a tube."""
    if isinstance(target, Document):
        return [target.root.table]
    if isinstance(target, DeclaredTube):
        return [one.table for one in target.tables if one.root]
    return []


def backfill(tube: str, root: TableName) -> Statement:
    """Asks workers for a backfill of a root table; a running one began before this. Gives its number."""
    return Statement(_BACKFILL, {"tube": tube, "table": root})
