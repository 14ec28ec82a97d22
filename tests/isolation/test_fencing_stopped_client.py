"""A client that is stopped while it reads what it marked holds no lock."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import Connect
from tests.helpers.terms import TUBE, Conn, Term, acquire, make_tube, pods, scalar
from tests.helpers.waiting import wait_until

# Far more bytes than the buffers of both ends of a connection take.
PODS, IDS = 4000, 2000

CLIENT = textwrap.dedent(
    """
    import os, signal, sys
    import psycopg
    import psycopg.sql

    dsn, tube, leader_id, limit = sys.argv[1:]
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube") as conn:
        print(conn.info.backend_pid, flush=True)
        message = psycopg.sql.SQL(
            "BEGIN; DECLARE marked BINARY NO SCROLL CURSOR WITH HOLD FOR"
            " SELECT * FROM tube_pods_mark({}, 1, 0, {}, {}); COMMIT; FETCH ALL FROM marked; CLOSE marked"
        ).format(tube, leader_id, int(limit))
        conn.pgconn.send_query(message.as_bytes(conn))
        conn.pgconn.flush()
        # What was sent is on its way, and nothing of the answer was read yet.
        os.kill(os.getpid(), signal.SIGSTOP)
        results = iter(conn.pgconn.get_result, None)
        print(sum(result.ntuples for result in results), flush=True)
    """
)


@pytest.fixture
def term(conn: Conn) -> Term:
    make_tube(conn)
    conn.execute(
        "INSERT INTO tube.queue (op, shard, ids)"
        " SELECT 'U', 0, a.ids FROM generate_series(1, %s),"
        " (SELECT array_agg(i) AS ids FROM generate_series(1, %s) AS i) AS a",
        (PODS, IDS),
    )
    return acquire(conn)


@pytest.fixture
def stopped(dsn: str, term: Term) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A client that has sent its mark and was stopped by SIGSTOP; and its backend's pid."""
    command = [sys.executable, "-c", CLIENT, dsn, TUBE, str(term.leader_id), str(PODS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        backend = int(client.stdout.readline())
        _, status = os.waitpid(client.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield client, backend
        client.kill()


def activity(conn: Conn, backend: int, column: str) -> object:
    return scalar(conn, f"SELECT {column} FROM pg_stat_activity WHERE pid = %s", (backend,))


def test_it_holds_no_lock_and_no_snapshot(
    conn: Conn, term: Term, stopped: tuple[subprocess.Popen[str], int]
) -> None:
    client, backend = stopped
    wait_until(
        lambda: activity(conn, backend, "wait_event") == "ClientWrite", what="the server waits to send"
    )
    assert set(pods(conn).values()) == {term.leader_id}, "the mark is committed"
    held = conn.execute(
        "SELECT locktype, mode FROM pg_locks WHERE pid = %s AND locktype <> 'virtualxid'", (backend,)
    )
    assert held.fetchall() == []
    assert activity(conn, backend, "backend_xmin") is None
    assert activity(conn, backend, "backend_xid") is None

    conn.execute("SET statement_timeout = '60s'")
    new = acquire(conn)
    assert new.epoch > term.epoch
    assert scalar(conn, "SELECT count(*) FROM tube_pods_mark(%s, %s, %s, %s, %s)", (*new.args, PODS)) == PODS
    # The rows that were marked are still to be read, though they have gone to another term.
    client.send_signal(signal.SIGCONT)
    assert client.stdout is not None
    assert int(client.stdout.readline()) == PODS


def test_the_plain_call_would_hold_the_fence(conn: Conn, dsn: str, term: Term) -> None:
    # Why the recipe is needed: a SELECT ends its transaction only after its last row is sent.
    with contextlib.closing(psycopg.connect(dsn, autocommit=True, options="-c search_path=tube")) as reader:
        reader.pgconn.send_query_params(
            b"SELECT * FROM tube_pods_mark($1, 1, 0, $2, $3)",
            [TUBE.encode(), str(term.leader_id).encode(), str(PODS).encode()],
        )
        reader.pgconn.flush()
        backend = reader.info.backend_pid
        wait_until(
            lambda: activity(conn, backend, "wait_event") == "ClientWrite", what="the server waits to send"
        )
        conn.execute("ALTER FUNCTION tube.tube_leader_acquire SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            acquire(conn)


def test_a_pipeline_that_was_sent_half_would_hold_the_fence(conn: Conn, dsn: str, term: Term) -> None:
    # Why the recipe is one message: Postgres does what has come, waits for more, and no time-out runs.
    with contextlib.closing(psycopg.connect(dsn, autocommit=True, options="-c search_path=tube")) as half:
        half.execute("SET idle_in_transaction_session_timeout = '10ms'")
        with contextlib.suppress(psycopg.OperationalError), half.pipeline():
            half.execute("BEGIN")
            half.execute("SELECT tube_pods_purge(%s, %s, %s, %s, '{1}')", term.args)
            backend = half.info.backend_pid
            wait_until(
                lambda: (
                    activity(conn, backend, "left(query, 6)") == "SELECT"
                    and activity(conn, backend, "wait_event") == "ClientRead"
                ),
                what="the server waits for more",
            )
            conn.execute("ALTER FUNCTION tube.tube_leader_acquire SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                acquire(conn)
            half.close()


def recipe(conn: Conn, term: Term) -> None:
    """What a worker sends to mark."""
    message = (
        "BEGIN; DECLARE marked BINARY NO SCROLL CURSOR WITH HOLD FOR"
        " SELECT * FROM tube_pods_mark(%s, %s, %s, %s); COMMIT; FETCH ALL FROM marked; CLOSE marked"
    )
    psycopg.ClientCursor(conn).execute(message, term.args)


def test_the_recipe_reports_a_term_that_is_over(conn: Conn, connect: Connect) -> None:
    make_tube(conn)
    term = acquire(conn)
    acquire(conn)
    old = connect()
    with pytest.raises(psycopg.Error) as failed:
        recipe(old, term)
    assert failed.value.sqlstate == "TU001"
    old.execute("ROLLBACK")
    assert scalar(old, "SELECT count(*) FROM pg_cursors") == 0
