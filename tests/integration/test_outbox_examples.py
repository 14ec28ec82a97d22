"""The examples of writing to an outbox through an ORM: their messages are part of its transactions."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import httpx
import pytest
import sqlalchemy.exc

from pytube import Worker
from pytube.config import parse
from pytube.tubes.admin import Tubes
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


SETTINGS = """
    [postgres]
    dsn = "{dsn}"
    [tube.live.sink]
    type = "jsonl"
    path = "{path}"
"""


async def test_a_request_is_answered_when_the_copy_has_the_row(
    conn: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_outbox(conn)
    conn.execute("CREATE TABLE public.shop_order (number bigint PRIMARY KEY, total integer NOT NULL)")
    tubes = Tubes(conn)
    tubes.create("live")
    tubes.attach("live", "public.shop_order")
    monkeypatch.setenv("PYTUBE_DSN", dsn)
    example = runpy.run_path(str(ROOT / "examples" / "outbox_fastapi.py"), run_name="outbox_fastapi")
    app, copy = example["app"], tmp_path / "live.jsonl"
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client,
    ):
        assert (await client.post("/orders/1", params={"total": 12})).status_code == 201
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            await client.post("/orders/1", params={"total": 99})
        rows = conn.execute("SELECT kafka_key, kafka_value, kafka_header_keys FROM orders").fetchall()
        assert [(key, json.loads(value), headers) for key, value, headers in rows] == [
            ("1", {"number": 1, "total": 12}, ["type"])
        ]

        monkeypatch.setitem(example["change_order"].__globals__, "LONGEST", 0.05)
        assert (await client.put("/orders/1", params={"total": 13})).status_code == 202
        monkeypatch.undo()
        worker = Worker(parse(SETTINGS.format(dsn=dsn, path=copy)))
        await worker.start()
        try:
            assert (await client.put("/orders/1", params={"total": 14})).status_code == 200
            assert json.loads(copy.read_text().splitlines()[-1])["doc"]["total"] == 14
        finally:
            await worker.stop()
