"""The steps until the database follows a document as the file declares it. It asks no server.

The order is what keeps each touch: a table is followed by all columns that the old document *or* the new one
uses before the new one is declared, and by fewer only afterwards. `next_step` needs only the present state:
an interrupted run continues anywhere, and steps that another one has done are not repeated.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytube.documents.companions import Followed, TubeState, companions_of
from pytube.documents.model import Document, Link, TableName
from pytube.documents.obstacles import refuse
from pytube.model import KeyType

UNFINISHED = "unfinished"
"""In place of the digest while a new document has not been applied to its end: no worker serves it yet."""

_MOST_STEPS = 10_000


class Action(enum.StrEnum):
    """What a step does."""

    MAKE = "make"
    PARTITIONS = "partitions"
    PREDICATE = "predicate"
    COMPANION = "companion"
    ATTACH = "attach"
    CHANGE = "change"
    WAKE = "wake"
    DECLARE = "declare"
    DETACH = "detach"
    RELEASE = "release"
    DROP = "drop"


_LOSES = (Action.DETACH, Action.RELEASE, Action.DROP)


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of `apply`."""

    action: Action
    tube: str
    key_type: KeyType | None = None
    partitions: int | None = None
    table: TableName | None = None
    column: str | None = None
    shard: int = 0
    shards: int = 1
    columns: tuple[str, ...] = ()
    """An UPDATE that changes none of these makes no touch."""
    key_cols: tuple[str, ...] = ()
    """The columns of the key, if it has several; `column` is the first one then."""
    shard_by: str | None = None
    was: tuple[str, ...] | None = None
    """Of a change: the columns before; None: each UPDATE counted."""
    was_by: tuple[str, ...] | None = None
    """Of a change: the columns by which the table was followed."""
    digest: str | None = None
    switches: tuple[Step, ...] = ()
    """Of a declaration: tables that are followed by another column from then on, in the same transaction."""
    companions: tuple[str, ...] = ()
    """Of a release: the tubes that are dropped with it."""

    @property
    def loses(self) -> bool:
        """Whether something is no longer followed, or is dropped: people are asked before."""
        return self.action in _LOSES

    @property
    def regains(self) -> bool:
        """Whether it follows a column that was not followed before."""
        if self.action is Action.CHANGE:
            widens = self.was is not None and not set(self.columns) <= set(self.was)
            return widens or self.by != self.was_by
        return self.action is Action.ATTACH

    @property
    def by(self) -> tuple[str, ...]:
        """The columns by which the table is followed."""
        return self.key_cols or (() if self.column is None else (self.column,))

    @property
    def text(self) -> str:
        """For people."""
        counting = f"columns that count: {', '.join(self.columns)}"
        switched = "".join(
            f"; {one.table} is followed by {', '.join(one.by)} from then on" for one in self.switches
        )
        dropped = "".join(f", drop {one}" for one in self.companions)
        return {
            Action.MAKE: f"make tube {self.tube}: {self.key_type} keys, partitions {self.partitions}",
            Action.PARTITIONS: f"give tube {self.tube} partitions {self.partitions}",
            Action.COMPANION: f"make tube {self.tube}, its companion: {self.key_type} links",
            Action.ATTACH: f"attach {self.table} to {self.tube} by {', '.join(self.by)}; {counting}",
            Action.CHANGE: f"change {self.table} in {self.tube}: {self._change()}",
            Action.DECLARE: f"declare the document{switched}",
            Action.DETACH: f"detach {self.table} from {self.tube}",
            Action.RELEASE: f"keep {self.tube} as a tube without a document{dropped}",
            Action.DROP: f"drop tube {self.tube} and its queued changes",
        }[self.action]

    def _change(self) -> str:
        before = set(self.columns) if self.was is None else set(self.was)
        parts = [] if self.was is not None else ["not every UPDATE counts any more"]
        for words, names in (
            ("now counts, too", set(self.columns) - before),
            ("counts no longer", before - set(self.columns)),
        ):
            if names:
                parts.append(f"{', '.join(sorted(names))} {words}")
        return "; ".join(parts)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "action": self.action.value,
            "tube": self.tube,
            "table": None if self.table is None else str(self.table),
            "column": None if self.key_cols else self.column,
            "by": list(self.by),
            "columns": list(self.columns),
            "loses": self.loses,
            "text": self.text,
        }


