"""A partition's worker over fakes: what is delivered, when, and within which bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pytube.model import Batch, PodClass, Result
from pytube.pipeline import retry_queue
from pytube.testing.memory import Faults, MemorySink
from pytube.worker import pace
from tests.unit.fakes import gate_of
from tests.unit.rig import Rig


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short back-offs; a worker that sleeps is woken by writers only."""
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)
    monkeypatch.setattr(pace, "_DEEP_PAUSE", 3600.0)


# --- the plain way ---


async def test_pods_are_delivered_and_purged() -> None:
    rig = Rig()
    async with rig.running():
        seqs = [rig.insert(1, 2, 3), rig.insert(4)]
        await rig.until_empty()
    assert sorted(rig.sink.store.values()) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert sorted(rig.tube.purged) == seqs


async def test_ten_touches_of_a_key_are_one_document() -> None:
    rig = Rig()
    for _ in range(10):
        rig.insert(7)
    async with rig.running():
        await rig.until_empty()
    assert len(rig.sink.store.log) == 1


async def test_a_touch_during_a_send_is_sent_after_it_with_a_higher_token() -> None:
    rig = Rig()
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        rig.insert(7)
        await rig.until("the first is sent", lambda: rig.sink.sends == 1)
        rig.insert(7)
        await rig.until("the second is marked", lambda: len(rig.tube.marked) == 2)
        rig.sink.faults = Faults()
        await rig.until_empty()
    first, second = rig.sink.store.log
    assert first.token < second.token


async def test_nothing_is_purged_before_it_is_acknowledged() -> None:
    rig = Rig()
    rig.sink.faults = Faults(mute=True)
    async with rig.running():
        rig.insert(1)
        await rig.until("it is written, but not answered", lambda: rig.sink.store.log)
        rig.insert(2)
        await rig.until("the worker goes on", lambda: rig.sink.sends == 2)
        assert rig.tube.purged == []
        rig.sink.faults = Faults()
        await rig.until_empty()


async def test_changes_that_come_while_a_round_is_put_off_share_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "MULTIPLE", 1e9)
    rig = Rig(latency=3600.0)
    async with rig.running():
        rig.insert(1)
        await rig.until("a change after a quiet moment is sent at once", lambda: rig.sink.store.log)
        for _ in range(10):
            rig.insert(7)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(rig.tube.marked) == 1
        assert rig.tube.purged == [], "a purge is part of a round"
        rig.worker._pacer.next_at = 0.0
        rig.active_term.wake()
        await rig.until("the others are one document", lambda: len(rig.sink.store.log) == 2)
        rig.worker._pacer.next_at = 0.0
        rig.active_term.wake()
        await rig.until_empty()


async def test_what_is_done_is_purged_when_its_time_comes_though_nothing_else_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "MULTIPLE", 1e9)
    rig = Rig(latency=0.05)
    async with rig.running():
        await rig.until("the worker sleeps", lambda: rig.is_asleep)
        rig.insert(1)
        await rig.until_empty()
        await rig.until("the worker sleeps again", lambda: rig.is_asleep)


async def test_a_worker_that_sleeps_is_woken_by_each_writer() -> None:
    rig = Rig()
    async with rig.running():
        for key in range(5):
            await rig.until("the worker sleeps", lambda: rig.is_asleep)
            rig.insert(key)
            await rig.until_empty()


async def test_pods_that_come_while_a_mark_is_under_way_are_found_without_another_writer() -> None:
    rig = Rig()
    async with rig.running():
        await rig.until("the worker sleeps", lambda: rig.is_asleep)
        rig.session.on_mark = asyncio.Event()
        rig.active_term.wake()
        await asyncio.wait_for(rig.session.marking.wait(), 5)
        rig.insert(1)
        rig.session.on_mark.set()
        rig.session.on_mark = None
        await rig.until_empty()


