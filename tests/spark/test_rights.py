"""What Spark does with the rights of a role of ours, and what it says without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from pytube.errors import StatementFailed, UsageError
from pytube.spark import backfill, fanout_sql, register, touch
from tests.helpers.roles import as_role, roles
from tests.helpers.waiting import wait_until
from tests.spark.test_sources import into
from tests.spark.test_touch import keys, touched

Conn = psycopg.Connection[Any]

SOME = sorted((n % 3, n) for n in range(60))


@pytest.fixture
def admin(dsn: str, conn: Conn) -> Iterator[Conn]:
    """A tube and an attached table of 60 rows; a writer, a worker and somebody who looks on."""
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    conn.execute("CREATE TABLE public.x AS SELECT generate_series(0::bigint, 59) AS id")
    conn.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0, 3)")
    with roles(dsn, "ann", "bob", "wim", "mia"):
        conn.execute("GRANT tube_writer TO ann, bob; GRANT tube_worker TO wim; GRANT tube_monitor TO mia")
        yield conn


def test_a_writer_fans_out(spark: SparkSession, dsn: str, admin: Conn) -> None:
    ann, bob = as_role(dsn, "ann"), as_role(dsn, "bob")
    admin.execute("GRANT SELECT ON public.x TO ann")
    touch(keys(spark, 60), tubes="t", dsn=ann, buckets=2, job_id="direct")
    assert touched(admin) == SOME
    touch(keys(spark, 60), tubes="t", dsn=ann, buckets=2, publish="staged")
    fanout_sql(spark, "SELECT id FROM public.x", tubes="t", dsn=ann, ranges=2)
    register(spark, ann)
    keys(spark, 60).write.format("tube").option("tube", "t").mode("append").save()
    assert touched(admin) == sorted(SOME * 4)
    # Whose it is, is said: and nothing was written.
    with pytest.raises(UsageError, match="the job 'direct' belongs to ann, who has begun it"):
        touch(keys(spark, 60), tubes="t", dsn=bob, buckets=2, job_id="direct")
    assert touched(admin) == sorted(SOME * 4)


def test_others_do_not(spark: SparkSession, dsn: str, admin: Conn) -> None:
    for name in ("wim", "mia"):
        other = as_role(dsn, name)
        with pytest.raises(UsageError, match="permission denied for function tube_job_begin"):
            touch(keys(spark), tubes="t", dsn=other)
        with pytest.raises(UsageError, match="permission denied for function tube_job_begin"):
            fanout_sql(spark, "SELECT 1", tubes="t", dsn=other)
        register(spark, other)
        with pytest.raises(Exception, match="permission denied for function tube_job_begin"):
            keys(spark).write.format("tube").option("tube", "t").mode("append").save()
    with pytest.raises(UsageError, match="the query fails: permission denied for table x"):
        fanout_sql(spark, "SELECT id FROM public.x", tubes="t", dsn=as_role(dsn, "ann"))
    assert touched(admin) == []


def test_a_worker_inserts_a_backfill(spark: SparkSession, dsn: str, admin: Conn) -> None:
    wim = as_role(dsn, "wim")
    with pytest.raises(StatementFailed, match="permission denied for function tube_backfill_create"):
        backfill(spark, "t", "public.x", dsn=wim)
    admin.execute("SELECT tube_backfill_create('t', 'public.x', 'id')")
    with pytest.raises(StatementFailed, match="permission denied for table x"):
        backfill(spark, "t", "public.x", dsn=wim, ranges=3)
    admin.execute("GRANT SELECT ON public.x TO wim")
    locks = (
        "SELECT FROM pg_locks AS k JOIN pg_database AS d ON d.oid = k.database"
        " WHERE k.locktype = 'advisory' AND d.datname = current_database()"
    )
    # Postgres ends the session of the attempt before a moment after that has closed it.
    wait_until(lambda: admin.execute(locks).fetchone() is None, what="nobody works on the backfill")
    assert backfill(spark, "t", "public.x", dsn=wim, ranges=3, backlog=1000).rows == 60
    assert touched(admin) == SOME


def test_a_worker_reads_a_stream(spark: SparkSession, dsn: str, admin: Conn, tmp_path: Path) -> None:
    admin.execute("SELECT x_touch('{1,2,3}')")
    seen: list[int] = []
    register(spark, as_role(dsn, "wim"))
    stream = spark.readStream.format("tube").options(tube="t", purge="true").load()
    into(seen, stream, tmp_path).trigger(availableNow=True).start().awaitTermination(60)
    assert sorted(seen) == [1, 2, 3]
    register(spark, as_role(dsn, "ann"))
    with pytest.raises(Exception, match="permission denied"):
        spark.read.format("tube").option("tube", "t").load().collect()