class State(enum.StrEnum):
    """The state of a document against the database."""

    NEW = "new"
    CHANGED = "changed"
    """Its documents come out otherwise, or other tables are followed."""
    DRIFTED = "drifted"
    """It was applied as it is; its tables were changed since, or it was interrupted."""
    APPLIED = "applied"
    GONE = "gone"
    """The file does not declare it any more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` would do about one document."""

    name: str
    document: Document | None
    """None: the file does not declare it any more."""
    state: State
    steps: tuple[Step, ...]
    followed: tuple[tuple[str, Link], ...]
    """The tube that follows each of its tables, the root table first."""
    notes: tuple[str, ...]
    declared: str | None = None
    """The digest applied last."""

    @property
    def wants_backfill(self) -> bool:
        """Whether documents at the sink are not as they are to be from now on."""
        return self.state in (State.NEW, State.CHANGED) or self.missed_changes

    @property
    def missed_changes(self) -> bool:
        """Whether declared links were not followed: `apply` then asks for a backfill automatically."""
        return self.state is State.DRIFTED and any(step.regains for step in self.steps)

    @property
    def losses(self) -> Sequence[Step]:
        """What people are asked about."""
        return [step for step in self.steps if step.loses]

    @property
    def missing_indexes(self) -> tuple[str, ...]:
        """The statements that make them."""
        return () if self.document is None else self.document.missing_indexes

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "document": self.name,
            "state": self.state.value,
            "problem": None,
            "steps": [step.as_json() for step in self.steps],
            "tables": [
                {
                    "table": str(link.table),
                    "column": None if link.key_cols else link.column,
                    "by": list(link.by),
                    "tube": tube,
                    "sections": list(link.sections),
                    "columns": list(link.columns),
                    "documents": {"mean": link.documents[0], "worst": link.documents[1]},
                }
                for tube, link in self.followed
            ],
            "missing_indexes": list(self.missing_indexes),
            "notes": list(self.notes),
            "backfill": self.wants_backfill,
        }


def plan(
    document: Document | None,
    name: str,
    tubes: Mapping[str, TubeState],
    *,
    predicates: Mapping[str, str] | None = None,
    stays: bool = False,
) -> Plan:
    """All steps for one document.

    Args:
        document: as the file declares it; None: it does no longer.
        name: of the document, and of its tube.
        tubes: the present ones, as `read_tubes` gives them.
        predicates: of tubes that have one.
        stays: of a document that the file does not declare any more: whether its tube is still configured.

    Raises:
        UsageError: the present tubes can't become the document; the message says what to do.
    """
    if document is None:
        return _farewell(name, tubes, stays=stays)
    refuse(document, tubes, predicates or {})
    steps, now = steps_left(document, tubes)
    where = {link: tube for tube, link, _, _ in _wanted(document, now)}
    followed = tuple((where[link], link) for link in document.links)
    state, notes = _state(document, tubes, steps), (*_notes(document, tubes), *_rescues(steps, tubes))
    return Plan(name, document, state, tuple(steps), followed, notes, _declared(name, tubes))


def _declared(name: str, tubes: Mapping[str, TubeState]) -> str | None:
    tube = tubes.get(name)
    return None if tube is None else tube.declared


def gone(documents: Mapping[str, object], tubes: Mapping[str, TubeState]) -> list[str]:
    """The documents in the database that the file does not declare any more."""
    return sorted(
        name
        for name, tube in tubes.items()
        if tube.declared is not None and tube.companion_of is None and name not in documents
    )


