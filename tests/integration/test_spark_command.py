"""`pytube spark …` without a session: what it refuses before it starts one, and the list of jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.helpers.cli import run

_WITHOUT_SPARK = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "numpy", "pandas"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from pytube.cli import main
main()
"""


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, conn: psycopg.Connection[Any], tmp_path: Path) -> Path:
    """A file of ids, beside the tube `t` of the table `public.x`; there is no session to be had."""

    def refuse(*_: object) -> None:
        raise AssertionError("a session was started")

    monkeypatch.setattr("pytube.spark.session.local", refuse)
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute("CREATE TABLE public.x (id bigint PRIMARY KEY)")
    (tmp_path / "ids.json").write_text('{"id": 1}')
    return tmp_path / "ids.json"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("touch --tube t --input /none", "there is no file or folder /none"),
        ("touch --tube none --input FILE", "there is no tube 'none'"),
        ("fanout --tube none --query x", "there is no tube 'none'"),
        ("backfill --tube none --table public.x", "there is no tube 'none'"),
        ("backfill --tube t --table public.none", "there is no table 'public.none'"),
        ("reconcile --source public.x --sink /none", "there is no file or folder /none"),
        ("reconcile --source public.none --sink FILE", "there is no table 'public.none'"),
        ("reconcile --source public.x --sink FILE --tube none", "there is no tube 'none'"),
    ],
)
def test_what_is_missing_is_told_before_a_session_starts(
    dsn: str, files: Path, command: str, said: str
) -> None:
    words = command.replace("FILE", str(files)).split()
    assert run("spark", *words, dsn=dsn, code=2).stderr.startswith(f"pytube: {said}")


def test_whole_documents_are_not_compared_with_parts(dsn: str, files: Path) -> None:
    (files.parent / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n[tube.t.sink]\ntype = "jsonl"\npath = "x"\nparts = ["a"]\n'
    )
    for tube in ("--tube", "--sink-tube"):
        words = ("reconcile", "--source", "public.x", "--sink", str(files), tube, "t")
        assert run("spark", *words, dsn=dsn, folder=files.parent, code=2).stderr == (
            "pytube: tube 't' splits its documents (key `parts` of its sink), and Spark compares rows with "
            "whole documents; use `pytube verify t`\n"
        )


def test_jobs_need_no_spark(dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute("SELECT tube_job_begin('mine', '{t}', 'direct', 'f', 7, NULL)")
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK, "spark", "jobs"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTUBE_DSN": dsn, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [["job", "tubes"], ["mine", "t"]]
