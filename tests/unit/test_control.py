"""Control pods of a partition: schedules, ends of backfills, sweeps."""

from __future__ import annotations

import psycopg
import pytest

from pytube.errors import BackfillBusy, StatementFailed, UsageError
from pytube.events import (
    BackfillFinished,
    BackfillStarted,
    BackfillTaken,
    Parked,
    SweepFinished,
)
from pytube.model import Document, Key, Token
from pytube.sinks.base import Scanning, why_no_scan
from pytube.testing import Faults, MemorySink
from tests.unit.rig import Rig

START = {"type": "backfill_start", "start_seq": "50"}
END = {"type": "backfill_end", "start_seq": "50"}
SCHEDULE = {"type": "backfill_schedule", "tbl": "public.items", "order_col": "id"}

STRANGE_NUMBERS: list[object] = ["abc", -1, 2**63, 1.0, "", {}]


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
    assert [event.start_seq for event in rig.emitted(BackfillStarted)] == [50]
    assert [event.start_seq for event in rig.emitted(BackfillFinished)] == [50]
    (swept,) = rig.emitted(SweepFinished)
    assert (swept.keys, swept.skipped, swept.shard) == (3, None, 0)


async def test_a_sweep_that_no_backfill_asked_for() -> None:
    """A TRUNCATE may not have seen all rows."""
    rig = Rig()
    old(rig, 1, 2)
    rig.tube.insert(op="B", payload={"type": "sweep", "start_seq": "50"})
    async with rig.running():
        await rig.until_empty()
    assert live(rig) == set()
    assert rig.emitted(BackfillFinished) == []
    assert [event.keys for event in rig.emitted(SweepFinished)] == [2]


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
        await rig.until("all are held", lambda: rig.worker.machine.pods == 4)
        assert not rig.emitted(BackfillFinished)
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
    assert len(rig.emitted(SweepFinished)) == 1


async def test_a_related_table_does_not_sweep() -> None:
    rig = Rig()
    old(rig, 5)
    rig.tube.insert(op="B", payload=END | {"sweep": False})
    async with rig.running():
        await rig.until_empty()
    assert live(rig) == {(0, 5)}
    assert "root table" in str(rig.emitted(SweepFinished)[0].skipped)


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
    assert rig.emitted(SweepFinished)[0].skipped == "it is blind"
    assert live(rig) == {(0, 5)}


def test_what_sinks_say_of_scans() -> None:
    class Plain:
        compares = False
        open = send = abandon = close = None

    assert why_no_scan(MemorySink()) is None
    assert why_no_scan(Plain()) == "the sink can't be scanned"
    assert isinstance(MemorySink(), Scanning)


async def test_a_schedule_becomes_a_backfill() -> None:
    rig = Rig()
    rig.tube.insert(op="B", payload=SCHEDULE)
    async with rig.running():
        await rig.until_empty()
    assert [event.backfill for event in rig.emitted(BackfillTaken)] == [1]
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
    assert len(rig.emitted(BackfillTaken)) == 1


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
    assert [event.reason for event in rig.emitted(Parked)] == ["there is no table 'nope'"]
    assert rig.tube.parked[0, None]["payload"] == SCHEDULE


def refused(sqlstate: str) -> StatementFailed:
    """As a session raises it."""
    error = StatementFailed(f"Postgres refused a statement: {sqlstate}")
    error.__cause__ = psycopg.errors.lookup(sqlstate)("no")
    return error


@pytest.mark.parametrize("sqlstate", ["42501", "22003"])
async def test_a_schedule_that_postgres_will_never_take_is_parked(sqlstate: str) -> None:
    rig = Rig()
    rig.tube.refusal = refused(sqlstate)
    rig.tube.insert(op="B", payload=SCHEDULE)
    async with rig.running():
        await rig.until_empty()
    assert [sqlstate in event.reason for event in rig.emitted(Parked)] == [True]


async def test_a_schedule_that_postgres_may_take_later_is_kept() -> None:
    rig = Rig()
    rig.tube.refusal = refused("55P03")
    seq = rig.tube.insert(op="B", payload=SCHEDULE)
    async with rig.running():
        assert isinstance(await rig.until_it_ends(), StatementFailed)
    assert list(rig.tube.pods) == [seq]


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "backfill_end"},
        *(
            {"type": kind, "start_seq": seq}
            for kind in ("backfill_start", "backfill_end", "sweep")
            for seq in (
                "x",
                "-1",
                -1,
                "1" + "0" * 30,
                2**63,
                "9" * 19,
                1.5,
                True,
                "1_0",
                " 1",
                "²",
                [1],
                None,
            )
        ),
        *({**END, "backfill": backfill} for backfill in STRANGE_NUMBERS),
        [1],
        "text",
        {},
        {"type": ["backfill_end"]},
    ],
)
async def test_what_nobody_understands_is_parked(payload: object) -> None:
    rig = Rig()
    rig.tube.insert(op="B", payload=payload)
    rig.insert(1)
    async with rig.running():
        await rig.until_empty()
    assert len(rig.emitted(Parked)) == 1
    assert live(rig) == {(0, 1)}
