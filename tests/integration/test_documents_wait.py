"""`pytube apply --backfill --wait`: a deployment goes on when all documents are sent."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube.cli import backfill
from tests.conftest import Connect
from tests.helpers.cli import run, run_json, start
from tests.helpers.database import preparing
from tests.helpers.terms import Conn
from tests.helpers.waiting import wait_until
from tests.integration.test_documents_command import DOCUMENT, TUBE, prepare_shop

prepare = preparing(prepare_shop, "dsn")
ALL = ("apply", "--backfill", "--wait")
PARTITIONS = 4


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pytube.toml"
    path.write_text(TUBE.replace("orders.jsonl", str(tmp_path / "orders.jsonl")) + DOCUMENT)
    return path


@pytest.fixture
def worker(file: Path, dsn: str, conn: Conn) -> Iterator[None]:
    """A worker of the applied file, which leads."""
    run("apply", dsn=dsn, folder=file.parent)
    with start("worker", config=file, PYTUBE_DSN=dsn) as process:
        try:
            wait_until(lambda: conn.execute("SELECT FROM tube_leaders('orders')").rowcount == PARTITIONS)
            yield
        finally:
            process.kill()


@pytest.mark.usefixtures("worker")
def test_it_returns_when_all_documents_are_sent(file: Path, dsn: str, conn: Conn) -> None:
    conn.execute(
        "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
        " VALUES ('orders', 0, '99', 'D', 1, 'rejected', 1, 1)"
    )
    result = run(*ALL, dsn=dsn, folder=file.parent)
    assert "backfill 1 of shop.orders: finished, 20 of 20 rows" in result.stdout
    assert result.stdout.endswith("orders: all documents are sent, but for 1 key that is parked\n")
    sent = [json.loads(line)["id"] for line in (file.parent / "orders.jsonl").read_text().splitlines()]
    assert {int(one) for one in sent} == set(range(1, 21))
    (again,) = run_json("apply", "--wait", dsn=dsn, folder=file.parent)
    assert again["backfills"] == [], "there is nothing to wait for, and the output is one value"
    result = run("apply", "--wait", dsn=dsn, folder=file.parent)
    assert result.stdout == "orders: nothing to do\n"


def test_without_a_worker_it_ends(file: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "_PATIENCE", 0.1)
    result = run(*ALL, dsn=dsn, folder=file.parent, code=1)
    assert (
        "backfill 1 of shop.orders is not delivered (waiting): no worker leads tube orders" in result.stderr
    )
    assert "the backfill stays: wait again with: pytube apply --wait" in result.stderr
    result = run("apply", "orders", "--wait", dsn=dsn, folder=file.parent, code=1)
    assert "wait again with: pytube apply orders --wait" in result.stderr, "it waits for the one of before"


@pytest.mark.usefixtures("worker")
def test_after_the_timeout_it_tells_why(file: Path, dsn: str, conn: Conn, connect: Connect) -> None:
    with connect() as other, other.transaction():
        other.execute("UPDATE shop.orders SET status = 'paid' WHERE id = 1")
        result = run(*ALL, "--timeout", "1", dsn=dsn, folder=file.parent, code=1)
        assert "after 1 s, backfill 1 of shop.orders is not delivered (waiting" in result.stderr
        assert ": its worker is at work; the backfill stays" in result.stderr
        conn.execute("SELECT tube_pause('orders', reason => 'a new index')")
        result = run("apply", "--wait", "--timeout", "1", dsn=dsn, folder=file.parent, code=1)
        assert "tube orders is paused: " in result.stderr
        assert "a new index (`pytube resume orders` ends the pause)" in result.stderr


def test_interrupted_it_leaves_the_backfill(file: Path, dsn: str, conn: Conn) -> None:
    with start(*ALL, config=file, PYTUBE_DSN=dsn) as process:
        assert any("backfill 1 of shop.orders: waiting" in line for line in iter(process.stdout.readline, ""))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        said = process.stderr.read()
    assert "workers continue the backfill; wait again with: pytube apply --wait" in said
    assert conn.execute("SELECT state, paused FROM tube_backfill").fetchall() == [("waiting", False)]


def test_there_is_nothing_to_wait_for_where_nothing_is_done(file: Path, dsn: str) -> None:
    result = run("apply", "--print", "--wait", dsn=dsn, folder=file.parent, code=2)
    assert "--print runs nothing" in result.stderr
