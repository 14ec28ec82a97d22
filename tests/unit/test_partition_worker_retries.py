"""What a partition's worker sends again: documents at fault cost themselves alone, and hold nobody up."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest

from pytube import clock
from pytube.election.base import Paused
from pytube.errors import SinkTimeout
from pytube.events import (
    LeaderRefreshed,
    SinkDelays,
    SinkDown,
    SinkUp,
    SourceDown,
    SourceUp,
    TrustLapsed,
    TubeStopped,
)
from pytube.model import Batch, Result
from pytube.pipeline import retry_queue
from pytube.testing.memory import Faults, MemorySink
from pytube.worker import pace
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import gate_of
from tests.unit.rig import Rig
from tests.unit.trip import AbandoningSink


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short back-offs; a worker that sleeps is woken by writers only."""
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)
    monkeypatch.setattr(pace, "_DEEP_PAUSE", 3600.0)


def held(rig: Rig) -> list[Any]:
    return sorted(key for _, key in rig.sink.store.values())


class Ordered(MemorySink):
    """Knows the keys in the order in which they were sent, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[Any] = []

    async def send(self, batch: Batch) -> Sequence[Result]:
        self.order += [document.id for document in batch]
        return await super().send(batch)


def parked(rig: Rig) -> dict[Any, str]:
    return {key: item["error"] for (_, key), item in rig.tube.parked.items()}


# --- the sink ---


async def test_a_batch_that_fails_is_sent_in_parts_and_the_poison_parked_alone() -> None:
    rig = Rig()
    rig.sink.faults = Faults(fail={(0, 5)})
    async with rig.running():
        rig.insert(*range(16))
        await rig.until_empty()
    assert list(parked(rig)) == [5]
    assert "fails on (0, 5)" in parked(rig)[5]
    assert rig.tube.parked[0, 5]["attempts"] == rig.settings.attempts
    assert held(rig) == [key for key in range(16) if key != 5]
    assert rig.emitted(SinkDown) == [], "a poison document is no outage"


async def test_each_failure_of_a_document_alone_is_an_attempt_and_only_those() -> None:
    rig = Rig(attempts=3)
    rig.sink.faults = Faults(fail={(0, 1)})
    async with rig.running():
        rig.insert(1, 2)
        await rig.until_empty()
        assert rig.tube.parked[0, 1]["attempts"] == 3
        assert rig.sink.sends == 1 + 1 + 3, "both, one half, and three times the other"
        rig.insert(1)
        await rig.until_empty()
    assert rig.tube.parked[0, 1]["attempts"] == 3, "attempts of before were counted"


async def test_a_rejected_document_is_parked_at_once() -> None:
    rig = Rig()
    rig.sink.faults = Faults(reject={(0, 1)})
    async with rig.running():
        rig.insert(1, 2)
        await rig.until_empty()
    assert list(parked(rig)) == [1]
    assert rig.sink.sends == 1


async def test_a_document_that_is_put_off_is_read_and_sent_again() -> None:
    rig = Rig()
    rig.sink.faults = Faults(retry={(0, 1): 0.0})
    async with rig.running():
        rig.insert(1, 2)
        await rig.until("it is sent again", lambda: rig.sink.sends > rig.settings.attempts + 2)
        assert held(rig) == [2]
        rig.sink.faults = Faults()
        await rig.until_empty()
    assert parked(rig) == {}, "being put off uses up no attempt"
    assert len(rig.enricher.reads) == rig.sink.sends, "each time it is read anew"


async def test_why_the_sink_puts_documents_off_is_told_once_a_minute() -> None:
    """The sink is up: nothing else would tell why they wait."""
    rig = Rig()
    rig.sink.faults = Faults(retry={(0, 1): 0.0, (0, 2): 0.0})
    async with rig.running():
        rig.insert(1, 2, 3)
        await rig.until("they are sent again and again", lambda: rig.sink.sends > 3)
        assert rig.emitted(SinkDelays) == [SinkDelays("t", 0, 2, "memory: not now")]
        assert rig.emitted(SinkDown) == []
        rig.sink.faults = Faults()
        await rig.until_empty()


async def test_what_is_due_to_be_sent_again_waits_for_no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("_FIRST_PAUSE", "_LONGEST_PAUSE", "_HELD_UP_PAUSE"):
        monkeypatch.setattr(pace, pause, 3600.0)
    rig = Rig()
    rig.sink.faults = Faults(retry={(0, 1): 0.0})
    async with rig.running():
        rig.insert(1)
        await rig.until("it is sent again", lambda: rig.sink.sends > 3)


def waiting(rig: Rig) -> int:
    """Keys that wait to be sent again."""
    return rig.worker._retries.keys


async def test_keys_that_are_sent_again_hold_up_no_other_of_their_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One is put off for an hour, one fails and backs off for as long as that, and new ones pass."""
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 3600.0)
    monkeypatch.setattr(retry_queue, "_LONGEST_DELAY", 3600.0)
    rig = Rig(attempts=5)
    rig.sink.faults = Faults(retry={(0, 1): 3600.0}, fail={(0, 2)})
    async with rig.running():
        first = rig.insert(1, 2, 3)
        await rig.until("both wait", lambda: waiting(rig) == 2 and held(rig) == [3])
        seqs = []
        for key in range(100, 120):
            seqs.append(rig.insert(key))
            await rig.until("it is purged", lambda: rig.tube.purged == seqs)
        assert list(rig.tube.pods) == [first], "its pod waits for the last of its keys"


