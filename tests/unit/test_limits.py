"""What a sink is given, and when: the rate, and the slow start after an outage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.pipeline.limits import SlowStart, TokenBucket

SLACK = 1e-6


@given(
    rate=st.floats(0.5, 1e5),
    requests=st.lists(st.tuples(st.integers(1, 600), st.floats(0, 3)), min_size=1, max_size=40),
)
def test_in_no_span_does_more_pass_than_the_rate_and_a_second_s_worth(
    rate: float, requests: list[tuple[int, float]]
) -> None:
    bucket, now = TokenBucket(rate), 0.0
    most = max(1.0, rate)
    passed: list[tuple[float, float]] = []
    for units, idle in requests:
        now += idle
        now += bucket.wait(units, now)
        assert bucket.wait(units, now) < SLACK
        bucket.take(units, now)
        passed.append((now, units))
    for first, (begin, _) in enumerate(passed):
        for last in range(first, len(passed)):
            # What the last one is larger than a second's worth is paid for by those behind it.
            together = sum(count for _, count in passed[first:last]) + min(most, passed[last][1])
            assert together <= most + rate * (passed[last][0] - begin) + SLACK * (1 + together)


def test_what_did_not_pass_may_pass_later() -> None:
    bucket = TokenBucket(10)
    bucket.take(10, 0.0)
    assert bucket.wait(5, 0.0) == pytest.approx(0.5)
    bucket.give_back(10)
    assert bucket.wait(10, 0.0) == 0


@given(st.integers(1, 200))
def test_a_slow_start_doubles_with_each_second_and_ends(first: int) -> None:
    start, now, begun = SlowStart(first), 100.0, [0] * 4
    start.begin(now)
    assert start.wait(now) > 0, "what waits does not start all at once"
    while now < 104:
        now += start.wait(now)
        start.take()
        if now < 104:
            begun[int(now - 100)] += 1
    for second, count in enumerate(begun):
        assert abs(count - first * 2**second) <= 1
    assert begun[0] <= first
    assert start.is_over(100 + SlowStart.SECONDS)
    assert start.wait(100 + SlowStart.SECONDS) == 0


def test_without_an_outage_there_is_no_slow_start() -> None:
    start = SlowStart(1)
    start.take()
    assert start.wait(5.0) == 0
