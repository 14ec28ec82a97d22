"""Keys of several columns: one text for the values of a row, and the values back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.keys import CompositeKey, KeyColumn, PartType
from pytube.model import ids_in, part_of

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "keys.json").read_text())

bigints = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def key_of(types: list[str], place: int | None = None) -> CompositeKey:
    return CompositeKey(tuple(KeyColumn(f"c{n}", PartType(name)) for n, name in enumerate(types)), place)


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: str(vector["text"]))
def test_the_text_and_the_values_of_a_row(vector: dict[str, Any]) -> None:
    key = key_of(vector["types"], vector["place"])
    assert key.text(vector["values"]) == vector["text"]
    assert key.values(vector["text"]) == tuple(vector["values"])
    assert key.by_name(vector["text"]) == {f"c{n}": value for n, value in enumerate(vector["values"])}


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: str(vector["text"]))
def test_the_shard_of_a_key(vector: dict[str, Any]) -> None:
    text, place, shard, shards = vector["text"], vector["place"], vector["shard"], vector["shards"]
    assert part_of(text, place) == vector["part"]
    assert key_of(vector["types"], place).shard(text, shard, shards) == vector["expected"]
    assert ids_in(vector["expected"], [text], shard, shards, place) == [text]


@pytest.mark.parametrize("vector", VECTORS["of_no_row"], ids=lambda vector: str(vector["text"]))
def test_texts_that_no_row_can_have(vector: dict[str, Any]) -> None:
    key = key_of(vector["types"], 1)
    assert key.values(vector["text"]) is None
    assert key.by_name(vector["text"]) is None
    assert 3 <= key.shard(vector["text"], 3, 16) < 19


@pytest.mark.parametrize(
    ("types", "words", "text"),
    [
        (["bigint", "text"], ["7", "12"], '[7, "12"]'),
        (["bigint", "bigint"], ["-7", "12"], "[-7, 12]"),
        (["boolean", "enum"], ["true", "open"], '[true, "open"]'),
        (
            ["uuid", "date"],
            ["6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "2026-02-28"],
            '["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "2026-02-28"]',
        ),
        (["bigint", "text"], ["x", "12"], None),
        (["bigint", "text"], ["7"], None),
        (["bigint", "text"], ["7", "12", "3"], None),
        (["boolean", "date"], ["yes", "2026-02-28"], None),
        (["text", "date"], ["a", "2026-02-31"], None),
    ],
)
def test_words_that_people_write(types: list[str], words: list[str], text: str | None) -> None:
    assert key_of(types).of_words(words) == text


@pytest.mark.parametrize("text", ["[" * 100_000, f"[1, {'9' * 6000}]"])
def test_texts_that_no_reader_of_json_takes(text: str) -> None:
    assert key_of(["bigint", "bigint"]).values(text) is None


@given(bigints, texts, st.booleans(), texts)
def test_any_values_come_back(number: int, text: str, flag: bool, label: str) -> None:
    key = key_of(["bigint", "text", "boolean", "enum"])
    made = key.text([number, text, flag, label])
    assert key.values(made) == (number, text, flag, label)
    parts = [part_of(made, place) for place in range(4)]
    assert made == f"[{', '.join(parts)}]"
    assert [json.loads(part) for part in parts] == [number, text, flag, label]


@given(st.text() | st.lists(st.none() | bigints | st.floats() | st.text()).map(json.dumps))
def test_any_text_has_a_shard(text: str) -> None:
    key = key_of(["bigint", "text"], 1)
    assert 0 <= key.shard(text, 0, 7) < 7
    values = key.values(text)
    assert values is None or key.text(values) == text


def test_the_columns_of_many_keys() -> None:
    key = key_of(["bigint", "text"])
    known, columns = key.columns_of(['[1, "a"]', "7", '[2, "b"]'])
    assert (known, columns) == (['[1, "a"]', '[2, "b"]'], [[1, 2], ["a", "b"]])
    assert key.columns_of(["x"]) == key.columns_of([]) == ([], [[], []])


HOSTILE = [
    '[1, "a"',
    '2, "b"]',
    '[1, "a"], [2, "b"]',
    '["x", "]',
    '[", "y"]',
    "[[1, 2]",
    "[3, 4]]",
    '[1, "',
    "[]",
    "",
]
"""Which, put one after the other, could look like keys."""


@given(
    st.lists(
        st.tuples(bigints, texts).map(lambda values: key_of(["bigint", "text"]).text(values))
        | st.sampled_from(HOSTILE),
        max_size=6,
    ),
    st.sampled_from([["bigint", "text"], ["text", "text"], ["text", "text", "text"]]),
)
def test_the_columns_of_many_keys_are_those_of_each(found: list[str], types: list[str]) -> None:
    key = key_of(types)
    each = [(text, values) for text in found if (values := key.values(text)) is not None]
    known, columns = key.columns_of(found)
    assert list(known) == [text for text, _ in each]
    assert list(zip(*columns, strict=True)) == [values for _, values in each]
