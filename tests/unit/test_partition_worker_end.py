"""The end of a worker: sends finish, the rest is given back, and nothing is written too late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pytube.errors import Fenced, FencedBySink
from pytube.model import Batch, Document, Result, Token
from pytube.pipeline import retry_queue
from pytube.pipeline.batches import BatchSize
from pytube.testing.memory import Faults, MemorySink
from pytube.worker import pace
from tests.unit.rig import Rig


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short back-offs; a worker that sleeps is woken by writers only."""
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)
    monkeypatch.setattr(pace, "_DEEP_PAUSE", 3600.0)


class StuckSink(MemorySink):
    """Its abandoned writes never end."""

    async def abandon(self, batch: Batch) -> None:
        del batch
        await asyncio.Event().wait()


async def _stopped(rig: Rig) -> None:
    rig.claim.revoke()
    assert rig.task is not None
    await asyncio.wait_for(rig.task, 5)


async def test_a_drain_lets_sends_finish_and_gives_back_the_rest() -> None:
    rig = Rig(sends=1, batch_documents=1)
    rig.deliverer.size.observe(1, 1)
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        seqs = [rig.insert(key) for key in range(5)]
        await rig.until("one is sent, the others wait", lambda: len(rig.tube.marked) == 5 and rig.sink.sends)
        await _stopped(rig)
        drain = asyncio.create_task(rig.worker.drain(5.0))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not drain.done(), "the send under way is not waited for"
        rig.sink.faults = Faults()
        await asyncio.wait_for(drain, 5)
        assert rig.sink.sends == 1, "a drain begins no send"
        assert rig.tube.purged == seqs[:1]
        assert (list(rig.tube.pods), rig.tube.marked, rig.tube.resets) == (seqs[1:], set(), 1)
        assert not rig.active_term.unanswered


async def test_a_drain_cuts_off_what_takes_too_long_and_gives_it_back() -> None:
    rig = Rig()
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        seq = rig.insert(1)
        await rig.until("it is sent", lambda: rig.sink.sends)
        await _stopped(rig)
        await asyncio.wait_for(rig.worker.drain(0.01), 5)
        assert (list(rig.tube.pods), rig.tube.purged, rig.tube.resets) == ([seq], [], 1)
        assert not rig.active_term.unanswered, "the sink said that the write can't come late"


async def test_after_a_drain_it_is_known_that_a_write_may_still_come() -> None:
    """The worker must not release the term then."""
    rig = Rig(StuckSink(), request_timeout=0.05)
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        rig.insert(1)
        await rig.until("it is sent", lambda: rig.sink.sends)
        await _stopped(rig)
        await asyncio.wait_for(rig.worker.drain(0.01), 5)
        assert len(rig.active_term.unanswered) == 1


async def test_a_drain_that_finds_a_later_term_at_the_sink_purges_nothing() -> None:
    rig = Rig(MemorySink(compares=True), batch_documents=1)
    rig.deliverer.size.observe(1, 1)
    rig.sink.store.held[0, 1] = Document(0, 1, b"{}", Token(200, 1), 99)
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        rig.insert(1)
        rig.insert(2)
        await rig.until("both are sent", lambda: rig.sink.sends == 2)
        await _stopped(rig)
        drain = asyncio.create_task(rig.worker.drain(5.0))
        for _ in range(20):
            await asyncio.sleep(0)
        rig.sink.faults = Faults()
        with pytest.raises(FencedBySink):
            await asyncio.wait_for(drain, 5)
    assert (rig.tube.purged, rig.tube.resets) == ([], 0)


async def test_a_drain_of_a_term_that_is_over_writes_nothing() -> None:
    rig = Rig()
    async with rig.running():
        rig.sink.faults = Faults(hang=True)
        rig.insert(1)
        await rig.until("it is sent", lambda: rig.sink.sends)
        await _stopped(rig)
        rig.tube.leader_id = None
        rig.sink.faults = Faults()
        with pytest.raises(Fenced):
            await asyncio.wait_for(rig.worker.drain(5.0), 5)
    assert (rig.tube.purged, rig.tube.resets) == ([], 0)


async def test_a_worker_whose_claim_is_revoked_in_a_mark_gives_back_what_it_took() -> None:
    rig = Rig()
    rig.session.on_mark = asyncio.Event()
    async with rig.running():
        seq = rig.insert(1)
        await asyncio.wait_for(rig.session.marking.wait(), 5)
        rig.claim.revoke()
        rig.session.on_mark.set()
        await _stopped(rig)
        await asyncio.wait_for(rig.worker.drain(5.0), 5)
        assert rig.tube.marked == set()
        assert list(rig.tube.pods) + rig.tube.purged == [seq]


async def test_a_worker_that_the_sink_fences_in_a_mark_writes_nothing() -> None:
    """What the mark took stays marked, for the next term to take over."""
    rig = Rig(MemorySink(compares=True))
    rig.sink.store.held[0, 1] = Document(0, 1, b"{}", Token(200, 1), 99)
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        first = rig.insert(1)
        await rig.until("it is sent", lambda: rig.sink.sends)
        rig.session.on_mark = asyncio.Event()
        second = rig.insert(2)
        await asyncio.wait_for(rig.session.marking.wait(), 5)
        rig.sink.faults = Faults()
        assert isinstance(await rig.until_it_ends(), FencedBySink)
        await rig.worker.abort(is_over=False)
    assert (rig.tube.purged, rig.tube.resets, rig.tube.marked) == ([], 0, {first, second})


async def test_a_worker_whose_term_is_over_does_not_wait_for_late_writes() -> None:
    """Nobody releases the term, so nobody gains by it; the next leader waits until they have timed out."""
    rig = Rig(StuckSink(), request_timeout=3600.0)
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        rig.insert(1)
        await rig.until("it is sent", lambda: rig.sink.sends)
        rig.active_term.end(Fenced("another term has begun"))
        assert isinstance(await rig.until_it_ends(), Fenced)
        await asyncio.wait_for(rig.worker.abort(is_over=True), 5)
        assert len(rig.active_term.unanswered) == 1
        rig.active_term.unanswered.clear()


@pytest.mark.parametrize("waits", ["at the gate", "for its answer"])
async def test_a_drain_keeps_what_was_acknowledged_of_a_delivery_that_it_cuts_off(waits: str) -> None:
    """A part of a flight that the sink has is not sent again, whatever becomes of the next part."""

    class HangsAtTheSecond(MemorySink):
        async def send(self, batch: Batch) -> Sequence[Result]:
            if self.sends == 1 and waits == "for its answer":
                self.faults = Faults(hang=True)
            return await super().send(batch)

    rig = Rig(HangsAtTheSecond(), batch_bytes=1)
    gate = rig.served.gate
    rig.deliverer.size = BatchSize(2, 1_000_000)
    rig.deliverer.size.observe(2, 2)
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        for key in (1, 2):
            rig.enricher.rows[0, key] = b"{}"
            rig.tube.insert(key)
        rig.active_term.wake()
        await rig.until("the first part is sent", lambda: rig.sink.sends == 1)
        if waits == "at the gate":
            gate.control.requests = 0
            rig.sink.faults = Faults()
            await rig.until("the second part waits", lambda: gate.waiting)
        else:
            rig.sink.faults = Faults()
            await rig.until("the second part is sent", lambda: rig.sink.sends == 2)
        await _stopped(rig)
        await asyncio.wait_for(rig.worker.drain(0.01), 5)
    assert rig.tube.purged == [1]
    assert (list(rig.tube.pods), rig.tube.marked) == ([2], set())
