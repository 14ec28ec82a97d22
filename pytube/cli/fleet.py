"""What `pytube status` reads: the partitions of all hosts; one that is down is told, and the others read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg

from pytube.cli.context import Database
from pytube.db.connect import connect_sync
from pytube.db.errors import translated
from pytube.db.version import check
from pytube.errors import DatabaseUnavailable, UnknownTube, WrongKind
from pytube.health.prometheus import HostReading, read_sizes, read_writers
from pytube.health.status import PartitionStatus, read_status, timed_status
from pytube.outbox.admin import OutboxPartition, read_outboxes, timed_outboxes


@dataclass(slots=True)
class Reading:
    """What was read of all hosts at one time."""

    rows: list[PartitionStatus] = field(default_factory=list)
    outboxes: list[OutboxPartition] = field(default_factory=list)
    """All of them, unless one tube is asked for."""
    down: dict[str, str] = field(default_factory=dict)
    """Why hosts could not be read, by name."""
    took: float = 0.0
    """Seconds that it took the server of a host, at most."""


class Fleet:
    """The hosts, and a session with each."""

    def __init__(self, databases: Sequence[Database]) -> None:
        self._databases = databases
        self._connections: dict[str | None, psycopg.Connection] = {}

    @property
    def has_names(self) -> bool:
        """Whether there are several hosts."""
        return any(database.host is not None for database in self._databases)

    def read(self, tube: str | None) -> Reading:
        """The partitions of a tube, or of all.

        Raises:
            UnknownTube: all hosts were read, and none has such a tube.
            WrongKind: it is an outbox.
            DatabaseUnavailable: the only host can't be read.
        """
        reading = Reading()
        for database in self._databases:
            try:
                with self._session(database) as connection:
                    rows, took = timed_status(connection, database.schema, tube)
                    outboxes, more = timed_outboxes(connection, database.schema, tube)
            except DatabaseUnavailable as error:
                if database.host is None:
                    raise
                reading.down[database.host] = str(error)
            else:
                reading.took = max(reading.took, took + more)
                reading.rows += [replace(row, host=database.host) for row in rows]
                reading.outboxes += [replace(row, host=database.host) for row in outboxes]
        if tube is not None and reading.outboxes:
            raise WrongKind(f"{tube!r} is an outbox, not a tube: pytube outbox status {tube}")
        if tube is not None and not reading.rows and not reading.down:
            raise UnknownTube(f"there is no tube {tube!r}; `pytube tube list` names those that there are")
        return reading

    def read_metrics(self, tube: str | None) -> list[HostReading]:
        """As `read`, and the transactions that write, and the sizes of tubes."""
        readings = []
        for database in self._databases:
            try:
                with self._session(database) as connection:
                    rows = read_status(connection, database.schema, tube)
                    outboxes = read_outboxes(connection, database.schema, tube)
                    writers, sizes = read_writers(connection), read_sizes(connection, database.schema)
                    readings.append(HostReading(database.host, rows, outboxes, writers, sizes))
            except DatabaseUnavailable:
                if database.host is None:
                    raise
                readings.append(HostReading(database.host, is_up=False))
        return readings

    def close(self) -> None:
        """End all sessions."""
        for connection in self._connections.values():
            connection.close()

    @contextmanager
    def _session(self, database: Database) -> Iterator[psycopg.Connection]:
        """The session with a host; a new one after it was lost."""
        with translated():
            connection = self._connections.get(database.host)
            if connection is None or connection.closed:
                connection = self._connections[database.host] = _open(database)
            yield connection


def _open(database: Database) -> psycopg.Connection:
    connection = connect_sync(database.dsn, database.schema, application_name="pytube cli")
    try:
        check(connection, database.schema)
    except BaseException:
        connection.close()
        raise
    return connection
