"""NELI: leader election on Kafka's consumer groups.

The group shares out the partitions of a leader topic, called slots here. Each stands for partitions of tubes:
if a tube has a separate topic, for its partition of the same number; if tubes share a topic, for the
partitions that `slot_of` maps to it, since a hundred tubes need no hundred consumers. The group confirms the
slot, and so each claim that rests on it; who leads which partition, and how far, stands in the database.

The worker uses claims in the event loop; the thread that polls (`pytube.election.member`) uses them, too.
"""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from pytube import clock
from pytube.election.base import SHARED, STOPS, Claim, Claims, Election, Revoked, Silence, wait_until_over
from pytube.election.member import Member, NeliSettings
from pytube.errors import BrokerUnavailable, ClaimLost
from pytube.logs import Logger, host_fields
from pytube.threads import in_thread

# --- claims ------------------------------------------------------------------------------------


GONE = Revoked("the tube has the partition no more")
_GIVEN_UP = Revoked("this process leaves the tube to others")

Ask = Callable[[int], Awaitable[None]]
"""Asks the coordinator about a slot. `ClaimLost`, `BrokerUnavailable`."""
Place = tuple[str, int]
"""A tube, and a partition of it."""
_OFFER_AGAIN = 1.0
"""Seconds after which a claim that the worker gave up on its own is made again."""


class NeliClaim(Claim):
    """The right to lead one partition, as the group has given it. See `pytube.election.base.Claim`.

    A group that loses this process, or can't be reached, ends no claim: led partitions stay led while the
    database renews them, until another member acquires. Only a new term needs the group's word.
    """

    def __init__(
        self, tube: str, partition: int, slot: int, *, loop: asyncio.AbstractEventLoop, ask: Ask
    ) -> None:
        """`slot`: the partition of the leader topic that stands for this one; `ask`: called by `prove`."""
        super().__init__(tube, partition)
        self.slot = slot
        self.is_assigned = True
        """Whether the slot is this member's in the group's known generation; the board says so."""
        self._loop = loop
        self._ask = ask

    async def prove(self) -> None:
        """Commit an offset; the coordinator checks the generation, and this method that it gave the slot."""
        try:
            self._refuse_when_over()
            await self._ask(self.slot)
            self._refuse_when_over()
        except ClaimLost:
            self.end_now()
            raise

    def _refuse_when_over(self) -> None:
        super()._refuse_when_over()
        if not self.is_assigned:
            raise ClaimLost(f"the group has taken partition {self.partition} away")

    def _tell(self) -> None:
        """In the loop, which is where the worker waits."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self.news.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.news.set)


class ClaimBoard:
    """Makes claims of the tubes' partitions whose slot is assigned to this member.

    Two threads use it: the polling thread reports the group's assignments, the event loop the existing
    partitions.
    """

    def __init__(self, ask: Ask, offer: Callable[[NeliClaim], object]) -> None:
        """No slot is assigned yet, and there is no partition. To be made in the event loop.

        `ask`: by which claims are proved; `offer`: gives a claim to the worker, in either thread.
        """
        self._ask = ask
        self._offer = offer
        self._loop = asyncio.get_running_loop()
        self._lock = threading.RLock()
        self._slots: Mapping[Place, int] = {}
        self._assigned: set[int] = set()
        self._claims: dict[Place, NeliClaim] = {}
        self._closed = False
        self._paused = False

    # --- what the group says --------------------------------------------------------------

    def assign(self, slots: Iterable[int]) -> None:
        with self._lock:
            new = set(slots)
            self._assigned |= new
            for place, claim in list(self._claims.items()):
                if claim.slot in new and claim.over_at is not None:
                    del self._claims[place]
                elif claim.slot in new:
                    claim.is_assigned = True
            self._fill()

    def withdraw(self, slots: Iterable[int]) -> list[NeliClaim]:
        """The group wants these back: withdraws their claims, and returns those to wait for."""
        with self._lock:
            wanted = set(slots)
            self._assigned -= wanted
            return self._withdraw(SHARED, lambda claim: claim.slot in wanted)

    def note_lost(self, slots: Iterable[int] | None = None) -> None:
        """The group has taken these away, or all: they are claimed no more, and their claims prove nothing.

        Terms continue; another member that acquires a partition ends this process's term.
        """
        with self._lock:
            lost = set(self._assigned if slots is None else slots)
            self._assigned -= lost
            for claim in self._claims.values():
                if slots is None or claim.slot in lost:
                    claim.is_assigned = False

    # --- what the event loop says ---------------------------------------------------------

    def serve(self, slots: Mapping[Place, int]) -> None:
        """These are the partitions now, each with its slot: withdraws and makes claims accordingly.

        To be called now and then: claims that the worker gave up a while ago are made again.
        """
        with self._lock:
            if slots is not self._slots:
                self._slots = slots
                self._withdraw(GONE, lambda claim: (claim.tube, claim.partition) not in slots)
            self._fill()

    def pause(self) -> list[NeliClaim]:
        """Make no claims until `resume`, and withdraw all; returns those to wait for."""
        with self._lock:
            self._paused = True
            return self._withdraw(_GIVEN_UP)

    def resume(self) -> None:
        """Make claims again, of what the group gives us from now on."""
        with self._lock:
            self._paused = False

    def close(self, why: Revoked) -> list[NeliClaim]:
        """Make no more claims, and withdraw all; returns those to wait for."""
        with self._lock:
            self._closed = True
            return self._withdraw(why)

    def _withdraw(self, why: Revoked, which: Callable[[NeliClaim], bool] = lambda _: True) -> list[NeliClaim]:
        claims = [claim for claim in self._claims.values() if claim.over_at is None and which(claim)]
        for claim in claims:
            claim.withdraw(why)
        return claims

    def _fill(self) -> None:
        if self._closed or self._paused:
            return
        now = clock.now()
        for place, slot in self._slots.items():
            if slot in self._assigned and self._may_claim(place, now):
                self._claims[place] = claim = NeliClaim(*place, slot, loop=self._loop, ask=self._ask)
                self._offer(claim)

    def _may_claim(self, place: Place, now: float) -> bool:
        before = self._claims.get(place)
        if before is None:
            return True
        if before.over_at is None:
            return False
        return isinstance(before.withdrawn, Revoked) or now - before.over_at >= _OFFER_AGAIN


# --- the election ------------------------------------------------------------------------------


_CARE = 0.25
"""Seconds between checks of the tubes' partitions and at claims that were given up."""

