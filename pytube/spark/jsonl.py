"""The documents in the file of the sink `jsonl`, which is a log: the latest line of a key counts."""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from pytube.errors import UsageError

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


def documents(
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
    lines = spark.read.schema(StructType([*_beginning(), StructField("doc", doc)])).json(path)
    # A field of another type than the source's makes a line corrupt as well, but is a difference.
    whole = lines.where("_corrupt_record IS NULL OR try_parse_json(_corrupt_record) IS NOT NULL")
    wanted = whole if tube is None else whole.where(sf.col("tube") == tube)
    if isinstance(shard, int):
        wanted = wanted.where(sf.col("shard") == shard)
    latest = sf.max_by(sf.struct("op", "doc"), sf.struct("epoch", "counter")).alias("latest")
    held = wanted.groupBy("shard", "id").agg(latest).where("latest.op <> 'delete'")
    values = [_value(f"latest.doc.`{field.name.replace('`', '``')}`", field) for field in fields]
    places = [sf.col("shard").alias(shard)] if isinstance(shard, str) else []
    return held.select(sf.col("id").cast(source.schema[key].dataType).alias(key), *places, *values)


def _beginning() -> list[StructField]:
    """What stands before the document in a line. Ids are read as text: the source's type decides."""
    found = StructType.fromDDL(_BEGINNING)
    assert isinstance(found, StructType)
    return found.fields


def _shared_fields(spark: SparkSession, path: str, source: DataFrame, tube: str | None) -> list[StructField]:
    """The columns of the source that documents of the tube have; raises as `documents`."""
    text = StructType([*_beginning(), StructField("doc", StringType())])
    lines = spark.read.schema(text).json(path).where("_corrupt_record IS NULL")
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


def _value(path: str, field: StructField) -> Column:
    value = sf.col(path)
    if isinstance(field.dataType, BinaryType):
        value = sf.unhex(sf.substring(value, 3, 2**31 - 1))
    return value.alias(field.name)
