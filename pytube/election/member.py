"""A member of the consumer group of `pytube.election.neli`: its settings, and the thread that alone polls.

Membership is proved by a commit of an offset, before a term is acquired.

The coordinator checks member and generation of each commit. The offset itself means nothing to us,
as nothing is read from the topic: it numbers the commits, so that an answer is matched with its question.

A consumer of confluent_kafka takes one call at a time, and a thread that polls it hardly ever lets
another one in. So questions may be put from any thread, but the thread that polls sends them, and never waits
for the answer: a synchronous commit returns when the broker answers, which may be in minutes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from pytube import clock
from pytube.config.names import checked_name
from pytube.election.base import Silence
from pytube.errors import BrokerUnavailable, ClaimLost, ConfigError, Rebalancing
from pytube.kafka.clients import Clients
from pytube.kafka.errors import NO_ANSWER, PASSING, REBALANCING
from pytube.logs import Logger, is_news

if TYPE_CHECKING:
    from pytube.election.neli import ClaimBoard

_HEARTBEAT_MS = 300
_METADATA_MS = 5_000
_REJOIN_MARGIN = 5.0
_OURS = frozenset(
    {
        "allow.auto.create.topics",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "error_cb",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "logger",
        "log_cb",
        "max.poll.interval.ms",
        "metadata.broker.list",
        "on_commit",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "transactional.id",
    }
)
"""Options whose meaning the election rests on."""


@dataclass(frozen=True, slots=True)
class NeliSettings:
    """One member of one group. All times are seconds."""

    bootstrap_servers: str
    topic: str
    group: str
    client_id: str
    receive_deadline: float = 5.0
    """The longest wait for an answer of a broker."""

    session_timeout: float = 15.0
    """After so long without a sign of life the group takes this process's partitions away."""

    drain_limit: float = 30.0
    """How long a partition that the group wants back may still be drained."""

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """More settings for librdkafka. They may be secrets."""

    def __post_init__(self) -> None:
        checked_name(self.topic, "leader topic")
        checked_name(self.group, "consumer group")
        if self.receive_deadline > self.session_timeout:
            raise ConfigError(
                f"receive_deadline ({self.receive_deadline:g} s) must not be above session_timeout "
                f"({self.session_timeout:g} s)"
            )

    def clients(self, log: Logger) -> Clients:
        """What makes the clients; `ConfigError` for options that are not to be set."""
        return Clients(
            self.bootstrap_servers,
            self.options,
            where="[kafka] options",
            log=log,
            ours=_OURS,
            common={
                "client.id": self.client_id,
                "topic.metadata.refresh.interval.ms": _METADATA_MS,
                "metadata.max.age.ms": 3 * _METADATA_MS,
            },
        )

    def consumer(self, clients: Clients, on_commit: Callable[..., None]) -> Consumer:
        """The member of the group; `ConfigError` when librdkafka refuses an option.

        The classic protocol, since the newer one refuses a session timeout that the client chooses. No static
        membership: a static member does not leave the group when it stops, so that its partitions
        would wait for the session timeout.
        """
        # A member that drains must not be thrown out by a rebalance that waits for it.
        rejoin = max(self.session_timeout, self.drain_limit) + _REJOIN_MARGIN
        # A commit waits on its connection behind a request to join, which the broker may keep
        # for that long. If it timed out, the connection would be cut, and the join with it.
        patience = {"socket.timeout.ms": max(60_000, _ms(rejoin + _REJOIN_MARGIN))}
        settings = {
            "group.id": self.group,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
            "allow.auto.create.topics": False,
            "session.timeout.ms": _ms(self.session_timeout),
            "heartbeat.interval.ms": _HEARTBEAT_MS,
            "max.poll.interval.ms": _ms(rejoin),
            "on_commit": on_commit,
        }
        return clients.consumer(settings, patience)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


# --- proofs -------------------------------------------------------------------------------------


