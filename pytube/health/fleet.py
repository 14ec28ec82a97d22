"""A sample of the whole fleet, cheap enough for once a second: for `top`, `web` and `status --fleet`.

A `FleetWatcher` keeps a session with each host. All that it sends only reads. Counts of pods stop at `MOST`,
because to count them is what costs. And what took long is read again only when many times its duration has
passed: a fleet of any size costs its database less than 1 % of a core, and a busy server is asked less often.
Where workers prove their leadership at Kafka, it listens to their heartbeats there, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, LiteralString, TypeVar
from uuid import UUID

import psycopg
from psycopg import errors
from psycopg.rows import dict_row
from pydantic import SecretStr

from pytube.config import Config
from pytube.db.connect import connect_sync
from pytube.db.errors import describe, translated
from pytube.db.version import check
from pytube.errors import PytubeError
from pytube.health.heartbeats import BEATING, Heard
from pytube.outbox.admin import OutboxPartition, read_outboxes
from pytube.tubes.queries import STATE, within

if TYPE_CHECKING:
    from pytube.health.listener import Listener

T = TypeVar("T")

MOST: Final = 100
"""Pods of one class of a partition are counted so far; `MOST` means that or more."""

_OFTEN: Final = 120
"""Partitions are read again when this many times what they took the server has passed: 0.8 % of a
core at most, since the time that passes is no less than the time on a core."""

_RARELY: Final = 1000
"""Likewise what grows without bound (four things), and by the time that it took us: 0.1 % of a core each."""

# Records of outboxes are counted by `read_outboxes`.
_PARTITIONS: Final = """
    WITH load AS (
        SELECT 'tube' AS kind, s.* FROM {s}.tube_load(%(most)s) AS s
        UNION ALL
        SELECT 'outbox', o.outbox, n.partition, NULL, NULL, NULL, NULL,
            pg_catalog.pg_stat_get_tuples_inserted(o.tbl), pg_catalog.pg_stat_get_tuples_deleted(o.tbl)
        FROM {s}.outbox_list() AS o
        CROSS JOIN LATERAL pg_catalog.generate_series(0, o.partitions - 1) AS n (partition)
    )
    SELECT s.kind, s.tube AS name, s.partition, s.waiting, s.backfill,
        extract(epoch FROM clock_timestamp() - s.since)::float8 AS lag,
        extract(epoch FROM clock_timestamp() - s.backfill_since)::float8 AS backfill_lag,
        s.inserted, s.deleted,
        l.client_id AS leader, l.leader_id, l.instance_id, l.election, l.epoch,
        extract(epoch FROM clock_timestamp() - l.acquired_at)::float8 AS leads_for,
        extract(epoch FROM clock_timestamp() - l.renewed_at)::float8 AS renewed_ago,
        {state} AS state,
        l.sink_down, extract(epoch FROM clock_timestamp() - l.sink_down_since)::float8 AS sink_down_for,
        l.source_down, extract(epoch FROM clock_timestamp() - l.source_down_since)::float8 AS source_down_for,
        p.reason AS paused, p.kind AS paused_kind,
        extract(epoch FROM p.until - clock_timestamp())::float8 AS paused_for,
        extract(epoch FROM clock_timestamp() - statement_timestamp())::float8 AS took
    FROM load AS s
    LEFT JOIN {s}.tube_leaders() AS l ON l.tube = s.tube AND l.partition = s.partition
    LEFT JOIN {s}.tube_pause_list() AS p ON p.tube = s.tube AND p.partition = s.partition
    ORDER BY s.kind DESC, s.tube, s.partition
""".replace("{state}", STATE)
_INSTANCES: Final = """
    SELECT i.tube, i.instance_id, i.client_id,
        extract(epoch FROM clock_timestamp() - i.seen_at)::float8 AS seen_ago
    FROM {s}.tube_instances() AS i
"""
_PARKED: Final = """
    SELECT k.tube, k.shard % t.partitions, count(*)
    FROM {s}.tube_parked AS k
    JOIN (SELECT DISTINCT tube, partitions FROM {s}.tube_list()) AS t ON t.tube = k.tube
    GROUP BY 1, 2
"""
_RETRYING: Final = """
    SELECT k.tube, k.shard % t.partitions, count(*)
    FROM {s}.tube_attempt AS k
    JOIN (SELECT DISTINCT tube, partitions FROM {s}.tube_list()) AS t ON t.tube = k.tube
    GROUP BY 1, 2
"""
# A worker keeps such a session, and names it after itself. Of several installations in one database,
# these are of all. Older versions have neither id nor version there.
_PROCESSES: Final = r"""
    SELECT substring(a.application_name, '^pytube listener ([0-9a-f]{{12}}) '),
        substring(a.application_name, '^pytube listener [0-9a-f]{{12}} (\S+)$'), a.pid
    FROM pg_catalog.pg_stat_activity AS a
    WHERE a.datname = pg_catalog.current_database() AND a.application_name ~ '^pytube listener( |$)'
    ORDER BY a.pid
