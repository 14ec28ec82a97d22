"""A sample of the whole fleet: partitions, workers, and what was not read. `watcher` takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from pytube.health.heartbeats import BEATING, Heard

MOST: Final = 100
"""Pods of one class of a partition are counted so far; `MOST` means that or more."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a tube or an outbox. Times are seconds."""

    kind: Literal["tube", "outbox"]
    name: str
    partition: int
    waiting: int | str | None
    """Pods, at most `MOST`; of an outbox records, exact below 1000, else a text such as `~12000`. None: not
    counted, see `problem`."""
    backfill: int | None
    lag: float | None
    """Age of the oldest pod or record; None when none waits."""
    backfill_lag: float | None
    inserted: int
    """Of the whole tube or outbox, ever; `Queue` has the rates."""
    deleted: int
    leader: str | None
    """Its client id."""
    leader_id: UUID | None
    instance_id: UUID | None
    election: str | None
    epoch: int | None
    leads_for: float | None
    renewed_ago: float | None
    state: str
    """As in `PartitionStatus`."""
    sink_down: str | None
    sink_down_for: float | None
    source_down: str | None
    source_down_for: float | None
    paused: str | None
    paused_kind: str | None
    paused_for: float | None
    parked: int | None = None
    """Keys, or records (at most 1000), set aside; None when this role may not see them."""
    retrying: int | None = None
    """Keys that failed alone and are to be sent again; None as above, and for outboxes."""
    problem: str | None = None
    """Why the records of an outbox were not counted."""
    host: str | None = None
    """The Postgres host, where there are several."""

    @property
    def key(self) -> tuple[str | None, str, int]:
        """What tells it from all others."""
        return self.host, self.name, self.partition

    @property
    def is_led(self) -> bool:
        """Whether the term of its leader goes on."""
        return self.leader is not None and self.state != "lost"

    @property
    def counted(self) -> str:
        """How many wait, for people."""
        if self.waiting is None:
            return "?"
        return f"{self.waiting}+" if self.kind == "tube" and self.waiting == MOST else str(self.waiting)


@dataclass(frozen=True, slots=True)
class Queue:
    """A tube or an outbox with its partitions."""

    kind: Literal["tube", "outbox"]
    name: str
    partitions: Sequence[Partition]
    rate_in: float | None = None
    """Pods or records a second that writers added since the sample before; None in the first. Postgres counts
    them some seconds late at times, and counts those that were rolled back."""
    rate_out: float | None = None
    """Pods or records a second that were delivered or parked since the sample before; None in the first."""
    host: str | None = None

    def since(self, before: Queue) -> tuple[int, int]:
        """How many pods or records were added and taken away since an earlier look."""
        now, then = self.partitions[0], before.partitions[0]
        return now.inserted - then.inserted, now.deleted - then.deleted

    @property
    def lag(self) -> float | None:
        """Of the partition that is furthest behind."""
        return max((one.lag for one in self.partitions if one.lag is not None), default=None)

    @property
    def parked(self) -> int | None:
        """Of all partitions; None when this role may not see them."""
        found = [one.parked for one in self.partitions if one.parked is not None]
        return sum(found) if found else None

    @property
    def retrying(self) -> int | None:
        """Of all partitions, keys that failed alone and are to be sent again; None as for `parked`."""
        found = [one.retrying for one in self.partitions if one.retrying is not None]
        return sum(found) if found else None


@dataclass(frozen=True, slots=True)
class Candidacy:
    """A process that takes part in the lease election of a tube or an outbox."""

    tube: str
    instance_id: UUID
    client_id: str
    seen_ago: float


