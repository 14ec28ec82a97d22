"""A sample of the whole fleet: partitions, workers, and the parts that were not read. `watcher` takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import psycopg

from pytube.clock import for_people
from pytube.counts import name_partitions
from pytube.db.errors import describe
from pytube.errors import PytubeError
from pytube.outbox.admin import RestingTopic

MOST: Final = 100
"""Pods of one class of a partition are counted so far at a glance."""
MOST_CONTROL: Final = 10_000
"""Control pods of a kind are counted so far."""


STATES: Final = {
    "stopped": "bad",
    "lost": "bad",
    "failing": "bad",
    "sink down": "bad",
    "source down": "bad",
    "free": "warn",
    "pausing": "warn",
    "paused": "warn",
    "leads": "good",
}
"""The states of a partition, and how bad each is; what needs most attention comes first."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many there are, as far as they were counted: `12`, `1000+`, `~12000`."""

    number: int
    is_estimate: bool = False
    is_least: bool = False
    """There may be more."""

    @classmethod
    def of(cls, text: str) -> Count:
        """The count as the SQL prints it; for control pods by kind (`backfill_end:2 other:1`), their sum."""
        parts = [int(part.rpartition(":")[2].strip("~+")) for part in text.split()]
        is_least = text.endswith("+") or (":" in text and max(parts) >= MOST_CONTROL)
        return cls(sum(parts), text.startswith("~"), is_least)

    @classmethod
    def up_to(cls, number: int, most: int) -> Count:
        """The count up to `most`, or an estimate beyond that."""
        return cls(number, number > most, number == most)

    @classmethod
    def total(cls, counts: Iterable[Count | None]) -> Count | None:
        """Of several, some of which may not be known; None where none is."""
        found = list(counts)
        known = [one for one in found if one is not None]
        if not known:
            return None
        is_least = len(known) < len(found) or any(one.is_least for one in known)
        return cls(sum(one.number for one in known), any(one.is_estimate for one in known), is_least)

    @property
    def is_exact(self) -> bool:
        """Whether it is neither an estimate nor a least number."""
        return not (self.is_estimate or self.is_least)

    def __str__(self) -> str:
        return f"{'~' if self.is_estimate else ''}{self.number}{'+' if self.is_least else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of a tube or an outbox. Times are seconds."""

    kind: Literal["tube", "outbox"]
    name: str
    partition: int
    waiting: Count | None
    """Pods without backfill pods, or records. None: not counted, see `problem`."""
    backfill: Count | None = None
    """Pods of backfills; None for outboxes."""
    documents: Count | None = None
    """Ids in all of these pods, each as often as it is there; None for outboxes."""
    control: Count | None = None
    """Control pods; None for outboxes, and at a glance."""
    lag: float | None = None
    """Age of the oldest pod or record; None when none waits."""
    backfill_lag: float | None = None
    companion_of: str | None = None
    """The tube that is served with it, and whose documents' relations it holds; None for all others."""
    inserted: int = 0
    """Of the whole tube or outbox, ever; `Queue` has the rates."""
    deleted: int = 0
    leader: str | None = None
    """Client id of the leader, or of a lost one; None without a leader."""
    instance_id: UUID | None = None
    election: str | None = None
    epoch: int | None = None
    leads_for: float | None = None
    renewed_ago: float | None = None
    runs_out_in: float | None = None
    """Seconds until others may take over unless it is renewed; below 0 for a lost one."""
    state: str = "free"
    """`leads`; `failing`: terms end by the same failure, one after the other; `free`: no leader; `lost`:
    the term ran out without being released; `sink down` or `source down`: the leader can't deliver;
    `pausing`: an operator has paused it, and its leader has not come to rest yet; `paused`: it has;
    `stopped`: a worker has stopped the tube."""
    sink_down: str | None = None
    """Why the sink takes nothing; None while it does, or without a leader."""
    sink_down_for: float | None = None
    sink_tried_in: float | None = None
    """Seconds until it is tried again, below 0 when that is under way; None: not known."""
    source_down: str | None = None
    """Why rows can't be read; None while they can, or without a leader."""
    source_down_for: float | None = None
    source_tried_in: float | None = None
    failing: str | None = None
    """By what failure terms end, one after the other; None: they don't."""
    failing_terms: int | None = None
    failing_for: float | None = None
    paused: str | None = None
    """Why it is paused, also without a leader; None when it is not."""
    paused_kind: str | None = None
    """`operator`, or why a worker has stopped the tube: `poison` or `park_limit`."""
    paused_until: str | None = None
    """None: until it is resumed."""
    paused_for: float | None = None
    """Seconds until then."""
    sink_emptied_for: float | None = None
    """Since a worker found that the sink of the tube had lost its documents; None: it has them."""
    refill: Literal["under way", "finished"] | None = None
    """Of backfills that began after that: one is under way, or all root tables are filled, which workers
    notice within seconds."""
    parked: Count | None = None
    """Keys or records set aside; None when this role may not see them."""
    parked_error: str | None = None
    """Why one of them was, as a rule the last; None when none is."""
    parked_failed: int | None = None
    """How many of the parked records of an outbox failed; None for tubes, as below."""
    parked_behind: int | None = None
    """The others: they wait behind a failed one of their key."""
    parked_overtaken: int | None = None
    """Of the failed ones, those whose key continues without them: sent again, they come late."""
    retrying: int | None = None
    """Keys that failed alone and are to be sent again; None as above, and for outboxes."""
    problem: str | None = None
    """Why the records of an outbox were not counted."""
    resting: Sequence[RestingTopic] = ()
    """Topics of an outbox that take nothing."""
    host: str | None = None
    """The Postgres host, where there are several."""

    @property
    def key(self) -> tuple[str | None, str, int]:
        """The fields that identify it."""
        return self.host, self.name, self.partition

    @property
    def is_led(self) -> bool:
        """Whether the term of its leader continues."""
        return self.leader is not None and self.state != "lost"

    @property
    def is_silent(self) -> bool:
        """Whether nothing was renewed for most of the time that its term lasts without."""
        if self.renewed_ago is None or self.runs_out_in is None:
            return False
        return self.renewed_ago >= max(SILENT, (self.renewed_ago + self.runs_out_in) / 2)

    @property
    def counted(self) -> str:
        """How many wait, for people."""
        return "?" if self.waiting is None else str(self.waiting)


