"""Spark sessions: one on this machine, as a cluster has its own; the formats in a session; snapshots."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

import pytube
from pytube.db.errors import describe
from pytube.errors import ConfigError, PytubeError, UsageError
from pytube.java import OLDEST, find
from pytube.spark.hosts import Host, Where, shard_map, value
from pytube.spark.queues import OutboxSource, TubeSource
from pytube.spark.source import PARTITIONS, TableSource

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    # Over TCP each task waits 40 ms for an acknowledgement that is delayed: Nagle's algorithm.
    "spark.python.unix.domain.socket.enabled": "true",
}


def local(cores: str = "*", settings: Mapping[str, str] | None = None, name: str = "pytube") -> SparkSession:
    """The session of this process; starts one if there is none. `settings` override `_SETTINGS`.

    `cores` are as in `local[…]`. Raises as `prepare`.
    """
    prepare()
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, setting in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, setting)
    return builder.getOrCreate()


def run_program(main: Callable[[], None]) -> None:
    """Run a program; an error ends it with one sentence on stderr and an exit code, as in `pytube`."""
    try:
        main()
    except PytubeError as error:
        message, code = str(error), error.exit_code
    except psycopg.Error as error:
        message, code = f"Postgres refused: {describe(error)}", PytubeError.exit_code
    except PySparkException as error:
        message, code = sentence(error), PytubeError.exit_code
    else:
        return
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)  # noqa: T201 # a program's last word
    sys.exit(code)


def sentence(error: Exception) -> str:
    """An error of Spark in a line: that of ours which a task or a source raised, if there is one."""
    text = str(error)
    ours = re.findall(r"pytube\.[\w.]+\.(\w+): (.+)", text)
    return str(ours[-1][1]) if ours else f"Spark refused: {text.strip().splitlines()[0]}"


def prepare() -> None:
    """Set what Spark looks for in the environment: Java, this Python for the tasks, the loopback."""
    if (java := find()) is None:
        raise ConfigError(
            f"there is no Java {OLDEST} or newer, which Spark needs: "
            "pip install 'pytube-pg[spark]' brings one"
        )
    os.environ["JAVA_HOME"] = str(java.resolve().parent.parent)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


# --- formats ----------------------------------------------------------------------------------------
# Connection strings travel inside the pickled formats, so no option, plan or log holds them.

_known: dict[int, dict[str, Host]] = {}
"""The registered databases of each session."""


def register(
    spark: SparkSession, dsn: str | Host | Mapping[str, str | Host] | None = None, schema: str = "tube"
) -> None:
    """Register the formats `tube`, `outbox` and `pgtable`.

    Args:
        spark: the session.
        dsn: the default database; or several, by their names for the option `host`. Databases that were
            registered before stay registered.
        schema: the schema of our SQL.
    """
    named = {} if dsn is None else dict(dsn) if isinstance(dsn, Mapping) else {"default": dsn}
    hosts = _known.setdefault(id(spark), {})
    hosts.update({name: one if isinstance(one, Host) else Host(one, schema) for name, one in named.items()})
    _let_streams_find_us(spark)
    for source in (TubeSource, OutboxSource, TableSource):
        spark.dataSource.register(_bound(source, dict(hosts)))


def _let_streams_find_us(spark: SparkSession) -> None:
    """Give a package that came as a zip to the process that runs a stream's source beside the driver.

    Spark gives that process no `--py-files`, unlike those that run tasks, but this environment.
    """
    place = str(Path(pytube.__file__).parent.parent)
    context = getattr(spark, "_sc", None)  # a Spark Connect session has none
    if context is not None and Path(place).is_file():
        paths = [path for path in context.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*paths, place]))


def _bound(source: type[DataSource], hosts: Mapping[str, Host]) -> type[DataSource]:
    # A class that can't be imported is pickled as a whole, with its hosts.
    return type(source.__name__, (source,), {"hosts": hosts, "__module__": __name__, "__qualname__": "bound"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of a database, or of each of several databases, for any number of reads."""

    spark: SparkSession
    moments: tuple[tuple[Host, str], ...]
    """The databases, each with its name for the moment."""

    def options(self) -> dict[str, str]:
        """Options of the format `pgtable`, for the only database; `UsageError` if there are several."""
        if len(self.moments) != 1:
            raise UsageError("options are of one database; use table() and query(), which read all of them")
        host, name = self.moments[0]
        return {"host": host.name, "snapshot": name}

    def table(self, table: str, *, partitions: int = PARTITIONS, **options: str) -> DataFrame:
        """Read a table from all databases; `options` are those of the format: columns, where, key."""
        return self._read(partitions, {"table": table, **options})

    def query(self, query: str, *, partitions: int = PARTITIONS, **options: str) -> DataFrame:
        """Read a query from all databases; it is divided only with the option `key`."""
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
    """Hold a moment of a database: all tasks that read within the block see the same rows.

    Each of several databases has a moment of its own, about the same one. The driver keeps a transaction open
    in each database, so vacuum can't remove rows that are deleted meanwhile.

    Args:
        spark: the session; the formats are registered in it.
        dsn: the database, or several by ranges of shards; see `pytube.spark.hosts.Where`.
        schema: the schema of our SQL.

    Raises:
        DatabaseUnavailable: a database can't be reached. The message names the database.
    """
    hosts = shard_map(dsn, schema).hosts
    register(spark, {host.name: host for host in hosts})
    with ExitStack() as held:
        moments = []
        for host in hosts:
            connection = held.enter_context(host.connect())
            connection.execute("SET idle_in_transaction_session_timeout = 0")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            moments.append((host, str(value(connection, "SELECT pg_export_snapshot()"))))
        yield Snapshot(spark, tuple(moments))
