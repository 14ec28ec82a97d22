"""Records whose ids were chosen instead of drawn: below what a worker has passed, at 0, and negative."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.worker import outbox_worker
from tests.helpers.outbox import (
    OUTBOX,
    by_key,
    configured,
    read,
    running,
    stash,
    topics,
    until_waiting,
)

Conn = psycopg.Connection[Any]


def choose(conn: Conn, topic: str, *ids: int) -> None:
    for number in ids:
        conn.execute(
            f"INSERT INTO tube.{OUTBOX} (id, kafka_topic, kafka_key) VALUES (%s, %s, %s)",
            (number, topic, f"chosen {number}"),
        )


@pytest.mark.parametrize("settings", ["window = 100", 'mode = "strict"'])
async def test_they_are_delivered_soon_while_the_term_lasts(
    conn: Conn, dsn: str, tmp_path: Path, kafka_mock: str, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    monkeypatch.setattr(outbox_worker, "_EVERYWHERE_PAUSE", 1.0)
    topic = next(topics)
    conn.execute("SELECT outbox_ensure_exists(%s)", (OUTBOX,))
    conn.execute("SELECT tube_seq_advance(1000)")
    async with running(configured(tmp_path, dsn, kafka_mock, settings)):
        stash(conn, topic, ["drawn"] * 20)
        await until_waiting(conn)
        choose(conn, topic, 500, 7, 0, -5)
        await until_waiting(conn)  # also where nobody writes any more
        began = time.monotonic()
        for number in range(20, 40):
            stash(conn, topic, ["drawn"])
            choose(conn, topic, number)
        await until_waiting(conn)
        assert time.monotonic() - began < 10
    found = by_key(read(kafka_mock, topic))
    assert len(found["drawn"]) == 40
    assert {key: len(ids) for key, ids in found.items() if key != "drawn"} == {
        f"chosen {number}": 1 for number in (500, 7, 0, -5, *range(20, 40))
    }
