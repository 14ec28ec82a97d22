"""What `status`, `doctor` and the alerts show: leaders that died, sinks and sources that are down."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pytube.errors import SinkUnavailable
from pytube.model import OK, Batch, Result
from tests.docs.pages import BY_NAME
from tests.helpers.cli import run, run_json, start
from tests.helpers.waiting import wait_until
from tests.integration.test_worker_faults import running

Conn = psycopg.Connection[tuple[object, ...]]

down = False
reasons: Iterator[str | None] = iter(())
because: str | None = None


def send(batch: Batch) -> Sequence[Result]:
    """The sink of these tests."""
    global because  # the last one goes on
    if (because := next(reasons, because)) is not None:
        raise SinkUnavailable(because)
    if down:
        raise SinkUnavailable("https://app:hunter2@index refused\x00 us: " + "x" * 1000)
    return [OK] * len(batch)


@pytest.fixture
def config(dsn: str, conn: Conn, tmp_path: Path) -> Path:
    """Of a tube with a table; terms run out after two seconds."""
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 1)")
    path = tmp_path / "pytube.toml"
    path.write_text(f"""
        [postgres]
        dsn = "{dsn}"
        [worker]
        receive_deadline = 1
        session_timeout = 2
        [tube.t.sink]
        type = "callable"
        target = "{__name__}:send"
        request_timeout = 1
    """)
    return path


def alert(what: str) -> sql.SQL:
    """The query of the page on monitoring that begins with such a comment."""
    (found,) = (
        query
        for block in BY_NAME["docs/monitor.md"].blocks("sql")
        for query in block.text.split("\n\n")
        if query.startswith(f"-- {what}")
    )
    return sql.SQL(found)


def states(dsn: str) -> list[str]:
    return [row["state"] for row in run_json("status", dsn=dsn)]


def test_a_killed_leader_is_lost(dsn: str, conn: Conn, config: Path) -> None:
    unled = alert("partitions without a leader")
    process = start("worker", config=config)
    try:
        wait_until(lambda: states(dsn) == ["leads", "leads"], what="the worker leads")
        assert conn.execute(unled).fetchall() == []
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: len(conn.execute(unled).fetchall()) == 2, what="the alert goes off")
    assert [row[:2] for row in conn.execute(unled)] == [("t", 0), ("t", 1)]
    assert states(dsn) == ["lost", "lost"]
    assert "lost" in run("status", dsn=dsn).stdout
    found = run_json("doctor", folder=config.parent, code=1)
    lost = [check for check in found if "lost for" in check["finding"]]
    assert [(check["subject"], check["level"]) for check in lost] == [("partitions 0, 1 of t", "fail")]
    assert "pytube worker --tube t" in lost[0]["remedy"]


def one(dsn: str) -> dict[str, Any]:
    """The partition that has the table."""
    row: dict[str, Any] = run_json("status", dsn=dsn)[1]
    return row


async def test_a_sink_and_a_source_that_are_down(
    dsn: str, conn: Conn, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubled = alert("sinks and sources that are down")
    monkeypatch.setattr(f"{__name__}.down", True)
    async with running(config) as worker:
        conn.execute("INSERT INTO public.goods VALUES (1)")
        await worker.until("its sink is down", lambda: one(dsn)["state"] == "sink down")
        row = one(dsn)
        assert row["sink_down"].startswith("https://********@index refused  us: xxx")
        assert len(row["sink_down"]) == 500
        assert 0 <= row["sink_down_for"] < 60
        assert states(dsn)[0] == "leads"
        shown = run("status", dsn=dsn)
        assert "t partition 1: sink down for " in shown.stderr
        assert "hunter2" not in shown.output
        assert [row[:2] for row in conn.execute(troubled)] == [("t", 1)]
        checks = await asyncio.to_thread(run_json, "doctor", folder=config.parent, code=1)
        assert any(re.search("^sink down for .*: https://", check["finding"]) for check in checks)
        monkeypatch.setattr(f"{__name__}.down", False)
        await worker.until("it is up", lambda: one(dsn)["state"] == "leads")
        assert conn.execute(troubled).fetchall() == []

        predicate = "UPDATE tube_registry SET version = version + 1, predicate = %s"
        conn.execute(predicate, ("color = 1",))
        conn.execute("UPDATE public.goods SET id = 2")
        await worker.until("its source is down", lambda: one(dsn)["state"] == "source down")
        assert 'column "color" does not exist' in one(dsn)["source_down"]
        checks = await asyncio.to_thread(run_json, "doctor", folder=config.parent, code=1)
        assert [
            check["remedy"] for check in checks if "reload a changed file on SIGHUP" in str(check["remedy"])
        ]
        conn.execute(predicate, (None,))
        await worker.until("it is up", lambda: one(dsn)["state"] == "leads")


async def test_the_latest_reason_is_shown_wherever_an_outage_is(
    dsn: str, conn: Conn, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ["connection refused", "HTTP 401: bad password", "the certificate has expired"]
    monkeypatch.setattr(f"{__name__}.reasons", iter(told))
    async with running(config) as worker:
        conn.execute("INSERT INTO public.goods VALUES (1)")
        await worker.until("the last reason is told", lambda: one(dsn)["sink_down"] == told[-1])
        assert conn.execute(
            "SELECT sink_down_since BETWEEN acquired_at AND renewed_at FROM tube_leaders('t')"
            " WHERE partition = 1"
        ).fetchone() == (True,)
        assert told[-1] in run("status", dsn=dsn).stderr
        checks = await asyncio.to_thread(run_json, "doctor", folder=config.parent, code=1)
        assert any(
            check["finding"].startswith("sink down for ") and check["finding"].endswith(told[-1])
            for check in checks
        )
        explain = start("explain", "--tube", "t", "--key", "1", config=config)
        explained, _ = await asyncio.to_thread(explain.communicate)
        assert f": {told[-1]}" in explained
        assert "The sink is down, for " in explained
        metrics = run("status", "--prometheus", dsn=dsn).stdout
        assert re.search(r'pytube_fleet_sink_down_seconds\{partition="1",tube="t"\} [0-9.e-]+[1-9]', metrics)
        monkeypatch.setattr(f"{__name__}.because", None)
        await worker.until("it is up", lambda: one(dsn)["state"] == "leads")
