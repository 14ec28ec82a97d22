"""One attempt to deliver: what each answer of the sink and each trouble of the source come to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

from pytube.errors import FencedBySink, SinkTimeout, SinkUnavailable
from pytube.events import SinkDown, SinkUp, SourceDown
from pytube.model import Batch, Document, Key, PodClass, Result, Token
from pytube.pipeline import retry_queue
from pytube.pipeline.batches import keys_of
from pytube.testing.memory import Faults, MemorySink
from pytube.worker.delivery import Outcome
from tests.helpers.logs import capture_logs
from tests.helpers.waiting import wait_until_async
from tests.unit.trip import AbandoningSink, Trip, done


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)


def places(outcome: Outcome) -> list[Key]:
    """The keys of an outcome, once for each place that they are in."""
    groups = [key for keys in (*outcome.unsure, *outcome.unsent) for key in keys]
    failed = [key for keys, _ in outcome.failed for key in keys]
    finished = [key for ids in outcome.done for key in keys_of(ids)]
    return sorted([*groups, *failed, *finished, *outcome.delayed, *outcome.rejected, *outcome.orphans])


async def test_keys_are_read_and_written() -> None:
    trip = Trip(1, 2, 3)
    outcome = await trip.run()
    assert trip.held == done(outcome) == [1, 2, 3]
    assert outcome == Outcome(trip.flight, done=outcome.done)


async def test_a_row_that_is_gone_is_deleted() -> None:
    trip = Trip(1, 2)
    del trip.rig.enricher.rows[0, 1]
    assert done(await trip.run()) == [1, 2]
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


@pytest.mark.parametrize(("op", "urgent"), [("U", True), ("B", False)])
async def test_rows_of_a_backfill_let_other_reads_go_first(op: str, urgent: bool) -> None:
    trip = Trip(1, op=op)
    await trip.run()
    assert trip.rig.enricher.urgent == [urgent]


async def test_keys_are_cut_into_batches() -> None:
    trip = Trip(1, 2, 3, 4, 5, batch_documents=2)
    outcome = await trip.run()
    assert trip.rig.sink.sends == 3
    assert [list(groups[0]) for groups in outcome.done] == [[1, 2], [3, 4], [5]]


# --- what the sink answers ---


async def test_an_outcome_has_each_key_in_one_place_whatever_was_answered() -> None:
    """Of eight keys one has no table, one is put off, two are rejected, and two fail with their batch."""
    trip = Trip(*range(8), batch_documents=5)
    trip.rig.enricher.orphans = {(0, 0)}
    trip.rig.sink.faults = Faults(retry={(0, 1): 7.0}, reject={(0, 2), (0, 3)}, fail={(0, 6)})
    outcome = await trip.run()
    assert outcome.orphans == [(0, 0)]
    assert outcome.delayed == {(0, 1): 7.0}
    assert outcome.rejected == {(0, 2): "memory: rejects (0, 2)", (0, 3): "memory: rejects (0, 3)"}
    assert done(outcome) == [4, 5]
    ((failed, reason),) = outcome.failed
    assert (failed, "fails on (0, 6)" in reason) == ([(0, 6), (0, 7)], True)
    assert (outcome.unsure, outcome.unsent) == ([], [])
    assert places(outcome) == [(0, key) for key in range(8)]
    assert trip.rig.emitted(SinkDown) == [], "a poison document is no outage"


async def test_a_sink_that_answers_short_is_at_fault_with_its_batch() -> None:
    trip = Trip(1, 2)
    trip.rig.sink.faults = Faults(short=1)
    outcome = await trip.run()
    ((failed, reason),) = outcome.failed
    assert (failed, "SinkContract" in reason) == ([(0, 1), (0, 2)], True)
    assert outcome.done == []


@pytest.mark.parametrize("newer", [Token(100, 1000), Token(101, 1)], ids=["our epoch", "a later one"])
async def test_a_newer_write_at_the_sink_is_of_another_term_and_ends_ours(newer: Token) -> None:
    """One of our epoch comes from a database that had issued it before: it was restored."""
    trip = Trip(1, 2, sink=MemorySink(compares=True))
    trip.rig.sink.store.held[0, 2] = Document(0, 2, b"{}", newer, 99)
    with pytest.raises(FencedBySink) as caught:
        await trip.run()
    assert caught.value.newer == newer


async def test_a_sink_that_is_down_gets_nothing_and_opens_the_circuit() -> None:
    trip = Trip(1, 2)
    await trip.rig.sink.open()
    trip.rig.sink.faults = Faults(down=True)
    outcome = await trip.rig.deliverer.deliver(trip.flight, trip.flight.by_shard())
    assert outcome == Outcome(trip.flight, unsent=[[(0, 1), (0, 2)]])
    assert not trip.rig.deliverer.sink_breaker.is_closed


async def test_renewals_tell_the_latest_reason_of_an_outage_and_its_event_is_told_once() -> None:
    reasons = ["connection refused", "HTTP 401", "certificate has expired"]

    class Down(MemorySink):
        async def send(self, batch: Batch) -> Sequence[Result]:
            raise SinkUnavailable(reasons.pop(0)) if len(batch) else AssertionError

    trip = Trip(1, sink=Down())
    troubles = trip.rig.active_term.troubles
    earliest, latest = float("-inf"), float("inf")
    while reasons:
        reason = reasons[0]
        await trip.rig.deliverer.deliver(trip.flight, trip.flight.by_shard())
        assert troubles.reason("sink") == reason
        before = time.monotonic()
        seconds = troubles.as_json()["sink"]["seconds"]
        earliest, latest = max(earliest, before - seconds), min(latest, time.monotonic() - seconds)
    assert earliest <= latest + 0.001, "the outage began with its first failure"
    assert [event.reason for event in trip.rig.emitted(SinkDown)] == ["connection refused"]


async def test_what_was_answered_is_not_kept_back_by_a_circuit_that_opened_since() -> None:
    """The rest of the delivery would wait for as long as the sink is down, and its answers with it."""

    class GoesDown(MemorySink):
        """Answers its first batch, and none after it."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            results = await super().send(batch)
            self.faults = Faults(down=True)
            return results

    trip = Trip(1, 2, 3, 4, sink=GoesDown(), batch_documents=1)
    outcome = await trip.run()
    assert done(outcome) == [1]
    assert outcome.unsent == [[(0, 2)], [(0, 3)], [(0, 4)]]
    assert trip.rig.sink.sends == 2, "it asks a sink that is down"
    assert places(outcome) == [(0, key) for key in (1, 2, 3, 4)]