def _state(document: Document, tubes: Mapping[str, TubeState], steps: Sequence[Step]) -> State:
    tube = tubes.get(document.name)
    if tube is None or tube.declared in (None, UNFINISHED):
        return State.NEW
    if tube.declared != document.digest:
        return State.CHANGED
    return State.DRIFTED if steps else State.APPLIED


def _notes(document: Document, tubes: Mapping[str, TubeState]) -> tuple[str, ...]:
    tube = tubes.get(document.name)
    if tube is None or tube.declared == document.digest:
        return ()
    if tube.declared is None:
        return (f"the document takes over tube {document.name}, created manually",)
    if tube.declared == UNFINISHED:
        return ("an earlier apply was interrupted; this one continues it",)
    return ()


def _rescues(steps: Sequence[Step], tubes: Mapping[str, TubeState]) -> Iterator[str]:
    """What the database does where a relation goes (tube_private_rescue_links)."""
    names = sorted(
        {step.tube for step in steps if step.loses and step.tube in tubes and tubes[step.tube].companion_of}
    )
    if names:
        yield (
            f"if changes of removed relations are queued in {', '.join(names)}, apply requests a backfill of "
            "all documents, with or without --backfill"
        )


def _farewell(name: str, tubes: Mapping[str, TubeState], *, stays: bool) -> Plan:
    companions = tuple(sorted(one for one, tube in tubes.items() if tube.companion_of == name))
    if stays:
        step = Step(Action.RELEASE, name, companions=companions)
        note = f"[tube.{name}] stays in the file: --prune keeps {name} as a tube without a document"
    else:
        step = Step(Action.DROP, name)
        note = "the file no longer declares it; --prune drops it. Documents at the sink stay there"
    return Plan(name, None, State.GONE, (step,), (), (note,), _declared(name, tubes))


# --- one step after another -------------------------------------------------------------------------

_Wanted = tuple[str, Link, int, int]
"""Tube, link, shard and shards of an attachment that is to be."""


def _wanted(document: Document, tubes: Mapping[str, TubeState]) -> list[_Wanted]:
    """In the order of the document, but that of its relations comes last."""
    found: list[_Wanted] = [(document.name, link, 0, document.shards) for link in document.own]
    places = {
        link: (companion.name, shard)
        for companion in companions_of(document, tubes)
        for shard, link in companion.relations.items()
    }
    return found + [(places[link][0], link, places[link][1], 1) for link in document.relations]


def steps_left(document: Document, tubes: Mapping[str, TubeState]) -> tuple[list[Step], dict[str, TubeState]]:
    """All steps that are left, and the tubes after them."""
    steps: list[Step] = []
    now = dict(tubes)
    while (step := next_step(document, now)) is not None:
        steps.append(step)
        now = after(step, now, document.name)
        assert len(steps) < _MOST_STEPS  # each step brings it nearer
    return steps, now


def next_step(document: Document, tubes: Mapping[str, TubeState]) -> Step | None:
    """The step to do first; None: all is as declared."""
    tube = tubes.get(document.name)
    if tube is None:
        return Step(Action.MAKE, document.name, key_type=document.key_type, partitions=document.partitions)
    if tube.partitions != document.partitions:
        return Step(Action.PARTITIONS, document.name, partitions=document.partitions)
    for companion in companions_of(document, tubes):
        if companion.name not in tubes:
            return Step(Action.COMPANION, companion.name, key_type=companion.key_type)
    wanted = _wanted(document, tubes)
    if tube.declared != document.digest:
        return next(_before(wanted, tubes), None) or Step(
            Action.DECLARE,
            document.name,
            digest=document.digest,
            switches=tuple(_switches(wanted, tubes)),
        )
    return next(_afterwards(document, wanted, tubes), None)


def _before(wanted: Sequence[_Wanted], tubes: Mapping[str, TubeState]) -> Iterator[Step]:
    """What the new document needs, besides what the old one has."""
    for one in wanted:
        link, now = one[1], _attached(one, tubes)
        if now is None:
            yield _attach(one)
        elif now.by == link.by and now.columns is not None and set(link.columns) - set(now.columns):
            yield _attach(one, now, tuple(sorted({*now.columns, *link.columns})))


