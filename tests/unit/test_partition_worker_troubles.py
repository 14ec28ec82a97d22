"""A worker whose sink or source is in trouble, or whose trust or term is gone."""

from __future__ import annotations

import asyncio
import gc

import pytest

from pytube.errors import ClaimLost, DatabaseUnavailable, Fenced, FencedBySink
from pytube.events import LeaderRefreshed, Parked, SinkDown, SinkUp, SourceDown, TrustLapsed
from pytube.model import Document, Token
from pytube.pipeline import retry_queue
from pytube.sources import pods
from pytube.testing.memory import Faults, MemorySink
from pytube.worker import pace
from tests.unit.rig import Rig


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short back-offs; a worker that sleeps is woken by writers only."""
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)
    monkeypatch.setattr(pace, "_DEEP_PAUSE", 3600.0)


# --- troubles of the sink ---


async def test_a_key_that_is_touched_all_the_time_does_not_fill_the_memory() -> None:
    rig = Rig(keys_in_flight=200, mark_limit=100)
    async with rig.running():
        rig.sink.faults = Faults(down=True)
        for _ in range(1000):
            rig.insert(7)
        await rig.until("no more is marked", lambda: rig.worker.machine.pods == 200)
        rig.sink.faults = Faults()
        await rig.until_empty()
    assert rig.worker.machine.keys == 0


async def test_a_rejected_key_is_parked_before_its_pod_is_purged() -> None:
    rig = Rig()
    rig.sink.faults = Faults(reject={(0, 2)})
    async with rig.running():
        seq = rig.insert(1, 2)
        await rig.until_empty()
    assert list(rig.tube.parked) == [(0, 2)]
    item = rig.tube.parked[0, 2]
    assert (item["seq"], item["attempts"], item["id"]) == (seq, 1, "2")
    assert "rejects" in item["error"]
    assert [(event.shard, event.id) for event in rig.emitted(Parked)] == [(0, 2)]


async def test_a_key_that_cannot_be_parked_is_not_purged() -> None:
    rig = Rig()
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        rig.insert(2)
        await rig.until("it is sent", lambda: rig.sink.sends)
        rig.tube.down = True
        rig.sink.faults = Faults(reject={(0, 2)})
        assert isinstance(await rig.until_it_ends(), DatabaseUnavailable)
    assert rig.tube.purged == []


async def test_a_parked_key_that_is_delivered_after_all_is_unparked() -> None:
    rig = Rig()
    rig.tube.park([{"shard": 0, "id": "7"}, {"shard": 0, "id": "8"}], None)
    async with rig.running():
        rig.insert(7)
        await rig.until_empty()
    assert list(rig.tube.parked) == [(0, 8)]


async def test_more_parked_keys_than_are_remembered_are_unparked_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pods, "MOST_KNOWN", 1)
    rig = Rig()
    rig.tube.park([{"shard": 0, "id": "7"}, {"shard": 0, "id": "8"}], None)
    async with rig.running():
        rig.insert(7)
        await rig.until_empty()
    assert list(rig.tube.parked) == [(0, 8)]


async def test_a_key_that_was_parked_by_this_worker_is_unparked_too() -> None:
    rig = Rig()
    rig.sink.faults = Faults(fail={(0, 7)})
    async with rig.running():
        rig.insert(7)
        await rig.until_empty()
        assert list(rig.tube.parked) == [(0, 7)]
        rig.sink.faults = Faults()
        rig.insert(7)
        await rig.until_empty()
    assert rig.tube.parked == {}


async def test_a_control_pod_is_set_aside_whole() -> None:
    rig = Rig()
    payload = {"type": "of a later version", "start_seq": "1"}
    seq = rig.tube.insert(op="T", shard=3, payload=payload)
    async with rig.running():
        await rig.until_empty()
    item = rig.tube.parked[3, None]
    assert (item["payload"], item["op"], item["seq"]) == (payload, "T", seq)
    assert [(event.shard, event.id) for event in rig.emitted(Parked)] == [(3, None)]
    assert rig.sink.sends == 0


async def test_a_later_term_at_the_sink_ends_the_worker_and_nothing_is_purged() -> None:
    rig = Rig(MemorySink(compares=True))
    rig.sink.store.held[0, 1] = Document(0, 1, b"{}", Token(200, 1), 99)
    async with rig.running():
        rig.insert(1, 2)
        assert isinstance(await rig.until_it_ends(), FencedBySink)
    assert rig.tube.purged == []
    assert rig.tube.resets == 0


# --- trust and the term ---


async def test_a_worker_without_trust_neither_marks_nor_sends_until_it_is_back() -> None:
    rig = Rig()
    async with rig.running():
        rig.enricher.go.clear()
        rig.insert(1)
        await rig.until("it is read", lambda: rig.enricher.reads)
        rig.active_term._renewed_at = float("-inf")
        rig.enricher.go.set()
        await rig.until("the lapse is told", lambda: rig.emitted(TrustLapsed))
        marks = rig.tube.marks
        rig.insert(2)
        for _ in range(100):
            await asyncio.sleep(0)
        assert (rig.tube.marks, rig.sink.sends) == (marks, 0)
        rig.active_term._renewed_at = float("inf")
        await rig.until_empty()
    kinds = [type(event) for event in rig.events if isinstance(event, TrustLapsed | LeaderRefreshed)]
    assert kinds == [TrustLapsed, LeaderRefreshed]


async def test_a_worker_that_holds_nothing_tells_of_a_lapse_and_of_its_end() -> None:
    rig = Rig()
    async with rig.running():
        rig.insert(1)
        await rig.until_empty()
        rig.active_term._renewed_at = float("-inf")
        rig.insert(2)
        await rig.until("the lapse is told", lambda: rig.emitted(TrustLapsed))
        rig.active_term._renewed_at = float("inf")
        await rig.until_empty()
    assert (len(rig.emitted(TrustLapsed)), len(rig.emitted(LeaderRefreshed))) == (1, 1)


async def test_pods_that_came_while_there_was_no_trust_are_found_when_it_is_back() -> None:
    rig = Rig()
    async with rig.running():
        await rig.until("the worker sleeps", lambda: rig.is_asleep)
        rig.active_term._renewed_at = float("-inf")
        rig.insert(1)
        await rig.until("the wake-up is seen", lambda: not rig.active_term.attention.is_set())
        rig.active_term._renewed_at = float("inf")
        await rig.until_empty()


async def test_a_term_that_ended_ends_the_worker_and_writes_nothing_more() -> None:
    rig = Rig()
    rig.sink.faults = Faults(hang=True)
    async with rig.running():
        rig.insert(1)
        await rig.until("it is sent", lambda: rig.sink.sends == 1)
        rig.claim.end_now()
        assert isinstance(await rig.until_it_ends(), ClaimLost)
    assert (rig.tube.purged, rig.tube.resets) == ([], 0)
    assert rig.sink.store.log == []


async def test_a_term_that_is_over_in_the_database_ends_the_worker() -> None:
    rig = Rig()
    async with rig.running():
        rig.tube.leader_id = None
        rig.insert(1)
        assert isinstance(await rig.until_it_ends(), Fenced)
    assert (rig.tube.purged, rig.tube.resets) == ([], 0)


async def test_reads_that_fail_together_leave_no_failure_behind() -> None:
    """One of them ends the worker; asyncio would log those that nobody has looked at, once they are gone."""
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    await _fail_reads_together()
    gc.collect()
    assert complaints == []


async def _fail_reads_together() -> None:
    rig = Rig(batch_documents=1)
    rig.deliverer.size.observe(1, 1)
    rig.enricher.go.clear()
    async with rig.running():
        for key in range(3):
            rig.insert(key)
        await rig.until("all are read", lambda: len(rig.enricher.reads) == 3)
        rig.enricher.is_wrong = True
        rig.enricher.go.set()
        assert isinstance(await rig.until_it_ends(), TypeError)


async def test_after_an_outage_each_row_is_read_once_and_sent_as_it_is_then() -> None:
    """Touches that come while the sink is down join what waits: nothing old is sent, and nothing again."""
    rig = Rig(batch_documents=2)
    rig.deliverer.size.observe(1, 1)
    async with rig.running():
        rig.sink.faults = Faults(down=True)
        for version in range(5):
            for key in range(10):
                rig.insert(key)
                rig.enricher.rows[0, key] = b'{"version": %d}' % version
            await rig.until("all are marked", lambda: len(rig.tube.marked) == len(rig.tube.pods))
            await rig.until("it is tried", lambda before=rig.sink.sends: rig.sink.sends > before)
        rig.sink.faults = Faults()
        await rig.until_empty()
    assert len(rig.sink.store.log) == 10, "a row is sent as it was, and then again"
    assert {one["version"] for one in rig.sink.store.values().values()} == {4}


async def test_while_the_sink_is_down_one_delivery_at_a_time_is_begun() -> None:
    rig = Rig(batch_documents=1)
    rig.deliverer.size.observe(1, 1)
    async with rig.running():
        rig.sink.faults = Faults(down=True)
        for key in range(20):
            rig.insert(key)
        await rig.until("the circuit is open", lambda: rig.emitted(SinkDown))
        await rig.until("nothing is under way", lambda: not rig.worker.machine.flying)
        rig.sink.faults = Faults(hang=True)
        await rig.until("it probes", lambda: rig.worker.machine.flying)
        for _ in range(50):
            await asyncio.sleep(0)
        assert rig.worker.machine.flying == 1
        rig.sink.faults = Faults()
        await rig.until_empty()
    assert len(rig.emitted(SinkUp)) == 1


async def test_a_session_that_is_lost_in_a_read_does_not_end_the_term() -> None:
    rig = Rig()
    async with rig.running():
        rig.enricher.lost = True
        rig.insert(1)
        await rig.until("it is told", lambda: rig.emitted(SourceDown))
        rig.enricher.lost = False
        await rig.until_empty()
    assert rig.sink.store.values().keys() == {(0, 1)}


async def test_a_first_burst_reads_no_more_than_the_gate_lets_pass() -> None:
    rig = Rig(batch_documents=1)
    gate = rig.served.gate
    gate.control.requests = 0
    for key in range(10):
        rig.insert(key)
    async with rig.running():
        await rig.until("one waits at the gate", lambda: gate.waiting)
        await rig.until("all are marked", lambda: len(rig.tube.marked) == len(rig.tube.pods))
        assert len(rig.enricher.reads) == gate.waiting == 1
        gate.control.requests = 100
        gate._grant()
        await rig.until_empty()
    assert len(rig.sink.store.log) == 10


async def test_while_one_waits_at_the_gate_others_take_up_touches_before_they_are_read() -> None:
    rig = Rig(batch_documents=1)
    gate = rig.served.gate
    gate.control.requests = 0
    async with rig.running():
        rig.insert(0)
        await rig.until("it waits at the gate", lambda: gate.waiting == 1)
        for _ in range(5):
            for key in range(1, 10):
                rig.insert(key)
            await rig.until("all are marked", lambda: len(rig.tube.marked) == len(rig.tube.pods))
        assert len(rig.enricher.reads) == gate.waiting == 1
        gate.control.requests = 100
        gate._grant()
        await rig.until_empty()
    assert len(rig.sink.store.log) == 10