async def test_the_first_batch_probes_a_circuit_that_is_open() -> None:
    trip = Trip(1)
    trip.rig.deliverer.sink_breaker.fail("down")
    assert done(await trip.run()) == [1]
    assert len(trip.rig.emitted(SinkUp)) == 1


async def test_a_sink_that_is_sent_to_in_vain_lets_no_more_than_its_sends_through() -> None:
    trip = Trip(1, sends=2)
    trip.rig.sink.faults = Faults(hang=True)
    tasks = [trip.start() for _ in range(5)]
    await wait_until_async(lambda: trip.rig.sink.sends == 2, what="two are sent")
    for _ in range(100):
        await asyncio.sleep(0)
    assert trip.rig.sink.sends == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- what the source says ---


async def test_rows_that_are_refused_are_read_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever grants the missing right waits for it; a database that is away is asked less often."""
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 30.0)

    async def pause(*, lost: bool) -> float:
        trip = Trip(1)
        trip.rig.enricher.failing, trip.rig.enricher.lost = "permission denied", lost
        await trip.run()
        breaker = trip.rig.deliverer.source_breaker
        return breaker.next_probe - breaker.failed_at

    assert await pause(lost=False) <= 5.0
    assert await pause(lost=True) >= 20.0


async def test_a_source_that_cannot_be_read_opens_its_circuit_and_nothing_is_sent() -> None:
    trip = Trip(1, 2)
    trip.rig.enricher.failing = "permission denied"
    assert await trip.run() == Outcome(trip.flight, unsent=[[(0, 1), (0, 2)]])
    assert trip.rig.sink.sends == 0
    assert [event.reason for event in trip.rig.emitted(SourceDown)] == ["permission denied"]


async def test_rows_whose_data_break_the_query_are_at_fault_not_the_source() -> None:
    trip = Trip(1, 2)
    trip.rig.enricher.bad = {(0, 2)}
    outcome = await trip.run()
    assert outcome == Outcome(trip.flight, failed=[([(0, 1), (0, 2)], "the row 2 is broken")])
    assert trip.rig.emitted(SourceDown) == []


async def test_a_read_that_takes_too_long_says_nothing_of_its_rows_while_no_other_succeeds() -> None:
    trip = Trip(1, 2)
    trip.rig.enricher.most = 1
    assert await trip.run() == Outcome(trip.flight, unsure=[[(0, 1), (0, 2)]])
    assert len(trip.rig.emitted(SourceDown)) == 1


async def test_a_read_that_takes_too_long_is_at_fault_if_others_succeeded_since() -> None:
    trip = Trip(1, 2)
    trip.rig.enricher.go.clear()
    trip.rig.enricher.most = 1
    task = trip.start()
    await wait_until_async(lambda: trip.rig.enricher.reads, what="the read begins")
    trip.rig.deliverer.source_breaker.succeed()  # a read of another delivery
    trip.rig.enricher.go.set()
    outcome = await task
    assert outcome == Outcome(trip.flight, failed=[([(0, 1), (0, 2)], "the fake source took too long")])
    assert trip.rig.emitted(SourceDown) == []


async def test_a_read_that_took_too_long_once_says_nothing_of_other_rows_when_the_source_is_slow_again() -> (
    None
):
    """Their attempts would be used up by an outage, if only because there was one before."""
    trip, later = Trip(1), Trip(2)
    trip.rig.enricher.most = 0
    assert (await trip.run()).unsure == [[(0, 1)]]
    trip.rig.enricher.most = 1
    assert done(await trip.run()) == [1]
    trip.rig.enricher.most = 0
    outcome = await trip.rig.deliverer.deliver(later.flight, later.flight.by_shard())
    assert outcome == Outcome(later.flight, unsure=[[(0, 2)]])


async def test_rows_that_take_too_long_again_are_at_fault_if_others_succeeded_in_between() -> None:
    trip = Trip(1)
    trip.rig.enricher.most = 0
    assert (await trip.run()).unsure == [[(0, 1)]]
    trip.rig.deliverer.source_breaker.succeed()  # a read of another delivery
    assert (await trip.run()).failed == [([(0, 1)], "the fake source took too long")]


async def test_a_connection_that_is_lost_in_a_read_sends_nothing_and_the_term_goes_on() -> None:
    """Unlike a mark, a read can be done again: nothing may be marked that nobody works on."""
    trip = Trip(1, 2)
    trip.rig.enricher.lost = True
    assert await trip.run() == Outcome(trip.flight, unsent=[[(0, 1), (0, 2)]])
    assert trip.rig.active_term.stop is None
    assert [event.reason for event in trip.rig.emitted(SourceDown)] == ["the fake source is down"]
    trip.rig.enricher.lost = False
    assert done(await trip.run()) == [1, 2]


async def test_what_does_not_probe_reads_nothing_while_the_sink_is_down() -> None:
    """What it read now would be old when it may be sent."""
    trip = Trip(1)
    trip.rig.deliverer.sink_breaker.fail("down")
    outcome = await trip.rig.deliverer.deliver(trip.flight, trip.flight.by_shard(), probes=False)
    assert outcome == Outcome(trip.flight, unsent=[[(0, 1)]])
    assert trip.rig.enricher.reads == []


async def test_what_was_read_when_the_sink_went_down_is_not_sent_and_does_not_wait() -> None:
    trip = Trip(1)
    trip.rig.enricher.go.clear()
    delivery = trip.rig.deliverer.deliver(trip.flight, trip.flight.by_shard(), probes=False)
    task = asyncio.create_task(delivery)
    await wait_until_async(lambda: trip.rig.enricher.reads, what="the read begins")
    trip.rig.deliverer.sink_breaker.fail("down")
    trip.rig.enricher.go.set()
    assert await asyncio.wait_for(task, 5) == Outcome(trip.flight, unsent=[[(0, 1)]])
    assert trip.rig.sink.sends == 0


# --- trust, and the end of the worker ---


async def test_nothing_is_sent_when_trust_lapses_between_the_read_and_the_send() -> None:
    trip = Trip(1)
    trip.rig.enricher.go.clear()
    task = trip.start()
    await wait_until_async(lambda: trip.rig.enricher.reads, what="the read begins")
    trip.rig.active_term._renewed_at = float("-inf")
    trip.rig.enricher.go.set()
    assert await task == Outcome(trip.flight, unsent=[[(0, 1)]])
    assert trip.rig.sink.sends == 0


class AfterWait(MemorySink):
    """Waits for a server until the right to begin the write is over, and refuses."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    async def send(self, batch: Batch) -> Sequence[Result]:
        batch.send_before = float("-inf")
        self._meanwhile()
        raise SinkUnavailable("no connection within 5 s")


