"""The thread that is a member of the group: it alone polls, and it alone produces.

What a hand-over does to the other partitions: `on_revoke` returns when the revoked claims are handed
over, and until then librdkafka gives no messages of any partition. So no heartbeat can come back
meanwhile, and the claims that stay would lapse. While it waits, the membership of all claims is
therefore confirmed by commits, which need no polling and are the stronger proof. Questions of
`NeliClaim.prove` are answered meanwhile, too.

Membership is proved by a commit of an offset.

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

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from pytube import clock
from pytube.election.neli.claim import ClaimBoard, NeliClaim, decode
from pytube.election.neli.clients import NO_ANSWER, PASSING, REBALANCING, BrokerWatch, Clients
from pytube.election.neli.settings import NeliSettings
from pytube.errors import BrokerUnavailable, ClaimLost, Rebalancing
from pytube.logs import Logger, Repeats

_ASK_AGAIN = 0.05
"""Seconds after which a passing refusal of the coordinator is asked about again."""


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
        if now + _ASK_AGAIN >= question.end:
            return False
        question.not_before = now + _ASK_AGAIN
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


_PAUSE = 0.02
"""Seconds between two looks at what librdkafka has for us."""

_RESTART_PAUSE = 1.0
_FLUSH = 1.0


class Member:
    """One member of the group, in a thread of its own."""

    def __init__(
        self,
        settings: NeliSettings,
        clients: Clients,
        board: ClaimBoard,
        watch: BrokerWatch,
        log: Logger,
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._board = board
        self._watch = watch
        self._log = log
        self._stopping = threading.Event()
        self._away = threading.Event()
        self._prover: Prover | None = None
        self._asked: Future[float] | None = None
        self._thread = threading.Thread(target=self._run, name="pytube-neli", daemon=True)

    def start(self) -> None:
        """Join the group, in the background."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Leave the group. Blocks; False when the broker did not let us within `timeout` seconds."""
        self._stopping.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def stay_away(self, away: bool) -> None:
        """Be no member, or be one again; takes effect soon."""
        if away:
            self._away.set()
        else:
            self._away.clear()

    def ask(self, partition: int) -> Future[float]:
        """Ask the coordinator about a partition; see `Prover.ask`."""
        prover = self._prover
        if prover is not None:
            return prover.ask([partition])
        absent: Future[float] = Future()
        absent.set_exception(ClaimLost("this process is not a member of the group"))
        return absent

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        """Be a member until stopped; after an unforeseen failure be a new one."""
        repeats = Repeats()
        while not self._stopping.is_set():
            if self._away.is_set():
                self._stopping.wait(_PAUSE)
                continue
            try:
                self._be_member()
            except Exception as error:  # noqa: BLE001 -- a thread that ended would leave no leader
                if repeats.is_new(None, str(error)):
                    self._log.error("election_restarted", exc_info=error)
                self._stopping.wait(_RESTART_PAUSE)

    def _be_member(self) -> None:
        producer = self._clients.producer()
        prover = Prover(self._settings.topic, self._settings.receive_deadline / 2)
        consumer = self._clients.consumer(prover.on_commit)
        self._prover, self._asked = prover, None
        try:
            consumer.subscribe(
                [self._settings.topic],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            self._poll(consumer, producer, prover)
        finally:
            self._prover = None
            prover.close()
            self._board.lose_all()
            consumer.close()
            producer.flush(_FLUSH)

    def _poll(self, consumer: Consumer, producer: Producer, prover: Prover) -> None:
        next_beat = clock.now()
        while not (self._stopping.is_set() or self._away.is_set()):
            # Not to wait there: librdkafka waits for a time of the wall clock, and if that is set
            # back by an hour meanwhile, it waits for an hour.
            message = consumer.poll(0)
            if message is not None:
                self._on_message(message)
            producer.poll(0)
            now = clock.now()
            if now >= next_beat:
                next_beat = max(next_beat + self._settings.heartbeat, now)
                self._beat(producer, now)
                self._confirm([claim for claim in self._board.live() if claim.needs_asking(now)])
            prover.send(consumer)
            if message is None:
                self._stopping.wait(min(_PAUSE, max(0.0, next_beat - clock.now())))

    def _beat(self, producer: Producer, now: float) -> None:
        for claim in self._board.live():
            value = claim.next_beat(now)
            if value is None:
                continue
            try:
                producer.produce(
                    self._settings.topic,
                    value=value,
                    key=str(claim.partition).encode(),
                    partition=claim.partition,
                )
            except (BufferError, KafkaException) as error:
                self._watch.down(f"heartbeats can't be sent: {error}")

    def _on_message(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise KafkaException(error)
            self._watch.on_error(error)
            return
        claim = self._board.claim_of(message.partition() or 0)
        beat = decode(message.value())
        if claim is None or beat is None:
            return
        heartbeat, number = beat
        if claim.observe(heartbeat.leader_id, number, clock.now()):
            self._watch.up(claim.proven_at())

    # --- proof by commit --------------------------------------------------------------------

    def _confirm(self, claims: list[NeliClaim]) -> None:
        """Ask the coordinator about these, unless a question is still under way."""
        prover = self._prover
        if not claims or prover is None or (self._asked is not None and not self._asked.done()):
            return

        def answered(future: Future[float]) -> None:
            if not future.cancelled():
                self._answered(claims, future)

        self._asked = prover.ask([claim.partition for claim in claims])
        self._asked.add_done_callback(answered)

    def _answered(self, claims: list[NeliClaim], future: Future[float]) -> None:
        error = future.exception()
        if error is None:
            self._watch.up(future.result())
            for claim in claims:
                claim.confirmed(future.result())
        elif isinstance(error, Rebalancing):
            pass  # asked again in the next round
        elif isinstance(error, BrokerUnavailable):
            self._watch.down(str(error))
        else:
            for claim in claims:
                claim.lose()

    # --- what the group says ----------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        self._watch.up(clock.now())
        self._board.assign(partition.partition for partition in partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Returns when the claims are handed over: only then may the group give them away."""
        waiting = self._board.withdraw(partition.partition for partition in partitions)
        end = clock.now() + self._settings.drain_limit
        while waiting and clock.now() < end:
            waiting[0].over.wait(_PAUSE)
            waiting = [claim for claim in waiting if not claim.over.is_set()]
            if waiting and self._prover is not None:
                self._confirm(self._board.live())
                self._prover.send_and_wait(consumer)
        for claim in waiting:
            self._log.warning("handover_late", partition=claim.partition)
            claim.lose()
        consumer.incremental_unassign(partitions)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._board.lose(partition.partition for partition in partitions)