"""


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
        """Likewise."""
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
    """When the partitions were read, which may be some samples ago: a moment of `time.monotonic()`."""
    heard: Heard | None = None
    """Of heartbeats at Kafka; None: nobody listens, since no configuration names a broker."""

    @property
    def not_read(self) -> list[str]:
        """What was not looked at, in sentences."""
        found = [f"{what} could not be seen by this role (tube_monitor may)" for what in self.unseen]
        if self.heard is None:
            if any(one.election == "neli" for one in self.partitions):
                found.append(
                    "heartbeats of workers at Kafka were not read: give the configuration of the workers "
                    "(--config), which names the broker"
                )
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


@dataclass(frozen=True, slots=True)
class Target:
    """A database to look at."""

    dsn: SecretStr
    schema: str = "tube"
    host: str | None = None
    config: Config | None = None
    """Of its workers; None: it is not known, so that nobody listens to their heartbeats."""


class FleetWatcher:
    """Takes samples. To be used by one thread at a time."""

    def __init__(self, targets: Sequence[Target], application_name: str = "pytube fleet") -> None:
        """Opens nothing yet."""
        self._hosts = [_Host(target, application_name) for target in targets]
        self._rated: dict[tuple[str | None, str], tuple[float, Queue]] = {}

    def sample(self) -> FleetSample:
        """Read all hosts. One that is down is told of, and tried again by the next sample."""
        hosts = [host.sample() for host in self._hosts]
        queues = [self._with_rates(queue, host.read_at) for host in hosts for queue in _queues(host)]
        return FleetSample(datetime.now(UTC), hosts, queues)

    def first_sample(self) -> FleetSample:
        """One sample alone, with what is heard at Kafka for a while before and after the databases are read.

        It takes 2 s where there is something to hear, and up to the receive deadline longer while a leader is
        silent.
        """
        self.sample()
        began = time.monotonic()
        for host in self._hosts:
            host.hear_leaders(began)
        self._listen_on()
        for host in self._hosts:
            host.forget_partitions()
        sample = self.sample()
        self._listen_on()
        heard = [
            replace(found, heard=host.heard()) for host, found in zip(self._hosts, sample.hosts, strict=True)
        ]
        return replace(sample, hosts=heard)

    def _listen_on(self) -> None:
        """Wait until each term that lives was heard; all hosts are listened to meanwhile."""
        for host in self._hosts:
            if host.listener is not None and host.listener.heard().problem is None:
                host.listener.wait(BEATING)
                return

    def close(self) -> None:
        """End the sessions."""
        for host in self._hosts:
            host.close()

    def _with_rates(self, queue: Queue, read_at: float) -> Queue:
        key = (queue.host, queue.name)
        at, before = self._rated.get(key, (read_at, queue))
        seconds, (added, taken) = read_at - at, queue.since(before)
        if not seconds:
            queue = replace(queue, rate_in=before.rate_in, rate_out=before.rate_out)
        elif added >= 0 and taken >= 0:  # else it was made anew, or its statistics were reset
            queue = replace(queue, rate_in=added / seconds, rate_out=taken / seconds)
        self._rated[key] = read_at, queue
        return queue


def _queues(host: HostSample) -> list[Queue]:
    found: dict[tuple[Literal["tube", "outbox"], str], list[Partition]] = {}
    for one in host.partitions:
        found.setdefault((one.kind, one.name), []).append(one)
    return [Queue(kind, name, partitions, host=host.host) for (kind, name), partitions in found.items()]


class _Paced(Generic[T]):
    """A value that is read anew only when many times its duration has passed."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._value: T
        self._due = 0.0

    def get(self) -> T:
        """The value."""
        began = time.monotonic()
        if began >= self._due:
            self._value = self._read()
            ended = time.monotonic()
            self._due = ended + (ended - began) * _RARELY
        return self._value


