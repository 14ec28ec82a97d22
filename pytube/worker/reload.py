"""The part of a configuration that a worker serves, and how it takes up another one while it runs.

That is done at a signal, and when the file has changed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pytube.config import Config, TubeConfig
from pytube.config.section import Section, key_path
from pytube.documents.resolve import RELATIONS, of_hosts, refuse_unresolved, with_companions
from pytube.errors import ConfigError, PytubeError
from pytube.events import ConfigRefused, DocumentRefused, Event
from pytube.logs import Logger, is_news
from pytube.sinks import Sink
from pytube.threads import in_thread
from pytube.worker.host import Host
from pytube.worker.kafka import KafkaCluster, kept, needed_clusters
from pytube.worker.queues import Queue
from pytube.worker.services import Lateness
from pytube.worker.shared_sink import SharedSink

if TYPE_CHECKING:
    from pytube.worker.worker import Worker

# --- the served queues ------------------------------------------------------------------------------


class Choice:
    """Which tubes and outboxes of a configuration are served, and by which sinks."""

    def __init__(
        self, tubes: Sequence[str] | None, outboxes: Sequence[str] | None, given: Mapping[str, Sink]
    ) -> None:
        self._names = None if tubes is None and outboxes is None else (tubes or (), outboxes or ())
        self._given = dict(given)
        self._lateness = Lateness()

    def names(self, config: Config, refused: Collection[str] = ()) -> tuple[Sequence[str], Sequence[str]]:
        """The tubes, with their companions, and the outboxes; raises `ConfigError` where there are none.

        `refused`: documents that can't be made; if the configuration does not have them, they are left out.
        """
        tubes, outboxes = (config.tubes, config.outboxes) if self._names is None else self._names
        tubes = [name for name in tubes if name in config.tubes or name not in refused]
        for name in tubes:
            config.tube(name)
        for name in outboxes:
            config.outbox(name)
        tubes, outboxes = with_companions(config, tubes), tuple(dict.fromkeys(outboxes))
        refuse_unresolved(config, tubes)
        if not (tubes or outboxes):
            raise ConfigError(
                'nothing is configured to be served; add a section [tube."NAME"] with its sink, or '
                '[outbox."NAME"]'
            )
        for given in self._given:
            named = [repr(name) for name in tubes if config.tube(name).sink.type == given]
            if len(named) > 1:
                raise ConfigError(
                    f"tubes {' and '.join(named)} have the sink type {given!r}, for which the worker was "
                    "given an instance, which serves one tube; give each its instance, under another type"
                )
        return tubes, outboxes

    def build_sinks(
        self, config: Config, tubes: Sequence[str], old: Mapping[str, SharedSink]
    ) -> dict[str, SharedSink]:
        """The sinks of tubes: the old one where its section is as it was; raises `ConfigError`."""
        sinks = {}
        for name in tubes:
            settings, sink = config.tube(name), old.get(name)
            if sink is None or not sink.is_as(settings.sink, settings.backfill_share):
                given = self._given.get(settings.sink.type)
                sink = SharedSink(name, settings.sink, settings.backfill_share, given, self._lateness)
            sinks[name] = sink
        return sinks


def keeping(
    config: Config,
    old: Config,
    refused: Collection[str],
    served: Collection[str],
    down: Collection[str] = (),
) -> Config:
    """The configuration, with the old tubes of served documents that were refused, on whatever host.

    Hosts that are `down` have nothing new, as it can't be checked there. They have the old tubes, as far as
    the sinks, which hosts share, take their documents.
    """
    lost = [name for name in refused if name in served]
    hosts = {
        host: _keeping(config.of_host(host), old.of_host(host), lost, config.tubes, is_down=host in down)
        for host in config.hosts
    }
    named = {host: one for host, one in hosts.items() if host is not None}
    return of_hosts(config, named) if named else hosts[None]


def _keeping(
    new: Config, old: Config, lost: Collection[str], shared: Mapping[str, TubeConfig], *, is_down: bool
) -> Config:
    """Of one host, by its configuration of before; hosts share the sinks of the tubes `shared`."""
    names = [name for name in lost if name in old.tubes and name not in new.tubes]
    if is_down:
        names += [name for name in new.tubes if name in old.tubes and _fits(old.tubes[name], new.tubes[name])]
    kept = {name: _kept(old.tubes[name], shared.get(name)) for name in with_companions(old, names)}
    if not is_down:
        return new.model_copy(update={"tubes": {**new.tubes, **kept}})
    outboxes = {name: outbox for name, outbox in new.outboxes.items() if name in old.outboxes}
    return new.model_copy(update={"tubes": kept, "outboxes": outboxes})


def _kept(tube: TubeConfig, shared: TubeConfig | None) -> TubeConfig:
    if shared is None or tube.sink.type == RELATIONS:
        return tube
    return tube.model_copy(update={"sink": shared.sink, "backfill_share": shared.backfill_share})


def _fits(old: TubeConfig, new: TubeConfig) -> bool:
    """Whether the sink takes the documents of before: if both have changed, it might refuse and park them."""
    return old.sink == new.sink or _kept(old, new).as_served() == new.as_served()


# --- differences --------------------------------------------------------------------------------


_OF_QUEUES = {"tubes", "outboxes", "documents"}
"""The fields of `Config` whose sections are each of a tube or an outbox."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of tubes and outboxes, sorted."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    waiting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By host that is down: the names that it takes up when it is back."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    @classmethod
    def of(
        cls,
        old: Config,
        new: Config,
        served: Collection[str],
        wanted: Collection[str],
        waiting: Mapping[str, Collection[str]] | None = None,
    ) -> Changes:
        """What to do to serve `wanted` of `new`, where `served` of `old` are served."""
        stay = set(served) & set(wanted)
        return cls(
            added=tuple(sorted(set(wanted) - stay)),
            changed=tuple(sorted(_differing_names(old, new, stay, new.hosts))),
            removed=tuple(sorted(set(served) - stay)),
            waiting={host: tuple(sorted(names)) for host, names in (waiting or {}).items() if names},
        )

    @property
    def why_waiting(self) -> dict[str, str]:
        """By name, why it waits on some host."""
        return {
            name: f"host {host} is down, and takes up the changed file when it is back"
            for host, names in self.waiting.items()
            for name in names
        }


