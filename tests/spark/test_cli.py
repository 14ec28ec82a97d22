"""`pytube spark …`, in the session that there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from pytube.db.install import install
from tests.helpers import cli
from tests.helpers.roles import staff
from tests.spark.test_touch import touched

Conn = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def table(spark: SparkSession, conn: Conn) -> None:
    """A tube, and a table of 300 rows that is spread over two of its shards."""
    assert spark is not None
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    conn.execute("CREATE TABLE public.x (id bigint PRIMARY KEY)")
    conn.execute("INSERT INTO public.x SELECT generate_series(1, 300)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 4, 2)")


def keys(last: int) -> list[tuple[int, int]]:
    return sorted((4 + n % 2, n) for n in range(1, last + 1))


def test_files(dsn: str, conn: Conn, tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("\n".join(["id", *map(str, range(1, 101))]))
    arguments = [
        "spark",
        "touch",
        "--tube",
        "t",
        "--input",
        str(tmp_path),
        "--format",
        "csv",
        "--job",
        "files",
    ]
    assert "100 ids in" in cli.run(*arguments, dsn=dsn).output
    assert "job files was finished before: 100 ids in" in cli.run(*arguments, dsn=dsn).output
    again = cli.run_json(*arguments, dsn=dsn)
    assert (again["ids"], again["units"]) == (100, 0)
    assert touched(conn) == keys(100)
    assert "there is no file" in cli.run(*arguments[:5], "/none", "--shard", "0", dsn=dsn, code=2).output


def test_a_query(dsn: str, conn: Conn) -> None:
    arguments = [
        "--tube",
        "t",
        "--query",
        "SELECT id FROM public.x",
        "--shard",
        "4",
        "--job",
        "q",
    ]
    assert "300 ids in" in cli.run("spark", "fanout", *arguments, dsn=dsn).output
    assert touched(conn) == keys(300)


def test_a_backfill_and_the_list_of_jobs(dsn: str, conn: Conn) -> None:
    assert "there was no job yet" in cli.run("spark", "jobs", dsn=dsn).output
    done = cli.run("spark", "backfill", "--tube", "t", "--table", "public.x", "--ranges", "3", dsn=dsn)
    assert "300 rows are in the tube" in done.output
    assert touched(conn) == keys(300)
    (job,) = cli.run_json("spark", "jobs", dsn=dsn)
    assert (job["job_id"], job["state"], job["ids"]) == ("backfill 1", "done", 300)
    assert "backfill 1" in cli.run("spark", "jobs", dsn=dsn).output


def test_what_it_says_when_it_is_refused(dsn: str) -> None:
    output = cli.run("spark", "fanout", "--tube", "none", "--query", "SELECT 1", dsn=dsn, code=2).output
    assert "there is no tube 'none'" in output


def test_a_file_of_texts_that_look_like_numbers(dsn: str, conn: Conn, tmp_path: Path) -> None:
    conn.execute("SELECT tube_ensure_exists('words', key_type => 'text')")
    conn.execute("CREATE TABLE public.word (id text PRIMARY KEY, n integer)")
    conn.execute("INSERT INTO public.word VALUES ('007', 1), ('7', 2), ('1e3', 3)")
    (tmp_path / "ids.csv").write_text("id,n\n007,1\n7,2\n1000,3\n")
    arguments = ["--tube", "words", "--shard", "0", "--format", "csv"]
    assert cli.run_json("spark", "touch", "--input", str(tmp_path), *arguments, dsn=dsn)["ids"] == 3
    assert touched(conn, "words") == [(0, "007"), (0, "1000"), (0, "7")]  # type: ignore[comparison-overlap]
    conn.execute("DELETE FROM words")
    sides = ["--source", "public.word", "--sink", str(tmp_path), "--keys", "text"]
    found = cli.run_json("spark", "reconcile", *sides, *arguments, dsn=dsn)
    assert (found["missing"], found["extra"], found["different"]) == (1, 1, 0)
    assert touched(conn, "words") == [(0, "1000"), (0, "1e3")]  # type: ignore[comparison-overlap]


@pytest.mark.every_server
@pytest.mark.each_value
@pytest.mark.parametrize("superuser", [True, False])
def test_each_command_as_its_role(any_bare_dsn: str, tmp_path: Path, superuser: bool) -> None:
    """With `USAGE` of the table's schema for the writer, and `SELECT` for who reads it."""
    (tmp_path / "ids.csv").write_text("id,n\n1,1\n2,2\n")
    with staff(any_bare_dsn, superuser=superuser, install=lambda dsn, name: install(dsn, roles=name)) as crew:
        crew.admin.execute("SET search_path = tube; CREATE TABLE public.x (id bigint PRIMARY KEY, n int)")
        crew.admin.execute("INSERT INTO public.x VALUES (1, 1), (3, 3)")
        crew.admin.execute(
            f"GRANT SELECT ON public.x TO {crew.name('admin')}, {crew.name('writer')}".encode()
        )
        crew.admin.execute("SELECT tube_ensure_exists('t')")
        crew.admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
        writer, admin = crew.dsns["writer"], crew.dsns["admin"]
        files = ("--format", "csv")
        assert (
            "2 ids in"
            in cli.run("spark", "touch", "--tube", "t", "--input", str(tmp_path), *files, dsn=writer).output
        )
        query = ("--query", "SELECT id FROM public.x", "--ranges", "2")
        assert "2 ids in" in cli.run("spark", "fanout", "--tube", "t", *query, dsn=writer).output
        sides = ("--source", "public.x", "--sink", str(tmp_path), "--tube", "t", *files)
        found = cli.run_json("spark", "reconcile", *sides, dsn=writer)
        assert (found["missing"], found["extra"]) == (1, 1)
        table = ("--tube", "t", "--table", "public.x", "--ranges", "2")
        assert "2 rows are in the tube" in cli.run("spark", "backfill", *table, dsn=admin).output
        assert len(cli.run_json("spark", "jobs", dsn=crew.dsns["monitor"])) == 4
