"""Hundreds of poisoned documents that nothing healthy is sent beside, and a sink that refuses everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytube.events import SinkDown
from pytube.model import OK, Batch, Result
from tests.helpers.capture import open_session
from tests.helpers.cli import run_json
from tests.helpers.database import preparing
from tests.helpers.terms import Conn, scalar
from tests.helpers.waiting import wait_until_async
from tests.integration.test_operators import beside, is_empty
from tests.integration.test_worker_faults import running

HUNDREDS = 300
MOST = 100
"""Documents that are parked in a row before the sink is suspected."""


@dataclass
class Refusing:
    """The sink of these tests."""

    refuses: Callable[[bytes], bool] = lambda _: False
    sends: int = 0


SINK = Refusing()


def send(batch: Batch) -> Sequence[Result]:
    SINK.sends += 1
    if any(one.body is not None and SINK.refuses(one.body) for one in batch):
        raise ValueError("it can't be taken")
    return [OK] * len(batch)


def is_poison(body: bytes) -> bool:
    return b'"n":-1' in body


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, n int)")
        conn.execute("SELECT tube_ensure_exists('t')")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0)")


prepare = preparing(prepared, "config")


@pytest.fixture
def config(dsn: str, tmp_path: Path) -> Path:
    SINK.__init__()  # type: ignore[misc] # as new for each test
    path = tmp_path / "pytube.toml"
    path.write_text(f"""
        [postgres]
        dsn = "{dsn}"
        [tube.t.sink]
        type = "callable"
        target = "{__name__}:send"
    """)
    return path


async def deliver(conn: Conn, count: int) -> None:
    """Healthy traffic."""
    conn.execute("INSERT INTO goods SELECT g, 1 FROM generate_series(1, %s) AS g", (count,))
    await wait_until_async(lambda: is_empty(conn), what="it is delivered")


def parked(conn: Conn) -> int:
    return int(scalar(conn, "SELECT count(*) FROM tube_parked"))


async def status(dsn: str) -> dict[str, Any]:
    (row,) = await beside(run_json, "status", dsn=dsn)
    return dict(row)


async def test_hundreds_of_poisoned_documents_alone_are_parked(conn: Conn, config: Path, dsn: str) -> None:
    """It takes as long as their attempts, and for each hundred one request more."""
    async with running(config) as run_:
        await deliver(conn, 10)
        SINK.refuses = is_poison
        conn.execute("INSERT INTO goods SELECT g, -1 FROM generate_series(1001, 1000 + %s) AS g", (HUNDREDS,))
        await wait_until_async(lambda: is_empty(conn), what="all of them are parked")
        assert parked(conn) == HUNDREDS
        assert run_.told(SinkDown) == 0
        row = await status(dsn)
        assert (row["state"], row["parked"], row["sink_down"]) == ("leads", HUNDREDS, None)
        assert "it can't be taken" in row["parked_error"]


async def test_a_sink_that_refuses_everything_has_a_hundred_parked(
    conn: Conn, config: Path, dsn: str
) -> None:
    async with running(config) as run_:
        await deliver(conn, 10)
        SINK.refuses = lambda _: True
        conn.execute("INSERT INTO goods SELECT g, 1 FROM generate_series(1001, 1000 + %s) AS g", (HUNDREDS,))
        await wait_until_async(lambda: run_.told(SinkDown), what="the sink is held to be down")
        sends = SINK.sends
        await wait_until_async(lambda: SINK.sends > sends + 4, what="it is probed")
        await wait_until_async(
            lambda: scalar(conn, "SELECT sink_down FROM tube_leaders('t')"), what="the worker says so"
        )
        row = await status(dsn)
        assert (row["state"], row["parked"]) == ("sink down", MOST)
        assert "100 documents in a row failed" in row["sink_down"]
        SINK.refuses = lambda _: False
        await wait_until_async(lambda: is_empty(conn), what="the others are delivered")
    assert parked(conn) == MOST
