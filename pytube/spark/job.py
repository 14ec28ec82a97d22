"""A job: the units that it writes, and the ledger in each database that says which units are written.

A unit is written in one transaction, whose last statement is the unit's row in the ledger. So a unit is
written once, however often tasks try it. A driver may die at any time: all state is in the databases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import psycopg
import pyarrow as pa
from pyspark.sql import Row

from pytube.db.errors import is_outage
from pytube.errors import DatabaseUnavailable, PytubeError, UnknownTube, UsageError
from pytube.spark import arrays
from pytube.spark.arrays import KeyKind, Spread, kind_of
from pytube.spark.hosts import Host, ShardMap, first_row, rows, value
from pytube.spark.pods import Counts

_BEGIN: Final = """
    SELECT state, unit_count, unit_bounds, stage FROM tube_job_begin(
        %(job_id)s, %(tubes)s, %(kind)s, %(fingerprint)s, %(units)s, %(bounds)s)
"""
_KNOWN: Final = "SELECT state, units FROM tube_job_list(%(job)s)"
_UNITS: Final = "SELECT tube_job_units(%(job)s)"
_DONE: Final = "SELECT tube_job_done(%(job)s, %(unit)s, %(rows)s, %(ids)s, %(pods)s, %(shards)s)"
_FINISH: Final = "SELECT rows_done, ids_done, pods_done FROM tube_job_finish(%(job)s, %(attempts)s::uuid[])"
_ATTACHED: Final = """
    SELECT DISTINCT shard, shards, coalesce(pg_catalog.array_position(key_cols, shard_by) - 1, -1)
    FROM tube_list() WHERE tube = ANY(%(tubes)s) AND tbl IS NOT NULL ORDER BY 1, 2, 3
"""
_KEY_TYPES: Final = "SELECT DISTINCT tube, key_type::text FROM tube_list() WHERE tube = ANY(%(tubes)s)"

_PATIENCE = 30.0
"""Seconds to wait, before the next round, for a database that went away."""
_POLL_INTERVAL = 0.5


class PartFailed(PytubeError):
    """Some databases did not get their part of a job. What the others got stays, and is not written again.

    `hosts` has the reason for each database that failed, by its name.
    """

    exit_code = 3

    def __init__(self, job_id: str, hosts: Mapping[str, str]) -> None:
        reasons = "; ".join(f"{name}: {reason.removeprefix(name + ': ')}" for name, reason in hosts.items())
        super().__init__(
            f"job {job_id!r} is incomplete: {reasons}. Run it again with the same job_id, which writes "
            "only the missing parts"
        )
        self.job_id = job_id
        self.hosts = dict(hosts)


class JobSpec(NamedTuple):
    """What identifies a job. A job of the same name and another spec is another job."""

    job_id: str
    tubes: tuple[str, ...]
    kind: str
    """`direct`, `staged`, `ranges` or `attempts`."""
    fingerprint: str


class Job(NamedTuple):
    """A job in one database."""

    state: str
    units: int
    """The number of units, fixed when the job began."""
    bounds: list[str] | None
    """Where the ranges of a query begin, but the first."""
    stage: str | None
    """The table that collects the pods; None: the tubes get them directly."""


# --- what tasks return ------------------------------------------------------------------------------

RESULT = "place int, unit int, state string, error string"
"""One row for each unit of a database."""
WRITTEN, THERE, FAILED, LOST = "written", "there", "failed", "lost"
"""This task wrote the unit; it was written before; it can't be written; its connection was lost."""


