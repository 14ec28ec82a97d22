"""The thread that is a member of the group: it alone polls, and it alone produces.

What a hand-over does to the other partitions: `on_revoke` returns when the revoked claims are handed
over, and until then librdkafka gives no messages of any partition. So no heartbeat can come back
meanwhile, and the claims that stay would lapse. While it waits, the membership of all claims is
therefore confirmed by commits, which need no polling and are the stronger proof. Questions of
`NeliClaim.prove` are answered meanwhile, too.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, Producer, TopicPartition

from pytube import clock
from pytube.election.neli.board import ClaimBoard
from pytube.election.neli.claim import NeliClaim
from pytube.election.neli.clients import Clients
from pytube.election.neli.codec import decode
from pytube.election.neli.prover import Prover
from pytube.election.neli.settings import NeliSettings
from pytube.election.neli.watch import BrokerWatch
from pytube.errors import BrokerUnavailable, ClaimLost, Rebalancing
from pytube.logs import Repeats

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
        log: structlog.stdlib.BoundLogger,
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
                    self._log.error("leader election failed, and begins again", exc_info=error)
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
            self._log.warning("a partition was not handed over in time", partition=claim.partition)
            claim.lose()
        consumer.incremental_unassign(partitions)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._board.lose(partition.partition for partition in partitions)