class _Host:
    """One host, and the session with it."""

    def __init__(self, target: Target, application_name: str) -> None:
        self._target = target
        self._application_name = application_name
        self._connection: psycopg.Connection | None = None
        self._partitions: list[Partition] = []
        self._read_at = 0.0
        self._due = 0.0
        self._unseen: dict[str, None] = {}
        self._outboxes = _Paced(lambda: self._if_allowed("what waits in outboxes", self._read_outboxes) or {})
        self._parked = _Paced(lambda: self._if_allowed("parked keys", lambda: self._keys(_PARKED)))
        self._retrying = _Paced(
            lambda: self._if_allowed("keys to be sent again", lambda: self._keys(_RETRYING))
        )
        self._processes = _Paced(lambda: [Process(*row) for row in self._rows(_PROCESSES)])
        self.listener: Listener | None = None
        """None: nobody listens, for `_why_deaf` where heartbeats are sent."""
        self._why_deaf: str | None = None
        if target.config is not None and target.config.election_kind == "neli":
            try:
                from pytube.health.listener import Listener
            except ImportError as error:
                self._why_deaf = f"the Kafka client is missing ({error}); install pytube-pg[kafka]"
            else:
                self.listener = Listener(target.config)

    def heard(self) -> Heard | None:
        """What was heard of heartbeats until now."""
        if self.listener is not None:
            return self.listener.heard()
        return None if self._why_deaf is None else Heard(time.monotonic(), 0.0, problem=self._why_deaf)

    def hear_leaders(self, began: float) -> None:
        """Listen until all leaders were heard, or should have been.

        Args:
            began: when all hosts began to listen.
        """
        if self.listener is None or self._connection is None:  # who leads is not known
            return
        led = [
            one
            for one in self._partitions
            if one.election == "neli" and one.leader is not None and one.state != "lost"
        ]
        patience = self.listener.heard().deadline + BEATING
        self.listener.wait(began + patience - time.monotonic(), lambda heard: heard.problem is None)
        # A broker that is slow to answer leaves less of that time, in which a leader has to have been silent.
        began = max(self.listener.heard().since.values(), default=began)
        self.listener.wait(
            began + patience - time.monotonic(),
            lambda heard: (
                heard.problem is None
                and all(heard.last_of(one.name, one.partition, one.leader, one.leader_id) for one in led)
            ),
        )

    def forget_partitions(self) -> None:
        """Have the next sample read them anew, however long that takes."""
        self._due = 0.0

    def sample(self) -> HostSample:
        """Read it; never raises for a database that is away or refuses."""
        host = self._target.host
        try:
            return self._sample()
        except PytubeError as error:
            down = str(error)
        except psycopg.Error as error:
            down = describe(error)
        self._disconnect()
        return HostSample(host, down=down)

    def _sample(self) -> HostSample:
        with translated():
            if self._connection is None or self._connection.closed:
                self._connection = self._open()
                self._due = 0.0
            if time.monotonic() >= self._due:
                self._read_partitions()
            partitions = [
                self._with_keys(one) if one.kind == "tube" else self._with_records(one)
                for one in self._partitions
            ]
            candidacies = [Candidacy(*row) for row in self._rows(_INSTANCES)]
            if self.listener is not None:
                self.listener.listen([(one.name, one.partition) for one in partitions])
            return HostSample(
                self._target.host,
                partitions,
                candidacies,
                self._processes.get(),
                list(self._unseen),
                read_at=self._read_at,
                heard=self.heard(),
            )

    def close(self) -> None:
        """End the session and what listens."""
        if self.listener is not None:
            self.listener.close()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> psycopg.Connection:
        target = self._target
        connection = connect_sync(target.dsn, target.schema, application_name=self._application_name)
        try:
            check(connection, target.schema)
        except BaseException:
            connection.close()
            raise
        return connection

    def _read_partitions(self) -> None:
        assert self._connection is not None
        with self._connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(within(_PARTITIONS, self._target.schema), {"most": MOST}).fetchall()
        took = max((row.pop("took") for row in rows), default=0.0)
        self._partitions = [Partition(**row, host=self._target.host) for row in rows]
        self._read_at = time.monotonic()
        self._due = self._read_at + took * _OFTEN

    def _rows(self, query: LiteralString) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        return self._connection.execute(within(query, self._target.schema)).fetchall()

    def _with_keys(self, one: Partition) -> Partition:
        """A partition of a tube with its keys that were set aside, or are to be sent again."""
        parked, retrying = self._parked.get(), self._retrying.get()
        key = (one.name, one.partition)
        return replace(
            one,
            parked=None if parked is None else parked.get(key, 0),
            retrying=None if retrying is None else retrying.get(key, 0),
        )

    def _with_records(self, one: Partition) -> Partition:
        """A partition of an outbox with its records."""
        found = self._outboxes.get().get((one.name, one.partition))
        if found is None:  # made a moment ago, or not to be seen
            return one
        waiting = found.waiting
        return replace(
            one,
            waiting=int(waiting) if waiting is not None and waiting.isdecimal() else waiting,
            lag=found.lag,
            parked=int(found.parked.rstrip("+")),
            problem=found.problem,
        )

    def _read_outboxes(self) -> dict[tuple[str, int], OutboxPartition]:
        assert self._connection is not None
        rows = read_outboxes(self._connection, self._target.schema, None)
        return {(row.outbox, row.partition): row for row in rows}

    def _keys(self, query: LiteralString) -> dict[tuple[str, int], int]:
        return {(tube, partition): count for tube, partition, count in self._rows(query)}

    def _if_allowed(self, what: str, read: Callable[[], T]) -> T | None:
        try:
            value = read()
        except errors.InsufficientPrivilege:
            self._unseen[what] = None
            return None
        self._unseen.pop(what, None)
        return value
