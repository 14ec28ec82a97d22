"""Tokens are ordered as pairs, and their integer and text forms keep that order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.model import COUNTER_BITS, Token

tokens = st.builds(Token, st.integers(0, 2**31 - 1), st.integers(0, 2**COUNTER_BITS - 1))


@given(tokens, tokens)
def test_the_integer_form_keeps_the_order(one: Token, other: Token) -> None:
    assert (one < other) == (int(one) < int(other))


@given(tokens)
def test_a_token_survives_its_text(token: Token) -> None:
    assert Token.parse(str(token)) == token
    assert Token.parse(int(token)) == token


@given(tokens)
def test_a_token_has_59_bits(token: Token) -> None:
    assert int(token).bit_length() <= 59


def test_any_write_of_a_later_term_is_newer() -> None:
    assert Token(8, 0) > Token(7, 2**COUNTER_BITS - 1)


@pytest.mark.parametrize("value", ["-1", -1, "", "12a", "1.5"])
def test_what_is_no_token_is_refused(value: int | str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 # int() says it in its own words
        Token.parse(value)
