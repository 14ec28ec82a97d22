"""SQLSTATEs of ours and the errors that Python raises for them."""

from __future__ import annotations

from collections import Counter

import pytest

from pytube.errors import SQLSTATES, BackfillBusy, BackfillNotLocked, UsageError


def test_each_sqlstate_has_an_error_of_its_own() -> None:
    assert [kind.__name__ for kind, count in Counter(SQLSTATES.values()).items() if count > 1] == []


@pytest.mark.parametrize("sqlstate", [state for state in SQLSTATES if state >= "TU101"])
def test_a_wrong_request_is_a_usage_error_and_exits_with_2(sqlstate: str) -> None:
    kind = SQLSTATES[sqlstate]
    assert issubclass(kind, UsageError)
    assert kind is not UsageError
    assert kind.exit_code == 2


def test_whoever_expects_a_busy_backfill_meets_one_that_is_not_locked() -> None:
    assert issubclass(BackfillNotLocked, BackfillBusy)
