"""A worker in deep sleep, and a writer that commits long after others have passed it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pytube.worker import Worker, database, pace
from tests.integration.test_worker_faults import Conn, config_file, make_tube, running, taken

__all__ = ["config_file"]


def has_passed(worker: Worker, seq: int) -> bool:
    """Whether looks may begin above `seq`, though its transaction is open."""
    settled = worker._hosts[0].database.settled
    return settled is not None and settled.seq < seq <= settled.provisional


async def test_a_late_commit_wakes_a_worker_that_has_passed_it(
    dsn: str, conn: Conn, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its NOTIFY may come before the worker knows that the transaction is over: the worker is woken again."""
    monkeypatch.setattr(pace, "_DEEP_PAUSE", 3600.0)
    monkeypatch.setattr(database, "_SETTLE_AT_LEAST", 0.3)
    make_tube(conn, 1)
    conn.execute(f'ALTER DATABASE "{conn.info.dbname}" SET pytube.wake = on')
    with psycopg.connect(dsn, autocommit=True) as others, psycopg.connect(dsn) as writer:
        async with running(config_file) as run:
            await run.until("the first row is taken", lambda: taken == [1])
            await run.until(
                "the worker is deep asleep", lambda: not run.worker._hosts[0].database._is_awake()
            )
            writer.execute("INSERT INTO public.items VALUES (100)")
            for key in range(2, 6):
                others.execute("INSERT INTO public.items VALUES (%s)", (key,))
                await run.until(f"row {key} is taken", lambda: key in taken)  # noqa: B023 # called at once
            row = others.execute("SELECT last_value FROM tube.tube_seq").fetchone()
            assert row is not None
            await run.until("others have passed the writer", lambda: has_passed(run.worker, row[0]))
            others.execute("INSERT INTO public.items VALUES (6)")
            await run.until("row 6 is taken, and the floor is raised", lambda: 6 in taken)
            writer.commit()
            await run.until("the late row is taken", lambda: 100 in taken)