async def test_a_sink_that_answers_short_is_at_fault_with_each_document() -> None:
    rig = Rig()
    rig.sink.faults = Faults(short=1)
    async with rig.running():
        rig.insert(1, 2)
        await rig.until_empty()
    assert sorted(parked(rig)) == [1, 2]
    assert "SinkContract" in parked(rig)[1]


async def test_a_sink_that_is_down_is_waited_for_and_nothing_is_parked() -> None:
    rig = Rig()
    async with rig.running():
        rig.sink.faults = Faults(down=True)
        for key in range(10):
            rig.insert(key)
        await rig.until("the sink is probed", lambda: rig.sink.sends > rig.settings.attempts + 3)
        rig.sink.faults = Faults()
        await rig.until_empty()
    assert (len(rig.emitted(SinkDown)), len(rig.emitted(SinkUp))) == (1, 1)
    assert parked(rig) == {}
    assert held(rig) == list(range(10))


@pytest.mark.parametrize("stays_down", [False, True])
async def test_an_outage_that_lasted_into_a_pause_is_told_of_once_and_so_is_its_end(
    *, stays_down: bool
) -> None:
    rig = Rig()
    async with rig.running():
        rig.sink.faults = Faults(down=True)
        rig.insert(1)
        await rig.until("the sink is held to be down", lambda: rig.emitted(SinkDown))
    rig.active_term.troubles.end("sink")  # nobody asks the sink in a pause
    rig.another_worker()
    rig.insert(2)
    rig.sink.faults = Faults()
    sends = rig.sink.sends
    async with rig.running():
        if stays_down:
            rig.sink.faults = Faults(down=True)  # before the worker has had a turn
            await rig.until("the sink is probed", lambda: rig.sink.sends > sends + 2)
            assert rig.active_term.troubles.reason("sink")
            rig.sink.faults = Faults()
        await rig.until("it is delivered", lambda: held(rig) == [2])
        await rig.until("its end is told", lambda: rig.emitted(SinkUp))
    assert (len(rig.emitted(SinkDown)), len(rig.emitted(SinkUp))) == (1, 1)
    assert rig.active_term.troubles.reason("sink") is None


async def test_a_sink_that_fails_every_document_is_held_to_be_down() -> None:
    rig = Rig(attempts=1, batch_documents=200)
    rig.sink.faults = Faults(fail={(0, key) for key in range(200)})
    async with rig.running():
        rig.insert(*range(200))
        await rig.until("the sink is held to be down", lambda: rig.emitted(SinkDown))
        assert "100 documents in a row failed" in rig.emitted(SinkDown)[0].reason
        rig.sink.faults = Faults()
        await rig.until_empty()
    assert len(parked(rig)) == 100
    assert len(held(rig)) == 100


async def test_a_success_between_them_makes_failures_those_of_documents() -> None:
    rig = Rig(attempts=1, batch_documents=10)
    rig.deliverer.size.observe(1, 1)
    rig.sink.faults = Faults(fail={(0, key) for key in range(1500) if key % 10})
    async with rig.running():
        rig.insert(*range(300))
        await rig.until_empty()
    assert len(parked(rig)) == 270
    assert rig.emitted(SinkDown) == []


