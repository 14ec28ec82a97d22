"""Takes samples of the fleet, cheap enough for once a second: for `top`, `web` and `status --fleet`.

A `FleetWatcher` keeps a session with each host. All that it sends only reads. Counts of pods stop at `MOST`,
because to count them is what costs. And what took long is read again only when many times its duration has
passed: a fleet of any usual size costs its database less than 1 % of a core, and a busy one is asked less.
Where workers prove their leadership at Kafka, it listens to their heartbeats there, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, LiteralString, TypeVar

import psycopg
from psycopg import errors
from psycopg.rows import dict_row
from pydantic import SecretStr

from pytube.config import Config
from pytube.db.connect import connect_sync
from pytube.db.errors import describe, translated
from pytube.db.version import check
from pytube.errors import PytubeError, how_to_install
from pytube.health.fleet import MOST, Candidacy, FleetSample, HostSample, Partition, Process, Queue
from pytube.health.heartbeats import BEATING, Heard
from pytube.outbox.admin import OutboxPartition, read_outboxes
from pytube.tubes.queries import STATE, within

if TYPE_CHECKING:
    from pytube.health.listener import Listener

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Pace:
    """How long a value is kept: `times` what it took to read it, and `longest` seconds at most."""

    times: float
    longest: float


# 0.4 % of a core each, since the time that passes is no less than the time on a core. Who leads is to be
# known soon, however slow a busy server was the last time.
_LEADING: Final = _Pace(240, 5)
_COUNTED: Final = _Pace(240, 30)
_UNBOUNDED: Final = _Pace(1000, 120)
"""What grows without bound: four things, 0.1 % of a core each."""

# Records of outboxes are counted by `read_outboxes`.
_LOADS: Final = """
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
        extract(epoch FROM clock_timestamp() - statement_timestamp())::float8 AS took
    FROM load AS s
    ORDER BY s.kind DESC, s.tube, s.partition
"""
_LEADERS: Final = """
    SELECT coalesce(l.tube, p.tube) AS name, coalesce(l.partition, p.partition) AS partition,
        l.client_id AS leader, l.leader_id, l.instance_id, l.election, l.epoch,
        extract(epoch FROM clock_timestamp() - l.acquired_at)::float8 AS leads_for,
        extract(epoch FROM clock_timestamp() - l.renewed_at)::float8 AS renewed_ago,
        {state} AS state,
        l.sink_down, extract(epoch FROM clock_timestamp() - l.sink_down_since)::float8 AS sink_down_for,
        l.source_down, extract(epoch FROM clock_timestamp() - l.source_down_since)::float8 AS source_down_for,
        p.reason AS paused, p.kind AS paused_kind,
        extract(epoch FROM p.until - clock_timestamp())::float8 AS paused_for,
        extract(epoch FROM clock_timestamp() - statement_timestamp())::float8 AS took
    FROM {s}.tube_leaders() AS l
    FULL JOIN {s}.tube_pause_list() AS p ON p.tube = l.tube AND p.partition = l.partition
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


_NOBODY: Final[dict[str, Any]] = dict.fromkeys(
    (
        *("leader", "leader_id", "instance_id", "election", "epoch", "leads_for", "renewed_ago"),
        *("sink_down", "sink_down_for", "source_down", "source_down_for"),
        *("paused", "paused_kind", "paused_for"),
    )
) | {"state": "free"}
"""What `_LEADERS` has of no partition that nobody leads or pauses."""


@dataclass(frozen=True, slots=True)
class Target:
    """A database to look at."""

    dsn: SecretStr
    schema: str = "tube"
    host: str | None = None
    config: Config | None = None
    """Of its workers; None: it is not known, so that nobody listens to their heartbeats."""
    why_deaf: str = "give the configuration of the workers (--config), which names the broker"
    """Why it is not known, and what to do."""


class FleetWatcher:
    """Takes samples. To be used by one thread at a time."""

    def __init__(self, targets: Sequence[Target], application_name: str = "pytube fleet") -> None:
        """Opens nothing yet."""
        self._hosts = [_Host(target, application_name) for target in targets]
        self._rated: dict[tuple[str | None, str], tuple[float, Queue]] = {}

    def sample(self) -> FleetSample:
        """Read all hosts. One that is down is told of, and tried again by the next sample."""
        hosts = [host.sample() for host in self._hosts]
        queues = [self._with_rates(queue, host.counted_at) for host in hosts for queue in _queues(host)]
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

    def _with_rates(self, queue: Queue, counted_at: float) -> Queue:
        key = (queue.host, queue.name)
        at, before = self._rated.get(key, (counted_at, queue))
        seconds, (added, taken) = counted_at - at, queue.since(before)
        if not seconds:
            queue = replace(queue, rate_in=before.rate_in, rate_out=before.rate_out)
        elif added >= 0 and taken >= 0:  # else it was created again, or its statistics were reset
            queue = replace(queue, rate_in=added / seconds, rate_out=taken / seconds)
        self._rated[key] = counted_at, queue
        return queue


