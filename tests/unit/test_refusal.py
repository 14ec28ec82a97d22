"""A test of many refusals fails at each case that is accepted, or refused for another reason."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import refusal


def divide() -> None:
    """By zero."""
    raise psycopg.errors.DivisionByZero("by zero")


def test_what_is_refused_passes_and_can_be_looked_at() -> None:
    with refusal("22012", "1 / 0") as error:
        divide()
    assert "by zero" in str(error.value)


def test_what_is_accepted_fails_and_is_named() -> None:
    with pytest.raises(AssertionError, match="1 / 1 is not refused"), refusal("22012", "1 / 1"):
        pass


def test_what_is_refused_for_another_reason_fails_and_is_named() -> None:
    with pytest.raises(AssertionError, match="1 / 0: 22012: by zero"), refusal("TU101", "1 / 0"):
        divide()


def test_an_error_of_the_test_stays_one() -> None:
    with pytest.raises(ZeroDivisionError), refusal("22012", "1 / 0"):
        raise ZeroDivisionError
