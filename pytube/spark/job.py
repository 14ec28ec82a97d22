"""A job: the units that it writes, and the ledger in each database that says which units are written.

A unit is written in one transaction, whose last statement is the unit's row in the ledger. So a unit is
written once, however often tasks try it. A driver may die at any time: all state is in the databases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import psycopg

from pytube.errors import DatabaseUnavailable, PytubeError, UnknownTube, UsageError
from pytube.spark import queries
from pytube.spark.arrays import KeyKind, Spread, kind_of
from pytube.spark.hosts import Host, ShardMap
from pytube.spark.queries import first_row, rows, value

ROUNDS = 3
"""How often a job tries units whose connection is lost."""
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


class Counts(NamedTuple):
    """How much a job or a unit wrote. Each of several tubes got as much."""

    rows: int = 0
    """Rows that were read."""
    ids: int = 0
    """Keys that were touched: those of a block, each once."""
    pods: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sums."""
        return Counts(self.rows + other.rows, self.ids + other.ids, self.pods + other.pods)


@dataclass(frozen=True, slots=True)
class JobSpec:
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


# --- the ledger of one database ---------------------------------------------------------------------


def known_units(connection: psycopg.Connection, job_id: str) -> int | None:
    """The number of units of a job, or None if the job has not begun."""
    row = first_row(connection, queries.JOB_KNOWN, job=job_id)
    return None if row is None else int(row[0])


def begin(connection: psycopg.Connection, spec: JobSpec, units: int, bounds: list[str] | None = None) -> Job:
    """Begin a job, or continue it.

    Raises:
        JobConflict: another job has the name.
        UsageError: there is no such tube, or the tubes have keys of different types.
    """
    row = first_row(
        connection,
        queries.JOB_BEGIN,
        job=spec.job_id,
        tubes=list(spec.tubes),
        kind=spec.kind,
        fingerprint=spec.fingerprint,
        units=units,
        bounds=bounds,
    )
    return Job(*row)


def units_done(connection: psycopg.Connection, job_id: str) -> frozenset[int]:
    """The units that are written."""
    return frozenset(value(connection, queries.JOB_UNITS, job=job_id))


def done(
    connection: psycopg.Connection, job_id: str, unit: int, counts: Counts, shards: list[int] | None
) -> bool:
    """Record a unit, as the last statement of its transaction. If this returns False, roll back: the unit
    is written already.

    Raises:
        UsageError: the job is done or forgotten.
    """
    found = value(connection, queries.JOB_DONE, job=job_id, unit=unit, shards=shards, **counts._asdict())
    return bool(found)


def finish(connection: psycopg.Connection, job_id: str, attempts: list[str] | None = None) -> Counts:
    """End a job, and publish staged pods. Returns what the job wrote in all its runs."""
    return Counts(*map(int, first_row(connection, queries.JOB_FINISH, job=job_id, attempts=attempts)))


def names_of(tubes: str | Sequence[str]) -> tuple[str, ...]:
    """The tubes that a caller names, each once."""
    return (tubes,) if isinstance(tubes, str) else tuple(dict.fromkeys(tubes))


def check_op(op: str) -> None:
    """Raise `UsageError` if there is no such op."""
    if len(op) != 1 or op not in "IUDTB":
        raise UsageError(f"there is no op {op!r}; give one of I, U, D, T, B")


def kind_of_tubes(connection: psycopg.Connection, names: Sequence[str]) -> KeyKind:
    """The kind of keys that tubes have.

    Raises:
        UnknownTube: there is no such tube.
        UsageError: the tubes have keys of different types.
    """
    types: dict[str, str] = dict(rows(connection, queries.KEY_TYPES, tubes=list(names)))
    for name in names:
        if name not in types:
            raise UnknownTube(f"there is no tube {name!r}")
    if len(set(types.values())) > 1:
        each = ", ".join(f"{name!r} {types[name]}" for name in names)
        raise UsageError(f"the tubes have keys of different types ({each}); touch them one by one")
    return kind_of(types[names[0]])


