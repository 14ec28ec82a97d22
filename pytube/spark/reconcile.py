"""Compares a source with a sink, and touches what differs.

First by buckets of keys: how many rows, and a sum of their hashes. Keys are looked at where these
differ. Rows are read once on each side; what is kept of each, meanwhile, is its key and its hash.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType
from pyspark.storagelevel import StorageLevel

from pytube.errors import UsageError
from pytube.model import Id
from pytube.spark import frame, identity, job
from pytube.spark.hosts import Where, shard_map
from pytube.spark.kinds import BIGINT, KeyKind
from pytube.spark.ledger import JobSpec
from pytube.spark.touch import BUCKETS as UNITS
from pytube.spark.touch import Touched, touch

BUCKETS = 4096
_HALF = 0xFFFFFFFF
_UNIT = 10_000
"""Keys that are worth a unit of their own when they are touched."""
_FEW = 1_000
"""Differing keys that are counted here rather than by Spark, which takes longer."""
_PLAIN = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}
"""Hashes can't be compressed, and trying takes longer than reading."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What was found, and what was done about it."""

    source: int
    """Rows."""
    sink: int
    buckets: int
    """That differ."""
    missing: int
    """Keys of the source that the sink lacks."""
    extra: int
    """Keys of the sink that the source lacks."""
    different: int
    """Keys with other values, or that stand there more often than at the other side."""
    examples: tuple[tuple[str, int, Id], ...]
    """Some of them: what is wrong, the shard and the id; a uuid as Postgres writes it."""
    touched: Touched | None
    """None where nothing was touched."""
    seconds: float

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.extra or self.different)

    def __str__(self) -> str:
        done = f"; {self.touched.ids} touched" if self.touched else ""
        return (
            f"{self.missing} missing, {self.extra} extra, {self.different} different, "
            f"of {self.source} rows at the source and {self.sink} at the sink{done}"
        )


