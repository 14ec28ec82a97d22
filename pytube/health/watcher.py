"""The one reading of the fleet, for `status`, `doctor`, `top`, `web` and the metrics.

A `Reader` reads a host, a `FleetWatcher` all of them, and keeps a session with each. All that is sent only
reads. At a glance, which is cheap enough for once a second, counts of pods stop at `MOST`, because to count
them is what costs; more are an estimate. And what took long is read again only when many times its duration
has passed: a fleet of any usual size costs its database less than 1 % of a core, and a busy one is asked less
often.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, LiteralString, TypeVar

import psycopg
from psycopg import errors

from pytube.db.database import Database
from pytube.db.errors import translated
from pytube.errors import PytubeError
from pytube.health.fleet import (
    MOST,
    SILENT,
    Back,
    Candidacy,
    Complaint,
    Count,
    FleetSample,
    Hindrance,
    HostSample,
    LastSample,
    Partition,
    Process,
    Queue,
    Unverified,
    digits,
)
from pytube.outbox.admin import OutboxPartition, read_outboxes
from pytube.tubes.queries import FAILING, STATE, TOOK, timed, within

T = TypeVar("T")
_Rows = dict[tuple[str, int], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Pace:
    """How long a value is kept: `times` the duration of reading it, and `longest` seconds at most."""

    times: float
    longest: float


# 0.4 % of a core each, since the time that passes is at least the time on a core. Leaders have to be
# known soon, however slow a busy server was the last time.
_LEADING: Final = _Pace(240, 5)
_COUNTED: Final = _Pace(240, 30)
_UNBOUNDED: Final = _Pace(1000, 120)
"""What grows without bound: four things, 0.1 % of a core each."""

_ALWAYS: Final = _Pace(0, 0)
PACE_LOOK: Final = 3.0
"""Seconds between two samples that show how fast the backlog falls."""
_LATELY: Final = 10.0

# Records of outboxes are counted by `read_outboxes`.
_GLANCE: Final = """
    SELECT 'tube' AS kind, s.tube AS name, s.partition, s.waiting, s.backfill, NULL AS control,
        s.since, s.backfill_since, s.inserted, s.deleted, w.ids, w.sampled
    FROM {s}.tube_load(%(most)s) AS s LEFT JOIN {s}.tube_ids_waiting() AS w USING (tube, partition)
"""
_EXACT: Final = """
    SELECT 'tube' AS kind, s.tube AS name, s.partition, s.inc_count AS waiting, s.backfill_count AS backfill,
        s.control_count AS control, s.inc_min_ts AS since, s.backfill_min_ts AS backfill_since,
        coalesce(pg_catalog.pg_stat_get_tuples_inserted(t.oid), 0) AS inserted,
        coalesce(pg_catalog.pg_stat_get_tuples_deleted(t.oid), 0) AS deleted, w.ids, w.sampled
    FROM {s}.tube_stats() AS s
    LEFT JOIN {s}.tube_ids_waiting() AS w USING (tube, partition)
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = %(schema)s
    LEFT JOIN pg_catalog.pg_class AS t ON t.relnamespace = n.oid AND t.relname = s.tube
"""
_NO_TUBES: Final = f"{_GLANCE} WHERE false"  # so none of the functions is called
_LOADS: Final = """
    WITH load AS (
        {of_tubes}
        UNION ALL
        SELECT 'outbox', o.outbox, n.partition, NULL, NULL, NULL, NULL, NULL,
            pg_catalog.pg_stat_get_tuples_inserted(o.tbl), pg_catalog.pg_stat_get_tuples_deleted(o.tbl),
            NULL, NULL
        FROM {s}.outbox_list() AS o
        CROSS JOIN LATERAL pg_catalog.generate_series(0, o.partitions - 1) AS n (partition)
    )
    SELECT s.kind, s.name, s.partition, s.waiting, s.backfill, s.control,
        extract(epoch FROM clock_timestamp() - s.since)::float8 AS lag,
        extract(epoch FROM clock_timestamp() - s.backfill_since)::float8 AS backfill_lag,
        s.inserted, s.deleted, s.ids, s.sampled, r.companion_of, {took}
    FROM load AS s LEFT JOIN {s}.tube_registry AS r ON r.tube = s.name
    ORDER BY s.kind DESC, s.name, s.partition
