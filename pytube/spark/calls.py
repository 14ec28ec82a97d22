"""Units that a call to the database writes: Spark's tasks make the calls, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import psycopg
from pyspark.sql import Row, SparkSession

from pytube.db.errors import describe, is_outage, translated
from pytube.errors import PytubeError
from pytube.spark.hosts import Host
from pytube.spark.ledger import Counts
from pytube.spark.unit import FAILED, LOST, RESULT, THERE, WRITTEN, Outcome, result_row

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES = 5
_PAUSE = 2.0
"""Seconds before a unit is tried again whose connection was lost, or that has to wait."""


class Call(Protocol):
    """What writes a unit. It is pickled."""

    def __call__(self, connection: psycopg.Connection, host: int, unit: int) -> Counts | None:
        """Write one unit in one transaction of its own; None when it is in already.

        Raises:
            NotYet: it may not be written now.
        """


class NotYet(Exception):
    """Try again in a moment."""


@dataclass(frozen=True, slots=True)
class Units:
    """The units that are to be written: `(host, unit)`, in about the order in which they are."""

    hosts: tuple[Host, ...]
    which: tuple[tuple[int, int], ...]


def run_calls(spark: SparkSession, units: Units, call: Call, connections: int) -> list[Row]:
    """Write the units; rows of `RESULT`, whose `unit` is the place in `units.which`.

    Args:
        spark: the session.
        units: each is one task's at a time.
        call: writes one.
        connections: how many at the same time.
    """
    count = len(units.which)
    if not count:
        return []
    # Neighbours are in different tasks, so that the first ranges come first.
    slices = min(connections, count)
    return spark.range(0, slices, 1, slices).mapInArrow(_worker(units, call, slices), RESULT).collect()


def _worker(
    units: Units, call: Call, slices: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for first in batch.column(0).to_pylist():
                assert first is not None
                yield from map(result_row, _write(units, call, range(first, len(units.which), slices)))

    return work


class _Session:
    """The one session of a task, whichever of the databases it is at."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._number: int | None = None
        self._connection: psycopg.Connection | None = None

    def at(self, number: int) -> psycopg.Connection:
        """A session with a database; the one with another is ended before."""
        if number != self._number or self._connection is None or self._connection.closed:
            self.close()
            self._connection = self._hosts[number].connect()
            self._number = number
        return self._connection

    def close(self) -> None:
        """End it; what is not committed never was."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None


def _write(units: Units, call: Call, places: Sequence[int]) -> Iterator[Outcome]:
    session = _Session(units.hosts)
    try:
        for place in places:
            yield _try(units, call, place, session)
    finally:
        session.close()


def _try(units: Units, call: Call, place: int, session: _Session) -> Outcome:
    number, unit = units.which[place]
    host = units.hosts[number]
    tries = 0
    while True:
        try:
            connection = session.at(number)
            with translated():
                counts = call(connection, number, unit)
        except NotYet:
            time.sleep(_PAUSE)
        except (psycopg.Error, PytubeError) as error:
            text = describe(error) if isinstance(error, psycopg.Error) else str(error)
            text = f"{host.name}: {host.redacted(text)}"
            is_lost = is_outage(error)
            tries += 1
            if not is_lost or tries == _TRIES:
                return Outcome(place, Counts(), LOST if is_lost else FAILED, text)
            session.close()
            time.sleep(_PAUSE)
        else:
            return Outcome(place, counts or Counts(), THERE if counts is None else WRITTEN)