SILENT = 10.0
"""Seconds without a renewal, which a worker sends every few seconds, terms or none."""
BEHIND = 10.0
"""Seconds for which something waits until it is looked whether the tube catches up."""


def place(host: str | None) -> str:
    """What a line begins with, where there are several hosts."""
    return "" if host is None else f"host {host}: "


@dataclass(frozen=True, slots=True)
class Queue:
    """A tube or an outbox with its partitions."""

    kind: Literal["tube", "outbox"]
    name: str
    partitions: Sequence[Partition]
    rate_in: float | None = None
    """Pods or records that writers lately added a second; None in the first sample. Postgres counts them some
    seconds late at times, and also counts rolled back ones."""
    rate_out: float | None = None
    """Pods or records that were lately delivered or parked a second; None in the first sample."""
    falls_by: float | None = None
    """Documents or records a second by which the queue has become shorter, or below 0 longer, in the last
    seconds; None while too few have been seen."""
    host: str | None = None

    def since(self, before: Queue) -> tuple[int, int]:
        """How many pods or records were added and taken away since an earlier look."""
        now, then = self.partitions[0], before.partitions[0]
        return now.inserted - then.inserted, now.deleted - then.deleted

    def falls_since(self, before: Queue, seconds: float) -> float | None:
        """Documents or records a second by which the queue is shorter than at an earlier look.

        Not pods, as one has an id, or hundreds, and takes as long.
        """
        if self.kind == "outbox":
            added, taken = self.since(before)
            return (taken - added) / seconds
        now, then = self.documents, before.documents
        if now is None or then is None or now.is_estimate != then.is_estimate:
            return None
        return (then.number - now.number) / seconds

    @property
    def documents(self) -> Count | None:
        """Of all partitions; None for outboxes."""
        return Count.total(one.documents for one in self.partitions if one.documents is not None)

    @property
    def lag(self) -> float | None:
        """Of the partition that is furthest behind."""
        return max((one.lag for one in self.partitions if one.lag is not None), default=None)

    @property
    def waiting(self) -> Count | None:
        """Of all partitions, with backfills."""
        return Count.total(count for one in self.partitions for count in (one.waiting, one.backfill) if count)

    @property
    def is_behind(self) -> bool:
        """Whether something has waited for longer than it takes to deliver it, though nothing is wrong."""
        late = [one for one in self.partitions if (one.lag or 0.0) >= BEHIND]
        return bool(late) and all(one.state == "leads" and not one.resting for one in late)

    @property
    def parked(self) -> Count | None:
        """Of all partitions; None when this role may not see them."""
        return Count.total(one.parked for one in self.partitions if one.parked is not None)

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
    """The first digits of the process's instance id; None for a version that does not report it."""
    version: str | None
    silent_for: float | None = None
    """Seconds since it last did something in the session that renews terms, which it does every few seconds,
    terms or none; None: this role may not see that."""
    client_id: str | None = None
    """Of its last term, if it leads nothing now and takes part in no lease election."""
    fenced_ago: float | None = None
    """Seconds since that term was taken over by another process; None: it was not."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process, as one host's database knows it: by its partitions, wishes, or its session alone."""

    instance: str
    """The first digits of its instance id."""
    client_id: str | None
    """None: only its session is known: it has led nothing for a day, and takes part in no lease election."""
    leads: Sequence[tuple[str, int]]
    """Tubes and outboxes with the partition, by name; lost ones, too."""
    waits_for: Sequence[str]
    """Of which it takes part in the election, and leads nothing."""
    elections: frozenset[str]
    seen_ago: float | None
    """Since its last sign of life; None: its session is the sign, and this role does not see more of it."""
    version: str | None
    """Of pytube; None where its session was not found, or does not report it."""
    host: str | None = None
    hangs: bool = False
    """Its sessions are there, and it has renewed nothing for long."""
    runs_out_in: float | None = None
    """Seconds until others may take over its partitions; below 0: they may. None: it leads nothing."""

    @property
    def standstill(self) -> str | None:
        """The finding, if it hangs."""
        if not self.hangs:
            return None
        ago = "" if self.seen_ago is None else f" for {for_people(self.seen_ago)}"
        parts = f"its partitions ({partitions_of(self.leads)})"
        if self.runs_out_in is None:
            then = "other workers have taken over its partitions"
        elif self.runs_out_in > 0:
            then = f"in {for_people(self.runs_out_in)}, another worker may take over {parts}"
        else:
            then = f"no other worker has taken over {parts}"
        return (
            f"is alive, but has renewed nothing{ago}: {then}; its sessions are still open "
            f"(application_name: … {self.instance} …), so it hangs, was stopped, or is cut off"
        )


