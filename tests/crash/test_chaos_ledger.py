"""The checker of the long run finds each kind of trouble.

Every test takes the same good window, spoils one thing, and names the one invariant that it breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.crash.chaos.invariants import Invariant
from tests.crash.chaos.ledger import Ledger
from tests.crash.chaos.records import Change, Pod, Purge, Term, Window
from tests.crash.window import (
    FIRST,
    ID,
    KEY,
    OTHER,
    SECOND,
    SHARD,
    a_change_makes_no_touch,
    broken,
    call,
    deleted,
    good,
    line,
)

Spoil = Callable[[Window], None]


def test_nothing_is_wrong() -> None:
    assert Ledger().take(good()) == []


def a_write_is_lost(window: Window) -> None:
    window.lines = window.lines[:1]


def a_row_is_left_at_the_sink(window: Window) -> None:
    window.rows = {}


def a_row_is_not_at_the_sink(window: Window) -> None:
    window.rows = {**window.rows, OTHER: {"id": 8, "n": 1}}


def the_highest_token_has_an_old_state(window: Window) -> None:
    window.lines = [*window.lines, line(1, SECOND, 2, 31.5)]


def a_touch_of_another_transaction_does_not_count(window: Window) -> None:
    window.changes = [window.changes[0], Change(503, KEY, 2)]


def a_pod_is_left(window: Window) -> None:
    window.left = 1


def a_pod_vanishes(window: Window) -> None:
    window.purges = window.purges[:1]


def a_pod_is_purged_before_the_answer(window: Window) -> None:
    window.purges = [window.purges[0], replace(window.purges[1], at=31.05)]


def a_pod_is_purged_without_a_send(window: Window) -> None:
    window.pods = [*window.pods, Pod(3, 503, *OTHER[:1], [8], 30.0)]
    window.purges = [*window.purges, Purge(3, "b", 32.0)]


def a_pod_that_nobody_saw_is_purged(window: Window) -> None:
    window.purges = [*window.purges, Purge(9, "b", 32.0)]


def a_send_that_began_before_the_touch_counts_for_it(window: Window) -> None:
    window.pods = [window.pods[0], replace(window.pods[1], ts=31.01)]


def a_send_of_an_older_state_counts_for_a_touch(window: Window) -> None:
    window.calls = [window.calls[0], call(1, SECOND, 1, 31.0)]


def a_send_of_a_delete_counts_for_a_row_that_is_there(window: Window) -> None:
    window.calls = [window.calls[0], call(None, SECOND, 1, 31.0)]


def a_send_of_an_earlier_delete_counts_for_a_touch(window: Window) -> None:
    """The later xid deleted first: that is why xids do not tell the order."""
    window.changes = [Change(501, KEY, 1), Change(503, KEY, None), Change(502, KEY, 2)]
    window.pods = [*window.pods, Pod(3, 503, SHARD, [ID], 29.9)]
    window.purges = [*window.purges, Purge(3, "b", 32.0)]
    window.calls = [window.calls[0], call(None, SECOND, 1, 31.0)]


def a_send_of_a_row_that_is_gone_counts_for_its_delete(window: Window) -> None:
    deleted(window)
    window.calls = [window.calls[0], call(2, SECOND, 1, 31.0)]


def a_send_that_failed_counts_for_a_touch(window: Window) -> None:
    window.calls = [window.calls[0], call(2, SECOND, 1, 31.0, failed=True)]


def a_send_that_was_not_answered_counts_for_a_touch(window: Window) -> None:
    window.calls = [window.calls[0], call(2, SECOND, 1, 31.0, ended=None)]


def a_key_that_was_put_off_counts_as_sent(window: Window) -> None:
    window.calls = [window.calls[0], call(2, SECOND, 1, 31.0, delayed=frozenset({KEY}))]


def a_purge_by_a_term_that_is_over(window: Window) -> None:
    window.purges = [replace(window.purges[0], at=24.5), window.purges[1]]


def a_purge_by_a_term_that_has_not_begun(window: Window) -> None:
    window.purges = [replace(window.purges[0], leader_id="b"), window.purges[1]]


def a_purge_without_a_term(window: Window) -> None:
    window.purges = [window.purges[0], replace(window.purges[1], leader_id=None)]


def a_purge_of_another_partition(window: Window) -> None:
    window.terms = [*window.terms, Term("c", 250, 4, 1, 5.0, 26.0, 33.0)]
    window.purges = [window.purges[0], replace(window.purges[1], leader_id="c")]


def two_sends_of_a_key_within_a_term(window: Window) -> None:
    window.calls = [*window.calls, call(2, SECOND, 2, 31.05)]


def a_late_send_is_not_waited_for_within_a_term(window: Window) -> None:
    window.calls = [
        window.calls[0],
        call(2, SECOND, 1, 25.5, ended=31.8, failed=True),
        call(2, SECOND, 2, 31.0),
    ]


def a_send_without_an_end_within_a_term(window: Window) -> None:
    window.calls = [window.calls[0], call(2, SECOND, 1, 30.9, ended=None), call(2, SECOND, 2, 31.0)]


def two_sends_of_a_key_under_two_terms(window: Window) -> None:
    window.terms = [replace(window.terms[0], renewed_at=29.5, hold=0.5, ended_at=30.5), window.terms[1]]
    window.renewals = {**window.renewals, "a": [10.5, 29.5]}
    window.calls = [*window.calls, call(1, FIRST, 2, 30.3, ended=31.5, failed=True)]


def an_old_term_writes_after_a_new_one(window: Window) -> None:
    window.lines = [*window.lines, line(9, FIRST, 2, 31.5, OTHER)]
    window.rows = {**window.rows, OTHER: {"id": 8, "n": 9}}


def a_lower_token_arrives_after_a_higher_one(window: Window) -> None:
    window.lines = [window.lines[0], line(2, SECOND, 2, 31.05), line(2, SECOND, 1, 31.06)]


def a_token_arrives_twice(window: Window) -> None:
    window.lines = [*window.lines, line(2, SECOND, 1, 31.06)]


def a_term_that_nobody_knows_writes(window: Window) -> None:
    window.lines = [*window.lines, line(2, 300, 1, 31.5)]


def a_term_that_nobody_knows_speaks(window: Window) -> None:
    window.told = {**window.told, "nobody": 26.0}


def a_term_writes_to_another_partition(window: Window) -> None:
    window.lines = [*window.lines, line(1, SECOND, 2, 31.5, (1, 9))]
    window.rows = {**window.rows, (1, 9): {"id": 9, "n": 1}}


def a_send_long_after_the_last_renewal(window: Window) -> None:
    window.terms = [window.terms[0], replace(window.terms[1], renewed_at=28.9)]
    window.renewals = {**window.renewals, "b": [24.0, 28.9]}


def a_send_long_after_a_renewal_of_a_term_that_is_renewed_again(window: Window) -> None:
    window.renewals = {**window.renewals, "b": [24.0, 28.9, 31.01, 33.0]}


def a_send_long_after_the_beginning_of_a_term_without_a_renewal(window: Window) -> None:
    window.renewals = {"a": window.renewals["a"]}


def a_send_after_the_release(window: Window) -> None:
    window.terms = [
        window.terms[0],
        replace(window.terms[1], renewed_at=30.5, ended_at=30.9, outcome="released"),
    ]
    window.purges = [window.purges[0], replace(window.purges[1], leader_id="c")]
    window.terms = [*window.terms, Term("c", 300, 4, 0, 5.0, 30.9, 33.0)]


def a_send_before_the_term_began(window: Window) -> None:
    window.terms = [window.terms[0], replace(window.terms[1], acquired_at=31.5)]


def a_term_that_does_not_wait_for_an_earlier_one(window: Window) -> None:
    window.terms = [replace(window.terms[0], renewed_at=26.5), window.terms[1]]


def a_term_of_other_partitions_that_shares_a_shard_is_not_waited_for(window: Window) -> None:
    window.terms = [*window.terms, Term("c", 150, 6, 2, 5.0, 15.0, 26.5, 28.0, "repartitioned")]


def a_key_is_parked_for_no_reason(window: Window) -> None:
    window.parked = frozenset({KEY})


def a_refused_key_is_not_parked(window: Window) -> None:
    window.calls = [window.calls[0], call(2, SECOND, 1, 31.0, refused=frozenset({KEY}))]


def a_key_stays_parked_though_it_was_taken_later(window: Window) -> None:
    window.calls = [call(1, FIRST, 1, 11.0, refused=frozenset({KEY})), window.calls[1]]
    window.parked = frozenset({KEY})


SPOILT: list[tuple[Spoil, Invariant]] = [
    (a_write_is_lost, Invariant.EQUAL),
    (a_row_is_left_at_the_sink, Invariant.EQUAL),
    (a_row_is_not_at_the_sink, Invariant.EQUAL),
    (the_highest_token_has_an_old_state, Invariant.EQUAL),
    (a_change_makes_no_touch, Invariant.CAPTURED),
    (a_touch_of_another_transaction_does_not_count, Invariant.CAPTURED),
    (a_pod_is_left, Invariant.EMPTY),
    (a_pod_vanishes, Invariant.EMPTY),
    (a_pod_is_purged_before_the_answer, Invariant.ACKNOWLEDGED),
    (a_pod_is_purged_without_a_send, Invariant.ACKNOWLEDGED),
    (a_pod_that_nobody_saw_is_purged, Invariant.ACKNOWLEDGED),
    (a_send_that_began_before_the_touch_counts_for_it, Invariant.ACKNOWLEDGED),
    (a_send_of_an_older_state_counts_for_a_touch, Invariant.ACKNOWLEDGED),
    (a_send_of_a_delete_counts_for_a_row_that_is_there, Invariant.ACKNOWLEDGED),
    (a_send_of_an_earlier_delete_counts_for_a_touch, Invariant.ACKNOWLEDGED),
    (a_send_of_a_row_that_is_gone_counts_for_its_delete, Invariant.ACKNOWLEDGED),
    (a_send_that_failed_counts_for_a_touch, Invariant.ACKNOWLEDGED),
    (a_send_that_was_not_answered_counts_for_a_touch, Invariant.ACKNOWLEDGED),
    (a_key_that_was_put_off_counts_as_sent, Invariant.ACKNOWLEDGED),
    (a_purge_by_a_term_that_is_over, Invariant.PURGED_IN_TERM),
    (a_purge_by_a_term_that_has_not_begun, Invariant.PURGED_IN_TERM),
    (a_purge_without_a_term, Invariant.PURGED_IN_TERM),
    (a_purge_of_another_partition, Invariant.PURGED_IN_TERM),
    (two_sends_of_a_key_within_a_term, Invariant.ALONE),
    (a_late_send_is_not_waited_for_within_a_term, Invariant.ALONE),
    (a_send_without_an_end_within_a_term, Invariant.ALONE),
    (two_sends_of_a_key_under_two_terms, Invariant.ALONE),
    (an_old_term_writes_after_a_new_one, Invariant.IN_ORDER),
    (a_lower_token_arrives_after_a_higher_one, Invariant.IN_ORDER),
    (a_token_arrives_twice, Invariant.IN_ORDER),
    (a_term_that_nobody_knows_writes, Invariant.RECORDED),
    (a_term_that_nobody_knows_speaks, Invariant.RECORDED),
    (a_term_writes_to_another_partition, Invariant.RECORDED),
    (a_send_long_after_the_last_renewal, Invariant.TRUSTED),
    (a_send_long_after_a_renewal_of_a_term_that_is_renewed_again, Invariant.TRUSTED),
    (a_send_long_after_the_beginning_of_a_term_without_a_renewal, Invariant.TRUSTED),
    (a_send_after_the_release, Invariant.TRUSTED),
    (a_send_before_the_term_began, Invariant.TRUSTED),
    (a_term_that_does_not_wait_for_an_earlier_one, Invariant.WAITED),
    (a_term_of_other_partitions_that_shares_a_shard_is_not_waited_for, Invariant.WAITED),
    (a_key_is_parked_for_no_reason, Invariant.PARKED),
    (a_refused_key_is_not_parked, Invariant.PARKED),
    (a_key_stays_parked_though_it_was_taken_later, Invariant.PARKED),
]


@pytest.mark.parametrize(("spoil", "invariant"), SPOILT, ids=[spoil.__name__ for spoil, _ in SPOILT])
def test_it_is_found(spoil: Spoil, invariant: Invariant) -> None:
    window = good()
    spoil(window)
    assert broken(window) == {invariant}


def test_every_invariant_of_the_journals_can_fail() -> None:
    """The others are looked at by the run itself."""
    of_the_run = {Invariant.LED, Invariant.LIVING, Invariant.LEAN}
    of_outboxes = {Invariant.DELIVERED, Invariant.SENDABLE}
    assert {invariant for _, invariant in SPOILT} == set(Invariant) - of_the_run - of_outboxes
