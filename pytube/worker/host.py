"""One Postgres host as this process serves it: its sessions, its queues, and the partitions that it leads.

A process with one Postgres has one host, without a name. Hosts share nothing but the sinks: what one of them
does, or that it is dead, does not concern the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytube
from pytube.config import Config
from pytube.db.connect import wait_for_answer
from pytube.db.errors import translated
from pytube.db.version import check_async
from pytube.documents.resolve import trouble_of
from pytube.election.base import REPLACED, Claim, wait_until_over
from pytube.enrich.check import SETTINGS, Fault
from pytube.errors import RECOVERABLE, ConfigError
from pytube.events import Event, PartitionEvent, WorkerStandsBy
from pytube.sources.terms import Shards, read_partitions, read_shards
from pytube.worker.active_term import watch_locks
from pytube.worker.database import Database
from pytube.worker.elections import Elections, drain_limit
from pytube.worker.kafka import KafkaCluster, cluster_of, report_problems, silent_groups, unreachable
from pytube.worker.leadership import Leadership
from pytube.worker.partition_worker import PartitionWorker
from pytube.worker.queues import Outbox, Queue, Tube
from pytube.worker.samples import Sampler
from pytube.worker.services import Process, end
from pytube.worker.shared_sink import SharedSink
from pytube.worker.shedding import LoadShedder
from pytube.worker.sink_marks import SinkMarks, note_made_sinks
from pytube.worker.upkeep import BackfillRunner, follow_ddl

_PARTITIONS_INTERVAL = 1.0
_STANDBY = 5.0
"""Seconds without a partition after which a worker stands by; a group at Kafka takes some to form."""


class Host:
    """One Postgres host in this process."""

    def __init__(
        self,
        name: str | None,
        config: Config,
        process: Process,
        sinks: Mapping[str, SharedSink],
        outboxes: Sequence[str],
    ) -> None:
        """Opens nothing. `sinks`: by the names of the served tubes.

        Raises:
            ConfigError: a transform is missing, librdkafka refuses options, or there is no broker.
        """
        self.name = name
        self.is_served = False
        """Whether everything that `begin` begins has begun."""
        self.why_unserved = "the worker is starting"
        """Why it is not."""
        self.shards: Shards = {}
        """The shards of each queue, as last read."""
        self.away: set[str] = set()
        """Tubes that are left to other processes for a while."""
        self._config = config
        self._process = process
        self._is_renewing = False
        self._leading: dict[asyncio.Task[None], Claim] = {}
        self._held: set[str] = set()
        """Queues of which no term may begin, as they are being replaced: claims are handed over at once."""
        self._idle_since: dict[str, float] = {}
        """When each queue of which nothing is led was last seen so for the first time."""
        self._standing_by: set[str] = set()
        """The queues whose standby was logged."""
        self._silent: set[str] = set()
        """The queues whose group at Kafka does not take this process in, as was logged."""
        self.database = Database(
            config.postgres,
            [*(name for name in sinks if name in config.tubes), *outboxes],
            receive_deadline=config.worker.receive_deadline,
            emit=self.emit,
            host=name,
            # `pytube.health.fleet` reads it. A name has 63 bytes, too few for the whole id.
            label=f"{process.instance_id.hex[:12]} {pytube.__version__}",
            turns=process.turns,
        )
        self._log = self.database.log
        self.queues = self.build(config, sinks, outboxes, process.clusters)
        self._elections = Elections(config, self.queues, self.database, process, self.away)
        self._services = process.services
        self._rounds = object()
        """For whom the services run that go from tube to tube; others begin when there are other tubes."""
        self._shedder = (
            None
            if config.worker.shed_after is None
            else LoadShedder(
                self.database,
                self.queues,
                self._elections,
                self.away,
                process.instance_id,
                shed_after=config.worker.shed_after,
                shed_pause=config.worker.shed_pause,
            )
        )
        """What leaves tubes of this host to other processes that serve them better."""

    def build(
        self,
        config: Config,
        sinks: Mapping[str, SharedSink],
        outboxes: Iterable[str],
        clusters: Sequence[KafkaCluster],
    ) -> dict[str, Queue]:
        """Queues of this host, by another configuration; raises as the class does. Nothing is served yet."""
        database, process = self.database, self._process
        queues: dict[str, Queue] = {
            tube: Tube(config, tube, sink, database, process.instance_id, process.tracing)
            for tube, sink in sinks.items()
            if tube in config.tubes  # of a document that this host can't have, it is not
        }
        for name in outboxes:
            if name in config.outboxes:  # of a host that is down, a new one is not
                cluster = cluster_of(clusters, config, name)
                queues[name] = Outbox(config, name, database, process.instance_id, cluster)
        return queues

    # --- life -----------------------------------------------------------------------------

    async def check(self) -> None:
        """Check that the SQL has the needed version, and queues exist and can be read; can be repeated.

        Raises as `check_queues` does.
        """
        before = {name: queue.partitions for name, queue in self.queues.items()}
        self.shards = await self.check_queues(self.queues)
        self._tell_partitions(before)

    async def check_queues(self, queues: Mapping[str, Queue]) -> Shards:
        """Check queues of the host, which need not be served yet; their shards."""
        session = await self.database.open_session("start")
        try:
            checking = check_async(session.connection, self._config.postgres.schema_name)
            with translated():
                await wait_for_answer(session.connection, self._config.postgres.answer_timeout, checking)
            partitions = await read_partitions(session, list(queues))
            shards = await read_shards(session, list(queues))
            await note_made_sinks(session, {k: one for k, one in queues.items() if isinstance(one, Tube)})
        finally:
            await session.close()
        for name, queue in queues.items():
            queue.partitions = partitions.get(name, 0)
            if not self._process.takes_up:
                queue.check_exists()
        await self._check_sources(queues.values())
        return shards

    async def _check_sources(self, queues: Iterable[Queue]) -> None:
        session = await self.database.open_session("start", SETTINGS)
        try:
            for queue in queues:
                if queue.partitions:
                    finding = queue.find_faults(session.connection)
                    with translated():
                        limit = self._config.postgres.answer_timeout
                        faults = await wait_for_answer(session.connection, limit, finding)
                    _raise_certain(queue, faults)
        finally:
            await session.close()

    async def begin(self) -> None:
        """Serve the host, after `check`; can be called again after it raised.

        Elections whose broker does not answer are joined when it is back.
        """
        if not self._is_renewing:
            self._is_renewing = True
            self._serve(self.database.run())
            self._serve(self._take_claims())
            self._serve(self._report_kafka())
        await self._elections.begin()
        self._serve(self._follow_partitions())
        self._serve(follow_ddl(self.database))
        self._serve(watch_locks(self.database.pool, self.database.terms))
        self._begin_rounds()
        if self._shedder is not None:
            self._serve(self._shedder.run())
        self.is_served = True

    async def _report_kafka(self) -> None:
        process, worker = self._process, self._config.worker

        def problems() -> list[dict[str, Any]]:
            silences = self._elections.silences()
            silent = silent_groups(process.clusters, silences, worker.session_timeout)
            self._tell_silent({one["tube"]: one["reason"] for one in silent}, silences.keys())
            unserved = process.refusals.report() + self.database.unfollowed.report()
            return unreachable(process.clusters) + silent + unserved

        await report_problems(problems, self.database.pool, process.instance_id, worker.client_id)

    def _tell_silent(self, silent: Mapping[str, str], outside: Set[str]) -> None:
        """Log the queues, with the reasons, whose group at Kafka does not take this process in: once each.

        `outside`: the queues whose group has not taken it in by now, whether the brokers answer or not.
        """
        for name in silent.keys() - self._silent:
            self.queues[name].log.warning("group_silent", reason=silent[name])
        for name in self._silent & self.queues.keys() - outside:
            self.queues[name].log.info("group_answers")
        self._silent = self._silent & outside | silent.keys()

    def _begin_rounds(self) -> None:
        tubes = self.tubes()
        rounds = [
            BackfillRunner(self.database, tubes).run(),
            SinkMarks(self.database, tubes).run(),
        ]
        sampler = Sampler(self._config, self.database, tubes)
        if sampler.tubes:
            rounds.append(sampler.run())
        for one in rounds:
            self._services.add(self._rounds, one)

    async def stop(self) -> None:
        async with AsyncExitStack() as stack:  # the first entry is closed last, whatever fails
            stack.push_async_callback(self.database.close)
            stack.push_async_callback(self._services.end_those_of, self)
            stack.push_async_callback(self._services.end_those_of, self._rounds)
            stack.push_async_callback(end, self._leading)
            await self._elections.stop()

    def _serve(self, service: Coroutine[Any, Any, None]) -> None:
        self._services.add(self, service)

    # --- another configuration ------------------------------------------------------------

    async def hold(self, names: Collection[str]) -> None:
        """End the terms of these queues in order, and begin none until `replace`."""
        if not self.is_served:
            return
        await self._services.end_those_of(self._rounds)
        self._held |= set(names)
        held = {task: claim for task, claim in self._leading.items() if claim.tube in names}
        for claim in held.values():
            claim.withdraw(REPLACED)
        if held:
            await wait_until_over(held.values(), drain_limit(self._config.worker))
            await asyncio.wait(held)

    async def replace(self, config: Config, queues: Mapping[str, Queue], gone: Collection[str]) -> None:
        """Serve these queues in place of the held ones with their names, and `gone` no more.

        Counters continue. The elections offer claims on the new queues.
        """
        self._config = config
        for name in gone:
            self.queues.pop(name, None)
            self._idle_since.pop(name, None)
            self._standing_by.discard(name)
        for name, queue in queues.items():
            if (old := self.queues.get(name)) is not None and old.kind == queue.kind:
                queue.metrics, queue.failing = old.metrics, old.failing
            self.queues[name] = queue
        self.database.follow(self.queues)
        if not self.is_served:
            return
        await self._elections.take_up(config)
        self._held.clear()
        self._begin_rounds()

    # --- leadership -----------------------------------------------------------------------

    async def _take_claims(self) -> None:
        while True:
            claim = await self._elections.next_claim()
            if (queue := self.queues.get(claim.tube)) is None or claim.tube in self._held:
                claim.handed_over()  # the election offers it again, if it is served then
                continue
            task = asyncio.create_task(self._lead(queue, claim))
            self._leading[task] = claim
            task.add_done_callback(self._leading.pop)

    async def _lead(self, queue: Queue, claim: Claim) -> None:
        try:
            await Leadership(queue, claim).run()
        except Exception as error:  # noqa: BLE001 # a bug of pytube in one partition must not end the others
            self._log.error("leading_failed", tube=claim.tube, partition=claim.partition, exc_info=error)

    async def _follow_partitions(self) -> None:
        """The elections hand out claims for as many partitions as the queues have."""
        while True:
            await asyncio.sleep(_PARTITIONS_INTERVAL)
            try:
                await self._read_partitions()
            except RECOVERABLE:
                continue  # the renewals report it
            self._elections.follow()
            self._tell_standby()

    async def _read_partitions(self) -> None:
        queues = dict(self.queues)
        partitions = await read_partitions(self.database.pool, list(queues))
        before = {name: queue.partitions for name, queue in self.queues.items()}
        for name, queue in queues.items():
            queue.partitions = partitions.get(name, 0)
        self._tell_partitions(before)

    def _tell_partitions(self, before: Mapping[str, int]) -> None:
        """Emit events for queues that have come or gone since they had so many partitions."""
        for name, queue in self.queues.items():
            if before[name] and not queue.partitions:
                queue.log.warning("tube_dropped", remark="it is served again when it is back")
            elif queue.partitions and not before[name] and self.is_served:
                queue.log.info("tube_found", partitions=queue.partitions)

    # --- its state --------------------------------------------------------------

    @property
    def why_unready(self) -> str | None:
        """Why nothing of this host can be led."""
        if not self.is_served:
            return self.why_unserved
        if self.database.down_for:
            return f"Postgres has been down for {self.database.down_for:.0f} s"
        return None if self.database.renews else "no session with Postgres has renewed terms yet"

    def needs_sink(self, name: str) -> bool:
        """Whether the queue exists here, or a term of it has not ended yet."""
        queue = self.queues.get(name)
        return (queue is not None and bool(queue.partitions)) or name in self.database.led()

    def tubes(self) -> dict[str, Tube]:
        return {name: queue for name, queue in self.queues.items() if isinstance(queue, Tube)}

    def resting(self) -> set[tuple[str, int]]:
        return {where for where, term in self.database.terms.items() if term.is_resting}

    def working(self) -> dict[tuple[str, int], PartitionWorker[Any]]:
        terms = self.database.terms.items()
        return {where: term.worker for where, term in terms if term.worker is not None}

    def waiting(self) -> set[tuple[str, int]]:
        """The partitions led here whose work waits, because the sink has not been opened."""
        return {
            (name, partition)
            for (name, partition), term in self.database.terms.items()
            if term.worker is None and not term.is_resting and self.queues[name].why_closed is not None
        }

    def documents_stand(self) -> bool:
        """Whether something of a declared document can't be read, or differs from the last applied one."""
        for (name, _), term in self.database.terms.items():
            settings = self._config.tubes.get(name)
            trouble = None if settings is None else trouble_of(settings)
            if trouble is not None and term.troubles.reason(trouble) is not None:
                return True
        return False

    async def read_shards(self) -> None:
        """Read `shards` again; they stay as they are while the host is down."""
        try:
            self.shards = await read_shards(self.database.pool, list(self.queues))
        except RECOVERABLE:
            return  # the renewals report it

    # --- events ---------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Count an event, and pass it on with the name of the host."""
        if isinstance(event, PartitionEvent) and event.tube in self.queues:
            self.queues[event.tube].metrics.count(event)
        self._process.emit(event if self.name is None else replace(event, host=self.name))

    def read_metrics(self) -> None:
        for worker in self.working().values():
            if (event := worker.read_metrics()) is not None:
                self.emit(event)

    def _tell_standby(self) -> None:
        """Log once each queue of which this process has led nothing for a while."""
        now = time.monotonic()
        led = {claim.tube for claim in self._leading.values()}
        working = {queue for queue, _ in self.working()}
        for name, queue in self.queues.items():
            if name in led or not queue.partitions:
                self._idle_since[name] = now
                if name in working:
                    self._standing_by.discard(name)
            elif name not in self._standing_by and now >= self._idle_since.setdefault(name, now) + _STANDBY:
                self._standing_by.add(name)
                self.emit(WorkerStandsBy(name, queue.partitions))


def _raise_certain(queue: Queue, faults: Sequence[Fault]) -> None:
    """Raise `ConfigError` for the certain faults, and log the rest."""
    for fault in faults:
        if fault.is_certain:
            raise ConfigError(f"tube {queue.name!r} can't be served: {fault.finding}; {fault.remedy}")
        queue.log.warning("enriching_unchecked", reason=fault.finding, remedy=fault.remedy)