""".replace("{took}", TOOK)
_LEADERS: Final = (
    """
    SELECT coalesce(l.tube, p.tube, f.tube) AS name,
        coalesce(l.partition, p.partition, f.partition) AS partition,
        l.client_id AS leader, l.instance_id, l.election, l.epoch,
        extract(epoch FROM clock_timestamp() - l.acquired_at)::float8 AS leads_for,
        extract(epoch FROM clock_timestamp() - l.renewed_at)::float8 AS renewed_ago,
        extract(epoch FROM l.runs_out - clock_timestamp())::float8 AS runs_out_in,
        {state} AS state,
        l.sink_down, extract(epoch FROM clock_timestamp() - l.sink_down_since)::float8 AS sink_down_for,
        extract(epoch FROM l.sink_next_at - clock_timestamp())::float8 AS sink_tried_in,
        l.source_down, extract(epoch FROM clock_timestamp() - l.source_down_since)::float8 AS source_down_for,
        extract(epoch FROM l.source_next_at - clock_timestamp())::float8 AS source_tried_in,
        p.reason AS paused, p.kind AS paused_kind, p.until::text AS paused_until,
        extract(epoch FROM p.until - clock_timestamp())::float8 AS paused_for, {failing}, {took}
    FROM {s}.tube_leaders() AS l
    FULL JOIN {s}.tube_pause_list() AS p ON p.tube = l.tube AND p.partition = l.partition
    FULL JOIN {s}.tube_failing_list() AS f
        ON f.tube = coalesce(l.tube, p.tube) AND f.partition = coalesce(l.partition, p.partition)
""".replace("{state}", STATE)
    .replace("{failing}", FAILING)
    .replace("{took}", TOOK)
)
# A worker that looks at the sink after these backfills have finished accepts it (tube_sink_note).
_EMPTIED: Final = """
    SELECT k.tube, extract(epoch FROM clock_timestamp() - k.emptied_at)::float8, CASE
        WHEN EXISTS (
            SELECT FROM {s}.tube_backfill AS b
            WHERE b.tube = k.tube AND b.created_at > k.emptied_at
                AND b.state IN ('waiting', 'inserting', 'delivering'))
            THEN 'under way'
        WHEN (
            SELECT bool_and(EXISTS (
                SELECT FROM {s}.tube_backfill AS b
                WHERE b.tube = l.tube AND b.tbl = l.tbl AND b.created_at > k.emptied_at
                    AND b.state = 'finished'))
            FROM {s}.tube_list() AS l WHERE l.tube = k.tube AND l.root)
            THEN 'finished' END
    FROM {s}.tube_sink_list() AS k WHERE k.emptied_at IS NOT NULL
"""
_INSTANCES: Final = """
    SELECT i.tube, i.instance_id, i.client_id,
        extract(epoch FROM clock_timestamp() - i.seen_at)::float8 AS seen_ago
    FROM {s}.tube_instances() AS i
"""
_KEYS: Final = """
    SELECT k.tube, k.shard %% t.partitions, count(*), {error}
    FROM {s}.{of} AS k
    JOIN (SELECT DISTINCT tube, partitions FROM {s}.tube_list()) AS t ON t.tube = k.tube
    GROUP BY 1, 2
"""
_LAST_ERROR: Final = "(array_agg(k.error ORDER BY k.parked_at DESC))[1]"
_PARKED: Final = _KEYS.replace("{of}", "tube_parked").replace("{error}", _LAST_ERROR)
_RETRYING: Final = _KEYS.replace("{of}", "tube_attempt").replace("{error}", "NULL")
_COMPLAINTS: Final = """
    SELECT k.tube, k.use, k.bootstrap_servers, k.client_id, k.reason, k.since, k.seen_at
    FROM {s}.tube_kafka_unreachable() AS k
"""
_BACK: Final = """
    SELECT k.tube, k.client_id, left(replace(k.instance_id::text, '-', ''), 12),
        extract(epoch FROM clock_timestamp() - k.back_at)::float8
    FROM {s}.tube_kafka_back() AS k
"""
_HINDERED: Final = """
    SELECT h.tube, h.partition, h.what, h.reason, extract(epoch FROM clock_timestamp() - h.since)::float8
    FROM {s}.tube_hindered_list() AS h
    ORDER BY h.tube, h.what, h.partition
"""
_UNVERIFIED: Final = """
    SELECT u.tube, u.cause, pg_catalog.date_trunc('second', u.since)::text, u.is_certain, u.detail, r.kind
    FROM {s}.tube_unverified_list() AS u JOIN {s}.tube_registry AS r ON r.tube = u.tube
"""
_SAMPLES: Final = """
    SELECT s.tube, s.checked, s.differing, s.undecided,
        extract(epoch FROM clock_timestamp() - s.ended_at)::float8
    FROM {s}.tube_sample AS s ORDER BY s.tube
