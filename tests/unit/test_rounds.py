"""When the rounds of a partition may begin."""

from __future__ import annotations

import pytest

from pytube.worker.pace import MULTIPLE, RoundPacer

LATENCY = 0.02
COST = 0.001


def round_of(pacer: RoundPacer, now: float, found: int, *, full: bool = False, cost: float = COST) -> float:
    """A round that begins now: seconds until the next one may."""
    pacer.begin(now)
    pacer.end_exchange(cost, found, full=full)
    return pacer.next_at - now


def test_the_first_round_begins_at_once() -> None:
    assert RoundPacer(LATENCY).next_at <= 0.0


def test_a_round_that_found_something_puts_the_next_one_off_by_a_multiple_of_what_it_cost() -> None:
    assert round_of(RoundPacer(LATENCY), 5.0, 1) == pytest.approx(MULTIPLE * COST)


def test_what_a_send_takes_counts_too() -> None:
    pacer = RoundPacer(LATENCY)
    pacer.note_delivery(2 * COST)
    assert round_of(pacer, 5.0, 1) == pytest.approx(MULTIPLE * 3 * COST)


def test_no_round_is_put_off_by_more_than_the_latency() -> None:
    pacer = RoundPacer(LATENCY)
    pacer.note_delivery(30.0)  # a sink that hangs
    assert round_of(pacer, 5.0, 1) == pytest.approx(LATENCY)


@pytest.mark.parametrize(("found", "full"), [(0, False), (100, True)], ids=["nothing", "all it could"])
def test_a_round_that_found_nothing_or_all_it_could_puts_nothing_off(found: int, full: bool) -> None:
    assert round_of(RoundPacer(LATENCY), 5.0, found, full=full) <= 0.0


def test_without_latency_no_round_is_put_off() -> None:
    assert round_of(RoundPacer(0.0), 5.0, 1) == 0.0


def test_a_single_slow_round_does_not_set_the_pace() -> None:
    pacer = RoundPacer(1.0)
    for number in range(20):
        round_of(pacer, number, 1)
    after = round_of(pacer, 20.0, 1, cost=0.05)
    assert after < 0.25 * MULTIPLE * 0.05


def test_a_stream_of_changes_shares_rounds() -> None:
    """1,000 changes a second for a second: as many rounds as the latency allows, and all are found."""
    pacer, now, seen, rounds = RoundPacer(LATENCY), 0.0, 0, 0
    while now < 1.0:
        there = int(now * 1000)
        found, seen = there - seen, there
        wait = round_of(pacer, now, found, cost=0.01)
        rounds += 1
        now += max(wait, 0.001)
    assert rounds <= 1 / LATENCY + 2
    assert seen >= 1000 - 2 * LATENCY * 1000


def test_a_row_that_changes_often_is_sent_the_less_often() -> None:
    pacer = RoundPacer(LATENCY)
    pacer.note_touches(3, 1)
    assert round_of(pacer, 5.0, 3) == pytest.approx(3 * MULTIPLE * COST)
    pacer.note_touches(5, 0)  # the key waits already
    assert round_of(pacer, 6.0, 5) == pytest.approx(LATENCY)
    pacer.note_touches(4, 4)
    assert round_of(pacer, 7.0, 4) == pytest.approx(MULTIPLE * COST)
