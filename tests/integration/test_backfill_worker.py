"""Backfills that a worker runs and delivers, and the sweep against writers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import load
from pytube.events import (
    BackfillFinished,
    BackfillStarted,
    BackfillTaken,
    Event,
    LeaderAcquired,
    Parked,
    SweepFinished,
)
from pytube.sinks.jsonl import replay
from pytube.worker import Worker
from tests.conftest import Connect
from tests.helpers import cli
from tests.helpers.capture import let_writers_notify, open_session
from tests.helpers.database import preparing
from tests.helpers.sweepable import install_sweepable
from tests.helpers.waiting import wait_until_async

Connection = psycopg.Connection[Any]
SHARDS = 4


def _items(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, n int)")
        conn.execute("INSERT INTO public.items SELECT g, 0 FROM generate_series(1, 1000) g")
        conn.execute("SELECT tube_ensure_exists('items', 2)")
        conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', shard => 0, shards => 4)")


prepare = preparing(_items, "items")


@pytest.fixture
def items(conn: Connection) -> Connection:
    """An attached table of 1000 rows, none of which is touched."""
    return conn


@pytest.fixture
def folder(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install_sweepable(tmp_path, monkeypatch)
    (tmp_path / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n'
        f'[tube.items.sink]\ntype = "sweepable"\npath = "{tmp_path}/sink.jsonl"\nfsync = false\n'
    )
    return tmp_path


def stale(folder: Path, *ids: int) -> None:
    """Documents that were at the sink before there was a tube."""
    with (folder / "sink.jsonl").open("a") as file:
        for key in ids:
            line = {"tube": "items", "shard": key % SHARDS, "id": key, "op": "upsert", "token": "1"}
            file.write(json.dumps(line | {"epoch": 0, "counter": 1, "seq": 0, "at": 1.0, "doc": {}}) + "\n")


def held(folder: Path) -> dict[int, Any]:
    """What the sink holds, by id."""
    lines = replay([folder / "sink.jsonl"]).values()
    return {line.id: line.doc for line in lines if not line.is_delete}


def keys(folder: Path) -> set[tuple[int, Any]]:
    """The shards and ids of what the sink holds."""
    lines = replay([folder / "sink.jsonl"]).values()
    return {(line.shard, line.id) for line in lines if not line.is_delete}


def rows(conn: Connection) -> dict[int, Any]:
    return dict(conn.execute("SELECT id, row_to_json(items) FROM public.items").fetchall())


@asynccontextmanager
async def working(folder: Path) -> AsyncIterator[list[Event]]:
    """A worker; the events that it tells."""
    events: list[Event] = []
    worker = Worker(load(folder / "pytube.toml"), on_event=events.append)
    await worker.start()
    try:
        yield events
    finally:
        await worker.stop()


async def finished(conn: Connection, *, backfills: int = 1) -> None:
    """Until so many are finished, and the tube is empty."""

    def done() -> bool:
        states = [state for (state,) in conn.execute("SELECT state FROM tube_backfill").fetchall()]
        return states == ["finished"] * backfills and conn.execute(
            "SELECT count(*) FROM tube.items"
        ).fetchone() == (0,)

    await wait_until_async(done, what="the backfill is finished")


def count(events: list[Event], kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in events)


async def test_from_start_to_sweep(items: Connection, folder: Path) -> None:
    items.execute("DELETE FROM tube.items")
    stale(folder, *range(990, 1100))
    async with working(folder) as events:
        command = ("backfill", "start", "--tube", "items", "--wait")
        await asyncio.to_thread(cli.run, *command, folder=folder)
        await finished(items)
    assert held(folder) == rows(items)
    assert [count(events, kind) for kind in (BackfillStarted, BackfillFinished, SweepFinished)] == [4, 4, 4]
    assert sum(event.keys for event in events if isinstance(event, SweepFinished)) == 99


async def test_keys_that_a_sweep_touches_wake_a_sleeping_worker(
    items: Connection, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_writers_notify(items)
    stale(folder, 5000, 5001, 5002, 5003)
    worker = Worker(load(folder / "pytube.toml"))
    await worker.start()
    try:
        terms = worker._hosts[0].database.terms
        await wait_until_async(
            lambda: len(terms) == 2 and all(term.sleeps and not term.woken for term in terms.values()),
            what="both partitions sleep",
        )
        for pause in ("_FIRST_PAUSE", "_DEEP_PAUSE"):  # from now on, nothing but a wake-up makes it poll
            monkeypatch.setattr(f"pytube.worker.pace.{pause}", 3600.0)
        for shard in range(SHARDS):
            items.execute(
                "SELECT items_touch(%s, '{}', 'B', %s)",
                (shard, json.dumps({"type": "sweep", "start_seq": "1"})),
            )
        await wait_until_async(lambda: held(folder) == {}, what="the stale documents are deleted")
    finally:
        await worker.stop()


async def test_a_log_is_not_swept(items: Connection, folder: Path) -> None:
    """Its reader finds what the source no longer has: what is older than the backfill."""
    config = folder / "pytube.toml"
    config.write_text(config.read_text().replace('"sweepable"', '"jsonl"'))
    stale(folder, *range(990, 1100))
    async with working(folder) as events:
        await asyncio.to_thread(cli.run, "backfill", "start", "--tube", "items", folder=folder)
        await finished(items)
    swept = [event for event in events if isinstance(event, SweepFinished)]
    assert {(event.keys, event.skipped) for event in swept} == {(0, "the sink can't be scanned")}
    (start_seq,) = items.execute("SELECT start_seq FROM tube_backfill_list()").fetchone() or (0,)
    lines = replay([folder / "sink.jsonl"]).values()
    assert {line.id for line in lines if line.seq < start_seq} == set(range(1001, 1100))
    assert {line.id: line.doc for line in lines if line.seq >= start_seq} == rows(items)


async def test_a_scheduled_backfill_is_run(items: Connection, folder: Path) -> None:
    items.execute("DELETE FROM tube.items")
    stale(folder, 5000, 5001)
    payload = {"type": "backfill_schedule", "tbl": "public.items", "order_col": "n"}
    items.execute("SELECT items_touch(2, '{}', 'B', %s)", (json.dumps(payload),))
    async with working(folder) as events:
        await wait_until_async(lambda: count(events, BackfillTaken) == 1, what="the schedule is taken")
        await finished(items)
    assert held(folder) == rows(items)
    assert items.execute("SELECT by_worker, order_col FROM tube_backfill").fetchall() == [(True, "n")]


STRANGE = [
    '{"type": "backfill_end", "start_seq": "1", "backfill": "abc"}',
    '{"type": "backfill_end", "start_seq": "1000000000000000000000"}',
    '{"type": "backfill_schedule", "tbl": "hidden.items", "order_col": "n"}',
    '{"type": "backfill_schedule", "tbl": "public.items", "order_col": "nope"}',
    '{"type": "strange", "number": 1e400}',
    '{"type": "strange", "number": %s}' % ("7" * 5000),
    '{"type": "strange", "list": %s}' % ("[" * 2000 + "]" * 2000),
    '"text"',
]


async def test_control_pods_that_nobody_can_act_upon_are_parked(items: Connection, folder: Path) -> None:
    """Whoever may touch can put them there; they end no term, and hold nobody up."""
    items.execute("CREATE SCHEMA hidden; CREATE TABLE hidden.items (n int)")
    for payload in STRANGE:
        items.execute("SELECT items_touch(2, '{}', 'B', %s)", (payload,))
    items.execute("UPDATE public.items SET n = 7 WHERE id = 5")
    async with working(folder) as events:
        await wait_until_async(
            lambda: items.execute("SELECT count(*) FROM tube.items").fetchone() == (0,), what="all is done"
        )
    assert held(folder) == {5: {"id": 5, "n": 7}}
    assert count(events, LeaderAcquired) == 2, "of two partitions, each has one term"
    assert count(events, Parked) == len(STRANGE)
    assert items.execute("SELECT count(payload) FROM tube_parked").fetchall() == [(len(STRANGE),)]


async def test_a_broken_one_is_told_and_holds_no_other_up(items: Connection, folder: Path) -> None:
    items.execute("CREATE TABLE public.others (id bigint PRIMARY KEY)")
    items.execute("INSERT INTO public.others SELECT g FROM generate_series(1, 300) g")
    items.execute("SELECT tube_table_ensure_attached('items', 'public.others', shard => 9)")
    items.execute("DELETE FROM tube.items")
    items.execute("SELECT tube_backfill_create('items', 'public.items', by_worker => true)")
    items.execute("SELECT tube_backfill_lock(1), tube_backfill_collect(1)")
    items.execute("SELECT tube_backfill_create('items', 'public.others', by_worker => true)")
    items.execute("ALTER TABLE tube.tube_backfill_ids_1 RENAME TO gone")
    items.execute("SELECT tube_backfill_unlock(1)")
    state = "SELECT state, note FROM tube_backfill ORDER BY backfill_id"

    def both() -> list[tuple[str, str | None]]:
        return items.execute(state).fetchall()

    async with working(folder):
        await wait_until_async(
            lambda: both()[1] == ("finished", None) and both()[0][1],
            what=lambda: f"the second is done: {both()}",
        )
        (broken, note), _ = both()
        assert broken == "inserting"
        assert note is not None
        assert note.startswith("can't continue: ")
        assert "tube_backfill_ids_1" in note
        items.execute("ALTER TABLE tube.gone RENAME TO tube_backfill_ids_1")
        await finished(items, backfills=2)


async def test_left_to_a_worker(items: Connection, folder: Path) -> None:
    items.execute("DELETE FROM tube.items")
    command = ("backfill", "start", "--tube", "items", "--in-worker")
    await asyncio.to_thread(cli.run, *command, folder=folder)
    assert items.execute("SELECT state FROM tube_backfill").fetchall() == [("waiting",)]
    async with working(folder):
        await finished(items)
    assert held(folder) == rows(items)


async def test_a_paused_one_makes_room_for_others(items: Connection, folder: Path) -> None:
    items.execute("CREATE TABLE public.others (id bigint PRIMARY KEY)")
    items.execute("INSERT INTO public.others VALUES (1), (2)")
    items.execute("SELECT tube_table_ensure_attached('items', 'public.others', 9)")
    with (folder / "pytube.toml").open("a") as file:
        file.write("[tube.items.backfill]\nrate = 250\n")

    def state(table: str) -> str:
        where = "table_name = %s ORDER BY backfill_id DESC LIMIT 1"
        row = items.execute(f"SELECT state FROM tube_backfill WHERE {where}", (f"public.{table}",)).fetchone()
        return str(row and row[0])

    async def command(*words: str) -> None:
        await asyncio.to_thread(cli.run, "backfill", *words, "--tube", "items", folder=folder)

    await command("start", "--in-worker", "--table", "public.items")
    async with working(folder):
        await wait_until_async(lambda: state("items") == "inserting", what="the first one is begun")
        await command("pause")
        await command("start", "--in-worker", "--table", "public.others")
        await wait_until_async(lambda: state("others") == "finished", what="the second one is done")
        assert state("items") == "inserting"
        await command("resume", "--wait")
        assert state("items") == "finished"
        await finished(items, backfills=2)


async def test_a_worker_drops_the_ids_that_somebody_read(
    items: Connection, connect: Connect, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytube.worker.upkeep._TIDY_INTERVAL", 0.1)
    number = items.execute("SELECT tube_backfill_create('items', 'public.items')").fetchone()
    items.execute("SELECT tube_backfill_lock(%s)", number)
    items.execute("SELECT tube_backfill_collect(%s)", number)
    reader = connect(autocommit=False)
    reader.execute("SELECT FROM tube_backfill_ids_1")
    items.execute("SELECT tube_backfill_chunk(%s, 1000)", number)
    async with working(folder):
        await finished(items)
        ids = "SELECT count(*) FROM pg_class WHERE relname = 'tube_backfill_ids_1'"
        assert items.execute(ids).fetchone() == (1,)
        reader.rollback()
        await wait_until_async(lambda: items.execute(ids).fetchone() == (0,), what="they are dropped")


async def test_two_schedules_of_one_table_come_one_after_the_other(items: Connection, folder: Path) -> None:
    payload = json.dumps({"type": "backfill_schedule", "tbl": "public.items", "order_col": "n"})
    for shard in (0, 1):
        items.execute("SELECT items_touch(%s, '{}', 'B', %s)", (shard, payload))
    async with working(folder):
        await finished(items, backfills=2)
    first, second = items.execute(
        "SELECT created_at, ended_at FROM tube_backfill ORDER BY backfill_id"
    ).fetchall()
    assert first[1] <= second[0]


async def test_a_partitioned_table(conn: Connection, folder: Path) -> None:
    """All of its partitions, also one within another; the documents of one that went away are swept."""
    conn.execute("CREATE TABLE public.items (id bigint, n int, PRIMARY KEY (id, n)) PARTITION BY LIST (n)")
    conn.execute("CREATE TABLE public.items_0 PARTITION OF items FOR VALUES IN (0)")
    conn.execute("CREATE TABLE public.items_1 PARTITION OF items FOR VALUES IN (1) PARTITION BY HASH (id)")
    conn.execute(
        "CREATE TABLE public.items_1_all PARTITION OF items_1 FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
    )
    conn.execute("CREATE TABLE public.items_more PARTITION OF items DEFAULT")
    conn.execute("INSERT INTO items SELECT g, g % 4 FROM generate_series(1, 2000) AS g")
    stale(folder, *range(1, 2001))
    conn.execute("DROP TABLE public.items_0")
    conn.execute("SELECT tube_ensure_exists('items', 2)")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', shard => 0, shards => 4)")
    async with working(folder) as events:
        await asyncio.to_thread(cli.run, "backfill", "start", "--tube", "items", "--wait", folder=folder)
        await finished(conn)
    assert held(folder) == rows(conn)
    assert len(held(folder)) == 1500
    assert sum(event.keys for event in events if isinstance(event, SweepFinished)) == 500


async def test_after_a_change_of_the_shards_each_document_has_its_new_key(
    items: Connection, folder: Path
) -> None:
    """Those of the old keys go: nobody would ever update them."""
    items.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0, 1)")
    async with working(folder):
        for number, shards in enumerate((1, 4), start=1):
            items.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0, %s)", (shards,))
            await asyncio.to_thread(cli.run, "backfill", "start", "--tube", "items", folder=folder)
            await finished(items, backfills=number)
            assert keys(folder) == {(key % shards, key) for key in rows(items)}
        items.execute("UPDATE public.items SET n = 77 WHERE id = 5")
        items.execute("DELETE FROM public.items WHERE id = 6")
        await finished(items, backfills=2)
    assert held(folder) == rows(items)
    assert keys(folder) == {(key % 4, key) for key in rows(items)}


async def test_a_sweep_against_a_writer(items: Connection, connect: Connect, folder: Path) -> None:
    """Rows come back, go and change while the sweep finds their old documents."""
    stale(folder, *range(1001, 3001))
    writer = connect()
    go_on = True

    def write() -> None:
        number = 0
        while go_on:
            key = 1001 + number * 7 % 2000
            writer.execute(
                "INSERT INTO public.items VALUES (%s, %s) ON CONFLICT (id) DO NOTHING", (key, number)
            )
            writer.execute("DELETE FROM public.items WHERE id = %s", (1001 + number * 11 % 2000,))
            writer.execute("UPDATE public.items SET n = n + 1 WHERE id = %s", (1001 + number * 13 % 2000,))
            number += 1

    writing = asyncio.create_task(asyncio.to_thread(write))
    try:
        async with working(folder) as events:
            await asyncio.to_thread(cli.run, "backfill", "start", "--tube", "items", folder=folder)
            await wait_until_async(lambda: count(events, SweepFinished) == 4, what="all is swept")
            go_on = False
            await writing
            await finished(items)
    finally:
        go_on = False
        await asyncio.wait([writing])
    assert sum(event.keys for event in events if isinstance(event, SweepFinished)) > 100
    assert held(folder) == rows(items)
