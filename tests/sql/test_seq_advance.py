"""tube_seq_advance: seqs go on beyond a number, and never back, whoever draws meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import Connect
from tests.helpers.capture import Conn, make_tube, open_session, scalar
from tests.helpers.waiting import LIMIT, wait_until

TOUCH = "SELECT \"es-live_touch\"(0, '{1}', 'T')"


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version, with a tube."""
    with open_session(any_dsn) as conn:
        make_tube(conn)
        yield conn


def advance(conn: Conn, beyond: int | None) -> tuple[int, str]:
    """Its result, and what it said."""
    heard: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        heard.append(notice.message_primary or "")

    conn.add_notice_handler(hear)
    try:
        result = scalar(conn, "SELECT tube_seq_advance(%s)", (beyond,))
    finally:
        conn.remove_notice_handler(hear)
    (said,) = heard
    return result, said


def last_seq(conn: Conn) -> int:
    conn.execute(TOUCH.encode())
    return int(scalar(conn, 'SELECT max(seq) FROM "es-live"'))


def test_seqs_go_on_beyond_it_and_never_back(db: Conn) -> None:
    assert advance(db, 0) == (0, "tube_seq is at 0, so it was left as it is")
    assert advance(db, 1000) == (1000, "tube_seq, which was at 0, continues after 1000")
    assert last_seq(db) == 1001
    for beyond in (0, 500, 1000, 1001):
        assert advance(db, beyond) == (1001, "tube_seq is at 1001, so it was left as it is")
    assert last_seq(db) == 1002
    assert int(scalar(db, "SELECT tube_backfill_step1()")) == 1003
    assert scalar(db, "SELECT tube_settle_seq()") == 1003


@pytest.mark.parametrize(("beyond", "state"), [(None, "22004"), (-1, "22023"), (10**15 + 1, "22023")])
def test_what_makes_no_sense_is_refused(conn: Conn, beyond: int | None, state: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("SELECT tube_seq_advance(%s)", (beyond,))
    assert refused.value.sqlstate == state
    assert scalar(conn, "SELECT tube_settle_seq()") == 0


def test_a_sequence_that_was_altered_is_refused(conn: Conn) -> None:
    conn.execute("ALTER SEQUENCE tube_seq CACHE 10")
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("SELECT tube_seq_advance(5)")
    assert refused.value.sqlstate == "TU110"


def test_nobody_draws_between_the_look_and_the_change(db: Conn, any_dsn: str) -> None:
    """Whoever has drawn is waited for, and whoever wants to draw waits until the change is committed."""
    result: list[int] = []

    def advance_beside() -> None:
        with open_session(any_dsn, application_name="advance") as conn:
            result.append(advance(conn, 10_000)[0])

    with open_session(any_dsn) as writer:
        with writer.transaction():
            writer.execute(TOUCH.encode())
            thread = threading.Thread(target=advance_beside)
            thread.start()
            waits = (
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE application_name = 'advance' AND wait_event_type IN ('Lock', 'Timeout')"
            )
            wait_until(lambda: scalar(db, waits) == 1, what="it waits for the writer")
            db.execute(TOUCH.encode())  # others draw meanwhile: it lets go after each attempt
            assert result == []
        thread.join(LIMIT)
        assert result == [10_000]
        assert last_seq(writer) == 10_001

        with db.transaction():
            advance(db, 20_000)
            writer.execute("SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                writer.execute(TOUCH.encode())
            assert scalar(writer, "SELECT tube_settle_seq()") == 20_000  # those who only look don't wait
        assert last_seq(writer) == 20_001


def test_it_stays_when_the_transaction_is_rolled_back(db: Conn) -> None:
    with db.transaction(force_rollback=True):
        advance(db, 77)
    assert last_seq(db) == 78


def test_two_at_once_end_at_the_greater(conn: Conn, connect: Connect) -> None:
    make_tube(conn)
    other = connect()
    with conn.transaction():
        advance(conn, 900)
        thread = threading.Thread(target=lambda: advance(other, 800))
        thread.start()
        thread.join(0.3)
    thread.join(LIMIT)
    assert last_seq(conn) == 901
