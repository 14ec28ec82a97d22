"""What counts as a stream of pods."""

from __future__ import annotations

from pytube.worker.stream import BURST, RATE, Stream


def _running(pods: int, seconds: float, each: int = 1) -> tuple[Stream, float]:
    """`pods` that came at equal distances within so many seconds, and the time of the last."""
    stream = Stream()
    now = 1000.0
    for _ in range(pods):
        now += seconds / pods
        stream.came(each, now)
    return stream, now


def test_nothing_came_so_nothing_runs() -> None:
    stream = Stream()
    assert not stream.runs(1000.0)
    assert stream.is_over(1000.0)


def test_fifty_pods_a_second_are_no_stream_however_long_they_come() -> None:
    stream, now = _running(5000, 100.0)
    assert not stream.runs(now)


def test_a_hundred_pods_a_second_are_a_stream_soon() -> None:
    stream, now = _running(100, 1.0)
    assert stream.runs(now)


def test_many_pods_at_once_are_a_stream_at_once() -> None:
    stream, now = _running(1, 0.0, each=1000)
    assert stream.runs(now)


def test_a_stream_is_over_within_a_moment_after_its_last_pod() -> None:
    stream, now = _running(100_000, 10.0)
    assert not stream.is_over(now + 0.02)
    assert stream.is_over(now + BURST / RATE)


def test_a_stream_that_slows_down_is_over_though_pods_still_come() -> None:
    stream, now = _running(1000, 1.0)
    for _ in range(50):
        now += 0.02
        stream.came(1, now)
        if stream.is_over(now + 0.01):
            return
    raise AssertionError("fifty pods a second keep it up for a second")
