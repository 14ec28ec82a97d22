r"""What `\df+ tube.*` says: each public function has a comment."""

from __future__ import annotations

from tests.helpers.capture import Conn


def test_each_public_function_has_a_comment(conn: Conn) -> None:
    rows = conn.execute(
        "SELECT p.proname::text, obj_description(p.oid, 'pg_proc') FROM pg_proc AS p"
        " WHERE p.pronamespace = 'tube'::regnamespace"
        r" AND p.proname LIKE 'tube\_%' AND p.proname NOT LIKE 'tube\_private\_%'"
    ).fetchall()
    assert len(rows) > 60
    assert {name for name, comment in rows if comment is None} == set()
    assert [name for name, text in rows if text and not (text[0].isupper() and text.endswith("."))] == []
