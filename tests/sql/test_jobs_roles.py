"""Whose a job is: writers fan out by their own ones, workers insert ranges of backfills, others look on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from tests.helpers.roles import as_role, roles
from tests.sql.test_jobs import begin, done, pods

Conn = psycopg.Connection[Any]

LOGINS = {"ann": "tube_writer", "bob": "tube_writer", "wim": "tube_worker", "wes": "tube_worker"}


@pytest.fixture
def admin(dsn: str, conn: Conn) -> Iterator[Conn]:
    """A superuser's session; two writers, two workers, somebody who looks on, an admin, and a stranger."""
    conn.execute("SELECT tube_ensure_exists('t', 2), tube_ensure_exists('other')")
    with roles(dsn, *LOGINS, "mia", "eve", "zoe"):
        for login, role in {**LOGINS, "mia": "tube_monitor", "zoe": "tube_admin"}.items():
            conn.execute(f"GRANT {role} TO {login}".encode())
        conn.execute("GRANT USAGE ON SCHEMA tube TO eve")
        yield conn


def login(dsn: str, name: str) -> Conn:
    return psycopg.connect(as_role(dsn, name), autocommit=True, options="-c search_path=tube,public")


def copied(conn: Conn, table: str, first: int, unit: int = 0) -> None:
    """Write a unit, as Spark's tasks do."""
    with conn.transaction():
        with conn.cursor().copy(f"COPY {table} (op, shard, ids, payload) FROM STDIN") as stream:
            stream.write_row(("T", 0, [first, first + 1], None))
        assert done(conn, unit)


def listed(conn: Conn) -> list[Any]:
    return [row[0] for row in conn.execute("SELECT job_id FROM tube_job_list()").fetchall()]


def test_a_writer_fans_out(dsn: str, admin: Conn) -> None:
    with login(dsn, "ann") as ann:
        for kind in ("direct", "staged"):
            stage = begin(ann, kind, units=1)[2]
            copied(ann, stage or "t", 1)
            assert ann.execute("SELECT tube_job_units('j')").fetchone() == ([0],)
            row = ann.execute("SELECT ids_done, begun_by FROM tube_job_finish('j')").fetchone()
            assert row == (2, "ann")
            assert listed(ann) == ["j"]
            assert ann.execute("SELECT tube_job_forget('j')").fetchone() == (1,)
    assert pods(admin) == [[1, 2], [1, 2]]


@pytest.mark.usefixtures("admin")
def test_nobody_else_fans_out(dsn: str) -> None:
    for name in ("eve", "mia", "wim"):
        with login(dsn, name) as other:
            with pytest.raises(InsufficientPrivilege, match="permission denied for function tube_job_begin"):
                begin(other)
            # a worker writes pods, for backfills, but records no unit of a job
            refused = "function tube_job_done" if name == "wim" else "table t"
            with pytest.raises(InsufficientPrivilege, match=f"permission denied for {refused}"):
                copied(other, "t", 1)


def test_a_job_belongs_to_who_began_it(dsn: str, admin: Conn) -> None:
    with login(dsn, "ann") as ann, login(dsn, "bob") as bob:
        stage = begin(ann, "staged", units=3)[2]
        copied(ann, stage, 1)
        for call in (
            "tube_job_begin('j', '{t}', 'staged', 'f', 3)",
            "tube_job_done('j', 1, 0, 0, 0)",
            "tube_job_finish('j')",
            "tube_job_forget('j')",
        ):
            with pytest.raises(InsufficientPrivilege, match="'j' belongs to ann, who has begun it") as raised:
                bob.execute(f"SELECT {call}".encode())
            assert "members of tube_admin may" in (raised.value.diag.message_hint or "")
        with pytest.raises(InsufficientPrivilege, match="permission denied for table"):
            copied(bob, stage, 5, 1)
        assert listed(bob) == []
        assert bob.execute("SELECT tube_job_units('j')").fetchone() == ([],)
        # Of all that are over he forgets only his.
        ann.execute("SELECT tube_job_finish('j')")
        assert begin(bob, job="his")[0] == "running"
        bob.execute("SELECT tube_job_finish('his')")
        assert bob.execute("SELECT tube_job_forget(NULL, 'infinity')").fetchone() == (1,)
        assert listed(admin) == ["j"]
    assert pods(admin) == [[1, 2]]


def test_an_admin_goes_on_with_it(dsn: str, admin: Conn) -> None:
    with login(dsn, "ann") as ann, login(dsn, "zoe") as zoe:
        stage = begin(ann, "staged", units=2)[2]
        copied(ann, stage, 1)
        assert begin(zoe, "staged")[3]
        copied(zoe, stage, 5, 1)
        zoe.execute("SELECT tube_job_finish('j')")
        assert zoe.execute("SELECT tube_job_forget('j')").fetchone() == (1,)
    assert pods(admin) == [[1, 2], [5, 6]]


