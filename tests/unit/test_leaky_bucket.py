"""What the leaky bucket counts as a stream of pods."""

from __future__ import annotations

from pytube.worker.leaky_bucket import CAPACITY, RATE, LeakyBucket


def _filled(pods: int, seconds: float, each: int = 1) -> tuple[LeakyBucket, float]:
    """A bucket after `pods` arrivals, evenly spread over so many seconds, and the time of the last."""
    bucket = LeakyBucket()
    now = 1000.0
    for _ in range(pods):
        now += seconds / pods
        bucket.add(each, now)
    return bucket, now


def test_without_pods_there_is_no_stream() -> None:
    bucket = LeakyBucket()
    assert not bucket.is_full(1000.0)
    assert bucket.is_empty(1000.0)


def test_fifty_pods_a_second_are_no_stream_however_long_they_come() -> None:
    bucket, now = _filled(5000, 100.0)
    assert not bucket.is_full(now)


def test_a_hundred_pods_a_second_are_a_stream_soon() -> None:
    bucket, now = _filled(100, 1.0)
    assert bucket.is_full(now)


def test_many_pods_at_once_are_a_stream_at_once() -> None:
    bucket, now = _filled(1, 0.0, each=1000)
    assert bucket.is_full(now)


def test_a_stream_is_over_within_a_moment_after_its_last_pod() -> None:
    bucket, now = _filled(100_000, 10.0)
    assert not bucket.is_empty(now + 0.02)
    assert bucket.is_empty(now + CAPACITY / RATE)


def test_a_stream_that_slows_down_is_over_though_pods_still_come() -> None:
    bucket, now = _filled(1000, 1.0)
    for _ in range(50):
        now += 0.02
        bucket.add(1, now)
        if bucket.is_empty(now + 0.01):
            return
    raise AssertionError("fifty pods a second keep it up for a second")
