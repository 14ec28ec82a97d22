"""Tubes whose keys are uuids and texts, from the table to the sink: by worker, backfill and sweep."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import pytest

from pytube.config import load
from pytube.events import Event, Parked, SweepFinished
from pytube.faults import Point
from pytube.model import OK, Batch, Reject, Result, shard_of
from pytube.sinks.jsonl import replay
from pytube.worker import Worker
from tests.conftest import Servers
from tests.helpers import cli
from tests.helpers.armed import VARIABLE
from tests.helpers.capture import Conn, open_session
from tests.helpers.sweepable import install_sweepable
from tests.helpers.waiting import wait_until, wait_until_async

SHARDS = 4
ROWS = 1000
ODD = [
    *(
        "",
        " ",
        "NULL",
        "null",
        "123",
        "0123",
        "-7",
        "a,b",
        "{a,b}",
        'say "x"',
        "it's",
        "\\",
        '\\"',
        "\\x41",
        "%s",
    ),
    *("line\nbreak\r\n\ttab", "\x01\x7f", "Straße", "STRASSE", "ä", "a\u0308", "🙂", "\u2028", "ö" * 1000),
    "e6ae6d0f-5f1c-4f0e-9d3a-111111111111",
]
"""Texts of which each is another key."""


@dataclass(frozen=True)
class Kind:
    """A table of keys of one type, on one server."""

    version: Any
    key_type: str
    column: LiteralString
    """How the column is declared."""
    key: LiteralString
    """The key of the row number `g`, in SQL."""
    before: LiteralString = "SELECT"
    """What is to be done before the table is made."""


_TEXT: LiteralString = (
    "CASE g % 4 WHEN 0 THEN 'k' || g WHEN 1 THEN upper('k' || g) WHEN 2 THEN 'ü' || g ELSE 'z ' || g END"
)
KINDS = {
    "uuid": Kind(18, "uuid", "uuid", "md5(g::text)::uuid"),
    "text": Kind(18, "text", "text", _TEXT),
    "varchar": Kind(16, "text", "varchar(1000)", _TEXT),
    # Of our servers only the system's knows ICU.
    "collated": Kind("system", "text", 'text COLLATE "sv-x-icu"', _TEXT),
    "caseless": Kind(
        "system",
        "text",
        "text COLLATE public.caseless",
        "'k' || g",
        "CREATE COLLATION public.caseless"
        " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    ),
}

_BOTH = pytest.mark.parametrize("kind", [KINDS["uuid"], KINDS["text"]], ids=["uuid", "text"])


LONG = ("varchar",)
"""Differs from a text by its name alone, and needs a server that no other test of these starts."""


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.soak] if name in LONG else []) for name in KINDS]
)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def dsn(kind: Kind, servers: Servers) -> Iterator[str]:
    with servers.get(kind.version).database(installed=True) as dsn:
        yield dsn


@pytest.fixture
def docs(dsn: str, kind: Kind) -> Iterator[Conn]:
    """An attached table of 1000 rows, none of which is touched."""
    with open_session(dsn, client_encoding="utf8") as conn:
        conn.execute(kind.before)
        conn.execute(f"CREATE TABLE public.docs (id {kind.column} PRIMARY KEY, n int, off boolean)")
        fill(conn, kind, 1, ROWS)
        conn.execute(
            "SELECT tube_ensure_exists('docs', 2, 'off IS NOT TRUE', key_type => %s::regtype)",
            (kind.key_type,),
        )
        conn.execute("SELECT tube_table_ensure_attached('docs', 'public.docs', shard => 0, shards => 4)")
        conn.execute("DELETE FROM tube.docs")
        yield conn


def fill(conn: Conn, kind: Kind, first: int, last: int) -> None:
    conn.execute(f"INSERT INTO public.docs SELECT {kind.key}, g FROM generate_series({first}, {last}) AS g")


@pytest.fixture
def folder(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install_sweepable(tmp_path, monkeypatch)
    (tmp_path / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n'
        "[worker]\nsession_timeout = 2.0\nreceive_deadline = 0.5\n"
        "[tube.docs.backfill]\nchunk = 1\n[tube.docs.sink]\nrequest_timeout = 1.0\n"
        f'type = "sweepable"\npath = "{tmp_path}/sink.jsonl"\nfsync = false\n'
    )
    return tmp_path


def held(folder: Path) -> dict[tuple[int, Any], Any]:
    """What the sink holds, by shard and id."""
    lines = replay([folder / "sink.jsonl"]).values()
    return {(line.shard, line.id): line.doc for line in lines if not line.is_delete}


def rows(conn: Conn) -> dict[tuple[int, Any], Any]:
    """What it is to hold."""
    found = conn.execute(
        "SELECT id::text, row_to_json(d) FROM public.docs AS d WHERE off IS NOT TRUE"
    ).fetchall()
    return {(shard_of(key, 0, SHARDS), key): row for key, row in found}


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


def is_empty(conn: Conn) -> bool:
    return conn.execute("SELECT count(*) FROM tube.docs").fetchone() == (0,)


async def drained(conn: Conn) -> None:
    await wait_until_async(lambda: is_empty(conn), what="the tube is empty")


def strange(folder: Path, *ids: str) -> None:
    """Documents that were at the sink before there was a tube."""
    with (folder / "sink.jsonl").open("a") as file:
        for key in ids:
            line = {
                "tube": "docs",
                "shard": shard_of(key, 0, SHARDS),
                "id": key,
                "op": "upsert",
                "token": "1",
            }
            file.write(json.dumps(line | {"epoch": 0, "counter": 1, "seq": 0, "at": 1.0, "doc": {}}) + "\n")


async def test_every_change_arrives(docs: Conn, folder: Path, kind: Kind) -> None:
    async with working(folder):
        fill(docs, kind, ROWS + 1, ROWS + 600)
        await drained(docs)
        assert len(held(folder)) == 600
        docs.execute("UPDATE public.docs SET n = n + 1")
        await drained(docs)
        assert held(folder) == rows(docs)
        docs.execute("UPDATE public.docs SET off = true WHERE n % 10 = 1")
        docs.execute("DELETE FROM public.docs WHERE n % 10 = 2")
        docs.execute(
            f"UPDATE public.docs AS d SET id = g.id FROM (SELECT g, {kind.key} AS id FROM"
            " generate_series(5001, 6600) AS g) AS g WHERE d.n % 10 = 3 AND g.g = d.n + 5000"
        )
        one = docs.execute("SELECT id::text FROM public.docs WHERE n % 10 = 4 LIMIT 1").fetchone()
        assert one is not None
        docs.execute(f"DELETE FROM public.docs WHERE id = %s::{kind.key_type}", one)
        await drained(docs)
        assert held(folder) == rows(docs)
        docs.execute("TRUNCATE public.docs")
        await drained(docs)
    assert held(folder) == {}


@pytest.mark.parametrize("kind", [KINDS["text"], KINDS["collated"]], ids=["text", "collated"])
async def test_odd_texts(docs: Conn, folder: Path) -> None:
    async with working(folder):
        docs.cursor().executemany("INSERT INTO public.docs VALUES (%s, 0)", [(key,) for key in ODD])
        docs.execute("SELECT public.docs_touch(%s::text[])", (ODD,))
        await drained(docs)
        assert {key for _, key in held(folder)} == set(ODD)
        docs.execute("DELETE FROM public.docs WHERE id = ANY (%s)", (ODD[::2],))
        await drained(docs)
    assert {key for _, key in held(folder)} == set(ODD[1::2])
    assert held(folder).items() <= rows(docs).items()


@pytest.mark.parametrize("kind", [KINDS["caseless"]])
async def test_texts_that_are_equal_to_their_collation_are_two_documents(docs: Conn, folder: Path) -> None:
    async with working(folder):
        docs.execute("INSERT INTO public.docs VALUES ('some', 0)")
        await drained(docs)
        docs.execute("UPDATE public.docs SET id = 'SOME' WHERE id = 'Some'")
        await drained(docs)
    assert {key for _, key in held(folder)} == {"SOME"}


def killed(folder: Path, point: Point) -> None:
    """A worker works until it dies of a SIGKILL when it comes to `point` for the second time."""
    fault = {VARIABLE: f"{point}:kill:2"}
    with cli.start("worker", "--tube", "docs", config=folder / "pytube.toml", **fault) as process:
        wait_until(lambda: process.poll() is not None, what=f"the worker is killed at {point}")
        assert process.returncode == -9


def is_finished(conn: Conn) -> bool:
    return conn.execute("SELECT state FROM tube_backfill").fetchall() == [("finished",)]


@_BOTH
async def test_killed_and_resumed(docs: Conn, folder: Path) -> None:
    docs.execute("SELECT public.docs_touch(array_agg(id)) FROM public.docs")
    killed(folder, Point.AFTER_SEND)
    assert not is_empty(docs)
    async with working(folder):
        await drained(docs)
    assert held(folder) == rows(docs)


async def test_backfill_and_sweep(docs: Conn, folder: Path, kind: Kind) -> None:
    """Whoever works on it is killed; what was at the sink, and is in no table, is swept away."""
    ghosts = [f"00000000-0000-4000-8000-{n:012}" for n in range(50)] if kind.key_type == "uuid" else ODD
    strange(folder, *ghosts)
    start = ("backfill", "start", "--tube", "docs", "--in-worker")
    await asyncio.to_thread(cli.run, *start, folder=folder)
    killed(folder, Point.AFTER_CHUNK)
    assert docs.execute("SELECT state, rows_done < 1000 FROM tube_backfill").fetchall() == [
        ("inserting", True)
    ]
    async with working(folder) as events:
        await wait_until_async(lambda: is_finished(docs) and is_empty(docs), what="the backfill is finished")
    assert held(folder) == rows(docs)
    assert sum(event.keys for event in events if isinstance(event, SweepFinished)) == len(ghosts)
    assert docs.execute("SELECT state, rows_done FROM tube_backfill").fetchall() == [("finished", ROWS)]


@_BOTH
async def test_other_shards_and_a_backfill(docs: Conn, folder: Path) -> None:
    """Each document gets its new key, and goes from its old one."""
    async with working(folder):
        docs.execute("SELECT public.docs_touch(array_agg(id)) FROM public.docs")
        await drained(docs)
        assert held(folder) == rows(docs)
        docs.execute("SELECT tube_table_ensure_attached('docs', 'public.docs', 0, 7)")
        await asyncio.to_thread(cli.run, "backfill", "start", "--tube", "docs", folder=folder)
        await wait_until_async(lambda: is_finished(docs) and is_empty(docs), what="the backfill is finished")
    assert held(folder) == {(shard_of(key, 0, 7), key): row for (_, key), row in rows(docs).items()}


@_BOTH
async def test_what_can_be_no_key_of_the_tube_is_left_alone(docs: Conn, folder: Path, kind: Kind) -> None:
    """An earlier tube of that name had integers, and somebody wrote what is no uuid."""
    strange(folder, *(["not a valid uuid"] if kind.key_type == "uuid" else []))
    with (folder / "sink.jsonl").open("a") as file:
        line = {"tube": "docs", "shard": 3, "id": 7, "op": "upsert", "token": "1", "epoch": 0, "counter": 1}
        file.write(json.dumps(line | {"seq": 0, "at": 1.0, "doc": {}}) + "\n")
    left = set(held(folder))
    async with working(folder) as events:
        await asyncio.to_thread(cli.run, "backfill", "start", "--tube", "docs", "--wait", folder=folder)
        await drained(docs)
    assert set(held(folder)) == left | set(rows(docs))
    assert sum(event.keys for event in events if isinstance(event, SweepFinished)) == 0


refused: set[tuple[int, int | str]] = set()


def send(batch: Batch) -> Sequence[Result]:
    """Takes everything but `refused`."""
    return [Reject("not this one") if document.key in refused else OK for document in batch]


@_BOTH
async def test_parked_and_delivered_after_all(docs: Conn, folder: Path, kind: Kind, dsn: str) -> None:
    text = (folder / "pytube.toml").read_text().partition('type = "sweepable"')[0]
    (folder / "pytube.toml").write_text(f'{text}type = "callable"\ntarget = "{__name__}:send"\n')
    key = "00000000-0000-4000-8000-000000000001" if kind.key_type == "uuid" else 'odd, "{it}" \\ is'
    refused.clear()
    refused.add((shard_of(key, 0, SHARDS), key))
    async with working(folder) as events:
        docs.execute(f"INSERT INTO public.docs VALUES (%s::{kind.key_type}, 0)", (key,))
        await drained(docs)
    assert [event.id for event in events if isinstance(event, Parked)] == [key]
    assert [row["id"] for row in cli.run_json("park", "list", dsn=dsn)] == [key]
    refused.clear()
    async with working(folder):  # it learns from the database which keys are parked
        docs.execute(f"SELECT public.docs_touch(%s::{kind.key_type}[])", ([key],))
        await drained(docs)
        await wait_until_async(lambda: not cli.run_json("park", "list", dsn=dsn), what="nothing is parked")


@_BOTH
async def test_a_tube_that_is_made_anew_with_other_keys(docs: Conn, folder: Path, kind: Kind) -> None:
    """A worker that runs meanwhile begins new terms, and reads the new table."""
    async with working(folder):
        fill(docs, kind, ROWS + 1, ROWS + 10)
        await drained(docs)
        assert len(held(folder)) == 10
        docs.execute("SELECT tube_ensure_absent('docs')")
        docs.execute("CREATE TABLE public.numbers (id int PRIMARY KEY)")
        with docs.transaction():
            docs.execute("SELECT tube_ensure_exists('docs', 2)")
            docs.execute("SELECT tube_table_ensure_attached('docs', 'public.numbers', 0, 4)")
        docs.execute("INSERT INTO numbers SELECT generate_series(1, 10)")
        await drained(docs)
    numbers = {key: doc for (_, key), doc in held(folder).items() if isinstance(key, int)}
    assert numbers == {n: {"id": n} for n in range(1, 11)}
