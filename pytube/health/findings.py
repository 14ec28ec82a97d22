"""Findings: the kinds of troubles, each with its section in the reference, and the results of checks."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import psycopg

from pytube.config import Config
from pytube.errors import on_host, page


class Kind(enum.StrEnum):
    """A value is the name of the section."""

    KAFKA_UNREACHABLE = "kafka-unreachable"
    """Workers can't reach a Kafka cluster that elections or deliveries need. Remedy: bring Kafka up, or fix
    the workers' way there. Where Kafka answers, but not for a consumer group, see the log of the broker that
    coordinates the group, and restart it: it may have started damaged, or be unable to make the topic
    `__consumer_offsets`. Don't restart workers: they continue without help."""

    LEADER_LOST = "leader-lost"
    """The leader stopped renewing its term: it was killed, hangs, or is cut off. Remedy: start a worker. If
    the leader hangs, end it with SIGKILL; nothing is lost."""

    NOT_LED = "not-led"
    """No worker leads the partition, so its changes wait. Remedy: start a worker for the tube or outbox; if
    one runs and can't serve it, the finding names the reason; else its log does."""

    WORKER_HANGS = "worker-hangs"
    """A worker renews nothing, though its sessions are open: it hangs, was stopped, or is cut off. Others
    take over its partitions. Remedy: find out on its machine why it hangs, or end it with SIGKILL; nothing is
    lost."""

    TABLES_NOT_FOLLOWED = "tables-not-followed"
    """Attached tables were changed, and a worker may not, or can't, follow. Remedy: what the reason says:
    usually, the owner of the table runs `SELECT tube.tube_sync();`. Workers look again every half minute."""

    CONFIG_REFUSED = "config-refused"
    """A worker does not serve the tube or outbox as its changed file says: something in the file is wrong, or
    could not be checked on a host that was down. It continues as before. Remedy: follow the reason; the
    worker looks again every half minute."""

    SINK_DOWN = "sink-down"
    """The sink takes nothing; the partition waits, and parks nothing. Remedy: bring the sink up, or correct
    what the reason names; then SIGHUP for a changed file. `pytube sink check` tries the sink."""

    SINK_EMPTIED = "sink-emptied"
    """The sink lost its documents, or was replaced. Remedy: `pytube backfill start` fills it again. If it may
    be complete: `pytube verify`."""

    SINK_SLOW = "sink-slow"
    """The sink answers late, or puts documents off, so workers send it less at a time. Remedy: relieve the
    sink, or change the setting that the finding names."""

    SOURCE_DOWN = "source-down"
    """Rows can't be read. Remedy: follow the reason: usually a GRANT, or a query or document to correct in
    the configuration; then SIGHUP."""

    TABLE_LOCKED = "table-locked"
    """A session has locked a table or records that the partition needs. Remedy: wait, or end that session;
    the worker continues without help."""

    WORKER_LATE = "worker-late"
    """The worker gets too little processor time, or has too much to do, so answers of the sink wait in it.
    Remedy: raise its CPU limit, move it to a less busy machine, or start another worker."""

    TERMS_FAIL = "terms-fail"
    """Several terms of the partition in a row ended by the same failure. Remedy: fix what the worker's log
    names; report a bug of pytube."""

    NOT_READ = "not-read"
    """The backlog of the partition could not be read. Remedy: grant the role what the finding names."""

    PARKED = "parked"
    """Documents or records were set aside with their errors. Remedy: `pytube park list` or `pytube outbox
    parked list` shows why; fix that, then `pytube park retry` or `pytube outbox parked retry`."""

    PAUSED = "paused"
    """An operator paused the tube or partition. Remedy: `pytube resume`."""

    STOPPED = "stopped"
    """A worker stopped the whole tube: a document can't be delivered and `on_poison` is `stop`, or more keys
    would be parked than `park_limit`. Remedy: fix the cause, or discard with `pytube pods discard` or `pytube
    park discard`; then `pytube resume`."""

    TOPIC_RESTS = "topic-rests"
    """A topic accepts no records of an outbox; other topics continue. Remedy: create the topic, or correct
    what the reason names; its records then go in order. To give them up: `pytube outbox park`."""

    SOURCE_CHANGED = "source-changed"
    """The source was replaced or restored, so commits that were delivered may be gone. Remedy: `pytube verify
    --repair`, or `pytube backfill start --wait` if the sink can't be read; for an outbox, inform its
    consumers, then `pytube outbox acknowledge`."""

    COPY_DIFFERS = "copy-differs"
    """A scheduled sample found keys that differ. Remedy: `pytube verify --repair`, then `pytube verify` until
    it finds nothing."""

    @property
    def page(self) -> str:
        """Where this is to be read."""
        return page(f"errors.md#{self}")


class Level(enum.StrEnum):
    """How bad it is. `warn` works, but worse than it could; `fail` does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """A subject, the finding about it, and the remedy."""

    subject: str
    level: Level
    finding: str
    remedy: str | None = None
    kind: Kind | None = None
    """Of a trouble, which has a section in the reference."""


def with_host(check: Check, host: str | None) -> Check:
    """Its commands are of this host; None: there is only one."""
    remedy = None if check.remedy is None else on_host(check.remedy, host)
    return replace(check, finding=on_host(check.finding, host), remedy=remedy)


class Look(NamedTuple):
    """What a check of the database needs: an autocommit session, pytube's schema, the configuration."""

    connection: psycopg.Connection
    schema: str
    config: Config


def ok(subject: str, finding: str) -> Check:
    """All is well."""
    return Check(subject, Level.OK, finding)


def warn(subject: str, finding: str, remedy: str) -> Check:
    """It works, but worse than it could."""
    return Check(subject, Level.WARN, finding, remedy)


def fail(subject: str, finding: str, remedy: str) -> Check:
    """It does not work."""
    return Check(subject, Level.FAIL, finding, remedy)


_PARTS = re.compile(r"(.*); ((?!GRANT ).*)", re.DOTALL)
"""A finding and its remedy, which may be several statements."""


def refused(subject: str, text: str, otherwise: str | None = None) -> Check:
    """It does not work, for a sentence whose last part is the remedy; without one, it is `otherwise`."""
    found = _PARTS.fullmatch(text)
    finding, remedy = ("", text) if found is None else found.groups()
    return fail(subject, finding or text, remedy if finding or otherwise is None else otherwise)


def is_expected(config: Config, name: str) -> bool:
    """Whether a tube or an outbox is to be served: the configuration names it.

    Without a configuration file it is unknown who serves which; then all are.
    """
    return not (config.tubes or config.outboxes) or name in config.tubes or name in config.outboxes


def judged(check: Check, config: Config, name: str) -> Check:
    """The finding on a tube or an outbox: a warning at most where this configuration does not name it.

    Workers with another configuration may serve it.
    """
    if is_expected(config, name):
        return check
    level = Level.WARN if check.level is Level.FAIL else check.level
    return replace(check, level=level, finding=f"{check.finding} (this configuration does not name it)")