def reconcile(
    source_df: DataFrame,
    sink_df: DataFrame,
    key: str | Mapping[str, str] = "id",
    columns: Sequence[str] | None = None,
    *,
    tubes: str | Sequence[str] = (),
    dsn: Where | None = None,
    shard: str | int = 0,
    key_type: str | None = None,
    buckets: int = BUCKETS,
    examples: int = 20,
    told: Callable[[str], object] | None = print,
    **touching: Any,
) -> Reconciled:
    """Compare rows, and touch the keys that differ: their workers read the source again, and write the sink.

    Rows that change while this reads may be found to differ; touching them does no harm.

    Args:
        source_df: what is true.
        sink_df: what is at the sink; any DataFrame.
        key: the column of the ids, at both sides.
        columns: to compare; by default those that both have. The sink's are cast to the source's types.
        tubes: that are touched; with none, it is only compared.
        dsn: as of `touch`.
        shard: the column of the shards at both sides, or the one shard of all.
        key_type: bigint, uuid or text; by default that of the tubes' keys, and with none text where the
            source has texts. As uuids, all forms of one are the same key.
        buckets: more of them make the second look smaller where little differs.
        examples: how many keys to name.
        told: is told the result, as a sentence; None: nobody.
        touching: more for `touch`: op, job_id, max_connections, …

    Raises:
        UsageError: a column lacks, or can't be compared; an id is NULL, or of another type than the keys.
        Others: as `touch`.
    """
    began = time.monotonic()
    if tubes and dsn is None:
        raise UsageError("which database? Give dsn=… together with tubes=…")
    name = key if isinstance(key, str) else str(key["id"])
    compared = list(columns) if columns is not None else _shared(source_df, sink_df, name, shard)
    types = _types(source_df, sink_df, [name, *([shard] if isinstance(shard, str) else []), *compared])
    of_tubes = _kind_of(tubes, dsn, str(touching.get("schema", "tube")))
    kind = identity.chosen(source_df, name, key_type, of_tubes)
    sides = [hashed(df, name, shard, compared, types, kind) for df in (source_df, sink_df)]
    kept = [df.persist(StorageLevel.MEMORY_AND_DISK) for df in frame.apart(_PLAIN, *sides)]
    try:
        source, sink = (placed(df, shard, buckets) for df in kept)
        found = _compare(source, sink, buckets)
        wrong = found.differing.persist(StorageLevel.MEMORY_AND_DISK)
        some = wrong.limit(max(_FEW, examples)).collect()
        counts: Mapping[str, int] = Counter(row["what"] for row in some)
        if len(some) >= _FEW:
            counts = {row["what"]: int(row["count"]) for row in wrong.groupBy("what").count().collect()}
        touched = None
        if tubes and dsn is not None and counts:
            touching.setdefault("fingerprint", f"reconcile {name} {compared} {shard}")
            units = min(UNITS, 1 + sum(counts.values()) // _UNIT)
            touched = touch(wrong.select("shard", "id"), tubes=tubes, dsn=dsn, buckets=units, **touching)
        wrong.unpersist()
    except PySparkException as error:
        reason = frame.refusal(error)
        if reason is None:
            raise
        raise UsageError(reason) from None
    finally:
        for df in kept:
            df.unpersist()
    result = Reconciled(
        source=found.source,
        sink=found.sink,
        buckets=found.buckets,
        missing=counts.get("missing", 0),
        extra=counts.get("extra", 0),
        different=counts.get("different", 0),
        examples=tuple(
            (str(row["what"]), int(row["shard"]), identity.shown(row["id"])) for row in some[:examples]
        ),
        touched=touched,
        seconds=time.monotonic() - began,
    )
    if told is not None:
        told(str(result))
    return result


def _kind_of(tubes: str | Sequence[str], dsn: Where | None, schema: str) -> KeyKind | None:
    if not tubes or dsn is None:
        return None
    names = (tubes,) if isinstance(tubes, str) else tuple(tubes)
    return job.look(JobSpec("reconcile", names, "direct", ""), shard_map(dsn, schema)).kind


# --- one side -------------------------------------------------------------------------------------


def hashed(
    df: DataFrame,
    key: str,
    shard: str | int,
    columns: Sequence[str],
    types: Mapping[str, DataType],
    kind: KeyKind = BIGINT,
) -> DataFrame:
    """Id, hash and, where a column says it, shard of each row. The hash is of the values in `types`."""
    values = [_comparable(frame.named(name), types[name]) for name in columns]
    # A hash passes over NULLs, so which values are NULL is hashed too.
    absent = [sf.when(value.isNull(), sf.lit(1)).otherwise(sf.lit(0)) for value in values]
    kept = [
        identity.normal(
            frame.required(frame.named(key), "an id is NULL"), df.schema[key].dataType, kind
        ).alias("id"),
        sf.xxhash64(sf.lit("row"), *values, *absent).alias("hash"),
    ]
    if isinstance(shard, str):
        kept.append(frame.required(frame.named(shard), "a shard is NULL").cast("int").alias("shard"))
    return df.select(*kept)


def placed(df: DataFrame, shard: str | int, buckets: int) -> DataFrame:
    """What `hashed` gave, with the shard and bucket of each row."""
    place = sf.lit(shard) if isinstance(shard, int) else sf.col("shard")
    bucket = sf.pmod(sf.xxhash64(place.cast("int"), sf.col("id")), sf.lit(buckets).cast("bigint"))
    return df.select(bucket.cast("int").alias("bucket"), place.cast("int").alias("shard"), "id", "hash")


# --- both ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    source: int
    sink: int
    buckets: int
    differing: DataFrame
    """Shard, id, and what is wrong."""


def _compare(source: DataFrame, sink: DataFrame, buckets: int) -> _Found:
    both = source.withColumn("ours", sf.lit(True)).unionByName(sink.withColumn("ours", sf.lit(False)))
    sums = summed("bucket", both).collect()
    differ = [row["bucket"] for row in sums if row["source"] != row["sink"] or row["low"] or row["high"]]
    # As text: a literal for each bucket, one by one, takes Python longer than comparing the rows.
    within = "bucket IN ({})".format(", ".join(map(str, differ))) if differ else "false"
    keys = summed("shard id", both.where(within) if len(differ) < buckets else both)
    what = (
        sf.when(sf.col("sink") == 0, sf.lit("missing"))
        .when(sf.col("source") == 0, sf.lit("extra"))
        .when(sf.expr("source <> sink OR low <> 0 OR high <> 0"), sf.lit("different"))
    )
    differing = keys.select("shard", "id", what.alias("what")).where(sf.col("what").isNotNull())
    counts = [sum(row[side] for row in sums) for side in ("source", "sink")]
    return _Found(counts[0], counts[1], len(differ), differing)


def summed(by: str, both: DataFrame) -> DataFrame:
    """How many rows each side has, and by how much the sums of both halves of their hashes differ.

    Halves, because these sums don't run over.
    """
    low = sf.col("hash").bitwiseAND(sf.lit(_HALF).cast("bigint"))
    high = sf.shiftrightunsigned(sf.col("hash"), 32)
    return both.groupBy(*by.split()).agg(
        sf.count_if(sf.col("ours")).alias("source"),
        sf.count_if(~sf.col("ours")).alias("sink"),
        sf.sum(sf.when(sf.col("ours"), low).otherwise(-low)).alias("low"),
        sf.sum(sf.when(sf.col("ours"), high).otherwise(-high)).alias("high"),
    )


# --- columns ----------------------------------------------------------------------------------------


def _shared(source: DataFrame, sink: DataFrame, key: str, shard: str | int) -> list[str]:
    theirs = set(sink.columns)
    shared = [name for name in source.columns if name in theirs and name not in (key, shard)]
    if not shared:
        raise UsageError("the two sides share no column but the key; give columns=…")
    return shared


def _types(source: DataFrame, sink: DataFrame, names: Sequence[str]) -> dict[str, DataType]:
    for which, df in (("source", source), ("sink", sink)):
        lacking = [name for name in names if name not in df.columns]
        if lacking:
            raise UsageError(
                f"the {which} has no column {', '.join(map(repr, lacking))}; it has {df.columns}"
            )
    return {field.name: field.dataType for field in source.schema.fields}


def _comparable(value: Column, kind: DataType) -> Column:
    """The value in the source's type, as something that has a hash."""
    if isinstance(kind, MapType | StructType | ArrayType):
        return sf.to_json(value)
    return value.try_cast(kind)