def partitions_of(leads: Sequence[tuple[str, int]]) -> str:
    """Tubes and outboxes with their partitions, for people."""
    names = dict.fromkeys(name for name, _ in leads)
    numbers = {name: [number for one, number in leads if one == name] for name in names}
    return "; ".join(f"{name} {name_partitions(found)}" for name, found in numbers.items())


# --- what workers say -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why one worker can't serve a tube or an outbox as it is asked to."""

    tube: str
    use: Literal["election", "delivery", "refused", "unfollowed"]
    """It can't reach a Kafka cluster, and so can't be elected to lead free partitions (`election`), or can't
    write there (`delivery`); or it serves nothing of it, whatever is up (`refused`); or it can't follow a
    change of its tables (`unfollowed`)."""
    bootstrap_servers: str
    """Of the cluster."""
    client_id: str
    reason: str
    """The latest."""
    since: datetime
    seen_at: datetime
    host: str | None = None
    """The Postgres host, where there are several."""


@dataclass(frozen=True, slots=True)
class Back:
    """A worker that reaches Kafka again, and may wait to be elected for a tube or an outbox."""

    tube: str
    client_id: str
    instance: str
    """The first digits of its instance id."""
    seconds: float
    """For so long."""


@dataclass(frozen=True, slots=True)
class Hindrance:
    """What slows one partition down that delivers all the same."""

    tube: str
    partition: int
    what: Literal["slow", "locked", "late"]
    """`slow`: its sink; `late`: its worker; `locked`: another session locked a table that it reads."""
    reason: str
    seconds: float
    """For so long it has been so."""
    host: str | None = None
    """The Postgres host, where there are several."""


