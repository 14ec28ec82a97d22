"""The worker: any number of tubes and outboxes in one process, to be run by the command line or embedded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytube
from pytube.config import Config
from pytube.election.lease import Room
from pytube.errors import (
    ConfigError,
    DatabaseUnavailable,
    PooledSession,
    PytubeError,
    UsageError,
    of_host,
)
from pytube.events import ConfigTakenUp, ConfigWaits, Event, EventCallback, WorkerStarted
from pytube.logs import Logger, UserFaults, is_news, log_event
from pytube.pipeline.limits import TokenBucket
from pytube.pipeline.retry_queue import backoff
from pytube.sinks import Sink
from pytube.sources.terms import SharedShard, shared_shards
from pytube.worker.host import Host
from pytube.worker.kafka import KafkaCluster, kept_clusters, needed_clusters
from pytube.worker.listener import HttpResponder, build_listener
from pytube.worker.metrics import View, build_tracing
from pytube.worker.reload import (
    Changes,
    Choice,
    Load,
    Reloader,
    Replacement,
    keeping,
    refuse_process_keys,
    waiting_names,
)
from pytube.worker.services import Process, run_until_signal
from pytube.worker.shared_sink import SharedSink

_SINKS_INTERVAL = 1.0
_SHARDS_INTERVAL = 30.0


class Worker:
    """Serves tubes and outboxes until it is stopped.

    `run_until_signal` runs it in a process. Within your event loop: `start`, then `wait` or other work, then
    `stop`.
    """

    def __init__(
        self,
        config: Config,
        tubes: Sequence[str] | None = None,
        on_event: EventCallback | None = None,
        *,
        outboxes: Sequence[str] | None = None,
        takes_up: bool = False,
        sinks: Mapping[str, Sink] | None = None,
        refused: Mapping[str, PytubeError] | None = None,
    ) -> None:
        """Args:
            config: as `pytube.config.load` gives it, or `pytube.documents.resolve.resolve` where documents
                are declared.
            tubes: names of configured tubes. Tubes of documents are served with their companions.
            on_event: receives every event, in order; see `EventCallback`.
            outboxes: names of configured outboxes. With neither `tubes` nor `outboxes`, all configured ones
                are served; with one of them, only those.
            takes_up: whether tubes and outboxes need not exist: each is served from its creation until it
                is dropped.
            sinks: instances of sinks by the `type` that the configuration gives: `{"mem": my_sink}` is the
                sink of the tube with `type = "mem"`. The worker opens and closes each.
            refused: documents that are not in `config`, and why, as `pytube.documents.resolve.resolve_each`
                gives them: they are served once a configuration is taken up that has them.

        Raises:
            ConfigError: a tube or an outbox is not configured, or none is; a sink or librdkafka refuses
                options; a package is missing; an instance would be the sink of two tubes.
        """
        self._choice = Choice(tubes, outboxes, sinks or {})
        self._refused = {name: str(why) for name, why in (refused or {}).items()}
        """At the start."""
        tubes, outboxes = self._choice.names(config, self._refused)
        self._config = config
        self._on_event = on_event
        self._takes_up = takes_up
        self._log = Logger("pytube.worker")
        self._faults = UserFaults(self._log)
        self._state = "new"
        self._is_complete = False
        """Whether everything that `start` begins has begun."""
        self._told: dict[object, str] = {}
        self._outboxes = outboxes
        self._clusters = needed_clusters(config, tubes, outboxes)
        self._process = Process(
            self._emit,
            build_tracing(config.worker.tracing, config.worker.client_id),
            Room(config.worker.partitions),
            TokenBucket(config.worker.claims),
            self._clusters,
            takes_up,
        )
        self._process.refusals.note(self._refused)
        self._services = self._process.services
        self._sinks = self._choice.build_sinks(config, tubes, {})
        self._opening: list[SharedSink] = []
        """Sinks that are to take the place of others."""
        self._changing = asyncio.Lock()
        """Held while the set of served queues changes."""
        self._reloader: Reloader | None = None
        self._hosts = [
            Host(name, config.of_host(name), self._process, self._sinks, outboxes) for name in config.hosts
        ]
        self._down: list[Host] = []
        """The hosts that were down at the start."""
        self._listener = None if config.worker.listen is None else self._build_listener(config.worker.listen)

    @property
    def state(self) -> str:
        """`new`, `running`, `stopping` or `stopped`."""
        return self._state

    def leads(self, tube: str, host: str | None = None) -> set[int]:
        """The partitions of `tube` that this worker leads now, at work or at rest, on `host` or on any."""
        return {
            partition
            for one in self._hosts
            if host in (None, one.name)
            for name, partition in {*one.working(), *one.resting()}
            if name == tube
        }

    # --- life -----------------------------------------------------------------------------

    def run_until_signal(
        self, load: Load | None = None, *, again: Load | None = None, watched: Path | None = None
    ) -> None:
        """Start; at SIGINT or SIGTERM stop in order, and return. A second signal ends the process at once.

        Args:
            load: gives the configuration as it is now, as `resolve_each` does, for `take_up`; called in a
                thread at each SIGHUP. None: SIGHUP ends the process.
            again: gives the configuration that `load` has given last, with what of its documents can be made
                now; called now and then while something is refused. None: that waits for SIGHUP.
            watched: the file behind `load`, if it is also to be taken up whenever it has changed.

        Raises:
            UsageError: this is not the main thread, or an event loop runs in it.
            PytubeError: as `start`; or a service of the worker failed.
        """
        if load is None:
            run_until_signal(self)
            return
        self._reloader = Reloader(self, load, self._emit, watched, self._refused, again)
        run_until_signal(self, self._reloader.ask)

    async def start(self) -> None:
        """Open databases, brokers and sinks, and begin.

        Hosts that are down, if not all are, are served once they are back.

        Raises:
            DatabaseUnavailable: all hosts are down.
            SchemaMismatch: this version needs another version of the SQL.
            UnknownTube: there is no such tube.
            UsageError: it can't listen at the address of `worker.listen`.
            ConfigError: rows can't be read as configured; two hosts have the same shard of a tube.
            PytubeError: something else is down or wrong; nothing is left open.
        """
        self._state = "running"
        try:
            if self._listener is not None:
                await self._listener.open()
            await self._try_hosts(Host.check)
            _refuse_shared_shards(self._hosts)
            await self._open_sinks()
            self._tell_start()
            for cluster in self._clusters:
                self._services.add(cluster, cluster.watch(), may_end=True)
            await self._try_hosts(Host.begin)
        except BaseException:
            await self.stop()
            raise
        for host in self._down:
            self._services.add(self, self._take_up(host), may_end=True)
        self._services.add(self, self._read_metrics())
        if self._takes_up:
            self._services.add(self, self._follow_sinks())
        if len(self._hosts) > 1:
            self._services.add(self, self._follow_shards())
        if self._reloader is not None:
            self._services.add(self, self._reloader.run())
        self._is_complete = True

    async def stop(self) -> None:
        """End in order: sends under way finish, the rest is given back, terms are released."""
        if self._state in ("stopping", "stopped"):
            return
        self._state = "stopping"
        try:
            async with AsyncExitStack() as stack:  # the first entry is closed last, whatever fails
                if self._listener is not None:
                    stack.push_async_callback(self._listener.close)
                stack.push_async_callback(self._process.tracing.close)
                stack.push_async_callback(self._close_sinks)
                stack.push_async_callback(self._stop_hosts)
                for cluster in self._clusters:
                    await self._services.end_those_of(cluster)
                await self._services.end_those_of(self)
        finally:
            self._state = "stopped"
            await self._services.close()

    async def wait(self) -> None:
        """Return when the worker is stopped; raises the fault that ended a service."""
        await self._services.wait()

    async def _close_sinks(self) -> None:
        """All of them, whatever one raises; raises that."""
        async with AsyncExitStack() as stack:
            for sink in [*self._sinks.values(), *self._opening]:
                stack.push_async_callback(sink.close)

    async def _stop_hosts(self) -> None:
        """At the same time: each of them may take the drain limit."""
        _raise_first(await asyncio.gather(*(host.stop() for host in self._hosts), return_exceptions=True))

    # --- another configuration ------------------------------------------------------------

    async def take_up(self, config: Config, refused: Collection[str] = ()) -> Changes:
        """Serve by another configuration from now on: unchanged parts continue untouched.

        The terms of tubes and outboxes that have changed end in order, and others begin. It is all checked
        before, as `start` does, so that whatever is raised has changed nothing. Sinks that have changed are
        opened before the old ones are closed; sinks that can't be reached are opened later.

        Args:
            config: as for the class.
            refused: documents that are not in it, as they can't be made. The served ones among them continue
                unchanged.

        Returns:
            The changes. Call it again for the `waiting` ones: one of several hosts that is down continues
            unchanged until then, as nothing can be checked there.

        Raises:
            UsageError: the worker does not run.
            PytubeError: as the class and `start`; a section that belongs to the process has changed.
        """
        async with self._changing:
            self._refuse_unless_running()
            refuse_process_keys(self._config, config)
            down = self._down_now()
            whole, config = config, keeping(config, self._config, refused, self._sinks, down)
            tubes, outboxes = self._choice.names(config, refused)
            wanted = [*tubes, *outboxes]
            waiting = {host: waiting_names(whole, config, wanted, host) for host in down}
            changes = Changes.of(self._config, config, self._served(), wanted, waiting)
            if changes:
                await self._switch(config, changes, tubes, outboxes, down)
            self._process.refusals.keep({*refused, *changes.why_waiting})
            for host in self._hosts:
                names = changes.waiting.get(host.name or "", ())
                if is_news(self._told, (host, ConfigWaits), ", ".join(names)) and names:
                    host.emit(ConfigWaits(names))
            return changes

    async def _switch(
        self,
        config: Config,
        changes: Changes,
        tubes: Sequence[str],
        outboxes: Sequence[str],
        down: Collection[str],
    ) -> None:
        """Check the changes, and put them in place."""
        sinks = self._choice.build_sinks(config, tubes, self._sinks)
        plan = Replacement.plan(config, changes, sinks, outboxes, self._hosts, self._sinks, self._clusters)
        try:
            await self._check(plan, down)
            self._refuse_unless_running()
        except BaseException:
            await asyncio.gather(*(sink.close() for sink in plan.new_sinks), return_exceptions=True)
            raise
        self._opening = plan.new_sinks
        # A bug here leaves queues unserved, so it ends the worker, as the failure of a service does.
        replacing = self._services.add(self, self._replace(plan), may_end=True)
        await asyncio.wait([replacing])  # which continues if the caller is cancelled
        if replacing.cancelled():
            raise UsageError("the worker was stopped while it took up another configuration")
        replacing.result()
        self._emit(ConfigTakenUp(changes.added, changes.changed, changes.removed))

    def note_refused(self, reasons: Mapping[str, str]) -> None:
        """Report to the database that these tubes and outboxes, and no others, are refused, and why."""
        self._process.refusals.note(reasons)

    def refuses(self) -> bool:
        """Whether there are any."""
        return bool(self._process.refusals)

    def unserved(self, config: Config, refused: Collection[str]) -> list[str]:
        """What would be served by a configuration, and is not served now, or not as it says."""
        try:
            config = keeping(config, self._config, refused, self._sinks)
            tubes, outboxes = self._choice.names(config, refused)
        except ConfigError:
            return []
        changes = Changes.of(self._config, config, self._served(), [*tubes, *outboxes])
        return [*changes.added, *changes.changed]

    def _served(self) -> list[str]:
        return [*self._sinks, *self._outboxes]

    def _down_now(self) -> set[str]:
        """The served hosts that are down, unless all are."""
        served = [host for host in self._hosts if host.is_served]
        down = {host.name for host in served if host.name is not None and host.database.down_for}
        return down if len(down) < len(served) else set()

    def documents_stand(self) -> bool:
        """Whether a declared document, or its relations, can't be read or are not those applied last."""
        return any(host.documents_stand() for host in self._hosts)

    def _refuse_unless_running(self) -> None:
        if self._state != "running" or not self._is_complete:
            raise UsageError(f"the worker is {self._state}, and takes up no other configuration")

    async def _check(self, plan: Replacement, down: Collection[str]) -> None:
        """Whether it can be served; opens new sinks. Hosts that are down are asked when they are back."""
        shards = {host.name: host.shards for host in self._hosts}
        for host, queues in zip(self._hosts, plan.queues, strict=True):
            if host.name in down:
                for name, queue in queues.items():
                    queue.partitions = host.queues[name].partitions
            elif host.is_served and queues:
                try:
                    shards[host.name] = {**host.shards, **await host.check_queues(queues)}
                except PytubeError as error:
                    if host.name is None:
                        raise
                    raise of_host(error, host.name) from error
        for shared in shared_shards(shards):
            raise ConfigError(shared.finding)
        opening = [
            sink.open()
            for name, sink in plan.sinks.items()
            if sink in plan.new_sinks and not sink.is_given and (not self._takes_up or plan.exists(name))
        ]
        _raise_first(await asyncio.gather(*opening, return_exceptions=True))

    async def _replace(self, plan: Replacement) -> None:
        """Put the new parts in place. Nothing here is refused: parts that are down are tried again."""
        ending = [*plan.changes.changed, *plan.changes.removed]
        await asyncio.gather(*(host.hold(ending) for host in self._hosts))
        old = [sink for sink in self._sinks.values() if sink not in plan.sinks.values()]
        self._config, self._outboxes = plan.config, plan.outboxes
        self._sinks, self._opening = plan.sinks, old
        await asyncio.gather(*(sink.close() for sink in old), return_exceptions=True)  # logged
        self._opening = []
        self._follow_clusters(plan.clusters)
        for host, queues in zip(self._hosts, plan.queues, strict=True):
            gone = [name for name in ending if name not in queues]
            await host.replace(plan.config.of_host(host.name), queues, gone)
        for name, sink in self._sinks.items():
            if sink.is_given or self._takes_up:
                sink.want(is_wanted=self._needs_sink(name))

    def _follow_clusters(self, needed: Sequence[KafkaCluster]) -> None:
        """Watch these clusters; already watched ones stay."""
        before = list(self._clusters)
        self._clusters[:] = kept_clusters(before, needed)
        for cluster in self._clusters:
            if cluster not in before:
                self._services.add(cluster, cluster.watch(), may_end=True)
        for cluster in before:
            if cluster not in self._clusters:
                self._services.add(self, self._services.end_those_of(cluster), may_end=True)

    # --- hosts ----------------------------------------------------------------------------

    async def _try_hosts(self, step: Callable[[Host], Coroutine[None, None, None]]) -> None:
        """Take the same step with all hosts that are not down.

        Raises:
            DatabaseUnavailable: now all are down.
            PytubeError: what else is wrong with one of them.
        """
        hosts = [host for host in self._hosts if host not in self._down]
        outcomes = await asyncio.gather(*map(step, hosts), return_exceptions=True)
        for host, outcome in zip(hosts, outcomes, strict=True):
            # A pooler in between is a fault of the configuration.
            if isinstance(outcome, DatabaseUnavailable) and not isinstance(outcome, PooledSession):
                self._down.append(host)
            elif isinstance(outcome, PytubeError) and host.name is not None:
                raise of_host(outcome, host.name) from outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        if len(self._down) == len(self._hosts):
            _raise_first(outcomes)
        for host, outcome in zip(hosts, outcomes, strict=True):
            if isinstance(outcome, DatabaseUnavailable):
                self._note_unserved(host, outcome)

    async def _take_up(self, host: Host) -> None:
        """Serve a host that was down at the start, from when it is back."""
        tries = 0
        while not host.is_served:
            tries += 1
            await asyncio.sleep(backoff(tries) * random.uniform(0.75, 1.25))  # noqa: S311 # spreads load only
            async with self._changing:
                try:
                    await host.check()
                    _refuse_shared_shards([one for one in self._hosts if one.is_served or one is host])
                    await host.begin()
                    host.database.note_up()  # before the first renewal: a file may be taken up now
                except PytubeError as error:
                    self._note_unserved(host, error)
        self._log.info("host_served", host=host.name)

    def _note_unserved(self, host: Host, error: PytubeError) -> None:
        host.why_unserved = str(error)
        if isinstance(error, DatabaseUnavailable):
            host.database.note_down(str(error))  # an event reports it, as of a later outage
        elif is_news(self._told, host, str(error)):
            remark = "it is tried again; the others are served"
            self._log.warning("host_not_served", host=host.name, reason=str(error), remark=remark)

    async def _follow_shards(self) -> None:
        """Warn if tables are attached to the same shard of a tube on two hosts."""
        while True:
            await asyncio.sleep(_SHARDS_INTERVAL)
            for host in self._hosts:
                await host.read_shards()
            for shared in _shared_shards(self._hosts):
                if is_news(self._told, (shared.tube, shared.hosts), shared.finding):
                    self._log.error("shard_shared", tube=shared.tube, reason=shared.finding)

    # --- sinks ----------------------------------------------------------------------------

    async def _open_sinks(self) -> None:
        """Open all sinks at once; unreachable ones are opened later.

        Raises what the first one raises that can't be opened as configured.
        """
        opening = [sink.open() for name, sink in self._sinks.items() if self._needs_sink(name)]
        _raise_first(await asyncio.gather(*opening, return_exceptions=True))

    def _needs_sink(self, tube: str) -> bool:
        return not self._takes_up or any(host.needs_sink(tube) for host in self._hosts)

    async def _follow_sinks(self) -> None:
        """Open the sinks of new tubes, and close the sinks of removed ones."""
        while True:
            await asyncio.sleep(_SINKS_INTERVAL)
            for name, sink in self._sinks.items():
                sink.want(is_wanted=self._needs_sink(name))

    # --- health ---------------------------------------------------------------------------

    @property
    def listens_at(self) -> int | None:
        """The port of the HTTP listener while it is open; None without one."""
        return None if self._listener is None else self._listener.port

    def _build_listener(self, address: str) -> HttpResponder:
        labels = {"client_id": self._config.worker.client_id, "election": self._config.election_kind}
        view = View(self._hosts, labels, lambda: self._why_unready() is None, self._clusters)
        return build_listener(
            address,
            view,
            why_broken=self._why_broken,
            why_unready=self._why_unready,
            remarks=self._remarks,
            log=self._log,
        )

    def _why_broken(self) -> str | None:
        """Why the process is to be restarted: a service has ended, and no caller waits for the worker."""
        if self._state == "running" and self._services.is_broken:
            return "a service of the worker has ended; its error is what Worker.wait raises"
        return None

    def _why_unready(self) -> str | None:
        """Why the worker can't lead or stand by: of no tube, on no host."""
        if self._state != "running":
            return f"the worker is {self._state}"
        if not self._is_complete:
            return "the worker is starting"
        unready, closed = self._unready_hosts(), self._closed_sinks()
        if len(unready) == len(self._hosts):
            return "\n".join(unready)
        wanted = len(self._wanted_sinks()) + len(self._outboxes)
        return "\n".join(closed) if closed and len(closed) == wanted else None

    def _remarks(self) -> list[str]:
        """Parts that are wrong, or can't be served while the rest is: a line for each."""
        return [
            *self._unready_hosts(),
            *self._closed_sinks(),
            *(f"{name} is refused: {reason}" for name, reason in self._process.refusals.reasons.items()),
            *(shared.finding for shared in _shared_shards(self._hosts)),
        ]

    def _unready_hosts(self) -> list[str]:
        reasons = [(host.name, host.why_unready) for host in self._hosts]
        return [
            reason if name is None else f"host {name} is not served: {reason}"
            for name, reason in reasons
            if reason is not None
        ]

    def _wanted_sinks(self) -> dict[str, SharedSink]:
        return {name: sink for name, sink in self._sinks.items() if self._needs_sink(name)}

    def _closed_sinks(self) -> list[str]:
        """A line for each tube whose sink has not been opened."""
        return [
            f"tube {name} is not served: {sink.why_closed}"
            for name, sink in self._wanted_sinks().items()
            if sink.why_closed is not None
        ]

    # --- events ---------------------------------------------------------------------------

    def _tell_start(self) -> None:
        tubes = tuple(self._sinks)
        outboxes = tuple(self._outboxes)
        sinks = tuple(self._config.tubes[name].sink.type for name in tubes)
        election, client_id = self._config.election_kind, self._config.worker.client_id
        self._emit(WorkerStarted(pytube.__version__, tubes, election, sinks, client_id, outboxes))

    async def _read_metrics(self) -> None:
        while True:
            await asyncio.sleep(self._config.worker.meter_interval)
            for host in self._hosts:
                host.read_metrics()

    def _emit(self, event: Event) -> None:
        log_event(self._log, event)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 # a fault of the caller's must not end a partition's worker
            self._faults.log("on_event", error)


def _shared_shards(hosts: Sequence[Host]) -> Iterator[SharedShard]:
    return shared_shards({host.name: host.shards for host in hosts})


def _refuse_shared_shards(hosts: Sequence[Host]) -> None:
    """Raise `ConfigError` if two of these hosts have the same shard of a tube."""
    for shared in _shared_shards(hosts):
        raise ConfigError(shared.finding)


def _raise_first(outcomes: Sequence[object]) -> None:
    """Raise the first exception among what `asyncio.gather` returned."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
