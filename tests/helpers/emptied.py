"""A worker whose sink loses its documents: what commands say of it, and whether the remedy works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg

from pytube.config import load
from pytube.events import Event, SinkEmptied, SinkRefilled
from pytube.verify.run import Sample, verify
from pytube.worker import Worker
from tests.helpers import cli
from tests.helpers.waiting import wait_until_async

SAID = "items: the sink has lost its documents, or was replaced; found"
REMEDY = "pytube backfill start items"


def make_source(conn: psycopg.Connection[Any], rows: int = 20) -> None:
    """The table `items`, attached to the tube `items`, with documents to come."""
    conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, n int)")
    conn.execute("SELECT tube_ensure_exists('items', 2)")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', shard => 0, shards => 4)")
    conn.execute("INSERT INTO public.items SELECT g, g FROM generate_series(1, %s) g", [rows])


def rows_of(conn: psycopg.Connection[Any]) -> dict[Any, Any]:
    """What the sink should hold."""
    return dict(conn.execute("SELECT id, row_to_json(items) FROM public.items").fetchall())


class Watched:
    """A running worker, and what the commands say about its sink."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self._config = load(folder / "pytube.toml")

    def told(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    async def run(self, *arguments: str, code: int = 0) -> str:
        """What a command printed, as a process of its own: the log of the worker is not among it."""
        process = cli.start(*arguments, config=self.folder / "pytube.toml")
        printed = "".join(await asyncio.to_thread(process.communicate))
        assert process.returncode == code, printed
        return printed

    async def verify(self, sample: str | None = None) -> tuple[bool, str]:
        """As the command does; whether all was equal, and what it told."""
        told: list[str] = []
        chosen = None if sample is None else Sample.parse(sample)
        report = await verify(self._config, "items", sample=chosen, told=told.append)
        return report.is_equal, "\n".join(told)

    async def until_marked(self) -> None:
        """Until the worker has seen, and remembers, what the sink is known by."""
        await wait_until_async(lambda: self._query("SELECT seen FROM tube.tube_sink") == [(True,)])

    async def until_no_backfill(self) -> None:
        """Until the last one is finished: while it delivers, no other one begins."""
        going = "SELECT FROM tube.tube_backfill WHERE state IN ('waiting', 'inserting', 'delivering')"
        await wait_until_async(lambda: not self._query(going), what="no backfill is under way")

    async def until_emptied(self) -> None:
        """Until `status` tells, and then check that all others do."""
        await wait_until_async(lambda: self.told(SinkEmptied) == 1, what="the worker finds its sink emptied")
        said = await self.run("status")
        assert SAID in said
        assert REMEDY in said
        doctor = await self.run("doctor", code=1)
        assert "documents of items" in doctor
        assert "the sink has lost its documents" in doctor
        assert REMEDY in doctor
        assert 'pytube_fleet_sink_emptied{tube="items"} 1.0' in await self.run("status", "--prometheus")

    async def until_well(self) -> None:
        """Until the finding has gone, everywhere, and the outage that it may have been, with a renewal."""
        await wait_until_async(
            lambda: self._query("SELECT FROM tube.tube_sink WHERE emptied_at > '-infinity'") == []
        )
        await wait_until_async(lambda: self._query("SELECT FROM tube.tube_trouble") == [], what="no outage")
        assert "lost its documents" not in await self.run("status")
        assert "lost its documents" not in await self.run("doctor")
        assert 'pytube_fleet_sink_emptied{tube="items"} 0.0' in await self.run("status", "--prometheus")

    def _query(self, statement: Any) -> list[tuple[Any, ...]]:
        dsn = self._config.postgres.only_dsn.get_secret_value()
        with psycopg.connect(dsn, autocommit=True) as connection:
            return connection.execute(statement).fetchall()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Watched]:
    """A worker for `pytube.toml` in the folder."""
    watched = Watched(folder)
    worker = Worker(load(folder / "pytube.toml"), on_event=watched.events.append)
    await worker.start()
    try:
        yield watched
    finally:
        await worker.stop()


async def check_remedy(watched: Watched, held: Callable[[], Any], wanted: Callable[[], Any]) -> None:
    """A backfill fills the sink again, and ends the finding."""
    await watched.until_no_backfill()
    await watched.run("backfill", "start", "--tube", "items", "--wait")
    await watched.until_well()
    await wait_until_async(lambda: held() == wanted(), what="the copy is equal again")
    assert watched.told(SinkRefilled) == 1
    is_equal, _ = await watched.verify()
    assert is_equal