@dataclass(frozen=True, slots=True)
class Unverified:
    """A tube whose copy is to be verified, or an outbox whose consumers are to be informed."""

    tube: str
    cause: str
    """`source`: it was replaced or restored; `sample`: one has found keys that differ."""
    since: str
    is_certain: bool
    """Commits are gone, or the copy differs; else it may be so."""
    detail: str
    kind: str = "tube"
    """`tube` or `outbox`."""

    @property
    def finding(self) -> str:
        """The finding, in a sentence."""
        if self.cause == "sample":
            return f"a sample at {self.since} found that the copy differs ({self.detail})"
        kind = "lost commits" if self.is_certain else "was replaced or restored"
        may = "are" if self.is_certain else "may be"
        whose = "the copy has" if self.kind == "tube" else "messages were sent for"
        return f"the source {kind} ({self.detail}; seen at {self.since}): commits that {whose} {may} gone"

    @property
    def remedy(self) -> str:
        """What to run."""
        if self.kind == "outbox":
            return (
                "inform the consumers of its topics: some messages may belong to transactions that this "
                "database no longer has, and some may come again; then: "
                f"pytube outbox acknowledge {self.tube}"
            )
        repair = f"pytube verify {self.tube} --repair"
        if self.cause == "sample":  # so it can be read
            return f"{repair}; then until it finds nothing: pytube verify {self.tube}"
        fill = f"if the sink can't be read: pytube backfill start {self.tube} --wait"
        if self.is_certain:
            return f"{repair}; then until it finds nothing: pytube verify {self.tube}; {fill}"
        return f"verify now: pytube verify {self.tube}; {fill}"


@dataclass(frozen=True, slots=True)
class LastSample:
    """What the last sample of a tube has found."""

    tube: str
    checked: int
    differing: int
    """Parked keys are not among them."""
    undecided: int
    ago: float
    """Seconds."""

    def __str__(self) -> str:
        told = f"{self.checked} keys compared {for_people(self.ago)} ago, {self.differing} differ"
        return f"{told}, and of {self.undecided} it is not known" if self.undecided else told


