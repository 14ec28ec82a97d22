"""The elections that the configuration asks for, and the part that this process takes in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Mapping, Set
from datetime import timedelta

from pytube.config import Config, WorkerConfig
from pytube.config.names import leader_name
from pytube.election import Claim, Election
from pytube.election.base import Claims, Revoked, Silence
from pytube.election.lease import LeaseElection, LeaseTick
from pytube.errors import BrokerUnavailable, ConfigError, PytubeError, how_to_install
from pytube.logs import is_news
from pytube.sources import queries
from pytube.worker.database import Database
from pytube.worker.queues import Queue
from pytube.worker.services import Process, end

_LEAVES = Revoked("the tube is served no more")
_STATEMENTS = 2.0
"""Seconds for a purge, a reset and a release: who is cut off before them makes the next leader wait."""
ALL = ""
"""The name of an election that all queues share; no queue has it."""


class Elections:
    """The elections of one host's queues: one for all of them, or one for each, under the queue's name.

    They leave queues to the other processes; see `leaves_all`.
    """

    def __init__(
        self,
        config: Config,
        queues: Mapping[str, Queue],
        database: Database,
        process: Process,
        away: Set[str],
    ) -> None:
        """Joins none. `queues`: later additions and removals are followed; `away`: queues that are left to
        other processes for a while.
        """
        self._config = config
        self._queues = queues
        self._database = database
        self._process = process
        self.claims = Claims()
        """Claims that were granted; see `next_claim`."""
        self._away = away
        leases = config.election_kind == "lease"
        self.leaves_all = (
            not leases and config.kafka is not None and config.kafka.shared_partitions is not None
        )
        """Whether who leaves one queue to others leaves all of them."""
        self.are_shared = leases or self.leaves_all
        """Whether one election is for all queues."""
        self._unjoined = {name: self._make(name) for name in ([ALL] if self.are_shared else queues)}
        self._joined: dict[str, Election] = {}
        self._moving: dict[str, asyncio.Task[None]] = {}
        """Elections that are being joined or left."""
        self._log = database.log
        self._told: dict[object, str] = {}

    def _make(self, name: str) -> Election:
        """The election of a name.

        If the database can't be reached for the session timeout, a lease runs out, and under neli the process
        leaves the group: it could not lead anyway.
        """
        config, queues, database = self._config, self._queues, self._database
        if config.election_kind == "lease":
            return self._make_lease()
        try:
            from pytube.election.member import NeliSettings
            from pytube.election.neli import NeliElection
        except ImportError as error:
            raise ConfigError(
                f"the election neli needs the Kafka client ({error}): {how_to_install('kafka')}; "
                'or set worker.election = "lease"'
            ) from None
        kafka, worker = config.kafka, config.worker
        if kafka is None:
            raise ConfigError("the election neli needs a section [kafka]")
        slots = kafka.shared_partitions
        queue = None if slots is not None else name
        if slots is None:
            topic, group = config.leader_topic(name), config.leader_group(name)
        else:
            topic = leader_name(worker.installation)
            name, group = "all tubes", topic
        return NeliElection(
            name,
            lambda: {one.name: one.partitions for one in queues.values() if queue in (None, one.name)},
            NeliSettings(
                bootstrap_servers=kafka.bootstrap_servers,
                topic=topic,
                group=group,
                client_id=worker.client_id,
                receive_deadline=worker.receive_deadline,
                session_timeout=worker.session_timeout,
                drain_limit=drain_limit(worker),
                options=kafka.options,
            ),
            slots=slots,
            away=self._away,
            able=lambda: database.down_for < worker.session_timeout,
            host=database.host,
            claims=self.claims,
        )

    def _make_lease(self) -> Election:
        worker, pool, instance_id = self._config.worker, self._database.pool, self._process.instance_id
        ttl = timedelta(seconds=worker.session_timeout)
        arguments = {"instance_id": instance_id, "client_id": worker.client_id, "ttl": ttl}

        async def tick(names: Collection[str]) -> dict[str, LeaseTick]:
            rows = await pool.rows(queries.LEASE_TICKS, arguments | {"tubes": list(names)})
            return {
                tube: LeaseTick(partitions, instances, frozenset(free), frozenset(mine), rank)
                for tube, partitions, instances, free, mine, rank in rows
            }

        async def leave(name: str | None) -> None:
            await pool.execute(queries.LEASE_LEAVE, {"tube": name, "instance_id": instance_id})

        return LeaseElection(
            tubes=self._queues.keys(),
            tick=tick,
            leave=leave,
            room=self._process.room,
            away=self._away,
            longest=worker.session_timeout / 5,
            drain_limit=drain_limit(worker),
            host=self._database.host,
            claims=self.claims,
        )

    # --- taking part ----------------------------------------------------------------------

    @property
    def joined(self) -> set[str]:
        return set(self._joined)

    def silences(self) -> dict[str, Silence]:
        """Why elections give this process nothing, by the names of the queues that wait for it."""
        found = {name: election.silence for name, election in self._joined.items()}
        return {
            queue: silence
            for name, silence in found.items()
            if silence is not None
            for queue in (self._queues if name == ALL else [name])
        }

    async def begin(self) -> None:
        """Take part in all; those whose broker does not answer are left to `follow`."""
        missing = self._wanted() - self.joined
        outcomes = await asyncio.gather(*map(self._join_or_tell, missing), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def follow(self) -> None:
        """Join, in the background, the elections of new queues, and leave the elections of removed ones."""
        wanted, joined = self._wanted(), self.joined
        self._moving = {name: task for name, task in self._moving.items() if not task.done()}
        for name in (wanted ^ joined) - self._moving.keys():
            move = self.join if name in wanted else self.leave
            self._moving[name] = asyncio.create_task(self._move(name, move(name)))

    async def take_up(self, config: Config) -> None:
        """Take part by another configuration, after the queues were replaced; `follow` joins and leaves.

        A joined election stays joined, unless it has another topic or group now.
        """
        before, self._config = self._config, config
        unjoined, self._unjoined = self._unjoined, {}
        await asyncio.gather(*(election.stop() for election in unjoined.values()), return_exceptions=True)
        if not self.are_shared:
            for name in self._joined.keys() & self._queues.keys() - self._moving.keys():
                if _place(before, name) != _place(config, name):
                    self._moving[name] = asyncio.create_task(self._move(name, self.leave(name)))
        self.follow()

    def _wanted(self) -> set[str]:
        if self.are_shared:
            return {ALL}
        return {
            name for name, queue in self._queues.items() if queue.partitions or not self._process.takes_up
        }

    async def _join_or_tell(self, name: str) -> None:
        try:
            await self.join(name)
        except BrokerUnavailable as error:
            self._tell_unjoined(name, error)

    async def _move(self, name: str, moving: Coroutine[None, None, None]) -> None:
        try:
            await moving
        except PytubeError as error:
            self._tell_unjoined(name, error)
        else:
            self._told.pop(name, None)

    def _tell_unjoined(self, name: str, error: PytubeError) -> None:
        if is_news(self._told, name, str(error)):
            log = self._queues[name].log if name in self._queues else self._log
            log.warning("election_not_joined", reason=str(error))

    async def join(self, name: str) -> None:
        """Take part; raises as `Election.start`, and can be called again then."""
        election = self._unjoined.pop(name, None) or self._make(name)
        try:
            await election.start()
        except BaseException:
            self._unjoined[name] = election
            raise
        self._joined[name] = election

    async def leave(self, name: str) -> None:
        election = self._joined.pop(name)
        try:
            await election.stop(_LEAVES)
        except BaseException:
            self._joined[name] = election
            raise

    async def stop(self) -> None:
        """Give all claims back."""
        await end(self._moving.values())
        elections = [*self._joined.values(), *self._unjoined.values()]
        await asyncio.gather(*(election.stop() for election in elections))

    async def next_claim(self) -> Claim:
        """The next claim by which a term may begin, when it may."""
        while True:
            claim = await self.claims.get()
            await self._wait_for_turn(claim)
            if claim.withdrawn is None:
                return claim
            claim.handed_over()  # no term has begun with it

    async def _wait_for_turn(self, claim: Claim) -> None:
        """Wait until one more partition may begin, or the claim is over: a take-over should not be a herd.

        Meanwhile, under leases, another process may be faster; its acquire decides.
        """
        rate = self._process.claims
        while claim.withdrawn is None:
            if (pause := rate.wait(1, time.monotonic())) <= 0:
                rate.take(1, time.monotonic())
                return
            await asyncio.sleep(pause)

    # --- leaving a single queue -----------------------------------------------------------

    def processes(self, tube: str) -> int | None:
        """How many processes share the queue, this one included; None: that is not known.

        A process that takes no part in the election of a queue can't leave it to others: 1.
        """
        joined = self._joined.get(ALL if self.are_shared else tube)
        return 1 if joined is None else joined.processes(tube)


def _place(config: Config, name: str) -> tuple[str, str]:
    return config.leader_topic(name), config.leader_group(name)


def drain_limit(worker: WorkerConfig) -> float:
    """Seconds that claims may take to be handed over: a drain, a last write waited out, and statements.

    It is that of the slowest sink there may be: elections outlive the sections of tubes.
    """
    return worker.drain_limit + worker.session_timeout - worker.receive_deadline + _STATEMENTS
