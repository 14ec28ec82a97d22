"""Triggers wake the sleeping worker of the partitions that they touch, and no other."""

from __future__ import annotations

import pytest

from tests.conftest import Connect
from tests.helpers.capture import TABLE, TUBE, Conn, open_session, scalar, set_up
from tests.helpers.database import preparing
from tests.isolation.conftest import NewSession


def attached_item(dsn: str) -> None:
    with open_session(dsn) as conn:
        set_up(conn, shard=0, shards=16)


prepare = preparing(attached_item, "sleeper")


@pytest.fixture
def sleeper(conn: Conn) -> Conn:
    """A session that hears what writers notify; partitions 0 and 2 of 4 sleep."""
    conn.execute(f"ALTER DATABASE \"{conn.info.dbname}\" SET pytube.wake = 'on'")
    conn.execute("INSERT INTO tube_sleeper VALUES (%s, 0, 4), (%s, 2, 4)", (TUBE, TUBE))
    conn.execute(f'LISTEN "{scalar(conn, "SELECT tube_channel(%s)", (TUBE,))}"')
    return conn


def heard(conn: Conn) -> list[str]:
    """What was notified by commits that came before."""
    conn.execute("SELECT 1")
    return sorted(note.payload for note in conn.notifies(timeout=0))


def test_a_statement_of_one_row(sleeper: Conn, connect: Connect) -> None:
    writer = connect()
    writer.execute(f"INSERT INTO {TABLE} VALUES (6)")
    assert heard(sleeper) == ["2"]
    writer.execute(f"INSERT INTO {TABLE} VALUES (7)")
    assert heard(sleeper) == []
    writer.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 6")
    writer.execute(f"DELETE FROM {TABLE} WHERE id = 6")
    assert heard(sleeper) == ["2", "2"]
    writer.execute(f"UPDATE {TABLE} SET value = 'x' WHERE id = 6")
    assert heard(sleeper) == [], "no row, no touch"


def test_a_statement_of_many_rows(sleeper: Conn, connect: Connect) -> None:
    writer = connect()
    writer.execute(f"INSERT INTO {TABLE} VALUES (1), (3), (5)")
    assert heard(sleeper) == []
    writer.execute(f"INSERT INTO {TABLE} SELECT g FROM generate_series(10, 100) AS g")
    assert heard(sleeper) == ["0", "2"]
    with writer.transaction():
        writer.execute(f"UPDATE {TABLE} SET value = 'x'")
        writer.execute(f"UPDATE {TABLE} SET value = 'y'")
        assert heard(sleeper) == []
    assert heard(sleeper) == ["0", "2"]


def test_nothing_is_heard_of_what_is_rolled_back(sleeper: Conn, connect: Connect) -> None:
    writer = connect()
    with writer.transaction(force_rollback=True):
        writer.execute(f"INSERT INTO {TABLE} VALUES (4)")
    assert heard(sleeper) == []


@pytest.mark.parametrize(
    ("setting", "wakes"), [("on", True), ("off", False), ("", False), ("nonsense", False), ("true", True)]
)
def test_whether_writers_wake(sleeper: Conn, connect: Connect, setting: str, wakes: bool) -> None:
    # Transactions may be prepared on this server, so by default nobody is notified.
    writer = connect()
    writer.execute("SELECT set_config('pytube.wake', %s, false)", (setting,))
    assert scalar(writer, "SELECT tube_wakes()") is wakes
    writer.execute(f"INSERT INTO {TABLE} VALUES (4)")
    assert heard(sleeper) == (["0"] if wakes else [])


def test_a_sleeper_that_came_after_the_writers_first_statement(sleeper: Conn, session: NewSession) -> None:
    sleeper.execute("DELETE FROM tube_sleeper")
    writer = session()
    writer.begin()
    writer.run("SELECT 1")
    sleeper.execute("INSERT INTO tube_sleeper VALUES (%s, 0, 4)", (TUBE,))
    writer.run(f"INSERT INTO {TABLE} VALUES (4)")
    writer.commit()
    assert heard(sleeper) == ["0"]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_sleeper_that_a_writer_is_too_old_to_see(sleeper: Conn, session: NewSession, level: str) -> None:
    """The flag is outside of any snapshot; it does not see who sleeps, and wakes all that it touches."""
    sleeper.execute("DELETE FROM tube_sleeper")
    writer = session()
    writer.begin(f"ISOLATION LEVEL {level}")
    writer.run("SELECT 1")
    sleeper.execute("INSERT INTO tube_sleeper VALUES (%s, 0, 4)", (TUBE,))
    writer.run(f"INSERT INTO {TABLE} VALUES (4), (5)")
    writer.commit()
    assert heard(sleeper) == ["0", "1"]


def test_a_sleeper_that_goes_hides_no_other(sleeper: Conn, session: NewSession, connect: Connect) -> None:
    going, coming = session(), session()
    going.begin()
    going.run("DELETE FROM tube_sleeper")
    insert = coming.start("INSERT INTO tube_sleeper VALUES (%s, 1, 4)", (TUBE,))
    assert insert.blocked(by=going)
    going.commit()
    insert.rows()
    connect().execute(f"INSERT INTO {TABLE} VALUES (5)")
    assert heard(sleeper) == ["1"]


def test_a_sleeper_that_is_rolled_back_costs_no_more_than_a_look(sleeper: Conn, connect: Connect) -> None:
    sleeper.execute("DELETE FROM tube_sleeper")
    with sleeper.transaction(force_rollback=True):
        sleeper.execute("INSERT INTO tube_sleeper VALUES (%s, 0, 4)", (TUBE,))
    connect().execute(f"INSERT INTO {TABLE} VALUES (4)")
    assert heard(sleeper) == []


def test_a_repartition_wakes_every_sleeper(sleeper: Conn, connect: Connect) -> None:
    admin = connect()
    admin.execute("SELECT tube_ensure_exists(%s, 5)", (TUBE,))
    assert heard(sleeper) == ["0", "2"]
    assert scalar(sleeper, "SELECT count(*) FROM tube_sleeper") == 0
