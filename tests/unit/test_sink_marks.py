"""How often a worker asks about the marks of sinks: once for all tubes, once more for one that differs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytube.db.session import Queries
from pytube.errors import DatabaseUnavailable, SinkUnavailable
from pytube.events import Event, SinkEmptied
from pytube.sources import queries
from pytube.worker import sink_marks
from pytube.worker.database import Database
from pytube.worker.queues import Tube
from pytube.worker.sink_marks import SinkMarks
from tests.helpers.waiting import wait_until_async

TUBES = [f"t{number}" for number in range(50)]
OURS = "6f1f8c9e:7511:1:16384"
"""The database."""
OTHERS = "6f1f8c9e:7511:1:16999"
"""One that was made of it by TEMPLATE."""


class Memory(Queries):
    """What the database knows of the sinks: each has shown its mark, `mine`."""

    def __init__(self) -> None:
        self.asked = 0
        self.noted: list[tuple[str, str | None]] = []
        self.commits: list[str] = []
        """What notes may name."""
        self.down = False
        self.is_new = False
        """Whether no sink was looked at before."""

    async def rows(self, statement: str, arguments: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        self.asked += 1
        if self.down:
            raise DatabaseUnavailable("away")
        if statement == queries.SOURCE_NOTE:
            self.commits.append(f"commit{len(self.commits) + 1}")
            return [(self.commits[-1],)]
        if statement != queries.SINK_NOTE:
            return [] if self.is_new else [(name, "mine", OURS) for name in TUBES]
        self.is_new = False
        assert arguments is not None
        self.noted.append((arguments["tube"], arguments["held"]))
        return [(None, None, arguments["held"] != "mine", False)]


class Sinks:
    """The sinks of all tubes, whose marks are read here."""

    has_mark = True
    notes: Noted | None = None

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
    monkeypatch.setattr(sink_marks, "INTERVAL", 0.02)
    monkeypatch.setattr(sink_marks, "_STEP", 0.01)


class Source:
    """The database, as far as notes speak of it."""

    def __init__(self, seen_seq: int = 0) -> None:
        self.pool: Queries = Memory()
        self.seen_seq = seen_seq
        self.down_for = 0.0
        self.is_known = True
        """Whether a comparison succeeds."""
        self.compared: list[int] = []
        self.commits: list[str | None] = []
        """What the notes named that it was compared with."""
        self.emit: Callable[[Event], None] | None = None

    def led(self) -> set[str]:
        return set(TUBES)

    async def compare_source(self, seq: int, note: str | None) -> bool:
        self.compared.append(seq)
        self.commits.append(note)
        return self.is_known


class Noted(Sinks):
    """One at which something is noted."""

    def __init__(self, note: str | None = None, *, of: str = OURS) -> None:
        super().__init__()
        self.held = {} if note is None else {of: note}
        self.notes = self
        self.looks = 0
        self.written: list[str] = []
        self.refused: list[Exception] = []
        """What the next calls of `write_note` raise."""
        self.on_write: Callable[[str], None] | None = None

    @property
    def note(self) -> str | None:
        return self.held.get(OURS)

    async def read_note(self, key: str) -> str | None:
        self.looks += 1
        return self.held.get(key)

    async def write_note(self, key: str, text: str) -> None:
        if self.refused:
            raise self.refused.pop()
        if self.on_write is not None:
            self.on_write(text)
        self.written.append(text)
        self.held[key] = text


def looking(
    memory: Memory, sinks: Mapping[str, Sinks], events: list[Event], source: Source | None = None
) -> asyncio.Task[None]:
    tubes = {
        name: cast("Tube", SimpleNamespace(name=name, shared_sink=sink, log=None, faults=None))
        for name, sink in sinks.items()
    }
    database = source or Source()
    database.pool = memory
    database.emit = events.append
    marks = SinkMarks(cast("Database", database), tubes)
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


@pytest.mark.parametrize(("note", "commit"), [("seq 4711", None), ("seq 4711 7:1:a", "7:1:a")])
async def test_the_source_is_compared_with_a_note_of_ours(note: str, commit: str | None) -> None:
    """Also with one that was left before notes named a commit; once, as the next is due in a minute."""
    source = Source()
    await after_looks(Noted(note), source)
    assert set(source.compared) == {4711}
    assert set(source.commits) == {commit}


async def test_no_note_is_replaced_before_the_source_was_compared_with_it() -> None:
    sink, source = Noted("seq 11 commit0"), Source(seen_seq=12)
    source.is_known = False
    await after_looks(sink, source)
    assert sink.written == []
    source.is_known = True
    task = looking(Memory(), {"t0": sink}, [], source)
    await wait_until_async(lambda: sink.written)
    await end(task)
    assert sink.note == "seq 12 commit1"


async def test_what_a_note_names_was_committed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each names another commit: the last one is not to be of an earlier state than its seq."""
    monkeypatch.setattr(sink_marks, "NOTE_INTERVAL", 0.0)
    memory, sink, source = Memory(), Noted(), Source(seen_seq=1)
    wrong: list[str] = []

    def look(text: str) -> None:
        if text.split(" ")[2:] != memory.commits[-1:]:
            wrong.append(text)
        source.seen_seq += 1

    sink.on_write = look
    task = looking(memory, {"t0": sink}, [], source)
    await wait_until_async(lambda: len(sink.written) >= 3)
    await end(task)
    assert wrong == []
    assert sink.written[:3] == ["seq 1 commit1", "seq 2 commit2", "seq 3 commit3"]


