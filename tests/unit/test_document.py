"""Documents as columns: to a sink they are a sequence of documents like any other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.model import Batch, Document, Documents, Token

TOKEN = Token(7, 3)
RUNS = st.lists(
    st.tuples(
        st.integers(0, 3), st.lists(st.tuples(st.integers(), st.none() | st.binary(max_size=5)), max_size=4)
    ),
    max_size=4,
)
Runs = list[tuple[int, list[tuple[int, bytes | None]]]]


def columns(runs: Runs) -> tuple[Documents, list[Document]]:
    """The documents of these runs, of one shard each, as columns and as plain objects."""
    found = Documents(TOKEN, 9)
    for shard, items in runs:
        found.add(shard, [key for key, _ in items], [body for _, body in items])
    return found, [Document(shard, key, body, TOKEN, 9) for shard, items in runs for key, body in items]


@given(RUNS, st.slices(8))
def test_columns_are_a_sequence_of_documents(runs: Runs, part: slice) -> None:
    documents, plain = columns(runs)
    assert list(documents) == list(Batch("t", 0, TOKEN, documents)) == plain
    assert len(documents) == len(plain)
    assert [documents[index] for index in range(-len(plain), len(plain))] == plain * 2
    assert list(documents[part]) == plain[part]
    assert documents.keys == [document.key for document in plain]
    assert documents.sizes == [len(document.body or b"") for document in plain]
    assert documents.size == Batch("t", 0, TOKEN, plain).size == Batch("t", 0, TOKEN, documents).size


@given(RUNS)
def test_ids_by_shard(runs: Runs) -> None:
    documents, plain = columns(runs)
    groups = documents.by_shard()
    assert {shard for shard in groups if groups[shard]} == {document.shard for document in plain}
    for shard, ids in groups.items():
        assert ids == [document.id for document in plain if document.shard == shard]


def test_beyond_the_last_there_is_none() -> None:
    documents, _ = columns([(0, [(1, None)])])
    with pytest.raises(IndexError):
        documents[1]
