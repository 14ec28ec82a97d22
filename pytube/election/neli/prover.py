"""Asks the group's coordinator whether we are a member: a commit of an offset.

The coordinator checks member and generation of each commit. The offset itself means nothing to us,
as every assignment starts at the end of its partition: it numbers the commits, so that an answer is
matched with its question.

A consumer of confluent_kafka takes one call at a time, and a thread that polls it hardly ever lets
another one in. So questions may be put from any thread, but the thread that polls sends them:
without waiting for the answer in its loop, waiting for it in a callback, where nothing can be polled.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pytube import clock
from pytube.election.neli.codes import NO_ANSWER, PASSING, REBALANCING
from pytube.errors import BrokerUnavailable, ClaimLost, Rebalancing

_PAUSE = 0.05


@dataclass(slots=True)
class _Question:
    partitions: frozenset[int]
    end: float | None = None
    """Until when a passing refusal is tried again; counts from the first one."""

    not_before: float = 0.0
    answer: Future[float] = field(default_factory=Future)

    def settle(self, sent_at: float, error: KafkaError | None) -> None:
        """Give the answer, unless nobody waits for it any more."""
        try:
            if error is None:
                self.answer.set_result(sent_at)
            elif error.code() in NO_ANSWER:
                self.answer.set_exception(
                    BrokerUnavailable(f"the group's coordinator does not answer: {error.str()}")
                )
            elif error.code() in REBALANCING:
                self.answer.set_exception(
                    Rebalancing(f"the group still rebalances, and confirms no member: {error.str()}")
                )
            else:
                self.answer.set_exception(
                    ClaimLost(f"the group's coordinator does not know us as a member: {error.str()}")
                )
        except InvalidStateError:
            return


class Prover:
    """Commits for one consumer, and matches answers with questions."""

    def __init__(self, topic: str, limit: float) -> None:
        """Args: topic: the leader topic; limit: seconds for which a passing refusal is tried again."""
        self._topic = topic
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: list[_Question] = []
        self._sent: dict[int, tuple[float, list[_Question]]] = {}
        self._number = 0
        self._closed = False

    # --- any thread -------------------------------------------------------------------------

    def ask(self, partitions: Collection[int]) -> Future[float]:
        """Ask; the result is when the question was sent that was answered yes.

        The future fails with `ClaimLost` or `BrokerUnavailable`.
        """
        question = _Question(frozenset(partitions))
        with self._lock:
            if not self._closed:
                self._waiting.append(question)
                return question.answer
        question.answer.set_exception(ClaimLost("this process has left the group"))
        return question.answer

    # --- the thread that polls --------------------------------------------------------------

    def send(self, consumer: Consumer) -> None:
        """Send what waits; the answers come to `on_commit` in a later poll."""
        questions = self._take()
        if not questions:
            return
        self._number += 1
        self._sent[self._number] = (clock.now(), questions)
        try:
            consumer.commit(offsets=self._offsets(questions), asynchronous=True)
        except KafkaException as error:
            self._answered(self._number, {}, _cause(error))

    def send_and_wait(self, consumer: Consumer) -> None:
        """Send what waits, and wait for the answers: for use in a callback of the consumer."""
        questions = self._take()
        if not questions:
            return
        self._number += 1
        self._sent[self._number] = (clock.now(), questions)
        try:
            results = consumer.commit(offsets=self._offsets(questions), asynchronous=False)
        except KafkaException as error:
            self._answered(self._number, {}, _cause(error))
        else:
            self._answered(self._number, _errors(results), None)

    def on_commit(self, error: KafkaError | None, results: list[TopicPartition]) -> None:
        """Given to the consumer as `on_commit`."""
        if results:
            self._answered(results[0].offset, _errors(results), error)

    def close(self) -> None:
        """Answer no more: what is not answered yet fails."""
        with self._lock:
            self._closed = True
            left = self._waiting + [one for _, questions in self._sent.values() for one in questions]
            self._waiting, self._sent = [], {}
        for question in left:
            question.settle(0.0, KafkaError(KafkaError.UNKNOWN_MEMBER_ID))

    def _take(self) -> list[_Question]:
        now = clock.now()
        with self._lock:
            due = [one for one in self._waiting if one.not_before <= now]
            self._waiting = [one for one in self._waiting if one.not_before > now]
        return [one for one in due if not one.answer.cancelled()]

    def _offsets(self, questions: list[_Question]) -> list[TopicPartition]:
        partitions = sorted(frozenset().union(*(one.partitions for one in questions)))
        return [TopicPartition(self._topic, partition, self._number) for partition in partitions]

    def _answered(self, number: int, errors: dict[int, KafkaError], of_all: KafkaError | None) -> None:
        sent_at, questions = self._sent.pop(number, (0.0, []))
        for question in questions:
            error = of_all or next((errors[one] for one in question.partitions if one in errors), None)
            if not self._again(question, error):
                question.settle(sent_at, error)

    def _again(self, question: _Question, error: KafkaError | None) -> bool:
        """Whether to ask once more, a moment later."""
        now = clock.now()
        if error is None or error.code() not in PASSING:
            return False
        if question.end is None:
            question.end = now + self._limit
        if now + _PAUSE >= question.end:
            return False
        question.not_before = now + _PAUSE
        with self._lock:
            if self._closed:
                return False
            self._waiting.append(question)
        return True


def _errors(results: list[TopicPartition]) -> dict[int, KafkaError]:
    return {one.partition: one.error for one in results if one.error is not None}


def _cause(error: KafkaException) -> KafkaError:
    cause = error.args[0]
    return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError.UNKNOWN)
