"""What a sink is given, and when: the rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.pipeline.limits import TokenBucket

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