_ASK_AGAIN = 0.05
"""Seconds after which a passing refusal of the coordinator is asked about again."""


@dataclass(slots=True)
class _Question:
    slot: int
    """The partition of the leader topic that is asked about."""
    end: float | None = None
    """Until when a passing refusal is tried again; counts from the first one."""

    not_before: float = 0.0
    answer: Future[None] = field(default_factory=Future)

    def settle(self, error: KafkaError | None) -> None:
        try:
            if error is None:
                self.answer.set_result(None)
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
        """`limit`: seconds for which a passing refusal is tried again."""
        self._topic = topic
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: list[_Question] = []
        self._sent: dict[int, list[_Question]] = {}
        self._number = 0
        self._closed = False

    # --- any thread -------------------------------------------------------------------------

    def ask(self, slot: int) -> Future[None]:
        """Ask. The future fails with `ClaimLost` or `BrokerUnavailable`."""
        question = _Question(slot)
        with self._lock:
            if not self._closed:
                self._waiting.append(question)
                return question.answer
        question.answer.set_exception(ClaimLost("this process has left the group"))
        return question.answer

    # --- the thread that polls --------------------------------------------------------------

    def send(self, consumer: Consumer) -> None:
        """Send waiting commits. The answers come to `on_commit` in a later poll."""
        if not (questions := self._take()):
            return
        self._number += 1
        self._sent[self._number] = questions
        try:
            consumer.commit(offsets=self._offsets(questions), asynchronous=True)
        except KafkaException as error:
            self._answered(self._number, {}, _cause(error))

    def on_commit(self, error: KafkaError | None, results: list[TopicPartition]) -> None:
        if results:
            self._answered(results[0].offset, _errors(results), error)

    def put_off(self) -> None:
        """Fail unanswered commits: ask again later. In callbacks of the consumer, none is answered."""
        self._fail(KafkaError.REBALANCE_IN_PROGRESS)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._fail(KafkaError.UNKNOWN_MEMBER_ID)

    def _fail(self, code: int) -> None:
        with self._lock:
            left = self._waiting + [one for questions in self._sent.values() for one in questions]
            self._waiting, self._sent = [], {}
        for question in left:
            question.settle(KafkaError(code))

    def _take(self) -> list[_Question]:
        now = clock.now()
        with self._lock:
            due = [one for one in self._waiting if one.not_before <= now]
            self._waiting = [one for one in self._waiting if one.not_before > now]
        return [one for one in due if not one.answer.cancelled()]

    def _offsets(self, questions: list[_Question]) -> list[TopicPartition]:
        slots = sorted({one.slot for one in questions})
        return [TopicPartition(self._topic, slot, self._number) for slot in slots]

    def _answered(self, number: int, errors: dict[int, KafkaError], of_all: KafkaError | None) -> None:
        for question in self._sent.pop(number, []):
            error = of_all or errors.get(question.slot)
            if not self._again(question, error):
                question.settle(error)

    def _again(self, question: _Question, error: KafkaError | None) -> bool:
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


# --- the member ----------------------------------------------------------------------------------


_PAUSE = 0.02
"""Seconds between two looks at what librdkafka has for us."""

_RESTART_PAUSE = 1.0

_LOOK_AT_ID = 1.0
"""Seconds between two looks whether the group knows this member."""