"""
# A worker keeps such sessions, and names them after itself; it renews every few seconds, terms or none. Of
# several installations in one database, these are of all. Older versions have neither id nor version there.
# What a session does is seen by its own role, and by members of pg_read_all_stats.
_PROCESSES: Final = r"""
    SELECT substring(a.application_name, '^pytube listener ([0-9a-f]{{12}}) '),
        substring(a.application_name, '^pytube listener [0-9a-f]{{12}} (\S+)$'),
        (SELECT extract(epoch FROM clock_timestamp() - max(r.state_change))::float8
         FROM pg_catalog.pg_stat_activity AS r
         WHERE r.datname = a.datname
             AND r.application_name = pg_catalog.replace(a.application_name, 'listener', 'renewals'))
    FROM pg_catalog.pg_stat_activity AS a
    WHERE a.datname = pg_catalog.current_database() AND a.application_name ~ '^pytube listener( |$)'
    ORDER BY a.pid
"""
# The last term of each of these processes.
_FORMER: Final = """
    SELECT DISTINCT ON (i.instance) i.instance, t.client_id,
        CASE WHEN t.outcome = 'superseded' THEN extract(epoch FROM clock_timestamp() - t.ended_at)::float8 END
    FROM pg_catalog.unnest(%(tubes)s::text[]) AS f (tube)
    CROSS JOIN LATERAL {s}.tube_terms(f.tube) AS t
    JOIN pg_catalog.unnest(%(instances)s::text[]) AS i (instance)
        ON i.instance = pg_catalog.left(pg_catalog.replace(t.instance_id::text, '-', ''), 12)
    ORDER BY i.instance, t.ended_at DESC NULLS FIRST
