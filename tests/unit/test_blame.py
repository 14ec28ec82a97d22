"""Poison or an outage: whom a partition's worker blames when one document after the other fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

from pytube.enrich import Read
from pytube.errors import EnrichFailed
from pytube.events import SinkDown, SinkUp, SourceDown
from pytube.model import Batch, Id, Result, Retry
from pytube.pipeline import blame, retry_queue
from pytube.pipeline.blame import Witnesses
from pytube.testing.memory import MemorySink
from pytube.worker import pace, tube_worker
from tests.unit.rig import Rig

HEALTHY = range(10)
POISON = range(1000, 1060)
MOST = 20
"""Documents that are parked in a row before the sink is suspected."""


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short back-offs; a worker that sleeps is woken by writers only."""
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)
    monkeypatch.setattr(retry_queue, "_LONGEST_DELAY", 0.05)
    monkeypatch.setattr(tube_worker, "_PROBE_INTERVAL", 0.01)
    monkeypatch.setattr(pace, "_DEEP_PAUSE", 3600.0)
    monkeypatch.setattr(blame, "_MOST_PARKED_IN_A_ROW", MOST)


class Refusing(MemorySink):
    """Takes no document for which `refuses` holds, and every delete."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Callable[[Any], bool] = lambda _: False
        self.sent: list[Any] = []
        """The ids that were sent alone."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        if len(batch) == 1:
            self.sent += [one.id for one in batch]
        if any(not one.is_delete and self.refuses(one.id) for one in batch):
            self.sends += 1
            raise ValueError("it can't be taken")
        return await super().send(batch)


def rig_of(sink: Refusing, **settings: object) -> Rig:
    return Rig(sink, None, attempts=2, batch_documents=100, **settings)


def make(**settings: object) -> tuple[Rig, Refusing]:
    sink = Refusing()
    return rig_of(sink, **settings), sink


def poisoned(ids: Collection[int]) -> Callable[[Any], bool]:
    return lambda key: key in ids


def parked(rig: Rig) -> set[Any]:
    return {key for _, key in rig.tube.parked}


async def deliver(rig: Rig, *ids: int, shard: int = 0) -> None:
    """Healthy traffic, of long ago: the first one alone, and then the others."""
    for some in filter(None, (ids[:1], ids[1:])):
        rig.insert(*some, shard=shard)
        await rig.until_empty()


async def until_held_to_be_down(rig: Rig, sink: Refusing) -> None:
    await rig.until("the sink is held to be down", lambda: rig.emitted(SinkDown))
    sends = sink.sends
    await rig.until("it is probed", lambda: sink.sends > sends + 5)
    assert f"{MOST} documents in a row failed" in rig.emitted(SinkDown)[0].reason


def looks(rig: Rig) -> list[None]:
    """Gets longer with each look for what may be sent."""
    found: list[None] = []
    launch = rig.worker._launch

    async def looked() -> bool:
        found.append(None)
        return await launch()

    rig.worker._launch = looked  # type: ignore[method-assign]
    return found


async def test_poison_alone_is_parked_once_the_sink_has_taken_a_document_again() -> None:
    rig, sink = make()
    sink.refuses = poisoned(POISON)
    async with rig.running():
        await deliver(rig, *HEALTHY)
        rig.insert(*POISON)
        await rig.until_empty()
    assert parked(rig) == set(POISON)
    assert rig.emitted(SinkDown) == [], "the sink is well"
    resent = [key for key in sink.sent if key in HEALTHY][1:]
    assert resent == [HEALTHY[-1], HEALTHY[0]], "a witness each time, by turns the last and the first"
    assert sum(rig.worker.counters.documents) == len(HEALTHY), "witnesses are no changes"


async def test_a_sink_that_refuses_everything_has_few_parked_and_recovers() -> None:
    rig, sink = make()
    async with rig.running():
        await deliver(rig, *HEALTHY)
        sink.refuses = lambda _: True
        rig.insert(*POISON)
        await until_held_to_be_down(rig, sink)
        assert len(parked(rig)) == MOST
        assert not rig.worker.sink_is_up
        assert {HEALTHY[0], HEALTHY[-1]} <= set(sink.sent)
        sink.refuses = lambda _: False
        await rig.until_empty()
    assert len(parked(rig)) == MOST
    assert (len(rig.emitted(SinkDown)), len(rig.emitted(SinkUp))) == (1, 1)


