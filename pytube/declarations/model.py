"""Steps towards what a file declares of a document, a tube or an outbox, the plan that is made of them, and
the present state.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from pytube.config.names import TableName
from pytube.config.section import HOST_SHARDS
from pytube.config.tubes import Attached
from pytube.documents.model import Document, Link, Tube, read_tubes
from pytube.model import KeyType
from pytube.tubes.queries import within

UNFINISHED = "unfinished"
"""In place of the digest until it has been applied to its end: no worker serves the document."""

_OUTBOXES: Final = """
    SELECT o.outbox, o.partitions, o.value_type::text, o.adopted, o.wakes, a.applied, a.made,
        n.nspname, c.relname
    FROM {s}.outbox_list() AS o
    JOIN {s}.tube_applied() AS a ON a.tube = o.outbox
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = o.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    ORDER BY o.outbox
"""
# tube_sync() looks for these columns under the names that they have by now.
_RENAMED: Final = """
    SELECT DISTINCT coalesce(l.companion_of, l.tube), l.tbl::text FROM {s}.tube_list() AS l
    WHERE l.tbl IS NOT NULL AND EXISTS (
        SELECT FROM unnest(l.columns || coalesce(l.key_cols, ARRAY[l.id_col])) AS u (name) WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = l.tbl AND a.attname = u.name AND NOT a.attisdropped))
    ORDER BY 1, 2
"""


class Kind(enum.StrEnum):
    """What a section declares."""

    DOCUMENT = "document"
    TUBE = "tube"
    OUTBOX = "outbox"


# --- declarations -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclaredTube:
    """A tube as the file declares it, with what the catalogue has to say."""

    name: str
    partitions: int | None
    """None: as many as it has."""
    key_type: KeyType
    predicate: str | None
    tables: tuple[Attached, ...]
    digest: str

    def root_of(self, one: Attached) -> TableName:
        """The table whose ids are the documents' in the shards of this one."""
        return next(other.table for other in self.tables if other.root and other.same_shards(one))

    def table(self, name: TableName) -> Attached | None:
        """How the file wants a table followed; None: it does not name it."""
        return next((one for one in self.tables if one.table == name), None)


@dataclass(frozen=True, slots=True)
class DeclaredOutbox:
    """An outbox as the file declares it."""

    name: str
    partitions: int | None
    """None: as many as it has."""
    value_type: str | None
    """None: as it is."""
    table: TableName | None
    """The table that it adopts; None: it has its own."""
    wakes: bool
    """Whether writers of an adopted one wake workers."""
    digest: str


Target = Document | DeclaredTube | DeclaredOutbox


# --- the present state ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outbox:
    """An outbox that is there."""

    name: str
    partitions: int
    value_type: str
    adopted: bool
    wakes: bool
    applied: str | None
    """The digest of the section applied last; None: it was created manually."""
    made: bool
    table: TableName | None
    """None: an adopted table that was dropped."""


