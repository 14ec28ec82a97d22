"""The databases that Spark's tasks connect to, the shards that each of them has, and their sessions.

No text made here holds a password, nor does any `repr`. A DSN with a password travels to the tasks inside
pickled functions, never in an option: plans and the UI show options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, LiteralString

import numpy as np
import psycopg
from psycopg.conninfo import conninfo_to_dict

from pytube.db.connect import connect_sync, connection_string
from pytube.db.errors import describe, translated
from pytube.errors import ConfigError, DatabaseUnavailable, UsageError
from pytube.spark.arrays import Ints

APPLICATION = "pytube spark"
_IDLE = "SET idle_in_transaction_session_timeout = '10min'"
"""A task waits for its next rows within a transaction."""
_VARIABLE = re.compile(r"env:(\w+)")


@dataclass(frozen=True, slots=True)
class Host:
    """One database.

    `dsn` is a connection string; or `env:NAME`, for a connection string in the environment of the driver and
    of each executor.
    """

    dsn: str = field(repr=False)
    schema: str = "tube"

    def __post_init__(self) -> None:
        """Raises `ConfigError` if `dsn` is no connection string."""
        if not _VARIABLE.fullmatch(self.dsn):
            connection_string(self.dsn, APPLICATION)

    @property
    def name(self) -> str:
        """A name for messages: `host:port/database`, or the variable's name."""
        if variable := _VARIABLE.fullmatch(self.dsn):
            return f"${variable[1]}"
        parts = conninfo_to_dict(self.dsn)
        if service := parts.get("service"):
            return f"service {service}"
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"

    def resolved(self) -> str:
        """The connection string; raises `ConfigError` if the variable that should hold it is not set here."""
        variable = _VARIABLE.fullmatch(self.dsn)
        if variable is None:
            return self.dsn
        value = os.environ.get(variable[1])
        if not value:
            raise ConfigError(
                f"the variable {variable[1]} is not set where this runs; "
                f"executors get it by spark.executorEnv.{variable[1]}"
            )
        return value

    def connect(self) -> psycopg.Connection:
        """Open an autocommit session, with our schema first in its search path.

        Raises `ConfigError` as `resolved`, and `DatabaseUnavailable`, or `PooledSession`, if there is none.
        """
        try:
            connection = connect_sync(self.resolved(), self.schema, application_name=APPLICATION)
        except DatabaseUnavailable as error:
            raise type(error)(self.reason(error)) from None
        connection.execute(_IDLE)
        return connection

    def conninfo(self) -> str:
        """The connection string with the settings of our sessions, for libraries other than psycopg."""
        return connection_string(self.resolved(), APPLICATION)

    def redacted(self, text: str) -> str:
        """`text` without the password."""
        try:
            secret = conninfo_to_dict(self.resolved()).get("password")
        except (ConfigError, psycopg.Error):
            secret = None
        return text.replace(str(secret), "********") if secret else text

    def reason(self, error: Exception) -> str:
        """The text of an error, after the name of the host and without the password."""
        text = describe(error) if isinstance(error, psycopg.Error) else str(error)
        return f"{self.name}: {self.redacted(text).removeprefix(f'{self.name}: ')}"

    def has_password(self) -> bool:
        """Whether the connection string itself holds one."""
        return not _VARIABLE.fullmatch(self.dsn) and "password" in conninfo_to_dict(self.dsn)


@dataclass(frozen=True, slots=True)
class ShardMap:
    """The database of each shard. Ranges are inclusive and don't overlap."""

    ranges: tuple[tuple[int, int, Host], ...]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The databases, each once."""
        return tuple(dict.fromkeys(host for _, _, host in self.ranges))

    def places(self, shards: Ints) -> Ints:
        """The number of the database of each shard; raises `UsageError` if one has none."""
        if self.ranges[0][:2] == _ALL:
            return np.zeros(len(shards), np.int64)
        firsts, lasts = (np.array([bounds[end] for bounds in self.ranges]) for end in (0, 1))
        found = np.searchsorted(firsts, shards, side="right") - 1
        wrong = (found < 0) | (shards > lasts[found])
        if wrong.any():
            raise UsageError(f"no database has the shard {shards[wrong][0]}")
        places: Ints = np.array([self.hosts.index(host) for _, _, host in self.ranges])[found]
        return places


Where = str | Host | ShardMap | Mapping[tuple[int, int], str] | Iterable[tuple[int, int, str]]
"""A database, as a connection string or `env:NAME`; or several, by ranges of shards `(first, last)`."""

_ALL = (0, 2**31 - 1)


def shard_map(where: Where, schema: str = "tube") -> ShardMap:
    """The databases that the caller of a job names.

    Args:
        where: see `Where`. An iterable gives rows `(first, last, dsn)`, e.g. `df.collect()`.
        schema: the schema of our SQL in all databases.

    Raises:
        UsageError: ranges overlap, end before they begin, or are missing.
        ConfigError: a value is no connection string. The message does not repeat the value.
    """
    if isinstance(where, ShardMap):
        return where
    if isinstance(where, Host):
        return ShardMap(((*_ALL, where),))
    if isinstance(where, str):
        return ShardMap(((*_ALL, Host(where, schema)),))
    rows = [(*bounds, dsn) for bounds, dsn in where.items()] if isinstance(where, Mapping) else list(where)
    ranges = sorted(
        ((int(low), int(high), Host(dsn, schema)) for low, high, dsn in rows), key=lambda r: r[:2]
    )
    if not ranges:
        raise UsageError("the shard map is empty; give {(first shard, last shard): dsn, …}")
    last = -1
    for low, high, host in ranges:
        if low <= last or high < low:
            raise UsageError(
                f"the shards {low} to {high} of {host.name} overlap others, or end before they begin"
            )
        last = high
    return ShardMap(tuple(ranges))


class TaskSession:
    """The one session of a task, with one of several databases at a time."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts
        self._place: int | None = None
        self._connection: psycopg.Connection | None = None

    def at(self, place: int) -> psycopg.Connection:
        """The session with a database; ends the session with another one. Raises as `Host.connect`."""
        if place != self._place or self._connection is None or self._connection.closed:
            self.close()
            self._connection = self.hosts[place].connect()
            self._place = place
        return self._connection

    def close(self) -> None:
        """End the session. Whatever is not committed is rolled back."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None


def rows(connection: psycopg.Connection, query: LiteralString, /, **arguments: object) -> list[Any]:
    """The rows that a statement returns. Errors are raised as ours if we know them."""
    with translated():
        return connection.execute(query, arguments).fetchall()


def first_row(connection: psycopg.Connection, query: LiteralString, /, **arguments: object) -> Any:
    """The first row that a statement returns, or None; raises as `rows`."""
    return next(iter(rows(connection, query, **arguments)), None)


def value(connection: psycopg.Connection, query: LiteralString, /, **arguments: object) -> Any:
    """The value that a statement returns, which has one row of one column; raises as `rows`."""
    return rows(connection, query, **arguments)[0][0]
