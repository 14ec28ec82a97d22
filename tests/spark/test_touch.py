"""Fan-outs of DataFrames: each key touched once, whatever happens to tasks, drivers and servers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pytube.errors import UsageError
from pytube.model import shard_of
from pytube.spark import PartFailed, fanout_sql, register, snapshot, touch
from pytube.spark.hosts import Host
from tests.conftest import Servers
from tests.spark import probes

Conn = psycopg.Connection[Any]

N = 2000


def pods(conn: Conn, tube: str = "t") -> list[tuple[Any, ...]]:
    """Op, shard and ids of the pods that wait."""
    return conn.execute(f'SELECT op, shard, ids FROM tube."{tube}" ORDER BY seq').fetchall()


def touched(conn: Conn, tube: str = "t") -> list[tuple[int, int]]:
    """Each key as often as it was touched, in order."""
    return sorted((shard, key) for _, shard, ids in pods(conn, tube) for key in ids)


def keys(spark: SparkSession, count: int = N) -> DataFrame:
    """Keys in three shards."""
    return spark.range(0, count, 1, 3).withColumn("shard", (sf.col("id") % 3).cast("int"))


ALL = sorted((n % 3, n) for n in range(N))


@pytest.mark.parametrize("publish", ["direct", "staged"])
def test_all_keys_are_touched_once(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, publish: Any
) -> None:
    conn.execute("SELECT tube_ensure_exists('other')")
    tubes = [tube, "other"]
    done = touch(
        keys(spark), tubes=tubes, dsn=dsn, op="U", job_id="one", publish=publish, pod_size=100, buckets=4
    )
    assert touched(conn) == touched(conn, "other") == ALL
    assert {op for op, _, _ in pods(conn)} == {"U"}
    assert all(len(ids) <= 100 and len(set(ids)) == len(ids) for _, _, ids in pods(conn))
    assert (done.rows, done.ids, done.pods, done.units) == (N, N, len(pods(conn)), 4)
    assert conn.execute("SELECT state, units_done, ids FROM tube_job_list()").fetchall() == [("done", 4, N)]
    # Run again, in another shape.
    moved = keys(spark).repartition(7)
    again = touch(moved, tubes=tubes, dsn=dsn, op="U", job_id="one", publish=publish, buckets=9)
    assert (again.rows, again.ids, again.pods, again.units) == (N, N, done.pods, 0)
    assert touched(conn) == ALL


def test_with_adaptive_execution_that_would_merge_all(
    spark: SparkSession, dsn: str, conn: Conn, tube: str
) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", "1g")
    try:
        touch(keys(spark).distinct().repartition(5), tubes=tube, dsn=dsn, buckets=8, max_connections=3)
    finally:
        spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert touched(conn) == ALL


def test_live_changes_go_before_a_fan_out(spark: SparkSession, dsn: str, conn: Conn, tube: str) -> None:
    """By each way in, unless another op is given."""
    register(spark, dsn)
    df = keys(spark, 9)
    conn.execute("CREATE TABLE public.x AS SELECT generate_series(1, 9) AS id")
    query = "SELECT id FROM public.x"
    ways: list[Callable[..., object]] = [
        lambda **op: touch(df, tubes=tube, dsn=dsn, buckets=1, **op),
        lambda **op: fanout_sql(spark, query, tubes=tube, dsn=dsn, ranges=1, **op),
        lambda **op: df.write.format("tube").options(tube=tube, **op).mode("append").save(),
    ]
    for way in ways:
        for options, first in (({}, "U"), ({"op": "T"}, "T")):
            way(**options)
            conn.execute("SELECT t_touch(0, '{1}', 'U')")
            ordered = conn.execute("SELECT tube_pods_sql('t', 4, 0)").fetchone()
            assert ordered is not None
            assert conn.execute(ordered[0]).fetchall()[0][1] == first
            conn.execute("DELETE FROM t")


def test_no_rows(spark: SparkSession, dsn: str, conn: Conn, tube: str) -> None:
    done = touch(keys(spark, 0), tubes=tube, dsn=dsn)
    assert (done.rows, done.ids, done.pods, done.units) == (0, 0, 0, 0)
    assert pods(conn) == []


def test_a_key_that_stands_there_often(spark: SparkSession, dsn: str, conn: Conn, tube: str) -> None:
    many = keys(spark, 50).crossJoin(spark.range(20).select(sf.col("id").alias("again")))
    done = touch(many, tubes=tube, dsn=dsn, buckets=2)
    assert touched(conn) == sorted((n % 3, n) for n in range(50))
    assert (done.rows, done.ids) == (1000, 50)


def test_ids_of_a_spread_table_go_where_they_belong(
    spark: SparkSession, dsn: str, conn: Conn, tube: str
) -> None:
    conn.execute("CREATE TABLE public.x (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 5, 4)")
    df = spark.range(-50, 50)
    touch(df, tubes=tube, dsn=dsn, shard=None, buckets=4)
    assert touched(conn) == sorted((shard_of(key, 5, 4), key) for key in range(-50, 50))
    with pytest.raises(UsageError, match=r"the id -?\d+ is not in the shard 5, but in"):
        touch(df, tubes=tube, dsn=dsn, shard=5, buckets=4)


def test_no_more_sessions_than_were_allowed(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, tmp_path: Path
) -> None:
    def count(moment: str, unit: int) -> None:
        with psycopg.connect(dsn) as other:
            row = other.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pytube spark'"
                " AND datname = current_database()"
            ).fetchone()
            assert row is not None
            (tmp_path / f"{moment}-{unit}").write_text(str(row[0]))

    probes.touch(keys(spark), tubes=tube, dsn=dsn, buckets=6, max_connections=1, probe=count)
    assert {file.read_text() for file in tmp_path.iterdir()} == {"1"}
    assert touched(conn) == ALL


# --- tasks that die ---------------------------------------------------------------------------------


def once(flag: Path, moment: str, act: Callable[[], None]) -> Callable[[str, int], None]:
    """A probe that acts at a moment, the first time that anybody comes there."""

    def probe(now: str, unit: int) -> None:  # noqa: ARG001
        if now == moment:
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            act()

    return probe


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    ("publish", "moment"),
    [
        ("direct", "copied"),
        ("staged", "committed"),
        # The same code wrote the unit, into another table.
        pytest.param("direct", "committed", marks=SOAK),
        pytest.param("staged", "copied", marks=SOAK),
    ],
)
def test_a_task_that_is_killed(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, tmp_path: Path, publish: Any, moment: str
) -> None:
    done = probes.touch(
        keys(spark),
        tubes=tube,
        dsn=dsn,
        buckets=6,
        max_connections=2,
        publish=publish,
        probe=once(tmp_path / "flag", moment, die),
    )
    assert (tmp_path / "flag").exists()
    assert touched(conn) == ALL
    assert done.ids == N


def test_two_tasks_that_write_the_same_unit(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, tmp_path: Path
) -> None:
    """As a speculative copy does: while the first waits before its ledger row, another does all of it."""

    def rival(flag: Path = tmp_path / "flag") -> Callable[[str, int], None]:
        def write_all_else() -> None:
            import numpy as np

            from pytube.spark.hosts import Host, shard_map
            from pytube.spark.touch import Plan, write_unit

            plan = Plan(shard_map(dsn), "race", ("t",), "T", 2, 250)
            with Host(dsn).connect() as connection:
                for unit in range(2):
                    keys = (unit, np.zeros(1, np.int64), np.full(1, 10**9 + unit, np.int64))
                    assert write_unit(plan, connection, 0, unit, [keys]) == ("written", None)

        return once(flag, "copied", write_all_else)

    options: dict[str, Any] = {"tubes": tube, "dsn": dsn, "job_id": "race"}
    probes.touch(keys(spark), **options, buckets=2, max_connections=1, probe=rival())
    # Both units were in when the first copies came: none of those is there.
    assert touched(conn) == [(0, 10**9), (0, 10**9 + 1)]


@pytest.mark.parametrize("publish", ["direct", "staged"])
def test_a_driver_that_dies_and_runs_again(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, publish: Any
) -> None:
    def probe(now: str, unit: int) -> None:
        if now == "copied" and unit >= 3:
            raise RuntimeError("no more")

    options: dict[str, Any] = {"tubes": tube, "dsn": dsn, "job_id": "again", "publish": publish}
    with pytest.raises(Exception, match="no more"):
        probes.touch(keys(spark), **options, buckets=6, max_connections=1, probe=probe)
    row = conn.execute("SELECT units_done, state FROM tube_job_list()").fetchone()
    assert row is not None
    assert 0 < row[0] < 6
    assert row[1] == "running"
    assert bool(touched(conn)) is (publish == "direct")
    done = touch(keys(spark), **options, max_connections=3)
    assert done.units == 6 - row[0]
    assert done.ids == N
    assert touched(conn) == ALL


# --- servers that go away ---------------------------------------------------------------------------


def test_sessions_that_are_terminated(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, tmp_path: Path
) -> None:
    def terminate() -> None:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name = 'pytube spark'"
            )

    done = probes.touch(
        keys(spark),
        tubes=tube,
        dsn=dsn,
        buckets=6,
        max_connections=2,
        probe=once(tmp_path / "flag", "copied", terminate),
    )
    assert touched(conn) == ALL
    assert done.ids == N


def test_one_host_that_is_not_there(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, servers: Servers
) -> None:
    with servers.get(18).database(installed=True) as other:
        with psycopg.connect(other, autocommit=True) as there:
            there.execute("SELECT tube.tube_ensure_exists('t')")
        name = conninfo_to_dict(other)["dbname"]
        hosts = {(0, 1): dsn, (2, 9): make_conninfo(other, password="s3cret")}
        options: dict[str, Any] = {"tubes": tube, "dsn": hosts, "job_id": "hosts", "buckets": 4}
        mine = sorted((shard, key) for shard, key in ALL if shard < 2)
        conn.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        for _ in range(2):
            with pytest.raises(PartFailed, match=f"/{name}: ") as raised:
                touch(keys(spark), **options)
            assert "s3cret" not in str(raised.value)
            assert list(raised.value.hosts) == [Host(other).name]
            assert touched(conn) == mine
        conn.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        done = touch(keys(spark), **options)
        assert (done.ids, done.units) == (N, 4)
        assert touched(conn) == mine
        with psycopg.connect(other) as there:
            assert sorted(mine + touched(there)) == ALL


def test_shards_go_to_their_hosts(
    spark: SparkSession, dsn: str, conn: Conn, tube: str, servers: Servers
) -> None:
    with servers.get(18).database(installed=True) as other, psycopg.connect(other, autocommit=True) as there:
        hosts = {(0, 0): dsn, (1, 5): other}
        with pytest.raises(UsageError, match=r"/t\d+: there is no tube 't'"):
            touch(keys(spark), tubes=tube, dsn=hosts, job_id="both", buckets=4)
        assert pods(conn) == []
        there.execute("SELECT tube.tube_ensure_exists('t')")
        done = touch(keys(spark), tubes=tube, dsn=hosts, job_id="both", buckets=4)
        assert touched(conn) == sorted((0, n) for n in range(0, N, 3))
        assert sorted(touched(conn) + touched(there)) == ALL
        assert done.ids == N
        for session, first in ((conn, 0), (there, 100)):
            session.execute(f"CREATE TABLE public.x AS SELECT generate_series({first}, {first} + 9) AS id")
        with snapshot(spark, hosts) as moment:
            read = moment.table("public.x", partitions=2, where="id % 2 = 0")
            assert sorted(row["id"] for row in read.collect()) == [*range(0, 10, 2), *range(100, 110, 2)]
        with pytest.raises(UsageError, match="no database has the shard 9"):
            touch(keys(spark).withColumn("shard", sf.lit(9)), tubes=tube, dsn=hosts, buckets=4)
