"""Calls of a worker in this process that fail by chance: of librdkafka's producers, and of sessions.

A seed draws which ones fail. The faults are where the libraries are called, so all code of ours that has to
bear them is run.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pytube.db import connect, session
from pytube.db.connect import shut_down
from pytube.kafka import clients as kafka_clients

Report = Callable[[KafkaError | None, Message], None]

_OF_REPORTS = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
)
"""What a record may be reported with that was written all the same, and that is worth another try."""

# The ways to fail.
_NOT_TAKEN, _REPORTED = OF_RECORDS = ("a record is not taken", "a record is reported as failed")
_COMMIT_LATE, _COMMIT_REFUSED, _COMMIT_LOST = _OF_COMMITS = (
    "a commit is not answered in time",
    "a commit is refused",
    "the answer to a commit is lost",
)
_RECEIPT_REFUSED = "a receipt is refused"
OF_TRANSACTIONS = (_RECEIPT_REFUSED, *_OF_COMMITS)
_CALL_LOST, _ANSWER_LOST = OF_CALLS = ("a call is lost", "the answer to a call is lost")


class Chance:
    """Draws which calls fail, and in which way; counts them."""

    def __init__(self, rate: float) -> None:
        """`rate`: the share of calls that fail."""
        self.counts: Counter[str] = Counter()
        """How often each way has struck."""
        self._rate = rate
        self._draw = random.Random(1)
        self._lock = threading.Lock()

    def draw(self, *ways: str) -> str | None:
        """One of the ways to fail; None: the call goes well."""
        with self._lock:  # transactions have threads
            if self._draw.random() >= self._rate:
                return None
            way = self._draw.choice(ways)
            self.counts[way] += 1
            return way

    def code(self) -> int:
        """Of a report."""
        with self._lock:
            return self._draw.choice(_OF_REPORTS)


def _failing(report: Report, error: KafkaError) -> Report:
    return lambda real, message: report(real or error, message)


def deliveries_fail(monkeypatch: pytest.MonkeyPatch, rate: float) -> Chance:
    """Have calls of the producers that are made from now on fail so often.

    A record that is reported as failed was written all the same: had it not been, librdkafka would not write
    what follows it, and that is not to be had by replacing reports. What was never written is not taken.
    """
    chance = Chance(rate)

    class Failing(Producer):
        def produce(self, *args: Any, **options: Any) -> None:
            way = chance.draw(*OF_RECORDS)
            if way == _NOT_TAKEN:
                raise BufferError
            if way == _REPORTED:
                options["on_delivery"] = _failing(options["on_delivery"], KafkaError(chance.code()))
            super().produce(*args, **options)

        def send_offsets_to_transaction(self, *args: Any) -> None:
            if chance.draw(_RECEIPT_REFUSED):
                raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
            super().send_offsets_to_transaction(*args)

        def commit_transaction(self, *args: Any) -> None:
            way = chance.draw(*_OF_COMMITS)
            if way == _COMMIT_LATE:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))
            if way == _COMMIT_REFUSED:
                code = KafkaError.INVALID_TXN_STATE
                raise KafkaException(KafkaError(code, txn_requires_abort=True))
            super().commit_transaction(*args)
            if way == _COMMIT_LOST:
                raise KafkaException(KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING))

    monkeypatch.setattr(kafka_clients, "Producer", Failing)
    return chance


def database_calls_fail(monkeypatch: pytest.MonkeyPatch, rate: float) -> Chance:
    """Have calls of sessions fail so often from now on: each time the session is lost."""
    chance = Chance(rate)

    async def wait_for_answer(
        connection: psycopg.AsyncConnection, timeout: float | None, asking: Coroutine[Any, Any, Any]
    ) -> Any:
        way = chance.draw(*OF_CALLS)
        if way == _CALL_LOST:
            shut_down(connection)
        answer: Any = await connect.wait_for_answer(connection, timeout, asking)
        if way == _ANSWER_LOST:
            shut_down(connection)
            raise psycopg.OperationalError(way)
        return answer

    monkeypatch.setattr(session, "wait_for_answer", wait_for_answer)
    return chance
