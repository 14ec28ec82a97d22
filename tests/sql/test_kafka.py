"""What workers say of Kafka clusters that they can't reach."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.helpers.terms import Conn, scalar


@pytest.fixture(autouse=True)
def _tubes(conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('es', 2), tube_ensure_exists('other')")


def said(
    tube: str = "es", use: str = "election", reason: str = "refused", seconds: float = 60
) -> dict[str, object]:
    return {"tube": tube, "use": use, "bootstrap_servers": "k:9092", "reason": reason, "seconds": seconds}


def report(conn: Conn, instance: UUID, *unreachable: dict[str, object]) -> None:
    conn.execute("SELECT tube_kafka_report(%s, 'w', %s)", (instance, json.dumps(unreachable)))


def unreachable(conn: Conn) -> list[tuple[object, ...]]:
    return conn.execute(
        "SELECT tube, use, reason, round(extract(epoch FROM clock_timestamp() - since))"
        " FROM tube_kafka_unreachable()"
    ).fetchall()


def test_a_report_replaces_the_one_before_and_keeps_the_latest_reason(conn: Conn) -> None:
    one, two = uuid4(), uuid4()
    report(conn, one, said(), said("other", "delivery"))
    report(conn, two, said(reason="no route", seconds=5))
    assert sorted(unreachable(conn)) == [
        ("es", "election", "no route", 5),
        ("es", "election", "refused", 60),
        ("other", "delivery", "refused", 60),
    ]
    report(conn, one, said(reason="timed out", seconds=90))
    assert sorted(unreachable(conn)) == [
        ("es", "election", "no route", 5),
        ("es", "election", "timed out", 90),
    ]
    report(conn, one)
    report(conn, two)
    assert unreachable(conn) == []


def test_a_process_that_says_no_more_is_believed_for_half_a_minute(conn: Conn) -> None:
    report(conn, uuid4(), said())
    conn.execute("UPDATE tube_kafka SET seen_at = seen_at - interval '29 seconds'")
    assert len(unreachable(conn)) == 1
    conn.execute("UPDATE tube_kafka SET seen_at = seen_at - interval '2 seconds'")
    assert unreachable(conn) == []
    conn.execute("UPDATE tube_kafka SET seen_at = seen_at - interval '1 hour'")
    report(conn, uuid4())
    assert scalar(conn, "SELECT count(*) FROM tube_kafka") == 0, "the next report of anybody's forgets it"


def test_an_outage_keeps_its_begin(conn: Conn) -> None:
    """Reports come later than they were made; a new outage has a begin of its own."""
    instance = uuid4()

    def since() -> object:
        return scalar(conn, "SELECT since FROM tube_kafka_unreachable()")

    report(conn, instance, said(seconds=60))
    first = since()
    for seconds in (58, 63):
        report(conn, instance, said(seconds=seconds))
        assert since() == first
    report(conn, instance, said(seconds=5))
    assert since() != first
    report(conn, instance, said(seconds=60))
    report(conn, instance)
    report(conn, instance, said(seconds=59))
    assert since() != first


def test_a_process_that_is_back_may_wait_for_the_election(conn: Conn) -> None:
    instance = uuid4()

    def back() -> list[tuple[object, ...]]:
        return conn.execute("SELECT tube, instance_id, client_id FROM tube_kafka_back()").fetchall()

    report(conn, instance, said(), said(use="delivery"), said("other", "delivery"))
    assert back() == []
    report(conn, instance)
    assert back() == [("es", instance, "w")]
    report(conn, instance, said())
    assert (back(), len(unreachable(conn))) == ([], 1), "it is lost again"
    report(conn, instance)
    conn.execute("UPDATE tube_kafka SET back_at = back_at - interval '61 seconds'")
    assert back() == []
    report(conn, instance)
    assert scalar(conn, "SELECT count(*) FROM tube_kafka") == 0


def test_nothing_is_said_of_a_tube_that_is_gone(conn: Conn) -> None:
    report(conn, uuid4(), said())
    conn.execute("SELECT tube_drop('es')")
    assert unreachable(conn) == []


@pytest.mark.parametrize(
    ("report", "state"),
    [(None, "22004"), ("{}", "22023"), ("[1]", "22023"), ('[{"tube": "es"}]', "23502")],
)
def test_what_is_no_report_is_refused(conn: Conn, report: str | None, state: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute("SELECT tube_kafka_report(%s, 'w', %s)", (uuid4(), report))
    assert caught.value.sqlstate == state