@dataclass(frozen=True, slots=True)
class Replacement:
    """What takes the place of what a worker serves."""

    config: Config
    changes: Changes
    sinks: dict[str, SharedSink]
    """Of all tubes; unchanged tubes keep their sinks."""
    new_sinks: list[SharedSink]
    outboxes: tuple[str, ...]
    queues: list[dict[str, Queue]]
    """By host: the new and the changed queues."""
    clusters: list[KafkaCluster]

    @classmethod
    def plan(
        cls,
        config: Config,
        changes: Changes,
        sinks: dict[str, SharedSink],
        outboxes: Sequence[str],
        hosts: Sequence[Host],
        old_sinks: Mapping[str, SharedSink],
        old_clusters: Sequence[KafkaCluster],
    ) -> Replacement:
        """Make it, and open nothing; raises as the classes of its parts."""
        new = {*changes.added, *changes.changed}
        of_tubes = {name: sink for name, sink in sinks.items() if name in new}
        of_outboxes = [name for name in outboxes if name in new]
        needed = needed_clusters(config, list(sinks), outboxes)
        clusters = [kept(old_clusters, cluster) for cluster in needed]
        return cls(
            config,
            changes,
            sinks,
            [sink for sink in sinks.values() if sink not in old_sinks.values()],
            tuple(outboxes),
            [host.build(config.of_host(host.name), of_tubes, of_outboxes, clusters) for host in hosts],
            needed,
        )

    def exists(self, tube: str) -> bool:
        """Whether a tube that is new or has changed was found on some host."""
        return any(tube in queues and queues[tube].partitions for queues in self.queues)


def _differing_names(
    old: Config, new: Config, names: Collection[str], hosts: Collection[str | None]
) -> set[str]:
    """The ones among the names that some of the hosts have otherwise in the new configuration."""
    pairs = [(old.of_host(host), new.of_host(host)) for host in hosts]
    return {name for name in names if any(_section(was, name) != _section(now, name) for was, now in pairs)}


def waiting_names(whole: Config, kept: Config, wanted: Collection[str], host: str) -> set[str]:
    """The wanted names that a host has in the whole configuration, and keeps as before."""
    own = whole.of_host(host)
    names = [name for name in wanted if name in own.tubes or name in own.outboxes]
    return _differing_names(whole, kept, names, [host])


def _section(config: Config, name: str) -> Section | None:
    section = config.outboxes.get(name) or config.tubes.get(name)
    return None if section is None else section.as_served()


def refuse_process_keys(old: Config, new: Config) -> None:
    """Raise `ConfigError`, with the keys, if they differ in settings of the process."""
    keys = [key for key in _differing(old, new, ()) if key]
    if keys:
        raise ConfigError(
            f"{', '.join(keys)} can't be changed while the worker runs, so nothing of the file is taken up; "
            f"restart the worker, or put {'it' if len(keys) == 1 else 'them'} back"
        )