async def test_poison_alone_is_parked_after_the_sink_has_recovered() -> None:
    rig, sink = make()
    async with rig.running():
        await deliver(rig, *HEALTHY)
        sink.refuses = lambda _: True
        rig.insert(*POISON)
        await until_held_to_be_down(rig, sink)
        sink.refuses = poisoned(POISON)
        await rig.until_empty()
    assert parked(rig) == set(POISON)


async def test_documents_that_failed_before_the_last_success_are_not_all_parked() -> None:
    """The sink begins to refuse everything while many have failed already, and one more gets through."""
    rig, sink = make()
    async with rig.running():
        sink.refuses = lambda key: key != 1
        rig.insert(*POISON)
        await rig.until("they have failed", lambda: sink.sends > 5)
        rig.insert(1)
        await rig.until("one gets through", lambda: (0, 1) in sink.store.held)
        sink.refuses = lambda _: True
        await rig.until("the sink is held to be down", lambda: not rig.worker.sink_is_up)
        sends = sink.sends
        await rig.until("it is probed", lambda: sink.sends > sends + 20)
        assert len(parked(rig)) <= 2 * MOST, "as many before the success as after it"


async def test_without_a_witness_the_sink_is_held_to_be_down() -> None:
    rig, sink = make()
    sink.refuses = poisoned(POISON)
    async with rig.running():
        rig.insert(*POISON)
        await until_held_to_be_down(rig, sink)
        assert len(parked(rig)) == MOST
        await deliver(rig, *HEALTHY)
    assert parked(rig) == set(POISON)


async def test_documents_that_fail_for_the_first_time_are_probes_too_and_sent_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tube_worker, "_PROBE_INTERVAL", 3600.0)
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 3600.0)
    monkeypatch.setattr(retry_queue, "_LONGEST_DELAY", 3600.0)
    rig, sink = make()
    rig.worker._blame._parked_in_a_row = MOST
    sink.refuses = lambda _: True
    async with rig.running():
        rig.insert(1)
        await rig.until("the sink is held to be down", lambda: rig.emitted(SinkDown))
        rig.insert(2, 3, 4)
        for _ in range(100):
            await asyncio.sleep(0)
        assert sink.sent == [1], "the others wait"


async def test_a_delete_proves_nothing() -> None:
    """A sink that refuses all documents takes it; and the row of a witness may be gone."""
    rig, sink = make()
    async with rig.running():
        await deliver(rig, *HEALTHY)
        sink.refuses = lambda _: True
        for key in HEALTHY:
            del rig.enricher.rows[0, key]
        rig.insert(*POISON)
        await until_held_to_be_down(rig, sink)
        rig.tube.insert(5000)  # without a row
        rig.active_term.wake()
        await rig.until("it is deleted", lambda: (0, 5000) in sink.store.held)
        sends = sink.sends
        await rig.until("it is probed", lambda: sink.sends > sends + 20)
        assert len(parked(rig)) == MOST


async def test_a_witness_that_is_poison_by_now_has_another_one_called() -> None:
    rig, sink = make()
    async with rig.running():
        await deliver(rig, 1, *POISON)  # so that the last one is of them
        sink.refuses = poisoned(POISON)
        rig.insert(*POISON)
        await rig.until_empty()
    assert parked(rig) == set(POISON)


async def test_a_parked_witness_that_is_taken_is_parked_no_longer() -> None:
    rig, sink = make()
    async with rig.running():
        await deliver(rig, *HEALTHY)
        sink.refuses = lambda _: True
        await deliver(rig, HEALTHY[-1])
        assert parked(rig) == {HEALTHY[-1]}
        sink.refuses = poisoned(POISON)
        rig.insert(*POISON)
        await rig.until_empty()
    assert parked(rig) == set(POISON)


async def test_the_witness_is_of_the_same_shard_as_what_failed() -> None:
    """The documents of each shard may have an index of their own, and only one of them be wrong."""
    rig, sink = make()
    async with rig.running():
        await deliver(rig, *HEALTHY, shard=1)
        sink.refuses = poisoned(POISON)
        rig.insert(*POISON)
        await until_held_to_be_down(rig, sink)
        assert len(parked(rig)) == MOST