async def test_hundreds_of_poisoned_documents_are_parked_once_the_others_are_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They end in a row, as the healthy ones of their batches are done long before them."""
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.05)
    rig = Rig(attempts=2, batch_documents=100)
    rig.sink.faults = Faults(fail={(0, key) for key in range(1000) if 300 <= key < 600})
    async with rig.running():
        for start in range(0, 1000, 250):
            rig.insert(*range(start, start + 250))
        await rig.until_empty()
    assert parked(rig).keys() == set(range(300, 600))
    assert rig.emitted(SinkDown) == []


async def test_healthy_documents_go_by_turns_with_poisoned_ones_that_are_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.0)
    sink = Ordered()
    rig = Rig(sink, None, gate_of(documents=1, requests=1), attempts=1000, batch_documents=1, sends=1)
    sink.faults = Faults(fail={(0, key) for key in range(20)})
    async with rig.running():
        rig.insert(*range(20))
        await rig.until("all have failed", lambda: len(sink.order) > 40)
        since = len(sink.order)
        rig.insert(*range(100, 150))
        await rig.until("the others are delivered", lambda: len(held(rig)) == 50)
    others = [place for place, key in enumerate(sink.order[since:]) if key >= 100]
    assert max(others) - min(others) <= 110, "each waited for more than one poisoned document"


async def test_a_healthy_document_gets_through_while_the_sink_counts_as_down_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry_queue, "_LONGEST_DELAY", 0.05)
    rig = Rig(attempts=1, batch_documents=200)
    rig.sink.faults = Faults(fail={(0, key) for key in range(200)})
    async with rig.running():
        rig.insert(*range(200))
        await rig.until("the sink is held to be down", lambda: rig.emitted(SinkDown))
        rig.insert(1000, 1001)
        await rig.until_empty()
    assert held(rig) == [1000, 1001]
    assert len(parked(rig)) == 200


# --- sends whose effect is not known ---


async def test_a_send_without_an_answer_is_abandoned_before_it_is_sent_again() -> None:
    sink = AbandoningSink()
    sink.may_return.clear()
    rig = Rig(sink, request_timeout=0.02)
    sink.faults = Faults(mute=True)
    async with rig.running():
        rig.insert(1)
        await rig.until("it is abandoned", lambda: sink.abandoned)
        assert rig.active_term.unanswered, "while that lasts, the term must not be released"
        assert sink.sends == 1
        sink.faults = Faults()
        sink.may_return.set()
        await rig.until_empty()
    assert not rig.active_term.unanswered
    tokens = [document.token for document in sink.store.log]
    assert tokens == sorted(set(tokens)), "it was not sent under a new token"
    assert len(rig.enricher.reads) == 2, "it was not read anew"
    assert (len(rig.emitted(SinkDown)), len(rig.emitted(SinkUp))) == (1, 1)


async def test_a_document_that_only_the_sink_times_out_on_is_parked_in_the_end() -> None:
    class Choking(MemorySink):
        """Answers everything but batches with the key 3, and others before it gives these up."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            if all(document.id != 3 for document in batch):
                return await super().send(batch)
            other = 100 + self.sends
            self.sends += 1
            rig.insert(other)
            await wait_until_async(lambda: (0, other) in self.store.held, what="another one is answered")
            raise SinkTimeout("no answer")

    rig = Rig(Choking())
    async with rig.running():
        rig.insert(1, 2, 3, 4)
        await rig.until_empty()
    assert parked(rig) == {3: "no answer"}
    assert rig.tube.parked[0, 3]["attempts"] == rig.settings.attempts
    assert [key for key in held(rig) if key < 100] == [1, 2, 4]
    assert rig.emitted(SinkDown) == []


