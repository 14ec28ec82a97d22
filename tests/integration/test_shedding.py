"""Two workers, one of which has a slow sink: it leaves the tube to the other one, and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.config import load
from pytube.events import Event, LeaderFenced, LoadResumed, LoadShed
from pytube.model import Batch, Id
from pytube.worker import Worker
from tests.helpers.election import fresh_tube
from tests.helpers.waiting import wait_until_async

Conn = psycopg.Connection[tuple[object, ...]]
taken: set[Id] = set()
is_slow = False


def take(batch: Batch) -> None:
    """The sink as the worker reaches it that is well."""
    taken.update(document.id for document in batch)


async def take_slowly(batch: Batch) -> None:
    """The same sink over a bad way to it: two documents a second for each partition."""
    if is_slow:
        await asyncio.sleep(0.5)
    take(batch)


PAUSES = {"lease": 1.0, "neli": 5.0, "shared": 5.0}
"""Seconds: the mock cluster takes 2.5 s to give the partitions of a member that left to another one."""
CONFIG = """
    [postgres]
    dsn = "{dsn}"
    [worker]
    installation = "{tube}"
    client_id = "{name}"
    receive_deadline = 1.0
    session_timeout = 3.5
    shed_after = 0.9
    shed_pause = {pause}
    election = "{election}"
    [tube.{tube}.sink]
    type = "callable"
    target = "{module}:{target}"
    request_timeout = 2.0
    batch_documents = 1
    sends = 1
"""


class Fleet:
    """One worker whose sink is slow when a test says so, and one that is well."""

    def __init__(self, conn: Conn, tube: str, ill: Worker, well: Worker, events: list[Event]) -> None:
        self.conn = conn
        self.tube = tube
        self.ill = ill
        self.well = well
        self.events = events
        """Of the first one."""
        self.rows = 0

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def leads(self, ill: int, well: int) -> Callable[[], bool]:
        return lambda: (len(self.ill.leads(self.tube)), len(self.well.leads(self.tube))) == (ill, well)

    async def write(self) -> None:
        """Five rows of each partition every second, until cancelled.

        More than the slow one takes, and so little that the other one keeps up on a busy machine.
        """
        while True:
            await asyncio.to_thread(self._insert)
            await asyncio.sleep(1.0)

    def _insert(self) -> None:
        self.conn.execute(
            "INSERT INTO public.goods SELECT generate_series(%s::bigint, %s)", (self.rows + 1, self.rows + 20)
        )
        self.rows += 20

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.write())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture(params=["lease", "neli", pytest.param("shared", marks=pytest.mark.soak)])
async def fleet(request: pytest.FixtureRequest, dsn: str, conn: Conn, tmp_path: Path) -> AsyncIterator[Fleet]:
    global is_slow  # noqa: PLW0603 # the sinks are functions, and are given by name
    is_slow = False
    taken.clear()
    tube = fresh_tube().replace("-", "_")
    conn.execute("SELECT tube_ensure_exists(%s, 4)", (tube,))  # as many as topics of the mock cluster have
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached(%s, 'public.goods', 0, shards => 4)", (tube,))
    kafka = "" if request.param == "lease" else request.getfixturevalue("kafka_mock")
    events: list[Event] = []

    def worker(name: str, target: str, note: list[Event]) -> Worker:
        text = CONFIG.format(
            dsn=dsn,
            name=name,
            tube=tube,
            module=__name__,
            target=target,
            election="lease" if request.param == "lease" else "neli",
            pause=PAUSES[request.param],
        )
        if kafka:
            text += f'[kafka]\nbootstrap_servers = "{kafka}"\n'
        if request.param == "shared":
            text += "shared_partitions = 4\n"
        file = tmp_path / f"{name}.toml"
        file.write_text(text)
        return Worker(load(file), on_event=note.append)

    async with AsyncExitStack() as stack:
        workers = worker("ill", "take_slowly", events), worker("well", "take", [])
        for one in workers:
            stack.push_async_callback(one.stop)
            await one.start()
        fleet = Fleet(conn, tube, *workers, events)
        await wait_until_async(fleet.leads(2, 2), 30, "they share the tube")
        yield fleet


async def test_a_worker_that_falls_behind_leaves_the_tube_to_one_that_keeps_up(fleet: Fleet) -> None:
    global is_slow  # noqa: PLW0603
    is_slow = True
    async with fleet.writing():
        await wait_until_async(lambda: fleet.of(LoadShed), 20, "it gives its partitions up")
        await wait_until_async(fleet.leads(0, 4), 20, "the other one leads all")
    is_slow = False
    await wait_until_async(lambda: len(taken) == fleet.rows, 20, "all is delivered")
    assert len(fleet.of(LoadShed)[0].partitions) == 2
    assert "has fallen behind for" in fleet.of(LoadShed)[0].reason
    assert not fleet.of(LeaderFenced), "it ended in order"
    await wait_until_async(lambda: fleet.of(LoadResumed), 20, "it comes back")
    await wait_until_async(fleet.leads(2, 2), 30, "and has its share again")