class Member:
    """One member of the group, in its own thread."""

    def __init__(
        self,
        settings: NeliSettings,
        clients: Clients,
        board: ClaimBoard,
        log: Logger,
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._board = board
        self._log = log
        self._stopping = threading.Event()
        self._away = threading.Event()
        self.misses_topic = threading.Event()
        """Set when the broker has said that there is no leader topic; whoever makes it clears this."""
        self._prover: Prover | None = None
        self._outside_since: float | None = None
        """Since when the group should have taken this process in, by `pytube.clock`; None: it has."""
        self._refusal = ""
        """What a broker has last said of that; empty when nothing."""
        self._thread = threading.Thread(target=self._run, name="pytube-neli", daemon=True)

    def start(self) -> None:
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

    def ask(self, slot: int) -> Future[None]:
        prover = self._prover
        if prover is not None:
            return prover.ask(slot)
        absent: Future[None] = Future()
        absent.set_exception(ClaimLost("this process is not a member of the group"))
        return absent

    @property
    def silence(self) -> Silence | None:
        """Why the group has not taken this process in; None: it has.

        A broker can answer all else, and not for the groups that it coordinates: after a damaged start, or
        because it can't make the topic in which it keeps them.
        """
        if (since := self._outside_since) is None:
            return None
        group = self._settings.group
        reason = f"it answers, but the coordinator of group {group} does not take this worker in as a member"
        return Silence(f"{reason}: {self._refusal}" if self._refusal else reason, clock.now() - since)

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        """Be a member until stopped; after an unforeseen failure be a new one."""
        told: dict[object, str] = {}
        while not self._stopping.is_set():
            if self._away.is_set():
                self._stopping.wait(_PAUSE)
                continue
            try:
                self._be_member()
            except Exception as error:  # noqa: BLE001 -- a thread that ended would leave no leader
                if is_news(told, None, str(error)):
                    self._log.error("election_restarted", exc_info=error)
                self._stopping.wait(_RESTART_PAUSE)

    def _be_member(self) -> None:
        prover = Prover(self._settings.topic, self._settings.receive_deadline / 2)
        consumer = self._settings.consumer(self._clients, prover.on_commit)
        self._prover = prover
        try:
            consumer.subscribe(
                [self._settings.topic],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            self._poll(consumer, prover)
        finally:
            self._prover = self._outside_since = None
            prover.close()
            self._board.note_lost()
            consumer.close()

    def _poll(self, consumer: Consumer, prover: Prover) -> None:
        look_at = 0.0
        while not (self._stopping.is_set() or self._away.is_set()):
            # Not to wait there: librdkafka waits for a time of the wall clock, and if that is set
            # back by an hour meanwhile, it waits for an hour.
            message = consumer.poll(0)
            if message is not None:
                self._on_message(message)
            prover.send(consumer)
            if (now := clock.now()) >= look_at:
                look_at = now + _LOOK_AT_ID
                self._note_id(consumer.memberid())
            if message is None:
                self._stopping.wait(_PAUSE)

    def _note_id(self, member_id: str | None) -> None:
        """The group gives an id before all else, and librdkafka forgets it when the session is over."""
        if member_id:
            self._outside_since, self._refusal = None, ""
        elif self._outside_since is None:
            self._outside_since = clock.now()

    def _on_message(self, message: Message) -> None:
        """Nothing is fetched, so that messages only carry errors."""
        error = message.error()
        if error is not None:
            if error.fatal():
                raise KafkaException(error)
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self.misses_topic.set()
            self._refusal = self._clients.say(error)
            self._clients.on_error(error)

    # --- what the group says ----------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)  # it is about the assignment alone
        self._board.assign(partition.partition for partition in partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Returns when the claims are handed over: only then may the group give them away.

        Whoever asks for a proof meanwhile is put off. Else a claim that is to be handed over could wait here
        for its answer, and this thread for the claim.
        """
        waiting = self._board.withdraw(partition.partition for partition in partitions)
        end = clock.now() + self._settings.drain_limit
        while waiting and clock.now() < end:
            if self._prover is not None:
                self._prover.put_off()
            time.sleep(_PAUSE)
            waiting = [claim for claim in waiting if claim.over_at is None]
        for claim in waiting:
            self._log.warning("handover_late", tube=claim.tube, partition=claim.partition)
            claim.end_now()
        consumer.incremental_unassign(partitions)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Only note it: the database decides how long partitions stay led."""
        lost = sorted(partition.partition for partition in partitions)
        self._log.info("group_lost", partitions=lost)
        self._board.note_lost(lost)
