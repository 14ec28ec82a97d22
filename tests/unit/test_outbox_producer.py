"""How chunks get to Kafka, over fake clients: which producer, what stops, what counts as failed; receipts."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from pytube.outbox.inflight import InFlight, Rules
from pytube.outbox.messages import Handed, Origin, headers_of, unsendable
from pytube.outbox.partitions import kafka_partition
from pytube.outbox.records import Failure, Fault, Record
from pytube.outbox.transactions import fitting, read_receipt, write_receipt
from tests.helpers.waiting import wait_until_async
from tests.unit.fake_producer import FakeMessage, Rig, chunk

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
UNKNOWN = KafkaError(KafkaError._UNKNOWN_TOPIC)


# --- without transactions -----------------------------------------------------------------------


def test_a_chunk_is_settled_with_its_last_report() -> None:
    rig = Rig()
    rig.producer.send(chunk("a", "b"))
    (made,) = rig.clients.made
    made.report(None)
    assert rig.settled() == []
    assert rig.producer.is_busy
    made.report(None)
    assert rig.settled() == [([1, 2], {})]
    assert not rig.producer.is_busy


@pytest.mark.parametrize(("strict", "producers"), [(False, 1), (True, 2)])
async def test_a_term_connects_before_there_is_anything_to_send(strict: bool, producers: int) -> None:
    """It takes librdkafka half a second."""
    with Rig(strict=strict) as rig:
        await rig.producer.open((), "box/1")
        assert len(rig.clients.made) == producers
        rig.producer.send(chunk("a"))
        assert len(rig.clients.made) == producers
        assert sum(len(one.taken) for one in rig.clients.made) == 1


async def test_in_strict_order_each_key_has_always_the_same_of_two_producers() -> None:
    """The partitions of a topic are divided between them, where their number is even."""
    keys = [f"k{number}" for number in range(20)]
    with Rig(strict=True) as rig:
        for number in range(3):
            rig.producer.send(chunk(*keys, None, first=100 * number))
        taken = [[message.key() for message, *_ in one.taken] for one in rig.clients.made]
        for one in rig.clients.made:
            one.report()
        await wait_until_async(lambda: len(rig.settled()) == 3, what="the reports of both are counted")
    first, second = (sorted({int(key[1:]) for key in one if key is not None}) for one in taken)
    assert [number for number in range(20) if kafka_partition(f"k{number}", 4) % 2 == 0] == first
    assert [number for number in range(20) if kafka_partition(f"k{number}", 4) % 2 == 1] == second


async def test_the_first_chunk_of_a_producer_has_it_ask_for_metadata_twice() -> None:
    """Librdkafka looks for a broker that gives it its id when metadata come, else each half second."""
    rig = Rig()
    rig.producer.send(chunk("a"))
    (made,) = rig.clients.made
    assert len(made.taken) == 1, "nothing waits for the answers"
    await wait_until_async(lambda: len(made.asked) == 2, what="it has asked twice")
    rig.producer.send(chunk("b", topic="u", first=2))
    rig.producer.send(chunk("c", topic="u", first=3, careful=True))
    _, careful = rig.clients.made
    await wait_until_async(lambda: len(careful.asked) == 2, what="another producer has asked")
    assert (made.asked, careful.asked) == (["t", "t"], ["u", "u"])


def test_topics_in_doubt_have_a_producer_of_their_own() -> None:
    rig = Rig()
    rig.producer.send(chunk("a"))
    rig.producer.send(chunk("a", topic="u", careful=True, first=2))
    assert [len(one.taken) for one in rig.clients.made] == [1, 1]
    assert len(rig.clients.gapless) == 1


async def test_strict_needs_no_gapless_producer() -> None:
    with Rig(strict=True) as rig:
        rig.producer.send(chunk("a"))
        assert rig.clients.gapless == []


def test_the_record_that_failed_is_found_by_key_and_value() -> None:
    rig = Rig()
    rig.producer.send(chunk("a", "a", "b", None))
    rig.clients.made[0].report(None, TOO_LARGE, None, UNKNOWN)
    assert rig.settled() == [([1, 2, 3, 4], {2: Fault.BATCH, 4: Fault.TOPIC})]


def test_of_records_that_are_equal_the_first_counts_as_failed() -> None:
    handed = Handed(chunk("a", "a", "a"), 0.0)
    records = [one._replace(value=b"same") for one in handed.chunk.records()]
    handed.chunk.parts = [(handed.chunk.parts[0][0], records)]
    for error in (None, TOO_LARGE, TOO_LARGE):
        handed.report(error, cast("Any", FakeMessage("a", b"same")))
    assert list(handed.outcome(KafkaError.str)) == [1, 2]


def test_nothing_follows_a_record_that_was_not_taken_before_that_is_known() -> None:
    rig = Rig()
    rig.producer.send(chunk("a"))
    rig.clients.made[0].room = 3
    rig.producer.send(chunk("a", "a", "a", "a", first=2))
    assert not rig.has_room()
    rig.clients.made[0].report()
    assert rig.settled() == [([1], {}), ([2, 3, 4, 5], {4: Fault.UNSENT, 5: Fault.UNSENT})]
    assert rig.has_room()


def test_a_record_too_large_for_the_client_is_poison() -> None:
    rig = Rig()
    rig.producer.send(chunk("a"))
    rig.clients.made[0].refusal = TOO_LARGE
    rig.producer.send(chunk("b", "c", first=2))
    assert rig.settled() == [([2, 3], {2: Fault.POISON, 3: Fault.UNSENT})]


def test_a_fatal_error_gives_up_all_and_makes_another_producer() -> None:
    rig = Rig()
    rig.producer.send(chunk("a"))
    rig.producer.send(chunk("b", first=2))
    broken = rig.clients.made[0]
    broken.report(KafkaError(KafkaError._GAPLESS_GUARANTEE, fatal=True))
    assert rig.settled() == [([1], {1: Fault.UNSENT})]
    assert not rig.has_room(), "a record of the producer that broke may still be written"
    assert rig.settled() == [([2], {2: Fault.UNSENT})]
    assert rig.has_room()
    rig.producer.send(chunk("a"))
    assert len(rig.clients.gapless) == 2


def test_what_is_overdue_is_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives up all; librdkafka, which would do so record by record, none: a later one might be written."""
    rig = Rig()
    now = [100.0]
    monkeypatch.setattr("pytube.outbox.producer.time.monotonic", lambda: now[0])
    rig.producer.send(chunk("a"))
    now[0] += 5.0
    rig.producer.send(chunk("a", first=2))
    assert rig.settled() == []
    now[0] += 2.1
    rig.settled()
    assert rig.clients.gapless[0].settings["message.timeout.ms"] == 0
    assert rig.settled() == [([1], {1: Fault.UNANSWERED}), ([2], {2: Fault.UNSENT})]


