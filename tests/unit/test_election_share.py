"""Fair shares under leases."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from pytube.election.lease import LeaseTick, decide, fair_share

CHOICE = random.Random(1)
NONE: frozenset[int] = frozenset()


def tick(partitions: int, instances: int, free: set[int], rank: int | None = None) -> LeaseTick:
    return LeaseTick(partitions, instances, free, set(), rank)


def test_a_lone_process_takes_everything() -> None:
    assert decide(tick(4, 1, {0, 1, 2, 3}), NONE, NONE, NONE, CHOICE).claim == {0, 1, 2, 3}


def test_free_partitions_beyond_the_share_are_left() -> None:
    assert len(decide(tick(4, 2, {1, 2, 3}), {0}, NONE, NONE, CHOICE).claim) == 1
    assert not decide(tick(4, 2, {2, 3}), {0, 1}, NONE, NONE, CHOICE).claim


def test_a_surplus_is_given_back_one_at_a_time() -> None:
    assert decide(tick(4, 2, set()), {0, 1, 2, 3}, NONE, NONE, CHOICE).give_back == {3}
    assert not decide(tick(4, 2, set()), {0, 1, 2}, {3}, NONE, CHOICE).give_back


def test_the_only_partition_of_a_process_is_not_taken_from_it_for_one_that_comes_later() -> None:
    assert not decide(tick(1, 2, set(), 1), {0}, NONE, NONE, CHOICE).give_back
    assert not decide(tick(2, 3, set(), 2), {0}, NONE, NONE, CHOICE).give_back
    assert decide(tick(2, 3, set(), 2), {0, 1}, NONE, NONE, CHOICE).give_back == {1}


def test_what_is_being_given_back_counts_still() -> None:
    assert not decide(tick(4, 2, {2}), {0}, {1}, NONE, CHOICE).claim


def test_partitions_that_are_no_more_are_given_back_at_once() -> None:
    steps = decide(tick(2, 1, {1}), {0, 2, 3}, NONE, NONE, CHOICE)
    assert steps.give_back == {2, 3}
    assert steps.claim == {1}


def test_what_was_just_refused_is_passed_over() -> None:
    assert decide(tick(2, 1, {0, 1}), NONE, NONE, {0}, CHOICE).claim == {1}


def test_own_partitions_that_have_no_claim_are_taken_up_again() -> None:
    assert decide(LeaseTick(2, 1, {0}, {1}), NONE, NONE, NONE, CHOICE).claim == {0, 1}


@given(st.integers(1, 64), st.integers(1, 80))
def test_ranked_shares_add_up(partitions: int, instances: int) -> None:
    shares = [fair_share(tick(partitions, instances, set(), rank)) for rank in range(instances)]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1
    assert fair_share(tick(partitions, instances, set())) == math.ceil(partitions / instances)


@given(st.integers(1, 12), st.integers(1, 6), st.randoms(use_true_random=False), st.booleans())
def test_all_partitions_are_taken_and_shared(
    partitions: int, instances: int, choice: random.Random, ranked: bool
) -> None:
    """Processes that come one after the other, and take turns in any order, get to a fair state."""
    held: list[set[int]] = [set() for _ in range(instances)]
    for present in range(1, instances + 1):
        for turn in range(partitions * present + present):
            who = turn % present
            free = set(range(partitions)) - set().union(*held)
            now = tick(partitions, present, free, who if ranked else None)
            steps = decide(now, held[who], NONE, NONE, choice)
            assert steps.claim <= free
            assert len(steps.give_back) <= 1
            held[who] = (held[who] | steps.claim) - steps.give_back
    assert set().union(*held) == set(range(partitions))
    assert sum(map(len, held)) == partitions
    assert max(map(len, held)) <= math.ceil(partitions / instances)
    if ranked:
        assert max(map(len, held)) - min(map(len, held)) <= 1
