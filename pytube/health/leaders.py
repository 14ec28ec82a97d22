"""The doctor's look at delivery: whether each partition has a leader, and what keeps it from delivering."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import psycopg
from psycopg.rows import class_row

from pytube.clock import for_people
from pytube.config import Config
from pytube.counts import name_partitions, say_count
from pytube.health.findings import Check, fail, is_expected, of_others, ok, warn
from pytube.tubes.queries import within

_PATIENCE = 10.0
"""Seconds without a leader while something waits: a hand-over, or a worker's start, is over by then."""
_MOST = 1000
"""Pods, records and parked keys are counted up to here."""

_PARTITIONS: Final = """
    WITH leader AS MATERIALIZED (
        SELECT * FROM {s}.tube_leaders()
    ), part AS MATERIALIZED (
        SELECT w.tube, 'tube' AS kind, w.partition, w.waiting + w.backfill AS waiting,
            least(w.since, w.backfill_since) AS since, NULL AS problem
        FROM {s}.tube_load(%(most)s) AS w
        UNION ALL
        SELECT s.outbox, 'outbox', s.partition, regexp_replace(s.count, '\\D', '', 'g')::bigint,
            s.min_create_time, s.problem
        FROM {s}.outbox_stats() AS s
    ), free AS (
        SELECT DISTINCT p.tube FROM part AS p
        WHERE NOT EXISTS (SELECT FROM leader AS l WHERE l.tube = p.tube AND l.partition = p.partition)
    ), ended AS (
        SELECT t.tube, t.partition, max(t.ended_at) AS at
        FROM free AS f CROSS JOIN LATERAL {s}.tube_terms(f.tube) AS t
        GROUP BY t.tube, t.partition
    )
    SELECT p.tube, p.kind, p.partition, p.waiting, p.problem,
        extract(epoch FROM clock_timestamp() - p.since)::float8 AS oldest,
        extract(epoch FROM clock_timestamp() - greatest(p.since, e.at))::float8 AS unled,
        l.client_id AS leader, l.lost,
        extract(epoch FROM clock_timestamp() - l.renewed_at)::float8 AS renewed_ago,
        l.sink_down, l.source_down, h.kind AS pause, h.reason, h.until::text AS until
    FROM part AS p
    LEFT JOIN leader AS l ON l.tube = p.tube AND l.partition = p.partition
    LEFT JOIN {s}.tube_pause_list() AS h ON h.tube = p.tube AND h.partition = p.partition
    LEFT JOIN ended AS e ON e.tube = p.tube AND e.partition = p.partition
    ORDER BY p.kind DESC, p.tube, p.partition
"""

_PARKED: Final = """
    SELECT l.tube, p.keys
    FROM (SELECT DISTINCT tube FROM {s}.tube_list()) AS l
    CROSS JOIN LATERAL (
        SELECT count(*) AS keys
        FROM (SELECT FROM {s}.tube_parked AS k WHERE k.tube = l.tube LIMIT %(most)s) AS first_ones
    ) AS p
    WHERE p.keys > 0
    ORDER BY l.tube
"""


@dataclass(frozen=True, slots=True)
class _Partition:
    """One partition of a tube or an outbox."""

    tube: str
    kind: str
    """`tube` or `outbox`."""
    partition: int
    waiting: int | None
    """Pods or records, up to `_MOST` of each class; None when we may not look."""
    problem: str | None
    """Why we may not."""
    oldest: float | None
    """Age of the first of them, in seconds."""
    unled: float | None
    """For how many seconds some have waited while nobody led."""
    leader: str | None
    lost: bool | None
    renewed_ago: float | None
    sink_down: str | None
    source_down: str | None
    pause: str | None
    """`operator`, or why a worker has stopped the tube: `poison` or `park_limit`. None: it is not paused."""
    reason: str | None
    """Of the pause, and by whom."""
    until: str | None


def check_leaders(connection: psycopg.Connection, schema: str, config: Config) -> Iterator[Check]:
    """What keeps partitions from being delivered, of all tubes and outboxes in the database.

    Workers with another configuration may serve those that this one does not name: they get warnings only.
    """
    try:
        with connection.cursor(row_factory=class_row(_Partition)) as cursor:
            rows = cursor.execute(within(_PARTITIONS, schema), {"most": _MOST}).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        yield warn("leaders", "were not looked at", "see above: rights")
        return
    is_well = True
    for tube, group in groupby(rows, key=lambda row: row.tube):
        for check in _check(list(group)):
            is_well = False
            yield check if is_expected(config, tube) else of_others(check)
    if is_well:
        yield ok("leaders", _well(rows))


