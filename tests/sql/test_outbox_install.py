"""Outboxes when our SQL is installed again, restored from a dump, or taken away."""

from __future__ import annotations

import psycopg
import pytest

from pytube.db.install import install, uninstall
from pytube.errors import TubesNotEmpty
from tests.conftest import Servers
from tests.helpers.capture import open_session
from tests.helpers.database import copy
from tests.helpers.outbox_sql import (
    ADOPTED,
    GOHARVEST_TABLE,
    drop_parked,
    lead,
    make_outbox,
    mark,
    marked_ids,
    park,
    stash,
    waiting_ids,
)
from tests.helpers.terms import Conn, scalar


def make_both(dsn: str) -> None:
    """An outbox of our own with two records, one of them parked, and an adopted table with one."""
    with open_session(dsn) as conn:
        make_outbox(conn, partitions=2)
        conn.execute(GOHARVEST_TABLE)
        conn.execute("SELECT outbox_adopt('billing', 'public.outbox', 1, true)")
        conn.execute("SELECT outbox_stash('billing', 't', 'k', 'v')")
        first = stash(conn)
        stash(conn)
        term = next(term for term in (lead(conn, part, 2) for part in range(2)) if mark(conn, term))
        park(conn, term, first, hold=True)


def works(conn: Conn) -> None:
    """What holds of the two outboxes, whatever was done to them meanwhile."""
    first, second = waiting_ids(conn)
    rows = [mark(conn, lead(conn, part, 2)) for part in range(2)]
    assert [(record.id, record.held) for records in rows for record in records] == [(second, True)]
    assert len(marked_ids(conn, lead(conn, outbox="billing"))) == 1
    assert conn.execute("SELECT outbox, wakes FROM outbox_list()").fetchall() == [
        ("billing", True),
        ("orders", True),
    ]
    assert scalar(conn, "SELECT has_column_privilege('tube_worker', 'tube.orders', 'leader_id', 'UPDATE')")
    assert scalar(conn, "SELECT outbox_index_sql('orders', 2)") is None
    third = stash(conn)
    assert third > second
    assert drop_parked(conn, first) == 1


def test_an_installation_over_outboxes_leaves_them_alone(dsn: str) -> None:
    make_both(dsn)
    install(dsn)
    with open_session(dsn) as conn:
        works(conn)


def test_outboxes_come_back_from_a_dump(servers: Servers, dsn: str) -> None:
    make_both(dsn)
    server = servers.get(18)
    with server.database(installed=False) as restored:
        copy(server.postgres, dsn, restored)
        with open_session(restored) as conn:
            works(conn)


def test_an_uninstallation_minds_records_of_ours_and_leaves_adopted_tables(dsn: str) -> None:
    make_both(dsn)
    with pytest.raises(TubesNotEmpty, match="there are records in the outboxes 'orders'"):
        uninstall(dsn)
    with open_session(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists('t')")
        conn.execute("INSERT INTO t (op, shard, ids) VALUES ('T', 0, '{1}')")
        with pytest.raises(
            TubesNotEmpty, match="there are pods in the tubes 't', and there are records in the"
        ):
            uninstall(dsn)
        conn.execute("DELETE FROM t")
        conn.execute("DELETE FROM orders")
        conn.execute(
            "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
            " VALUES ('t', 0, '1', 'U', 1, 'no', 1, 1)"
        )
        with pytest.raises(TubesNotEmpty, match="there are parked documents of the tubes 't'"):
            uninstall(dsn)
        conn.execute("SELECT tube_park_drop('t')")
    uninstall(dsn)
    with psycopg.connect(dsn, autocommit=True) as plain:
        assert waiting_ids(plain, ADOPTED) != []
        plain.execute(
            f"INSERT INTO {ADOPTED} (create_time, kafka_topic, kafka_key, kafka_header_keys,"
            " kafka_header_values) VALUES (now(), 't', 'k', '{}', '{}')"
        )
        assert plain.execute("SELECT to_regnamespace('tube')").fetchone() == (None,)
