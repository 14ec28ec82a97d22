"""Ids of every type: which can be one, and how arrays of them are sent."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.db.arrays import Int8Array, TextArray, UuidArray, array_of
from pytube.errors import UsageError
from pytube.model import Id, KeyType
from pytube.sources.terms import _key_type
from pytube.verify.explain import parsed

UUID = "6ecd8c99-4036-403d-bf84-cf8400f67836"


@pytest.mark.parametrize(
    ("keys", "ids", "others"),
    [
        (KeyType.BIGINT, [0, -(2**63), 2**63 - 1], [2**63, -(2**63) - 1, "7", 7.0, True, None]),
        (KeyType.UUID, [UUID], [UUID.upper(), UUID + "\n", UUID[:-1], "", "7", 7, None]),
        (KeyType.TEXT, ["", "7", UUID, "ä\n\\"], ["a\0b", 7, None, b"7"]),
    ],
)
def test_what_can_be_an_id(keys: KeyType, ids: list[object], others: list[object]) -> None:
    assert all(keys.has(key) for key in ids)
    assert not any(keys.has(key) for key in others)


@pytest.mark.parametrize(
    ("keys", "text", "key"),
    [
        (KeyType.BIGINT, "042", 42),
        (KeyType.UUID, f"{{{UUID.upper()}}}", UUID),
        (KeyType.UUID, UUID.replace("-", ""), UUID),
        (KeyType.TEXT, "042", "042"),
    ],
)
def test_ids_that_people_write(keys: KeyType, text: str, key: Id) -> None:
    assert parsed(keys, text) == key


@pytest.mark.parametrize("keys", [KeyType.BIGINT, KeyType.UUID])
def test_what_people_write_that_is_no_id(keys: KeyType) -> None:
    with pytest.raises(UsageError, match=f"'x' is not a valid id of this tube, whose keys are {keys.value}"):
        parsed(keys, "x")


def _dumped(array: list[Any]) -> bytes:
    dumper = psycopg.adapters.get_dumper(type(array), psycopg.adapt.PyFormat.AUTO)
    return bytes(dumper(type(array)).dump(array) or b"")


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_texts_are_quoted(texts: list[str]) -> None:
    array = array_of(KeyType.TEXT, texts)
    assert isinstance(array, TextArray)
    assert _dumped(array) == _quoted(texts)


def _quoted(texts: list[str]) -> bytes:
    """As psycopg writes a list of texts, but with quotes where it sees that none are needed."""
    quoted = ['"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts]
    return ("{" + ",".join(quoted) + "}").encode()


def test_numbers_and_uuids() -> None:
    assert isinstance(array_of(KeyType.BIGINT, [1]), Int8Array)
    assert isinstance(array_of(KeyType.UUID, [UUID]), UuidArray)
    assert _dumped(array_of(KeyType.BIGINT, [1, -2])) == b"{1,-2}"
    assert _dumped(array_of(KeyType.UUID, [UUID, UUID])) == f"{{{UUID},{UUID}}}".encode()
    assert [_dumped(array_of(keys, [])) for keys in KeyType] == [b"{}"] * 3


def test_a_type_that_nobody_knows_is_refused() -> None:
    with pytest.raises(
        UsageError, match="'t' have the type point, and this version .* bigint, uuid, text only"
    ):
        _key_type("t", "point")