"""


class FleetWatcher:
    """Takes samples. To be used by one thread at a time."""

    def __init__(
        self,
        databases: Sequence[Database],
        application_name: str = "pytube fleet",
        *,
        exact: bool = False,
        tubes: bool = True,
    ) -> None:
        """Opens nothing yet. `exact`, `tubes`: as of `Reader`."""
        self._hosts = [_Host(one, application_name, exact=exact, tubes=tubes) for one in databases]
        self._lately: dict[tuple[str | None, str], deque[tuple[float, Queue]]] = {}
        """The samples of the last seconds, the oldest first."""

    def sample(self) -> FleetSample:
        """Read all hosts. A host that is down is reported, and tried again by the next sample."""
        hosts = [host.sample() for host in self._hosts]
        queues = [self._with_rates(queue, host.counted_at) for host in hosts for queue in queues_of(host)]
        return FleetSample(datetime.now(UTC), hosts, queues)

    def close(self) -> None:
        """End the sessions."""
        for host in self._hosts:
            host.close()

    def _with_rates(self, queue: Queue, counted_at: float) -> Queue:
        """With its rates since the oldest look of the last seconds, as Postgres counts a second late.

        Whether it catches up is said only if the newest look says the same: earlier writes may have ended.
        """
        lately = self._lately.setdefault((queue.host, queue.name), deque())
        if lately and any(number < 0 for number in queue.since(lately[0][1])):
            lately.clear()  # it was created again, or its statistics were reset
        if not lately or counted_at > lately[-1][0]:
            lately.append((counted_at, queue))
        while len(lately) > 1 and lately[1][0] <= counted_at - _LATELY:
            lately.popleft()
        at, before = lately[0]
        if not (seconds := counted_at - at):
            return queue
        added, taken = queue.since(before)
        falls_by = queue.falls_since(before, seconds) if seconds >= PACE_LOOK else None
        if queue.kind == "tube" and falls_by is not None:  # the records of an outbox are counted late
            looks = ((look, counted_at - then) for then, look in reversed(lately))
            now = next(queue.falls_since(look, ago) for look, ago in looks if ago >= PACE_LOOK)
            falls_by = falls_by if falls_by * (now or 0.0) > 0 else None
        return replace(queue, rate_in=added / seconds, rate_out=taken / seconds, falls_by=falls_by)


def queues_of(host: HostSample) -> list[Queue]:
    """The sample of a host, by tube and outbox; no rates."""
    found: dict[tuple[Literal["tube", "outbox"], str], list[Partition]] = {}
    for one in host.partitions:
        found.setdefault((one.kind, one.name), []).append(one)
    return [Queue(kind, name, partitions, host=host.host) for (kind, name), partitions in found.items()]


class _Paced(Generic[T]):
    """A value that is kept for many times as long as it took to read it."""

    def __init__(self, pace: _Pace, read: Callable[[psycopg.Connection], tuple[T, float]]) -> None:
        """`read` gives the value, and the seconds that it took whoever is to be spared."""
        self._pace = pace
        self._read = read
        self._value: T
        self.read_at = 0.0
        self.took = 0.0
        """Of the last reading."""
        self._due = 0.0

    def get(self, connection: psycopg.Connection) -> T:
        if time.monotonic() >= self._due:
            self._value, self.took = self._read(connection)
            self.read_at = time.monotonic()
            self._due = self.read_at + min(self.took * self._pace.times, self._pace.longest)
        return self._value

    def forget(self) -> None:
        self._due = 0.0


class Reader:
    """Reads the state of one host, over any session with it."""

    def __init__(
        self, schema: str, host: str | None = None, *, exact: bool = True, tubes: bool = True
    ) -> None:
        """`exact`: each reading reads everything, and counts as far as the SQL does, control pods, too.

        `tubes`: whether tubes are read, or outboxes alone.
        """
        self._schema = schema
        self._host = host
        self._exact = exact
        self._of_tubes = (_EXACT if exact else _GLANCE) if tubes else _NO_TUBES
        self._unseen: dict[str, None] = {}
        self._loads = self._paced(_COUNTED, self._read_loads)
        self._leaders = self._paced(_LEADING, lambda it: self._by_partition(it, _LEADERS))
        seen = self._if_allowed
        self._outboxes = self._rarely(seen("backlogs of outboxes", self._read_outboxes))
        self._parked = self._rarely(seen("parked keys", lambda it: self._keys(it, _PARKED)))
        self._retrying = self._rarely(seen("keys to be sent again", lambda it: self._keys(it, _RETRYING)))
        self._processes = self._rarely(lambda it: [Process(*row) for row in self._rows(it, _PROCESSES)])
        verification = seen("copies to verify", self._read_verification)
        self._verification = self._paced(_LEADING, _timed(verification))
        self._paced_ones: list[_Paced[Any]] = [self._loads, self._leaders, self._outboxes, self._parked]

    def forget(self) -> None:
        """Have the partitions read again by the next reading, however long that takes."""
        self._loads.forget()
        self._leaders.forget()

    def read(self, connection: psycopg.Connection) -> HostSample:
        """Read it, over an autocommit session with pytube's SQL in the needed version.

        Raises:
            InsufficientPrivilege: the role may not even see who leads.
        """
        leaders, loads = self._leaders.get(connection), self._loads.get(connection)
        emptied = {tube: found for tube, *found in self._rows(connection, _EMPTIED)}
        outboxes = self._outboxes.get(connection) or {}
        parked, retrying = self._parked.get(connection), self._retrying.get(connection)
        partitions = []
        for key, load in loads.items():
            found = load | leaders.get(key, {})
            if load["kind"] == "tube":
                found["sink_emptied_for"], found["refill"] = emptied.get(key[0], (None, None))
                if parked is not None:
                    number, found["parked_error"] = parked.get(key, (0, None))
                    found["parked"] = Count(number)
                found["retrying"] = None if retrying is None else retrying.get(key, (0, None))[0]
            elif key in outboxes:  # else it was made a moment ago, or is not to be seen
                found |= _records(outboxes[key])
            partitions.append(Partition(**found, host=self._host))
        unverified, samples = self._verification.get(connection) or ((), ())
        candidacies = [Candidacy(*row) for row in self._rows(connection, _INSTANCES)]
        return HostSample(
            self._host,
            partitions,
            candidacies,
            self._with_names(connection, self._processes.get(connection), partitions, candidacies),
            [replace(Complaint(*row), host=self._host) for row in self._rows(connection, _COMPLAINTS)],
            [replace(Hindrance(*row), host=self._host) for row in self._rows(connection, _HINDERED)],
            list(self._unseen),
            counted_at=self._loads.read_at,
            took=sum(one.took for one in self._paced_ones),
            unverified=unverified,
            back=[Back(*row) for row in self._rows(connection, _BACK)],
            samples=samples,
        )

    def _with_names(
        self,
        connection: psycopg.Connection,
        processes: Sequence[Process],
        partitions: Sequence[Partition],
        candidacies: Sequence[Candidacy],
    ) -> list[Process]:
        """The processes, with the names that those have had who lead nothing and want nothing, or hang."""
        led = {one.instance_id for one in partitions if one.leader}
        known = {digits(one) for one in led | {one.instance_id for one in candidacies} if one is not None}
        instances = [
            one.instance
            for one in processes
            if one.instance and (one.instance not in known or (one.silent_for or 0.0) >= SILENT)
        ]
        if not instances:
            return list(processes)
        what = {"instances": instances, "tubes": sorted({one.name for one in partitions})}
        rows = connection.execute(within(_FORMER, self._schema), what).fetchall()
        former = {instance: (client_id, ago) for instance, client_id, ago in rows}
        return [
            one
            if one.instance not in former
            else replace(one, client_id=former[one.instance][0], fenced_ago=former[one.instance][1])
            for one in processes
        ]

    def _paced(self, pace: _Pace, read: Callable[[psycopg.Connection], tuple[T, float]]) -> _Paced[T]:
        return _Paced(_ALWAYS if self._exact else pace, read)

    def _rarely(self, read: Callable[[psycopg.Connection], T]) -> _Paced[T]:
        return self._paced(_UNBOUNDED, _timed(read))

    def _read_loads(self, connection: psycopg.Connection) -> tuple[_Rows, float]:
        rows, took = self._by_partition(connection, _LOADS.replace("{of_tubes}", self._of_tubes))
        for row in rows.values():
            for name in ("waiting", "backfill", "control"):
                if isinstance(row[name], str):
                    row[name] = Count.of(row[name])
                elif row[name] is not None:
                    row[name] = Count.up_to(row[name], MOST)
            ids, is_sampled = row.pop("ids"), row.pop("sampled")
            row["documents"] = None if ids is None else Count(ids, is_sampled)
        return rows, took

    def _by_partition(self, connection: psycopg.Connection, query: LiteralString) -> tuple[_Rows, float]:
        """Rows by tube and partition, and the seconds that they took the server."""
        rows, took = timed(connection, within(query, self._schema), {"most": MOST, "schema": self._schema})
        return {(row["name"], row["partition"]): row for row in rows}, took

    def _rows(self, connection: psycopg.Connection, query: LiteralString) -> list[tuple[Any, ...]]:
        return connection.execute(within(query, self._schema), {}).fetchall()

    def _keys(
        self, connection: psycopg.Connection, query: LiteralString
    ) -> dict[tuple[str, int], tuple[int, str | None]]:
        """How many keys, and the error of one, by tube and partition."""
        rows = self._rows(connection, query)
        return {(tube, partition): (count, error) for tube, partition, count, error in rows}

    def _read_outboxes(self, connection: psycopg.Connection) -> dict[tuple[str, int], OutboxPartition]:
        rows = read_outboxes(connection, self._schema, None)
        return {(row.outbox, row.partition): row for row in rows}

    def _read_verification(self, connection: psycopg.Connection) -> tuple[list[Unverified], list[LastSample]]:
        return (
            [Unverified(*row) for row in self._rows(connection, _UNVERIFIED)],
            [LastSample(*row) for row in self._rows(connection, _SAMPLES)],
        )

    def _if_allowed(
        self, what: str, read: Callable[[psycopg.Connection], T]
    ) -> Callable[[psycopg.Connection], T | None]:
        def read_it(connection: psycopg.Connection) -> T | None:
            try:
                value = read(connection)
            except errors.InsufficientPrivilege:
                self._unseen[what] = None
                return None
            self._unseen.pop(what, None)
            return value

        return read_it


def _records(row: OutboxPartition) -> dict[str, Any]:
    return {
        "waiting": None if row.waiting is None else Count.of(row.waiting),
        "lag": row.lag,
        "parked": Count.of(row.parked),
        "parked_error": row.parked_error,
        "parked_failed": row.parked_failed,
        "parked_behind": row.parked_behind,
        "parked_overtaken": row.parked_overtaken,
        "problem": row.problem,
        "resting": row.resting,
    }


def _timed(read: Callable[[psycopg.Connection], T]) -> Callable[[psycopg.Connection], tuple[T, float]]:
    def timed(connection: psycopg.Connection) -> tuple[T, float]:
        began = time.monotonic()
        return read(connection), time.monotonic() - began

    return timed


class _Host:
    """One host, and the session with it."""

    def __init__(self, database: Database, application_name: str, *, exact: bool, tubes: bool) -> None:
        self._database = database
        self._application_name = application_name
        self._connection: psycopg.Connection | None = None
        self._reader = Reader(database.schema, database.host, exact=exact, tubes=tubes)

    def sample(self) -> HostSample:
        """Read it; never raises for a database that is away or refuses."""
        try:
            with translated():
                if self._connection is None or self._connection.closed:
                    self._connection = self._database.open(self._application_name)
                    self._reader.forget()
                return self._reader.read(self._connection)
        except (PytubeError, psycopg.Error) as error:
            self.close()
            return HostSample(self._database.host, error=error)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
