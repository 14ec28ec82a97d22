"""How much a sink is sent at a time: additive increase and multiplicative decrease find what it bears."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytube.pipeline.limits import CongestionControl, Sent, Verdict
from tests.unit.slow_sink import SimulatedSink, SimulatedWorker

TIMEOUT = 10.0
DOCUMENTS = 500


def control(requests: int | None = None, first: int = 10) -> CongestionControl:
    return CongestionControl(documents=DOCUMENTS, requests=requests, first=first, timeout=TIMEOUT)


def full(requests: int = 16) -> CongestionControl:
    """One that has found that the sink bears all."""
    one = control(requests, first=requests)
    one.documents = DOCUMENTS
    return one


# --- against simulated sinks ----------------------------------------------------------------------


@pytest.mark.parametrize("sends", [4, 16, 64])
@pytest.mark.parametrize("servers", [1, 4, 16])
@pytest.mark.parametrize("per_document", [0.001, 0.004, 0.016, 0.16])
def test_a_sink_of_any_speed_is_kept_busy_and_nothing_times_out(
    sends: int, servers: int, per_document: float
) -> None:
    """With 16 ms a document, a batch of 500 needs 8 s, so that two that wait for each other time out."""
    sink = SimulatedSink(servers=servers, per_document=per_document)
    worker = SimulatedWorker(control(), sends)
    sink.run(300.0, worker)
    assert worker.rate(60.0, 300.0) >= 0.8 * min(servers, sends) / per_document
    assert [at for at in worker.timeouts if at > 60.0] == []
    assert "silent" not in worker.verdicts


def test_two_workers_get_fair_shares_of_one_sink_whoever_came_first() -> None:
    for begins in (0.0, 30.0, 100.0):
        sink = SimulatedSink(servers=4, per_document=0.016)
        workers = [SimulatedWorker(control(), 16), SimulatedWorker(control(), 16, begins)]
        sink.run(900.0, *workers)
        rates = [worker.rate(300.0, 900.0) for worker in workers]
        assert sum(rates) >= 0.95 * 4 / 0.016
        assert max(rates) <= 2 * min(rates), (begins, rates)
        assert all(worker.timeouts == [] for worker in workers)


def test_a_fast_sink_is_given_everything_within_a_second() -> None:
    sink, worker = SimulatedSink(servers=16, per_document=1e-6, per_request=0.005), None
    worker = SimulatedWorker(control(), 64)
    sink.run(1.0, worker)
    assert worker.control.documents == DOCUMENTS
    assert worker.control.requests >= 64
    assert worker.control.slow is None


def test_a_sink_that_gets_fast_again_is_given_everything_within_half_a_minute() -> None:
    sink, worker = SimulatedSink(servers=4, per_document=0.016), SimulatedWorker(control(), 16)
    sink.run(300.0, worker)
    assert worker.control.slow == "latency"
    assert worker.control.documents < DOCUMENTS
    sink.per_document = 0.0001
    sink.run(330.0, worker)
    assert worker.control.documents == DOCUMENTS
    assert worker.control.requests >= 16
    sink.run(395.0, worker)
    assert worker.control.slow is None


def test_a_sink_that_gets_slow_is_found_to_be_so_and_loses_no_more_time() -> None:
    """What it was sent when it was fast takes it a minute; then nothing is sent that it can't answer."""
    sink, worker = SimulatedSink(servers=4, per_document=0.0001), SimulatedWorker(control(), 8)
    sink.run(5.0, worker)
    sink.per_document = 0.016
    sink.run(400.0, worker)
    assert worker.timeouts
    assert max(worker.timeouts) < 120.0
    assert worker.rate(120.0, 400.0) >= 0.8 * 4 / 0.016


def test_a_sink_that_takes_long_whatever_it_is_sent_is_sent_large_batches() -> None:
    """Smaller ones would be answered as late, and there would be more of them."""
    sink = SimulatedSink(servers=8, per_document=0.0, per_request=6.0)
    worker = SimulatedWorker(full(), 4)
    sink.run(600.0, worker)
    assert worker.rate(200.0, 600.0) >= 0.8 * 4 * DOCUMENTS / 6.0


def test_a_sink_that_refuses_requests_is_sent_as_many_as_it_takes() -> None:
    sink = SimulatedSink(servers=16, per_document=0.0001, per_request=0.05)
    sink.refuses = 6
    worker = SimulatedWorker(control(), 64)
    sink.run(60.0, worker)
    assert worker.control.slow == "pushback"
    assert worker.control.documents == DOCUMENTS, "it is not the size that it refuses"
    assert worker.rate(5.0, 60.0) >= 0.8 * 6 * DOCUMENTS / 0.1


# --- one sign at a time ---------------------------------------------------------------------------