async def test_deliveries_land_while_a_mark_is_under_way() -> None:
    """A round trip of Postgres holds nobody up; what is done meanwhile is purged by the next one."""
    rig = Rig()
    rig.sink.faults = Faults(mute=True)
    async with rig.running():
        first = rig.insert(1)
        await rig.until("it is written, but not answered", lambda: rig.sink.store.log)
        rig.session.on_mark = held_up = asyncio.Event()
        second = rig.insert(2)
        await asyncio.wait_for(rig.session.marking.wait(), 5)
        rig.sink.faults = Faults()
        await rig.until("the first lands", lambda: not rig.worker.machine.keys)
        assert rig.tube.purged == []
        rig.session.on_mark = None
        held_up.set()
        await rig.until_empty()
    assert rig.tube.purged == [first, second]


async def test_a_purge_marks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds what has come since the last mark, of which no writer may have told."""
    monkeypatch.setattr(pace, "_FIRST_PAUSE", 3600.0)
    rig = Rig()
    rig.sink.faults = Faults(mute=True)
    async with rig.running():
        rig.insert(1)
        await rig.until("it is written, but not answered", lambda: rig.sink.store.log)
        rig.tube.insert(2)  # of which nobody tells
        rig.sink.faults = Faults()
        await rig.until_empty()


class Selective(MemorySink):
    """A sink that keeps its answers about some keys to itself."""

    def __init__(self, *kept: int) -> None:
        super().__init__()
        self.kept = set(kept)
        self.changed = asyncio.Event()

    async def send(self, batch: Batch) -> Sequence[Result]:
        results = await super().send(batch)
        while any(document.id in self.kept for document in batch):
            self.changed.clear()
            await self.changed.wait()
        return results

    def answer(self, *keys: int) -> None:
        self.kept -= set(keys)
        self.changed.set()


async def test_a_worker_that_is_full_purges_without_marking() -> None:
    sink = Selective(1, 2, 3)
    rig = Rig(sink, keys_in_flight=2)
    rig.deliverer.size.observe(1, 1_000_000)
    async with rig.running():
        first = rig.insert(1)
        await rig.until("it is sent", lambda: sink.sends == 1)
        rig.insert(2, 3)
        await rig.until("the worker is full", lambda: rig.worker.machine.keys == 3)
        marks = rig.tube.marks
        rig.insert(4)
        sink.answer(1)
        await rig.until("the first is purged", lambda: rig.tube.purged == [first])
        assert rig.tube.marks == marks
        sink.answer(2, 3)
        await rig.until_empty()


async def test_each_reading_of_the_metrics_begins_anew() -> None:
    rig = Rig()
    async with rig.running():
        rig.insert(1, 2)
        await rig.until_empty()
        await rig.until("the purge is counted", lambda: rig.worker.counters.pods)
    first = rig.worker.read_metrics()
    assert first is not None
    assert (first.pods, first.touches, first.documents, first.parked) == (1, 2, 2, 0)
    assert (first.waiting, first.in_flight) == (0, 0)
    second = rig.worker.read_metrics()
    assert second is not None, "the first reading in which nothing was done is told"
    assert (second.pods, second.touches, second.documents) == (0, 0, 0)
    assert second.interval <= first.interval + 5
    assert rig.worker.read_metrics() is None, "the others are not"


async def test_metrics_tell_of_what_waits_though_nothing_is_done() -> None:
    rig = Rig()
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        rig.insert(1, 2)
        await rig.until("it is sent", lambda: rig.sink.sends)
        readings = [rig.worker.read_metrics() for _ in range(3)]
        assert [(reading.in_flight, reading.waiting) for reading in readings if reading] == [(2, 0)] * 3
        lags = [reading.lag for reading in readings if reading]
        assert lags == sorted(lags)
        assert lags[0] > 0, "the pod that hangs gets older, though none is purged"
        rig.sink.faults = Faults()
        await rig.until_empty()
        await rig.until("the purge is counted", lambda: rig.worker.counters.pods)
        last = rig.worker.read_metrics()
        assert last is not None
        assert last.lag == 0, "nothing waits"


# --- bounds ---


async def test_no_more_keys_are_held_than_allowed() -> None:
    rig = Rig(keys_in_flight=20, mark_limit=100)
    rig.sink.faults = Faults(hang=True)
    for key in range(100):
        rig.insert(key)
    async with rig.running():
        await rig.until("the worker is full", lambda: rig.worker.machine.keys == 20)
        marks = rig.tube.marks
        for _ in range(100):
            await asyncio.sleep(0)
        assert rig.worker.machine.keys == 20
        assert rig.tube.marks == marks, "a full worker marks"
        rig.sink.faults = Faults()
        most = 0

        def empty() -> bool:
            nonlocal most
            most = max(most, rig.worker.machine.keys)
            return rig.tube.is_empty

        await rig.until("all is delivered", empty)
    assert most <= 20


async def test_large_pods_do_not_burst_the_bound() -> None:
    """The first mark knows nothing of the size of pods, and must not take a hundred of them."""
    rig = Rig(keys_in_flight=1000, mark_limit=100)
    rig.sink.faults = Faults(hang=True)
    for pod in range(100):
        rig.insert(*range(pod * 250, pod * 250 + 250))
    async with rig.running():
        await rig.until("the worker is full", lambda: rig.worker.machine.keys >= 1000)
        assert rig.worker.machine.keys <= 1000


async def test_a_full_worker_does_not_go_round_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_HELD_UP_PAUSE", 3600.0)
    rig = Rig(keys_in_flight=1)
    rig.sink.faults = Faults(hang=True)
    rounds = _count_waits(rig, monkeypatch)
    async with rig.running():
        rig.insert(1)
        rig.insert(2)
        await rig.until("the worker is full", lambda: rig.sink.sends == 1)
        before = len(rounds)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(rounds) - before <= 2, "rounds in which there was nothing to do"
        rig.sink.faults = Faults()
        await rig.until_empty()


async def test_what_lands_while_a_mark_is_under_way_is_waited_for_without_going_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is purged by the next exchange: until Postgres has answered there is nothing to do."""
    monkeypatch.setattr(pace, "_HELD_UP_PAUSE", 3600.0)
    rig = Rig()
    rig.sink.faults = Faults(mute=True)
    rounds = _count_waits(rig, monkeypatch)
    async with rig.running():
        rig.insert(1)
        await rig.until("it is written, but not answered", lambda: rig.sink.store.log)
        rig.session.on_mark = held_up = asyncio.Event()
        rig.insert(2)
        await asyncio.wait_for(rig.session.marking.wait(), 5)
        rig.sink.faults = Faults()
        await rig.until("the first lands", lambda: rig.worker.machine.has_finished)
        before = len(rounds)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(rounds) - before <= 2, "rounds in which there was nothing to do"
        rig.session.on_mark = None
        held_up.set()
        await rig.until_empty()