async def test_a_source_that_is_put_back_under_a_worker_is_compared_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before another note replaces the only one that tells of it."""
    monkeypatch.setattr(sink_marks, "NOTE_INTERVAL", 0.0)
    sink, source = Noted(), Source(seen_seq=12)
    task = looking(Memory(), {"t0": sink}, [], source)
    await wait_until_async(lambda: "commit1" in source.commits)
    source.seen_seq = 13
    source.is_known = False
    looks = sink.looks
    await wait_until_async(lambda: sink.looks >= looks + 3)
    assert sink.note == "seq 12 commit1"
    await end(task)


async def test_without_the_database_the_last_note_names_what_the_one_before_named() -> None:
    sink, source, memory = Noted(), Source(seen_seq=12), Memory()
    task = looking(memory, {"t0": sink}, [], source)
    await wait_until_async(lambda: sink.note is not None)
    source.seen_seq, source.down_for, memory.down = 13, 3.0, True
    await end(task)
    assert sink.note == "seq 13 commit1"


@pytest.mark.parametrize(
    "note",
    [None, "", "seq", "seq -3", "by hand", f"seq {2**63}", f"seq {10**40}", f"seq {'9' * 5000}"],
)
async def test_what_is_no_seq_says_nothing(note: str | None) -> None:
    source = Source()
    await after_looks(Noted(note), source)
    assert source.compared == []


async def test_notes_of_another_database_say_nothing_and_stay() -> None:
    """Also of one that was copied from ours, and delivers into the same sink."""
    sink, source = Noted("seq 4711 commit7", of=OTHERS), Source(seen_seq=12)
    await after_looks(sink, source)
    assert 4711 not in source.compared
    assert sink.held == {OURS: "seq 12 commit1", OTHERS: "seq 4711 commit7"}


async def test_the_last_one_is_left_at_the_end() -> None:
    sink, source = Noted(), Source(seen_seq=12)
    task = looking(Memory(), {"t0": sink}, [], source)
    await wait_until_async(lambda: sink.note is not None)
    source.seen_seq = 13
    await end(task)
    assert sink.note == "seq 13 commit2"


async def test_one_is_left_at_the_end_though_the_only_look_was_the_first_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink_marks, "INTERVAL", float("inf"))
    memory, sink = Memory(), Noted()
    memory.is_new = True
    task = looking(memory, {"t0": sink}, [], Source(7))
    await wait_until_async(lambda: sink.looks, what="it looks for a note")
    await end(task)
    assert sink.written == ["seq 7 commit1"]


async def test_one_that_could_not_be_left_is_left_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing was read meanwhile."""
    monkeypatch.setattr(sink_marks, "NOTE_INTERVAL", 0.0)
    sink = Noted()
    sink.refused = [SinkUnavailable("away"), SinkUnavailable("away")]
    task = looking(Memory(), {"t0": sink}, [], Source(seen_seq=12))
    await wait_until_async(lambda: sink.note == "seq 12 commit3")
    await end(task)
    assert sink.refused == []


async def test_of_several_processes_one_leaves_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, until it is gone; all read as much."""
    monkeypatch.setattr(sink_marks, "NOTE_INTERVAL", 0.0)
    sink = Noted()
    sources = [Source(seen_seq=1) for _ in range(10)]
    tasks = [looking(Memory(), {"t0": sink}, [], source) for source in sources]
    for seq in range(2, 12):
        for at, source in enumerate(sources):
            source.seen_seq = 10 * seq + at
        looks = sink.looks
        await wait_until_async(lambda looks=looks: sink.looks >= looks + 2 * len(tasks))  # type: ignore[misc]
    assert len(sink.written) <= 30, sink.written
    await asyncio.gather(*map(end, tasks[:9]))
    sources[9].seen_seq = 1000
    await wait_until_async(lambda: (sink.note or "").startswith("seq 1000 "))
    await end(tasks[9])


async def test_no_note_falls_behind_that_of_another_process() -> None:
    sink = Noted()
    source = Source(seen_seq=12)
    task = looking(Memory(), {"t0": sink}, [], source)
    await wait_until_async(lambda: sink.note is not None)
    sink.held[OURS], source.seen_seq = "seq 20", 15
    await end(task)
    assert sink.note == "seq 20"
