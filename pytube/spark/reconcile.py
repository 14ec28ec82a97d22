"""Compares a source with a sink, and touches the keys that differ.

Buckets of keys are compared first, by the number of rows and the sum of their hashes; then the keys in the
buckets that differ. Each side is read once. Only the key and the hash of each row are kept.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from pytube.comparison import Difference, counted
from pytube.errors import UsageError
from pytube.model import Id, touch_op
from pytube.spark import frame, job
from pytube.spark.arrays import BIGINT, KeyKind
from pytube.spark.hosts import Where, shard_map
from pytube.spark.job import JobSpec
from pytube.spark.touch import BUCKETS as UNITS
from pytube.spark.touch import Touched, touch

BUCKETS = 4096
_HALF = 0xFFFFFFFF
_UNIT = 10_000
"""Keys that are worth a unit of their own when they are touched."""
_FEW = 1_000
"""So few differing keys are counted here, because Spark takes longer."""
_PLAIN = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}
"""Hashes don't compress, and the attempt takes longer than reading them."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The differences, and the touches that followed."""

    source: int
    """Rows of the source."""
    sink: int
    """Rows of the sink."""
    buckets: int
    """Buckets that differ."""
    missing: int
    """Keys that only the source has."""
    extra: int
    """Keys that only the sink has."""
    different: int
    """Keys with other values, or with another number of rows."""
    examples: tuple[tuple[str, int | None, Id], ...]
    """Some of the keys: the kind of difference, the shard (None: not compared) and the id; a uuid as Postgres
    writes it."""
    touched: Touched | None
    """None: nothing was touched."""
    seconds: float

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.extra or self.different)

    def __str__(self) -> str:
        done = f"; {self.touched.ids} touched" if self.touched else ""
        found = counted(self.missing, self.extra, self.different)
        return f"{found}, of {self.source} rows at the source and {self.sink} at the sink{done}"


