"""When two documents are equal."""

from __future__ import annotations

import pytest

from pytube.comparison import decode, equal
from pytube.sinks import Stored
from pytube.verify.compare import difference


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a": 1, "b": [1.50]}', b'{"b":[1.5],"a":1.0}'),
        (b"1e300", b"1" + b"0" * 300),
        (b'"\\u00e4"', '"ä"'.encode()),
        (b'"\\ud800"', b'"\\ud800"'),
        (b"9007199254740993", b"9007199254740993"),
        (b'{"a": {"b": true}}', b'{"a": {"b": true}}'),
    ],
)
def test_equal(one: bytes, other: bytes) -> None:
    assert equal(decode(one), decode(other))
    assert difference(one, Stored(other)) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"9007199254740993", b"9007199254740992"),
        (b'{"a": true}', b'{"a": 1}'),
        (b'{"a": [0.0, {"b": 0}]}', b'{"a": [0.0, {"b": false}]}'),
        (b'{"a": null}', b"{}"),
        (b'"1"', b"1"),
        (b"null", b'"null"'),
    ],
)
def test_not_equal(one: bytes, other: bytes) -> None:
    assert not equal(decode(one), decode(other))
    assert difference(one, Stored(other)) == "different"


@pytest.mark.parametrize("depth", [250, 255, 500, 1000])
def test_documents_nested_deeply(depth: int) -> None:
    """As deeply as OpenSearch takes them; Python's own comparison ends before."""
    one, other, third = (
        b'{"a":' * depth + value + b"}" * depth for value in (b"[1, true]", b"[1.0,true]", b"[1,1]")
    )
    assert equal(decode(one), decode(other))
    assert difference(one, Stored(other)) is None
    assert difference(one, Stored(third)) == "different"


def test_missing_extra_and_no_json() -> None:
    assert difference(b"null", Stored()) == "missing"
    assert difference(None, Stored(b"null")) == "extra"
    assert difference(None, Stored()) is None
    assert difference(b"1", Stored(b"no JSON")) == "different"


def test_what_is_stored_is_decoded_when_it_is_looked_at() -> None:
    assert Stored(b'{"a": 1}').value == {"a": 1}
    assert (Stored().exists, Stored().body, Stored().value) == (False, None, None)
    assert (Stored(b"null").exists, Stored(b"null").value) == (True, None)
    with pytest.raises(ValueError, match="nested"):
        _ = Stored(b"[" * 100_000).value
