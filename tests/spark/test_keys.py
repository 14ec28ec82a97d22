"""Tubes of uuids and texts by all that Spark does: each key once, whatever happens; none that can't be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pytube.errors import UsageError
from pytube.model import shard_of
from pytube.spark import PartFailed, backfill, fanout_sql, reconcile, register, snapshot, touch
from tests.conftest import Servers
from tests.helpers.capture import Conn, open_session
from tests.spark import probes
from tests.spark.test_touch import die, once

N = 1000
BAD = "6ecd8c99-4036-403d-bf84-cf8400f6783z"


@dataclass(frozen=True)
class Kind:
    """Keys of one type."""

    name: str
    in_spark: str
    """Of the number `id`; of some uuids in another form."""
    in_postgres: str
    """Of the number `g`."""
    key: Callable[[int], str]
    """As Postgres writes it."""


_HEX = "md5(cast(id AS string))"
_HYPHENS = f"regexp_replace({_HEX}, '(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.{{12}})', '$1-$2-$3-$4-$5')"
UUID_KIND = Kind(
    "uuid",
    f"CASE id % 4 WHEN 0 THEN {_HEX} WHEN 1 THEN upper({_HYPHENS})"
    f" WHEN 2 THEN concat('{{', {_HYPHENS}, '}}') ELSE {_HYPHENS} END",
    "md5(g::text)::uuid",
    lambda n: str(UUID(hashlib.md5(str(n).encode(), usedforsecurity=False).hexdigest())),
)
TEXT_KIND = Kind(
    "text",
    "concat('k \"', id, '\\\\,ü\\n', repeat('€', cast(id % 90 AS int)))",
    "'k \"' || g || E'\\\\,ü\\n' || repeat('€', (g % 90)::integer)",
    lambda n: f'k "{n}\\,ü\n' + "€" * (n % 90),
)


LONG = pytest.mark.parametrize(
    "kind",
    [pytest.param(UUID_KIND, id="uuid"), pytest.param(TEXT_KIND, id="text", marks=pytest.mark.soak)],
    indirect=True,
)
"""For what takes seconds, and differs by the type of the keys in one place only."""


@pytest.fixture(params=[UUID_KIND, TEXT_KIND], ids=["uuid", "text"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def db(dsn: str, kind: Kind) -> Iterator[Conn]:
    """A session with a tube."""
    with open_session(dsn, client_encoding="utf8") as conn:
        conn.execute("SELECT tube_ensure_exists('t', 4, NULL, %s::regtype)", [kind.name])
        yield conn


@pytest.fixture
def table(db: Conn, kind: Kind) -> str:
    """A table of `N` keys over 8 shards from 10 on, none of which is touched."""
    db.execute(f"CREATE TABLE public.x (id {kind.name} PRIMARY KEY, n integer)")
    db.execute(f"INSERT INTO public.x SELECT {kind.in_postgres}, g FROM generate_series(0, {N - 1}) AS g")
    db.execute("SELECT tube_table_ensure_attached('t', 'public.x', 10, 8)")
    db.execute("ANALYZE public.x")
    return "public.x"


def keys(spark: SparkSession, kind: Kind, count: int = N) -> DataFrame:
    """Keys in three shards."""
    return spark.range(0, count, 1, 3).selectExpr(f"{kind.in_spark} AS id", "cast(id % 3 AS int) AS shard")


def all_of(kind: Kind, count: int = N) -> list[tuple[int, str]]:
    return sorted((n % 3, kind.key(n)) for n in range(count))


def spread(kind: Kind, numbers: range = range(N)) -> list[tuple[int, str]]:
    """As the table has them."""
    return sorted((shard_of(kind.key(n), 10, 8), kind.key(n)) for n in numbers)


def touched(db: Conn, tube: str = "t") -> list[tuple[int, str]]:
    """Each key as often as it was touched, in order."""
    return sorted(db.execute(f'SELECT shard, unnest(ids)::text FROM "{tube}"').fetchall())


# --- fan-out --------------------------------------------------------------------------------------


@pytest.mark.each_value
@pytest.mark.parametrize("publish", ["direct", "staged"])
def test_all_keys_are_touched_once(spark: SparkSession, dsn: str, db: Conn, kind: Kind, publish: Any) -> None:
    db.execute("SELECT tube_ensure_exists('other', key_type => %s::regtype)", [kind.name])
    options: dict[str, Any] = {"tubes": ["t", "other"], "dsn": dsn, "job_id": "one", "publish": publish}
    df = keys(spark, kind)
    done = touch(df.union(df), **options, pod_size=100, buckets=4)
    assert touched(db) == touched(db, "other") == all_of(kind)
    assert (done.rows, done.ids, done.units) == (2 * N, N, 4)
    assert db.execute("SELECT max(cardinality(ids)) <= 100 FROM t").fetchone() == (True,)
    again = touch(df.union(df).repartition(5), **options, buckets=9)
    assert (again.ids, again.units) == (N, 0)
    assert touched(db) == all_of(kind)


@pytest.mark.parametrize(
    ("kind", "publish", "moment"),
    [(UUID_KIND, "direct", "copied"), (TEXT_KIND, "staged", "committed")],
    ids=["uuid", "text"],
    indirect=["kind"],
)
def test_a_task_that_is_killed(
    spark: SparkSession, dsn: str, db: Conn, kind: Kind, tmp_path: Path, publish: Any, moment: str
) -> None:
    flag = tmp_path / "flag"
    probe = once(flag, moment, die)
    done = probes.touch(keys(spark, kind), tubes="t", dsn=dsn, buckets=4, publish=publish, probe=probe)
    assert flag.exists()
    assert done.ids == N
    assert touched(db) == all_of(kind)


@pytest.mark.usefixtures("table")
def test_shards_that_are_derived(spark: SparkSession, dsn: str, db: Conn, kind: Kind) -> None:
    touch(keys(spark, kind), tubes="t", dsn=dsn, shard=None, buckets=4)
    assert touched(db) == spread(kind)
    assert db.execute(
        "SELECT count(*) FROM t, unnest(ids) AS id WHERE shard <> tube_shard_of(id, 10, 8)"
    ).fetchone() == (0,)
    with pytest.raises(UsageError, match="the id .* is not in the shard 11, but in"):
        touch(keys(spark, kind), tubes="t", dsn=dsn, shard=11, buckets=4)


def test_uuids_as_bytes(spark: SparkSession, dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists('t', key_type => 'uuid')")
        df = spark.range(N).selectExpr(f"unhex({_HEX}) AS id")
        touch(df, tubes="t", dsn=dsn, shard=0, buckets=2)
        assert touched(conn) == sorted((0, UUID_KIND.key(n)) for n in range(N))


def test_texts_of_all_lengths(spark: SparkSession, dsn: str) -> None:
    with open_session(dsn, client_encoding="utf8") as conn:
        conn.execute("SELECT tube_ensure_exists('t', key_type => 'text')")
        text = "concat(id, repeat('é', cast(if(id % 50 = 7, 32700, id) AS int)))"
        done = touch(
            spark.range(0, 300, 1, 2).selectExpr(f"{text} AS id"), tubes="t", dsn=dsn, shard=5, buckets=3
        )
        assert done.ids == 300
        assert touched(conn) == sorted((5, f"{n}" + "é" * (32700 if n % 50 == 7 else n)) for n in range(300))


def test_hosts_whose_tubes_differ(
    spark: SparkSession, dsn: str, db: Conn, kind: Kind, servers: Servers
) -> None:
    with servers.get(18).database(installed=True) as other:
        with open_session(other) as there:
            there.execute("SELECT tube_ensure_exists('t')")
        with pytest.raises(UsageError, match=f"of other types here and there: .* {kind.name}, .* bigint"):
            touch(keys(spark, kind), tubes="t", dsn={(0, 1): dsn, (2, 9): other})
    assert db.execute("SELECT count(*) FROM tube_job_list()").fetchone() == (0,)


WRONG = {
    "uuid": {
        "NULL": "an id is NULL",
        f"'{BAD}'": f"an id is not a valid uuid: '{BAD}'; write it like ",
        "repeat('6', 70000)": "an id has 70000 bytes",
    },
    "text": {
        "concat('a', char(0), 'b')": r"an id has a NUL character: 'a\\x00b'",
        "cast(unhex('ff41') AS string)": r"an id is not UTF-8: b'\\xffA'",
        "repeat('ü', 40000)": "an id has 80000 bytes, and 65536 is the most",
    },
}


def test_a_key_that_cant_be(spark: SparkSession, dsn: str, db: Conn, kind: Kind) -> None:
    for value, reason in WRONG[kind.name].items():
        good = UUID_KIND.in_spark
        df = spark.range(0, 100, 1, 2).selectExpr(f"if(id = 70, {value}, {good}) AS id", "1 AS shard")
        with pytest.raises(UsageError, match=reason):
            touch(df, tubes="t", dsn=dsn, buckets=2)
    assert touched(db) == []


@pytest.mark.parametrize(("key_type", "column"), [("uuid", "id"), ("text", "id"), ("text", "unhex('41')")])
def test_a_column_of_another_type(spark: SparkSession, dsn: str, key_type: str, column: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists('t', 4, NULL, %s::regtype)", [key_type])
        df = spark.range(3).selectExpr(f"{column} AS id")
        with pytest.raises(UsageError, match=f"the keys of the tube are {key_type}: cast it to string"):
            touch(df, tubes="t", dsn=dsn, shard=0)
        assert conn.execute("SELECT count(*) FROM tube_job_list()").fetchone() == (0,)


def test_tubes_of_different_types(spark: SparkSession, dsn: str, db: Conn, kind: Kind) -> None:
    db.execute("SELECT tube_ensure_exists('numbers')")
    register(spark, dsn)
    df, both = keys(spark, kind), ["t", "numbers"]
    ways: list[Callable[[], object]] = [
        lambda: touch(df, tubes=both, dsn=dsn),
        lambda: fanout_sql(spark, "SELECT 1", tubes=both, dsn=dsn),
        lambda: df.write.format("tube").option("tube", ",".join(both)).mode("append").save(),
        lambda: reconcile(df, df.limit(1), tubes=both, dsn=dsn, shard="shard", columns=[]),
    ]
    for way in ways:
        with pytest.raises(Exception, match=rf"different types \('t' {kind.name}, 'numbers' bigint\)"):
            way()
    assert db.execute("SELECT count(*) FROM tube_job_list()").fetchone() == (0,)


# --- formats --------------------------------------------------------------------------------------


@LONG
def test_written_read_and_streamed(
    spark: SparkSession, dsn: str, db: Conn, kind: Kind, tmp_path: Path
) -> None:
    register(spark, dsn)
    for parts in (3, 5):
        keys(spark, kind).repartition(parts).write.format("tube").options(
            tube="t", pod_size="100", job_id="w"
        ).mode("append").save()
    assert touched(db) == all_of(kind)
    found = spark.read.format("tube").option("tube", "t").load().selectExpr("shard", "explode(ids) AS id")
    assert sorted((row["shard"], row["id"]) for row in found.collect()) == all_of(kind)
    seen: list[tuple[int, str]] = []

    def take(batch: DataFrame, _: int) -> None:
        seen.extend((row["shard"], key) for row in batch.collect() for key in row["ids"])

    stream = spark.readStream.format("tube").option("tube", "t").load().writeStream.foreachBatch(take)
    query = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert sorted(seen) == all_of(kind)


@LONG
def test_written_keys_that_cant_be(spark: SparkSession, dsn: str, db: Conn, kind: Kind) -> None:
    register(spark, dsn)
    ways = {
        "if(shard = 1, NULL, id) AS id": "an id is NULL",
        "1 AS id": f"no column 'id' of {kind.name} keys",
        "concat(id, if(shard = 1, char(0), '')) AS id": "not a valid uuid|a NUL character",
    }
    for column, reason in ways.items():
        df = keys(spark, kind, 9).selectExpr(column, "shard")
        with pytest.raises(Exception, match=reason):
            df.write.format("tube").options(tube="t", job_id="bad").mode("append").save()
    assert touched(db) == []


# --- queries and backfills ------------------------------------------------------------------------


def test_a_query_in_ranges(spark: SparkSession, dsn: str, db: Conn, kind: Kind, table: str) -> None:
    query = f"SELECT id FROM {table} WHERE n % 2 = 0 -- the even ones"
    for attempt in range(2):
        done = fanout_sql(spark, query, tubes="t", dsn=dsn, shard=10, ranges=5 + attempt, job_id="q")
        assert (done.rows, done.ids, done.units) == (N // 2, N // 2, 0 if attempt else 5)
        assert touched(db) == spread(kind, range(0, N, 2))
    sizes = [rows for (rows,) in db.execute("SELECT rows FROM tube_job_unit").fetchall()]
    assert max(sizes) < N // 5
    assert fanout_sql(spark, f"{query.partition(' WHERE')[0]} WHERE false", tubes="t", dsn=dsn).ids == 0
    with pytest.raises(PartFailed, match="NULL"):
        fanout_sql(spark, f"SELECT NULL::{kind.name} UNION ALL {query}", tubes="t", dsn=dsn)


def test_a_backfill_that_was_interrupted_goes_on(
    spark: SparkSession, dsn: str, db: Conn, kind: Kind, table: str
) -> None:
    db.execute(
        "CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN"
        f" IF EXISTS (SELECT FROM unnest(NEW.ids) AS i WHERE i = (SELECT id FROM {table} WHERE n = 500))"
        " THEN RAISE 'disk full' USING ERRCODE = '53100'; END IF; RETURN NEW; END$$"
    )
    db.execute("CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION public.no()")
    with pytest.raises(PartFailed, match="disk full"):
        backfill(spark, "t", table, dsn=dsn, ranges=6, max_connections=2)
    assert 0 < len(touched(db)) < N
    db.execute("DROP TRIGGER no ON t")
    done = backfill(spark, "t", table, dsn=dsn, ranges=3)
    assert (done.ranges, done.rows) == (1, N)
    assert touched(db) == spread(kind)
    ends = db.execute("SELECT payload ->> 'type', count(*) FROM t WHERE ids = '{}' GROUP BY 1 ORDER BY 1")
    assert ends.fetchall() == [("backfill_end", 8), ("backfill_start", 8)]


# --- reconcile ------------------------------------------------------------------------------------


@LONG
def test_what_differs_is_touched(spark: SparkSession, dsn: str, db: Conn, kind: Kind, table: str) -> None:
    """The sink writes uuids in forms of its own."""
    sink = spark.range(0, N + 1, 1, 2).where("id <> 3")
    sink = sink.selectExpr(f"{kind.in_spark} AS id", "if(id = 10, -1, cast(id AS int)) AS n")
    with snapshot(spark, dsn) as moment:
        rows = moment.table(table, partitions=2)
        found = reconcile(rows, sink, tubes="t", dsn=dsn, shard=3, buckets=64, told=None)
        told = reconcile(rows, sink, key_type=kind.name, told=None)
    assert (found.missing, found.extra, found.different) == (1, 1, 1)
    assert {(what, key) for what, _, key in found.examples} == {
        ("missing", kind.key(3)),
        ("extra", kind.key(N)),
        ("different", kind.key(10)),
    }
    assert {key for _, key in touched(db)} == {kind.key(n) for n in (3, 10, N)}
    assert (told.missing, told.extra, told.different) == (1, 1, 1)
    with pytest.raises(UsageError, match=f"the keys of the tubes are {kind.name}, and not bigint"):
        reconcile(rows, sink, tubes="t", dsn=dsn, key_type="bigint", told=None)


def test_a_sink_with_what_is_no_uuid(spark: SparkSession) -> None:
    one = spark.createDataFrame([(UUID_KIND.key(1), 1)], "id string, n int")
    other = one.withColumn("id", sf.lit(BAD))
    with pytest.raises(UsageError, match=f"an id is not a valid uuid: '{BAD}'"):
        reconcile(one, other, key_type="uuid", told=None)
    assert reconcile(one, other, told=None).missing == 1
    with pytest.raises(UsageError, match="key_type='int' is none of bigint, uuid, text"):
        reconcile(one, other, key_type="int", told=None)


def test_a_key_of_several_columns(spark: SparkSession, dsn: str) -> None:
    """Touched by its text, and backfilled: both times where capture puts it."""
    with open_session(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists('t', key_type => 'text')")
        conn.execute("CREATE TABLE public.docs (tenant int, id text, PRIMARY KEY (tenant, id))")
        conn.execute(
            "SELECT tube_table_ensure_attached('t', 'docs', 10, 8, key_cols => '{tenant,id}',"
            " shard_by => 'tenant')"
        )
        conn.execute("INSERT INTO docs SELECT g %% 7, 'k' || g FROM generate_series(0, %s) AS g", [N - 1])
        captured = touched(conn)
        conn.execute("DELETE FROM t")
        df = spark.range(N).selectExpr("concat('[', id % 7, ', \"k', id, '\"]') AS id")
        touch(df, tubes="t", dsn=dsn, shard=None, buckets=2)
        assert touched(conn) == captured
        conn.execute("DELETE FROM t")
        backfill(spark, "t", "public.docs", dsn=dsn, ranges=3)
        assert touched(conn) == captured
