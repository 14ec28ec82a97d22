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
from pytube.worker.database import Database
from pytube.worker.tube import Tube
from tests.helpers.waiting import wait_until_async

TUBES = [f"t{number}" for number in range(50)]
OURS = "6f1f8c9e-0000-4000-8000-000000000001"
"""The installation."""


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
            return [(name, "mine", OURS) for name in TUBES]
        assert arguments is not None
        self.noted.append((arguments["tube"], arguments["held"]))
        return [(None, None, arguments["held"] != "mine", False)]


class Sinks:
    """The sinks of all tubes, whose marks are read here."""

    has_mark = True
    has_note = False

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


class Source:
    """The database, as far as notes speak of it."""

    def __init__(self, seen_seq: int = 0) -> None:
        self.pool: Queries = Memory()
        self.seen_seq = seen_seq
        self.compared: list[int] = []

    async def compare_source(self, seq: int) -> bool:
        self.compared.append(seq)
        return True


class Noted(Sinks):
    """One at which something is noted."""

    has_note = True

    def __init__(self, note: str | None) -> None:
        super().__init__()
        self.note = note

    async def read_note(self) -> str | None:
        return self.note

    async def write_note(self, note: str) -> None:
        self.note = note


def looking(
    memory: Memory, sinks: Mapping[str, Sinks], events: list[Event], source: Source | None = None
) -> asyncio.Task[None]:
    tubes = {
        name: cast("Tube", SimpleNamespace(name=name, shared_sink=sink, log=None, faults=None))
        for name, sink in sinks.items()
    }
    database = source or Source()
    database.pool = memory
    marks = SinkMarks(cast("Database", database), tubes, lambda: list(tubes), events.append)
    return asyncio.create_task(marks.run())


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


# --- notes ----------------------------------------------------------------------------------------


async def after_looks(sink: Noted, source: Source) -> None:
    """Look at a sink several times."""
    task = looking(Memory(), {"t0": sink}, [], source)
    await wait_until_async(lambda: sink.reads >= 5)
    await end(task)


async def test_the_source_is_compared_once_with_a_note_of_ours() -> None:
    source = Source()
    await after_looks(Noted(f"{OURS} seq 4711"), source)
    assert source.compared == [4711]


@pytest.mark.parametrize(
    "note",
    [None, "", "6f1f8c9e-0000-4000-8000-000000000002 seq 4711", f"{OURS} seq", f"{OURS} seq -3", "by hand"],
)
async def test_notes_of_others_say_nothing(note: str | None) -> None:
    """A sink that is shared by mistake, or a copy of another installation's."""
    source = Source()
    await after_looks(Noted(note), source)
    assert source.compared == []


async def test_what_was_read_is_noted() -> None:
    sink = Noted("of another installation")
    await after_looks(sink, Source(seen_seq=12))
    assert sink.note == f"{OURS} seq 12"


async def test_the_last_one_is_left_at_the_end() -> None:
    sink, source = Noted(None), Source(seen_seq=12)
    task = looking(Memory(), {"t0": sink}, [], source)
    await wait_until_async(lambda: sink.note is not None)
    source.seen_seq = 13
    await end(task)
    assert sink.note == f"{OURS} seq 13"


async def test_no_note_falls_behind_that_of_another_process() -> None:
    sink = Noted(None)
    source = Source(seen_seq=12)
    task = looking(Memory(), {"t0": sink}, [], source)
    await wait_until_async(lambda: sink.note is not None)
    sink.note, source.seen_seq = f"{OURS} seq 20", 15
    await end(task)
    assert sink.note == f"{OURS} seq 20"
