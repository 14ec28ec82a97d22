"""Consumers that drop what they have seen."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytube.outbox.consumer import Deduplicator, outbox_id


@dataclass
class Message:
    id: int | None
    place: int = 0
    name: str | None = "k"

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.place

    def key(self) -> bytes | None:
        return None if self.name is None else self.name.encode()

    def headers(self) -> list[tuple[str, bytes | str | None]] | None:
        return None if self.id is None else [("a", None), ("pytube-outbox-id", b"%d" % self.id)]


def test_the_id_of_a_message() -> None:
    assert outbox_id(Message(7)) == 7
    assert outbox_id(Message(None)) is None


def test_what_was_remembered_is_a_repeat() -> None:
    deduplicator = Deduplicator()
    assert not deduplicator.is_repeat(Message(1))
    assert not deduplicator.is_repeat(Message(1)), "it was not handled yet"
    deduplicator.remember(Message(1))
    assert deduplicator.is_repeat(Message(1))
    assert not deduplicator.is_repeat(Message(2))


def test_a_lower_id_that_is_new_is_no_repeat() -> None:
    deduplicator = Deduplicator()
    deduplicator.remember(Message(9))
    assert not deduplicator.is_repeat(Message(8))


def test_of_a_compacted_outbox_what_is_older_than_what_was_handled_of_its_key_is_a_repeat() -> None:
    deduplicator = Deduplicator(by="key", compacted=True)
    for number, name in ((9, "k"), (9, None)):
        deduplicator.remember(Message(number, name=name))
    assert deduplicator.is_repeat(Message(8))
    assert not deduplicator.is_repeat(Message(8, name="other"))
    assert not deduplicator.is_repeat(Message(10))
    assert not deduplicator.is_repeat(Message(8, name=None)), "nothing replaces a record without a key"
    with pytest.raises(ValueError, match="by key"):
        Deduplicator(compacted=True)


def test_what_no_outbox_has_sent_is_never_a_repeat() -> None:
    deduplicator = Deduplicator()
    deduplicator.remember(Message(None))
    assert not deduplicator.is_repeat(Message(None))


@pytest.mark.parametrize("by", ["partition", "key"])
def test_its_memory_is_bounded(by: str) -> None:
    deduplicator = Deduplicator(by=by, size=3, lanes=2)  # type: ignore[arg-type]
    for number in range(1, 6):
        deduplicator.remember(Message(number))
    assert [deduplicator.is_repeat(Message(number)) for number in range(1, 6)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    for number in range(6, 8):
        deduplicator.remember(Message(number, place=number, name=f"k{number}"))
    assert not deduplicator.is_repeat(Message(5)), "its partition and its key were quiet for longest"


def test_by_key_and_by_partition() -> None:
    by_key, by_partition = Deduplicator(by="key"), Deduplicator()
    for one in (by_key, by_partition):
        one.remember(Message(1, place=0, name="a"))
    moved = Message(1, place=5, name="a")  # the topic was widened
    assert by_key.is_repeat(moved)
    assert not by_partition.is_repeat(moved)
    by_key.remember(Message(2, name=None))
    assert by_key.is_repeat(Message(2, name=None)), "without a key, by the partition"


def test_a_partition_that_another_consumer_reads_is_forgotten() -> None:
    deduplicator = Deduplicator()
    deduplicator.remember(Message(1))
    deduplicator.forget("t", 0)
    assert not deduplicator.is_repeat(Message(1))
