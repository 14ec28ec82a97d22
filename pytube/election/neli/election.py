"""NELI: leader election on Kafka's consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from pytube import clock
from pytube.config.names import checked_name, leader_name
from pytube.election.base import STOPS, Claim, Revoked, wait_until_over
from pytube.election.neli.claim import ClaimBoard, NeliClaim
from pytube.election.neli.member import Member
from pytube.election.neli.topic import LeaderTopic, NeliSettings
from pytube.errors import BrokerUnavailable, ClaimLost
from pytube.logs import Logger, host_fields
from pytube.threads import in_thread

_CARE = 0.25
"""Seconds between checks of the tube's partitions and at claims that were given up."""

_OFFER_AGAIN = 1.0
_TOPIC_PAUSE = 10.0
_LEAVE = 10.0


class NeliElection:
    """The claims of one tube in this process, as Kafka gives them. See `pytube.election.base`."""

    def __init__(
        self,
        tube: str,
        *,
        installation: str,
        client_id: str,
        bootstrap_servers: str,
        partitions: int | Callable[[], int],
        able: Callable[[], bool] = lambda: True,
        options: Mapping[str, Any] | None = None,
        receive_deadline: float = 5.0,
        session_timeout: float = 15.0,
        drain_limit: float = 30.0,
        topic: str | None = None,
        group: str | None = None,
        start_timeout: float = 10.0,
        host: str | None = None,
    ) -> None:
        """Nothing is begun before `start`. All times are seconds.

        Args:
            tube: its name.
            installation: names, with the tube, the leader topic and the group (`leader_name`).
            client_id: a label for people, at the broker.
            bootstrap_servers: as librdkafka takes them.
            partitions: of the tube; a function is called in the event loop several times a second,
                and must return at once.
            able: whether this process could lead at all; called as often. While it can't, it is no
                member, so that others get its partitions.
            options: more settings for librdkafka; they may be secrets.
            receive_deadline: how long an answer of the broker is waited for.
            session_timeout: after so long without a sign of life others get our partitions.
            drain_limit: how long a partition that is to be given back may be drained.
            topic: another name for the leader topic.
            group: another name for the consumer group.
            start_timeout: how long `start` waits for a broker.
            host: the name of the Postgres host, where there are several.

        Raises:
            ConfigError: a name or an option can't be used.
        """
        name = leader_name(installation, tube)
        self.settings = NeliSettings(
            bootstrap_servers=bootstrap_servers,
            topic=name if topic is None else checked_name(topic, "leader topic"),
            group=name if group is None else checked_name(group, "consumer group"),
            client_id=client_id,
            receive_deadline=receive_deadline,
            session_timeout=session_timeout,
            drain_limit=drain_limit,
            options=dict(options or {}),
        )
        self._count: Callable[[], int] = partitions if callable(partitions) else lambda: partitions
        self._tube = tube
        self._able = able
        self._start_timeout = start_timeout
        self._log = Logger("pytube.election", **host_fields(host), tube=tube)
        self._clients = self.settings.clients(self._log)
        self._queue: asyncio.Queue[NeliClaim | None] = asyncio.Queue()
        self._partitions = 0
        self._width = 0
        self._board: ClaimBoard | None = None
        self._member: Member | None = None
        self._care: asyncio.Task[None] | None = None
        self._given_up = False

    async def start(self) -> None:
        """Make or widen the topic, and join the group.

        Raises:
            BrokerUnavailable: no broker answers within the start timeout.
            ConfigError: librdkafka refuses an option.
        """
        loop = asyncio.get_running_loop()
        self._partitions = self._count()
        self.settings.consumer(self._clients, lambda *_: None).close()  # refuses wrong options now
        try:
            await self._widen(self._start_timeout)
        except BrokerUnavailable as error:
            raise BrokerUnavailable(
                f"no Kafka broker answers at {self.settings.bootstrap_servers} within "
                f"{self._start_timeout:g} s ({self._clients.reason or error}); "
                "check [kafka] bootstrap_servers, and that the broker runs"
            ) from error

        def offer(claim: NeliClaim) -> None:
            loop.call_soon_threadsafe(self._queue.put_nowait, claim)

        def make(partition: int) -> NeliClaim:
            return NeliClaim(self._tube, partition, loop=loop, ask=self._ask)

        self._board = ClaimBoard(self._partitions, make, offer, _OFFER_AGAIN)
        self._member = Member(self.settings, self._clients, self._board, self._log)
        self._member.start()
        self._care = asyncio.create_task(self._take_care(self._board), name="pytube-neli-care")

    async def claims(self) -> AsyncIterator[Claim]:
        """Claims, as they are granted; ends after `stop`."""
        while (claim := await self._queue.get()) is not None:
            if claim.withdrawn is None:
                yield claim
            else:
                claim.handed_over()  # nobody has begun anything with it
        self._queue.put_nowait(None)

    async def stop(self, why: Revoked = STOPS) -> None:
        """Withdraw all claims, wait until each is over (at most the drain limit), leave the group."""
        if self._care is not None:
            self._care.cancel()
            await asyncio.gather(self._care, return_exceptions=True)
            self._care = None
        if self._board is not None:
            claims = self._board.close(why)
            await asyncio.sleep(0)  # for those that were offered by the thread
            while not self._queue.empty():  # nobody has begun anything with these
                if (claim := self._queue.get_nowait()) is not None:
                    claim.handed_over()
            await wait_until_over(claims, self.settings.drain_limit)
        if self._member is not None:
            member, self._member = self._member, None
            if not await in_thread(member.stop, _LEAVE):
                self._log.warning("group_not_left", seconds=_LEAVE)
        self._queue.put_nowait(None)

    def serves(self, tube: str) -> bool:
        """Whether it is this one."""
        return tube == self._tube

    def processes(self, tube: str) -> int | None:  # noqa: ARG002 # the contract's
        """Not known: a member of the group is not told who the others are."""
        return None

    def give_up(self, tube: str) -> None:  # noqa: ARG002 # the contract's
        """Hand over all partitions, then leave the group: its protocol has no way to refuse a single one."""
        self._given_up = True

    def come_back(self, tube: str) -> None:  # noqa: ARG002 # the contract's
        """Join the group again."""
        self._given_up = False

    async def _ask(self, partition: int) -> None:
        """Ask the coordinator; see `NeliClaim.confirm`."""
        if self._member is None:
            raise ClaimLost("the election was stopped")
        answer = asyncio.wrap_future(self._member.ask(partition))
        try:
            async with asyncio.timeout(self.settings.receive_deadline):
                await answer
        except TimeoutError:
            raise BrokerUnavailable(
                f"Kafka did not confirm the leadership of partition {partition} within "
                f"{self.settings.receive_deadline:g} s"
            ) from None

    async def _take_care(self, board: ClaimBoard) -> None:
        """Follow the tube's partitions, and renew claims that were given up."""
        topic_at = 0.0
        was_member = was_able = True
        while True:
            await asyncio.sleep(_CARE)
            if (able := self._able()) != was_able:
                was_able = able
                self._tell_able(able)
            if (is_member := able and not self._given_up) != was_member:
                was_member = is_member
                await self._leave_or_join(board, is_member)
            now = clock.now()
            if (partitions := self._count()) != self._partitions:
                self._partitions, topic_at = partitions, now
                board.resize(partitions)
            board.refill(now)
            if self._width < self._partitions and now >= topic_at:
                with suppress(BrokerUnavailable):  # told by what watches the clusters
                    await self._widen(self.settings.receive_deadline)
                topic_at = clock.now() + _TOPIC_PAUSE

    async def _leave_or_join(self, board: ClaimBoard, is_member: bool) -> None:
        if is_member:
            board.resume()
        elif self._given_up:  # else there is no database to hand anything over in order
            await wait_until_over(board.pause(), self.settings.drain_limit)
        if self._member is not None:
            self._member.stay_away(not is_member)

    def _tell_able(self, able: bool) -> None:
        if able:
            self._log.info("claims_resumed")
        else:
            self._log.warning("claims_paused", reason="this process can't lead at present; others may")

    async def _widen(self, limit: float) -> None:
        def ensure() -> int:
            topic = LeaderTopic(self._clients.admin(makes_topics=True), self.settings.topic, self._log)
            return topic.ensure(self._partitions, limit)

        self._width = await in_thread(ensure)