def _differing(old: object, new: object, path: tuple[str, ...]) -> Iterator[str]:
    """The keys that differ; values are left out, as some are secrets."""
    if isinstance(old, Section) and isinstance(new, Section):
        for name, field in type(old).model_fields.items():
            if path or name not in _OF_QUEUES:
                yield from _differing(getattr(old, name), getattr(new, name), (*path, field.alias or name))
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differing(old.get(key), new.get(key), (*path, key))
    elif old != new:
        yield key_path(path)


# --- the file ------------------------------------------------------------------------------------


_LOOK_INTERVAL = 1.0
"""Seconds between two looks at the file. It is taken up when two in a row see the same."""
_LONGEST_PAUSE = 5.0
"""Seconds after which a file is tried again that was refused: `pytube apply` may have run, say."""

_AGAIN = 30.0
"""Seconds after which a file that is not watched is tried again while something is refused."""

Load: TypeAlias = Callable[[], tuple[Config, Mapping[str, PytubeError]]]
"""Reads the file, and compiles its documents: the configuration, and by name why a document is not in it."""


class Reloader:
    """Loads the file again and again, and has the worker take it up."""

    def __init__(
        self,
        worker: Worker,
        load: Load,
        emit: Callable[[Event], None],
        watched: Path | None = None,
        refused: Mapping[str, str] | None = None,
        again: Load | None = None,
    ) -> None:
        """Begins nothing. `watched`: the file, if it is taken up whenever it has changed; else `ask` alone
        does that. `refused`: documents that were refused at the start, and why. `again`: as `load`, by the
        file as it was read last; without a watched file, refused tubes are tried by it.
        """
        self._worker = worker
        self._load = load
        self._again = again
        self._emit = emit
        self._watched = watched
        self._asked = asyncio.Event()
        self._log = Logger("pytube.worker")
        self._told: dict[object, str] = dict((refused or {}).items())
        """Why the file was refused, by None, and why a document was, by its name."""

    def ask(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        seen, taken, tries = "", "", 0
        due = float("-inf")
        clock = asyncio.get_running_loop().time
        while True:
            if await self._wait():
                self._told.clear()  # who asks wants an answer, though it be the same as before
                if not await self._try(self._load) and not self._told:
                    self._log.info("config_unchanged")
                continue
            if self._watched is None:
                if self._again is not None and self._worker.refuses():
                    await self._try(self._again)  # after a GRANT or `pytube apply`, say
                continue
            before, seen = seen, await in_thread(self._fingerprint)
            is_new = bool(seen) and seen == before and seen != taken
            is_held_up = bool(self._told) or self._worker.refuses() or self._worker.documents_stand()
            is_due = clock() >= due and is_held_up
            if is_new or is_due:
                tries = 0 if is_new else tries + 1
                taken = seen
                await self._try(self._load)
                pause = min(_LONGEST_PAUSE, 2.0**tries)
                due = clock() + pause * random.uniform(0.75, 1.25)  # noqa: S311 # spreads load only

    async def _wait(self) -> bool:
        """Wait until the file is to be looked at; whether a signal asked for it."""
        if self._watched is not None:
            limit: float | None = _LOOK_INTERVAL
        else:
            limit = None if self._again is None else _AGAIN * random.uniform(0.75, 1.25)  # noqa: S311 # as below
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._asked.wait()
        asked = self._asked.is_set()
        self._asked.clear()
        return asked

    def _fingerprint(self) -> str:
        """Of the content of the file; empty while it can't be read, as it is being replaced, say."""
        assert self._watched is not None
        try:
            return sha256(self._watched.read_bytes()).hexdigest()
        except OSError:
            return ""

    async def _try(self, load: Load) -> bool:
        """Take the file up; whether anything has changed. A refusal is logged once."""
        loaded: tuple[Config, Mapping[str, PytubeError]] | None = None
        try:
            loaded = config, refused = await in_thread(load)
            changes = await self._worker.take_up(config, refused)
        except Exception as error:  # noqa: BLE001 # whatever is wrong with the file, the worker continues
            reason = str(error) if isinstance(error, PytubeError) else f"{type(error).__name__}: {error}"
            if is_news(self._told, None, reason):
                self._emit(ConfigRefused(reason))
            if loaded is not None:
                held_up = dict.fromkeys(self._worker.unserved(*loaded), reason)
                self._worker.note_refused(held_up | _reasons(loaded[1]))
            return False
        self._worker.note_refused(changes.why_waiting | _reasons(refused))
        for name in self._told.keys() - refused.keys():
            del self._told[name]
        for name, why in refused.items():
            if is_news(self._told, name, str(why)):
                self._emit(DocumentRefused(name, str(why)))
        return bool(changes)


def _reasons(refused: Mapping[str, PytubeError]) -> dict[str, str]:
    return {name: str(why) for name, why in refused.items()}
