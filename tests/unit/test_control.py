"""Control pods of a line: schedules, ends of backfills, sweeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from pytube.errors import BackfillBusy, Fenced, SinkUnavailable, UsageError
from pytube.events import (
    BackfillFinished,
    BackfillStarted,
    BackfillTaken,
    Parked,
    SweepFailed,
    SweepFinished,
)
from pytube.model import Document, Id, Key, Token
from pytube.sinks.scan import Scanning, why_no_scan
from pytube.testing import Faults, MemorySink
from tests.unit.rig import Rig

START = {"type": "backfill_start", "start_seq": "50"}
END = {"type": "backfill_end", "start_seq": "50"}
SCHEDULE = {"type": "backfill_schedule", "tbl": "public.items", "order_col": "id"}


def old(rig: Rig, *ids: int, shard: int = 0, seq: int = 1) -> None:
    """The sink holds these documents since before the backfill."""
    for key in ids:
        rig.sink.store.held[shard, key] = Document(shard, key, b"{}", Token(1, 1), seq)


def live(rig: Rig) -> set[Key]:
    return set(rig.sink.store.values())


async def test_what_the_source_lacks_is_deleted() -> None:
    rig = Rig()
    old(rig, 1, 2, 3, 4, 5)
    old(rig, 9, shard=7)
    old(rig, 8, seq=60)
    rig.tube.insert(op="T", payload=START)
    rig.tube.seq = 99
    for key in (1, 2):
        rig.insert(key, op="B")
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until_empty()
    assert live(rig) == {(0, 1), (0, 2), (0, 8), (7, 9)}
    assert [event.start_seq for event in rig.told(BackfillStarted)] == [50]
    assert [event.start_seq for event in rig.told(BackfillFinished)] == [50]
    (swept,) = rig.told(SweepFinished)
    assert (swept.keys, swept.skipped, swept.shard) == (3, None, 0)


async def test_a_sweep_that_no_backfill_asked_for() -> None:
    """A TRUNCATE may not have seen all rows."""
    rig = Rig()
    old(rig, 1, 2)
    rig.tube.insert(op="B", payload={"type": "sweep", "start_seq": "50"})
    async with rig.running():
        await rig.until_empty()
    assert live(rig) == set()
    assert rig.told(BackfillFinished) == []
    assert [event.keys for event in rig.told(SweepFinished)] == [2]


async def test_a_row_that_a_sweep_finds_is_written_again_not_deleted() -> None:
    """Whatever its stamp says."""
    rig = Rig()
    old(rig, 1)
    rig.enricher.rows[0, 1] = b'{"still": "there"}'
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until_empty()
    assert rig.sink.store.values() == {(0, 1): {"still": "there"}}


async def test_a_sweep_comes_after_all_earlier_keys() -> None:
    rig = Rig()
    old(rig, 5)
    rig.enricher.go.clear()
    for key in (1, 2):
        rig.insert(key, op="B")
    rig.insert(3, op="B", shard=1)
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until("all are held", lambda: rig.line.machine.pods == 4)
        assert not rig.told(BackfillFinished)
        rig.enricher.go.set()
        await rig.until_empty()
    assert live(rig) == {(0, 1), (0, 2), (1, 3)}


async def test_parked_keys_count_as_done() -> None:
    rig = Rig()
    rig.insert(1, op="B")
    rig.sink.faults = Faults(reject={(0, 1)})
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until_empty()
    assert len(rig.told(SweepFinished)) == 1


async def test_a_related_table_does_not_sweep() -> None:
    rig = Rig()
    old(rig, 5)
    rig.tube.insert(op="B", payload=END | {"sweep": False})
    async with rig.running():
        await rig.until_empty()
    assert live(rig) == {(0, 5)}
    assert "root table" in str(rig.told(SweepFinished)[0].skipped)


class Blind(MemorySink):
    """A sink that can't be looked through."""

    def cannot_scan(self) -> str | None:
        return "it is blind"


async def test_a_sink_that_cannot_scan_says_so() -> None:
    rig = Rig(Blind())
    old(rig, 5)
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until_empty()
    assert rig.told(SweepFinished)[0].skipped == "it is blind"
    assert live(rig) == {(0, 5)}


def test_what_sinks_say_of_scans() -> None:
    class Plain:
        compares = False
        open = send = abandon = close = None

    assert why_no_scan(MemorySink()) is None
    assert why_no_scan(Plain()) == "the sink can't be looked through"  # type: ignore[arg-type] # enough of one
    assert isinstance(MemorySink(), Scanning)


