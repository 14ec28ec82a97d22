"""Makes the formats known to a session, together with the databases that they may read and write.

Connection strings travel inside of the pickled formats. So they are in no option, plan or log.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from pytube.errors import UsageError
from pytube.spark import queries
from pytube.spark.hosts import Host, Where, shard_map
from pytube.spark.sources.pgtable import PARTITIONS, TableSource
from pytube.spark.sources.tube import TubeSource

_known: dict[int, dict[str, Host]] = {}
"""By session: what was registered."""


def register(
    spark: SparkSession, dsn: str | Host | Mapping[str, str | Host] | None = None, schema: str = "tube"
) -> None:
    """Make the formats `tube` and `pgtable` known.

    Args:
        spark: the session.
        dsn: a database, which is then meant where no other is named; or several, by the names that the option
            `host` gives them. What was registered before stays.
        schema: of our SQL.
    """
    named = {} if dsn is None else dict(dsn) if isinstance(dsn, Mapping) else {"default": dsn}
    hosts = _known.setdefault(id(spark), {})
    hosts.update({name: one if isinstance(one, Host) else Host(one, schema) for name, one in named.items()})
    for source in (TubeSource, TableSource):
        spark.dataSource.register(_bound(source, dict(hosts)))


def _bound(source: type[DataSource], hosts: Mapping[str, Host]) -> type[DataSource]:
    # A class that no import finds is pickled as it is, with its hosts.
    return type(source.__name__, (source,), {"hosts": hosts, "__module__": __name__, "__qualname__": "bound"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of a database, or of each of several, for as many reads as are wanted while it lasts."""

    spark: SparkSession
    moments: tuple[tuple[Host, str], ...]
    """Databases, and what they call the moment."""

    def options(self) -> dict[str, str]:
        """Of the format `pgtable`; of the only database.

        Raises:
            UsageError: there are several.
        """
        if len(self.moments) != 1:
            raise UsageError("options are of one database; use table() and query(), which read all of them")
        host, name = self.moments[0]
        return {"host": host.name, "snapshot": name}

    def table(self, table: str, *, partitions: int = PARTITIONS, **options: str) -> DataFrame:
        """A table, of all databases together; options as of the format: columns, where, key."""
        return self._read(partitions, {"table": table, **options})

    def query(self, query: str, *, partitions: int = PARTITIONS, **options: str) -> DataFrame:
        """A query, likewise; divided only with the option `key`."""
        return self._read(partitions, {"query": query, **options})

    def _read(self, partitions: int, options: Mapping[str, str]) -> DataFrame:
        each = str(max(1, partitions // len(self.moments)))
        frames = []
        for host, name in self.moments:
            chosen: dict[str, Any] = {"host": host.name, "snapshot": name, "partitions": each, **options}
            frames.append(self.spark.read.format("pgtable").options(**chosen).load())
        return functools.reduce(DataFrame.unionByName, frames)


@contextmanager
def snapshot(spark: SparkSession, dsn: Where, schema: str = "tube") -> Iterator[Snapshot]:
    """Hold a moment of a database; all tasks that read it within see the same rows.

    Of several databases each has a moment of its own, about the same. The driver keeps a transaction open in
    each for as long, which keeps it from cleaning up rows that are gone since.

    Args:
        spark: the session; the formats are registered for it.
        dsn: the database, or several by ranges of shards; see `pytube.spark.hosts.Where`.
        schema: of our SQL.

    Raises:
        DatabaseUnavailable: one can't be reached; the message names it.
    """
    hosts = shard_map(dsn, schema).hosts
    register(spark, {host.name: host for host in hosts})
    with ExitStack() as held:
        moments = []
        for host in hosts:
            connection = held.enter_context(host.connect())
            connection.execute("SET idle_in_transaction_session_timeout = 0")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = connection.execute(queries.SNAPSHOT).fetchone()
            assert row is not None
            moments.append((host, str(row[0])))
        yield Snapshot(spark, tuple(moments))
