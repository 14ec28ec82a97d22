"""What the consumer of an outbox's demonstration makes of what comes."""

from __future__ import annotations

from pytube.demo.outbox import TOPIC, Checker
from pytube.demo.stage import PARTITIONS, first_after
from pytube.outbox.partitions import slot_of
from pytube.outbox.stash import ENQUEUED, EPOCH, OUTBOX_ID


def take(checker: Checker, value: str, *, key: str = "a", epoch: int = 7, at: float = 101.0) -> None:
    headers = {OUTBOX_ID: b"1", EPOCH: b"%d" % epoch, ENQUEUED: b"100.500"}
    checker.take(key, value, headers, at)


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


def test_the_first_record_of_a_later_term() -> None:
    checker = Checker()
    partition = slot_of(TOPIC, "a", 1) % PARTITIONS
    take(checker, "1", epoch=7, at=101.0)
    assert first_after(checker.first, partition, 7) is None
    take(checker, "1", epoch=8, at=105.0)
    take(checker, "2", epoch=8, at=106.0)
    assert first_after(checker.first, partition, 7) == 105.0
    assert first_after(checker.first, (partition + 1) % PARTITIONS, 7) is None