async def test_a_sink_that_refuses_because_trust_has_lapsed_is_not_down() -> None:
    def lapse() -> None:
        trip.rig.active_term._renewed_at = float("-inf")

    trip = Trip(1, sink=AfterWait(lapse))
    assert await trip.run() == Outcome(trip.flight, unsent=[[(0, 1)]])
    assert trip.rig.emitted(SinkDown) == []
    assert trip.rig.deliverer.sink_breaker.is_closed


async def test_a_sink_that_is_waited_for_until_the_batch_has_lapsed_is_down() -> None:
    """A connection to a host that drops packets may be waited for as long; renewals go on meanwhile."""
    trip = Trip(1, sink=AfterWait())
    await trip.rig.sink.open()
    outcome = await trip.rig.deliverer.deliver(trip.flight, trip.flight.by_shard())
    assert outcome == Outcome(trip.flight, unsent=[[(0, 1)]])
    assert [event.reason for event in trip.rig.emitted(SinkDown)] == ["no connection within 5 s"]
    assert not trip.rig.deliverer.sink_breaker.is_closed


async def test_nothing_is_read_without_trust() -> None:
    trip = Trip(1)
    trip.rig.active_term._renewed_at = float("-inf")
    task = trip.start()
    await wait_until_async(lambda: trip.rig.events, what="the lapse is told")
    assert trip.rig.enricher.reads == []
    trip.rig.active_term._renewed_at = float("inf")
    assert done(await asyncio.wait_for(task, 5)) == [1]
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


