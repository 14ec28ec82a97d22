"""The examples of writing to an outbox through an ORM: their messages are part of its transactions."""

from __future__ import annotations

import json
import runpy

import pytest

from tests.helpers.database import ROOT
from tests.helpers.outbox_sql import make_outbox
from tests.helpers.terms import Conn


@pytest.mark.parametrize("name", ["sqlalchemy", "django"])
def test_an_order_and_its_message_are_committed_together(
    conn: Conn, dsn: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_outbox(conn)
    monkeypatch.setenv("PYTUBE_DSN", dsn)
    runpy.run_path(str(ROOT / "examples" / f"outbox_{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == "order 1 is placed, order 2 is taken back with its message\n"
    rows = conn.execute(
        "SELECT o.number, r.kafka_topic, r.kafka_key, r.kafka_value, r.kafka_header_keys"
        " FROM shop_order AS o FULL JOIN orders AS r ON r.kafka_key = o.number::text"
    ).fetchall()
    assert [
        (number, topic, key, json.loads(value), headers) for number, topic, key, value, headers in rows
    ] == [(1, "orders", "1", {"number": 1, "total": 12}, ["type"])]
