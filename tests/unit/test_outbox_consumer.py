"""Consumers that drop what they have seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from pytube.outbox.consumer import Deduplicator, RecordId, record_id


@dataclass
class Message:
    id: int | None
    place: int = 0
    name: str | None = "k"
    outbox: str | None = "orders/1"
    enqueued: str | None = "7.000"
    before: tuple[tuple[str, bytes | str | None], ...] = ()
    """Headers of its own."""

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.place

    def key(self) -> bytes | None:
        return None if self.name is None else self.name.encode()

    def headers(self) -> list[tuple[str, bytes | str | None]] | None:
        ours = {"pytube-outbox": self.outbox, "pytube-outbox-id": self.id, "pytube-enqueued": self.enqueued}
        told = [(name, str(value).encode()) for name, value in ours.items() if value is not None]
        return None if self.id is None else [("a", None), *self.before, *told]


def test_the_id_of_a_message() -> None:
    assert record_id(Message(7)) == RecordId("orders/1", 7, "7.000")
    assert record_id(Message(None)) is None


def test_what_a_version_before_has_sent_has_no_outbox() -> None:
    assert record_id(Message(7, outbox=None, enqueued=None)) == RecordId("", 7, "")


# Of what names a record, one thing differs.
OTHERS = {
    "of another outbox": Message(1, outbox="bills/2"),
    "of an outbox of that name elsewhere": Message(1, outbox="orders/2"),
    "that got the id again, after a restore": Message(1, enqueued="8.000"),
}


@pytest.mark.parametrize("by", ["partition", "key"])
@pytest.mark.parametrize("other", OTHERS)
def test_a_record_of_the_same_id_is_another_one(other: str, by: Literal["partition", "key"]) -> None:
    deduplicator = Deduplicator(by=by)
    deduplicator.remember(Message(1))
    assert not deduplicator.is_repeat(OTHERS[other])
    deduplicator.remember(OTHERS[other])
    assert deduplicator.is_repeat(OTHERS[other])
    assert deduplicator.is_repeat(Message(1))


def test_headers_that_a_service_has_received_and_passes_on_do_not_count() -> None:
    received = (("pytube-outbox", "elsewhere/9"), ("pytube-outbox-id", b"1"), ("pytube-enqueued", "1.0"))
    deduplicator = Deduplicator()
    deduplicator.remember(Message(5, before=received))
    assert record_id(Message(5, before=received)) == RecordId("orders/1", 5, "7.000")
    assert not deduplicator.is_repeat(Message(6, before=received))
    assert deduplicator.is_repeat(Message(5, before=received))


def test_of_a_compacted_outbox_a_record_that_got_a_lower_id_after_a_restore_is_new() -> None:
    deduplicator = Deduplicator(by="key", compacted=True)
    deduplicator.remember(Message(9))
    assert deduplicator.is_repeat(Message(8, enqueued="6.999"))
    assert not deduplicator.is_repeat(Message(8, enqueued="7.001"))
    assert not deduplicator.is_repeat(Message(8, outbox="bills/2"))


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