async def test_no_round_follows_another_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a round has begun leaves nothing to do before it ends, which wakes the worker."""
    rig = Rig()
    waits = _count_waits(rig, monkeypatch)
    rounds: list[None] = []
    launch = rig.worker._launch

    async def counted() -> bool:
        rounds.append(None)
        return await launch()

    monkeypatch.setattr(rig.worker, "_launch", counted)
    async with rig.running():
        for key in range(5):
            rig.insert(key)
            await rig.until_empty()
        assert 5 <= len(rounds) <= len(waits) + 1


def _count_waits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each wait."""
    rounds: list[None] = []
    wait = rig.poller.wait

    async def counted(*args: object, **options: object) -> None:
        rounds.append(None)
        await wait(*args, **options)  # type: ignore[arg-type] # passed on as they came

    monkeypatch.setattr(rig.poller, "wait", counted)
    return rounds


async def test_a_few_keys_that_are_put_off_hold_nobody_up() -> None:
    """More flights than may be under way have one key each that the sink puts off for an hour."""
    rig = Rig(sends=1)
    rig.deliverer.size.observe(1, 1)
    rig.sink.faults = Faults(retry={(0, key): 3600.0 for key in range(20)})
    async with rig.running():
        for key in range(20):
            rig.insert(key)
            await rig.until("it is put off", lambda count=key + 1: rig.sink.sends == count)
        rig.insert(100)
        await rig.until("the other one is written", lambda: (0, 100) in rig.sink.store.held)


async def test_a_sink_that_puts_everything_off_is_not_given_ever_more() -> None:
    rig = Rig(sends=1, batch_documents=10)
    rig.deliverer.size.observe(1, 1)
    rig.sink.faults = Faults(retry={(0, key): 3600.0 for key in range(1000)})
    async with rig.running():
        rig.insert(*range(1000))
        await rig.until("the worker has enough", lambda: rig.sink.sends == 5)
        for _ in range(200):
            await asyncio.sleep(0)
        assert rig.sink.sends == 5, "one send at a time, and four flights ahead"


