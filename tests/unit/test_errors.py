"""SQLSTATEs of ours and the errors that Python raises for them."""

from __future__ import annotations

from collections import Counter

import psycopg
import pytest

from pytube.db.errors import TRANSIENT, is_outage
from pytube.errors import (
    SQLSTATES,
    BackfillBusy,
    BackfillNotLocked,
    DatabaseUnavailable,
    PytubeError,
    UsageError,
)


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


@pytest.mark.parametrize("sqlstate", ["40P01", "40001"])
def test_a_deadlock_and_a_serialization_failure_are_transient(sqlstate: str) -> None:
    assert isinstance(psycopg.errors.lookup(sqlstate)("no"), TRANSIENT)


@pytest.mark.parametrize("sqlstate", ["55P03", "57014", "23505", "57P01"])
def test_what_a_retry_at_once_does_not_mend_is_not_transient(sqlstate: str) -> None:
    assert not isinstance(psycopg.errors.lookup(sqlstate)("no"), TRANSIENT)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (DatabaseUnavailable("gone"), True),
        (psycopg.OperationalError("gone"), True),
        (psycopg.errors.AdminShutdown("gone"), True),
        (psycopg.errors.DeadlockDetected("no"), False),
        (UsageError("no"), False),
    ],
)
def test_a_lost_connection_is_recognized_before_and_after_its_translation(
    error: psycopg.Error | PytubeError, lost: bool
) -> None:
    assert is_outage(error) is lost
