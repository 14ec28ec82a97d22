"""A fan-out from any DataFrame: its keys are touched, each unit of them exactly once."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pytube.errors import UsageError
from pytube.spark import frame, job
from pytube.spark.hosts import Where, shard_map
from pytube.spark.job import Parts
from pytube.spark.ledger import JobSpec
from pytube.spark.pack import PACKED, PackPlan, pack_keys
from pytube.spark.unit import FAILED, LOST, RESULT, WRITTEN, UnitPlan, write_units

BUCKETS = 64
"""Units of a new job. Each is a transaction; what a task does again after a fault is one at most."""
POD_SIZE = 250
CONNECTIONS = 8
_OPS = "IUDTB"
_ARROW = {
    # Where this has a limit, Spark measures the batch anew for each row, which costs more than all else.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # Of keys it is 48 KB, of packed ones 100 MB at most.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
}


@dataclass(frozen=True, slots=True)
class Touched:
    """What a job has written, in this run and before. With several tubes, each got so much."""

    job_id: str
    rows: int
    """That the DataFrame had."""
    ids: int
    """That are touched: of a key that stands there twice, one may be left out."""
    pods: int
    units: int
    """That this run has written; 0 when all was in."""
    seconds: float


def touch(
    df: DataFrame,
    *,
    tubes: str | Sequence[str],
    dsn: Where,
    op: str = "T",
    id: str = "id",  # noqa: A002 # what the column is called
    shard: str | int | None = "shard",
    pod_size: int = POD_SIZE,
    job_id: str | None = None,
    publish: Literal["direct", "staged"] = "direct",
    max_connections: int = CONNECTIONS,
    buckets: int = BUCKETS,
    schema: str = "tube",
    fingerprint: str | None = None,
    payload: Mapping[str, Any] | None = None,
    probe: Any = None,
) -> Touched:
    """Touch the keys that a DataFrame names.

    Exactly once for a `job_id`: a task that is retried, speculated or killed leaves no second copy, and a job
    that is run again writes only what lacks.

    Args:
        df: with the columns of ids and shards; others are not looked at.
        tubes: one or several, written in one transaction.
        dsn: the database, or several by ranges of shards; see `pytube.spark.hosts.Where`.
        op: I, U, D, T or B.
        id: the column of the ids, none NULL: whole numbers; for a tube of uuids texts in any form that
            Postgres reads, or 16 bytes; for one of texts texts.
        shard: the column of the shards, or one shard for all; None: that of the only table that is attached
            to the tubes, each id its own where the table is spread.
        pod_size: ids of a pod; fewer where texts are long.
        job_id: the name of the job; by default a new one.
        publish: `direct`: each unit can be seen when it is written; `staged`: all at once at the end, in
            each database in one transaction.
        max_connections: to all databases together; speculative copies have their own.
        buckets: units of a new job, in each database.
        schema: of our SQL.
        fingerprint: what the job is; by default taken from the plan of `df`. A job that was begun with
            another one is refused.
        payload: of all pods.
        probe: for tests.

    Raises:
        UsageError: a column lacks or has the wrong type, a key can't be, a tube is not there. Nothing was
            written: all rows are looked at first.
        JobConflict: the name is another job's.
        PartFailed: some databases did not get their part; what the others got stays.
    """
    began = time.monotonic()
    names = (tubes,) if isinstance(tubes, str) else tuple(dict.fromkeys(tubes))
    _check(op, pod_size, max_connections, publish)
    hosts = shard_map(dsn, schema)
    if df.isStreaming:
        raise UsageError("a stream can't be touched; call touch within foreachBatch")
    print_of = fingerprint or frame.fingerprint(df, id, shard, op, payload)
    spec = JobSpec(job_id or f"touch {uuid.uuid4()}", names, publish, print_of)
    parts = job.look(spec, hosts)
    [keyed] = frame.apart(_ARROW, frame.keys(df, id, shard, parts.kind))
    parts.begin(buckets)
    plan = UnitPlan(
        hosts.hosts, spec.job_id, names, op, parts.units, pod_size, parts.stages(), payload, probe, parts.kind
    )
    written = 0
    if any(part.is_open for part in parts.parts):
        written = _work(keyed, _packing(parts, shard), plan, max_connections, parts)
    counts = parts.finish()
    return Touched(spec.job_id, *counts, written, time.monotonic() - began)


def _work(keyed: DataFrame, packing: PackPlan, plan: UnitPlan, connections: int, parts: Parts) -> int:
    """Write what lacks, in rounds; how many units were written."""
    written = 0
    for number in range(job.ROUNDS):
        if number:
            parts.refresh()
        total = len(parts.parts) * parts.units
        skipped = frozenset(unit for unit in range(total) if not parts.is_wanted(unit))
        packed = keyed.mapInArrow(pack_keys(replace(packing, skipped=skipped)), PACKED)
        # Each unit is a partition; those of a task come one after the other.
        shuffled = packed.repartitionById(total, "unit").coalesce(min(connections, total))
        try:
            rows = shuffled.mapInArrow(write_units(plan), RESULT).collect()
        except PySparkException as error:
            reason = frame.refusal(error)
            if reason is None:
                raise
            raise UsageError(reason) from None
        if len({row["unit"] for row in rows}) < len(rows):
            raise RuntimeError("the rows of a unit came to two tasks, and the second part was not written")
        written += sum(row["state"] == WRITTEN for row in rows)
        lost = False
        for row in rows:
            if row["state"] in (FAILED, LOST):
                part = parts.parts[row["unit"] // parts.units]
                part.failure = row["error"]
                lost = lost or row["state"] == LOST
        if not lost:
            break
    return written


def _packing(parts: Parts, shard: str | int | None) -> PackPlan:
    """How keys come to their units."""
    spread = tuple(sorted({found for part in parts.parts for found in part.spread}))
    if shard is None and len(spread) != 1:
        raise UsageError(
            "which shard? Give a column or a number: shard=…; it can be told only if the tables of the "
            "tubes have the same shards"
        )
    return PackPlan(
        buckets=parts.units,
        ranges=tuple((low, high, parts.hosts.place(host)) for low, high, host in parts.hosts.ranges),
        skipped=frozenset(),
        shard=shard if isinstance(shard, int) else None,
        derived=spread[0] if shard is None else None,
        # What is derived needs no look whether it is right.
        spread=tuple(one for one in spread if one[1] > 1 and shard is not None),
        kind=parts.kind,
    )


def _check(op: str, pod_size: int, connections: int, publish: str) -> None:
    if not re.fullmatch(f"[{_OPS}]", op):
        raise UsageError(f"there is no op {op!r}; give one of {', '.join(_OPS)}")
    if pod_size < 1 or connections < 1:
        raise UsageError("pod_size and max_connections are at least 1")
    if publish not in ("direct", "staged"):
        raise UsageError(f"publish={publish!r} is neither 'direct' nor 'staged'")
