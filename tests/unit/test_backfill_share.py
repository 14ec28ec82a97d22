"""Backfill gets its share of the sends while other touches wait, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytube.pipeline.backfill_share import BackfillShare

from pytube.model import PodClass

INC, BACKFILL = PodClass.INCREMENTAL, PodClass.BACKFILL


def test_nothing_waits() -> None:
    assert BackfillShare(0.2).choose(incremental=0, backfill=0) is None


def test_incremental_goes_first() -> None:
    assert BackfillShare(0.2).choose(incremental=1, backfill=1) is INC


def test_backfill_alone_gets_everything() -> None:
    share = BackfillShare(0.2)
    for _ in range(5):
        assert share.choose(incremental=0, backfill=9) is BACKFILL
        share.record(BACKFILL, 9, both_waited=False)


def test_what_backfill_took_alone_is_not_held_against_it() -> None:
    share = BackfillShare(0.5)
    share.record(BACKFILL, 10_000, both_waited=False)
    share.record(INC, 1, both_waited=True)
    assert share.choose(incremental=1, backfill=1) is BACKFILL


@pytest.mark.parametrize("wanted", [0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("size", [1, 64, 500])
def test_while_both_wait_backfill_gets_its_share(wanted: float, size: int) -> None:
    share = BackfillShare(wanted)
    taken = {INC: 0, BACKFILL: 0}
    for _ in range(2000):
        chosen = share.choose(incremental=size, backfill=size)
        assert chosen is not None
        share.record(chosen, size, both_waited=True)
        taken[chosen] += size
    assert taken[BACKFILL] / sum(taken.values()) == pytest.approx(wanted, abs=0.01)


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
            share.record(chosen, keys, both_waited=bool(incremental and backfill))
