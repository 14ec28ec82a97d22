"""A worker with transforms, and the rows of a real table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import parse
from pytube.errors import ConfigError
from pytube.events import Event, Parked
from pytube.sinks.jsonl import replay
from pytube.transforms import DELETE, KEEP, SKIP, Change
from pytube.worker import Worker
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async

Connection = psycopg.Connection[Any]
CHANGES: list[Change] = []


def judge(change: Change) -> object:
    """Does what the row asks for."""
    CHANGES.append(change)
    asked = "keep" if change.document is None else change.document["what"]
    match asked:
        case "skip":
            return SKIP
        case "delete":
            return DELETE
        case "raise":
            raise ValueError("a fault in the user's code")
        case "change":
            return change.document | {"of": change.table}
        case _:
            return KEEP


def configuration(dsn: str, folder: Path, function: str) -> str:
    return f"""
        [postgres]
        dsn = "{dsn}"
        [worker]
        election = "lease"
        [tube.t]
        transforms = ["{__name__}:{function}"]
        [tube.t.sink]
        type = "jsonl"
        path = "{folder}/sink.jsonl"
        fsync = false
    """


def held(folder: Path) -> dict[Any, Any]:
    """The documents that the sink holds, by id."""
    lines = replay([folder / "sink.jsonl"]).values()
    return {line.id: line.doc for line in lines if not line.is_delete}


async def delivered(conn: Connection) -> None:
    def is_empty() -> bool:
        return conn.execute("SELECT count(*) FROM tube.t").fetchone() == (0,)

    await wait_until_async(is_empty, what="the tube is empty")


async def test_documents_are_changed_skipped_deleted_and_parked(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    CHANGES.clear()
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, what text)")
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0)")
    conn.execute("INSERT INTO public.goods SELECT i, 'keep' FROM generate_series(1, 6) i")
    events: list[Event] = []
    worker = Worker(parse(configuration(dsn, tmp_path, "judge"), environment={}), on_event=events.append)
    with capture_logs() as logs:
        await worker.start()
        try:
            await delivered(conn)
            assert held(tmp_path) == {i: {"id": i, "what": "keep"} for i in range(1, 7)}
            conn.execute("""
                UPDATE public.goods g SET what = v.what
                FROM (VALUES (1, 'change'), (2, 'skip'), (3, 'delete'), (4, 'raise')) v(id, what)
                WHERE g.id = v.id
            """)
            conn.execute("DELETE FROM public.goods WHERE id = 5")
            await delivered(conn)
            assert held(tmp_path) == {
                1: {"id": 1, "what": "change", "of": "public.goods"},
                2: {"id": 2, "what": "keep"},
                4: {"id": 4, "what": "keep"},
                6: {"id": 6, "what": "keep"},
            }
            (parked,) = [event for event in events if isinstance(event, Parked)]
            assert parked.id == 4
            assert (
                parked.reason == f"transform {__name__}:judge raised ValueError: a fault in the user's code"
            )
            # Mended and touched, it is delivered, and parked no more; so is one that is skipped.
            conn.execute("UPDATE public.goods SET what = 'skip' WHERE id = 4")
            await delivered(conn)
            assert conn.execute("SELECT count(*) FROM tube.tube_parked").fetchone() == (0,)
        finally:
            await worker.stop()
    raised = [line for line in logs if line["event"] == "user_code_raised"]
    assert [(line["call"], line["partition"]) for line in raised] == [("transform", 0)]
    (gone,) = [change for change in CHANGES if change.op == "delete"]
    assert (gone.key, gone.document, gone.tube, gone.table) == ((0, 5), None, "t", "public.goods")
    assert gone.seq > CHANGES[0].seq > 0
    assert gone.ts >= CHANGES[0].ts > 1e9
    assert gone.token > CHANGES[0].token


def test_a_worker_refuses_a_transform_that_is_not_there(dsn: str, tmp_path: Path) -> None:
    with capture_logs(), pytest.raises(ConfigError, match=r"key tube\.t\.transforms = .* has no nowhere"):
        Worker(parse(configuration(dsn, tmp_path, "nowhere"), environment={}))
