"""Step 2 of a backfill: who is waited for, and who is named when it takes too long."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import Connect
from tests.helpers.capture import TABLE, Conn, open_session, pods, scalar, set_up
from tests.helpers.steps import ids, step3, ten_rows
from tests.helpers.waiting import LIMIT, wait_until


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with ten_rows(any_dsn) as conn:
        yield conn


def wait_for_others(conn: Conn, timeout: str = "100 ms") -> None:
    conn.execute("SELECT tube_backfill_step2(%s::interval)", (timeout,))


def test_step_2_waits_for_whoever_writes_and_names_them(db: Conn, any_dsn: str) -> None:
    with open_session(any_dsn, application_name="it's me") as writer, writer.transaction():
        with writer.transaction():
            writer.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 1")
        with pytest.raises(psycopg.errors.LockNotAvailable) as late:
            wait_for_others(db)
        said = late.value.diag.message_primary or ""
        assert f"pid {writer.info.backend_pid} of user postgres, application 'it''s me'" in said
    wait_for_others(db)


def test_step_2_waits_for_a_prepared_transaction(db: Conn) -> None:
    gid = f"gid-{uuid.uuid4()}"
    with db.transaction():
        db.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 1")
        db.execute(f"PREPARE TRANSACTION '{gid}'")
    with pytest.raises(psycopg.errors.LockNotAvailable, match=f"prepared transaction '{gid}' of user"):
        wait_for_others(db)
    db.execute(f"COMMIT PREPARED '{gid}'")
    wait_for_others(db)


def test_step_2_knows_a_transaction_that_is_prepared_meanwhile(db: Conn, any_dsn: str) -> None:
    gid = f"gid-{uuid.uuid4()}"
    done = threading.Event()

    def wait() -> None:
        with open_session(any_dsn, application_name="waiter") as waiter:
            wait_for_others(waiter, "30 s")
        done.set()

    with open_session(any_dsn) as writer:
        writer.execute("BEGIN")
        writer.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 1")
        thread = threading.Thread(target=wait)
        thread.start()
        asleep = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'waiter' AND wait_event = 'PgSleep'"
        )
        wait_until(lambda: scalar(db, asleep) == 1, what="step 2 waits")
        writer.execute(f"PREPARE TRANSACTION '{gid}'")
    wait_until(lambda: done.is_set() or scalar(db, asleep) == 1, what="step 2 still waits")
    assert not done.is_set()
    db.execute(f"COMMIT PREPARED '{gid}'")
    thread.join(LIMIT)
    assert done.is_set()


def test_step_2_does_not_wait_for_readers_other_databases_and_those_who_come_later(
    conn: Conn, connect: Connect, bare_dsn: str
) -> None:
    set_up(conn)
    reader = connect(autocommit=False)
    reader.execute(f"SELECT * FROM {TABLE}")
    with psycopg.connect(bare_dsn) as elsewhere:
        elsewhere.execute("SELECT pg_current_xact_id()")
        with elsewhere.transaction():
            elsewhere.execute("SELECT pg_current_xact_id()")
            wait_for_others(conn, "0")


@pytest.mark.parametrize("timeout", [None, "-1 s"])
def test_step_2_with_a_timeout_that_makes_no_sense(conn: Conn, timeout: str | None) -> None:
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("SELECT tube_backfill_step2(%s::interval)", (timeout,))
    assert refused.value.sqlstate == "22023"


def test_steps_2_and_3_in_one_transaction_at_repeatable_read(conn: Conn) -> None:
    set_up(conn, shard=7)
    start = scalar(conn, "SELECT tube_backfill_step1()")
    conn.execute("SET default_transaction_isolation = 'repeatable read'")
    conn.execute("BEGIN")
    wait_for_others(conn)
    with pytest.raises(psycopg.errors.ActiveSqlTransaction):
        step3(conn, step1=start)
    conn.execute("ROLLBACK")
    with conn.transaction():
        step3(conn, step1=start)
    assert len(pods(conn)) == 2


def test_a_row_of_a_slow_writer_is_among_the_ids(conn: Conn, connect: Connect) -> None:
    """What drew a seq before the start, and commits after it, is waited for and read."""
    set_up(conn, shard=7)
    writer = connect()
    writer.execute("BEGIN")
    writer.execute(f"INSERT INTO {TABLE} VALUES (1)")
    start = scalar(conn, "SELECT tube_backfill_step1()")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        wait_for_others(conn)
    writer.execute("COMMIT")
    wait_for_others(conn)
    (seq,) = [row[0] for row in conn.execute('DELETE FROM "es-live" RETURNING seq')]
    assert seq < int(start)
    step3(conn, step1=start)
    assert ids(conn) == [1]
