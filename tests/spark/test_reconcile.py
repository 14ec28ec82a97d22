"""Two sides compared: what differs is found, and that alone is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pytube import model
from pytube.errors import UsageError
from pytube.spark import reconcile, snapshot
from tests.helpers import cli
from tests.spark.test_touch import pods, touched

Conn = psycopg.Connection[Any]
ROWS = 1000


@pytest.fixture
def table(conn: Conn) -> str:
    """Rows of several types, some of them NULL."""
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    conn.execute(
        "CREATE TABLE public.x AS SELECT g AS id, g % 7 AS small, (g / 8.0)::numeric(10, 3) AS price,"
        " CASE WHEN g % 5 > 0 THEN 'name ' || g END AS name,"
        " timestamptz '2026-01-01' + g * interval '1 s' AS at"
        f" FROM generate_series(1::bigint, {ROWS}) AS g"
    )
    return "public.x"


def exported(conn: Conn, folder: Path) -> Path:
    """What a sink would have: lines of JSON, some of them wrong."""
    rows = conn.execute("SELECT to_jsonb(x) FROM public.x ORDER BY id").fetchall()
    wrong: dict[int, dict[str, Any] | None] = {
        3: None,
        10: {"name": "other"},
        11: {"name": None},
        12: {"small": None},
    }
    lines = []
    for (row,) in rows:
        change = wrong.get(row["id"], {})
        if change is not None:
            lines.append(json.dumps({**row, **change}))
    lines.append(json.dumps({**rows[0][0], "id": ROWS + 5}))
    lines.append(lines[20])  # id 22 twice
    path = folder / "sink.jsonl"
    path.write_text("\n".join(lines))
    return path


WRONG = {
    ("missing", 3),
    ("extra", ROWS + 5),
    ("different", 10),
    ("different", 11),
    ("different", 12),
    ("different", 22),
}


def test_what_differs_is_touched(
    spark: SparkSession, dsn: str, conn: Conn, table: str, tmp_path: Path
) -> None:
    told: list[str] = []
    sink = spark.read.json(str(exported(conn, tmp_path)))
    with snapshot(spark, dsn) as moment:
        found = reconcile(
            moment.table(table, partitions=2), sink, tubes="t", dsn=dsn, shard=4, buckets=64, told=told.append
        )
    assert (found.missing, found.extra, found.different) == (1, 1, 4)
    assert (found.source, found.sink) == (ROWS, ROWS + 1)
    assert {(what, key) for what, shard, key in found.examples if shard == 4} == WRONG
    assert touched(conn) == sorted((4, key) for _, key in WRONG)
    assert told == [
        "1 missing, 1 extra, 4 different, of 1000 rows at the source and 1001 at the sink; 6 touched"
    ]
    assert 1 <= found.buckets <= 6
    assert {op for op, _, _ in pods(conn)} == {"T"}


def test_many_differences_go_behind_live_changes(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "TOUCHED_AT_ONCE", 2)
    none = two(spark, [], "int")
    for count, op in ((2, "T"), (3, "B")):
        rows = two(spark, [(n, n, n) for n in range(count)], "int")
        reconcile(rows, none, tubes=tube, dsn=dsn, shard=0, told=None)
        assert {found for found, _, _ in pods(conn)} == {op}
        conn.execute("DELETE FROM t")


def test_equal_sides(spark: SparkSession, dsn: str, conn: Conn, table: str) -> None:
    with snapshot(spark, dsn) as moment:
        rows = moment.table(table, partitions=2)
        found = reconcile(rows, moment.table(table, partitions=3), tubes="t", dsn=dsn, shard=0, told=None)
    assert found.is_equal
    assert found.touched is None
    assert touched(conn) == []


def two(spark: SparkSession, rows: list[tuple[Any, ...]], kind: str) -> DataFrame:
    return spark.createDataFrame(rows, f"id bigint, a {kind}, b {kind}")


def test_a_null_is_not_its_neighbour(spark: SparkSession) -> None:
    one, other = two(spark, [(1, "x", None)], "string"), two(spark, [(1, None, "x")], "string")
    assert reconcile(one, other, told=None).different == 1
    assert reconcile(one, one, told=None).is_equal


def test_values_are_compared_in_the_sources_type(spark: SparkSession) -> None:
    one = two(spark, [(1, 5, 7)], "int")
    assert reconcile(one, two(spark, [(1, "5", "7")], "string"), told=None).is_equal
    assert reconcile(one, two(spark, [(1, "5", "seven")], "string"), told=None).different == 1


def test_nested_values(spark: SparkSession) -> None:
    kind = "struct<x: int, y: array<string>>"
    row = sf.expr("named_struct('x', 1, 'y', array('a', null))").cast(kind)
    other = sf.expr("named_struct('x', 1, 'y', array('b', null))").cast(kind)
    base = spark.range(3)
    assert reconcile(base.withColumn("v", row), base.withColumn("v", row), told=None).is_equal
    assert reconcile(base.withColumn("v", row), base.withColumn("v", other), told=None).different == 3


def test_what_cant_be_compared(spark: SparkSession) -> None:
    one = two(spark, [(1, 5, 7)], "int")
    with pytest.raises(UsageError, match="the sink has no column 'c'"):
        reconcile(one.withColumn("c", sf.lit(1)), one, columns=["c"], told=None)
    with pytest.raises(UsageError, match="share no column"):
        reconcile(one.select("id", "a"), one.select("id", "b"), told=None)
    with pytest.raises(UsageError, match="which database"):
        reconcile(one, one, tubes="t", told=None)


def test_by_command(spark: SparkSession, dsn: str, conn: Conn, table: str, tmp_path: Path) -> None:
    assert spark is not None  # the command's session is this one
    arguments = ["spark", "reconcile", "--source", table, "--sink", str(exported(conn, tmp_path))]
    assert "1 missing, 1 extra, 4 different" in cli.run(*arguments, dsn=dsn, code=1).output
    assert "no table is attached" in cli.run(*arguments, "--tube", "t", dsn=dsn, code=2).output
    found = cli.run_json(*arguments, "--tube", "t", "--shard", "0", "--job", "mend", dsn=dsn)
    assert (found["missing"], found["extra"], found["different"], found["touched"]) == (1, 1, 4, 6)
    assert touched(conn) == sorted((0, key) for _, key in WRONG)