# --- hosts, and all of them ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostSample:
    """The data read of one host; of a host that is down nothing, or the part that could be read."""

    host: str | None
    partitions: Sequence[Partition] = ()
    candidacies: Sequence[Candidacy] = ()
    processes: Sequence[Process] = ()
    complaints: Sequence[Complaint] = ()
    hindered: Sequence[Hindrance] = ()
    """What slows partitions down that deliver all the same."""
    unseen: Sequence[str] = ()
    """What this role may not see."""
    error: PytubeError | psycopg.Error | None = None
    """Why the host was not read; None when it was."""
    counted_at: float = 0.0
    """When the backlog was counted, which may be long ago where that takes long: of `time.monotonic()`."""
    took: float = 0.0
    """Seconds that this reading took the server."""
    unverified: Sequence[Unverified] = ()
    samples: Sequence[LastSample] = ()
    back: Sequence[Back] = ()
    """Workers that reach Kafka again."""

    @property
    def kafka(self) -> list[Complaint]:
        """Kafka clusters that workers can't reach."""
        return [one for one in self.complaints if one.use in ("election", "delivery")]

    def awaited(self, tube: str) -> list[Back]:
        """Live workers that may be given partitions of a tube or an outbox any moment."""
        there = {one.instance for one in self.processes}
        return [one for one in self.back if one.tube == tube and one.instance in there]

    @property
    def down(self) -> str | None:
        """Why the host was not read, in a sentence."""
        if isinstance(self.error, psycopg.Error):
            return describe(self.error)
        return None if self.error is None else str(self.error)

    def only(self, which: Callable[[Partition], bool]) -> HostSample:
        """The part for some partitions, and for their tubes and outboxes."""
        partitions = [one for one in self.partitions if which(one)]
        names, numbers = {one.name for one in partitions}, {(one.name, one.partition) for one in partitions}
        served = names | {one.companion_of for one in partitions}
        return replace(
            self,
            partitions=partitions,
            complaints=[
                one for one in self.complaints if one.tube in (served if one.use == "refused" else names)
            ],
            hindered=[one for one in self.hindered if (one.tube, one.partition) in numbers],
            unverified=[one for one in self.unverified if one.tube in names],
            samples=[one for one in self.samples if one.tube in names],
        )

    @property
    def workers(self) -> list[Worker]:
        """Workers that lead something, want to, or have a session, by client id."""
        ids = {digits(one.instance_id) for one in self.partitions if one.instance_id and one.leader}
        ids |= {digits(one.instance_id) for one in self.candidacies}
        ids |= {one.instance for one in self.processes if one.instance is not None}
        known = [self._worker(instance) for instance in ids]
        return sorted(known, key=lambda one: (one.client_id or "~", one.instance))

    def _worker(self, instance: str) -> Worker:
        led = [one for one in self.partitions if one.instance_id and digits(one.instance_id) == instance]
        wanted = [one for one in self.candidacies if digits(one.instance_id) == instance]
        process = next((one for one in self.processes if one.instance == instance), Process(None, None))
        labels = [*(one.leader for one in led), *(one.client_id for one in wanted), process.client_id]
        signs = [one.renewed_ago for one in led if one.renewed_ago is not None]
        silent_for, fenced_ago = process.silent_for, process.fenced_ago
        if silent_for is not None and not signs and not wanted:
            signs = [silent_for]
        return Worker(
            instance,
            next((label for label in labels if label is not None), None),
            [(one.name, one.partition) for one in led],
            sorted({one.tube for one in wanted} - {one.name for one in led}),
            frozenset(one.election for one in led if one.election) | {"lease" for _ in wanted[:1]},
            min([*signs, *(one.seen_ago for one in wanted)], default=None),
            process.version,
            self.host,
            hangs=(process.instance is not None and bool(led) and all(one.is_silent for one in led))
            or (silent_for is not None and fenced_ago is not None and silent_for >= max(fenced_ago, SILENT)),
            runs_out_in=min((one.runs_out_in for one in led if one.runs_out_in is not None), default=None),
        )


def digits(instance_id: UUID) -> str:
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

    def only(self, which: Callable[[Partition], bool]) -> FleetSample:
        """The part for some partitions, with their tubes and outboxes as a whole."""
        queues = [queue for queue in self.queues if any(map(which, queue.partitions))]
        return FleetSample(self.at, [host.only(which) for host in self.hosts], queues)

    @property
    def not_read(self) -> list[str]:
        """The parts that were not checked, in sentences."""
        return [
            f"{place(host.host)}{what} could not be seen by this role (tube_monitor may)"
            for host in self.hosts
            for what in host.unseen
        ]

    @property
    def down(self) -> dict[str | None, str]:
        """Why hosts were not read."""
        return {host.host: host.down for host in self.hosts if host.down is not None}