async def test_a_delivery_whose_claim_is_revoked_begins_no_further_batch() -> None:
    trip = Trip(1, 2, 3, batch_documents=1)
    trip.rig.sink.faults = Faults(hang=True)
    task = trip.start()
    await wait_until_async(lambda: trip.rig.deliverer.sending, what="the first batch is sent")
    trip.rig.claim.revoke()
    trip.rig.sink.faults = Faults()
    outcome = await asyncio.wait_for(task, 5)
    assert trip.rig.sink.sends == 1
    assert done(outcome) == [1]
    assert outcome.unsent == [[(0, 2)], [(0, 3)]]


# --- sends whose effect is not known: nothing of them may come late ---


async def test_a_send_without_an_answer_is_abandoned_before_its_delivery_ends() -> None:
    sink = AbandoningSink()
    sink.may_return.clear()
    trip = Trip(1, sink=sink, request_timeout=0.02)
    sink.faults = Faults(mute=True)
    task = trip.start()
    await wait_until_async(lambda: sink.abandoned or task.done(), what="it is abandoned")
    assert not task.done()
    assert trip.rig.active_term.unanswered, "while that lasts, the term must not be released"
    sink.may_return.set()
    assert await asyncio.wait_for(task, 5) == Outcome(trip.flight, unsure=[[(0, 1)]])
    assert not trip.rig.active_term.unanswered
    assert len(trip.rig.emitted(SinkDown)) == 1


class Choking(MemorySink):
    """Answers others meanwhile, and then not this one."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.meanwhile = meanwhile

    async def send(self, batch: Batch) -> Sequence[Result]:
        del batch
        await self.meanwhile()
        raise SinkTimeout("no answer")


async def send_another(trip: Trip) -> None:
    """A request of another partition, which is answered at once."""
    gate = trip.rig.served.gate
    gate.note_answer(await gate.enter(PodClass.INCREMENTAL, 100), put_off=0)
    gate.leave()


async def test_a_document_that_alone_is_not_answered_is_at_fault() -> None:
    trip = Trip(1, sink=Choking(lambda: send_another(trip)))
    assert await trip.run() == Outcome(trip.flight, failed=[([(0, 1)], "no answer")])
    assert trip.rig.emitted(SinkDown) == []


async def test_documents_that_together_are_not_answered_are_sent_apart_and_not_at_fault() -> None:
    trip = Trip(1, 2, sink=Choking(lambda: send_another(trip)))
    assert await trip.run() == Outcome(trip.flight, unsure=[[(0, 1), (0, 2)]])
    assert trip.rig.emitted(SinkDown) == []


async def test_a_batch_that_is_not_answered_in_time_is_no_outage() -> None:
    trip = Trip(1, 2, request_timeout=0.02)
    trip.rig.sink.faults = Faults(hang=True)
    assert await trip.run() == Outcome(trip.flight, unsure=[[(0, 1), (0, 2)]])
    assert trip.rig.emitted(SinkDown) == []
    assert trip.rig.served.gate.control.documents == 1
    assert await trip.run() == Outcome(trip.flight, unsure=[[(0, 1)]], unsent=[[(0, 2)]])
    assert len(trip.rig.emitted(SinkDown)) == 1, "not even a single document is answered"


@pytest.mark.parametrize("keys", [1, 2])
async def test_a_worker_that_stood_still_past_its_trust_does_not_blame_the_sink(keys: int) -> None:
    class Still(AbandoningSink):
        """Is answered, and the worker stands still for longer than its trust lasts."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            trip.rig.active_term._renewed_at = float("-inf")
            return await super().send(batch)

    sink = Still()
    trip = Trip(*range(keys), sink=sink, request_timeout=0.02)
    sink.faults = Faults(hang=True)
    control = trip.rig.served.gate.control
    before = control.documents, control.requests
    assert await trip.run() == Outcome(trip.flight, unsure=[[(0, key) for key in range(keys)]])
    assert len(sink.abandoned) == 1, "the write may have taken effect"
    assert not trip.rig.active_term.unanswered
    assert trip.rig.emitted(SinkDown) == []
    assert (control.documents, control.requests) == before, "they are those of all partitions"
    assert control.slow is None