class Stumbling(MemorySink):
    """A sink whose first scans fail."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__()
        self.failures = list(failures)

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        async for page in super().scan(tube, shard, below_seq):
            yield page
            if self.failures:
                raise self.failures.pop(0)


async def test_a_sweep_that_fails_begins_again() -> None:
    rig = Rig(Stumbling(SinkUnavailable("down"), ValueError("a fault of the sink's")))
    old(rig, 1, 2, 3)
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until_empty()
    assert live(rig) == set()
    assert [event.reason for event in rig.told(SweepFailed)] == ["down"]
    assert len(rig.told(BackfillFinished)) == 1


class Blocked(MemorySink):
    """A sink that takes documents, and can't be looked through as long as it is blocked."""

    def __init__(self) -> None:
        super().__init__()
        self.blocked = True

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        if self.blocked:
            raise SinkUnavailable("no scans today")
        async for page in super().scan(tube, shard, below_seq):
            yield page


async def test_sweeps_that_wait_hold_no_touches_up() -> None:
    """Be they more than the keys that may be in flight."""
    sink = Blocked()
    rig = Rig(sink, keys_in_flight=50, mark_limit=20)
    for shard in range(60):
        rig.tube.insert(op="B", payload=END, shard=shard)
    async with rig.running():
        await rig.until("all are held", lambda: rig.line.machine.control == 60)
        rig.insert(1)
        rig.insert(2, op="B", shard=70)
        await rig.until("touches are delivered", lambda: live(rig) == {(0, 1), (70, 2)})
        sink.blocked = False
        await rig.until_empty()
    assert len(rig.told(SweepFinished)) == 60


class Hanging(MemorySink):
    """A sink whose scan never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.scanning = asyncio.Event()

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        del tube, shard, below_seq
        self.scanning.set()
        await asyncio.Event().wait()
        yield []


async def test_a_stop_ends_a_sweep_and_gives_its_pod_back() -> None:
    sink = Hanging()
    rig = Rig(sink)
    seq = rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await sink.scanning.wait()
        rig.line.stop()
        await rig.until("the line ends", lambda: rig.task is not None and rig.task.done())
        await rig.line.drain(1.0)
    assert list(rig.tube.pods) == [seq]
    assert rig.tube.marked == set()


async def test_a_sweep_under_a_term_that_is_over_ends_the_line() -> None:
    rig = Rig()
    old(rig, 5)
    rig.tube.insert(op="B", payload=END)
    rig.enricher.go.clear()
    async with rig.running():
        rig.tube.leader_id = None
        assert isinstance(await rig.until_it_ends(), Fenced)
    assert live(rig) == {(0, 5)}


async def test_a_schedule_becomes_a_backfill() -> None:
    rig = Rig()
    rig.tube.insert(op="B", payload=SCHEDULE)
    async with rig.running():
        await rig.until_empty()
    assert [event.backfill for event in rig.told(BackfillTaken)] == [1]
    assert rig.tube.purged == []


async def test_a_schedule_of_a_busy_table_waits_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytube.worker.control._BUSY_PAUSE", 0.01)
    rig = Rig()
    rig.tube.refusal = BackfillBusy("busy")
    seq = rig.tube.insert(op="B", payload=SCHEDULE)
    async with rig.running():
        rig.insert(1)
        await rig.until("the other is delivered", lambda: set(rig.tube.pods) == {seq})
        rig.tube.refusal = None
        await rig.until_empty()
    assert len(rig.told(BackfillTaken)) == 1


async def test_a_schedule_that_waits_does_not_hold_a_sweep_up() -> None:
    """The sweep may be just what it waits for."""
    rig = Rig()
    rig.tube.refusal = BackfillBusy("busy")
    seq = rig.tube.insert(op="B", payload=SCHEDULE)
    rig.tube.insert(op="B", payload=END)
    async with rig.running():
        await rig.until("the sweep is over", lambda: list(rig.tube.pods) == [seq])


async def test_a_schedule_that_makes_no_sense_is_parked() -> None:
    rig = Rig()
    rig.tube.refusal = UsageError("there is no table 'nope'")
    rig.tube.insert(op="B", payload=SCHEDULE)
    async with rig.running():
        await rig.until_empty()
    assert [event.reason for event in rig.told(Parked)] == ["there is no table 'nope'"]
    assert rig.tube.parked[0, None]["payload"] == SCHEDULE


@pytest.mark.parametrize(
    "payload", [{"type": "backfill_end"}, {"type": "backfill_end", "start_seq": "x"}, [1], "text", {}]
)
async def test_what_nobody_understands_is_parked(payload: object) -> None:
    rig = Rig()
    rig.tube.insert(op="B", payload=payload)
    async with rig.running():
        await rig.until_empty()
    assert len(rig.told(Parked)) == 1