def test_an_impossible_topic_is_poison() -> None:
    rig = Rig()
    rig.producer.send(chunk("a", topic="no such name"))
    assert rig.settled() == [([1], {1: Fault.POISON})]


async def test_partition_keys_wait_for_the_width_of_the_topic() -> None:
    rig = Rig()
    rig.producer.send(chunk("a", apart="p"))
    rig.producer.send(chunk("a", first=2))
    assert rig.producer.is_busy
    found: list[tuple[list[int], dict[int, Fault]]] = []

    def is_settled() -> bool:
        found.extend(rig.settled())
        return bool(found)

    await wait_until_async(is_settled)
    assert found == [([1], {1: Fault.UNSENT}), ([2], {2: Fault.UNSENT})], "in order, and again"
    rig.producer.send(chunk("a", apart="p"))
    assert rig.clients.gapless[0].taken[0][2] == kafka_partition("p", 3)


def test_stopped_nothing_is_left() -> None:
    rig = Rig()
    rig.producer.send(chunk("a"))
    rig.producer.stop_sending()
    assert rig.settled() == [([1], {1: Fault.UNSENT})]


# --- messages -----------------------------------------------------------------------------------


def test_own_headers_come_first() -> None:
    one = Record(5, 12.5, "t", None, None, ["a", "a"], cast("Any", ["1", None]))
    assert headers_of(one, Origin(b"orders/1", b"9")) == [
        ("a", "1"),
        ("a", None),
        ("pytube-outbox", b"orders/1"),
        ("pytube-outbox-id", b"5"),
        ("pytube-epoch", b"9"),
        ("pytube-enqueued", b"12.500"),
    ]


