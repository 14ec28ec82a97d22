"""What an administrator does with outboxes, over one session."""

from __future__ import annotations

import builtins
import time
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.rows import BaseRowFactory, class_row, dict_row, scalar_row

from pytube.clock import for_people
from pytube.db.errors import translated
from pytube.db.version import check
from pytube.errors import UnknownTube, UsageError
from pytube.logs import Logger
from pytube.outbox import queries
from pytube.tubes.queries import within
from pytube.tubes.tables import IndexQueries, find_table, fit_index, with_retries

AT_ONCE = 10_000
"""Parked records that one transaction frees, so that no worker that parks waits for long."""

COME_LATE = (
    'records of keys that are not held (on_poison = "skip") are then sent after later records of their keys'
)
"""What a retry of overtaken records means."""

_LOOK = 0.1
"""Seconds between looks whether leaders have parked the requested records."""

_Row = TypeVar("_Row")

_log = Logger("pytube.outbox")
_INDEX = IndexQueries(queries.INDEX_TABLE, queries.INDEX_SQL, queries.LEFTOVERS)


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """One outbox."""

    outbox: str
    partitions: int
    tbl: str
    """`schema.table`; `dropped` where an adopted one is gone."""
    value_type: str
    """`text` or `bytea`."""
    adopted: bool
    """Whether the table belongs to the application."""
    wakes: bool
    """Whether writers wake sleeping workers; else workers poll."""


