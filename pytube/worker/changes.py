"""The part of a configuration that a worker serves, and the differences when it takes up another one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytube.config import Config
from pytube.config.section import Section, key_path
from pytube.documents.resolve import refuse_unresolved, with_companions
from pytube.errors import ConfigError
from pytube.sinks import Sink
from pytube.worker.host import Host
from pytube.worker.kafka import KafkaCluster, kept, needed_clusters
from pytube.worker.queue import Queue
from pytube.worker.shared_sink import SharedSink

# --- the served queues ------------------------------------------------------------------------------


class Choice:
    """Which tubes and outboxes of a configuration are served, and by which sinks."""

    def __init__(
        self, tubes: Sequence[str] | None, outboxes: Sequence[str] | None, given: Mapping[str, Sink]
    ) -> None:
        """As of `Worker`."""
        self._names = None if tubes is None and outboxes is None else (tubes or (), outboxes or ())
        self._given = dict(given)

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

    def build_sink(self, config: Config, tube: str) -> SharedSink:
        """The sink of a tube; raises `ConfigError`."""
        settings = config.tube(tube)
        given = self._given.get(settings.sink.type)
        return SharedSink(tube, settings.sink, settings.backfill_share, given)

    def build_sinks(
        self, config: Config, tubes: Sequence[str], old: Mapping[str, SharedSink]
    ) -> dict[str, SharedSink]:
        """The sinks of tubes: the old one where its section is as it was."""
        sinks = {}
        for name in tubes:
            settings, sink = config.tube(name), old.get(name)
            stays = sink is not None and sink.is_as(settings.sink, settings.backfill_share)
            sinks[name] = sink if sink is not None and stays else self.build_sink(config, name)
        return sinks


def keeping(config: Config, old: Config, refused: Collection[str], served: Collection[str]) -> Config:
    """The configuration, with the old tubes of served documents that were refused."""
    kept = with_companions(old, [name for name in refused if name in served])
    tubes = {**config.tubes, **{name: old.tubes[name] for name in kept}}
    return config.model_copy(update={"tubes": tubes}) if kept else config


# --- differences --------------------------------------------------------------------------------


_OF_QUEUES = {"tubes", "outboxes", "documents"}
"""The fields of `Config` whose sections are each of a tube or an outbox."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of tubes and outboxes, sorted."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.added or self.changed or self.removed)

    @classmethod
    def of(cls, old: Config, new: Config, served: Collection[str], wanted: Collection[str]) -> Changes:
        """What to do to serve `wanted` of `new`, where `served` of `old` are served."""
        stay = set(served) & set(wanted)
        return cls(
            added=tuple(sorted(set(wanted) - stay)),
            changed=tuple(sorted(name for name in stay if _section(old, name) != _section(new, name))),
            removed=tuple(sorted(set(served) - stay)),
        )


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


def _section(config: Config, name: str) -> Section:
    if name in config.outboxes:
        return config.outboxes[name].as_served()
    return config.tube(name).as_served()


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
