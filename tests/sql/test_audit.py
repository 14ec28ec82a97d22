"""The audit: who did what by hand."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import Conn, open_session, scalar
from tests.helpers.roles import as_role, roles


def test_a_row_says_who_when_and_what(conn: Conn) -> None:
    conn.execute("SET application_name = 'night shift'")
    conn.execute("""SELECT tube_audit_add('pods retry', 'es-live', '{"pods": 3}')""")
    (row,) = conn.execute(
        "SELECT done_by = session_user, client, action, tube, details, now() - done_at < interval '1 minute'"
        " FROM tube_audit_list('es-live')"
    ).fetchall()
    assert row == (True, "night shift", "pods retry", "es-live", {"pods": 3}, True)
    assert conn.execute("SELECT * FROM tube_audit_list('other')").fetchall() == []


def test_the_list_is_latest_first_and_limited(conn: Conn) -> None:
    for action in ("one", "two", "three"):
        scalar(conn, "SELECT tube_audit_add(%s)", (action,))
    rows = conn.execute("SELECT action FROM tube_audit_list(NULL, 2)").fetchall()
    assert rows == [("three",), ("two",)]


@pytest.mark.parametrize(
    "arguments",
    [
        "''",
        "NULL",
        "repeat('x', 101)",
        "'a', NULL, '[]'",
        "'a', NULL, jsonb_build_object('a', repeat('x', 9000))",
    ],
)
def test_what_makes_no_sense_is_refused(conn: Conn, arguments: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        conn.execute(f"SELECT tube_audit_add({arguments})".encode())
    assert scalar(conn, "SELECT count(*) FROM tube_audit") == 0


def test_nobody_can_change_what_was_done_or_do_it_as_another(any_dsn: str) -> None:
    with roles(any_dsn, "oncall IN ROLE tube_admin"), open_session(as_role(any_dsn, "oncall")) as conn:
        conn.execute("SET ROLE tube_admin")
        conn.execute("SELECT tube.tube_audit_add('pause')")
        assert scalar(conn, "SELECT done_by::text FROM tube.tube_audit_list()") == "oncall"
        for statement in ("DELETE FROM tube.tube_audit", "UPDATE tube.tube_audit SET action = ''"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement.encode())


def test_secrets_are_masked(conn: Conn) -> None:
    text = "see https://me:hunter2@host/x?token=abc, db_password: hunter2\nAPI_KEY='hunter2'"
    masked = scalar(conn, "SELECT tube_private_masked(%s)", (text,))
    assert "hunter2" not in masked
    assert "abc" not in masked
    assert "\n" not in masked
    assert "host/x" in masked
