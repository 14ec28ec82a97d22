"""Sends whose outcome is not known: nothing of them may come late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pytube.errors import SinkTimeout
from pytube.events import SinkDown, SinkUp
from pytube.model import Batch, Result, Token
from pytube.pipeline import retry_queue
from pytube.testing.memory import Faults, MemorySink
from tests.helpers.waiting import wait_until_async
from tests.unit.trip import AbandoningSink, Trip


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)


async def test_a_send_without_an_answer_is_abandoned_before_it_is_sent_again() -> None:
    sink = AbandoningSink()
    sink.may_return.clear()
    trip = Trip(1, sink=sink, request_timeout=0.02)
    sink.faults = Faults(mute=True)
    task = trip.start()
    await wait_until_async(lambda: sink.abandoned, what="it is abandoned")
    assert trip.rig.active_term.unanswered, "while that lasts, the term must not be released"
    assert sink.sends == 1
    sink.faults = Faults()
    sink.may_return.set()
    await asyncio.wait_for(task, 5)
    assert not trip.rig.active_term.unanswered
    assert trip.done == [1]
    tokens = [document.token for document in sink.store.log]
    assert tokens == sorted(set(tokens)), "it was not sent under a new token"
    assert len(trip.rig.enricher.reads) == 2, "it was not read anew"
    assert (len(trip.rig.emitted(SinkDown)), len(trip.rig.emitted(SinkUp))) == (1, 1)


async def test_a_document_that_only_the_sink_times_out_on_is_parked_in_the_end() -> None:
    class Choking(MemorySink):
        """Answers everything but batches with the key 3."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            if any(document.id == 3 for document in batch):
                await asyncio.sleep(0)
                trip.rig.carrier.breakers.sink.succeed()  # as if others had been answered meanwhile
                raise SinkTimeout("no answer")
            return await super().send(batch)

    trip = Trip(1, 2, 3, 4, sink=Choking())
    await trip.run()
    assert trip.parked == {3: "no answer"}
    assert trip.held == [1, 2, 4]


async def test_a_document_that_the_sink_times_out_on_holds_up_itself_alone() -> None:
    """Nothing else is sent, so it looks as if the sink were down."""

    class Choking(MemorySink):
        """Answers everything but batches with the key 3."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            if any(document.id == 3 for document in batch):
                raise SinkTimeout("no answer")
            return await super().send(batch)

    trip = Trip(1, 2, 3, 4, sink=Choking())
    task = trip.start()
    await wait_until_async(lambda: trip.held == [1, 2, 4], what="the others are written")
    assert trip.parked == {}, "the sink may be at fault, not the document"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_sink_that_cancels_its_own_call_is_unknown_not_the_end() -> None:
    class Giving(AbandoningSink):
        """Gives its first call up, as a client does that was closed beneath."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            if not self.abandoned:
                raise asyncio.CancelledError
            return await super().send(batch)

    sink = Giving()
    trip = Trip(1, sink=sink)
    await trip.run()
    assert len(sink.abandoned) == 1
    assert trip.done == [1]


async def test_a_send_that_is_cancelled_is_in_the_air_until_it_is_abandoned() -> None:
    sink = AbandoningSink()
    trip = Trip(1, sink=sink)
    sink.faults = Faults(hang=True)
    task = trip.start()
    await wait_until_async(lambda: trip.delivery.sending, what="it is sent")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(trip.rig.active_term.unanswered) == 1
    assert not trip.delivery.sending
    await trip.rig.carrier.wait_for_unanswered()
    assert not trip.rig.active_term.unanswered


async def test_a_write_that_never_ends_stays_in_the_air() -> None:
    sink = AbandoningSink()
    sink.may_return.clear()
    trip = Trip(1, sink=sink, request_timeout=0.02)
    batch = Batch("t", 0, Token(100, 1), [])
    trip.rig.active_term.unanswered.add(batch)
    await trip.rig.carrier.wait_for_unanswered()
    assert trip.rig.active_term.unanswered == {batch}
