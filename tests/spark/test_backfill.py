"""Backfills and fan-outs of queries, in ranges that several sessions insert."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from pytube.errors import BackfillBusy, BackfillEnded, JobConflict, UsageError
from pytube.spark import PartFailed, backfill, fanout_sql
from pytube.spark.hosts import Host
from pytube.spark.ranges import run_calls
from tests.conftest import Connect, Servers
from tests.helpers import cli
from tests.helpers.waiting import wait_until
from tests.spark.test_touch import pods, touched

Conn = psycopg.Connection[Any]
ROWS = 3000


@pytest.fixture
def table(conn: Conn) -> str:
    """A table of shard 3, in order of another column backwards."""
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    conn.execute("CREATE TABLE public.x (id bigint PRIMARY KEY, at integer)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 3)")
    conn.execute(f"INSERT INTO public.x SELECT g, {ROWS} - g FROM generate_series(1, {ROWS}) AS g")
    conn.execute("DELETE FROM t")
    conn.execute("ANALYZE public.x")
    return "public.x"


def controls(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT op, payload ->> 'type', shard FROM t WHERE ids = '{}' ORDER BY seq"
    ).fetchall()


def test_all_rows_in_about_their_order(spark: SparkSession, dsn: str, conn: Conn, table: str) -> None:
    done = backfill(spark, "t", table, "at", dsn=dsn, ranges=6, max_connections=1)
    assert done.rows == ROWS
    assert done.ranges == 6
    assert touched(conn) == [(3, n) for n in range(1, ROWS + 1)]
    assert controls(conn) == [("T", "backfill_start", 3), ("B", "backfill_end", 3)]
    inserted = [key for op, _, ids in pods(conn) if op == "B" for key in ids]
    assert inserted == list(range(ROWS, 0, -1))  # one session, so in order
    (row,) = cli.run_json("backfill", "status", dsn=dsn)
    assert (row["state"], row["rows_done"], row["rows_total"]) == ("delivering", ROWS, ROWS)
    with pytest.raises(BackfillBusy, match="is under way|delivering"):
        backfill(spark, "t", table, "at", dsn=dsn)


def test_it_waits_for_those_who_write(
    spark: SparkSession, dsn: str, conn: Conn, connect: Connect, table: str
) -> None:
    writer = connect(autocommit=False)
    writer.execute(f"INSERT INTO public.x VALUES ({ROWS + 1}, 0)")
    numbers: list[int] = []
    thread = threading.Thread(
        target=backfill, args=(spark, "t", table), kwargs={"dsn": dsn, "began": numbers.append}
    )
    thread.start()
    wait_until(
        lambda: conn.execute(
            "SELECT note FROM tube_backfill_list() WHERE note LIKE 'waits for trans%'"
        ).fetchall()
    )
    writer.commit()
    thread.join(60)
    ids = [key for op, _, ids in pods(conn) if op == "B" for key in ids]
    assert sorted(ids) == list(range(1, ROWS + 2))


def test_one_that_was_interrupted_goes_on(spark: SparkSession, dsn: str, conn: Conn, table: str) -> None:
    conn.execute(
        "CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        " IF NEW.ids @> '{1500}' THEN RAISE 'disk full' USING ERRCODE = '53100'; END IF; RETURN NEW; END$$"
    )
    conn.execute("CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION public.no()")
    with pytest.raises(PartFailed, match="disk full"):
        backfill(spark, "t", table, dsn=dsn, ranges=8, max_connections=2)
    assert controls(conn) == [("T", "backfill_start", 3)]
    (row,) = cli.run_json("backfill", "status", dsn=dsn)
    assert row["state"] == "inserting"
    # Nobody else can take it for one in chunks.
    assert "in ranges, not in chunks" in cli.run("backfill", "resume", "--tube", "t", dsn=dsn).output
    conn.execute("DROP TRIGGER no ON t")
    done = backfill(spark, "t", table, dsn=dsn, ranges=3)
    assert done.ranges == 1
    assert done.rows == ROWS
    assert touched(conn) == [(3, n) for n in range(1, ROWS + 1)]
    assert controls(conn)[-1] == ("B", "backfill_end", 3)


def test_one_that_is_cancelled(spark: SparkSession, dsn: str, conn: Conn, table: str) -> None:
    def cancel(number: int) -> None:
        conn.execute("SELECT tube_backfill_command(%s, 'cancel')", [number])

    with pytest.raises((BackfillEnded, UsageError)):
        backfill(spark, "t", table, dsn=dsn, began=cancel)
    assert pods(conn) == []


# --- queries ----------------------------------------------------------------------------------------

QUERY = "SELECT id FROM public.x WHERE id % 2 = 0 -- the even ones"


@pytest.mark.usefixtures("table")
def test_a_query_in_ranges(spark: SparkSession, dsn: str, conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('other')")
    even = [(3, n) for n in range(2, ROWS + 1, 2)]
    for attempt in range(2):
        done = fanout_sql(
            spark, QUERY, tubes=["t", "other"], dsn=dsn, shard=3, op="U", ranges=5 + attempt, job_id="q"
        )
        assert (done.rows, done.ids, done.units) == (len(even), len(even), 0 if attempt else 5)
        assert touched(conn) == touched(conn, "other") == even
    with pytest.raises(JobConflict):
        fanout_sql(spark, QUERY + " AND 1 = 1", tubes=["t", "other"], dsn=dsn, shard=3, op="U", job_id="q")


@pytest.mark.usefixtures("table")
def test_queries_that_cant_be(spark: SparkSession, dsn: str, conn: Conn) -> None:
    with pytest.raises(UsageError, match="syntax"):
        fanout_sql(spark, "SELEC 1", tubes="t", dsn=dsn)
    with pytest.raises(UsageError, match="not a whole number"):
        fanout_sql(spark, "SELECT 'a'", tubes="t", dsn=dsn)
    with pytest.raises(PartFailed, match="NULL"):
        fanout_sql(spark, "SELECT NULL::bigint UNION ALL SELECT 1", tubes="t", dsn=dsn)
    assert fanout_sql(spark, "SELECT 1 WHERE false", tubes="t", dsn=dsn).ids == 0
    assert pods(conn) == []


@pytest.mark.usefixtures("table")
def test_a_query_of_several_hosts_one_of_which_is_not_there(
    spark: SparkSession, dsn: str, conn: Conn
) -> None:
    hosts = {(0, 3): dsn, (4, 9): "postgresql://me:s3cret@127.0.0.1:1/nowhere"}
    for _ in range(2):
        with pytest.raises(PartFailed, match=r"127\.0\.0\.1:1/nowhere: ") as raised:
            fanout_sql(spark, QUERY, tubes="t", dsn=hosts, shard=3, ranges=2, job_id="q")
        assert "s3cret" not in str(raised.value)
        assert touched(conn) == [(3, n) for n in range(2, ROWS + 1, 2)]


@dataclass(frozen=True)
class Counting:
    """A call that writes nothing, but how many sessions of ours there are."""

    folder: Path

    def __call__(self, connection: Conn, host: int, unit: int) -> bool:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pytube spark'"
        ).fetchone()
        assert row is not None
        (self.folder / f"{host}-{unit}").write_text(str(row[0]))
        return True


def test_no_more_sessions_than_were_allowed(
    spark: SparkSession, dsn: str, servers: Servers, tmp_path: Path
) -> None:
    with servers.get(18).database(installed=True) as other:
        which = ((0, 0), (1, 0), (0, 1), (1, 1))
        rows = run_calls(spark, (Host(dsn), Host(other)), which, Counting(tmp_path), 1)
    assert [row["state"] for row in rows] == ["written"] * 4
    assert [file.read_text() for file in tmp_path.iterdir()] == ["1"] * 4