async def test_batches_that_time_out_get_smaller_and_no_document_is_at_fault() -> None:
    class Slow(MemorySink):
        """Does not answer more than five documents in time, and fewer of them late."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            if len(batch) > 5:
                self.sends += 1
                raise SinkTimeout("no answer")
            return await super().send(batch)

    rig = Rig(Slow(), None, gate_of(timeout=1e-9), attempts=1)
    async with rig.running():
        rig.insert(*range(400))
        await rig.until_empty()
    assert parked(rig) == {}
    assert held(rig) == list(range(400))
    assert rig.emitted(SinkDown) == []
    assert rig.served.gate.control.slow == "timeout"


async def test_a_document_that_the_sink_times_out_on_holds_up_itself_alone() -> None:
    """Nothing else is sent, so it looks as if the sink were down."""

    class Choking(MemorySink):
        """Answers everything but batches with the key 3."""

        async def send(self, batch: Batch) -> Sequence[Result]:
            if any(document.id == 3 for document in batch):
                raise SinkTimeout("no answer")
            return await super().send(batch)

    rig = Rig(Choking())
    async with rig.running():
        rig.insert(1, 2, 3, 4)
        await rig.until("the others are written", lambda: held(rig) == [1, 2, 4])
        assert parked(rig) == {}, "the sink may be at fault, not the document"


# --- the source ---


async def test_a_source_that_cannot_be_read_is_waited_for() -> None:
    rig = Rig()
    rig.enricher.failing = "permission denied"
    async with rig.running():
        rig.insert(1, 2)
        await rig.until("it is read again", lambda: len(rig.enricher.reads) > rig.settings.attempts + 2)
        assert rig.sink.sends == 0
        rig.enricher.failing = None
        await rig.until_empty()
    assert parked(rig) == {}
    assert set(rig.enricher.reads) == {(0, (1, 2))}, "what is not at fault is not cut to pieces"
    assert [event.reason for event in rig.emitted(SourceDown)] == ["permission denied"]
    assert len(rig.emitted(SourceUp)) == 1


async def test_a_read_that_takes_too_long_is_tried_with_fewer_rows() -> None:
    rig = Rig(attempts=1)
    rig.enricher.most = 2
    async with rig.running():
        rig.insert(*range(8))
        await rig.until_empty()
    assert held(rig) == list(range(8))
    assert parked(rig) == {}
    assert sorted(len(ids) for _, ids in rig.enricher.reads) == [2, 2, 2, 2, 4, 4, 8]


async def test_a_row_that_always_takes_too_long_is_parked_while_others_are_read() -> None:
    rig = Rig()
    rig.enricher.slow = {(0, 6)}
    async with rig.running():
        rig.insert(*range(8))

        def is_parked() -> bool:
            rig.insert(100)  # so that others are read
            return bool(parked(rig))

        await rig.until("it is parked", is_parked)
        await rig.until_empty()
    assert parked(rig) == {6: "the fake source took too long"}
    assert held(rig) == [0, 1, 2, 3, 4, 5, 7, 100]


async def test_a_row_that_is_never_read_in_time_is_not_parked_while_nothing_is() -> None:
    rig = Rig(attempts=1)
    rig.enricher.slow = {(0, 1)}
    async with rig.running():
        rig.insert(1)
        await rig.until("it was tried again", lambda: len(rig.enricher.reads) > 3)
        assert parked(rig) == {}
        assert len(rig.emitted(SourceDown)) == 1
        rig.enricher.slow = set()
        await rig.until_empty()
    assert held(rig) == [1]


async def test_a_row_whose_data_break_the_query_is_parked_alone() -> None:
    rig = Rig()
    rig.enricher.bad = {(0, 6)}
    async with rig.running():
        rig.insert(*range(8))
        await rig.until_empty()
    assert parked(rig) == {6: "the row 6 is broken"}
    assert held(rig) == [0, 1, 2, 3, 4, 5, 7]
    assert rig.emitted(SourceDown) == []


async def test_rows_that_all_break_the_query_are_not_read_without_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 3600.0)
    monkeypatch.setattr(retry_queue, "_LONGEST_DELAY", 3600.0)
    rig = Rig(attempts=1)
    rig.worker._blame._parked_in_a_row = 1000
    rig.enricher.bad = {(0, 1)}
    async with rig.running():
        rig.insert(1)
        await rig.until("too many failed in a row", lambda: rig.emitted(SinkDown))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(rig.enricher.reads) == 1, "it is read again and again without a pause"
        assert parked(rig) == {}


async def test_ids_of_no_table_are_parked() -> None:
    rig = Rig()
    rig.enricher.orphans = {(0, 1)}
    async with rig.running():
        rig.insert(1, 2)
        await rig.until_empty()
    assert held(rig) == [2]
    assert parked(rig) == {1: "no table attached to tube 't' has shard 0"}


# --- trust ---


async def test_what_was_read_before_a_lapse_of_trust_is_read_again_after_it() -> None:
    rig = Rig()
    async with rig.running():
        rig.enricher.go.clear()
        rig.insert(1)
        await rig.until("the read begins", lambda: rig.enricher.reads)
        rig.active_term._renewed_at = float("-inf")
        rig.enricher.go.set()
        await rig.until("the lapse is told", lambda: rig.emitted(TrustLapsed))
        assert rig.sink.sends == 0
        rig.active_term._renewed_at = float("inf")
        await rig.until_empty()
    assert len(rig.enricher.reads) == 2
    assert [type(event) for event in rig.events] == [TrustLapsed, LeaderRefreshed]


async def test_backfill_that_is_sent_again_keeps_a_send_free_too() -> None:
    """Its flight fails as a whole; of the halves, which hang then, only one is sent at a time."""
    sink = MemorySink()
    rig = Rig(sink, sends=2, attempts=5)
    sink.faults = Faults(fail={(0, key) for key in range(16)})
    async with rig.running():
        rig.insert(*range(16), op="B")
        await rig.until("halves wait", lambda: waiting(rig) >= 8)
        sink.faults = Faults(hang=True)
        await rig.until("one hangs", lambda: len(rig.deliverer.sending) == 1)
        rig.insert(1000)
        await rig.until("the touch is sent", lambda: len(rig.deliverer.sending) == 2)
        sink.faults = Faults()
        await rig.until_empty()


# --- failures that the database keeps ---


async def test_failures_of_one_outcome_are_kept_by_one_statement_and_forgotten_when_delivered() -> None:
    rig = Rig(attempts=3, batch_bytes=1)  # one delivery, in batches of a document
    rig.sink.faults = Faults(fail={(0, 1), (0, 2)})
    async with rig.running():
        rig.insert(1, 2, 3)
        await rig.until("both have failed", lambda: len(rig.tube.failed) == 2)
        rig.sink.faults = Faults()
        await rig.until_empty()
    assert ["1", "2"] in [sorted(keys) for keys in rig.tube.failures]
    assert rig.tube.failed == {}
    assert rig.tube.parked == {}


async def test_nothing_is_kept_while_all_is_delivered() -> None:
    rig = Rig()
    async with rig.running():
        rig.insert(1, 2)
        await rig.until_empty()
    assert rig.tube.failures == []


async def test_attempts_and_backoff_of_an_earlier_term_count() -> None:
    rig = Rig(attempts=3)
    rig.tube.failed = {(0, "1"): (2, 0.2), (0, "2"): (1, -5.0)}
    rig.sink.faults = Faults(fail={(0, 1)})
    began = asyncio.get_running_loop().time()
    async with rig.running():
        rig.insert(1, 2)
        await rig.until_empty()
    assert asyncio.get_running_loop().time() - began >= 0.2, "it was sent before its time"
    assert rig.tube.parked[0, 1]["attempts"] == 3
    assert rig.sink.sends == 2, "the other one, and it alone"
    assert held(rig) == [2]
    assert rig.tube.failed.keys() == {(0, "1")}, "what is delivered is forgotten"


async def test_a_poison_stops_the_tube_and_stays_in_it() -> None:
    rig = Rig(on_poison="stop")
    rig.sink.faults = Faults(reject={(0, 1)})
    async with rig.running():
        rig.insert(1)
        assert rig.task is not None
        await rig.task
        await rig.worker.drain(1.0)
        assert rig.active_term.pause is not None
    assert rig.tube.stopped == "poison"
    assert list(rig.tube.pods) == [1]
    assert rig.tube.marked == set(), "it is given back"
    assert rig.tube.parked == {}
    assert [event.why for event in rig.emitted(TubeStopped)] == ["poison"]


async def test_more_parked_keys_than_the_limit_stop_the_tube() -> None:
    rig = Rig(park_limit=1)
    rig.sink.faults = Faults(reject={(0, 1), (0, 2), (0, 3)})
    async with rig.running():
        rig.insert(1)
        await rig.until_empty()
        rig.insert(2, 3)
        assert rig.task is not None
        await rig.task
    assert rig.tube.stopped == "park_limit"
    assert list(parked(rig)) == [1]


async def test_a_stop_is_not_undone_by_the_answer_to_an_older_renewal() -> None:
    rig = Rig()
    asked = clock.now()
    rig.active_term.note_pause("poison: too bad", None, clock.now())
    rig.active_term.note_pause(None, None, asked - 1)
    assert rig.active_term.pause == Paused("poison: too bad")
    rig.active_term.note_pause(None, None, clock.now() + 1)
    assert rig.active_term.pause is None


@pytest.mark.parametrize("is_kept", [False, True])
async def test_the_document_is_kept_by_choice(is_kept: bool) -> None:
    rig = Rig(park_documents=is_kept)
    rig.sink.faults = Faults(reject={(0, 1)}, fail={(0, 2)})
    async with rig.running():
        rig.insert(1, 2, 3)
        await rig.until_empty()
    documents = {key: item["document"] for (_, key), item in rig.tube.parked.items()}
    expected = {key: b64encode(b'{"id": %d}' % key).decode() if is_kept else None for key in (1, 2)}
    assert documents == expected