def test_who_looks_on_sees_all(dsn: str, admin: Conn) -> None:
    with login(dsn, "ann") as ann:
        begin(ann)
    for name in ("mia", "wim", "zoe"):
        with login(dsn, name) as other:
            assert listed(other) == ["j"]
    assert listed(admin) == ["j"]


# --- backfills --------------------------------------------------------------------------------------


@pytest.fixture
def backfill(admin: Conn) -> int:
    """One that an admin has begun, of 100 rows."""
    admin.execute("CREATE TABLE public.x AS SELECT generate_series(1::bigint, 100) AS id")
    admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
    admin.execute("GRANT SELECT ON public.x TO wim, wes")  # they read it as they are
    admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
    row = admin.execute("SELECT tube_backfill_create('t', 'public.x', 'id')").fetchone()
    assert row is not None
    return int(row[0])


def test_workers_insert_its_ranges(dsn: str, admin: Conn, backfill: int) -> None:
    with login(dsn, "wim") as wim, login(dsn, "wes") as wes, login(dsn, "ann") as ann:
        wim.execute("SELECT tube_backfill_lock(%s)", [backfill])
        wim.execute("SELECT tube_backfill_split(%s, 3)", [backfill])
        for call in (f"range({backfill}, 0)", f"split({backfill})", f"join({backfill})"):
            with pytest.raises(InsufficientPrivilege, match="permission denied for function"):
                ann.execute(f"SELECT tube_backfill_{call}".encode())
        # Two of them share it, whoever has divided it.
        rows = [
            session.execute("SELECT tube_backfill_range(%s, %s)", [backfill, unit]).fetchone()
            for unit, session in enumerate((wes, wim, wes))
        ]
        assert sum(row[0] for row in rows if row) == 100
        assert wes.execute("SELECT tube_job_units(%s)", [f"backfill {backfill}"]).fetchone() == ([0, 1, 2],)
        assert wim.execute("SELECT tube_backfill_join(%s)", [backfill]).fetchone() == (True,)
    assert sorted(key for ids in pods(admin) for key in ids) == list(range(1, 101))


def test_a_worker_who_may_not_read_the_table_divides_nothing(dsn: str, admin: Conn, backfill: int) -> None:
    admin.execute("REVOKE SELECT ON public.x FROM wim")
    with login(dsn, "wim") as wim:
        wim.execute("SELECT tube_backfill_lock(%s)", [backfill])
        with pytest.raises(InsufficientPrivilege, match="permission denied for table x"):
            wim.execute("SELECT tube_backfill_split(%s, 3)", [backfill])


@pytest.mark.usefixtures("backfill")
def test_no_job_says_what_a_backfill_has_done(dsn: str, admin: Conn, backfill: int) -> None:
    name = f"backfill {backfill}"
    with login(dsn, "ann") as ann:
        # Neither before it is divided, nor after, nor as an admin.
        for session in (ann, admin):
            with pytest.raises(psycopg.Error, match="is kept for a backfill") as raised:
                begin(session, "ranges", job=name, print=name)
            assert raised.value.sqlstate == "TU130"
        admin.execute("SELECT tube_backfill_lock(%s), tube_backfill_split(%s, 3)", [backfill, backfill])
        for session, state in ((ann, "42501"), (admin, "TU130")):
            for call in ("done(%s, 1, 0, 0, 0)", "finish(%s)", "forget(%s)"):
                with pytest.raises(psycopg.Error) as raised:
                    session.execute(f"SELECT tube_job_{call}".encode(), [name])
                assert raised.value.sqlstate == state
    assert admin.execute("SELECT tube_job_units(%s)", [name]).fetchone() == ([],)


def test_that_of_a_backfill_which_was_ended(admin: Conn, backfill: int) -> None:
    admin.execute("SELECT tube_backfill_lock(%s), tube_backfill_split(%s, 3)", [backfill, backfill])
    admin.execute("SELECT tube_backfill_command(%s, 'cancel')", [backfill])
    row = admin.execute("SELECT state, ended_at IS NOT NULL FROM tube_job_list()").fetchone()
    assert row == ("cancelled", True)
    assert admin.execute("SELECT tube_job_forget(NULL, 'infinity')").fetchone() == (1,)


# --- streams ----------------------------------------------------------------------------------------


def test_a_worker_reads_and_purges_as_a_stream_does(dsn: str, admin: Conn) -> None:
    admin.execute("SELECT t_touch(0, '{1}', 'U')")
    with login(dsn, "wim") as wim:
        row = wim.execute("SELECT tube_settle_seq()").fetchone()
        assert row is not None
        assert wim.execute("SELECT ids FROM t WHERE seq <= %s", row).fetchall() == [([1],)]
        assert wim.execute("SELECT tube_stream_purge('t', %s)", row).fetchone() == (1,)
    with login(dsn, "ann") as ann, pytest.raises(InsufficientPrivilege):
        ann.execute("SELECT tube_stream_purge('t', 1)")
