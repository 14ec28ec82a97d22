"""The worker: any number of tubes in one process, to be run by the command line or embedded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from uuid import uuid4

import pytube
from pytube.config import Config
from pytube.db.connect import wait_for_answer
from pytube.db.errors import translated
from pytube.db.version import check_async
from pytube.election import Claim, Election
from pytube.enrich.check import SETTINGS, check_enriching
from pytube.errors import RECOVERABLE, ConfigError
from pytube.events import Event, EventCallback, PartitionEvent, WorkerStandsBy, WorkerStarted
from pytube.logs import Logger, UserFaults, log_event
from pytube.pipeline.limits import TokenBucket
from pytube.pipeline.shedding import SINK_NOT_OPEN, Reading
from pytube.sources.terms import read_partitions
from pytube.worker.database import Database, end
from pytube.worker.elections import build_elections
from pytube.worker.exporter import View
from pytube.worker.http import HttpResponder
from pytube.worker.leadership import Leadership
from pytube.worker.listener import build_listener
from pytube.worker.partition_worker import PartitionWorker
from pytube.worker.queue import Consumer
from pytube.worker.shared_sink import SharedSink
from pytube.worker.shedding import LoadShedder
from pytube.worker.signals import run_until_signal
from pytube.worker.tube import Tube
from pytube.worker.upkeep import BackfillRunner, follow_ddl

_PARTITIONS_INTERVAL = 1.0
_STANDBY = 5.0
"""Seconds without a partition after which a worker stands by; a group at Kafka takes some to form."""


class Worker:
    """Serves tubes until it is stopped.

    `run_until_signal` runs it in a process of its own. Within your event loop: `start`, then `wait` or your
    own work, then `stop`.
    """

    def __init__(
        self, config: Config, tubes: Sequence[str] | None = None, on_event: EventCallback | None = None
    ) -> None:
        """Args:
            config: as `pytube.config.load` gives it.
            tubes: names of configured tubes; all of them by default.
            on_event: receives every event, in order; see `EventCallback`.

        Raises:
            ConfigError: a tube is not configured, or none is; a sink refuses its options; a package
                is missing.
        """
        names = list(dict.fromkeys(tubes if tubes is not None else config.tubes))
        if not names:
            raise ConfigError('no tube is configured; add a section [tube."NAME"] with its sink')
        self._config = config
        self._on_event = on_event
        self._log = Logger("pytube.worker")
        self._faults = UserFaults(self._log)
        self._state = "new"
        self._is_complete = False
        """Whether everything that `start` begins has begun."""
        self._services: set[asyncio.Task[None]] = set()
        self._leading: set[asyncio.Task[None]] = set()
        self._leaderships: dict[tuple[str, int], Leadership] = {}
        self._idle_since: dict[str, float] = {}
        """When each tube of which nothing is led was last seen so for the first time."""
        self._standing_by: set[str] = set()
        """The tubes that were told of."""
        self._database = Database(
            config.postgres, names, receive_deadline=config.worker.receive_deadline, emit=self._emit
        )
        instance_id = uuid4()
        self._sinks = {
            name: SharedSink(name, config.tube(name).sink, config.tube(name).backfill_share) for name in names
        }
        self._tubes = {
            name: Tube(config, name, self._sinks[name], instance_id, self._database.pool, self._emit)
            for name in names
        }
        self._elections: Sequence[Election] = build_elections(
            config, list(self._tubes.values()), self._database, instance_id
        )
        self._instance_id = instance_id
        self._claim_rate = TokenBucket(config.worker.claims)
        self._listener = None if config.worker.listen is None else self._build_listener(config.worker.listen)

    @property
    def state(self) -> str:
        """`new`, `running`, `stopping` or `stopped`."""
        return self._state

    def leads(self, tube: str) -> set[int]:
        """The partitions of `tube` that this worker leads and works on now."""
        return {
            partition
            for (name, partition), leadership in self._leaderships.items()
            if name == tube and leadership.partition_worker is not None
        }

    # --- life -----------------------------------------------------------------------------

    def run_until_signal(self) -> None:
        """Start; at SIGINT or SIGTERM stop in order, and return. A second signal ends the process at once.

        Raises:
            UsageError: this is not the main thread, or an event loop runs in it.
            PytubeError: as `start`; or a service of the worker failed.
        """
        run_until_signal(self)

    async def start(self) -> None:
        """Open databases, brokers and sinks, and begin.

        Raises:
            SchemaMismatch: the installed SQL is not the one that this version needs.
            UnknownTube: there is no such tube.
            UsageError: it can't listen at the address of `worker.listen`.
            ConfigError: rows can't be read as configured.
            PytubeError: what else is down or wrong; nothing is left open.
        """
        self._state = "running"
        try:
            if self._listener is not None:
                await self._listener.open()
            await self._check_database()
            await self._check_enriching()
            await self._open_sinks()
            self._tell_start()
            self._serve(self._database.run())
            for election in self._elections:
                await election.start()
                self._serve(self._follow_claims(election))
        except BaseException:
            await self.stop()
            raise
        self._serve(self._follow_partitions())
        self._serve(self._read_metrics())
        self._serve(follow_ddl(self._database.open_session, self._leads_first_partition, self._database.ddl))
        self._serve(BackfillRunner(self._database, self._tubes).run())
        if self._config.worker.shed_after is not None:
            self._serve(self._build_shedder(self._config.worker.shed_after).run())
        self._is_complete = True

    async def stop(self) -> None:
        """End in order: sends under way finish, the rest is given back, terms are released."""
        if self._state in ("stopping", "stopped"):
            return
        self._state = "stopping"
        for tube in self._tubes.values():
            tube.stopping = True
        try:
            async with AsyncExitStack() as stack:  # what comes first here is closed last, whatever fails
                if self._listener is not None:
                    stack.push_async_callback(self._listener.close)
                for sink in self._sinks.values():
                    stack.push_async_callback(sink.close)
                stack.push_async_callback(self._database.close)
                stack.push_async_callback(end, self._services)
                stack.push_async_callback(end, self._leading)
                await asyncio.gather(*(election.stop() for election in self._elections))
        finally:
            self._state = "stopped"

    async def wait(self) -> None:
        """Return when the worker is stopped; raises the fault that ended a service."""
        done, _ = await asyncio.wait(self._services, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def _serve(self, service: Coroutine[None, None, None]) -> None:
        self._services.add(asyncio.create_task(service))

    async def _open_sinks(self) -> None:
        """Open all sinks at once; those that can't be reached now are opened later.

        Raises what the first one raises that can't be opened as configured.
        """
        opening = (sink.open() for sink in self._sinks.values())
        for outcome in await asyncio.gather(*opening, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _check_database(self) -> None:
        """Whether the SQL is the one that is needed, and the tubes exist."""
        postgres = self._config.postgres
        session = await self._database.open_session("start")
        try:
            checking = check_async(session.connection, postgres.schema_name)
            with translated():
                await wait_for_answer(session.connection, postgres.answer_timeout, checking)
            self._note_partitions(await read_partitions(session, list(self._tubes)))
        finally:
            await session.close()
        for tube in self._tubes.values():
            tube.check_exists()

    async def _check_enriching(self) -> None:
        """Whether documents can be read as configured, with the tables that are attached now."""
        session = await self._database.open_session("start", SETTINGS)
        try:
            for name, tube in self._tubes.items():
                checking = check_enriching(session.connection, name, self._config.tube(name).enrich)
                with translated():
                    limit = self._config.postgres.answer_timeout
                    report = await wait_for_answer(session.connection, limit, checking)
                for fault in report.faults:
                    if fault.is_certain:
                        raise ConfigError(f"tube {name!r} can't be served: {fault.finding}; {fault.remedy}")
                    tube.log.warning("enriching_unchecked", reason=fault.finding, remedy=fault.remedy)
        finally:
            await session.close()

    # --- leadership -----------------------------------------------------------------------

    async def _follow_claims(self, election: Election) -> None:
        async for claim in election.claims():
            await self._wait_for_turn(claim)
            leadership = Leadership(self._tubes[claim.tube], self._database, claim)
            self._leaderships[claim.tube, claim.partition] = leadership
            task = asyncio.create_task(self._lead(leadership, claim))
            self._leading.add(task)
            task.add_done_callback(self._leading.discard)

    async def _wait_for_turn(self, claim: Claim) -> None:
        """Wait until one more partition may begin, or the claim is over: a take-over should not be a herd.

        Meanwhile, under leases, another process may be faster; its acquire decides.
        """
        while (pause := self._claim_rate.wait(1, time.monotonic())) > 0:
            if claim.revoked.is_set() or claim.lost.is_set():
                return
            await asyncio.sleep(pause)
        self._claim_rate.take(1, time.monotonic())

    def _build_shedder(self, shed_after: float) -> LoadShedder:
        return LoadShedder(
            {name: tube.metrics for name, tube in self._tubes.items()},
            self._elections,
            self._database.pool,
            instance_id=self._instance_id,
            shed_after=shed_after,
            shed_pause=self._config.worker.shed_pause,
            readings=self._read_load,
            emit=self._emit,
        )

    def _read_load(self) -> dict[str, dict[int, Reading]]:
        """How the partitions of tubes fare that are led here."""
        readings: dict[str, dict[int, Reading]] = {}
        for (tube, partition), leadership in self._leaderships.items():
            if isinstance(worker := leadership.partition_worker, PartitionWorker):
                readings.setdefault(tube, {})[partition] = worker.read_load()
            elif leadership.waits_for_sink:
                readings.setdefault(tube, {})[partition] = SINK_NOT_OPEN
        return readings

    async def _lead(self, leadership: Leadership, claim: Claim) -> None:
        try:
            await leadership.run()
        except Exception as error:  # noqa: BLE001 # a fault of ours in one partition must not end the others
            self._log.error("leading_failed", tube=claim.tube, partition=claim.partition, exc_info=error)
        finally:
            if self._leaderships.get((claim.tube, claim.partition)) is leadership:
                del self._leaderships[claim.tube, claim.partition]

    async def _follow_partitions(self) -> None:
        """The elections hand out claims for as many partitions as the tubes have."""
        while True:
            await asyncio.sleep(_PARTITIONS_INTERVAL)
            try:
                self._note_partitions(await read_partitions(self._database.pool, list(self._tubes)))
            except RECOVERABLE:
                continue  # told by what renews the terms
            self._tell_standby()

    def _note_partitions(self, partitions: dict[str, int]) -> None:
        for name, tube in self._tubes.items():
            before, tube.partitions = tube.partitions, partitions.get(name, 0)
            if before and not tube.partitions:
                tube.log.warning("tube_dropped", remark="it is served again when it is back")

    def _leads_first_partition(self) -> bool:
        """Whether it is on this process to follow DDL: it leads the first partition of some tube."""
        return any(partition == 0 for _, partition in self._leaderships)

    # --- health ---------------------------------------------------------------------------

    @property
    def listens_at(self) -> int | None:
        """The port of the HTTP listener while it is open; None without one."""
        return None if self._listener is None else self._listener.port

    def _build_listener(self, address: str) -> HttpResponder:
        labels = {"client_id": self._config.worker.client_id, "election": self._config.election_kind}
        view = View(
            self._tubes,
            self._database,
            labels,
            self._working,
            self._waiting,
            lambda: self._why_unready() is None,
        )
        return build_listener(
            address,
            view,
            why_broken=self._why_broken,
            why_unready=self._why_unready,
            remarks=self._closed_sinks,
            log=self._log,
        )

    def _working(self) -> dict[tuple[str, int], Consumer]:
        """What is being worked on now."""
        return {
            where: worker
            for where, leadership in self._leaderships.items()
            if (worker := leadership.partition_worker) is not None
        }

    def _waiting(self) -> set[tuple[str, int]]:
        """What is led and not worked on, because the sink has not been opened."""
        return {where for where, leadership in self._leaderships.items() if leadership.waits_for_sink}

    def _why_broken(self) -> str | None:
        """Why the process is to be restarted: a service has ended, and nobody waits for the worker."""
        if self._state == "running" and any(task.done() for task in self._services):
            return "a service of the worker has ended; its error is what Worker.wait raises"
        return None

    def _why_unready(self) -> str | None:
        """Why the worker can't lead or stand by."""
        if self._state != "running":
            return f"the worker is {self._state}"
        if not self._is_complete:
            return "the worker is starting"
        if self._database.down_for:
            return f"Postgres has been down for {self._database.down_for:.0f} s"
        if not self._database.renews:
            return "no session with Postgres has renewed terms yet"
        closed = self._closed_sinks()
        return "\n".join(closed) if len(closed) == len(self._sinks) else None

    def _closed_sinks(self) -> list[str]:
        """A line for each tube whose sink has not been opened."""
        return [
            f"tube {name} is not served: {sink.why_closed}"
            for name, sink in self._sinks.items()
            if sink.why_closed is not None
        ]

    # --- events ---------------------------------------------------------------------------

    def _tell_start(self) -> None:
        tubes = tuple(self._tubes)
        sinks = tuple(self._config.tubes[name].sink.type for name in tubes)
        election, client_id = self._config.election_kind, self._config.worker.client_id
        self._emit(WorkerStarted(pytube.__version__, tubes, election, sinks, client_id))

    def _tell_standby(self) -> None:
        """Tell once of each tube of which nothing was led for a while."""
        now = time.monotonic()
        busy = {tube for tube, _ in self._leaderships}
        for name, tube in self._tubes.items():
            if name in busy or not tube.partitions:
                self._idle_since[name] = now
                if self.leads(name):
                    self._standing_by.discard(name)
            elif name not in self._standing_by and now >= self._idle_since.setdefault(name, now) + _STANDBY:
                self._standing_by.add(name)
                self._emit(WorkerStandsBy(name, tube.partitions))

    async def _read_metrics(self) -> None:
        while True:
            await asyncio.sleep(self._config.worker.meter_interval)
            for leadership in self._leaderships.values():
                worker = leadership.partition_worker
                event = worker.read_metrics() if worker is not None else None
                if event is not None:
                    self._emit(event)

    def _emit(self, event: Event) -> None:
        log_event(self._log, event)
        if isinstance(event, PartitionEvent):
            self._tubes[event.tube].count(event)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 # a fault of the caller's must not end a partition's worker
            self._faults.log("on_event", error)