async def test_a_pause_forgets_no_witness() -> None:
    rig, sink = make()
    async with rig.running():
        await deliver(rig, *HEALTHY)
    rig.another_worker()
    sink.refuses = poisoned(POISON)
    async with rig.running():
        rig.insert(*POISON)
        await rig.until_empty()
    assert parked(rig) == set(POISON)
    assert rig.emitted(SinkDown) == []


async def test_a_witness_that_can_t_be_read_charges_nobody() -> None:
    rig, sink = make()
    read = rig.enricher.read

    async def refuse_the_first(groups: Mapping[int, Sequence[Id]], **options: Any) -> Mapping[int, Read]:
        if parked(rig) and HEALTHY[-1] in groups[0] and not rig.emitted(SourceDown):
            raise EnrichFailed("permission denied")
        return await read(groups, **options)

    async with rig.running():
        await deliver(rig, *HEALTHY)
        rig.enricher.read = refuse_the_first  # type: ignore[method-assign]
        sink.refuses = poisoned(POISON)
        rig.insert(*POISON)
        await rig.until_empty()
    assert parked(rig) == set(POISON)
    assert len(rig.emitted(SourceDown)) == 1
    assert rig.emitted(SinkDown) == []


class Delaying(Refusing):
    """Once `is_busy`, puts off the first healthy document."""

    is_busy = False

    async def send(self, batch: Batch) -> Sequence[Result]:
        if self.is_busy and all(one.id in HEALTHY for one in batch):
            self.is_busy = False
            return [Retry(0.0, "too busy")] * len(batch)
        return await super().send(batch)


async def test_a_witness_that_is_put_off_charges_nobody() -> None:
    sink = Delaying()
    rig = rig_of(sink)
    sink.refuses = poisoned(POISON)
    async with rig.running():
        await deliver(rig, *HEALTHY)
        sink.is_busy = True
        rig.insert(*POISON)
        await rig.until_empty()
    assert not sink.is_busy
    assert parked(rig) == set(POISON)
    assert rig.emitted(SinkDown) == []


class Blocking(Refusing):
    """Once `blocks`, keeps the last healthy document until it may end."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = False
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def send(self, batch: Batch) -> Sequence[Result]:
        key = (0, HEALTHY[-1])
        if not self.blocks or batch.documents[0].key != key:
            return await super().send(batch)
        self.begun.set()
        self.overlaps += [one for one in self._in_flight if one == key]
        self._in_flight.add(key)
        await self.may_end.wait()
        self._in_flight.discard(key)
        return await super().send(batch)


async def test_while_a_witness_is_sent_nothing_else_is() -> None:
    """Its key may be touched just then; and what fails meanwhile might use up its attempts."""
    sink = Blocking()
    rig = rig_of(sink)
    sink.refuses = poisoned(POISON)
    async with rig.running():
        await deliver(rig, *HEALTHY)
        sink.blocks = True
        rig.insert(*POISON)
        await asyncio.wait_for(sink.begun.wait(), 5)
        sends = sink.sends
        rig.insert(*HEALTHY)
        await rig.until("they are held", lambda: rig.worker.machine.keys >= len(HEALTHY) + MOST)
        rounds = looks(rig)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert sink.sends == sends
        assert len(rounds) < 50, "the worker looks again and again for what it may not send"
        sink.may_end.set()
        await rig.until_empty()
    assert parked(rig) == set(POISON)


async def test_a_witness_waits_for_what_is_under_way() -> None:
    """Its key may be among that, and a key is never sent twice at once."""
    sink = Blocking()
    rig = rig_of(sink)
    sink.refuses = poisoned(POISON)
    async with rig.running():
        await deliver(rig, *HEALTHY)
        sink.blocks = True
        rig.insert(HEALTHY[-1])
        await asyncio.wait_for(sink.begun.wait(), 5)
        rig.insert(*POISON[:30])
        await rig.until("a witness is called", lambda: rig.worker._blame.is_open)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert sink.overlaps == []
        sink.may_end.set()
        await rig.until_empty()
    assert parked(rig) == set(POISON[:30])


def test_the_last_witness_is_not_forgotten_when_the_first_was_taken_again() -> None:
    witnesses = Witnesses()
    for key in (1, 2, 1):
        witnesses.note((0, key))
    assert witnesses.of(0) == (1, 2)