def shards_of_tables(connection: psycopg.Connection, tubes: Sequence[str]) -> tuple[Spread, ...]:
    """Those of the tables that are attached to tubes, in order."""
    return tuple(sorted(Spread(*row) for row in rows(connection, queries.ATTACHED, tubes=list(tubes))))


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
    def is_open(self) -> bool:
        """Whether units may remain to be written."""
        return self.job is not None and self.job.state != "done"

    def attempt(self, act: Callable[[psycopg.Connection, Part], None]) -> None:
        """Do something in a session, and note as `failure` that the database can't be reached.

        Raises:
            UsageError: the database refuses it. The message names the host.
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
        found = {part.kind.type: part for part in self.parts if part.kind is not None}
        if len(found) > 1:
            raise UsageError(
                f"the keys of {', '.join(map(repr, self.spec.tubes))} are of other types here and there: "
                + ", ".join(f"{part.host.name} {kind.value}" for kind, part in found.items())
            )
        return kind_of(next(iter(found)))

    def stages(self) -> Mapping[int, str]:
        """The tables that collect pods, by database."""
        return {part.place: part.job.stage for part in self.parts if part.job and part.job.stage}

    def is_wanted(self, unit: int) -> bool:
        """Whether a unit remains to be written."""
        place, bucket = divmod(unit, self.units)
        part = self.parts[place]
        return part.is_open and bucket not in part.done

    def begin(
        self, units: int, divide: Callable[[psycopg.Connection, KeyKind], list[str]] | None = None
    ) -> None:
        """Begin the job with as many units in each database, or continue it with the units that it has.

        `divide` finds in a database where the ranges of a new job begin, but the first: these are its units.

        Raises:
            JobConflict: another job has the name.
            UsageError: a database refuses the job. The message names the host. Nothing is written then.
            PartFailed: none of the databases can be reached.
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

    def refresh(self) -> None:
        """Look again which units are written. A database that does not return in time keeps its failure."""

        def look_again(connection: psycopg.Connection, part: Part) -> None:
            part.done = units_done(connection, self.spec.job_id)
            part.failure = None

        for part in self.parts:
            deadline = time.monotonic() + _PATIENCE
            while part.is_open:
                part.attempt(look_again)
                if part.failure is None or time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_INTERVAL)

    def finish(self) -> Counts:
        """End the job in each database that has all units. Returns what the job wrote in all.

        Raises:
            PartFailed: some databases lack units.
        """
        counts = Counts()
        for part in self.parts:
            if part.failure is None:
                try:
                    with part.host.connect() as connection:
                        counts = counts.plus(finish(connection, self.spec.job_id))
                except (psycopg.Error, PytubeError) as error:
                    part.failure = part.host.reason(error)
        self.raise_failures(any)
        return counts

    def raise_failures(self, which: Callable[[list[bool]], bool]) -> None:
        """Raise `PartFailed` if `any`, or `all`, of the databases failed."""
        if which([part.failure is not None for part in self.parts]):
            failures = {part.host.name: part.failure for part in self.parts if part.failure is not None}
            raise PartFailed(self.spec.job_id, failures)


def look(spec: JobSpec, hosts: ShardMap) -> Parts:
    """Find out what each database knows of a job, and which keys and shards its tubes have. Begins nothing.

    Raises:
        UsageError: a tube is missing somewhere. The message names the host.
        PartFailed: none of the databases can be reached.
    """
    if not spec.tubes:
        raise UsageError("a job needs a tube")

    def act(connection: psycopg.Connection, part: Part) -> None:
        part.units = known_units(connection, spec.job_id)
        part.kind = kind_of_tubes(connection, spec.tubes)
        part.spread = shards_of_tables(connection, spec.tubes)

    found = Parts(spec, hosts, [Part(place, host) for place, host in enumerate(hosts.hosts)])
    for part in found.parts:
        part.attempt(act)
    found.raise_failures(all)
    return found
