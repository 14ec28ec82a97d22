"""The driver's side of a job: begun in each database, worked on in rounds, and finished."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pytube.db.errors import describe
from pytube.errors import DatabaseUnavailable, UsageError
from pytube.spark import ledger, queries, tubes
from pytube.spark.errors import PartFailed
from pytube.spark.hosts import Host, ShardMap
from pytube.spark.kinds import KeyKind
from pytube.spark.ledger import Counts, Job, JobSpec

ROUNDS = 3
"""How often units are tried whose connection was lost."""
_PATIENCE = 30.0
"""Seconds that a database that went away is waited for before the next round."""
_POLL_INTERVAL = 0.5


@dataclass(slots=True)
class Part:
    """A job in one database."""

    place: int
    host: Host
    job: Job | None = None
    """None: it was not begun, or the database can't be reached."""
    kind: KeyKind | None = None
    """Of the keys; None: the database can't be reached."""
    units: int | None = None
    """Of the job, where it had been begun before."""
    done: frozenset[int] = frozenset()
    failure: str | None = None
    spread: tuple[tuple[int, int], ...] = ()
    """`(shard, shards)` of the tables of the tubes."""

    @property
    def is_open(self) -> bool:
        """Whether there may be something to write."""
        return self.job is not None and self.job.state != "done"


@dataclass(slots=True)
class Parts:
    """A job in all of its databases."""

    spec: JobSpec
    hosts: ShardMap
    kind: KeyKind
    """Of the keys of all tubes."""
    units: int = 0
    """Of each database, once it is begun."""
    parts: list[Part] = field(default_factory=list)

    def failures(self) -> dict[str, str]:
        """Why, by the names of the databases that did not get their part."""
        return {part.host.name: part.failure for part in self.parts if part.failure is not None}

    def stages(self) -> Mapping[int, str]:
        """The tables that pods are staged in."""
        return {part.place: part.job.stage for part in self.parts if part.job and part.job.stage}

    def is_wanted(self, unit: int) -> bool:
        """Whether a unit is to be written now."""
        place, bucket = divmod(unit, self.units)
        part = self.parts[place]
        return part.is_open and bucket not in part.done

    def begin(self, units: int) -> None:
        """Begin the job in each database, or go on with it.

        Args:
            units: of a new job, at least 1; one that was begun before keeps its own.

        Raises:
            JobConflict: the name is another job's.
            UsageError: it can't be begun somewhere; the message names the host. Nothing was written then.
            PartFailed: none of the databases can be reached.
        """
        if units < 1:
            raise UsageError("a job needs at least one unit")
        self.units = next((part.units for part in self.parts if part.units is not None), units)
        for part in self.parts:
            if part.failure is None:
                _begin(part, self.spec, self.units)
        if all(part.failure is not None for part in self.parts):
            raise PartFailed(self.spec.job_id, self.failures())

    def refresh(self) -> None:
        """Look again at which units are in; a database that is not back in time keeps its failure."""
        for part in self.parts:
            if part.is_open:
                deadline = time.monotonic() + _PATIENCE
                while not _is_back(part, self.spec.job_id) and time.monotonic() < deadline:
                    time.sleep(_POLL_INTERVAL)

    def finish(self) -> Counts:
        """End the job in each database that has all of its units; what was written in all.

        Raises:
            PartFailed: some have not.
        """
        counts = Counts()
        for part in self.parts:
            if part.failure is None:
                try:
                    with part.host.connect() as connection:
                        counts = counts.plus(ledger.finish(connection, self.spec.job_id))
                except DatabaseUnavailable as error:
                    part.failure = str(error)
                except psycopg.Error as error:
                    part.failure = describe(error)
        if failures := self.failures():
            raise PartFailed(self.spec.job_id, failures)
        return counts


def look(spec: JobSpec, hosts: ShardMap) -> Parts:
    """What there is of a job in each database, and what keys its tubes have. Nothing is begun yet.

    Args:
        spec: what the job is.
        hosts: the databases.

    Raises:
        UsageError: a tube lacks somewhere, or has other keys than the others; the message names the host.
        PartFailed: none of the databases can be reached.
    """
    if not spec.tubes:
        raise UsageError("a job needs a tube")
    parts = [Part(place, host) for place, host in enumerate(hosts.hosts)]
    for part in parts:
        _look(part, spec)
    there = [part for part in parts if part.kind is not None]
    if len({part.units for part in there} - {None}) > 1:
        raise UsageError(
            f"job {spec.job_id!r} has other numbers of units here and there: "
            + ", ".join(f"{part.host.name} {part.units}" for part in there if part.units is not None)
        )
    if not there:
        raise PartFailed(spec.job_id, {part.host.name: part.failure or "" for part in parts})
    kinds = {part.kind.type: part for part in there if part.kind is not None}
    if len(kinds) > 1:
        raise UsageError(
            f"the keys of {', '.join(map(repr, spec.tubes))} are of other types here and there: "
            + ", ".join(f"{part.host.name} {kind.value}" for kind, part in kinds.items())
        )
    kind = there[0].kind
    assert kind is not None
    return Parts(spec, hosts, kind, parts=parts)


def progress(host: Host, job_id: str | None = None) -> list[dict[str, Any]]:
    """Jobs of a database as rows of `tube_job_list`, the newest first."""
    with host.connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(queries.JOB_LIST, {"job": job_id}).fetchall()


def _look(part: Part, spec: JobSpec) -> None:
    try:
        with part.host.connect() as connection:
            part.units = ledger.known_units(connection, spec.job_id)
            part.kind = tubes.kind_of(connection, spec.tubes)
    except DatabaseUnavailable as error:
        part.failure, part.kind = str(error), None
    except UsageError as error:
        raise type(error)(f"{part.host.name}: {error}") from error
    except psycopg.Error as error:  # a right that lacks
        raise UsageError(f"{part.host.name}: {describe(error)}") from error


def _begin(part: Part, spec: JobSpec, units: int) -> None:
    try:
        with part.host.connect() as connection:
            part.job = ledger.begin(connection, spec, units)
            part.done = ledger.units_done(connection, spec.job_id)
            rows = connection.execute(queries.ATTACHED, {"tubes": list(spec.tubes)}).fetchall()
            part.spread = tuple(sorted({(int(row[0]), int(row[1])) for row in rows}))
    except DatabaseUnavailable as error:
        part.failure = str(error)
    except UsageError as error:
        raise type(error)(f"{part.host.name}: {error}") from error
    except psycopg.Error as error:  # a right that lacks, too long a name
        raise UsageError(f"{part.host.name}: {describe(error)}") from error


def _is_back(part: Part, job_id: str) -> bool:
    try:
        with part.host.connect() as connection:
            part.done = ledger.units_done(connection, job_id)
    except DatabaseUnavailable as error:
        part.failure = str(error)
        return False
    part.failure = None
    return True