@dataclass(frozen=True, slots=True)
class RestingTopic:
    """A topic for which Kafka takes nothing from one partition of an outbox."""

    topic: str
    reason: str
    """Of the last try."""
    records: int
    """That the leader holds, and that wait for it."""
    since: float
    """For how many seconds it has rested."""
    tried_in: float
    """Seconds until it is tried again."""
    park: bool
    """Whether an operator wants its records parked, and the leader has not done so yet."""

    def __str__(self) -> str:
        again = f"tried again in {for_people(self.tried_in)}"
        if self.tried_in < 1:
            again = "about to be tried again"
        if self.park:
            again = "its records are being parked"
        return (
            f"topic {self.topic} has taken nothing for {for_people(self.since)}, {again}, "
            f"records held for it: {self.records}: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class OutboxPartition:
    """The backlog of one partition of an outbox, and its leader."""

    outbox: str
    partition: int
    waiting: str | None
    """Records, parked ones aside; exact below 1000, an estimate above. None when we may not look."""
    parked: str
    lag: float | None
    """Age of the oldest waiting record in seconds; None when none waits, or we may not look."""
    leader: str | None
    epoch: int | None
    renewed_ago: float | None
    leads_for: float | None
    state: str
    """`leads`, `free`, `lost`, `pausing`, `paused`, `failing` or `sink down`, as of a tube's partition."""
    sink_down: str | None
    """Why Kafka takes nothing, as the leader said; None while it does."""
    sink_down_for: float | None
    """For how many seconds."""
    paused: str | None
    """Why it is paused, also without a leader; None when it is not."""
    problem: str | None
    """Why we may not look at the records."""
    failing: str | None
    """By what failure terms end, one after the other; None: they don't."""
    failing_terms: int | None
    failing_for: float | None
    parked_failed: int = 0
    """How many of the parked records failed."""
    parked_behind: int = 0
    """The others: they wait behind a failed one of their key."""
    parked_overtaken: int = 0
    """Of the failed ones, those whose key continues without them: sent again, they come late."""
    parked_error: str | None = None
    """Why a record of the outbox failed lately; None when none of this partition is parked."""
    resting: Sequence[RestingTopic] = ()
    """Topics that take nothing now."""
    host: str | None = None
    """The Postgres host, where there are several."""


@dataclass(frozen=True, slots=True)
class ParkedCounts:
    """Parked records."""

    failed: int
    """Each has its error."""
    behind: int
    """They wait behind a failed one of their key, and did not fail."""
    overtaken: int
    """Of the failed ones, those whose key continues without them: sent again, they come late."""


class Outboxes:
    """The outboxes of one installation.

    All methods raise `UsageError` for unknown outboxes and for calls that the SQL refuses, with nothing
    changed, and `DatabaseUnavailable` when the session is lost.
    """

    def __init__(self, connection: psycopg.Connection, schema: str = "tube") -> None:
        """`connection` is as for `Tubes`. Raises `SchemaMismatch` unless pytube's SQL is there."""
        check(connection, schema)
        self._connection = connection
        self._schema = schema

    def create(
        self, outbox: str, partitions: int | None = None, value_type: str | None = None
    ) -> tuple[OutboxSettings | None, OutboxSettings]:
        """Make an outbox with its own table, or give one another number of partitions.

        Args:
            outbox: its name.
            partitions: how many; None keeps the number of an existing outbox, and is 1 for a new one.
            value_type: `text` or `bytea`, for good; None is the type of an existing outbox, and text for a
                new one.

        Returns:
            The settings before, None for a new one; the settings now.
        """
        with translated():
            before = self._settings(outbox)
            wanted = _partitions(partitions, before)
            self._build_index(outbox, before, wanted)
            self._value(queries.ENSURE_EXISTS, outbox=outbox, partitions=wanted, value_type=value_type)
            return before, self._finished(outbox)

    def adopt(
        self,
        outbox: str,
        table: str,
        partitions: int | None = None,
        *,
        wake: bool | None = None,
        limit: float = 60.0,
    ) -> tuple[OutboxSettings | None, OutboxSettings]:
        """Make an outbox over an existing table, or change how it is adopted.

        Args:
            outbox: its name.
            table: `schema.table`.
            partitions: as for `create`.
            wake: whether its writers wake sleeping workers, by a trigger; None keeps what there is.
            limit: seconds to wait for the table's lock; writers do not queue behind it meanwhile.

        Returns:
            As `create`.
        """
        with translated():
            before = self._settings(outbox)
            oid = find_table(self._connection, table)
            wanted = _partitions(partitions, before)
            wakes = wake if wake is not None else before is not None and before.wakes
            self._build_index(outbox, before, wanted)
            with_retries(
                self._connection,
                lambda: self._value(queries.ADOPT, outbox=outbox, table=oid, partitions=wanted, wake=wakes),
                table=oid,
                name=table,
                limit=limit,
            )
            return before, self._finished(outbox)

    def is_fit(self, outbox: str, partitions: int | None = None) -> bool:
        """Whether no index is left to build or drop, for so many partitions or its own number."""
        with translated():
            before = self._settings(outbox)
            if before is None:
                return True
            wanted = _partitions(partitions, before)
            return self._value(queries.INDEX_SQL, queue=outbox, partitions=wanted) is None

    def acknowledge(self, outbox: str) -> int:
        """Answer for messages that are reported as sent for lost commits; how many reasons there were."""
        with translated():
            return int(self._value(queries.ACKNOWLEDGE, outbox=outbox))

    def drop(self, outbox: str, *, force: bool = False) -> OutboxSettings:
        """Drop an outbox, or let an adopted table go; `force`: also while records wait, which are then lost.

        Returns:
            Its settings.

        Raises:
            UnknownTube: there is no outbox of that name.
            TubesNotEmpty: records wait in its table, and `force` is not set.
        """
        with translated():
            before = self._settings(outbox)
            self._value(queries.DROP, outbox=outbox, force=force)
        assert before is not None  # or the SQL has refused the name
        return before

    def parked(self, outbox: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Parked records with their errors, as rows of `outbox_parked`, in its order."""
        with translated():
            if outbox is not None:
                self._require(outbox)
            return self._rows(dict_row, queries.PARKED, outbox=outbox, limit=limit)

    def parked_counts(self, outbox: str | None = None, topic: str | None = None) -> ParkedCounts:
        """How many records are parked: of an outbox, or of all; of a topic, or of all."""
        with translated():
            counts = self._rows(class_row(ParkedCounts), queries.PARKED_COUNTS, outbox=outbox, topic=topic)
        return counts[0]

    def parked_of(self, outbox: str, ids: Sequence[int]) -> list[dict[str, Any]]:
        """The parked records with these ids, as `parked` has them, by id.

        Raises:
            UsageError: one of the ids is not parked.
        """
        with translated():
            self._require(outbox)
            rows = self._rows(dict_row, queries.PARKED_IDS, outbox=outbox, ids=list(ids))
        missing = sorted(set(ids) - {row["id"] for row in rows})
        if missing:
            raise UsageError(
                f"outbox {outbox!r} has no parked record {', '.join(map(str, missing))}; "
                f"`pytube outbox parked list {outbox}` lists the parked records"
            )
        return rows

    def retry(
        self,
        outbox: str,
        ids: Sequence[int] | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
    ) -> int:
        """Have records that are parked now sent again; how many. Arguments as of `outbox_retry`.

        Interrupted, some are to be sent again, and the others are as they were.
        """
        given = {"outbox": outbox, "ids": None if ids is None else list(ids), "topic": topic, "key": key}
        total = 0
        with translated():
            seen = self._value(queries.NOW)
            while done := int(self._value(queries.RETRY, **given, seen=seen, limit=AT_ONCE)):
                total += done
        return total

    def discard(self, outbox: str, ids: Sequence[int]) -> int:
        """Delete parked records, which are then never sent; how many there were."""
        with translated():
            return int(self._value(queries.DISCARD, outbox=outbox, ids=list(ids)))

    def parked_of_topic(self, outbox: str, topic: str) -> builtins.list[int]:
        """The ids of the parked records of a topic, ascending, without records that wait behind others.

        Raises:
            UsageError: there are none.
        """
        with translated():
            self._require(outbox)
            ids = self._rows(scalar_row, queries.PARKED_OF_TOPIC, outbox=outbox, topic=topic)
        if not ids:
            raise UsageError(
                f"outbox {outbox!r} has no parked records of topic {topic!r}; to park the records of a topic "
                f"that accepts none: pytube outbox park {outbox} --topic {quote(topic)}"
            )
        return ids

    def park_topic(self, outbox: str, topic: str, limit: float) -> tuple[int, int]:
        """Have the leaders park the records of a topic that accepts none.

        Args:
            outbox: its name.
            topic: of the records.
            limit: seconds to wait until that is done.

        Returns:
            How many records were parked meanwhile, and how many partitions have not done so yet.

        Raises:
            UsageError: the topic does not rest.
        """
        with translated():
            before = self._value(queries.COUNT_OF_TOPIC, outbox=outbox, topic=topic)
            if not self._value(queries.PARK_TOPIC, outbox=outbox, topic=topic):
                raise UsageError(
                    f"topic {topic!r} of outbox {outbox!r} does not rest, so nothing is parked; "
                    f"`pytube outbox status {outbox}` names the topics that do"
                )
            deadline = time.monotonic() + limit
            while left := int(self._value(queries.TO_PARK, outbox=outbox, topic=topic)):
                if time.monotonic() >= deadline:
                    break
                time.sleep(_LOOK)
            after = self._value(queries.COUNT_OF_TOPIC, outbox=outbox, topic=topic)
            return max(0, after - before), left

    def list(self) -> list[OutboxSettings]:
        """All outboxes by name."""
        with translated():
            return self._rows(class_row(OutboxSettings), queries.LIST, outbox=None)

    def _build_index(self, outbox: str, before: OutboxSettings | None, partitions: int) -> str | None:
        """The index for `partitions`, as `fit_index` has it.

        An outbox that is new gets its index with its table, or as soon as it is adopted.
        """
        if before is None:
            return None
        return fit_index(self._connection, self._schema, _INDEX, outbox, partitions, _log)

    def _finished(self, outbox: str) -> OutboxSettings:
        """What an outbox is after a change; its index is built, or it is logged who builds it."""
        now = self._require(outbox)
        if left := self._build_index(outbox, now, now.partitions):
            _log.warning("index_left", tube=outbox, partitions=now.partitions, reason=left)
        return now

    def _settings(self, outbox: str) -> OutboxSettings | None:
        return next(iter(self._rows(class_row(OutboxSettings), queries.LIST, outbox=outbox)), None)

    def _require(self, outbox: str) -> OutboxSettings:
        found = self._settings(outbox)
        if found is None:
            raise unknown_outbox(outbox)
        return found

    def _value(self, query: LiteralString, **parameters: object) -> Any:
        return self._rows(scalar_row, query, **parameters)[0]

    def _rows(
        self, factory: BaseRowFactory[_Row], query: LiteralString, **parameters: object
    ) -> builtins.list[_Row]:
        with self._connection.cursor(row_factory=factory) as cursor:
            return cursor.execute(within(query, self._schema), parameters).fetchall()


def _partitions(wanted: int | None, before: OutboxSettings | None) -> int:
    if wanted is not None:
        return wanted
    return 1 if before is None else before.partitions


def read_outboxes(
    connection: psycopg.Connection, schema: str, outbox: str | None = None
) -> list[OutboxPartition]:
    """The partitions of `outbox`, or of all outboxes, by outbox and partition."""
    with translated(), connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(within(queries.STATUS, schema), {"outbox": outbox}).fetchall()
    return [
        OutboxPartition(**row | {"resting": [RestingTopic(**one) for one in row["resting"] or ()]})
        for row in rows
    ]


def say_failed(failed: int, behind: int) -> str:
    """How many parked records failed, and how many wait behind them."""
    return f"{failed} failed, {behind} {'waits' if behind == 1 else 'wait'} behind"


def unknown_outbox(outbox: str) -> UnknownTube:
    """The error for a name that no outbox has."""
    return UnknownTube(f"there is no outbox {outbox!r}; `pytube outbox list` lists all outboxes")
