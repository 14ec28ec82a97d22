"""Databases that Spark's tasks connect to, and which of them has which shards.

A password is in none of the texts that are made here, nor in the `repr` of anything. Where a DSN holds one,
it travels to the tasks inside of pickled functions, never in an option, which plans and the UI show.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pytube.db.connect import connect_sync, connection_string
from pytube.errors import ConfigError, DatabaseUnavailable, UsageError

APPLICATION = "pytube spark"
_IDLE = "SET idle_in_transaction_session_timeout = '10min'"
"""A task that waits for its next rows is within a transaction."""
_VARIABLE = re.compile(r"env:(\w+)")


@dataclass(frozen=True, slots=True)
class Host:
    """One database.

    `dsn` is a connection string, or `env:NAME` for one that is in the environment of whoever connects: the
    driver and each executor.
    """

    dsn: str = field(repr=False)
    schema: str = "tube"

    def __post_init__(self) -> None:
        """Raises `ConfigError` for what is no connection string."""
        if not _VARIABLE.fullmatch(self.dsn):
            connection_string(self.dsn, APPLICATION)

    @property
    def name(self) -> str:
        """`host:port/database`, or the variable's name; for messages."""
        if variable := _VARIABLE.fullmatch(self.dsn):
            return f"${variable[1]}"
        parts = conninfo_to_dict(self.dsn)
        if service := parts.get("service"):
            return f"service {service}"
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"

    def resolved(self) -> str:
        """The connection string.

        Raises:
            ConfigError: the variable that should hold it is not set here, or holds something else.
        """
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
        """An autocommit session, with our schema first in its path.

        Raises:
            ConfigError: as `resolved`.
            DatabaseUnavailable: it can't be had; the message names the host.
        """
        try:
            connection = connect_sync(self.resolved(), self.schema, application_name=APPLICATION)
        except DatabaseUnavailable as error:
            raise DatabaseUnavailable(f"{self.name}: {self.redacted(str(error))}") from None
        connection.execute(_IDLE)
        return connection

    def conninfo(self) -> str:
        """The connection string with the settings of all our sessions, for libraries other than psycopg."""
        return connection_string(self.resolved(), APPLICATION)

    def redacted(self, text: str) -> str:
        """`text` without the password."""
        try:
            secret = conninfo_to_dict(self.resolved()).get("password")
        except (ConfigError, psycopg.Error):
            secret = None
        return text.replace(str(secret), "********") if secret else text

    def has_password(self) -> bool:
        """Whether the connection string itself holds one."""
        return not _VARIABLE.fullmatch(self.dsn) and "password" in conninfo_to_dict(self.dsn)


@dataclass(frozen=True, slots=True)
class ShardMap:
    """Which database has which shards; ranges are inclusive and don't overlap."""

    ranges: tuple[tuple[int, int, Host], ...]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Each database once."""
        return tuple(dict.fromkeys(host for _, _, host in self.ranges))

    def place(self, host: Host) -> int:
        """The number of a host among `hosts`."""
        return self.hosts.index(host)


Where = str | Host | ShardMap | Mapping[tuple[int, int], str] | Iterable[tuple[int, int, str]]
"""A database: a connection string, or `env:NAME`; or several, by ranges of shards `(first, last)`."""

_ALL = (0, 2**31 - 1)


def shard_map(where: Where, schema: str = "tube") -> ShardMap:
    """The databases that are meant.

    Args:
        where: see `Where`. A table is an iterable of rows `(first, last, dsn)`, e.g. `df.collect()`.
        schema: of our SQL, in all of them.

    Raises:
        UsageError: ranges overlap, or end before they begin, or there is none.
        ConfigError: something is no connection string; it is not repeated.
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
