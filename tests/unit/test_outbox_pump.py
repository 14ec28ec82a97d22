"""The load generator: what it is told, and what it writes."""

from __future__ import annotations

from itertools import islice

import pytest

from pytube.errors import UsageError
from pytube.outbox import Message
from pytube.outbox.pump import Load, planned


@pytest.mark.parametrize(
    ("rate", "transactions", "batch", "found"),
    [
        (None, None, None, (10, 100.0)),
        (500.0, None, None, (10, 50.0)),
        (500.0, None, 50, (50, 10.0)),
        (0.0, None, 50, (50, 0.0)),
        (None, 20.0, None, (1, 20.0)),
        (None, 20.0, 50, (50, 20.0)),
        (500.0, 20.0, None, (25, 20.0)),
    ],
)
def test_two_of_three_give_the_third(
    rate: float | None, transactions: float | None, batch: int | None, found: tuple[int, float]
) -> None:
    assert planned(rate, transactions, batch) == found


@pytest.mark.parametrize(
    ("rate", "transactions", "batch", "reason"),
    [
        (500.0, 20.0, 25, "give two of the three"),
        (500.0, 30.0, None, r"make 16\.66\d* records each, not a whole number"),
        (0.0, 30.0, None, "make 0 records each"),
    ],
)
def test_what_does_not_go_together(rate: float, transactions: float, batch: int | None, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        planned(rate, transactions, batch)


def test_values_number_the_records_of_their_key() -> None:
    load = Load("t", keys=2, size=5, headers=1, batch=1, rate=0)
    given = {"header-1": "value 1"}
    assert list(islice(load.messages(), 5)) == [
        Message("t", "key-0", "1 ...", given),
        Message("t", "key-1", "1 ...", given),
        Message("t", "key-0", "2 ...", given),
        Message("t", "key-1", "2 ...", given),
        Message("t", "key-0", "3 ...", given),
    ]


def test_messages_without_a_key() -> None:
    load = Load("t", keys=0, size=0, headers=0, batch=1, rate=0)
    assert list(islice(load.messages(), 2)) == [
        Message("t", None, "1 ", {}),
        Message("t", None, "2 ", {}),
    ]
