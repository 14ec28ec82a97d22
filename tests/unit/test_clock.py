"""The clock of trust: as monotonic as Python's, but it goes on while the machine is suspended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest

from pytube import clock
from pytube.model import Batch, Token
from pytube.sources.terms import Term
from pytube.worker.active_term import ActiveTerm
from tests.unit.fakes import FakeClaim

Sleep = Callable[[float], None]


@pytest.fixture
def machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleep:
    """Has the machine suspended for so many seconds: on Linux, Python's clock falls behind by them."""

    def sleep(seconds: float) -> None:
        monotonic = time.monotonic
        boot_time = time.clock_gettime
        if sys.platform == "linux":
            monkeypatch.setattr(time, "clock_gettime", lambda which: boot_time(which) + seconds)
        else:
            monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)

    return sleep


def _batch() -> Batch:
    return Batch("t", 0, Token(1, 1), [])


def test_it_is_pythons_while_the_machine_is_awake() -> None:
    assert clock.now() == pytest.approx(time.monotonic(), abs=0.05)
    assert clock.on_monotonic(clock.now() + 7) == pytest.approx(time.monotonic() + 7, abs=0.05)


def test_it_goes_on_while_the_machine_sleeps(machine_sleeps: Sleep) -> None:
    before = clock.now()
    machine_sleeps(3600)
    assert clock.now() >= before + 3600


def test_a_deadline_from_before_the_sleep_is_told_by_pythons_clock(machine_sleeps: Sleep) -> None:
    deadline = clock.now() + 3605
    machine_sleeps(3600)
    assert clock.on_monotonic(deadline) <= time.monotonic() + 3605
    assert clock.on_monotonic(deadline) - time.monotonic() == pytest.approx(deadline - clock.now(), abs=0.05)


async def test_trust_is_over_after_a_sleep(machine_sleeps: Sleep) -> None:
    active_term = ActiveTerm(
        Term("t", 1, 0, epoch=1), FakeClaim(), deadline=5.0, sent_at=clock.now(), emit=lambda _: None
    )
    assert active_term.is_trusted
    machine_sleeps(6)
    assert not active_term.is_trusted


def test_a_batch_that_was_given_to_the_sink_before_the_sleep_has_lapsed(machine_sleeps: Sleep) -> None:
    batch = _batch()
    assert not batch.has_lapsed()
    batch.trust_until(clock.now() + 5)
    assert not batch.has_lapsed()
    machine_sleeps(6)
    assert batch.has_lapsed()


def test_a_sink_that_looks_at_send_before_is_right_while_the_machine_is_awake() -> None:
    batch = _batch()
    batch.trust_until(clock.now() + 5)
    assert batch.send_before == pytest.approx(time.monotonic() + 5, abs=0.05)
    batch.send_before = time.monotonic()
    assert batch.has_lapsed()


def test_the_wall_clock_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = _batch()
    batch.trust_until(clock.now() + 1000)
    for jump in (-3600.0, 3600.0):
        wall = time.time()
        monkeypatch.setattr(time, "time", lambda: wall + jump)  # noqa: B023 # called at once
        assert not batch.has_lapsed()
    batch.trust_until(float("-inf"))
    assert batch.has_lapsed()


def test_lengths_of_time_for_people() -> None:
    shown = [clock.for_people(seconds) for seconds in (-1, 0, 0.0125, 0.9996, 61, 119.9, 120, 7200, 200_000)]
    assert shown == ["0 ms", "0 ms", "12 ms", "1.0 s", "61.0 s", "119.9 s", "2 min", "2 h", "2 d"]
