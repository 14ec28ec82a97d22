"""The retry queue: whatever a sink answers, each key ends exactly once, and poison costs itself alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pytube.model import Key, PodClass
from pytube.pipeline.inflight import Flight
from pytube.pipeline.retry_queue import DeadLetter, RetryQueue, backoff

LIVE = PodClass.INCREMENTAL
FLIGHT = Flight(LIVE)
LATER = 1e9


def keys(count: int) -> list[Key]:
    return [(0, number) for number in range(count)]


def test_a_failed_group_is_sent_again_in_parts() -> None:
    queue = RetryQueue(attempts=3)
    assert queue.fail(FLIGHT, keys(20), "broken", now=1.0) is None
    assert queue.next_at(LIVE) == 1.0, "the parts are not waited for"
    parts = [queue.pop(LIVE, 1.0) for _ in range(7)]
    assert parts == [(FLIGHT, keys(20)[start : start + 3]) for start in range(0, 20, 3)]
    assert queue.next_at(LIVE) is None


def test_a_group_that_may_be_well_is_sent_again_in_halves() -> None:
    queue = RetryQueue(attempts=3)
    queue.split(FLIGHT, keys(5), now=1.0)
    assert [queue.pop(LIVE, 1.0), queue.pop(LIVE, 1.0)] == [(FLIGHT, keys(5)[:3]), (FLIGHT, keys(5)[3:])]


def test_one_poison_document_is_found_in_few_rounds() -> None:
    """Of a batch of 500: each round is a read and a request, one after the other."""
    queue, rounds, group = RetryQueue(attempts=1), 0, keys(500)
    while queue.fail(FLIGHT, group, "broken", now=float(rounds)) is None:
        rounds += 1
        while (popped := queue.pop(LIVE, LATER)) is not None:
            if (0, 321) in popped[1]:
                group = popped[1]
    assert rounds == 3


def test_a_group_is_given_out_when_it_is_due_and_not_before() -> None:
    queue = RetryQueue(attempts=1)
    assert queue.pop(LIVE, LATER) is None
    queue.push(FLIGHT, keys(2), at=5.0)
    assert queue.pop(LIVE, 4.9) is None
    assert queue.keys == 2
    assert queue.pop(LIVE, 5.0) == (FLIGHT, keys(2))
    assert (queue.keys, queue.pop(LIVE, LATER)) == (0, None)


def test_each_group_comes_back_with_its_flight_the_one_that_is_due_first_before_the_others() -> None:
    queue = RetryQueue(attempts=1)
    first, second = Flight(LIVE), Flight(LIVE)
    queue.push(second, [(0, 2)], at=7.0)
    queue.push(first, [(0, 1)], at=3.0)
    queue.push(first, [(0, 3)])
    assert queue.next_at(LIVE) == 0.0
    popped = [queue.pop(LIVE, LATER) for _ in range(3)]
    assert popped == [(first, [(0, 3)]), (first, [(0, 1)]), (second, [(0, 2)])]


def test_each_class_has_its_own_turn() -> None:
    queue = RetryQueue(attempts=1)
    backfill = Flight(PodClass.BACKFILL)
    queue.push(backfill, [(0, 2)])
    queue.push(FLIGHT, [(0, 1)], at=3.0)
    assert (queue.next_at(LIVE), queue.next_at(PodClass.BACKFILL)) == (3.0, 0.0)
    assert queue.pop(LIVE, 0.0) is None
    assert queue.pop(PodClass.BACKFILL, 0.0) == (backfill, [(0, 2)])
    assert queue.keys == 1


def test_a_group_that_waits_holds_up_no_other() -> None:
    queue = RetryQueue(attempts=5)
    queue.delay(FLIGHT, {(0, 1): 3600.0}, now=0.0)
    queue.fail(FLIGHT, [(0, 2)], "broken", now=0.0)
    queue.push(FLIGHT, [(0, 3)])
    assert queue.pop(LIVE, 0.0) == (FLIGHT, [(0, 3)])
    assert queue.pop(LIVE, backoff(1)) == (FLIGHT, [(0, 2)])
    assert queue.next_at(LIVE) == 3600.0


def test_only_a_failure_alone_uses_up_an_attempt() -> None:
    queue = RetryQueue(attempts=2)
    queue.fail(FLIGHT, keys(2), "broken", now=0.0)
    assert queue.attempts_of((0, 0)) == 0
    assert queue.fail(FLIGHT, [(0, 0)], "broken", now=0.0) is None
    assert queue.attempts_of((0, 0)) == 1
    assert queue.fail(FLIGHT, [(0, 0)], "still broken", now=1.0) == DeadLetter((0, 0), "still broken", 2)


def test_a_key_that_is_done_begins_anew_when_it_fails_again() -> None:
    """A worker leads for months: what a key did in an earlier flight must not count."""
    queue = RetryQueue(attempts=2)
    for _ in range(5):
        assert queue.fail(FLIGHT, [(0, 0)], "broken", now=0.0) is None
        assert queue.next_at(LIVE) == backoff(1)
        queue.pop(LIVE, LATER)
        queue.forget([(0, 0)])
        assert queue.attempts_of((0, 0)) == 0
    for _ in range(5):
        queue.delay(FLIGHT, {(0, 0): 0.0}, now=0.0)
        assert queue.next_at(LIVE) == backoff(1)
        queue.pop(LIVE, LATER)
        queue.forget([(0, 0), (0, 1)])


def test_a_document_that_failed_alone_is_waited_for_ever_longer() -> None:
    queue = RetryQueue(attempts=4)
    waits = []
    for _ in range(3):
        queue.fail(FLIGHT, [(0, 0)], "broken", now=100.0)
        at = queue.next_at(LIVE)
        assert at is not None
        waits.append(at - 100.0)
        queue.pop(LIVE, LATER)
    assert waits == pytest.approx([0.1, 0.2, 0.4])


def test_one_attempt_gives_up_at_once() -> None:
    queue = RetryQueue(attempts=1)
    assert queue.fail(FLIGHT, [(0, 0)], "no", now=0.0) == DeadLetter((0, 0), "no", 1)
    assert queue.next_at(LIVE) is None


def test_keys_that_are_put_off_use_up_no_attempt() -> None:
    queue = RetryQueue(attempts=1)
    for _ in range(50):
        queue.delay(FLIGHT, {(0, 0): 0.0}, now=0.0)
        queue.pop(LIVE, LATER)
    assert queue.attempts_of((0, 0)) == 0


def test_keys_that_are_put_off_alike_go_together() -> None:
    queue = RetryQueue(attempts=1)
    queue.delay(FLIGHT, {(0, 1): 3.0, (0, 2): 5.0, (0, 3): 3.0}, now=10.0)
    assert queue.next_at(LIVE) == 13.0
    assert queue.pop(LIVE, 13.0) == (FLIGHT, [(0, 1), (0, 3)])
    assert queue.next_at(LIVE) == 15.0


def test_keys_that_failed_alone_hide_no_others_that_are_put_off() -> None:
    """They may be on their way, or have failed in an earlier term and not have come yet."""
    queue = RetryQueue(attempts=9)
    for key in keys(10):
        queue.recall(key, 1)
    queue.delay(FLIGHT, {(0, number): 5.0 for number in range(20, 30)}, now=0.0)
    queue.fail(FLIGHT, [(0, 3)], "poison", now=0.0)
    assert (queue.keys, queue.put_off) == (11, 10)
    queue.pop(LIVE, 1.0)
    assert (queue.keys, queue.put_off) == (10, 10)
    queue.pop(LIVE, LATER)
    assert (queue.keys, queue.put_off) == (0, 0)


def test_a_sink_that_keeps_putting_off_is_asked_ever_more_rarely() -> None:
    queue = RetryQueue(attempts=1)
    waits = []
    for _ in range(20):
        queue.delay(FLIGHT, {(0, 0): 0.0}, now=0.0)
        assert queue.next_at(LIVE) is not None
        waits.append(queue.next_at(LIVE))
        queue.pop(LIVE, LATER)
    assert waits[:3] == pytest.approx([0.1, 0.2, 0.4])
    assert waits[-1] == 30.0


def test_nothing_to_push_is_nothing_to_do() -> None:
    queue = RetryQueue(attempts=1)
    queue.push(FLIGHT, [])
    queue.delay(FLIGHT, {}, now=0.0)
    assert queue.next_at(LIVE) is None


@given(st.integers(1, 10_000))
def test_delays_are_bounded(tries: int) -> None:
    assert 0 < backoff(tries) <= backoff(tries + 1) <= 30.0


# --- any sink -------------------------------------------------------------------------------------


class Course:
    """Sends groups until nothing is left, and notes how each key ended."""

    def __init__(self, count: int, attempts: int) -> None:
        self.queue = RetryQueue(attempts)
        self.queue.push(FLIGHT, keys(count))
        self.ended: Counter[Key] = Counter()
        self.dead_letters: dict[Key, DeadLetter] = {}
        self.sends: Counter[Key] = Counter()
        self.groups = 0
        self.now = 0.0

    def next_group(self) -> list[Key] | None:
        at = self.queue.next_at(LIVE)
        if at is None:
            assert self.queue.keys == 0
            return None
        assert not math.isnan(at)
        self.now = max(self.now, at)
        popped = self.queue.pop(LIVE, self.now)
        assert popped is not None
        flight, group = popped
        assert flight is FLIGHT
        assert group, "an empty group was to be sent"
        assert len(set(group)) == len(group), "a key stands twice in a group"
        assert not any(self.ended[key] for key in group), "a key that is done was sent again"
        self.groups += 1
        self.sends.update(group)
        return group

    def fail(self, group: list[Key]) -> None:
        dead_letter = self.queue.fail(FLIGHT, group, "broken", self.now)
        if dead_letter is not None:
            self.dead_letters[dead_letter.key] = dead_letter
            self.end([dead_letter.key])

    def end(self, group: Sequence[Key]) -> None:
        self.ended.update(group)
        self.queue.forget(group)


@settings(max_examples=200, deadline=None)
@given(count=st.integers(1, 40), attempts=st.integers(1, 4), data=st.data())
def test_each_key_ends_exactly_once_whatever_the_sink_answers(
    count: int, attempts: int, data: st.DataObject
) -> None:
    course = Course(count, attempts)
    while (group := course.next_group()) is not None:
        # A sink that misbehaves for ever ends nothing: after a while this one takes all.
        kinds = ("batch", "items", "unknown", "unsent")
        answer = data.draw(st.sampled_from(kinds)) if course.groups < 60 else "ok"
        if answer == "batch":
            course.fail(group)
        elif answer == "unknown":
            course.queue.split(FLIGHT, group, course.now)
        elif answer == "unsent":
            course.queue.push(FLIGHT, group, course.now)
        else:
            put_off = {}
            for key in group:
                item = data.draw(st.sampled_from(("ok", "retry", "reject"))) if answer == "items" else "ok"
                if item == "retry":
                    put_off[key] = data.draw(st.sampled_from((0.0, 0.5, 60.0)))
                else:
                    course.end([key])
            course.queue.delay(FLIGHT, put_off, course.now)
    assert course.ended == Counter(keys(count)), "a key was lost, or ended twice"
    assert all(dead_letter.attempts == attempts for dead_letter in course.dead_letters.values())


@settings(max_examples=200, deadline=None)
@given(count=st.integers(1, 500), attempts=st.integers(1, 5), data=st.data())
def test_a_poison_document_costs_itself_alone(count: int, attempts: int, data: st.DataObject) -> None:
    poison = (0, data.draw(st.integers(0, count - 1)))
    course = Course(count, attempts)
    while (group := course.next_group()) is not None:
        if poison in group:
            course.fail(group)
        else:
            course.end(group)
    assert list(course.dead_letters) == [poison]
    assert course.ended == Counter(keys(count))
    rounds, left = 0, count
    while left > 1:
        rounds, left = rounds + 1, math.ceil(left / 8)
    assert course.groups <= 8 * rounds + attempts, "seven groups more in each round"
    assert course.sends[poison] <= rounds + attempts
    assert max(course.sends.values()) <= rounds + max(attempts, 1)


# --- any order of calls, with many flights ---------------------------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Several flights whose groups fail, are put off and come back in any order."""

    ATTEMPTS = 3

    def __init__(self) -> None:
        super().__init__()
        self.queue = RetryQueue(self.ATTEMPTS)
        self.now = 0.0
        self.number = 0
        self.waiting: dict[Key, tuple[Flight, float]] = {}
        """Keys that wait: in which flight, and not before when."""
        self.out: list[tuple[Flight, list[Key]]] = []
        """Groups that were given out and have no result yet."""
        self.failures: Counter[Key] = Counter()

    def wait(self, flight: Flight, group: Sequence[Key], at: float) -> None:
        self.waiting.update((key, (flight, at)) for key in group)

    @rule(count=st.integers(1, 6), pause=st.sampled_from((0.0, 1.0, 50.0)))
    def begin_flight(self, count: int, pause: float) -> None:
        flight = Flight(PodClass.INCREMENTAL)
        group: list[Key] = [(0, self.number + i) for i in range(count)]
        self.number += count
        self.queue.push(flight, group, self.now + pause)
        self.wait(flight, group, self.now + pause)

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def pop(self) -> None:
        popped = self.queue.pop(LIVE, self.now)
        if popped is None:
            assert all(at > self.now for _, at in self.waiting.values()), "a group that is due is kept back"
            return
        flight, group = popped
        for key in group:
            owner, at = self.waiting.pop(key)
            assert owner is flight, "a group came back with another flight"
            assert at <= self.now, "a group came back too early"
        self.out.append(popped)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def it_fails(self, data: st.DataObject) -> None:
        flight, group = self.take_out(data)
        letter = self.queue.fail(flight, group, "broken", self.now)
        if len(group) > 1:
            assert letter is None
            self.wait(flight, group, self.now)
            return
        self.failures[group[0]] += 1
        failures = self.failures[group[0]]
        if failures < self.ATTEMPTS:
            assert letter is None
            self.wait(flight, group, self.now + backoff(failures))
        else:
            assert letter == DeadLetter(group[0], "broken", failures)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def nobody_knows(self, data: st.DataObject) -> None:
        flight, group = self.take_out(data)
        self.queue.split(flight, group, self.now)
        self.wait(flight, group, self.now)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), after=st.sampled_from((31.0, 60.0)))
    def it_is_put_off(self, data: st.DataObject, after: float) -> None:
        flight, group = self.take_out(data)
        self.queue.delay(flight, dict.fromkeys(group, after), self.now)
        self.wait(flight, group, self.now + after)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def it_is_done(self, data: st.DataObject) -> None:
        _, group = self.take_out(data)
        self.queue.forget(group)
        for key in group:
            del self.failures[key]

    def take_out(self, data: st.DataObject) -> tuple[Flight, list[Key]]:
        return self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))

    @invariant()
    def it_knows_what_waits(self) -> None:
        assert self.queue.keys == len(self.waiting)
        assert self.queue.next_at(LIVE) == min((at for _, at in self.waiting.values()), default=None)
        for key, failures in self.failures.items():
            assert self.queue.attempts_of(key) == failures


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
