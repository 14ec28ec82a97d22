"""One flight on its way: what each answer of the sink and each trouble of the source come to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pytube.errors import DatabaseUnavailable, FencedBySink
from pytube.events import SinkDown, SinkUp, SourceDown, SourceUp
from pytube.model import Batch, Document, Result, Token
from pytube.pipeline import retry_queue
from pytube.testing.memory import Faults, MemorySink
from tests.helpers.waiting import wait_until_async
from tests.unit.trip import Trip


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)


async def test_a_flight_is_written_and_lands() -> None:
    trip = Trip(1, 2, 3)
    await trip.run()
    assert trip.held == trip.done == [1, 2, 3]
    assert trip.parked == {}


async def test_a_row_that_is_gone_is_deleted() -> None:
    trip = Trip(1, 2)
    del trip.rig.enricher.rows[0, 1]
    await trip.run()
    assert trip.held == [2]
    assert trip.rig.sink.store.held[0, 1].is_delete


async def test_documents_bear_the_stamp_of_their_flight_and_a_token_drawn_before_the_read() -> None:
    trip = Trip(1)
    trip.rig.enricher.go.clear()
    task = trip.start()
    await wait_until_async(lambda: trip.rig.enricher.reads, what="the read begins")
    later = trip.rig.active_term.next_token()
    trip.rig.enricher.go.set()
    await task
    written = trip.rig.sink.store.held[0, 1]
    assert written.seq == 9
    assert written.token < later, "the token was drawn after the read had begun"


async def test_a_flight_is_cut_into_batches() -> None:
    trip = Trip(1, 2, 3, 4, 5, batch_documents=2)
    await trip.run()
    assert trip.rig.sink.sends == 3
    assert trip.done == [1, 2, 3, 4, 5]


# --- what the sink answers ---


async def test_a_batch_that_fails_is_sent_in_halves_and_the_poison_parked_alone() -> None:
    trip = Trip(*range(16))
    trip.rig.sink.faults = Faults(fail={(0, 5)})
    await trip.run()
    assert list(trip.parked) == [5]
    assert "fails on (0, 5)" in trip.parked[5]
    assert trip.done == list(range(16))
    assert trip.held == [key for key in range(16) if key != 5]
    assert trip.rig.emitted(SinkDown) == [], "a poison document is no outage"


async def test_a_rejected_document_is_parked_at_once() -> None:
    trip = Trip(1, 2)
    trip.rig.sink.faults = Faults(reject={(0, 1)})
    await trip.run()
    assert list(trip.parked) == [1]
    assert trip.done == [1, 2]
    assert trip.rig.sink.sends == 1


async def test_a_document_that_is_put_off_is_read_and_sent_again() -> None:
    trip = Trip(1, 2)
    trip.rig.sink.faults = Faults(retry={(0, 1): 0.0})
    task = trip.start()
    await wait_until_async(lambda: trip.rig.sink.sends > trip.rig.limits.attempts + 2, what="sent again")
    assert trip.done == [2]
    trip.rig.sink.faults = Faults()
    await task
    assert trip.done == [1, 2]
    assert trip.parked == {}, "being put off uses up no attempt"
    assert len(trip.rig.enricher.reads) == trip.rig.sink.sends, "each time it is read anew"


async def test_a_sink_that_answers_short_is_at_fault_with_each_document() -> None:
    trip = Trip(1, 2)
    trip.rig.sink.faults = Faults(short=1)
    await trip.run()
    assert sorted(trip.parked) == [1, 2]
    assert "SinkContract" in trip.parked[1]


async def test_a_newer_write_of_our_own_epoch_is_of_a_term_that_had_it_before_and_ends_ours() -> None:
    trip = Trip(1, sink=MemorySink(compares=True))
    trip.rig.sink.store.held[0, 1] = Document(0, 1, b"{}", Token(100, 1000), 99)
    with pytest.raises(FencedBySink):
        await trip.run()
    assert trip.done == []


async def test_a_write_of_a_later_term_ends_ours_and_nothing_lands() -> None:
    trip = Trip(1, 2, sink=MemorySink(compares=True))
    trip.rig.sink.store.held[0, 2] = Document(0, 2, b"{}", Token(101, 1), 99)
    with pytest.raises(FencedBySink) as caught:
        await trip.run()
    assert caught.value.newer == Token(101, 1)
    assert trip.done == []


async def test_a_sink_that_is_down_is_waited_for_and_nothing_is_parked() -> None:
    trip = Trip(1, 2)
    await trip.rig.sink.open()
    trip.rig.sink.faults = Faults(down=True)
    task = asyncio.create_task(trip.delivery.run())
    await wait_until_async(lambda: trip.rig.sink.sends > trip.rig.limits.attempts + 2, what="probes")
    trip.rig.sink.faults = Faults()
    await asyncio.wait_for(task, 5)
    assert trip.done == [1, 2]
    assert trip.parked == {}
    assert (len(trip.rig.emitted(SinkDown)), len(trip.rig.emitted(SinkUp))) == (1, 1)


async def test_a_sink_that_fails_every_document_is_held_to_be_down() -> None:
    trip = Trip(*range(200), attempts=1, batch_documents=200)
    trip.rig.sink.faults = Faults(fail={(0, key) for key in range(200)})
    task = trip.start()
    await wait_until_async(lambda: trip.rig.emitted(SinkDown), what="the sink is held to be down")
    trip.rig.sink.faults = Faults()
    await asyncio.wait_for(task, 5)
    assert len(trip.parked) == 100
    assert trip.done == list(range(200))


# --- what the source says ---


async def test_a_source_that_cannot_be_read_is_waited_for() -> None:
    trip = Trip(1, 2)
    trip.rig.enricher.failing = "permission denied"
    task = trip.start()
    await wait_until_async(lambda: len(trip.rig.enricher.reads) > 4, what="it is read again")
    assert trip.rig.sink.sends == 0
    trip.rig.enricher.failing = None
    await asyncio.wait_for(task, 5)
    assert trip.done == [1, 2]
    assert trip.parked == {}
    assert [event.reason for event in trip.rig.emitted(SourceDown)] == ["permission denied"]
    assert len(trip.rig.emitted(SourceUp)) == 1


async def test_a_read_that_takes_too_long_is_tried_with_fewer_rows() -> None:
    trip = Trip(*range(8))
    trip.rig.enricher.most = 2
    await trip.run()
    assert trip.held == list(range(8))
    assert trip.parked == {}
    assert sorted(len(ids) for _, ids in trip.rig.enricher.reads) == [2, 2, 2, 2, 4, 4, 8]


async def test_a_row_that_always_takes_too_long_is_parked_while_others_are_read() -> None:
    trip = Trip(*range(8), attempts=2)
    trip.rig.enricher.slow = {(0, 6)}
    async with asyncio.timeout(5):
        task = trip.start()
        while not task.done():
            trip.rig.carrier.breakers.source.succeed()  # reads of other flights
            await asyncio.sleep(0)
        await task
    assert trip.parked == {6: "the fake source took too long"}
    assert trip.held == [0, 1, 2, 3, 4, 5, 7]


async def test_a_row_that_is_never_read_in_time_is_not_parked_while_nothing_is() -> None:
    trip = Trip(1, attempts=1)
    trip.rig.enricher.slow = {(0, 1)}
    task = trip.start()
    await wait_until_async(lambda: len(trip.rig.enricher.reads) > 3, what="it was tried again")
    assert trip.parked == {}
    assert len(trip.rig.emitted(SourceDown)) == 1
    trip.rig.enricher.slow = set()
    await task
    assert trip.held == [1]


async def test_a_row_whose_data_break_the_query_is_parked_alone() -> None:
    trip = Trip(*range(8))
    trip.rig.enricher.bad = {(0, 6)}
    await trip.run()
    assert trip.parked == {6: "the row 6 is broken"}
    assert trip.held == [0, 1, 2, 3, 4, 5, 7]
    assert trip.rig.emitted(SourceDown) == []


async def test_rows_that_all_break_the_query_are_not_read_without_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trip = Trip(1, attempts=1)
    trip.rig.carrier.parked_in_a_row = 1000
    trip.rig.enricher.bad = {(0, 1)}
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 3600.0)
    monkeypatch.setattr(retry_queue, "_LONGEST_DELAY", 3600.0)
    task = trip.start()
    await wait_until_async(lambda: trip.rig.emitted(SinkDown), what="too many failed in a row")
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(trip.rig.enricher.reads) == 1, "it is read again and again without a pause"
    assert trip.delivery.backing_off
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_ids_of_no_table_are_parked() -> None:
    trip = Trip(1, 2)
    trip.rig.enricher.orphans = {(0, 1)}
    await trip.run()
    assert trip.held == [2]
    assert trip.done == [1, 2]
    assert "no table attached to tube 't' has shard 0" in trip.parked[1]


async def test_a_connection_that_is_lost_ends_the_delivery_and_leaves_its_probe_to_others() -> None:
    trip = Trip(1)
    trip.rig.enricher.lost = True
    breaker = trip.rig.carrier.breakers.source
    breaker.fail("down")
    with pytest.raises(DatabaseUnavailable):
        await trip.run()
    await asyncio.wait_for(breaker.acquire(), 5)
    assert trip.done == []


# --- trust, and the end of the worker ---


async def test_nothing_is_sent_when_trust_lapses_between_the_read_and_the_send() -> None:
    trip = Trip(1)
    trip.rig.enricher.go.clear()
    task = trip.start()
    await wait_until_async(lambda: trip.rig.enricher.reads, what="the read begins")
    trip.rig.claim.proof = float("-inf")
    trip.rig.enricher.go.set()
    await wait_until_async(lambda: trip.rig.events, what="the lapse is told")
    assert trip.rig.sink.sends == 0
    trip.rig.claim.proof = float("inf")
    await asyncio.wait_for(task, 5)
    assert len(trip.rig.enricher.reads) == 2, "what was read before the lapse was sent after it"
    assert [type(event).__name__ for event in trip.rig.events] == ["TrustLapsed", "LeaderRefreshed"]


async def test_the_sink_is_told_until_when_it_may_begin_to_write() -> None:
    seen: list[float] = []

    class Watching(MemorySink):
        async def send(self, batch: Batch) -> Sequence[Result]:
            seen.append(batch.send_before)
            return await super().send(batch)

    trip = Trip(1, sink=Watching())
    await trip.run()
    assert seen == [pytest.approx(trip.rig.active_term.trusted_until(), abs=0.05)]


async def test_a_worker_that_closes_begins_no_further_batch() -> None:
    trip = Trip(1, 2, 3, batch_documents=1)
    trip.rig.sink.faults = Faults(hang=True)
    task = trip.start()
    await wait_until_async(lambda: trip.delivery.sending, what="the first batch is sent")
    trip.rig.carrier.closing = True
    trip.rig.sink.faults = Faults()
    await asyncio.wait_for(task, 5)
    assert trip.rig.sink.sends == 1
    assert trip.done == [1]
