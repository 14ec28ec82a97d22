"""How old what a watcher shows may be."""

from __future__ import annotations

import time
from typing import cast

import psycopg
import pytest

from pytube.health import watcher
from pytube.health.watcher import _LEADING, _Pace, _Paced


@pytest.mark.parametrize(("took", "kept"), [(0.01, 2.4), (2.0, 5.0)])
def test_what_was_slow_once_is_read_again_soon(
    monkeypatch: pytest.MonkeyPatch, took: float, kept: float
) -> None:
    """A busy machine had a read take seconds: whether somebody leads is to be known soon all the same."""
    now = 1000.0
    session = cast("psycopg.Connection", None)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    reads = iter(range(10))
    paced = _Paced(_LEADING, lambda _: (next(reads), took))
    assert paced.get(session) == 0
    now += kept - 0.01
    assert paced.get(session) == 0
    now += 0.02
    assert (paced.get(session), paced.read_at) == (1, now)
    paced.forget()
    assert paced.get(session) == 2


def test_nothing_is_kept_for_more_than_two_minutes() -> None:
    paces = [pace for pace in vars(watcher).values() if isinstance(pace, _Pace)]
    assert [pace.longest for pace in paces] == [5, 30, 120, 0]