async def test_backfill_does_not_keep_other_touches_waiting() -> None:
    rig = Rig(sends=1, batch_documents=10)
    rig.deliverer.size.observe(1, 1)
    for pod in range(20):
        rig.insert(*range(pod * 10, pod * 10 + 10), op="B")
    rig.insert(*range(1000, 1100))
    async with rig.running():
        await rig.until_empty()
    order: list[Any] = [document.id for document in rig.sink.store.log]
    last_incremental = max(place for place, key in enumerate(order) if key >= 1000)
    backfill_before = sum(key < 1000 for key in order[:last_incremental])
    assert backfill_before <= 60, f"{backfill_before} backfill keys went before the last of 100 others"


async def test_a_send_is_kept_free_of_backfill_for_a_touch_that_comes_now() -> None:
    sink = Selective(*range(10))
    rig = Rig(sink, sends=2)
    rig.deliverer.size.observe(1, 1_000_000)
    async with rig.running():
        rig.insert(*range(10), op="B")
        await rig.until("backfill is sent", lambda: sink.sends == 1)
        rig.insert(1000)
        await rig.until("the touch is written", lambda: (0, 1000) in sink.store.held)
        assert sink.sends == 2
        sink.answer(*range(10))
        await rig.until_empty()


async def test_backfill_fills_half_of_the_room_so_that_a_touch_that_comes_now_is_found() -> None:
    sink = Selective(*range(40))
    rig = Rig(sink, sends=2, keys_in_flight=20)
    rig.deliverer.size.observe(1, 1_000_000)
    rig.worker._ids_per_pod = 1.0
    for key in range(40):
        rig.insert(key, op="B")
    async with rig.running():
        waiting = rig.worker.machine.waiting
        await rig.until("there is no more room for it", lambda: waiting(PodClass.BACKFILL) >= 10)
        assert rig.worker.machine.keys <= 12
        rig.insert(1000)
        await rig.until("the touch is written", lambda: (0, 1000) in sink.store.held)
        assert waiting(PodClass.BACKFILL) == 10
        sink.answer(*range(40))
        await rig.until_empty()


async def test_a_delivery_that_has_read_wakes_the_worker_only_where_keys_wait_for_it() -> None:
    rig = Rig(None, None, gate_of(documents=1, requests=1))
    rig.enricher.go.clear()
    async with rig.running():
        rig.insert(1)
        await rig.until("one is read", lambda: rig.enricher.reads)
        assert not rig.deliverer.is_awaited
        rig.insert(2)
        await rig.until("another one waits", lambda: rig.deliverer.is_awaited)
        assert len(rig.enricher.reads) == 1, "no more are read at a time than may be sent"
        rig.enricher.go.set()
        await rig.until_empty()
        assert not rig.deliverer.is_awaited


# --- many keys, a sink that misbehaves ---


async def test_whatever_the_sink_does_every_pod_ends_and_no_key_flies_twice() -> None:
    class Moody(MemorySink):
        """Behaves differently from one call to the next; well in the end."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            moods = (
                Faults(slow=0.001),
                Faults(short=1),
                Faults(fail={batch.documents[0].key}),
                Faults(retry={batch.documents[-1].key: 0.0}),
                Faults(down=True),
            )
            self.faults = moods[self.sends % 5] if self.sends < 200 else Faults()
            return await super().send(batch)

    rig = Rig(Moody(), attempts=50, batch_documents=7)
    async with rig.running():
        for turn in range(60):
            rig.insert(*range(turn % 7, 40, 1 + turn % 5), shard=turn % 3, op="B" if turn % 4 == 0 else "U")
            await asyncio.sleep(0)
        await rig.until_empty()
        assert rig.worker.machine.keys == 0
        assert rig.worker.machine.pods == 0
    assert sorted(rig.tube.purged) == list(range(1, 61))
    assert set(rig.sink.store.values()) == set(rig.enricher.rows)
    for key in rig.enricher.rows:
        tokens = [document.token for document in rig.sink.store.log if document.key == key]
        assert tokens == sorted(tokens), f"writes of {key} were reordered"
