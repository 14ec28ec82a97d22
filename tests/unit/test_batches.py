"""Batches of documents: how they are cut, how large they get, what the answers mean."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.errors import SinkContract
from pytube.model import (
    OK,
    Batch,
    Document,
    Documents,
    Ok,
    Reject,
    Result,
    Retry,
    Stale,
    Token,
)
from pytube.pipeline.batches import (
    LONGEST_RETRY,
    BatchSize,
    by_shard,
    is_all_ok,
    keys_of,
    sort_answers,
    split,
)

TOKEN = Token(100, 5)

# --- cutting: batches are bounded by count and bytes, and together hold every document once, in order


def documents(*sizes: int | None) -> Documents:
    found = Documents(Token(1, 1), 1)
    found.add(0, range(len(sizes)), [None if size is None else b"x" * size for size in sizes])
    return found


def sizes(parts: list[list[Document]]) -> list[list[int]]:
    return [[len(document.body or b"") for document in part] for part in parts]


def cut(items: Documents, max_documents: int, max_bytes: int) -> list[list[Document]]:
    return [list(part) for part in split(items, lambda: max_documents, max_bytes)]


def test_documents_are_cut_by_count() -> None:
    assert sizes(cut(documents(1, 1, 1, 1, 1), 2, 100)) == [[1, 1], [1, 1], [1]]


def test_documents_are_cut_by_bytes() -> None:
    assert sizes(cut(documents(4, 4, 4, 2), 10, 8)) == [[4, 4], [4, 2]]


def test_a_document_that_is_too_large_stands_alone() -> None:
    assert sizes(cut(documents(1, 99, 1), 10, 8)) == [[1], [99], [1]]


def test_deletes_have_no_size() -> None:
    assert len(cut(documents(*[None] * 5), 10, 1)) == 1


def test_no_documents_are_no_batch() -> None:
    assert cut(documents(), 10, 10) == []


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=40),
    st.integers(1, 8),
    st.integers(1, 40),
)
def test_batches_hold_all_in_order_within_their_bounds(
    lengths: list[int | None], max_documents: int, max_bytes: int
) -> None:
    items = documents(*lengths)
    parts = cut(items, max_documents, max_bytes)
    assert [document for part in parts for document in part] == list(items)
    for part in parts:
        assert 1 <= len(part) <= max_documents
        assert len(part) == 1 or sum(len(document.body or b"") for document in part) <= max_bytes


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5))))
def test_keys_by_shard_keep_their_order(keys: list[tuple[int, int]]) -> None:
    groups = by_shard(keys)
    for shard, ids in groups.items():
        assert ids == [key for number, key in keys if number == shard]
    assert sum(map(len, groups.values())) == len(keys)


def test_keys_of_groups_are_those_that_were_grouped() -> None:
    assert keys_of(by_shard([(1, 5), (0, 3), (1, 4)])) == [(1, 5), (1, 4), (0, 3)]


# --- the size of a batch follows the size of documents


def test_the_first_batches_are_small() -> None:
    assert BatchSize(500, 4_000_000).keys == 64
    assert BatchSize(10, 4_000_000).keys == 10


def test_small_documents_make_full_batches() -> None:
    size = BatchSize(500, 4_000_000)
    size.observe(64, 64 * 100)
    assert size.keys == 500


def test_large_documents_make_small_batches_at_once() -> None:
    size = BatchSize(500, 4_000_000)
    size.observe(500, 500 * 100)
    size.observe(64, 64 * 1_000_000)
    assert size.keys == 4


def test_one_batch_of_small_documents_does_not_make_large_ones_forgotten() -> None:
    size = BatchSize(500, 4_000_000)
    size.observe(1, 1_000_000)
    size.observe(1, 10)
    assert size.keys < 10


def test_after_many_small_documents_batches_are_full_again() -> None:
    size = BatchSize(500, 4_000_000)
    size.observe(1, 1_000_000)
    for _ in range(30):
        size.observe(500, 500 * 100)
    assert size.keys == 500


def test_a_batch_of_nothing_says_nothing() -> None:
    size = BatchSize(500, 4_000_000)
    size.observe(0, 0)
    assert size.keys == 64


@given(
    st.integers(1, 1000),
    st.integers(1, 10**7),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**9))),
)
def test_a_batch_has_one_key_at_least_and_never_more_than_allowed(
    max_keys: int, max_bytes: int, seen: list[tuple[int, int]]
) -> None:
    size = BatchSize(max_keys, max_bytes)
    for documents, total in seen:
        size.observe(documents, total)
        assert 1 <= size.keys <= max_keys


# --- answers: each document is under exactly one heading, or the term is over


def batch(count: int) -> Batch:
    documents = [Document(0, number, b"{}", TOKEN, 1) for number in range(count)]
    return Batch("t", 0, TOKEN, documents)


def test_all_done_is_all_done() -> None:
    assert is_all_ok(batch(3), [OK, OK, OK])
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
    with pytest.raises(SinkContract, match="token .* is lower than"):
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


def test_a_document_can_be_put_off_for_a_day() -> None:
    assert sort_answers(batch(1), [Retry(LONGEST_RETRY, "busy")]).delayed == {(0, 0): LONGEST_RETRY}


@pytest.mark.parametrize("after", [float("nan"), float("inf"), -1.0, LONGEST_RETRY + 1])
def test_a_document_can_not_be_put_off_for_ever(after: float) -> None:
    with pytest.raises(SinkContract, match="puts a document off"):
        sort_answers(batch(1), [Retry(after, "busy")])


@pytest.mark.parametrize("results", [[], [OK], [OK] * 3, [OK, Retry(1.0, "busy")], [Stale(int(TOKEN)), OK]])
def test_answers_that_are_not_all_done_are_sorted(results: list[Result]) -> None:
    assert not is_all_ok(batch(2), results)
