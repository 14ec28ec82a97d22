"""A fan-out of a query that the database runs: tasks run the ranges of its keys side by side."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg.errors import Diagnostic
from pyspark.sql import SparkSession

from pytube.db.errors import describe
from pytube.errors import PytubeError, UsageError
from pytube.spark import ledger, queries
from pytube.spark import tubes as of_tubes
from pytube.spark.bounds import divided, within
from pytube.spark.calls import Units, run_calls
from pytube.spark.errors import PartFailed
from pytube.spark.hosts import Host, Where, shard_map
from pytube.spark.ledger import Counts, Job, JobSpec
from pytube.spark.touch import CONNECTIONS, POD_SIZE, Touched
from pytube.spark.unit import FAILED, LOST, WRITTEN

RANGES = 32
_COUNTS = re.compile(r": (\d+) ids in (\d+) pods")


@dataclass(frozen=True, slots=True)
class FanOut:
    """What a task calls for each range."""

    job_id: str
    tubes: tuple[str, ...]
    query: str
    shard: int
    op: str
    pod_size: int
    bounds: tuple[tuple[str, ...], ...]
    """By host: where all ranges but the first begin."""

    def __call__(self, connection: psycopg.Connection, host: int, unit: int) -> Counts | None:
        """Touch what is in one range; see `pytube.spark.calls.Call`."""
        if unit in ledger.units_done(connection, self.job_id):
            return None
        notices: list[str] = []

        def on_notice(notice: Diagnostic) -> None:
            notices.append(notice.message_primary or "")

        connection.add_notice_handler(on_notice)
        try:
            connection.execute("BEGIN")
            connection.execute("SET LOCAL client_min_messages = notice")
            connection.execute(queries.PODS_INSERT, self._arguments(host, unit))
            ids, pods = _counts(notices)
            counts = Counts(ids, ids, pods // len(self.tubes))
            is_first = ledger.done(connection, self.job_id, unit, counts, None)
            connection.execute("COMMIT" if is_first else "ROLLBACK")
        except (psycopg.Error, PytubeError):
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        finally:
            connection.remove_notice_handler(on_notice)
        return counts if is_first else None

    def _arguments(self, host: int, unit: int) -> dict[str, object]:
        return {
            "tubes": ",".join(self.tubes),
            "query": within(self.query, self.bounds[host], unit),
            "shard": self.shard,
            "op": self.op,
            "pod_size": self.pod_size,
        }


def fanout_sql(
    spark: SparkSession,
    query: str,
    *,
    tubes: str | Sequence[str],
    dsn: Where,
    shard: int = 0,
    op: str = "T",
    ranges: int = RANGES,
    pod_size: int = POD_SIZE,
    job_id: str | None = None,
    max_connections: int = CONNECTIONS,
    schema: str = "tube",
) -> Touched:
    """Touch the ids that a query gives, by `tube_pods_insert` of each of its ranges.

    The data stay in the database; Spark only keeps several sessions of it busy. Worth it where the query
    can find a range of its first column by an index.

    Args:
        spark: the session.
        query: a SELECT whose first column is the id; it is run with the rights of the one who connects.
        tubes: as of `touch`, as are those that are not named here.
        dsn: the database, or several; each runs the query, and touches what it gives there.
        shard: of all ids; where a table of the tube is spread over several, `shard` among them, each id gets
            its own.
        op: I, U, D, T or B.
        pod_size: ids of a pod.
        job_id: the name of the job.
        max_connections: to all databases together.
        schema: of our SQL.
        ranges: how many, between the least id and the greatest; those of texts have about as many rows. A job
            that was begun before keeps its own.

    Raises:
        UsageError, JobConflict, PartFailed: as `touch`; an error of the query, too, is a `PartFailed`.
    """
    began = time.monotonic()
    names = (tubes,) if isinstance(tubes, str) else tuple(dict.fromkeys(tubes))
    if not names or any("," in name for name in names):
        raise UsageError("give tubes, none with a comma in its name")
    if ranges < 1 or max_connections < 1:
        raise UsageError("ranges and max_connections are at least 1")
    text = query.strip().rstrip(";").strip()
    print_of = hashlib.sha256(repr((text, shard, op)).encode()).hexdigest()[:32]
    spec = JobSpec(job_id or f"fanout {uuid.uuid4()}", names, "ranges", print_of)
    hosts = shard_map(dsn, schema).hosts
    jobs, failures = _begin(spec, hosts, text, ranges)
    which = [
        (place, unit)
        for unit in range(max((job.units for job in jobs.values()), default=0))
        for place, job in jobs.items()
        if job.state != "done" and unit < job.units
    ]
    bounds = tuple(jobs[place].bounds if place in jobs else () for place in range(len(hosts)))
    call = FanOut(spec.job_id, names, text, shard, op, pod_size, bounds)
    rows = run_calls(spark, Units(hosts, tuple(which)), call, max_connections)
    for row in rows:
        if row["state"] in (FAILED, LOST):
            failures[hosts[which[row["unit"]][0]].name] = row["error"]
    counts = _finish(spec, hosts, failures)
    written = sum(row["state"] == WRITTEN for row in rows)
    return Touched(spec.job_id, *counts, written, time.monotonic() - began)


def _begin(
    spec: JobSpec, hosts: Sequence[Host], query: str, ranges: int
) -> tuple[dict[int, Job], dict[str, str]]:
    jobs: dict[int, Job] = {}
    failures: dict[str, str] = {}
    for place, host in enumerate(hosts):
        try:
            with host.connect() as connection:
                bounds: list[str] = []
                if ledger.known_units(connection, spec.job_id) is None:
                    kind = of_tubes.kind_of(connection, spec.tubes)
                    bounds = divided(connection, query, ranges, kind)
                jobs[place] = ledger.begin(connection, spec, len(bounds) + 1, bounds)
        except UsageError as error:
            raise type(error)(f"{host.name}: {error}") from error
        except psycopg.Error as error:  # a right that lacks
            raise UsageError(f"{host.name}: {describe(error)}") from error
        except PytubeError as error:
            failures[host.name] = str(error)
    return jobs, failures


def _finish(spec: JobSpec, hosts: Sequence[Host], failures: dict[str, str]) -> Counts:
    counts = Counts()
    for host in hosts:
        if host.name not in failures:
            try:
                with host.connect() as connection:
                    counts = counts.plus(ledger.finish(connection, spec.job_id))
            except PytubeError as error:
                failures[host.name] = str(error)
    if failures:
        raise PartFailed(spec.job_id, failures)
    return counts


def _counts(notices: Sequence[str]) -> tuple[int, int]:
    for text in reversed(notices):
        if found := _COUNTS.search(text):
            return int(found[1]), int(found[2])
    raise PytubeError(f"tube_pods_insert did not say what it wrote: {notices!r}")