@dataclass(frozen=True, slots=True)
class Process:
    """A session that a worker process keeps."""

    instance: str | None
    """The first digits of the process's instance id; None for a version that does not tell."""
    version: str | None
    pid: int
    """Of the server's process."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process, as one host's database knows it: by what it leads, wants, or by its session alone; or
    as it is heard at Kafka.
    """

    instance: str
    """The first digits of its instance id; `-` for one that is known by its heartbeats alone."""
    client_id: str | None
    """None: it neither leads anything nor takes part in a lease election; only its session is known."""
    leads: Sequence[tuple[str, int]]
    """Tubes and outboxes with the partition, by name; lost ones, too."""
    waits_for: Sequence[str]
    """Of which it takes part in the election, and leads nothing."""
    elections: frozenset[str]
    seen_ago: float | None
    """Since its last sign of life; None: its session is the sign."""
    version: str | None
    """Of pytube; None where its session was not found, or does not tell."""
    host: str | None = None
    heard_ago: float | None = None
    """Since its last heartbeat at Kafka; None: none was heard."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """What was read of one host; of one that is down nothing, or what could be read."""

    host: str | None
    partitions: Sequence[Partition] = ()
    candidacies: Sequence[Candidacy] = ()
    processes: Sequence[Process] = ()
    unseen: Sequence[str] = ()
    """What this role may not see."""
    down: str | None = None
    """Why the host was not read; None when it was."""
    read_at: float = 0.0
    """When it was read who leads, at most some seconds ago: a moment of `time.monotonic()`."""
    counted_at: float = 0.0
    """When it was counted what waits, which may be longer ago where that takes long."""
    heard: Heard | None = None
    """Of heartbeats at Kafka; None: nobody listens, for `why_deaf`."""
    why_deaf: str = ""

    @property
    def not_read(self) -> list[str]:
        """What was not looked at, in sentences."""
        found = [f"{what} could not be seen by this role (tube_monitor may)" for what in self.unseen]
        if self.heard is None:
            if any(one.election == "neli" for one in self.partitions):
                found.append(f"heartbeats of workers at Kafka were not read: {self.why_deaf}")
        elif self.heard.problem is not None:
            found.append(f"heartbeats of workers at Kafka were not read: {self.heard.problem}")
        else:
            missing = {
                self.heard.places[one.name, one.partition][0]
                for one in self.partitions
                if one.election == "neli" and self.heard.since_when(one.name, one.partition) is None
            }
            if missing:
                found.append(
                    f"heartbeats on {', '.join(sorted(missing))} were not read: the broker has no such "
                    "topic, or does not let us read it"
                )
        return found

    @property
    def workers(self) -> list[Worker]:
        """Those that lead something, want to, have a session, or send heartbeats, by client id."""
        ids = {_digits(one.instance_id) for one in self.partitions if one.instance_id and one.leader}
        ids |= {_digits(one.instance_id) for one in self.candidacies}
        ids |= {one.instance for one in self.processes if one.instance is not None}
        by_term, by_label = self._heard_ago()
        known = [self._worker(instance, by_term, by_label) for instance in ids]
        labels = {one.client_id for one in known}
        known += [
            Worker("-", label, (), (), frozenset({"neli"}), None, None, self.host, ago)
            for label, ago in by_label.items()
            if label not in labels and ago < BEATING
        ]
        return sorted(known, key=lambda one: (one.client_id or "~", one.instance))

    def _heard_ago(self) -> tuple[dict[UUID, float], dict[str, float]]:
        """Seconds since the last heartbeat, by term and by client id."""
        by_term: dict[UUID, float] = {}
        by_label: dict[str, float] = {}
        if self.heard is not None:
            for beat in (beat for beats in self.heard.beats.values() for beat in beats):
                ago = self.heard.at - beat.last_at
                by_term[beat.leader_id] = ago
                by_label[beat.client_id] = min(ago, by_label.get(beat.client_id, ago))
        return by_term, by_label

    def _worker(self, instance: str, by_term: dict[UUID, float], by_label: dict[str, float]) -> Worker:
        led = [
            one
            for one in self.partitions
            if one.instance_id is not None and _digits(one.instance_id) == instance
        ]
        wanted = [one for one in self.candidacies if _digits(one.instance_id) == instance]
        labels = [*(one.leader for one in led), *(one.client_id for one in wanted)]
        label = next((label for label in labels if label is not None), None)
        signs = [one.renewed_ago for one in led if one.renewed_ago is not None]
        heard = [by_term.get(one.leader_id) for one in led if one.leader_id is not None]
        heard.append(None if label is None else by_label.get(label))
        return Worker(
            instance,
            label,
            [(one.name, one.partition) for one in led],
            sorted({one.tube for one in wanted} - {one.name for one in led}),
            frozenset(one.election for one in led if one.election) | {"lease" for _ in wanted[:1]},
            min([*signs, *(one.seen_ago for one in wanted)], default=None),
            next((one.version for one in self.processes if one.instance == instance), None),
            self.host,
            min((ago for ago in heard if ago is not None), default=None),
        )


def _digits(instance_id: UUID) -> str:
    """Of an instance id, as many as the name of a session has."""
    return instance_id.hex[:12]


@dataclass(frozen=True, slots=True)
class FleetSample:
    """All hosts at one time."""

    at: datetime
    hosts: Sequence[HostSample]
    queues: Sequence[Queue]
    """By host and name, tubes first."""

    @property
    def partitions(self) -> list[Partition]:
        """Of all of them."""
        return [partition for queue in self.queues for partition in queue.partitions]

    @property
    def workers(self) -> list[Worker]:
        """Of all hosts."""
        return [worker for host in self.hosts for worker in host.workers]

    @property
    def down(self) -> dict[str | None, str]:
        """Why hosts were not read."""
        return {host.host: host.down for host in self.hosts if host.down is not None}