_TOPIC_PAUSE = 10.0
_LEAVE = 10.0


def slot_of(tube: str, partition: int, slots: int) -> int:
    """The slot of a shared topic that stands for a tube's partition; the same in every process."""
    return (zlib.crc32(tube.encode()) + partition) % slots


class NeliElection(Election):
    """The claims of one tube in this process, or of all, as Kafka gives them. See `pytube.election.base`."""

    def __init__(
        self,
        name: str,
        tubes: Callable[[], Mapping[str, int]],
        settings: NeliSettings,
        *,
        slots: int | None = None,
        able: Callable[[], bool] = lambda: True,
        away: Set[str] = frozenset(),
        start_timeout: float = 10.0,
        host: str | None = None,
        claims: Claims | None = None,
    ) -> None:
        """Nothing is begun before `start`.

        Args:
            name: of the tube, or of the host with all tubes.
            tubes: how many partitions each tube has, 0 if it does not exist; called in the event loop
                several times a second, so it must return at once.
            settings: of the member of the group.
            slots: how many partitions the topic has that the tubes share; None: the only tube's topic has as
                many as the tube.
            able: whether this process could lead at all; called as often. While it can't, it is not a
                member, so that others get its partitions.
            away: tubes that this process leaves to others; looked at as often. One of them is enough to leave
                the group, which has no way to refuse a single partition.
            start_timeout: seconds for which `start` waits for a broker.
            host: the name of the Postgres host, where there are several.
            claims: see `Election`.
        """
        super().__init__(claims)
        self.settings = settings
        self._count = tubes
        self._slots = slots
        self._able = able
        self._start_timeout = start_timeout
        self._log = Logger("pytube.election", **host_fields(host), tube=name)
        self._clients = self.settings.clients(self._log)
        self._tubes: Mapping[str, int] = {}
        """As they were last counted."""
        self._places: Mapping[Place, int] = {}
        """Their partitions, each with its slot."""
        self._width = 0
        """Partitions of the topic, as far as is known."""
        self._board: ClaimBoard | None = None
        self._member: Member | None = None
        self._care: asyncio.Task[None] | None = None
        self._away = away

    async def start(self) -> None:
        """Make or widen the topic, and join the group."""
        self._follow_tubes()
        self.settings.consumer(self._clients, lambda *_: None).close()  # refuses wrong options now
        try:
            await self._widen(self._start_timeout)
        except BrokerUnavailable as error:
            raise BrokerUnavailable(
                f"no Kafka broker answers at {self.settings.bootstrap_servers} within "
                f"{self._start_timeout:g} s ({self._clients.reason or error}); "
                "check [kafka] bootstrap_servers, and that the broker runs"
            ) from error
        loop = asyncio.get_running_loop()
        self._board = ClaimBoard(
            self._ask, lambda claim: loop.call_soon_threadsafe(self.claims.put_nowait, claim)
        )
        self._board.serve(self._places)
        self._member = Member(self.settings, self._clients, self._board, self._log)
        self._member.start()
        self._care = asyncio.create_task(self._take_care(self._board), name="pytube-neli-care")

    async def stop(self, why: Revoked = STOPS) -> None:
        """Withdraw all claims, wait until each is over (at most the drain limit), leave the group."""
        if self._care is not None:
            self._care.cancel()
            await asyncio.gather(self._care, return_exceptions=True)
            self._care = None
        if self._board is not None:
            await wait_until_over(self._board.close(why), self.settings.drain_limit)
        if self._member is not None:
            member, self._member = self._member, None
            if not await in_thread(member.stop, _LEAVE):
                self._log.warning("group_not_left", seconds=_LEAVE)

    @property
    def silence(self) -> Silence | None:
        return None if self._member is None else self._member.silence

    def processes(self, tube: str) -> int | None:  # noqa: ARG002 # the contract's
        """Not known: a member of the group does not learn who the others are."""
        return None

    async def _ask(self, slot: int) -> None:
        if self._member is None:
            raise ClaimLost("the election was stopped")
        answer = asyncio.wrap_future(self._member.ask(slot))
        try:
            async with asyncio.timeout(self.settings.receive_deadline):
                await answer
        except TimeoutError:
            raise BrokerUnavailable(
                f"the coordinator of group {self.settings.group} did not answer within "
                f"{self.settings.receive_deadline:g} s"
            ) from None

    async def _take_care(self, board: ClaimBoard) -> None:
        topic_at = 0.0
        was_member = was_able = True
        while True:
            await asyncio.sleep(_CARE)
            if (able := self._able()) != was_able:
                was_able = able
                self._tell_able(able)
            if (is_member := able and not self._is_given_up) != was_member:
                was_member = is_member
                await self._leave_or_join(board, is_member)
            if self._follow_tubes():
                topic_at = 0.0
            if self._member is not None and self._member.misses_topic.is_set():
                self._member.misses_topic.clear()
                self._width = 0  # it was deleted, or the broker has lost its data
            board.serve(self._places)
            if self._width < self._wanted_width and clock.now() >= topic_at:
                with suppress(BrokerUnavailable):  # the watch of the clusters reports it
                    await self._widen(self.settings.receive_deadline)
                topic_at = clock.now() + _TOPIC_PAUSE

    def _follow_tubes(self) -> bool:
        if (tubes := self._count()) == self._tubes:
            return False
        self._tubes = tubes
        self._places = {
            (tube, partition): partition if self._slots is None else slot_of(tube, partition, self._slots)
            for tube, partitions in tubes.items()
            for partition in range(partitions)
        }
        return True

    @property
    def _wanted_width(self) -> int:
        return max(self._tubes.values(), default=0) if self._slots is None else self._slots

    async def _leave_or_join(self, board: ClaimBoard, is_member: bool) -> None:
        if is_member:
            board.resume()
        elif self._is_given_up:  # else there is no database to hand anything over in order
            await wait_until_over(board.pause(), self.settings.drain_limit)
        if self._member is not None:
            self._member.stay_away(not is_member)

    @property
    def _is_given_up(self) -> bool:
        return not self._away.isdisjoint(self._tubes)

    def _tell_able(self, able: bool) -> None:
        if able:
            self._log.info("claims_resumed")
        else:
            self._log.warning("claims_paused", reason="this process can't lead at present; others may")

    async def _widen(self, limit: float) -> None:
        def ensure() -> int:
            topic = LeaderTopic(self._clients.admin(makes_topics=True), self.settings.topic, self._log)
            return topic.ensure(self._wanted_width, limit)

        self._width = await in_thread(ensure)


