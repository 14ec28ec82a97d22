"""A job in one database: which of its units are in. All that is known of it is there.

A unit is written by one transaction, whose last statement is its row in the ledger. So it is in once, however
often and by how many it is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from pytube.db.errors import translated
from pytube.spark import queries


class Counts(NamedTuple):
    """What was written. With several tubes, each got so much."""

    rows: int = 0
    """That were read."""
    ids: int = 0
    """Distinct keys within a block; what is touched."""
    pods: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sums."""
        return Counts(self.rows + other.rows, self.ids + other.ids, self.pods + other.pods)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What makes a job that job."""

    job_id: str
    tubes: tuple[str, ...]
    kind: str
    """`direct`, `staged`, `ranges` or `attempts`."""
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the database has it."""

    state: str
    units: int
    """How many it has, since it began."""
    bounds: tuple[str, ...]
    stage: str | None
    """The table that its pods go to; None: the tubes."""
    known: bool
    """Whether it had been begun before."""


def known_units(connection: psycopg.Connection, job_id: str) -> int | None:
    """How many units a job has; None when it was not begun here."""
    with translated():
        row = connection.execute(queries.JOB_KNOWN, {"job": job_id}).fetchone()
    return None if row is None else int(row[0])


def begin(
    connection: psycopg.Connection, spec: JobSpec, units: int, bounds: Sequence[str] | None = None
) -> Job:
    """Begin a job, or go on with it.

    Raises:
        JobConflict: the name is another job's.
        UsageError: a tube is not there, or its keys are no numbers.
    """
    arguments = {
        "job": spec.job_id,
        "tubes": list(spec.tubes),
        "kind": spec.kind,
        "fingerprint": spec.fingerprint,
        "units": units,
        "bounds": None if bounds is None else list(bounds),
    }
    with translated():
        row = connection.execute(queries.JOB_BEGIN, arguments).fetchone()
    assert row is not None
    return Job(str(row[0]), int(row[1]), tuple(row[2] or ()), row[3], bool(row[4]))


def units_done(connection: psycopg.Connection, job_id: str) -> frozenset[int]:
    """The units that are in."""
    with translated():
        row = connection.execute(queries.JOB_UNITS, {"job": job_id}).fetchone()
    assert row is not None
    return frozenset(row[0])


def done(
    connection: psycopg.Connection, job_id: str, unit: int, counts: Counts, shards: Sequence[int] | None
) -> bool:
    """Record a unit, last in its transaction; False when it is in already: then roll back.

    Raises:
        UsageError: the job is done or forgotten.
    """
    arguments: dict[str, Any] = {"job": job_id, "unit": unit, **counts._asdict(), "shards": shards}
    with translated():
        row = connection.execute(queries.JOB_DONE, arguments).fetchone()
    assert row is not None
    return bool(row[0])


def finish(connection: psycopg.Connection, job_id: str, attempts: Sequence[str] | None = None) -> Counts:
    """End a job, and publish what was staged; what it wrote in all."""
    with translated():
        row = connection.execute(
            queries.JOB_FINISH, {"job": job_id, "attempts": None if attempts is None else list(attempts)}
        ).fetchone()
    assert row is not None
    return Counts(*map(int, row))


def forget(connection: psycopg.Connection, job_id: str) -> None:
    """Throw away what is known of a job, and what it has staged."""
    with translated():
        connection.execute(queries.JOB_FORGET, {"job": job_id})
