"""The checker of the long run: what is no trouble, and what earlier windows brought."""

from __future__ import annotations

from dataclasses import replace

from tests.crash.chaos.invariants import Invariant
from tests.crash.chaos.records import Change, Pod, Purge, Term, Window
from tests.crash.window import (
    FIRST,
    ID,
    KEY,
    SECOND,
    SHARD,
    a_change_makes_no_touch,
    broken,
    call,
    deleted,
    good,
    line,
)


def test_a_stopped_worker_may_end_its_send_after_its_successor_began() -> None:
    """It counts for as long as a request may last."""
    window = good()
    window.calls = [*window.calls, call(1, FIRST, 2, 21.9, ended=31.5, failed=True)]
    assert broken(window) == set()


def test_what_a_stopped_worker_notes_late_does_not_hide_the_answer_to_its_successor() -> None:
    window = good()
    window.calls = [*window.calls, call(1, FIRST, 2, 21.9, ended=31.5)]
    assert broken(window) == set()


def test_a_send_whose_process_died_may_be_followed_by_one_of_the_next_term() -> None:
    window = good()
    window.calls = [*window.calls, call(1, FIRST, 2, 21.9, ended=None)]
    assert broken(window) == set()


def test_a_key_that_was_refused_last_may_differ_if_it_is_parked() -> None:
    window = good()
    window.calls = [window.calls[0], call(2, SECOND, 1, 31.0, refused=frozenset({KEY}))]
    window.lines = window.lines[:1]
    window.parked = frozenset({KEY})
    assert broken(window) == set()


def test_a_predicate_lets_changes_pass_without_a_touch() -> None:
    window = good()
    a_change_makes_no_touch(window)
    window.follows_all = False
    assert broken(window) == set()


def test_a_delete_stands_for_each_state_before_it() -> None:
    window = good()
    deleted(window)
    assert broken(window) == set()


def test_a_row_that_has_come_back_stands_for_its_delete() -> None:
    window = good()
    window.changes = [window.changes[0], Change(503, KEY, None), window.changes[1]]
    window.pods = [*window.pods, Pod(3, 503, SHARD, [ID], 29.9)]
    window.purges = [*window.purges, Purge(3, "b", 32.0)]
    assert broken(window) == set()


def test_a_transaction_that_deletes_and_writes_again_left_the_row() -> None:
    window = good()
    window.changes = [window.changes[0], Change(502, KEY, None), window.changes[1]]
    assert broken(window) == set()
    window.calls = [window.calls[0], call(None, SECOND, 1, 31.0)]
    assert broken(window) == {Invariant.ACKNOWLEDGED}


def test_a_term_of_other_partitions_without_a_shard_in_common_is_not_waited_for() -> None:
    window = good()
    window.terms = [*window.terms, Term("c", 150, 6, 1, 5.0, 15.0, 30.0, 30.5, "superseded")]
    assert broken(window) == set()


def quiet_after_good() -> Window:
    """A window in which nothing happened, after the good one."""
    before = good()
    return replace(before, lines=[], calls=[], pods=[], purges=[], changes=[])


def test_what_earlier_windows_brought_is_still_there() -> None:
    assert broken(quiet_after_good(), good()) == set()


def test_a_row_that_is_lost_later_is_found() -> None:
    window = quiet_after_good()
    window.lines = [line(1, SECOND, 2, 40.0)]
    assert broken(window, good()) == {Invariant.EQUAL}


def test_an_old_term_is_found_in_a_later_window() -> None:
    window = quiet_after_good()
    window.lines = [line(2, FIRST, 2, 40.0)]
    assert Invariant.IN_ORDER in broken(window, good())


def test_a_refusal_of_an_earlier_window_counts() -> None:
    refused = good()
    refused.calls = [refused.calls[0], call(2, SECOND, 1, 31.0, refused=frozenset({KEY}))]
    refused.parked = frozenset({KEY})
    assert broken(quiet_after_good(), refused) == {Invariant.PARKED}
