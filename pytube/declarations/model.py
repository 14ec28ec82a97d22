"""A step towards what the file declares of a tube or an outbox, and the plan that is made of them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytube.declarations.state import Attached
from pytube.documents.model import TableName
from pytube.documents.plan import UNFINISHED, Action, State
from pytube.model import KeyType


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


class Kind(enum.StrEnum):
    """What a section declares."""

    TUBE = "tube"
    OUTBOX = "outbox"


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of `apply`."""

    kind: Kind
    action: Action
    name: str
    """Of the tube or outbox."""
    text: str
    """For people."""
    table: TableName | None = None
    """The table that it locks."""
    roots: tuple[TableName, ...] = ()
    """Root tables of whose documents changes may have been missed until it is done."""

    @property
    def loses(self) -> bool:
        """Whether something is no longer followed, or is dropped: people are asked before."""
        return self.action in (Action.DETACH, Action.DROP)

    def as_json(self) -> dict[str, object]:
        """For programs; as that of a document's step."""
        return {
            "action": self.action.value,
            self.kind.value: self.name,
            "table": None if self.table is None else str(self.table),
            "loses": self.loses,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` would do about one tube or outbox."""

    kind: Kind
    name: str
    state: State
    steps: tuple[Step, ...]
    notes: tuple[str, ...]
    details: dict[str, Any]
    """What the file declares, for programs; empty where it declares nothing any more."""
    target: DeclaredTube | DeclaredOutbox | None
    """None: the file declares it no more."""
    applied: str | None
    """The digest applied last."""

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

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            self.kind.value: self.name,
            "state": self.state.value,
            "problem": None,
            "steps": [step.as_json() for step in self.steps],
            **self.details,
            "notes": list(self.notes),
            "backfill": self.wants_backfill,
        }


@dataclass(frozen=True, slots=True)
class Refused:
    """A tube or an outbox that can't be made as it is declared; nothing is changed."""

    kind: Kind
    name: str
    problem: str
    """Where, what, and what to do."""

    def as_json(self) -> dict[str, object]:
        """For programs; as that of a `Plan`."""
        return {
            self.kind.value: self.name,
            "state": "refused",
            "problem": self.problem,
            "steps": [],
            "notes": [],
            "backfill": False,
        }


def state_of(digest: str, applied: str | None, steps: Sequence[Step]) -> State:
    """The state of a declaration against the applied one and the database."""
    if applied in (None, UNFINISHED):
        return State.NEW
    if applied != digest:
        return State.CHANGED
    return State.DRIFTED if steps else State.APPLIED