@dataclass(frozen=True, slots=True)
class There:
    """What a database has."""

    tubes: Mapping[str, Tube] = field(default_factory=dict)
    outboxes: Mapping[str, Outbox] = field(default_factory=dict)
    renamed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By tube, tables whose columns were renamed or dropped, and nothing has followed that yet."""

    def applied(self, kind: Kind) -> dict[str, str]:
        """The digests applied last, by name."""
        digests: dict[str, str | None] = {}
        if kind is Kind.OUTBOX:
            digests = {one.name: one.applied for one in self.outboxes.values()}
        else:
            for one in self.tubes.values():
                digests[one.name] = one.document if kind is Kind.DOCUMENT else one.applied
        return {name: digest for name, digest in digests.items() if digest is not None}


def read_there(connection: psycopg.Connection, schema: str) -> There:
    """All tubes and outboxes."""
    outboxes: dict[str, Outbox] = {}
    for name, partitions, values, adopted, wakes, applied, made, place, table in connection.execute(
        within(_OUTBOXES, schema)
    ):
        of = None if table is None else TableName(place, table)
        outboxes[name] = Outbox(name, partitions, values, adopted, wakes, applied, made, of)
    renamed: dict[str, list[str]] = {}
    for tube, table in connection.execute(within(_RENAMED, schema)):
        renamed.setdefault(tube, []).append(table)
    return There(read_tubes(connection, schema), outboxes, renamed)


# --- steps ------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of `apply`."""

    kind: Kind
    action: Action
    name: str
    """Of the tube or outbox that it changes: of a document, its own tube or a companion."""
    text: str
    """For people."""
    table: TableName | None = None
    """The table that it locks."""
    roots: tuple[TableName, ...] = ()
    """Root tables of whose documents changes may have been missed until it is done, or which are others from
    then on."""
    attached: Attached | None = None
    """How the table is followed from then on."""
    switches: tuple[Attached, ...] = ()
    """Of a declaration: tables that are followed by another column from then on, in the same transaction."""
    key_type: KeyType | None = None
    """Of a new companion."""
    companions: tuple[str, ...] = ()
    """Of a release: the tubes that are dropped with it."""

    @property
    def loses(self) -> bool:
        """Whether something is no longer followed, or is dropped: people are asked before."""
        takes = self.kind is Kind.DOCUMENT and self.action is Action.RELEASE
        return takes or self.action in (Action.DETACH, Action.DROP)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        found: dict[str, object] = {
            "action": self.action.value,
            ("outbox" if self.kind is Kind.OUTBOX else "tube"): self.name,
            "table": None if self.table is None else str(self.table),
        }
        if self.kind is Kind.DOCUMENT:
            by = () if self.attached is None else self.attached.key
            counting = () if self.attached is None else self.attached.columns
            found |= {"column": only(by), "by": list(by), "columns": sorted(counting)}
        return found | {"loses": self.loses, "text": self.text}


def only(names: Sequence[str]) -> str | None:
    """The only column, for readers that know no keys of several."""
    return names[0] if len(names) == 1 else None


class State(enum.StrEnum):
    """The state of a declaration against the applied one and the database."""

    NEW = "new"
    CHANGED = "changed"
    """The file says something else."""
    DRIFTED = "drifted"
    """It was applied as it is; the database was changed since, or it was interrupted."""
    APPLIED = "applied"
    GONE = "gone"
    """The file does not declare it any more."""
    REFUSED = "refused"
    """It can't be applied; nothing of it is changed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` would do about one document, tube or outbox."""

    kind: Kind
    name: str
    state: State
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    """What the file declares, for programs; empty where it declares nothing any more."""
    target: Target | None = None
    """None: the file declares it no more, or it is refused."""
    applied: str | None = None
    """The digest applied last."""
    problem: str | None = None
    """Why it is refused: where, what, and what to do."""
    followed: tuple[tuple[str, Link], ...] = ()
    """Of a document: the tube that follows each of its tables, the root table first."""

    @property
    def subject(self) -> str:
        """Where it stands in the file."""
        return f"{self.kind}.{self.name}"

    @property
    def wants_backfill(self) -> bool:
        """Whether documents at the sink are not as they are to be from now on."""
        return any(step.roots for step in self.steps)

    @property
    def missed_changes(self) -> bool:
        """Whether declared tables were not followed: `apply` then asks for a backfill automatically."""
        return self.state is State.DRIFTED and self.wants_backfill

    @property
    def losses(self) -> Sequence[Step]:
        """What people are asked about."""
        return [step for step in self.steps if step.loses]

    @property
    def missing_indexes(self) -> Sequence[str]:
        """The statements that make them."""
        return self.target.missing_indexes if isinstance(self.target, Document) else ()

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            self.kind.value: self.name,
            "state": self.state.value,
            "problem": self.problem,
            "steps": [step.as_json() for step in self.steps],
            **({"tables": [], "missing_indexes": []} if self.kind is Kind.DOCUMENT else {}),
            **self.details,
            "notes": list(self.notes),
            "backfill": self.wants_backfill,
        }


def planned(
    kind: Kind,
    target: Target,
    there: There,
    steps: Sequence[Step],
    details: dict[str, Any],
    notes: Sequence[str] = (),
    followed: tuple[tuple[str, Link], ...] = (),
) -> Plan:
    """The plan of a declaration that can be applied by these steps."""
    applied = there.applied(kind).get(target.name)
    if applied in (None, UNFINISHED):
        state = State.NEW
    elif applied != target.digest:
        state = State.CHANGED
    else:
        state = State.DRIFTED if steps else State.APPLIED
    notes = (*_notes(kind, target.name, there), *notes)
    return Plan(kind, target.name, state, tuple(steps), notes, details, target, applied, followed=followed)