def _queues(host: HostSample) -> list[Queue]:
    found: dict[tuple[Literal["tube", "outbox"], str], list[Partition]] = {}
    for one in host.partitions:
        found.setdefault((one.kind, one.name), []).append(one)
    return [Queue(kind, name, partitions, host=host.host) for (kind, name), partitions in found.items()]


class _Paced(Generic[T]):
    """A value that is kept for many times as long as it took to read it."""

    def __init__(self, pace: _Pace, read: Callable[[], tuple[T, float]]) -> None:
        """`read` gives the value, and the seconds that it took whoever is to be spared."""
        self._pace = pace
        self._read = read
        self._value: T
        self.read_at = 0.0
        self._due = 0.0

    def get(self) -> T:
        """The value."""
        if time.monotonic() >= self._due:
            self._value, took = self._read()
            self.read_at = time.monotonic()
            self._due = self.read_at + min(took * self._pace.times, self._pace.longest)
        return self._value

    def forget(self) -> None:
        """Have it read again, however long that takes."""
        self._due = 0.0


def _timed(read: Callable[[], T]) -> Callable[[], tuple[T, float]]:
    def timed() -> tuple[T, float]:
        began = time.monotonic()
        return read(), time.monotonic() - began

    return timed


class _Host:
    """One host, and the session with it."""

    def __init__(self, target: Target, application_name: str) -> None:
        self._target = target
        self._application_name = application_name
        self._connection: psycopg.Connection | None = None
        self._partitions: list[Partition] = []
        self._unseen: dict[str, None] = {}
        self._loads = _Paced(_COUNTED, lambda: self._read_by_name(_LOADS))
        self._leaders = _Paced(_LEADING, lambda: self._read_by_name(_LEADERS))
        self._outboxes = self._rarely(
            lambda: self._if_allowed("what waits in outboxes", self._read_outboxes) or {}
        )
        self._parked = self._rarely(lambda: self._if_allowed("parked keys", lambda: self._keys(_PARKED)))
        self._retrying = self._rarely(
            lambda: self._if_allowed("keys to be sent again", lambda: self._keys(_RETRYING))
        )
        self._processes = self._rarely(lambda: [Process(*row) for row in self._rows(_PROCESSES)])
        self.listener: Listener | None = None
        """None: nobody listens, for `_why_deaf`."""
        self._why_deaf = target.why_deaf
        if target.config is not None and target.config.election_kind == "neli":
            try:
                from pytube.health.listener import Listener
            except ImportError as error:
                self._why_deaf = f"the Kafka client is missing ({error}): {how_to_install('kafka')}"
            else:
                self.listener = Listener(target.config)

    def heard(self) -> Heard | None:
        """What was heard of heartbeats until now."""
        return None if self.listener is None else self.listener.heard()

    def hear_leaders(self, began: float) -> None:
        """Listen until all leaders were heard, or should have been.

        Args:
            began: when all hosts began to listen.
        """
        if self.listener is None or self._connection is None:  # who leads is not known
            return
        led = [one for one in self._partitions if one.election == "neli" and one.is_led]
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
        """Have the next sample read them again, however long that takes."""
        self._loads.forget()
        self._leaders.forget()

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
                self.forget_partitions()
            leaders, host = self._leaders.get(), self._target.host
            self._partitions = [
                Partition(**(load | leaders.get(key, _NOBODY)), host=host)
                for key, load in self._loads.get().items()
            ]
            partitions = [
                self._with_keys(one) if one.kind == "tube" else self._with_records(one)
                for one in self._partitions
            ]
            candidacies = [Candidacy(*row) for row in self._rows(_INSTANCES)]
            if self.listener is not None:
                self.listener.listen([(one.name, one.partition) for one in partitions])
            return HostSample(
                host,
                partitions,
                candidacies,
                self._processes.get(),
                list(self._unseen),
                read_at=self._leaders.read_at,
                counted_at=self._loads.read_at,
                heard=self.heard(),
                why_deaf=self._why_deaf,
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

    def _read_by_name(self, query: LiteralString) -> tuple[dict[tuple[str, int], dict[str, Any]], float]:
        """Rows by tube and partition, and the seconds that they took the server."""
        assert self._connection is not None
        with self._connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(within(query, self._target.schema), {"most": MOST}).fetchall()
        took = max((row.pop("took") for row in rows), default=0.0)
        return {(row["name"], row["partition"]): row for row in rows}, took

    def _rows(self, query: LiteralString) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        return self._connection.execute(within(query, self._target.schema)).fetchall()

    @staticmethod
    def _rarely(read: Callable[[], T]) -> _Paced[T]:
        return _Paced(_UNBOUNDED, _timed(read))

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
