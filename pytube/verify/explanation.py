"""The state of one key of a tube, and its explanation in words."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from pytube.clock import for_people
from pytube.comparison import Difference
from pytube.counts import is_or_are, say_count
from pytube.errors import on_host
from pytube.model import Id

MOST_RELATIONS = 1000
"""Pods of a companion that are counted."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that the key waits in."""

    seq: int
    op: str
    waits: float
    """Seconds since its insert."""
    marked_by: UUID | None
    """The term that has taken it."""


@dataclass(frozen=True, slots=True)
class Relation:
    """The pods of one relation in a companion."""

    name: str
    """As `schema.table.column`."""
    links: int
    """Its values that wait."""
    leading: int
    """How many of them lead to the key, as rows are now."""


@dataclass(slots=True)
class Relations:
    """The pods in a companion of the tube: they may lead to the key."""

    companion: str
    pods: int
    """The waiting ones; at most `MOST_RELATIONS`."""
    links: int
    """The values in them."""
    waits: float | None
    """Seconds since the insert of the oldest; None: none waits."""
    parked: int
    """Values that are parked there; 1000 at most."""
    each: list[Relation] | None = None
    """The counts by relation; None: it is unknown which lead to the key."""
    unknown: str | None = None
    """Why it is not, if it was tried to find that out."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads the key's partition."""

    leader_id: UUID
    client_id: str
    epoch: int
    lost: bool
    sink_down: str | None
    sink_down_for: float | None
    source_down: str | None
    source_down_for: float | None


@dataclass(frozen=True, slots=True)
class Parked:
    """Why the key is parked."""

    error: str
    attempts: int
    parked_at: datetime


@dataclass(frozen=True, slots=True)
class Failure:
    """Why its document was not taken so far; it is sent again."""

    error: str
    attempts: int
    next_in: float
    """Seconds until it is sent again; less than 0 when it is due."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Why nothing of the key's partition is delivered."""

    reason: str
    until: datetime | None
    """None: until it is resumed."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The term that has written what the sink holds."""

    client_id: str
    partition: int
    acquired_at: datetime
    ended_at: datetime | None
    outcome: str | None


@dataclass(slots=True)
class Side:
    """What one side has of the key."""

    exists: bool | None = None
    """None: that could not be found out."""
    document: Any = None
    unknown: str | None = None
    """Why it could not be found out."""