def _notes(kind: Kind, name: str, there: There) -> Iterator[str]:
    """What people have to know of the present state."""
    applied = there.applied(kind).get(name)
    if name in (there.outboxes if kind is Kind.OUTBOX else there.tubes):
        if applied == UNFINISHED:
            yield "an earlier apply was interrupted; this one continues it"
        elif applied is None and kind is Kind.DOCUMENT:
            yield f"the document takes over tube {name}, created manually"
        elif applied is None:
            yield f"the file takes over {kind} {name}, created manually; --prune never drops it"
    if renamed := there.renamed.get(name):
        yield (
            f"columns of {', '.join(renamed)} were renamed or dropped, and nothing has followed that yet: "
            "apply does so first (tube_sync), so its steps may be others"
        )


def farewell(kind: Kind, name: str, there: There, *, stays: bool) -> Plan:
    """The plan of --prune for a declaration that was removed; `stays`: whether its name has a section."""
    if kind is Kind.DOCUMENT:
        step, note = _of_document(name, there, stays=stays)
    else:
        now = there.outboxes[name] if kind is Kind.OUTBOX else there.tubes[name]
        by_hand = [str(one.table) for one in now.tables if not one.made] if isinstance(now, Tube) else []
        kept = None if now.made else "it was created manually"
        if stays:
            but = "stays in the file, but no longer" if kind is Kind.TUBE else "no longer"
            kept = f"[{kind}.{name}] {but} declares anything in the database"
        elif by_hand and now.made:
            kept = f"{', '.join(by_hand)} was attached to it manually"
        if kept is None:
            step, note = _drop(kind, name, there)
        else:
            text = f"keep {kind} {name}, no longer managed by the file"
            step = Step(kind, Action.RELEASE, name, text)
            note = f"{kept}: --prune keeps {kind} {name} as it is, no longer managed by the file"
    return Plan(kind, name, State.GONE, (step,), (note,), applied=there.applied(kind)[name])


def _of_document(name: str, there: There, *, stays: bool) -> tuple[Step, str]:
    if not stays:
        return _drop(Kind.DOCUMENT, name, there)
    companions = tuple(sorted(one.name for one in there.tubes.values() if one.companion_of == name))
    text = f"keep {name} as a tube without a document{''.join(f', drop {one}' for one in companions)}"
    note = f"[tube.{name}] stays in the file: --prune keeps {name} as a tube without a document"
    return Step(Kind.DOCUMENT, Action.RELEASE, name, text, companions=companions), note


def _drop(kind: Kind, name: str, there: There) -> tuple[Step, str]:
    note = "the file no longer declares it; --prune drops it"
    if kind is not Kind.OUTBOX:
        text, note = f"drop tube {name} and its queued changes", f"{note}. Documents at the sink stay there"
    elif there.outboxes[name].adopted:
        text = f"drop outbox {name}; its table {there.outboxes[name].table} stays"
    else:
        text, note = f"drop outbox {name}", f"{note}, once no records are in it"
    return Step(kind, Action.DROP, name, text), note


def shards_begin(
    tables: Sequence[Attached], now: Tube | None, first: int | None, said: Collection[TableName] = ()
) -> int:
    """The number to add to the declared shards of a tube on this host; `first`: as `Config.first_shard`.

    A followed table stays where it is, though hosts move in the file: it keeps its first shard; or its place
    among the hosts, where the file says the shard (`said`).
    """
    if first is None:
        return 0
    for one in tables:
        was = None if now is None else now.table(one.table)
        if was is not None:
            return was.shard - (was.shard % HOST_SHARDS if one.table in said else one.shard)
    return first


def widens(was: Attached | None, now: Attached) -> bool:
    """Whether changes count from then on that did not before."""
    return (
        was is None
        or was.key != now.key
        or (now.replica and not was.replica)
        or (bool(was.columns) and (not now.columns or not now.columns <= was.columns))
    )