@pytest.mark.parametrize(
    ("keys", "values", "wrong"),
    [
        (["a"], None, "1 name and 0 values"),
        (None, ["1"], "0 names and 1 value"),
        (["a", "b"], ["1"], "2 names and 1 value"),
        (["a", None], ["1", "2"], "the name of header 2 of 2 is NULL"),
        ([["a"], ["b"]], ["1", "2"], "the names of its headers are an array of more than one dimension"),
        (["a"], [["1"]], "the values of its headers are an array of more than one dimension"),
    ],
)
def test_headers_that_do_not_go_together(keys: Any, values: Any, wrong: str) -> None:
    machine = InFlight(Rules(window=100))
    machine.add([Record(5, 0.0, "t", None, None, keys, values)])
    found = machine.take(0.0)
    assert found is not None
    ((number, failure),) = unsendable(found, 1000).items()
    assert (number, failure.fault) == (5, Fault.POISON)
    assert re.search(wrong, failure.reason)


def test_all_that_can_be_no_message_is_found_at_once() -> None:
    """And nothing is sent with it: one of its key would overtake it."""
    rig = Rig()
    machine = InFlight(Rules(window=100))
    machine.add([Record(n, 0.0, "t", f"k{n}", b"v" * n, ["a"], [] if n % 2 else ["b"]) for n in range(1, 9)])
    machine.add([Record(9, 0.0, "t", "k", b"v" * 2000)])
    found = machine.take(0.0)
    assert found is not None
    rig.producer.send(found)
    ((_, failures),) = rig.producer.settled()
    assert {n for n, one in failures.items() if one.fault is Fault.POISON} == {1, 3, 5, 7, 9}
    assert {n for n, one in failures.items() if one.fault is Fault.UNSENT} == {2, 4, 6, 8}
    assert failures[9].reason == (
        "the record is larger than message.max.bytes, which is 1000: key, value and headers have 2001 bytes"
    )
    machine.settle(found, failures, 0.0)
    assert {letter.record.id for letter in machine.letters()} == {1, 3, 5, 7, 9}
    again = machine.take(0.0)
    assert again is not None
    assert {one.id for one in again.records()} == {2, 4, 6, 8}


@pytest.mark.parametrize("created", [float("inf"), float("-inf")])
def test_a_time_that_is_none_has_no_header(created: float) -> None:
    names = [name for name, _ in headers_of(Record(5, created, "t", None, None), Origin(b"orders/1", b"9"))]
    assert names == ["pytube-outbox", "pytube-outbox-id", "pytube-epoch"]


def test_whatever_goes_wrong_with_one_record_is_its_own_failure() -> None:
    rig = Rig()
    rig.producer.send(chunk("a"))
    rig.clients.made[0].refusal = TypeError("no such header")
    rig.producer.send(chunk("b", "c", first=2))
    ((_, failures),) = rig.producer.settled()
    assert failures[2] == Failure(
        Fault.POISON, "the record is not a valid message: TypeError: no such header"
    )
    assert failures[3].fault is Fault.UNSENT


def test_a_record_that_is_too_large_is_told_with_its_whole_size() -> None:
    rig = Rig()
    rig.producer.send(chunk("a"))
    rig.clients.made[0].refusal = TOO_LARGE
    machine = InFlight(Rules(window=100))
    machine.add([Record(7, 0.0, "t", "kä", b"v" * 50, ["name", "ö"], ["12345", "123"])])
    large = machine.take(0.0)
    assert large is not None
    rig.producer.send(large)
    ((_, failures),) = rig.producer.settled()
    assert "67 bytes" in failures[7].reason  # 3 of the key, 50, 9 and 5 of the headers


def test_a_topic_that_the_broker_takes_nothing_for_from_anybody_is_poison() -> None:
    rig = Rig()
    rig.producer.send(chunk("a"))
    rig.clients.made[0].report(KafkaError(KafkaError.TOPIC_EXCEPTION))
    assert rig.settled() == [([1], {1: Fault.POISON})]


# --- receipts -----------------------------------------------------------------------------------


@given(st.sets(st.integers(-(2**63), 2**63 - 1)), st.floats(allow_nan=False))
def test_a_receipt_has_the_ids_and_the_time(ids: set[int], until: float) -> None:
    assert read_receipt(write_receipt(list(ids), until)) == (frozenset(ids), until)


def test_a_transaction_has_as_many_records_as_its_receipt_takes() -> None:
    dense = [chunk(*["k"] * 100, first=1 + 100 * number) for number in range(60)]
    assert sum(one.size for one in dense[: fitting(dense)]) == 4000
    sparse = [chunk("k", first=number * 12345 + number**3) for number in range(1, 4000)]
    count = fitting(sparse)
    assert 500 < count < 4000
    assert len(write_receipt([one.records()[0].id for one in sparse[:count]], 1795253820.123456)) <= 4000