def _switches(wanted: Sequence[_Wanted], tubes: Mapping[str, TubeState]) -> Iterator[Step]:
    """Tables that the tube follows by another column: they change with the declaration."""
    for one in wanted:
        now = _attached(one, tubes)
        if now is not None and now.by != one[1].by:
            yield _attach(one, now)


def _afterwards(
    document: Document, wanted: Sequence[_Wanted], tubes: Mapping[str, TubeState]
) -> Iterator[Step]:
    """The steps left once the document is declared."""
    for one in wanted:
        link, now = one[1], _attached(one, tubes)
        if now is None:
            yield _attach(one)
        elif now.by != link.by or now.columns is None or set(now.columns) != set(link.columns):
            yield _attach(one, now)
    places = {(where, link.table) for where, link, _, _ in wanted}
    for tube in _tubes_of(document.name, tubes):
        for now in tube.tables:
            if (tube.name, now.table) not in places:
                yield Step(Action.DETACH, tube.name, table=now.table, column=now.column)
    used = {where for where, *_ in wanted}
    for tube in _tubes_of(document.name, tubes):
        if tube.companion_of is not None and tube.name not in used:
            yield Step(Action.DROP, tube.name)


def _tubes_of(name: str, tubes: Mapping[str, TubeState]) -> list[TubeState]:
    return [tube for _, tube in sorted(tubes.items()) if name in (tube.name, tube.companion_of)]


def _attached(one: _Wanted, tubes: Mapping[str, TubeState]) -> Followed | None:
    where, link, _, _ = one
    return next((now for now in tubes[where].tables if now.table == link.table), None)


def _attach(one: _Wanted, now: Followed | None = None, columns: tuple[str, ...] | None = None) -> Step:
    where, link, shard, shards = one
    return Step(
        Action.ATTACH if now is None else Action.CHANGE,
        where,
        table=link.table,
        column=link.column,
        shard=shard,
        shards=shards,
        columns=link.columns if columns is None else columns,
        key_cols=link.key_cols,
        shard_by=link.shard_by,
        was=None if now is None else now.columns,
        was_by=None if now is None else now.by,
    )


# --- the effect of a step -----------------------------------------------------------


def after(step: Step, tubes: Mapping[str, TubeState], document: str) -> dict[str, TubeState]:
    """The tubes after a step; `tubes` stays as it is."""
    now = dict(tubes)
    tube = tubes.get(step.tube)
    if tube is None:
        assert step.key_type is not None
        is_own = step.action is Action.MAKE
        now[step.tube] = TubeState(
            step.tube,
            None if is_own else document,
            UNFINISHED if is_own else None,
            step.key_type,
            step.partitions or 1,
        )
        return now
    match step.action:
        case Action.PARTITIONS:
            now[step.tube] = replace(tube, partitions=step.partitions or 1)
        case Action.ATTACH | Action.CHANGE:
            now[step.tube] = _with(tube, step)
        case Action.DECLARE:
            for switch in step.switches:
                tube = _with(tube, switch)
            now[step.tube] = replace(tube, declared=step.digest)
        case Action.DETACH:
            now[step.tube] = replace(tube, tables=[one for one in tube.tables if one.table != step.table])
        case Action.DROP:
            now = {name: one for name, one in now.items() if step.tube not in (name, one.companion_of)}
        case Action.RELEASE:
            now = {name: one for name, one in now.items() if one.companion_of != step.tube}
            now[step.tube] = replace(tube, declared=None)
    return now


def _with(tube: TubeState, step: Step) -> TubeState:
    assert step.table is not None
    assert step.column is not None
    new = Followed(
        step.table, step.column, step.shard, step.shards, step.columns, step.key_cols, step.shard_by
    )
    if any(one.table == step.table for one in tube.tables):
        tables = [new if one.table == step.table else one for one in tube.tables]
    else:
        tables = [*tube.tables, new]
    return replace(tube, tables=tables)
