"""What `pytube backfill` says, and how soon it hears what others do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pytube.backfill.admin import Backfills
from tests.conftest import Connect
from tests.helpers import cli
from tests.helpers.capture import open_session, scalar
from tests.helpers.database import preparing
from tests.helpers.forked import Piped
from tests.helpers.waiting import LIMIT, wait_until

Connection = psycopg.Connection[Any]
ROWS = 20_000


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        conn.execute("INSERT INTO public.items SELECT generate_series(1, %s)", (ROWS,))
        conn.execute("SELECT tube_ensure_exists('items')")
        conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")


prepare = preparing(prepared, "items")


@pytest.fixture
def items(conn: Connection) -> Connection:
    """A table of 20,000 rows in one shard of a tube."""
    return conn


StartAtRate = Callable[[int], Piped]


@pytest.fixture
def start_at_rate(items: Connection, dsn: str) -> Iterator[StartAtRate]:
    """Starts a client that inserts so many rows a second, in chunks of ten thousand if it could."""
    started: list[Piped] = []

    def start(rate: int) -> Piped:
        process = cli.start(
            *("backfill", "start", "--tube", "items", "--rate", str(rate), "--chunk", "40"),
            config=None,
            PYTUBE_DSN=dsn,
        )
        started.append(process)
        wait_until(lambda: done(items) > 0, what="it inserts")
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def done(conn: Connection) -> int:
    row = conn.execute("SELECT coalesce(max(rows_done), 0) FROM tube_backfill").fetchone()
    assert row is not None
    return int(row[0])


def test_a_rate_is_kept_from_the_beginning(items: Connection, start_at_rate: StartAtRate) -> None:
    began = time.monotonic()
    start_at_rate(500)
    assert done(items) <= 250 + 500 * (time.monotonic() - began)
    wait_until(lambda: done(items) >= 1000, what="it goes on")
    assert done(items) <= 250 + 500 * (time.monotonic() - began)


def test_a_cancel_is_heard_while_it_keeps_to_its_rate(dsn: str, start_at_rate: StartAtRate) -> None:
    client = start_at_rate(1)  # its second pod is due in four minutes
    cli.run("backfill", "cancel", "--tube", "items", dsn=dsn)
    assert "was cancelled" in client.communicate(timeout=LIMIT)[1]


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
    wait_until(lambda: items.execute(waits, (pid,)).fetchone() == (1,), what="it waits for the pod")
    other.execute("UPDATE tube.tube_backfill SET note = 'mine'")
    other.commit()
    cancelling.join(LIMIT)
    assert answers == ["cancelled"]


@pytest.fixture
def deadlocks(items: Connection) -> Callable[[int], None]:
    """Lets the first so many changes of a backfill fail as a deadlock does."""

    def fail(times: int) -> None:
        items.execute("CREATE SEQUENCE public.changes")
        items.execute(f"""
            CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('public.changes') <= {times} THEN
                    RAISE EXCEPTION 'deadlock detected' USING ERRCODE = 'deadlock_detected';
                END IF;
                RETURN NEW;
            END $$
        """)
        items.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON tube_backfill FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        items.execute("GRANT USAGE ON SEQUENCE public.changes TO PUBLIC")

    return fail


def test_several_deadlocks_in_a_row_are_outlived(items: Connection, deadlocks: Callable[[int], None]) -> None:
    number = scalar(items, "SELECT tube_backfill_create('items', 'public.items')")
    deadlocks(5)
    assert Backfills(items).command(number, "pause") == "waiting"
    assert scalar(items, "SELECT last_value FROM public.changes") == 6


def test_a_deadlock_that_never_ends_is_reported(items: Connection, deadlocks: Callable[[int], None]) -> None:
    number = scalar(items, "SELECT tube_backfill_create('items', 'public.items')")
    deadlocks(1000)
    with pytest.raises(psycopg.errors.DeadlockDetected):
        Backfills(items).command(number, "pause")


@pytest.mark.usefixtures("items")
def test_a_wait_says_that_no_worker_leads(dsn: str) -> None:
    """It waits for the first that comes, for as long as that takes."""
    with cli.start("backfill", "start", "items", "--wait", config=None, PYTUBE_DSN=dsn) as process:
        said = "no worker leads tube items, so nothing is delivered: pytube status says why\n"
        assert said in iter(process.stderr.readline, "")
        process.kill()
