"""Transactions of an outbox over a fake client: the order of calls, lost answers, and a call that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from pytube.errors import BrokerUnavailable
from pytube.faults import Point
from pytube.kafka.clients import Producers
from pytube.outbox import transactions
from pytube.outbox.inflight import InFlight, Rules
from pytube.outbox.records import Chunk, EarlierTerm, Fault, Record, Sent
from pytube.outbox.transactions import TransactionalProducer, read_receipt
from tests.helpers.waiting import wait_until_async

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)


class FakeKafka:
    """The broker, and all its clients."""

    def __init__(self) -> None:
        self.timeout = 0.05
        self.largest = 1_000_000
        self.calls: list[str] = []
        self.receipt: TopicPartition | None = None
        self.pending: TopicPartition | None = None
        self.refused: list[Any] = []
        """What is answered in place of the offsets."""
        self.holds_back = False
        """Whether the offsets are held back, until a transaction ends."""
        self.refuses: KafkaError | None = None
        """What the client answers at once in place of taking the next record."""
        self.fails: KafkaError | None = None
        """What is reported of the next record."""
        self.lost_commits = 0
        """So many commits take place, and their answers are lost."""
        self.hang = threading.Event()
        """Cleared: a receipt is never answered."""
        self.hang.set()

    def say(self, error: KafkaError) -> str:
        return error.str()

    # --- clients --------------------------------------------------------------------------

    def producer(self, *_: Any) -> FakeKafka:
        self.calls.append("producer")
        return self

    def reader(self, _: str) -> Any:
        return SimpleNamespace(
            consumer_group_metadata=lambda: "group",
            list_topics=lambda **_: SimpleNamespace(topics={"t": None}),
            committed=self.offsets,
            close=lambda: None,
        )

    def offsets(self, asked: list[TopicPartition], _: float) -> list[Any]:
        if self.holds_back:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self.refused or ([self.receipt] if self.receipt else asked)

    # --- a producer -----------------------------------------------------------------------

    def init_transactions(self, _: float) -> None:
        self.calls.append("init")

    def begin_transaction(self) -> None:
        assert "init" in self.calls, "librdkafka refuses it"
        self.calls.append("begin")

    def produce(self, _: str, value: Any, key: Any, *, on_delivery: Any, **__: Any) -> None:
        if (refusal := self.refuses) is not None:
            self.refuses = None
            raise KafkaException(refusal)
        failure, self.fails = self.fails, None
        on_delivery(failure, SimpleNamespace(key=key.encode, value=lambda: value))

    def flush(self, _: float) -> None:
        pass

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], _: Any, __: float) -> None:
        self.calls.append("receipt")
        self.hang.wait()
        (self.pending,) = offsets

    def abort_transaction(self, _: float) -> None:
        self.calls.append("abort")
        self.holds_back = False

    def commit_transaction(self, _: float) -> None:
        self.calls.append("commit")
        self.receipt = self.pending
        if self.lost_commits:
            self.lost_commits -= 1
            raise KafkaException(KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING))


def open_way(
    kafka: FakeKafka, name: str = "id", *, epoch: int = 7, may_send: Sequence[bool] = ()
) -> TransactionalProducer:
    """`may_send`: the answers to the first looks at the right to send; it is there from then on."""
    answers = iter(may_send)
    return TransactionalProducer(
        cast("Producers", kafka),
        name,
        1,
        0,
        epoch,
        may_send=lambda: next(answers, True),
        on_settled=lambda: None,
    )


def chunk_of(*ids: int, rules: Rules | None = None) -> Chunk:
    """Of records that were written at `id / 4`."""
    machine = InFlight(rules or Rules(window=100))
    machine.add([Record(number, number / 4, "t", "k", b"v") for number in ids])
    chunk = machine.take(0.0)
    assert chunk is not None
    return chunk


async def outcome_of(way: TransactionalProducer, chunk: Chunk) -> Mapping[int, Any]:
    way.send(chunk)
    found: list[Mapping[int, Any]] = []

    def is_settled() -> bool:
        found.extend(failures for _, failures in way.settled())
        return bool(found)

    await wait_until_async(is_settled, 5)
    return found[0]


async def test_the_id_is_taken_before_the_first_transaction_and_the_receipt_committed_with_it() -> None:
    kafka = FakeKafka()
    way = open_way(kafka)
    assert await way.open((), "orders/1") == []
    assert await outcome_of(way, chunk_of(1, 2)) == {}
    assert kafka.calls == ["producer", "init", "begin", "receipt", "commit"]
    way.stop()
    for epoch, earlier in ((8, EarlierTerm(1, 0, 7, 0.4)), (9, EarlierTerm(4, 3, 7, 0.4))):
        successor = open_way(kafka, epoch=epoch)
        sent = await successor.open([earlier], "orders/1")
        assert sent == [Sent(frozenset({1, 2}), 0.4)], "of this number of partitions, and of another one"
        successor.stop()


async def test_a_receipt_counts_for_no_record_that_is_younger_than_its_own() -> None:
    """A standby that lost commits draws their ids again while the term of before still lasts, as it knows."""
    kafka = FakeKafka()
    way = open_way(kafka)
    await way.open((), "orders/1")
    for ids in ((1, 2, 8), (3,)):
        await outcome_of(way, chunk_of(*ids))
    way.stop()
    successor = open_way(kafka, epoch=9)
    sent = await successor.open([EarlierTerm(1, 0, 7, 99.0)], "orders/1")
    assert sent == [Sent(frozenset({1, 2, 3, 8}), 2.0)], "also what is sent and not purged"
    successor.stop()


async def test_the_receipt_of_a_term_that_is_not_known_does_not_count() -> None:
    """The database was restored: it may give the ids to other records."""
    kafka = FakeKafka()
    way = open_way(kafka)
    await way.open((), "orders/1")
    await outcome_of(way, chunk_of(1, 2))
    way.stop()
    successor = open_way(kafka, epoch=9)
    assert await successor.open([EarlierTerm(1, 0, 6, 1.5)], "orders/1") == []
    successor.stop()


async def test_a_receipt_that_is_refused_is_not_taken_for_none() -> None:
    kafka = FakeKafka()
    kafka.refused = [SimpleNamespace(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), metadata=None)]
    with pytest.raises(BrokerUnavailable, match="authorization failed"):
        await open_way(kafka).open((), "orders/1")


@pytest.mark.parametrize("text", ["1795.5 ~~~", "1795.5 abcde", "soon c$|0T0000"])
async def test_what_is_no_receipt_of_ours_is_told_and_nothing_is_sent(text: str) -> None:
    kafka = FakeKafka()
    kafka.receipt = TopicPartition("t", 0, 6 << 28, text)
    with pytest.raises(BrokerUnavailable, match="group id1.0 is not a receipt .*; delete the group"):
        await open_way(kafka).open([EarlierTerm(1, 0, 6, 0.4)], "orders/1")
    assert "begin" not in kafka.calls


async def test_the_receipt_has_what_compaction_has_replaced() -> None:
    kafka = FakeKafka()
    way = open_way(kafka)
    await way.open((), "orders/1")
    await outcome_of(way, chunk_of(1, 2, 3, rules=Rules(window=9, compact=True)))
    way.stop()
    assert kafka.receipt is not None
    assert read_receipt(kafka.receipt.metadata or "") == (frozenset({1, 2, 3}), 0.75)


@pytest.mark.parametrize("renews", [False, True], ids=["refused by the client", "failed"])
async def test_only_a_record_that_was_taken_and_failed_costs_another_producer(renews: bool) -> None:
    kafka = FakeKafka()
    way = open_way(kafka)
    await way.open((), "orders/1")
    error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    kafka.refuses, kafka.fails = (None, error) if renews else (error, None)
    assert 1 in await outcome_of(way, chunk_of(1))
    assert await outcome_of(way, chunk_of(2)) == {}
    way.stop()
    again = ["producer", "init"] if renews else []
    assert kafka.calls == [
        *["producer", "init", "begin", "abort"],
        *[*again, "begin", "receipt", "commit"],
    ]


async def test_a_commit_whose_answer_is_lost_took_place_when_its_receipt_is_there() -> None:
    kafka = FakeKafka()
    way = open_way(kafka)
    await way.open((), "orders/1")
    kafka.lost_commits = 1
    assert await outcome_of(way, chunk_of(1)) == {}
    way.stop()


@pytest.mark.parametrize(("point", "failed"), [(Point.BEFORE_COMMIT, True), (Point.AFTER_COMMIT, False)])
async def test_an_error_after_the_commit_does_not_undo_it(
    monkeypatch: pytest.MonkeyPatch, point: Point, failed: bool
) -> None:
    """Whatever it is: what was committed is not sent again."""

    def strike(at: Point, _: object) -> None:
        if at is point:
            raise RuntimeError("of any kind")

    monkeypatch.setattr(transactions, "fault_in_thread", strike)
    kafka = FakeKafka()
    way = open_way(kafka)
    await way.open((), "orders/1")
    failures = await outcome_of(way, chunk_of(1))
    assert [one.reason for one in failures.values()] == ["RuntimeError: of any kind"] * failed
    way.stop()


@pytest.mark.parametrize("answers", [[False], [True, False]], ids=["before", "meanwhile"])
async def test_without_the_right_to_send_no_transaction_begins(answers: list[bool]) -> None:
    kafka = FakeKafka()
    way = open_way(kafka, may_send=answers)
    await way.open((), "orders/1")
    failures = await outcome_of(way, chunk_of(1))
    assert [failure.fault for failure in failures.values()] == [Fault.UNSENT]
    assert "begin" not in kafka.calls
    way.stop()


async def test_a_call_that_does_not_return_is_noticed_and_what_it_comes_back_to_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "_PATIENCE", 0.0)
    kafka = FakeKafka()
    kafka.hang.clear()
    way = open_way(kafka, "hangs")
    await way.open((), "orders/1")
    way.check()
    way.send(chunk_of(1))
    await wait_until_async(lambda: way.answer_due is not None, 5)
    with pytest.raises(BrokerUnavailable, match="does not return"):
        way.check()
    way.stop()
    kafka.hang.set()
    await wait_until_async(lambda: "kafka-hangs1.0" not in {one.name for one in threading.enumerate()}, 5)
    assert "commit" not in kafka.calls


async def test_offsets_that_the_broker_holds_back_are_given_after_an_empty_transaction() -> None:
    kafka = FakeKafka()
    kafka.holds_back = True
    way = open_way(kafka)
    await way.open((), "orders/1")
    assert kafka.calls == ["producer", "init", "begin", "receipt", "abort"]
    assert await outcome_of(way, chunk_of(1)) == {}
    way.stop()


async def test_a_call_that_does_not_return_while_an_id_is_taken_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "_PATIENCE", 0.0)
    kafka = FakeKafka()
    kafka.timeout = 0.01
    kafka.holds_back = True
    kafka.hang.clear()
    way = open_way(kafka)
    with pytest.raises(BrokerUnavailable, match="does not return"):
        await way.open((), "orders/1")
    kafka.hang.set()


async def test_an_attempt_that_hangs_costs_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread takes no further id, as that may be a successor's, and what it comes back to is not used."""
    monkeypatch.setattr(transactions, "_PATIENCE", 0.0)
    kafka = FakeKafka()
    kafka.timeout = 0.01
    kafka.holds_back = True
    kafka.hang.clear()
    way = open_way(kafka)
    with pytest.raises(BrokerUnavailable, match="does not return"):
        await way.open([EarlierTerm(2, 0, 5, 0.5)], "orders/1")
    kafka.holds_back = False
    slow = threading.Event()
    kafka.init_transactions = lambda _: slow.wait()  # type: ignore[method-assign,assignment]
    opening = asyncio.create_task(way.open((), "orders/1"))
    assert not (await asyncio.wait([opening], timeout=5 * kafka.timeout))[0], "no answer of its is due"
    slow.set()
    assert await opening == []
    taken = kafka.calls.count("producer")
    kafka.hang.set()
    await wait_until_async(lambda: not taking(), what="the first attempt comes back")
    assert kafka.calls.count("producer") == taken
    assert await outcome_of(way, chunk_of(1)) == {}
    way.stop()


def taking() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "pytube-_take_over"]
