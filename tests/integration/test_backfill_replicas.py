"""A backfill slows itself for a replica that applies late, unless it is told not to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.crash.pair import Pair
from tests.helpers import cli
from tests.helpers.forked import Piped
from tests.helpers.waiting import LIMIT, wait_until

Connection = psycopg.Connection[Any]
START = ("backfill", "start", "--tube", "items", "--supersede", "--replica-behind", "off")


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary whose standby applies everything two seconds late."""
    with Pair() as pair:
        with psycopg.connect(pair.standby.dsn(), autocommit=True) as conn:
            conn.execute("ALTER SYSTEM SET recovery_min_apply_delay = '2s'")
            conn.execute("SELECT pg_reload_conf()")
        yield pair


@pytest.fixture
def items(pair: Pair) -> Iterator[Connection]:
    """A table of 1000 rows of the primary; another one for what else is written."""
    with psycopg.connect(pair.dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        conn.execute("GRANT pg_monitor TO tube_owner")
        conn.execute("CREATE TABLE public.ballast (n int)")
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        conn.execute("INSERT INTO public.items SELECT generate_series(1, 1000)")
        conn.execute("SELECT tube_ensure_exists('items')")
        conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
        yield conn


def started(pair: Pair, *options: str) -> Piped:
    return cli.start(*START, *options, config=None, PYTUBE_DSN=pair.dsn)


def holds(conn: Connection, query: str) -> bool:
    """Whether the query gives a row; something is written, for lag is known of what is replayed only."""
    conn.execute("INSERT INTO public.ballast VALUES (1)")
    return conn.execute(query).fetchone() is not None


def test_a_replica_that_applies_late(pair: Pair, items: Connection) -> None:
    late = "SELECT FROM tube_backfill_pressure('items', 10) WHERE replica = 'standby' AND replica_lag > 1"
    wait_until(lambda: holds(items, late), what="the standby is known to be late")
    slowed = started(pair, "--replica-lag", "1")
    heedless = None
    try:
        note = "waits: the replica standby is % s behind (limit 1 s)"
        waits = f"SELECT FROM tube_backfill WHERE note LIKE '{note}'"
        wait_until(lambda: holds(items, waits), what="it waits")
        assert items.execute("SELECT rows_done FROM tube_backfill").fetchall() == [(0,)]
        heedless = started(pair, "--replica-lag", "off")
        wait_until(lambda: holds(items, late) and heedless.poll() is not None, what="the other one ends")
        out, err = heedless.communicate(timeout=LIMIT)
        assert "1000 of 1000 rows" in out, err
        assert "was superseded" in slowed.communicate(timeout=LIMIT)[1]
    finally:
        for process in (slowed, heedless):
            if process is not None:
                process.kill()
                process.communicate()