def result(place: int, unit: int, state: str, reason: str | None = None) -> pa.RecordBatch:
    """A row of `RESULT`."""
    columns = [
        arrays.of_numbers([place], np.int32),
        arrays.of_numbers([unit], np.int32),
        arrays.of_bytes([state.encode()], pa.string()),
        arrays.of_bytes([None if reason is None else reason.encode()], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["place", "unit", "state", "error"])


def refusal(host: Host, error: psycopg.Error | PytubeError) -> tuple[str, str]:
    """State and reason of a unit that a database did not take."""
    return LOST if is_outage(error) else FAILED, host.reason(error)


# --- the ledger of one database ---------------------------------------------------------------------


def known(connection: psycopg.Connection, job_id: str) -> tuple[str, int] | None:
    """The state of a job and the number of its units, or None if the job has not begun."""
    found: tuple[str, int] | None = first_row(connection, _KNOWN, job=job_id)
    return found


def begin(connection: psycopg.Connection, spec: JobSpec, units: int, bounds: list[str] | None = None) -> Job:
    """Begin a job, or continue it; raises `JobConflict` if another job has the name."""
    arguments = spec._asdict() | {"tubes": list(spec.tubes), "units": units, "bounds": bounds}
    return Job(*first_row(connection, _BEGIN, **arguments))


def units_done(connection: psycopg.Connection, job_id: str) -> frozenset[int]:
    """The units that are written."""
    return frozenset(value(connection, _UNITS, job=job_id))


def done(
    connection: psycopg.Connection, job_id: str, unit: int, counts: Counts, shards: list[int] | None
) -> bool:
    """Record a unit, as the last statement of its transaction. False: it is written already, so roll back."""
    return bool(value(connection, _DONE, job=job_id, unit=unit, shards=shards, **counts._asdict()))


def finish(connection: psycopg.Connection, job_id: str, attempts: list[str] | None = None) -> Counts:
    """End a job, and publish staged pods. Returns what the job wrote in all its runs."""
    return Counts(*map(int, first_row(connection, _FINISH, job=job_id, attempts=attempts)))


def names_of(tubes: str | Sequence[str]) -> tuple[str, ...]:
    """The tubes that a caller names, each once."""
    return (tubes,) if isinstance(tubes, str) else tuple(dict.fromkeys(tubes))


def check_op(op: str) -> None:
    """Raise `UsageError` if there is no such op."""
    if len(op) != 1 or op not in "IUDTB":
        raise UsageError(f"there is no op {op!r}; give one of I, U, D, T, B")


def kind_of_tubes(connection: psycopg.Connection, names: Sequence[str]) -> KeyKind:
    """The kind of keys that tubes have; raises `UsageError` if they differ, or there is no such tube."""
    types: dict[str, str] = dict(rows(connection, _KEY_TYPES, tubes=list(names)))
    for name in names:
        if name not in types:
            raise UnknownTube(f"there is no tube {name!r}")
    if len(set(types.values())) > 1:
        each = ", ".join(f"{name!r} {types[name]}" for name in names)
        raise UsageError(f"the tubes have keys of different types ({each}); touch them one by one")
    return kind_of(types[names[0]])


def shards_of_tables(connection: psycopg.Connection, tubes: Sequence[str]) -> tuple[Spread, ...]:
    """Those of the tables that are attached to tubes, in order."""
    return tuple(Spread(*row) for row in rows(connection, _ATTACHED, tubes=list(tubes)))


# --- all databases of a job -------------------------------------------------------------------------


@dataclass(slots=True)
class Part:
    """A job in one of its databases."""

    place: int
    host: Host
    job: Job | None = None
    """None: the job has not begun, or the database can't be reached."""
    kind: KeyKind | None = None
    """The kind of the tubes' keys; None: the database can't be reached."""
    units: int | None = None
    """The number of units, if the job had begun before."""
    done: frozenset[int] = frozenset()
    failure: str | None = None
    spread: tuple[Spread, ...] = ()
    """Those of the tubes' tables."""

    @property
    def missing(self) -> list[int]:
        """The units that remain to be written, of a job that is not done."""
        if self.job is None or self.job.state == "done":
            return []
        return [unit for unit in range(self.job.units) if unit not in self.done]

    def attempt(self, act: Callable[[psycopg.Connection, Part], None]) -> None:
        """Do something in a session, and note as `failure` that the database can't be reached.

        Raises `UsageError` if the database refuses it; the message names the host.
        """
        try:
            with self.host.connect() as connection:
                act(connection, self)
        except DatabaseUnavailable as error:
            self.failure = str(error)
        except UsageError as error:
            raise type(error)(f"{self.host.name}: {error}") from error
        except psycopg.Error as error:  # a missing right, too long a name
            raise UsageError(self.host.reason(error)) from error


@dataclass(slots=True)
class Parts:
    """A job in all its databases."""

    spec: JobSpec
    hosts: ShardMap
    parts: list[Part]
    units: int = field(default=0, init=False)
    """Units in each database; 0 before the job begins."""

    @property
    def kind(self) -> KeyKind:
        """The kind of the keys in all databases; raises `UsageError` if databases differ."""
        found = {part.kind: part for part in self.parts if part.kind is not None}
        if len(found) > 1:
            raise UsageError(
                f"the keys of {', '.join(map(repr, self.spec.tubes))} are of other types here and there: "
                + ", ".join(f"{part.host.name} {kind.type.value}" for kind, part in found.items())
            )
        return next(iter(found))

    @property
    def spread(self) -> list[Spread]:
        """The shards of the tables that are attached to the tubes, in order."""
        return sorted({found for part in self.parts for found in part.spread})

    def only_spread(self) -> Spread:
        """The shards of all tables; raises `UsageError` if there are none, or they differ."""
        spread = self.spread
        if len(spread) != 1:
            has = ", ".join(str(shard) if n == 1 else f"{shard} to {shard + n - 1}" for shard, n, _ in spread)
            raise UsageError(
                "which shard? Give a column or a number: shard=…; you can only omit it if the tables of the "
                f"tubes have the same shards (they have: {has or 'none, as no table is attached'})"
            )
        return spread[0]

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The database and the number of each unit that remains to be written."""
        return [(part.place, unit) for part in self.parts for unit in part.missing]

    def begin(
        self, units: int, divide: Callable[[psycopg.Connection, KeyKind], list[str]] | None = None
    ) -> None:
        """Begin the job with as many units in each database, or continue it with the units that it has.

        `divide` finds in a database where the ranges of a new job begin, but the first: these are its units.
        Raises as `Part.attempt`, and `PartFailed` if none of the databases can be reached.
        """
        if units < 1:
            raise UsageError("a job needs at least one unit")
        known = {part.units: part for part in self.parts if part.units is not None}
        if len(known) > 1 and divide is None:  # a unit's number contains that of its database
            raise UsageError(
                f"job {self.spec.job_id!r} has other numbers of units here and there: "
                + ", ".join(f"{part.host.name} {count}" for count, part in known.items())
            )
        self.units = next(iter(known), units)

        def act(connection: psycopg.Connection, part: Part) -> None:
            bounds, count = None, self.units
            if divide is not None and part.kind is not None:
                bounds = divide(connection, part.kind) if part.units is None else []
                count = len(bounds) + 1
            part.job = begin(connection, self.spec, count, bounds)
            part.done = units_done(connection, self.spec.job_id)

        for part in self.parts:
            if part.failure is None:
                part.attempt(act)
        self.raise_failures(all)

    def note(self, results: Iterable[Row]) -> int:
        """Keep the failures in rows of `RESULT`. Returns the number of units that were written."""
        written = 0
        for row in results:
            written += row["state"] == WRITTEN
            if row["state"] in (FAILED, LOST):
                self.parts[row["place"]].failure = row["error"]
        return written

    def refresh(self) -> None:
        """Look again which units are written. A database that does not return in time keeps its failure."""

        def look_again(connection: psycopg.Connection, part: Part) -> None:
            part.done = units_done(connection, self.spec.job_id)
            part.failure = None

        for part in self.parts:
            deadline = time.monotonic() + _PATIENCE
            while part.missing:
                part.attempt(look_again)
                if part.failure is None or time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_INTERVAL)

    def finish(self) -> Counts:
        """End the job, and return what it wrote in all; `PartFailed` if units of a database are missing."""
        counts = []
        for part in self.parts:
            if part.failure is None:
                try:
                    with part.host.connect() as connection:
                        counts.append(finish(connection, self.spec.job_id))
                except (psycopg.Error, PytubeError) as error:
                    part.failure = part.host.reason(error)
        self.raise_failures(any)
        return Counts(*map(sum, zip(*counts, strict=True)))

    def raise_failures(self, which: Callable[[list[bool]], bool]) -> None:
        """Raise `PartFailed` if `any`, or `all`, of the databases failed."""
        if which([part.failure is not None for part in self.parts]):
            failures = {part.host.name: part.failure for part in self.parts if part.failure is not None}
            raise PartFailed(self.spec.job_id, failures)


def look(spec: JobSpec, hosts: ShardMap) -> Parts:
    """Find out what each database knows of a job, and which keys and shards its tubes have. Begins nothing.

    Raises as `Parts.begin`.
    """
    if not spec.tubes:
        raise UsageError("a job needs a tube")

    def act(connection: psycopg.Connection, part: Part) -> None:
        before = known(connection, spec.job_id)
        part.units = None if before is None else before[1]
        part.kind = kind_of_tubes(connection, spec.tubes)
        part.spread = shards_of_tables(connection, spec.tubes)

    found = Parts(spec, hosts, [Part(place, host) for place, host in enumerate(hosts.hosts)])
    for part in found.parts:
        part.attempt(act)
    found.raise_failures(all)
    return found