@dataclass(slots=True)
class Explanation:
    """All that is known of one key."""

    tube: str
    shard: int
    id: Id
    partition: int
    host: str | None = None
    """The Postgres host, where there are several."""
    table: str | None = None
    """The root table, where it was found among several."""
    pods: list[WaitingPod] = field(default_factory=list)
    looked_at: int = 0
    """Pods of the partition."""
    all_pods_seen: bool = True
    """False: more pods wait in the partition than were looked at."""
    relations: list[Relations] = field(default_factory=list)
    leader: Leader | None = None
    pause: Pause | None = None
    failure: Failure | None = None
    parked: Parked | None = None
    source: Side = field(default_factory=Side)
    sink: Side = field(default_factory=Side)
    held: Any = None
    """The source's document in the sink's form, as it is compared; None without one."""
    token: str | None = None
    epoch: int | None = None
    counter: int | None = None
    seq: int | None = None
    writer: Writer | None = None
    is_ahead: bool = False
    """Whether the sink holds an epoch that this database has never issued."""
    difference: Difference | None = None
    fields: list[str] = field(default_factory=list)
    """The top-level fields that differ."""

    @property
    def is_settled(self) -> bool:
        """Whether the sink is known to hold what the source would send now, and nothing is on its way."""
        known = self.source.unknown is None and self.sink.unknown is None and self.all_pods_seen
        quiet = not self.pods and not self.relations and self.parked is None
        return known and self.difference is None and quiet

    @property
    def sentences(self) -> list[str]:
        """The meaning, and the remedy, in plain words."""
        said = [
            *self._of_waiting(),
            *self._of_relations(),
            *self._of_pause(),
            *self._of_failure(),
            *self._of_parking(),
            *self._of_sink(),
            *self._of_source(),
            self._verdict(),
        ]
        return [on_host(sentence, self.host) for sentence in said]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "is_settled": self.is_settled, "sentences": self.sentences}

    def _of_waiting(self) -> list[str]:
        said = []
        if not self.pods:
            where = "in the tube" if self.all_pods_seen else f"in those pods of partition {self.partition}"
            said.append(f"No touch of it waits {where}.")
        else:
            first = self.pods[0]
            said.append(
                f"It waits in {say_count(len(self.pods), 'pod')} of partition {self.partition}; the next is "
                f"seq {first.seq} (op {first.op}), {first.waits:.1f} s old."
            )
            said += [self._of_mark(pod) for pod in self.pods if pod.marked_by is not None][:1]
        if not self.all_pods_seen:
            command = f"pytube pods list {self.tube} {self._key}"
            said.insert(
                0,
                f"Only the first {self.looked_at} pods of partition {self.partition} were looked at: "
                f"`{command}` reads all.",
            )
        if self.pods:
            said.append(self._of_leader())
        return said

    def _of_relations(self) -> list[str]:
        said = []
        for one in self.relations:
            if one.pods:
                least = "at least " if one.pods == MOST_RELATIONS else ""
                said.append(
                    f"In {one.companion}, {least}{say_count(one.links, 'changed link')} of relations "
                    f"{is_or_are(one.links)} waiting{_long(one.waits)}: {_of_leading(one)}"
                )
            if one.parked:
                said.append(
                    f"In {one.companion}, {say_count(one.parked, 'changed link')} of relations "
                    f"{is_or_are(one.parked)} parked, and may lead to this key "
                    f"(`pytube park list {shlex.quote(one.companion)}`)."
                )
        return said

    def _of_mark(self, pod: WaitingPod) -> str:
        if self.leader is not None and pod.marked_by == self.leader.leader_id:
            return f"Pod {pod.seq} is in flight: the worker {self.leader.client_id} has taken it."
        return f"Pod {pod.seq} was taken by a term that is over; the next leader takes it again."

    def _of_leader(self) -> str:
        leader = self.leader
        if leader is None:
            return f"No worker leads partition {self.partition}: start one (`pytube worker`)."
        if leader.lost:
            return f"Its leader {leader.client_id} no longer renews its term: any other worker takes over."
        if leader.sink_down:
            return (
                f"The sink is down{_long(leader.sink_down_for)}, says {leader.client_id}: {leader.sink_down}"
            )
        if leader.source_down:
            since = _long(leader.source_down_for)
            return f"The source can't be read{since}, says {leader.client_id}: {leader.source_down}"
        return f"Partition {self.partition} is led by {leader.client_id}, which is at work."

    def _of_pause(self) -> list[str]:
        if self.pause is None:
            return []
        until = "until it is resumed"
        if self.pause.until is not None:
            until = f"until {self.pause.until:%Y-%m-%d %H:%M:%S%z}"
        command = f"pytube resume {self.tube}"
        return [f"Partition {self.partition} is paused {until}, {self.pause.reason} (`{command}`)."]

    def _of_failure(self) -> list[str]:
        if self.failure is None:
            return []
        again = f"in {self.failure.next_in:.0f} s" if self.failure.next_in > 0 else "now"
        tries = f"It has failed {say_count(self.failure.attempts, 'time')} and is to be sent again {again}"
        return [f"{tries}; the last error: {self.failure.error}"]

    def _of_parking(self) -> list[str]:
        if self.parked is None:
            return []
        since = f"{self.parked.parked_at:%Y-%m-%d %H:%M:%S%z}"
        tries = say_count(self.parked.attempts, "attempt")
        return [f"It is parked since {since}, after {tries}: {self.parked.error}"]

    def _of_sink(self) -> list[str]:
        if self.sink.unknown is not None:
            return [f"What the sink holds is not known: {self.sink.unknown}"]
        said = ["The sink holds a document." if self.sink.exists else "The sink holds no document."]
        if self.epoch is not None:
            of = "its document" if self.sink.exists else "the delete"
            by = "a term that is no more on record (they are kept for a day at least)"
            if self.writer is not None:
                by = f"the worker {self.writer.client_id}, which led partition {self.writer.partition}"
                by += _until(self.writer)
            if self.is_ahead:
                by = (
                    "no term of this database: the sink is ahead, as after a restore from a backup "
                    f"(`pytube tube rebase {self.tube} --epoch {self.epoch}`)"
                )
            seq = "" if self.seq is None else f", stamped with seq {self.seq}"
            token = f"{self.token} (epoch {self.epoch}, counter {self.counter}{seq})"
            said.append(f"The token of {of} is {token}: by {by}.")
        return said

    def _of_source(self) -> list[str]:
        if self.source.unknown is not None:
            return [f"What the source holds is not known: {self.source.unknown}"]
        if self.source.exists:
            return ["The source has a document for it."]
        return [
            "The source has no document for it: no such row, or the predicate or the query leaves it out."
        ]

    def _verdict(self) -> str:
        if self.sink.unknown is not None or self.source.unknown is not None:
            return "So the two can't be compared."
        if self.difference is None:
            waits = (
                " The queued pods bring nothing new."
                if self.pods or any(one.pods for one in self.relations)
                else ""
            )
            parked = f" It is still parked: {self._retry_or_discard()}." if self.parked else ""
            return f"The sink holds what the source would send now.{waits}{parked}"
        return f"{self._how_they_differ(self.difference)}{self._why_they_differ()}"

    def _how_they_differ(self, difference: Difference) -> str:
        return {
            Difference.MISSING: "The document is missing at the sink",
            Difference.EXTRA: "The sink still holds a document that the source does not have",
            Difference.DIFFERENT: f"The two differ, in {', '.join(self.fields) or 'their whole value'}",
        }[difference]

    def _why_they_differ(self) -> str:
        if self.parked is not None:
            return (
                ", because the key is parked: fix the cause of the error, then "
                f"{self._retry_or_discard()}, which changes nothing at the sink."
            )
        if self.pods:
            pause = " and its partition is paused" if self.pause is not None else ""
            return f", because the change was not delivered yet{pause}."
        if self.relations:
            where = ", ".join(one.companion for one in self.relations)
            return f"; the change may be on its way, queued or parked in {where}."
        if not self.all_pods_seen:
            return "; whether the change is on its way is not known, as not all pods were looked at."
        return (
            f", and nothing is on its way: touch the key (`pytube verify {self.tube} --repair` "
            "touches all that differ). A change that made no touch is one cause: triggers disabled, or a "
            "table that the query joins and that is not attached."
        )

    def _retry_or_discard(self) -> str:
        which = f"{self.tube} {self._key}"
        return f"retry it (`pytube park retry {which}`), or discard it (`pytube park discard {which}`)"

    @property
    def _key(self) -> str:
        """The key as options of a command."""
        return f"--shard {self.shard} --key {shlex.quote(str(self.id))}"


def _long(seconds: float | None) -> str:
    return "" if seconds is None else f", for {for_people(seconds)}"


def _of_leading(relations: Relations) -> str:
    """Which of the links lead to the key."""
    if relations.each is None:
        why = "" if relations.unknown is None else f" They could not be looked up now: {relations.unknown}"
        return f"their documents are looked up when they are processed.{why}"
    leading = [f"{one.leading} of {one.links} of {one.name}" for one in relations.each if one.leading]
    if not leading:
        return "as rows are now, none of them leads to this key."
    return f"as rows are now, {', '.join(leading)} {'lead' if len(leading) > 1 else 'leads'} to this key."


def _until(writer: Writer) -> str:
    if writer.ended_at is None:
        return f" since {writer.acquired_at:%Y-%m-%d %H:%M:%S%z} and still does"
    return f" from {writer.acquired_at:%Y-%m-%d %H:%M:%S%z} to {writer.ended_at:%H:%M:%S%z}"
