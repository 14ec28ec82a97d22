"""What is going on: one row per partition."""

from __future__ import annotations

from dataclasses import dataclass, replace

import psycopg
from psycopg import errors
from psycopg.rows import class_row

from pytube.db.errors import translated
from pytube.health.queries import PARKED, STATUS
from pytube.tubes.queries import within


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

    leader: str | None
    """Client id of the leader; None when the partition is free."""

    election: str | None
    epoch: int | None
    leads_for: float | None
    renewed_ago: float | None
    parked: int | None = None
    """Keys set aside; None when this role may not see them."""


def read_status(
    connection: psycopg.Connection, schema: str, tube: str | None = None
) -> list[PartitionStatus]:
    """The partitions of `tube`, or of all, by tube and partition."""
    with translated():
        with connection.cursor(row_factory=class_row(PartitionStatus)) as cursor:
            rows = cursor.execute(within(STATUS, schema)).fetchall()
        parked = _parked(connection, schema)
    return [
        row if parked is None else replace(row, parked=parked.get((row.tube, row.partition), 0))
        for row in rows
        if tube is None or row.tube == tube
    ]


def _parked(connection: psycopg.Connection, schema: str) -> dict[tuple[str, int], int] | None:
    try:
        rows = connection.execute(within(PARKED, schema), {}).fetchall()
    except errors.InsufficientPrivilege:
        return None
    return {(tube, partition): count for tube, partition, count in rows}