async def test_a_sink_that_is_slower_than_trust_lasts_is_slow_all_the_same() -> None:
    """Renewals go on meanwhile, so the term is trusted, though its batch has lapsed."""

    class Slow(MemorySink):
        async def send(self, batch: Batch) -> Sequence[Result]:
            batch.send_before = float("-inf")
            return await asyncio.Future()

    trip = Trip(1, 2, sink=Slow(), request_timeout=0.02)
    assert await trip.run() == Outcome(trip.flight, unsure=[[(0, 1), (0, 2)]])
    assert trip.rig.served.gate.control.documents == 1


async def test_a_batch_that_waits_while_the_sink_is_found_to_be_slow_is_cut() -> None:
    trip = Trip(1, 2, 3, 4, 5)
    gate = trip.rig.served.gate
    gate.control.requests = 1
    await gate.enter(PodClass.INCREMENTAL, 1)
    task = trip.start()
    await wait_until_async(lambda: gate.waiting, what="it waits at the gate")
    gate.control.documents = 2
    gate.leave()
    outcome = await asyncio.wait_for(task, 5)
    assert next(len(groups[0]) for groups in outcome.done) == 2
    assert done(outcome) == [1, 2, 3, 4, 5]
    assert gate.in_flight == 0


async def test_a_sink_that_cancels_its_own_call_is_unknown_not_the_end() -> None:
    class Giving(AbandoningSink):
        """Gives its calls up, as a client does that was closed beneath."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            del batch
            raise asyncio.CancelledError

    sink = Giving()
    trip = Trip(1, sink=sink)
    assert await trip.run() == Outcome(trip.flight, unsure=[[(0, 1)]])
    assert len(sink.abandoned) == 1


async def test_a_send_that_is_cancelled_is_in_the_air_until_it_is_abandoned() -> None:
    sink = AbandoningSink()
    trip = Trip(1, sink=sink)
    sink.faults = Faults(hang=True)
    task = trip.start()
    await wait_until_async(lambda: trip.rig.deliverer.sending == {task}, what="it is sent")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(trip.rig.active_term.unanswered) == 1
    assert not trip.rig.deliverer.sending
    await trip.rig.deliverer.wait_for_unanswered()
    assert not trip.rig.active_term.unanswered


async def test_a_write_that_never_ends_stays_in_the_air() -> None:
    sink = AbandoningSink()
    sink.may_return.clear()
    trip = Trip(1, sink=sink, request_timeout=0.02)
    batch = Batch("t", 0, Token(100, 1), [])
    trip.rig.active_term.unanswered.add(batch)
    await trip.rig.deliverer.wait_for_unanswered()
    assert trip.rig.active_term.unanswered == {batch}


async def test_what_the_sink_raises_is_logged_with_its_stack_and_fails_with_its_reason() -> None:
    class Raising(MemorySink):
        async def send(self, batch: Batch) -> Sequence[Result]:
            raise KeyError(batch.tube)

    with capture_logs() as logs:
        outcome = await Trip(1, sink=Raising()).run()
    assert outcome.failed == [([(0, 1)], "KeyError: 't'")]
    (line,) = logs
    assert (line["event"], line["call"], line["partition"]) == ("user_code_raised", "send", 0)
    assert line["error"].__traceback__ is not None
