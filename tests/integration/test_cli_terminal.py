"""Commands on a terminal: questions, bars, and colors."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import psycopg
import pytest

from tests.helpers.cli import run, run_json

CONFIG = '[postgres]\ndsn = "${PYTUBE_DSN}"\n[tube.t.sink]\ntype = "jsonl"\npath = "t.jsonl"\n'
COLOR = re.compile(r"\x1b\[[\d;]*m")


def on_terminal(
    *arguments: str, dsn: str, said: str = "", folder: Path | None = None, **environment: str
) -> tuple[int, str]:
    """Run the program with a terminal, where `said` is typed; the exit code, and what the terminal shows."""
    ours, theirs = pty.openpty()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTUBE_") and k != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytube", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=inherited | {"PYTUBE_DSN": dsn, "TERM": "xterm", "COLUMNS": "200"} | environment,
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, said.encode())
    shown = b""
    with suppress(OSError):  # the end of a terminal is an error
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    return process.wait(), shown.decode()


@pytest.mark.parametrize(
    ("command", "question"),
    [
        (
            "tube drop t --force",
            "drop tube t with its queued and parked changes? Attached tables: public.goods",
        ),
        ("outbox drop o --force", "drop outbox o with its queued and parked records?"),
        ("uninstall --force", "remove the schema tube with all tubes and outboxes"),
    ],
)
def test_force_asks_on_a_terminal(command: str, question: str, dsn: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY); SELECT outbox_ensure_exists('o')")
    run("tube", "create", "t", dsn=dsn)
    run("tube", "attach", "t", "public.goods", dsn=dsn)
    code, shown = on_terminal(*command.split(), dsn=dsn, said="n\n")
    assert code == 130
    assert question in shown
    assert "canceled; nothing was changed" in shown
    assert [row["tube"] for row in run_json("tube", "list", dsn=dsn)] == ["t"]
    code, shown = on_terminal(*command.split(), "--yes", dsn=dsn)
    assert (code, "?" in shown) == (0, False), shown


@pytest.mark.parametrize("command", ["status", "tube list", "doctor"])
def test_no_color(command: str, dsn: str) -> None:
    run("tube", "create", "t", dsn=dsn)
    _, colored = on_terminal(*command.split(), dsn=dsn)
    assert COLOR.search(colored)
    _, plain = on_terminal(*command.split(), dsn=dsn, NO_COLOR="1")
    assert COLOR.findall(plain) == []


def test_logs_have_no_color(dsn: str, tmp_path: Path) -> None:
    """A worker that ends at once, for want of a tube."""
    (tmp_path / "pytube.toml").write_text(CONFIG)
    for environment, is_colored in ({}, True), ({"NO_COLOR": "1"}, False):
        _, shown = on_terminal(
            "--log-format", "human", "--log-level", "debug", "worker", dsn=dsn, folder=tmp_path, **environment
        )
        assert "no tube" in shown
        assert bool(COLOR.search(shown)) == is_colored, shown


def test_a_bar_of_a_backfill(dsn: str, conn: psycopg.Connection, tmp_path: Path) -> None:
    (tmp_path / "pytube.toml").write_text(CONFIG)
    conn.execute(
        "CREATE TABLE public.goods (id bigint PRIMARY KEY);"
        " INSERT INTO public.goods SELECT g FROM generate_series(1, 500) AS g"
    )
    run("tube", "create", "t", dsn=dsn)
    run("tube", "attach", "t", "public.goods", dsn=dsn)
    code, shown = on_terminal("backfill", "start", "t", dsn=dsn, folder=tmp_path)
    assert code == 0
    assert "backfill 1 of public.goods: [####################] 100%" in click.unstyle(shown)
    said = run("backfill", "start", "t", "--supersede", dsn=dsn, folder=tmp_path).stdout
    assert "[#" not in said
    assert "backfill 2 of public.goods: " in said


EVIL = 'public."goods\x1b]0;owned\x07\x9b2J\u202e"'
"""A table whose owner has the terminals of others do something."""
SHOWN = 'public."goods\\x1b]0;owned\\x07\\x9b2J\\u202e"'


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("tube attach t {table}", 0, f"{SHOWN} in tube t is unchanged"),
        ("tube attach t {table} --shard 7", 2, f"pytube: {SHOWN} is not changed"),
        ("backfill cancel t", 0, f"backfill 1 of {SHOWN} is canceled"),
        ("doctor", 1, f"triggers of {SHOWN.removeprefix('public.')}"),
    ],
)
def test_no_name_commands_the_terminal(
    command: str, code: int, said: str, dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute(f"CREATE TABLE {EVIL} (id bigint PRIMARY KEY)".encode())
    run("tube", "create", "t", dsn=dsn)
    run("tube", "attach", "t", EVIL, "--shard", "0", dsn=dsn)
    conn.execute("SELECT tube_backfill_create('t', %s::regclass, 'id')", [EVIL])
    conn.execute(f"ALTER TABLE {EVIL} DISABLE TRIGGER USER".encode())
    ended, shown = on_terminal(*(word.format(table=EVIL) for word in command.split()), dsn=dsn, COLUMNS="900")
    assert ended == code, shown
    assert said in shown
    assert not set("\x07\x9b\u202e") & set(shown)
    assert "\x1b]" not in shown
