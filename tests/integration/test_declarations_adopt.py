"""A file declares an outbox over a table that is there: whose it is, and who holds it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytube.tubes.tables import LockBusy
from tests.helpers.cli import run
from tests.helpers.declarations import BASE, apply, plans, problem, session
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.terms import Conn

TABLE = """
CREATE SCHEMA shop;
CREATE TABLE shop.outbox (
    id bigserial PRIMARY KEY, create_time timestamptz NOT NULL, kafka_topic varchar(249) NOT NULL,
    kafka_key varchar(100) NOT NULL, kafka_value varchar(10000), kafka_header_keys text[] NOT NULL,
    kafka_header_values text[] NOT NULL, leader_id uuid)
"""
FILE = BASE + '[outbox.billing]\nadopt = "shop.outbox"\nwake = true\npartitions = 2\n'


@pytest.fixture
def file(tmp_path: Path, conn: Conn) -> Path:
    """The configuration, and the table."""
    conn.execute(TABLE.encode())
    path = tmp_path / "pytube.toml"
    path.write_text(FILE)
    return path


def outboxes(conn: Conn) -> list[tuple[object, ...]]:
    return conn.execute("SELECT outbox, partitions, wakes FROM tube.outbox_list()").fetchall()


def test_from_the_table_to_its_farewell(dsn: str, conn: Conn) -> None:
    with pytest.raises(AssertionError, match="outbox.billing.adopt: there is no table shop.outbox; correct"):
        plans(dsn, FILE)
    conn.execute(TABLE.encode())
    assert apply(dsn, FILE)[0] == "adopt shop.outbox as outbox billing: partitions 2; writers wake workers"
    assert outboxes(conn) == [("billing", 2, True)]
    assert conn.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 'outbox'").fetchone() == (2,)
    apply(dsn, FILE.replace("wake = true\n", "").replace("partitions = 2", "partitions = 1"))
    assert outboxes(conn) == [("billing", 1, False)]
    assert "uses the table shop.outbox, not its own table" in problem(
        dsn, BASE + "[outbox.billing]\npartitions = 1\n"
    )
    with session(dsn) as declarations:
        declarations.apply(plans(dsn, BASE)["billing"])
    assert outboxes(conn) == []
    assert conn.execute("SELECT to_regclass('shop.outbox')::text").fetchone() == ("shop.outbox",)


# --- somebody holds it -----------------------------------------------------------------------------


def held(connect: Callable[[], Conn], mode: str = "ROW EXCLUSIVE") -> Conn:
    """A session that has locked the table, until it is closed."""
    other = connect()
    other.execute("SET application_name = 'the month-end job'")
    other.execute("BEGIN")
    other.execute(f"LOCK TABLE shop.outbox IN {mode} MODE".encode())
    return other


@pytest.mark.parametrize("mode", ["ROW EXCLUSIVE", "ACCESS EXCLUSIVE"])
def test_a_table_that_somebody_holds(
    dsn: str, conn: Conn, file: Path, connect: Callable[[], Conn], mode: str
) -> None:
    """What is tried beforehand waits no longer than it may, and then it is told who holds the table."""
    other = held(connect, mode)
    said = run("apply", "--lock-timeout", "2", dsn=dsn, folder=file.parent, code=3).stderr
    assert "shop.outbox could not be locked within 2 s, so nothing was changed" in said
    assert "the month-end job (pid " in said
    assert outboxes(conn) == []
    other.execute("ROLLBACK")
    run("apply", dsn=dsn, folder=file.parent)
    assert outboxes(conn) == [("billing", 2, True)]


@pytest.mark.usefixtures("file")
def test_what_is_tried_beforehand_needs_no_lock(dsn: str, conn: Conn, connect: Callable[[], Conn]) -> None:
    """Writers of a table keep nobody from looking whether it can be adopted."""
    one = plans(dsn, FILE)["billing"]
    held(connect)
    with session(dsn) as declarations:
        declarations.check([one], limit=30)
    assert outboxes(conn) == []


@pytest.mark.usefixtures("file")
def test_other_partitions_while_somebody_holds_it(dsn: str, conn: Conn, connect: Callable[[], Conn]) -> None:
    apply(dsn, FILE.replace("wake = true", "wake = false"))
    one = plans(dsn, FILE.replace("partitions = 2", "partitions = 1"))["billing"]
    held(connect)
    with session(dsn) as declarations, pytest.raises(LockBusy, match="within 1 s, .* by the month-end job"):
        declarations.apply(one, limit=1)
    assert outboxes(conn) == [("billing", 2, False)]


# --- it is somebody else's -------------------------------------------------------------------------


@pytest.fixture
def clerk(dsn: str, conn: Conn, file: Path) -> Iterator[str]:
    """The database, logged in as an administrator who does not own the table of `file`."""
    assert file.exists()
    role = f"clerk_{database_name(dsn)}"
    with roles(dsn, f"{role} IN ROLE tube_admin"):
        conn.execute(f"GRANT USAGE ON SCHEMA shop TO {role}".encode())
        yield as_role(dsn, role)


def test_other_partitions_without_the_rights_of_its_owner(
    dsn: str, conn: Conn, file: Path, clerk: str
) -> None:
    """It is refused before anything is done, also about what comes before it in the file."""
    run("apply", dsn=dsn, folder=file.parent)
    other = (
        BASE
        + "[outbox.events]\npartitions = 1\n"
        + FILE[len(BASE) :].replace("partitions = 2", "partitions = 3")
    )
    file.write_text(other)
    said = run("apply", dsn=clerk, folder=file.parent, code=2).stderr
    assert "nothing was changed: the role " in said
    assert "does not own shop.outbox" in said
    assert outboxes(conn) == [("billing", 2, True)]


def test_what_is_only_to_be_noted_needs_no_rights(dsn: str, file: Path, clerk: str) -> None:
    """Somebody adopted it by hand, as the file has it: nobody's rights but an administrator's are asked."""
    command = ("outbox", "adopt", "billing", "shop.outbox", "--wake", "--partitions", "2")
    run(*command, dsn=dsn, folder=file.parent)
    assert "billing: applied" in run("apply", dsn=clerk, folder=file.parent).stdout
    assert plans(dsn, FILE)["billing"].steps == ()


def test_what_was_cut_before_its_index_needs_its_owner(dsn: str, conn: Conn, file: Path, clerk: str) -> None:
    conn.execute("SELECT tube.outbox_adopt('billing', 'shop.outbox', 2, true)")
    said = run("apply", dsn=clerk, folder=file.parent, code=2).stderr
    assert "nothing was changed: the role " in said
    assert "does not own shop.outbox" in said
    run("apply", dsn=dsn, folder=file.parent)
    assert conn.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 'outbox'").fetchone() == (2,)
