"""Declared documents on the real engine: whatever is written, and whenever workers die, copies are right."""

from __future__ import annotations

import time

import pytest

from pytube.config import Config
from tests.crash.documents_bugs import BUGS
from tests.crash.documents_rounds import Bug, Differs, Rounds, apply_documents

ROUNDS = 40
"""Of a seed: then tables are empty again."""
FILLED = 150
"""Statements before the first of them."""
LONG_SEEDS = 8
BUG_LIMIT = 60.0
"""Seconds within which a bug has to be found."""


def test_copies_are_the_documents_by_hand(dsn: str) -> None:
    rounds = run(dsn, apply_documents(dsn), seed=1)
    assert rounds.done["kills"] >= 1
    assert rounds.done["held"] >= ROUNDS // 2
    assert rounds.done["failed"] < rounds.done["statements"] / 4


@pytest.mark.soak
def test_copies_are_the_documents_by_hand_for_long(any_dsn: str) -> None:
    config = apply_documents(any_dsn)
    for seed in range(1, 1 + LONG_SEEDS):
        run(any_dsn, config, seed)


@pytest.mark.soak
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_found_within_a_minute(dsn: str, bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    config = apply_documents(dsn, bug)
    bug.patch(monkeypatch, dsn)
    with pytest.raises(Differs):
        run_for(BUG_LIMIT, dsn, config)


def run(dsn: str, config: Config, seed: int, until: float = float("inf")) -> Rounds:
    """All rounds of a seed; what was done."""
    with Rounds(dsn, config, seed) as rounds:
        rounds.fill(FILLED)
        for _ in range(ROUNDS):
            if time.monotonic() < until:
                rounds.round()
    return rounds


def run_for(seconds: float, dsn: str, config: Config) -> None:
    """One seed after the other."""
    until = time.monotonic() + seconds
    seed = 0
    while time.monotonic() < until:
        seed += 1
        run(dsn, config, seed, until)
