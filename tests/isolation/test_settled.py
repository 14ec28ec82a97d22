"""The settled seq: true only when no pod at or below it can appear any more."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.terms import Conn, acquire, make_tube, marked_seqs, scalar, touch
from tests.helpers.waiting import wait_until
from tests.isolation.conftest import NewSession
from tests.isolation.settling import Settling, database

INSERT = "INSERT INTO tube.queue (op, shard, ids) VALUES ('U', 0, '{1}') RETURNING seq"


@pytest.fixture(autouse=True)
def _tube(conn: Conn) -> None:
    make_tube(conn)


@pytest.fixture
def foreign(conn: Conn) -> Iterator[psycopg.Connection[object]]:
    """A session of another database that holds an xid."""
    name = f"{conn.info.dbname}_other"
    dsn = database(conn, name)
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT pg_current_xact_id()")
        yield holder
        holder.rollback()
    conn.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def holders(conn: Conn) -> list[str]:
    return list(scalar(conn, "SELECT tube_settle_holders('queue')"))


def left(conn: Conn, who: list[str]) -> bool:
    return bool(scalar(conn, "SELECT tube_settle_left('queue', %s)", (who,)))


def settled(conn: Conn) -> int:
    """A seq that is settled now, when nobody writes."""
    settling = Settling.begin(conn)
    assert settling.done(conn)
    return settling.seq


def test_nothing_drawn_is_zero(conn: Conn) -> None:
    assert settled(conn) == 0


def test_without_writers_the_last_seq_is_settled_at_once(conn: Conn) -> None:
    seq = touch(conn)
    assert settled(conn) == seq


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_one_open_writer_holds_it_up(conn: Conn, session: NewSession, end: str) -> None:
    writer = session()
    writer.begin()
    drawn = writer.value(INSERT)
    later = touch(conn)
    settling = Settling.begin(conn)
    assert settling.seq == later
    assert not settling.done(conn)
    term = acquire(conn)
    assert marked_seqs(conn, term) == [later]
    writer.run(end)
    assert settling.done(conn)
    assert marked_seqs(conn, term) == ([drawn] if end == "COMMIT" else [])


def test_a_writer_that_draws_later_does_not_hold_it_up(conn: Conn, session: NewSession) -> None:
    settling = Settling.begin(conn)
    writer = session()
    writer.begin()
    assert writer.value(INSERT) > settling.seq
    assert settling.done(conn)


def test_a_transaction_begun_before_that_draws_later_draws_above_it(conn: Conn, session: NewSession) -> None:
    writer = session()
    writer.begin()
    writer.run("SELECT 1")  # no xid yet
    settling = Settling.begin(conn)
    assert settling.done(conn)
    assert writer.value(INSERT) > settling.seq


def test_a_seq_rolled_back_to_a_savepoint_holds_it_up_until_the_end(conn: Conn, session: NewSession) -> None:
    writer = session()
    writer.begin()
    writer.run("SAVEPOINT here")
    writer.run(INSERT)
    writer.run("ROLLBACK TO here")
    writer.run("SELECT pg_current_xact_id()")
    settling = Settling.begin(conn)
    assert not settling.done(conn)
    writer.commit()
    assert settling.done(conn)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_three_open_writers_that_end_in_any_order(
    conn: Conn, session: NewSession, order: tuple[int, ...]
) -> None:
    writers = [session() for _ in order]
    for writer in writers:
        writer.begin()
    drawn = [writer.value(INSERT) for writer in writers]
    settling = Settling.begin(conn)
    assert settling.seq == max(drawn)
    term = acquire(conn)
    seen: list[int] = []
    for one in order:
        assert not settling.done(conn)
        writers[one].run("ROLLBACK" if one == 1 else "COMMIT")
        seen += marked_seqs(conn, term)
    assert settling.done(conn)
    assert sorted(seen) == [drawn[0], drawn[2]]


def test_a_prepared_writer_holds_it_up(conn: Conn, session: NewSession) -> None:
    writer = session()
    writer.begin()
    writer.run(INSERT)
    settling = Settling.begin(conn)
    who = holders(conn)
    assert len(who) == 1
    writer.run("PREPARE TRANSACTION 'settled'")
    assert not settling.done(conn)
    assert not left(conn, who), "the prepared transaction is still known as the one that it was"
    late = Settling.begin(conn)
    late_who = holders(conn)
    assert len(late_who) == 1
    writer.run("COMMIT PREPARED 'settled'")
    assert settling.done(conn)
    assert late.done(conn)
    assert left(conn, who)
    assert left(conn, late_who)


def test_holders_are_those_that_have_the_tube_open_for_writing(conn: Conn, session: NewSession) -> None:
    assert holders(conn) == []
    reader, writer, ended, other = (session() for _ in range(4))
    for one in (reader, writer, ended, other):
        one.begin()
    reader.run("SELECT * FROM tube.queue")
    other.run("SELECT pg_current_xact_id()")
    writer.run(INSERT)
    ended.run(INSERT)
    ended.rollback()
    who = holders(conn)
    assert len(who) == 1
    assert not left(conn, who)
    writer.commit()
    assert left(conn, who)
    assert left(conn, [])


def test_a_holder_whose_lock_is_not_on_the_fast_path(conn: Conn, session: NewSession) -> None:
    # A lock that conflicts with writers moves their locks to the main table.
    writer, locker = session(), session()
    writer.begin()
    writer.run(INSERT)
    locker.begin()
    locking = locker.start("LOCK TABLE tube.queue IN SHARE MODE")
    assert locking.blocked(by=writer)
    who = holders(conn)
    assert len(who) == 1
    assert not left(conn, who)
    writer.commit()
    locking.rows()
    assert left(conn, who)


def test_the_callers_own_lock_does_not_count(conn: Conn) -> None:
    with conn.transaction():
        touch(conn)
        assert holders(conn) == []


def test_the_holders_decide_when_another_database_holds_an_xid(
    conn: Conn, session: NewSession, foreign: psycopg.Connection[object]
) -> None:
    early = session()
    early.begin()
    drawn = early.value(INSERT)
    settling = Settling.begin(conn)
    who = holders(conn)
    late = session()
    late.begin()
    assert late.value(INSERT) > settling.seq
    assert not left(conn, who)
    early.commit()
    assert left(conn, who), "whoever came later does not count"
    assert not settling.done(conn), "the other database holds it up"
    assert marked_seqs(conn, acquire(conn)) == [drawn]
    foreign.rollback()
    late.commit()
    wait_until(lambda: settling.done(conn), what="settled without the other database")


@pytest.mark.parametrize("change", ["CACHE 2", "INCREMENT 2", "CYCLE"])
def test_an_altered_sequence_is_refused(conn: Conn, change: str) -> None:
    conn.execute(f"ALTER SEQUENCE tube.tube_seq {change}")
    with pytest.raises(psycopg.Error) as failed:
        conn.execute("SELECT tube_settle_seq()")
    assert failed.value.sqlstate == "TU110"


def test_a_writer_has_its_xid_before_it_draws(conn: Conn) -> None:
    # However the pods come, by COPY and INSERT … SELECT too. What draws is looked at where it stands.
    conn.execute("CREATE TABLE seen (xid xid8)")
    conn.execute(
        "CREATE FUNCTION draw() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO seen SELECT pg_current_xact_id_if_assigned(); RETURN nextval('tube.tube_seq'); END $$"
    )
    default = str(
        scalar(
            conn,
            "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'tube.queue'::regclass"
            " AND adnum = 1",
        )
    )
    drawing = re.sub(r"nextval\(.*?\)", "draw()", default)
    assert drawing.count("draw()") == 1
    conn.execute(f"ALTER TABLE tube.queue ALTER seq SET DEFAULT {drawing}")
    for role in ("origin", "replica"):
        conn.execute(f"SET session_replication_role = {role}")
        conn.execute("INSERT INTO tube.queue (op, shard, ids) SELECT 'U', 0, '{1}'")
        with conn.cursor().copy("COPY tube.queue (op, shard, ids) FROM STDIN") as copy:
            copy.write_row(("U", 0, [1]))
    assert scalar(conn, "SELECT count(*) FILTER (WHERE xid IS NULL) FROM seen") == 0
    assert scalar(conn, "SELECT count(*) FROM seen") == 4


def test_an_unknown_tube_is_refused(conn: Conn) -> None:
    for call in ("tube_settle_holders('none')", "tube_settle_left('none', '{}')"):
        with pytest.raises(psycopg.Error) as failed:
            conn.execute(f"SELECT {call}")
        assert failed.value.sqlstate == "TU102"
