"""What the consumer of an outbox's demonstration makes of what comes."""

from __future__ import annotations

from pytube.demo.outbox import Checker
from pytube.outbox.stash import ENQUEUED, OUTBOX_ID


def take(checker: Checker, value: str, *, key: str = "a", at: float = 101.0) -> None:
    checker.take(key, value, {OUTBOX_ID: b"1", ENQUEUED: b"100.500"}, at)


def test_all_in_order_with_repeats() -> None:
    checker = Checker()
    for value in ("1", "2", "3", "2", "3", "4"):
        take(checker, value)
    take(checker, "1", key="b", at=102.0)
    assert (checker.arrived, checker.repeats, checker.wrong) == (5, 2, [])
    assert checker.missing({"a": 4, "b": 1}) == []
    assert checker.latencies[-1] == (102.0, 1.5)


def test_what_is_missing_out_of_order_or_rolled_back() -> None:
    checker = Checker()
    take(checker, "1")
    take(checker, "3")
    take(checker, "rolled back", key="b")
    assert checker.wrong == [
        "a: number 3 came after 1",
        "b: the record 1 came, and its transaction was rolled back",
    ]
    assert checker.missing({"a": 4, "b": 1}) == [
        "a: 4 records are committed, and 3 have come",
        "b: 1 records are committed, and 0 have come",
    ]