def reconcile(
    source_df: DataFrame,
    sink_df: DataFrame,
    key: str = "id",
    columns: Sequence[str] | None = None,
    *,
    tubes: str | Sequence[str] = (),
    dsn: Where | None = None,
    shard: str | int | None = None,
    key_type: str | None = None,
    buckets: int = BUCKETS,
    examples: int = 20,
    told: Callable[[str], object] | None = print,
    **touching: Any,
) -> Reconciled:
    """Compare rows, and touch the keys that differ: workers then read the source again and write the sink.

    Rows that change meanwhile may seem to differ. Touching them does no harm.

    Args:
        source_df: the rows of the source.
        sink_df: the rows of the sink.
        key: the column of the ids on both sides.
        columns: the columns to compare; by default those that both sides have. Values of the sink are cast to
            the source's types.
        tubes: the tubes to touch; if none, the sides are only compared.
        dsn: as for `touch`.
        shard: the column of the shards on both sides, or the one shard of all rows; None: ids are compared
            without shards, and touched in those of the only table that is attached to the tubes.
        key_type: bigint, uuid or text; by default the type of the tubes' keys; without tubes text if the
            source has texts. With uuid, all forms of a uuid are the same key.
        buckets: with more buckets, fewer keys are compared one by one if few rows differ.
        examples: how many keys to name.
        told: is called with the result as a sentence; None: nothing is.
        touching: more arguments of `touch`: op (default: T, or B for more than 1,000 keys), job_id, …

    Raises:
        UsageError: a column is missing or can't be compared; an id is NULL or has a wrong type.
        Others: as `touch`.
    """
    began = time.monotonic()
    if tubes and dsn is None:
        raise UsageError("which database? Give dsn=… together with tubes=…")
    compared = list(columns) if columns is not None else _shared(source_df, sink_df, key, shard)
    types = _types(source_df, sink_df, [key, *([shard] if isinstance(shard, str) else []), *compared])
    parts = None
    if tubes and dsn is not None:
        hosts = shard_map(dsn, str(touching.get("schema", "tube")))
        parts = job.look(JobSpec("reconcile", job.names_of(tubes), "direct", ""), hosts)
    kind = frame.kind_to_compare(source_df, key, key_type, parts.kind if parts is not None else None)
    if parts is not None and shard is None:
        parts.only_spread()  # refuses before it compares
    sides = [hashed(df, key, shard, compared, types, kind) for df in (source_df, sink_df)]
    with frame.refusals(), ExitStack() as kept:

        def keep(df: DataFrame) -> DataFrame:
            kept.callback(df.unpersist)
            return df.persist(StorageLevel.MEMORY_AND_DISK)

        source, sink = (placed(keep(df), shard, buckets) for df in frame.apart(_PLAIN, *sides))
        of_source, of_sink, differ, differing = _compare(source, sink, buckets)
        wrong = keep(differing)
        some = wrong.limit(max(_FEW, examples)).collect()
        counts: Mapping[str, int] = Counter(row["what"] for row in some)
        if len(some) >= _FEW:
            counts = {row["what"]: int(row["count"]) for row in wrong.groupBy("what").count().collect()}
        touched = None
        if tubes and dsn is not None and counts:
            touching.setdefault("op", touch_op(sum(counts.values())))
            touching.setdefault("fingerprint", f"reconcile {key} {compared} {shard}")
            units = min(UNITS, 1 + sum(counts.values()) // _UNIT)
            touching["shard"] = None if shard is None else "shard"
            touched = touch(wrong.select("shard", "id"), tubes=tubes, dsn=dsn, buckets=units, **touching)
    result = Reconciled(
        source=of_source,
        sink=of_sink,
        buckets=differ,
        missing=counts.get(Difference.MISSING, 0),
        extra=counts.get(Difference.EXTRA, 0),
        different=counts.get(Difference.DIFFERENT, 0),
        examples=tuple(
            (str(row["what"]), None if shard is None else int(row["shard"]), frame.document_id(row["id"]))
            for row in some[:examples]
        ),
        touched=touched,
        seconds=time.monotonic() - began,
    )
    if told is not None:
        told(str(result))
    return result


# --- one side -------------------------------------------------------------------------------------


def hashed(
    df: DataFrame,
    key: str,
    shard: str | int | None,
    columns: Sequence[str],
    types: Mapping[str, DataType],
    kind: KeyKind = BIGINT,
) -> DataFrame:
    """The id, the hash and, if `shard` is a column, the shard of each row. Values are hashed as `types`."""
    values = [_comparable(frame.named(name), types[name]) for name in columns]
    # The hash skips NULLs, so a flag for each value is hashed too.
    absent = [sf.when(value.isNull(), sf.lit(1)).otherwise(sf.lit(0)) for value in values]
    kept = [
        frame.normal(frame.required(frame.named(key), "an id is NULL"), df.schema[key].dataType, kind).alias(
            "id"
        ),
        sf.xxhash64(sf.lit("row"), *values, *absent).alias("hash"),
    ]
    if isinstance(shard, str):
        kept.append(frame.required(frame.named(shard), "a shard is NULL").cast("int").alias("shard"))
    return df.select(*kept)


def placed(df: DataFrame, shard: str | int | None, buckets: int) -> DataFrame:
    """The rows of `hashed` with the shard (0 where none is compared) and the bucket of each row."""
    place = sf.col("shard") if isinstance(shard, str) else sf.lit(shard or 0)
    bucket = sf.pmod(sf.xxhash64(place.cast("int"), sf.col("id")), sf.lit(buckets).cast("bigint"))
    return df.select(bucket.cast("int").alias("bucket"), place.cast("int").alias("shard"), "id", "hash")


# --- both ------------------------------------------------------------------------------------------


def _compare(source: DataFrame, sink: DataFrame, buckets: int) -> tuple[int, int, int, DataFrame]:
    """The rows of both sides, the number of buckets that differ; shard, id and kind of each difference."""
    both = source.withColumn("ours", sf.lit(True)).unionByName(sink.withColumn("ours", sf.lit(False)))
    sums = summed("bucket", both).collect()
    differ = [row["bucket"] for row in sums if row["source"] != row["sink"] or row["low"] or row["high"]]
    # As text: making a literal for each bucket takes Python longer than comparing the rows.
    within = "bucket IN ({})".format(", ".join(map(str, differ))) if differ else "false"
    keys = summed("shard id", both.where(within) if len(differ) < buckets else both)
    what = (
        sf.when(sf.col("sink") == 0, sf.lit(Difference.MISSING.value))
        .when(sf.col("source") == 0, sf.lit(Difference.EXTRA.value))
        .when(sf.expr("source <> sink OR low <> 0 OR high <> 0"), sf.lit(Difference.DIFFERENT.value))
    )
    differing = keys.select("shard", "id", what.alias("what")).where(sf.col("what").isNotNull())
    of_source, of_sink = (sum(row[side] for row in sums) for side in ("source", "sink"))
    return of_source, of_sink, len(differ), differing


def summed(by: str, both: DataFrame) -> DataFrame:
    """The number of rows on each side, and the differences of the sums of both halves of their hashes.

    Sums of halves don't overflow.
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


def _shared(source: DataFrame, sink: DataFrame, key: str, shard: str | int | None) -> list[str]:
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
    """The value in the source's type, in a form that has a hash."""
    if isinstance(kind, MapType | StructType | ArrayType):
        return sf.to_json(value)
    return value.try_cast(kind)


# --- documents of the sink `jsonl` ------------------------------------------------------------------
# Its file is a log: the latest line of a key counts.

_BEGINNING = (
    "tube string, shard int, id string, op string, epoch bigint, counter bigint, _corrupt_record string"
)
_NEEDED = {"tube", "shard", "id", "op", "token", "epoch", "counter", "doc"}


def is_log(spark: SparkSession, path: str) -> bool:
    """Whether the first line of a file is one that the sink `jsonl` writes."""
    first = spark.read.text(path).where("trim(value) <> ''").first()
    try:
        line = json.loads(first["value"]) if first is not None else None
    except ValueError:
        return False
    return isinstance(line, dict) and line.keys() >= _NEEDED


def jsonl_documents(
    spark: SparkSession,
    path: str,
    source: DataFrame,
    key: str = "id",
    *,
    tube: str | None = None,
    shard: str | int | None = None,
) -> DataFrame:
    """What a sink that compares tokens would hold after all lines of the files: a row for each document.

    The line with the greatest token of a key counts, and a delete leaves no row. Torn lines are left out, as
    their writer sends them again.

    Args:
        spark: the session.
        path: the file, or a folder or pattern of several.
        source: the rows that the documents are compared with, for the types of their fields.
        key: the column of the ids, in the result too.
        tube: the tube whose documents count; None: the only one in the files.
        shard: as for `reconcile`: a column of the result for the shards, or the one shard whose documents
            count; None: all, without a column.

    Raises:
        UsageError: the files are not of the sink `jsonl`, or have documents of several tubes or of another.
    """
    shared = _shared_fields(spark, path, source, tube)
    fields = [field for field in shared if field.name not in (key, shard)]
    # Parsed with the line, not out of its text: only so does Spark keep nested JSON as it is written.
    doc = StructType([StructField(field.name, _written_type(field.dataType)) for field in fields])
    lines = spark.read.schema(_line(doc)).json(path)
    # A field of another type than the source's makes a line corrupt as well, but is a difference.
    whole = lines.where("_corrupt_record IS NULL OR try_parse_json(_corrupt_record) IS NOT NULL")
    wanted = whole if tube is None else whole.where(sf.col("tube") == tube)
    if isinstance(shard, int):
        wanted = wanted.where(sf.col("shard") == shard)
    latest = sf.max_by(sf.struct("op", "doc"), sf.struct("epoch", "counter")).alias("latest")
    held = wanted.groupBy("shard", "id").agg(latest).where("latest.op <> 'delete'")
    values = [_value(sf.col("latest.doc").getField(field.name), field) for field in fields]
    places = [sf.col("shard").alias(shard)] if isinstance(shard, str) else []
    return held.select(sf.col("id").cast(source.schema[key].dataType).alias(key), *places, *values)


def _line(doc: DataType) -> StructType:
    """The columns of a line. Ids are read as text: the source's type decides."""
    beginning = StructType.fromDDL(_BEGINNING)
    assert isinstance(beginning, StructType)
    return beginning.add("doc", doc)


def _shared_fields(spark: SparkSession, path: str, source: DataFrame, tube: str | None) -> list[StructField]:
    """The columns of the source that documents of the tube have; raises as `jsonl_documents`."""
    lines = spark.read.schema(_line(StringType())).json(path).where("_corrupt_record IS NULL")
    if lines.where("tube IS NULL OR id IS NULL OR op IS NULL OR epoch IS NULL").limit(1).count():
        raise UsageError(f"{path} has lines that the sink jsonl does not write")
    names = sf.explode_outer(sf.json_object_keys("doc")).alias("name")
    present = {(str(row["tube"]), row["name"]) for row in lines.select("tube", names).distinct().collect()}
    tubes = sorted({of for of, _ in present})
    if tube is None and len(tubes) > 1:
        raise UsageError(f"{path} has documents of several tubes; say which one: {', '.join(tubes)}")
    if tube is not None and tube not in tubes:
        raise UsageError(f"{path} has no document of tube {tube!r}, but of: {', '.join(tubes) or 'none'}")
    shared = {name for of, name in present if tube in (None, of)}
    return [field for field in source.schema.fields if field.name in shared]


def _written_type(of_source: DataType) -> DataType:
    """The type as which a field is read: a document has bytes as Postgres writes them, in hexadecimal."""
    return StringType() if isinstance(of_source, BinaryType) else of_source


def _value(value: Column, field: StructField) -> Column:
    if isinstance(field.dataType, BinaryType):
        value = sf.unhex(sf.substring(value, 3, 2**31 - 1))
    return value.alias(field.name)
