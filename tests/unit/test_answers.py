"""What a sink answered, sorted: each document under exactly one heading, or the term is over."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytube.pipeline.answers import sort_answers

from pytube.errors import SinkContract
from pytube.model import OK, Batch, Document, Ok, Reject, Result, Retry, Stale, Token

TOKEN = Token(100, 5)


def batch(count: int) -> Batch:
    documents = [Document(0, number, b"{}", TOKEN, 1) for number in range(count)]
    return Batch("t", 0, TOKEN, documents)


def test_all_done_is_all_done() -> None:
    assert sort_answers(batch(3), [OK, OK, OK]).done == [(0, 0), (0, 1), (0, 2)]


def test_each_answer_goes_to_its_document() -> None:
    answers = sort_answers(batch(4), [Ok(), Retry(2.0, "busy"), Reject("too large"), OK])
    assert answers.done == [(0, 0), (0, 3)]
    assert answers.delayed == {(0, 1): 2.0}
    assert answers.rejected == {(0, 2): "too large"}
    assert answers.newer is None


def test_our_own_token_is_done() -> None:
    """A sink that tries again by itself meets its own first write."""
    answers = sort_answers(batch(1), [Stale(int(TOKEN))])
    assert answers.done == [(0, 0)]
    assert answers.newer is None


def test_a_newer_token_of_our_epoch_is_of_another_term() -> None:
    """The database was restored, or failed over, and issued the epoch again: ours is not done."""
    answers = sort_answers(batch(1), [Stale(int(Token(100, 6)))])
    assert answers.done == []
    assert answers.newer == Token(100, 6)


def test_a_write_of_a_later_term_ends_ours() -> None:
    answers = sort_answers(batch(2), [OK, Stale(int(Token(101, 1)))])
    assert answers.newer == Token(101, 1)


def test_the_highest_of_several_later_tokens_is_told() -> None:
    answers = sort_answers(batch(3), [Stale(int(Token(epoch, 1))) for epoch in (101, 103, 102)])
    assert answers.newer == Token(103, 1)


@pytest.mark.parametrize("newer", [Token(100, 4), Token(99, 9)])
def test_a_sink_that_prefers_an_older_write_breaks_its_contract(newer: Token) -> None:
    """Taken for done, the write would be lost without a word."""
    with pytest.raises(SinkContract, match="lower than ours"):
        sort_answers(batch(1), [Stale(int(newer))])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_or_too_many_answers_break_the_contract(count: int) -> None:
    with pytest.raises(SinkContract, match=f"{count} results for 2 documents"):
        sort_answers(batch(2), [OK] * count)


@pytest.mark.parametrize("answer", [None, "ok", Ok, 200])
def test_an_answer_of_no_known_type_breaks_the_contract(answer: object) -> None:
    with pytest.raises(SinkContract, match="not a result"):
        sort_answers(batch(1), [cast("Result", answer)])


@given(
    st.lists(
        st.one_of(
            st.just(OK),
            st.builds(Retry, st.floats(0, 60), st.just("busy")),
            st.builds(Reject, st.just("no")),
            st.just(Stale(int(TOKEN))),
        ),
        max_size=30,
    )
)
def test_every_document_is_under_exactly_one_heading(results: list[Result]) -> None:
    answers = sort_answers(batch(len(results)), results)
    sorted_keys = [*answers.done, *answers.delayed, *answers.rejected]
    assert sorted(sorted_keys) == [(0, number) for number in range(len(results))]


@pytest.mark.parametrize("after", [float("nan"), float("inf"), -1.0])
def test_a_document_can_not_be_put_off_for_ever(after: float) -> None:
    with pytest.raises(SinkContract, match="puts a document off"):
        sort_answers(batch(1), [Retry(after, "busy")])