def test_time_outs_of_requests_that_were_under_way_together_count_as_one() -> None:
    one = full()
    sent = [one.send(0.0, 500, number + 1) for number in range(16)]
    one.answer(sent[0], 9.0)
    before = one.documents, one.requests
    for request in sent[1:]:
        assert one.time_out(request, 10.0) == "slow"
    assert (one.documents, one.requests) == (before[0], before[1]), "the late answer had lowered them"
    again = one.send(10.0, one.documents, 16)
    one.answer(one.send(10.0, 1, 1), 10.1)
    assert one.time_out(again, 20.0) == "slow"
    assert (one.documents, one.requests) == (before[0] // 2, before[1] // 2)


def test_a_sink_that_answers_nothing_is_down_only_when_a_single_document_was_not_answered() -> None:
    one = full()
    assert one.time_out(one.send(0.0, 500, 1), 10.0) == "slow"
    assert one.documents == 1, "the next request tells"
    assert one.time_out(one.send(10.0, 1, 1), 20.0) == "silent"


def test_a_sink_that_is_down_is_not_said_to_be_slow() -> None:
    one = full()
    assert one.time_out(one.send(0.0, 1, 1), 10.0) == "silent"
    assert (one.documents, one.slow) == (1, None)


def test_an_error_that_comes_at_once_says_nothing_of_speed() -> None:
    one = full()
    assert one.time_out(one.send(0.0, 500, 1), 0.1) == "silent"
    sent = one.send(1.0, 500, 2)
    one.answer(one.send(1.0, 500, 1), 1.05)
    assert one.time_out(sent, 1.1) == "document"
    assert (one.documents, one.requests, one.slow) == (500, 16, None)


def test_a_document_is_at_fault_if_as_much_that_was_sent_later_was_answered_quickly() -> None:
    one = full()
    sent = one.send(0.0, 10, 1)
    one.answer(one.send(1.0, 9, 2), 1.1)
    one.answer(one.send(2.0, 10, 2), 2.1)
    assert one.time_out(sent, 10.0) == "document"
    assert (one.documents, one.requests, one.slow) == (500, 16, None)


def test_fewer_documents_that_were_answered_quickly_do_not_put_the_blame_on_one_of_many() -> None:
    one = full()
    sent = one.send(0.0, 500, 1)
    one.answer(one.send(1.0, 499, 2), 1.1)
    assert one.time_out(sent, 10.0) == "slow"
    assert one.documents == 250


def test_where_something_between_gives_up_earlier_its_time_is_what_counts() -> None:
    """As a proxy does; else there would be time-outs for ever."""
    one = full()
    one.answer(one.send(0.0, 1, 1), 0.1)
    sent = one.send(1.0, 500, 1)
    one.answer(one.send(1.5, 1, 2), 1.6)
    assert one.time_out(sent, 7.0) == "slow"
    assert one.documents == 250
    one.answer(one.send(7.0, 250, 1), 10.5)
    assert one.documents == 175, "3.5 of 6 seconds are late"


def test_an_outage_that_is_over_is_followed_by_a_slow_start() -> None:
    one = full()
    one.restart(100.0)
    assert (one.documents, one.requests) == (10, 16)
    limits = [one.documents]
    for at in range(101, 120):
        one.answer(one.send(at, one.documents, 1), at + 0.01)
        limits.append(one.documents)
    assert limits[:7] == [10, 20, 40, 80, 160, 320, 500]


# --- whatever happens -----------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Requests that are answered, refused or given up in any order and at any time."""

    @initialize(documents=st.integers(1, 600), requests=st.integers(1, 40), first=st.integers(1, 20))
    def begin(self, documents: int, requests: int, first: int) -> None:
        self.most = documents, requests
        self.one = CongestionControl(documents=documents, requests=requests, first=first, timeout=TIMEOUT)
        self.now = 0.0
        self.under_way: list[Sent] = []
        self.lowered_at = -1.0

    @rule(seconds=st.floats(0.001, 12.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(share=st.floats(0.0, 1.0))
    def send(self, share: float) -> None:
        if len(self.under_way) < self.one.requests:
            documents = max(1, int(self.one.documents * share))
            self.under_way.append(self.one.send(self.now, documents, len(self.under_way) + 1))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), kind=st.sampled_from(["answer", "push_back", "time_out"]))
    def end(self, data: st.DataObject, kind: str) -> None:
        sent = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        before = self.one.documents, self.one.requests
        verdict: Verdict | None = None
        if kind == "time_out":
            verdict = self.one.time_out(sent, self.now)
            assert verdict != "silent" or self.one.answered_at <= sent.at, "it has answered others"
        elif kind == "answer":
            self.one.answer(sent, self.now)
        else:
            self.one.push_back(sent, self.now)
        after = self.one.documents, self.one.requests
        if any(now < then for now, then in zip(after, before, strict=True)):
            assert sent.at >= self.lowered_at, "a request of before has lowered the limits again"
            assert self.one.slow is not None or verdict == "silent", "one that is down is told to be that"
            self.lowered_at = self.now

    @rule()
    def an_outage_is_over(self) -> None:
        self.one.restart(self.now)

    @rule()
    def quick_answers_bring_all_back(self) -> None:
        """Whatever came before: 100 round trips of a fast sink, and it is given everything."""
        requests = self.most[1]
        for _ in range(100):
            self.now += 0.1
            sent = [
                self.one.send(self.now, self.one.documents, at + 1)
                for at in range(min(self.one.requests, requests))
            ]
            for request in sent:
                self.one.answer(request, self.now + 0.001)
        self.now += 0.1
        self.under_way.clear()
        assert (self.one.documents, self.one.requests) == self.most

    @invariant()
    def limits_keep_to_the_settings(self) -> None:
        if hasattr(self, "one"):
            assert 1 <= self.one.documents <= self.most[0]
            assert 1 <= self.one.requests <= self.most[1]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
