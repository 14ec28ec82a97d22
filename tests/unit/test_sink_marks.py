"""How often a worker asks about the marks of sinks: once for all tubes, once more for one that differs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytube.db.session import Queries
from pytube.errors import DatabaseUnavailable
from pytube.events import Event, SinkEmptied
from pytube.sources import queries
from pytube.worker import copies
from pytube.worker.copies import SinkMarks
from pytube.worker.tube import Tube
from tests.helpers.waiting import wait_until_async

TUBES = [f"t{number}" for number in range(50)]


class Memory(Queries):
    """What the database knows of the sinks: each has shown its mark, `mine`."""

    def __init__(self) -> None:
        self.asked = 0
        self.noted: list[tuple[str, str | None]] = []
        self.down = False

    async def rows(self, statement: str, arguments: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        self.asked += 1
        if self.down:
            raise DatabaseUnavailable("away")
        if statement != queries.SINK_NOTE:
            return [(name, "mine") for name in TUBES]
        assert arguments is not None
        self.noted.append((arguments["tube"], arguments["held"]))
        return [(None, None, arguments["held"] != "mine", False)]


class Sinks:
    """The sinks of all tubes, whose marks are read here."""

    has_mark = True

    def __init__(self) -> None:
        self.reads = 0

    async def read_mark(self) -> str | None:
        self.reads += 1
        return "mine"


class Emptied(Sinks):
    """One that lost its documents."""

    async def read_mark(self) -> str | None:
        return None


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "INTERVAL", 0.02)
    monkeypatch.setattr(copies, "_STEP", 0.01)


def looking(memory: Memory, sinks: Mapping[str, Sinks], events: list[Event]) -> asyncio.Task[None]:
    tubes = {
        name: cast("Tube", SimpleNamespace(name=name, shared_sink=sink, log=None, faults=None))
        for name, sink in sinks.items()
    }
    return asyncio.create_task(SinkMarks(memory, tubes, lambda: list(tubes), events.append).run())


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_tubes_whose_sinks_are_well_cost_one_statement_together() -> None:
    memory, sinks = Memory(), Sinks()
    task = looking(memory, dict.fromkeys(TUBES, sinks), [])
    await wait_until_async(lambda: sinks.reads >= 5 * len(TUBES))
    await end(task)
    assert memory.asked <= 10, f"{memory.asked} statements for {sinks.reads} looks"


async def test_one_that_differs_is_noted_by_itself() -> None:
    memory, events = Memory(), list[Event]()
    task = looking(memory, dict.fromkeys(TUBES, Sinks()) | {"t7": Emptied()}, events)
    await wait_until_async(lambda: len(events) >= 1)
    await end(task)
    assert {name for name, _ in memory.noted} == {"t7"}
    assert isinstance(events[0], SinkEmptied)


async def test_it_goes_on_when_the_database_is_back() -> None:
    memory, sinks = Memory(), Sinks()
    memory.down = True
    task = looking(memory, {"t0": sinks}, [])
    await wait_until_async(lambda: memory.asked >= 3)
    memory.down = False
    before = sinks.reads
    await wait_until_async(lambda: sinks.reads >= before + 2)
    await end(task)
