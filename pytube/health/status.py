"""What is going on: one row per partition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import psycopg
from psycopg import errors

from pytube.db.errors import translated
from pytube.tubes.queries import STATE, TOOK, timed, within

_STATUS: Final = """
    SELECT s.tube, s.partition, s.inc_count AS waiting, s.backfill_count AS backfill,
        s.control_count AS control,
        extract(epoch FROM clock_timestamp() - s.inc_min_ts)::float8 AS lag,
        extract(epoch FROM clock_timestamp() - s.backfill_min_ts)::float8 AS backfill_lag,
        l.client_id AS leader, l.election, l.epoch,
        extract(epoch FROM clock_timestamp() - l.acquired_at)::float8 AS leads_for,
        extract(epoch FROM clock_timestamp() - l.renewed_at)::float8 AS renewed_ago,
        {state} AS state,
        l.sink_down, extract(epoch FROM clock_timestamp() - l.sink_down_since)::float8 AS sink_down_for,
        l.source_down, extract(epoch FROM clock_timestamp() - l.source_down_since)::float8 AS source_down_for,
        p.reason AS paused, p.kind AS paused_kind,
        extract(epoch FROM p.until - clock_timestamp())::float8 AS paused_for,
        {took}
    FROM {s}.tube_stats() AS s
    LEFT JOIN {s}.tube_leaders() AS l ON l.tube = s.tube AND l.partition = s.partition
    LEFT JOIN {s}.tube_pause_list() AS p ON p.tube = s.tube AND p.partition = s.partition
    ORDER BY s.tube, s.partition
""".replace("{state}", STATE).replace("{took}", TOOK)

_PARKED: Final = """
    SELECT p.tube, p.shard %% t.partitions AS partition, count(*) AS parked, {took}
    FROM {s}.tube_parked AS p
    JOIN (SELECT DISTINCT tube, partitions FROM {s}.tube_list()) AS t ON t.tube = p.tube
    GROUP BY 1, 2
""".replace("{took}", TOOK)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. Counts of pods are texts: exact below 1000, estimates above."""

    tube: str
    partition: int
    waiting: str
    backfill: str
    control: str
    lag: float | None
    """Age of the oldest waiting pod in seconds; None when none waits."""

    backfill_lag: float | None
    """Age of the oldest waiting backfill pod in seconds; None when none waits."""

    leader: str | None
    """Client id of the leader, or of the one that is lost; None when the partition is free."""

    election: str | None
    epoch: int | None
    leads_for: float | None
    renewed_ago: float | None
    state: str
    """`leads`; `free`: nobody leads; `lost`: the term ran out without being released; `sink down` or
    `source down`: the leader can't deliver; `pausing`: an operator has paused it, and its leader has not come
    to rest yet; `paused`: it has; `stopped`: a worker has stopped the tube."""

    sink_down: str | None
    """Why the sink takes nothing; None while it does, or nobody leads. `sink_down_for`: seconds."""

    sink_down_for: float | None
    source_down: str | None
    """Why rows can't be read; None while they can, or nobody leads. `source_down_for`: seconds."""

    source_down_for: float | None
    paused: str | None
    """Why it is paused, also while nobody leads; None when it is not."""

    paused_kind: str | None
    """`operator`, or why a worker has stopped the tube: `poison` or `park_limit`."""

    paused_for: float | None
    """Seconds until the pause ends; None: when somebody resumes it."""

    parked: int | None = None
    """Keys set aside; None when this role may not see them."""

    host: str | None = None
    """The Postgres host, where there are several."""


def read_status(
    connection: psycopg.Connection, schema: str, tube: str | None = None
) -> list[PartitionStatus]:
    """The partitions of `tube`, or of all, by tube and partition."""
    return timed_status(connection, schema, tube)[0]


def timed_status(
    connection: psycopg.Connection, schema: str, tube: str | None = None
) -> tuple[list[PartitionStatus], float]:
    """As `read_status`, and how many seconds that has taken the server."""
    with translated():
        rows, took = timed(connection, within(_STATUS, schema), {})
        parked, more = _parked(connection, schema)
    found = [PartitionStatus(**row) for row in rows if tube is None or row["tube"] == tube]
    if parked is not None:
        found = [replace(row, parked=parked.get((row.tube, row.partition), 0)) for row in found]
    return found, took + more


def _parked(connection: psycopg.Connection, schema: str) -> tuple[dict[tuple[str, int], int] | None, float]:
    try:
        rows, took = timed(connection, within(_PARKED, schema), {})
    except errors.InsufficientPrivilege:
        return None, 0.0
    return {(row["tube"], row["partition"]): row["parked"] for row in rows}, took
