"""Batches are bounded by count and bytes, and together hold every document once, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytube.pipeline.batching import by_shard, split

from pytube.model import Document, Documents, Token


def documents(*sizes: int | None) -> Documents:
    found = Documents(Token(1, 1), 1)
    found.add(0, range(len(sizes)), [None if size is None else b"x" * size for size in sizes])
    return found


def sizes(parts: list[list[Document]]) -> list[list[int]]:
    return [[len(document.body or b"") for document in part] for part in parts]


def cut(items: Documents, max_documents: int, max_bytes: int) -> list[list[Document]]:
    return [list(part) for part in split(items, max_documents, max_bytes)]


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
