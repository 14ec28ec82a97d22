"""Somebody without any right of ours fills the server's queue of notifications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from tests.helpers.capture import TUBE, Conn, let_writers_notify, open_session, ops, scalar, set_up
from tests.helpers.database import TestServer
from tests.helpers.roles import as_role, roles

LEAST_PAGES = "64"


def fill(conn: Conn) -> None:
    """Notify until there is no room; each of these takes a page."""
    for number in range(int(LEAST_PAGES) + 1):
        conn.execute("SELECT pg_notify('anything', %s)", (f"{number:07900}",))


@pytest.fixture
def full() -> Iterator[str]:
    """A database with an attached table; the queue of its server is full while a plain login waits."""
    with (
        closing(TestServer(18, {"max_notify_queue_pages": LEAST_PAGES})) as server,
        server.database(installed=True) as dsn,
        roles(dsn, "plain"),
        open_session(dsn) as conn,
    ):
        set_up(conn, partitions=1)
        let_writers_notify(conn)
        with (
            psycopg.connect(as_role(dsn, "plain"), autocommit=True) as idle,
            psycopg.connect(as_role(dsn, "plain"), autocommit=True) as filler,
        ):
            idle.execute("LISTEN anything")
            idle.execute("BEGIN")
            with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                fill(filler)
            yield dsn


def test_a_full_queue_fails_no_write_no_ddl_and_no_purge(full: str) -> None:
    """While a worker sleeps, somebody waits for a delivery, and event triggers want to tell."""
    with open_session(full) as conn, open_session(full) as watcher:
        conn.execute("INSERT INTO tube_sleeper VALUES (%s, 0, 1)", (TUBE,))
        assert scalar(conn, "SELECT tube_wakes() AND pg_notification_queue_usage() > 0.5")
        conn.execute("INSERT INTO item VALUES (1)")
        conn.execute("ALTER TABLE item ADD more integer")
        assert ops(conn) == [("I", 1)]
        watcher.execute("SELECT tube_delivered_watch(%s)", (TUBE,))
        conn.execute("SELECT tube_private_tell_watchers(%s, 1, 0)", (TUBE,))
