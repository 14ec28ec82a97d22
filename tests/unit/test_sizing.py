"""The size of a batch follows the size of documents."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytube.pipeline.sizing import BatchSize


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