def _well(rows: Sequence[_Partition]) -> str:
    if not rows:
        return "there is no tube and no outbox yet"
    return (
        f"{say_count(len(rows), 'partition')} looked at: led, not paused or stopped, and no sink or source "
        "is reported down; `pytube status` shows how far behind they are"
    )


def _check(rows: Sequence[_Partition]) -> Iterator[Check]:
    """What is wrong with the partitions of one tube or outbox."""
    yield from _check_pauses(rows)
    for row in rows:
        yield from _check_leader(row)
    free = [row for row in rows if row.leader is None]
    late = [row for row in free if row.pause is None and row.unled is not None and row.unled > _PATIENCE]
    if late:
        yield _unled(late)
    if others := [row for row in free if row not in late]:
        yield _unled_and_idle(others)


def _check_pauses(rows: Sequence[_Partition]) -> Iterator[Check]:
    paused: dict[tuple[str, str, str | None], list[int]] = {}
    for row in rows:
        if row.pause is not None:
            paused.setdefault((row.pause, row.reason or "", row.until), []).append(row.partition)
    name, kind = rows[0].tube, rows[0].kind
    for (pause, reason, until), numbers in paused.items():
        whole = len(numbers) == len(rows)
        subject = f"{kind} {name}" if whole else f"{name_partitions(numbers)} of {name}"
        if pause == "operator":
            end = "until somebody resumes it" if until is None else f"until {until}"
            yield warn(subject, f"is paused {end}: {reason}", f"pytube resume --tube {name}")
        else:
            yield fail(subject, f"is stopped, by {reason}", _after_stop(pause, name))


def _after_stop(pause: str, name: str) -> str:
    if pause == "park_limit":
        return (
            f"mend the cause, retry or drop what is parked (pytube park list --tube {name}), then: "
            f"pytube resume --tube {name}"
        )
    return f"mend the cause, or acknowledge the document (pytube pods ack), then: pytube resume --tube {name}"


def _check_leader(row: _Partition) -> Iterator[Check]:
    subject = f"partition {row.partition} of {row.tube}"
    if row.lost:
        assert row.renewed_ago is not None
        finding = (
            f"is lost: its leader {row.leader} renewed its term {row.renewed_ago:.0f} s ago for the last time"
        )
        yield fail(subject, finding, _start([row]))
    for what, reason in (("sink", row.sink_down), ("source", row.source_down)):
        if reason is not None:
            finding = f"{what} down: {reason}"
            yield fail(subject, finding, "mend that; the worker goes on by itself")


def _unled(rows: Sequence[_Partition]) -> Check:
    noun = "pods" if rows[0].kind == "tube" else "records"
    waiting = sum(row.waiting or 0 for row in rows)
    number = f"{_MOST} or more" if waiting >= _MOST else waiting
    oldest = for_people(max(row.oldest or 0 for row in rows))
    finding = f"nobody leads {_which(rows)}; {noun} that wait there: {number}, the oldest for {oldest}"
    return fail(f"leaders of {rows[0].tube}", finding, _start(rows))


def _unled_and_idle(rows: Sequence[_Partition]) -> Check:
    finding = f"nobody leads {_which(rows)}"
    problem = next((row.problem for row in rows if row.problem is not None), None)
    if problem is not None:
        finding += f"; what waits there was not looked at: {problem}"
    elif all(row.pause is None for row in rows):
        finding += f"; nothing has waited there for more than {_PATIENCE:.0f} s"
    return warn(f"leaders of {rows[0].tube}", finding, _start(rows))


def _which(rows: Collection[_Partition]) -> str:
    return name_partitions(row.partition for row in rows)


def _start(rows: Sequence[_Partition]) -> str:
    return f"start a worker: pytube worker --{rows[0].kind} {rows[0].tube}; if one runs, see its log"


def check_parked(connection: psycopg.Connection, schema: str, config: Config) -> Iterator[Check]:
    """Documents that were set aside, of each tube."""
    try:
        rows = connection.execute(within(_PARKED, schema), {"most": _MOST}).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        yield warn("parked", "documents were not looked at", "see above: rights")
        return
    for tube, keys in rows:
        number = f"{_MOST} or more" if keys >= _MOST else keys
        check = warn(
            f"tube {tube}",
            f"parked documents: {number}; the sink has an older state of these, or none",
            f"pytube park list --tube {tube} shows why; then: pytube park retry --tube {tube}",
        )
        yield check if is_expected(config, tube) else of_others(check)
