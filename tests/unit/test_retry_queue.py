"""The retry queue: whatever a sink answers, each key ends exactly once, and poison costs itself alone."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytube.model import Key
from pytube.pipeline.retry_queue import DeadLetter, RetryQueue, backoff


def keys(count: int) -> list[Key]:
    return [(0, number) for number in range(count)]


def test_a_failed_group_is_sent_again_in_halves() -> None:
    queue = RetryQueue(attempts=3)
    assert queue.fail(keys(5), "broken", now=1.0) is None
    assert queue.next_at == 1.0, "halves are not waited for"
    assert [queue.pop(), queue.pop()] == [keys(5)[:3], keys(5)[3:]]
    assert queue.next_at is None


def test_only_a_failure_alone_uses_up_an_attempt() -> None:
    queue = RetryQueue(attempts=2)
    queue.fail(keys(2), "broken", now=0.0)
    assert queue.attempts_of((0, 0)) == 0
    assert queue.fail([(0, 0)], "broken", now=0.0) is None
    assert queue.attempts_of((0, 0)) == 1
    assert queue.fail([(0, 0)], "still broken", now=1.0) == DeadLetter((0, 0), "still broken", 2)


def test_a_document_that_failed_alone_is_waited_for_ever_longer() -> None:
    queue = RetryQueue(attempts=4)
    waits = []
    for _ in range(3):
        queue.fail([(0, 0)], "broken", now=100.0)
        assert queue.next_at is not None
        waits.append(queue.next_at - 100.0)
        queue.pop()
    assert waits == pytest.approx([0.1, 0.2, 0.4])


def test_one_attempt_gives_up_at_once() -> None:
    assert RetryQueue(attempts=1).fail([(0, 0)], "no", now=0.0) == DeadLetter((0, 0), "no", 1)


def test_keys_that_are_put_off_use_up_no_attempt() -> None:
    queue = RetryQueue(attempts=1)
    for _ in range(50):
        queue.delay({(0, 0): 0.0}, now=0.0)
        queue.pop()
    assert queue.attempts_of((0, 0)) == 0


def test_keys_that_are_put_off_alike_go_together() -> None:
    queue = RetryQueue(attempts=1)
    queue.delay({(0, 1): 3.0, (0, 2): 5.0, (0, 3): 3.0}, now=10.0)
    assert queue.next_at == 13.0
    assert queue.pop() == [(0, 1), (0, 3)]
    assert queue.next_at == 15.0


def test_a_sink_that_keeps_putting_off_is_asked_ever_more_rarely() -> None:
    queue = RetryQueue(attempts=1)
    waits = []
    for _ in range(20):
        queue.delay({(0, 0): 0.0}, now=0.0)
        assert queue.next_at is not None
        waits.append(queue.next_at)
        queue.pop()
    assert waits[:3] == pytest.approx([0.1, 0.2, 0.4])
    assert waits[-1] == 30.0


def test_nothing_to_push_is_nothing_to_do() -> None:
    queue = RetryQueue(attempts=1)
    queue.push([])
    queue.delay({}, now=0.0)
    assert queue.next_at is None


@given(st.integers(1, 10_000))
def test_delays_are_bounded(tries: int) -> None:
    assert 0 < backoff(tries) <= backoff(tries + 1) <= 30.0


# --- any sink -------------------------------------------------------------------------------------


class Course:
    """Sends groups until nothing is left, and notes how each key ended."""

    def __init__(self, count: int, attempts: int) -> None:
        self.queue = RetryQueue(attempts)
        self.queue.push(keys(count))
        self.ended: Counter[Key] = Counter()
        self.dead_letters: dict[Key, DeadLetter] = {}
        self.sends: Counter[Key] = Counter()
        self.groups = 0
        self.now = 0.0

    def next_group(self) -> list[Key] | None:
        at = self.queue.next_at
        if at is None:
            return None
        assert not math.isnan(at)
        self.now = max(self.now, at)
        group = self.queue.pop()
        assert group, "an empty group was to be sent"
        assert len(set(group)) == len(group), "a key stands twice in a group"
        assert not any(self.ended[key] for key in group), "a key that is done was sent again"
        self.groups += 1
        self.sends.update(group)
        return group

    def fail(self, group: list[Key]) -> None:
        dead_letter = self.queue.fail(group, "broken", self.now)
        if dead_letter is not None:
            self.dead_letters[dead_letter.key] = dead_letter
            self.ended[dead_letter.key] += 1


@settings(max_examples=200, deadline=None)
@given(count=st.integers(1, 40), attempts=st.integers(1, 4), data=st.data())
def test_each_key_ends_exactly_once_whatever_the_sink_answers(
    count: int, attempts: int, data: st.DataObject
) -> None:
    course = Course(count, attempts)
    while (group := course.next_group()) is not None:
        # A sink that misbehaves for ever ends nothing: after a while this one takes all.
        answer = data.draw(st.sampled_from(("batch", "items", "unknown"))) if course.groups < 60 else "ok"
        if answer == "batch":
            course.fail(group)
        elif answer == "unknown":
            course.queue.push(group, course.now)
        else:
            put_off = {}
            for key in group:
                item = data.draw(st.sampled_from(("ok", "retry", "reject"))) if answer == "items" else "ok"
                if item == "retry":
                    put_off[key] = data.draw(st.sampled_from((0.0, 0.5, 60.0)))
                else:
                    course.ended[key] += 1
            course.queue.delay(put_off, course.now)
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
            course.ended.update(group)
    assert list(course.dead_letters) == [poison]
    assert course.ended == Counter(keys(count))
    halvings = math.ceil(math.log2(count)) if count > 1 else 0
    assert course.groups <= 2 * halvings + attempts, "one group more on each side per halving"
    assert course.sends[poison] <= halvings + attempts
    assert max(course.sends.values()) <= halvings + max(attempts, 1)
