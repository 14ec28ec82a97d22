"""Whose turn it is: live changes first, and backfill has its share of the turns, whatever waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.model import PodClass
from pytube.turns import BackfillShare

INC, BACKFILL = PodClass.INCREMENTAL, PodClass.BACKFILL


def test_nothing_waits() -> None:
    assert BackfillShare(0.2).choose(incremental=0, backfill=0) is None


def test_incremental_goes_first() -> None:
    assert BackfillShare(0.2).choose(incremental=1, backfill=1) is INC


def test_backfill_alone_gets_everything() -> None:
    share = BackfillShare(0.2)
    for _ in range(5):
        assert share.choose(incremental=0, backfill=9) is BACKFILL
        share.record(BACKFILL, incremental=0, backfill=9)


@pytest.mark.parametrize("left", [0, 3])
def test_what_backfill_took_alone_is_not_held_against_it(left: int) -> None:
    share = BackfillShare(0.5)
    for _ in range(1000):
        share.record(BACKFILL, incremental=0, backfill=9)
    share.record(INC, incremental=left, backfill=1)
    assert share.choose(incremental=1, backfill=1) is BACKFILL


@pytest.mark.parametrize("wanted", [0.05, 0.2, 0.5, 0.9])
def test_while_both_wait_backfill_gets_its_share(wanted: float) -> None:
    share = BackfillShare(wanted)
    turns = {INC: 0, BACKFILL: 0}
    for _ in range(2000):
        chosen = share.choose(incremental=9, backfill=9)
        assert chosen is not None
        share.record(chosen, incremental=9, backfill=9)
        turns[chosen] += 1
    assert turns[BACKFILL] / sum(turns.values()) == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize("share", [BackfillShare(0.01), BackfillShare(0.2), BackfillShare(0.5)])
def test_live_changes_that_trickle_and_backfill_take_turns(share: BackfillShare) -> None:
    """Whenever the next turn comes, a change has come that was not there at the last one."""
    for _ in range(100):
        assert share.choose(incremental=1, backfill=9) is INC
        share.record(INC, incremental=0, backfill=9)
        assert share.choose(incremental=1, backfill=9) is BACKFILL
        share.record(BACKFILL, incremental=1, backfill=9)


@given(st.floats(0.01, 0.9), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=100))
def test_what_is_chosen_waits(wanted: float, waits: list[tuple[int, int]]) -> None:
    share = BackfillShare(wanted)
    for incremental, backfill in waits:
        chosen = share.choose(incremental=incremental, backfill=backfill)
        if chosen is None:
            assert incremental == backfill == 0
        else:
            keys = incremental if chosen is INC else backfill
            assert keys > 0, f"{chosen.name} was chosen though none of it waits"
            share.record(chosen, incremental=incremental, backfill=backfill)
