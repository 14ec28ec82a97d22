"""Trust ends a deadline after the older of two proofs was sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytube.pipeline.term_deadline import TermDeadline

moments = st.floats(0, 1e6)


def test_the_acquire_is_the_first_proof() -> None:
    assert TermDeadline(5.0, sent_at=100.0).until(proven_at=float("inf")) == 105.0


def test_without_a_proof_of_the_election_there_is_no_trust() -> None:
    assert TermDeadline(5.0, sent_at=100.0).until(proven_at=float("-inf")) == float("-inf")


def test_a_proof_of_one_of_the_two_is_not_enough() -> None:
    deadline = TermDeadline(5.0, sent_at=100.0)
    assert deadline.until(proven_at=200.0) == 105.0, "the database has not confirmed since"
    deadline.confirm_renewal(300.0)
    assert deadline.until(proven_at=200.0) == 205.0, "the election has not proved since"


def test_an_answer_that_was_overtaken_takes_no_trust_away() -> None:
    deadline = TermDeadline(5.0, sent_at=100.0)
    deadline.confirm_renewal(104.0)
    deadline.confirm_renewal(102.0)
    assert deadline.until(proven_at=float("inf")) == 109.0


@given(moments, st.lists(moments), moments)
def test_trust_is_never_longer_than_a_deadline_after_the_older_proof(
    first: float, renewals: list[float], proven_at: float
) -> None:
    deadline = TermDeadline(5.0, first)
    for sent_at in renewals:
        deadline.confirm_renewal(sent_at)
    assert deadline.until(proven_at) == min(max([first, *renewals]), proven_at) + 5.0