# --- the topic -----------------------------------------------------------------------------------


_CONFIG = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}
"""Nothing is written to it: its partitions are what the group shares out."""

_DONE_BY_ANOTHER = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS}
_LOOK = 0.05


class LeaderTopic:
    """One leader topic, seen through an admin client."""

    def __init__(self, admin: AdminClient, name: str, log: Logger) -> None:
        self._admin = admin
        self._name = name
        self._log = log

    def ensure(self, partitions: int, timeout: float) -> int:
        """Make or widen the topic, so that it has at least `partitions`; how many it has. Blocks.

        It has fewer when we may not change it: that has been logged with what to do. `timeout`: seconds for
        each of finding the broker, changing the topic, seeing the change.
        """
        metadata = self._metadata(timeout)
        width = _width(metadata, self._name)
        if width >= partitions:
            return width
        if metadata.controller_id not in metadata.brokers:
            # A cluster without a controller (librdkafka's own, for tests) makes a topic of its
            # own width when it is asked for one, and can't do more.
            problem = "this broker can't make or widen topics"
            width = self._wait_for(1, timeout, self._name)
        else:
            problem = self._change(width, partitions, timeout)
            width = self._wait_for(1 if problem else partitions, timeout)
        if width < partitions:
            self._say_what_to_do(width, partitions, problem)
        return width

    def _metadata(self, timeout: float, topic: str | None = None) -> Any:
        try:
            if topic is None:
                return self._admin.list_topics(timeout=timeout)
            return self._admin.list_topics(topic, timeout=timeout)
        except KafkaException as error:
            self._admin.poll(0)  # what librdkafka has to say of it goes to the watch
            raise BrokerUnavailable(f"Kafka does not answer: {error.args[0].str()}") from error

    def _change(self, width: int, partitions: int, timeout: float) -> str:
        if width == 0:
            new = NewTopic(self._name, num_partitions=partitions, replication_factor=-1, config=_CONFIG)
            problem = _try(lambda: self._admin.create_topics([new], request_timeout=timeout))
        else:
            wider = NewPartitions(self._name, partitions)
            problem = _try(lambda: self._admin.create_partitions([wider], request_timeout=timeout))
        if not problem:
            self._log.info("leader_topic_changed", topic=self._name, partitions=partitions)
        return problem

    def _wait_for(self, partitions: int, timeout: float, topic: str | None = None) -> int:
        end = time.monotonic() + timeout
        while True:
            width = _width(self._metadata(timeout, topic), self._name)
            if width >= partitions or time.monotonic() > end:
                return width
            time.sleep(_LOOK)

    def _say_what_to_do(self, width: int, partitions: int, problem: str) -> None:
        verb = "--alter" if width else "--create"
        self._log.error(
            "leader_topic_narrow",
            topic=self._name,
            has=width,
            needs=partitions,
            reason=problem or "the change was not seen in time",
            remedy=f"kafka-topics.sh {verb} --topic {self._name} --partitions {partitions}, "
            "or allow pytube's principal to create and alter it",
        )


def _width(metadata: Any, name: str) -> int:
    topic = metadata.topics.get(name)
    return len(topic.partitions) if topic is not None else 0


def _try(call: Callable[[], dict[str, Future[Any]]]) -> str:
    try:
        for future in call().values():
            future.result()
    except KafkaException as error:
        cause = error.args[0]
        return "" if cause.code() in _DONE_BY_ANOTHER else cause.str()
    return ""
