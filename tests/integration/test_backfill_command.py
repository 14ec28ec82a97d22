"""What `pytube backfill` says, and how soon it hears what others do."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.backfill.admin import Backfills
from tests.conftest import Connect
from tests.helpers import cli
from tests.helpers.waiting import wait_until

Connection = psycopg.Connection[Any]
ROWS = 20_000


@pytest.fixture
def items(conn: Connection) -> Connection:
    """A table of 20,000 rows in one shard of a tube."""
    conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
    conn.execute("INSERT INTO public.items SELECT generate_series(1, %s)", (ROWS,))
    conn.execute("SELECT tube_ensure_exists('items')")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
    return conn


@pytest.fixture
def slow(items: Connection, dsn: str) -> Iterator[subprocess.Popen[str]]:
    """A client that inserts 500 rows a second, in chunks of ten thousand if it could."""
    process = cli.start(
        *("backfill", "start", "--tube", "items", "--rate", "500", "--chunk", "40"),
        config=Path("/nonexistent"),
        PYTUBE_DSN=dsn,
    )
    wait_until(lambda: done(items) > 0, 20, "it inserts")
    yield process
    process.kill()
    process.communicate()


def done(conn: Connection) -> int:
    row = conn.execute("SELECT coalesce(max(rows_done), 0) FROM tube_backfill").fetchone()
    assert row is not None
    return int(row[0])


def test_a_rate_is_kept_from_the_beginning(items: Connection, slow: subprocess.Popen[str]) -> None:
    assert done(items) <= 1000
    wait_until(lambda: done(items) >= 1000, 20, "it goes on")
    assert slow.poll() is None


def test_a_cancel_is_heard_while_it_keeps_to_its_rate(dsn: str, slow: subprocess.Popen[str]) -> None:
    cli.run("backfill", "cancel", "--tube", "items", dsn=dsn)
    assert "was cancelled" in slow.communicate(timeout=3)[1]


@pytest.mark.usefixtures("items")
def test_what_is_left_to_a_worker_is_told(dsn: str) -> None:
    started = cli.run("backfill", "start", "--tube", "items", "--in-worker", dsn=dsn)
    assert started.output == "backfill 1 of public.items: waiting, left to the workers of the tube\n"
    assert "left to workers" in cli.run("backfill", "status", dsn=dsn).output
    again = cli.run_json("backfill", "start", "--tube", "items", "--in-worker", "--supersede", dsn=dsn)
    assert (again["backfill"], again["table"], again["state"]) == (2, "public.items", "waiting")
    resumed = cli.run("backfill", "resume", "--tube", "items", dsn=dsn)
    assert resumed.output == "backfill 2 of public.items: waiting, left to the workers of the tube\n"


@pytest.mark.usefixtures("items")
def test_the_status_of_a_tube_that_is_not_there(dsn: str) -> None:
    assert "there was no backfill yet" in cli.run("backfill", "status", "--tube", "items", dsn=dsn).output
    assert (
        "there is no tube 'item'" in cli.run("backfill", "status", "--tube", "item", dsn=dsn, code=2).output
    )


@pytest.mark.parametrize("option", ["--rate", "--replica-lag"])
@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "much"])
def test_numbers_that_are_none(option: str, value: str) -> None:
    told = cli.run("backfill", "start", "--tube", "items", option, value, dsn="host=/nonexistent", code=2)
    assert f"Invalid value for '{option}'" in told.output


def test_a_deadlock_with_a_worker_is_tried_again(items: Connection, connect: Connect) -> None:
    """Whoever cancels waits for a pod, and who has that waits for the backfill."""
    row = items.execute("SELECT tube_backfill_create('items', 'public.items')").fetchone()
    assert row is not None
    items.execute("SELECT tube_backfill_lock(%s)", row)
    items.execute("SELECT tube_backfill_collect(%s)", row)
    items.execute("SELECT tube_backfill_chunk(%s, 1)", row)
    other = connect(autocommit=False)
    other.execute("SET deadlock_timeout = '1min'")  # it is the other one who finds it
    other.execute("SELECT FROM tube.items WHERE op = 'B' FOR UPDATE")
    admin = connect()
    answers: list[str] = []
    cancelling = threading.Thread(
        target=lambda: answers.append(Backfills(admin).command(row[0], "cancel")), daemon=True
    )
    cancelling.start()
    waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    pid = admin.info.backend_pid
    wait_until(lambda: items.execute(waits, (pid,)).fetchone() == (1,), 10, "it waits for the pod")
    other.execute("UPDATE tube.tube_backfill SET note = 'mine'")
    other.commit()
    cancelling.join(10)
    assert answers == ["cancelled"]
