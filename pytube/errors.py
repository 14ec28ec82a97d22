"""Every error that a caller can meet, each a type that names the thing, the cause and the remedy.

SQLSTATEs of class TU are raised by pytube's SQL; the type that has one is what Python raises for it.
"""

from __future__ import annotations

import re
from shlex import quote
from typing import TypeVar

from pytube.collision import DISTRIBUTION, refuse_collision
from pytube.model import Token

refuse_collision()


_PAGES = "docs/"
"""Where pages are that messages name: the repository's folder, or an address that ends in a slash."""


def page(name: str) -> str:
    """The address of `name`, a page with perhaps `#` and a section, such as `errors.md#sink-down`."""
    return _PAGES + name


def how_to_install(extra: str) -> str:
    """The command to run if a package of one of pytube's extras is missing."""
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a clone: '.[{extra}]')"


_OF_ONE_HOST = re.compile(
    r"(?<![\w./-])pytube (?=(?:apply|audit|backfill|document show|explain|install|outbox|park|pause|plan"
    r"|pods|reindex|resume|sink accept|spark|touch|tube|uninstall|upgrade|verify|wait)\b)"
)
"""Before a command that works on one host, and asks which if several are configured."""


def on_host(text: str, host: str | None) -> str:
    """The text with the host in each command that needs it: it can then be copied, and run as it stands.

    None: only one host is configured.
    """
    return text if host is None else _OF_ONE_HOST.sub(lambda _: f"pytube --host {quote(host)} ", text)


_Error = TypeVar("_Error", bound="PytubeError")


def of_host(error: _Error, host: str) -> _Error:
    """The error with the name of its host, one of several, also in the commands that it names."""
    return type(error)(f"host {host}: {on_host(str(error), host)}")


SQLSTATES: dict[str, type[PytubeError]] = {}
"""SQLSTATE to the type that it is raised as in Python."""


class PytubeError(Exception):
    """Base of all errors of pytube. `exit_code` is the command line's: see pytube/cli/program.py."""

    exit_code = 3

    def __init_subclass__(cls, sqlstate: str | None = None) -> None:
        super().__init_subclass__()
        if sqlstate is not None:
            SQLSTATES[sqlstate] = cls


class ConfigError(PytubeError):
    """The configuration is wrong: the message names file, key, and the expected value.

    Remedy: correct the key; `pytube config show` shows the result.
    """

    exit_code = 2


class UsageError(PytubeError):
    """The request is wrong; a subclass says how. Nothing was changed."""

    exit_code = 2


class DatabaseUnavailable(PytubeError):
    """Postgres can't be reached, or went away.

    Remedy: bring Postgres up, or correct the DSN; workers retry.
    """


class PooledSession(DatabaseUnavailable):
    """A pooler before Postgres gives pytube no session; nothing was changed in one.

    A running worker retries as if Postgres were down. A starting one ends, since a retry changes nothing.

    Remedy: connect to the server itself, or to a pool in session mode.
    """

    exit_code = 2


class SequenceWentBack(DatabaseUnavailable):
    """`tube_seq` is behind the last seq drawn from it: the database was restored under an open session."""


class StatementFailed(PytubeError):
    """Postgres refused a statement of pytube for its own reason: a timeout, a full disk.

    Remedy: follow the reason.
    """

    @property
    def is_lasting(self) -> bool:
        """Whether it is refused again if nothing changes: for its data (class 22), or as it stands (42)."""
        state = getattr(self.__cause__, "sqlstate", None) or ""
        return state[:2] in ("22", "42")


class BrokerUnavailable(PytubeError):
    """Kafka can't be reached, or went away.

    Remedy: bring Kafka up, or correct `bootstrap_servers`; workers retry.
    """


class Rebalancing(BrokerUnavailable):
    """The broker answers, but the group's members are being counted again, so no claim is confirmed yet."""


class SchemaMismatch(PytubeError):
    """The installed SQL does not match this version of pytube.

    Remedy: `pytube install`, or install the package of the SQL's version.
    """

    exit_code = 4


RECOVERABLE = (DatabaseUnavailable, SchemaMismatch, StatementFailed, UsageError)
"""Errors that a worker survives and retries: a server comes back, an upgrade ends, a tube is recreated."""


# --- tubes and tables -------------------------------------------------------------------------


class InvalidTubeName(UsageError, sqlstate="TU101"):
    """The name can't be a tube's or an outbox's.

    Remedy: choose another name.
    """


class UnknownTube(UsageError, sqlstate="TU102"):
    """There is no such tube or outbox.

    Remedy: `pytube tube list` and `pytube outbox list` show the names.
    """


class InvalidPartition(UsageError, sqlstate="TU103"):
    """There is no such partition, or no tube or outbox can have that number of partitions.

    Remedy: `pytube status` shows the partitions.
    """


class NoUsableKey(UsageError, sqlstate="TU104"):
    """The table has no column that can be the key of its documents.

    Remedy: name one: `pytube tube attach --id-col` or `--key-cols`.
    """


class PredicateRefused(UsageError, sqlstate="TU105"):
    """The predicate is not allowed, or does not fit an attached table.

    Remedy: correct the predicate.
    """


class InvalidShard(UsageError, sqlstate="TU106"):
    """There can be no such shard, it belongs to another table, or the id belongs to another one.

    Remedy: `pytube tube list` shows the shards.
    """


class TableNotAttachable(UsageError, sqlstate="TU107"):
    """Relations of this kind can't be attached to a tube, or adopted as an outbox.

    Remedy: attach the tables behind a view, and the parent of a partition.
    """


class UnknownTable(UsageError, sqlstate="TU108"):
    """There is no such table, or it is not attached to the tube.

    Remedy: `pytube tube list` shows the attached tables.
    """


class TubesNotEmpty(UsageError, sqlstate="TU109"):
    """Tables are attached, or tubes hold pods or parked documents, or outboxes records, so nothing was
    dropped.

    Remedy: detach the tables and drain, or pass `--force`.
    """


class KeysWouldChange(UsageError):
    """The rows of an attached table would have documents under other keys.

    Remedy: `pytube tube attach --force`, then backfill.
    """


class RelatedTables(UsageError):
    """Other tables are related to a root table that is to be detached: one of them would take its place.

    Remedy: detach these first, or `pytube tube detach --force`.
    """


class SequenceAltered(UsageError, sqlstate="TU110"):
    """`tube_seq` no longer has the settings that the settled seq relies on.

    Remedy: restore CACHE 1 and NO CYCLE, as the message says.
    """


class WrongKind(UsageError, sqlstate="TU111"):
    """The name belongs to an outbox where a tube is meant, or the other way round.

    Remedy: use the commands of the other kind.
    """


class CompanionConflict(UsageError, sqlstate="TU112"):
    """The tube is a companion of another one, or can't become one of this tube's.

    Remedy: act on the document's tube.
    """


class TubeHasWorkers(UsageError, sqlstate="TU133"):
    """Workers lead the tube, so no stream may purge it.

    Remedy: stop the workers, or read the tube without purging.
    """


# --- operators --------------------------------------------------------------------------------


class ParkLimitReached(UsageError, sqlstate="TU141"):
    """More keys of the tube would be parked than its `park_limit` allows; none is.

    Remedy: fix the cause, retry or discard parked keys, then `pytube resume`.
    """


class PodsInFlight(UsageError, sqlstate="TU142"):
    """A worker has the pods in flight.

    Remedy: pause the tube or the partition first.
    """


class NotPaused(UsageError, sqlstate="TU143"):
    """The partition is not paused, or its leader has not come to rest.

    Remedy: `pytube pause`, and wait for it.
    """


class StepBusy(UsageError, sqlstate="TU144"):
    """Another step of the partition is in progress.

    Remedy: wait for it.
    """


class PodGone(UsageError, sqlstate="TU145"):
    """The pod is gone, or does not have the key.

    Remedy: `pytube pods list`.
    """


# --- waiting and looking ----------------------------------------------------------------------


class NotDelivered(PytubeError):
    """A change that was waited for is not at the sink."""

    exit_code = 1


class WaitTimeout(NotDelivered):
    """Touches still wait in the tube after the time limit.

    Remedy: `pytube status` shows why.
    """


class KeysParked(NotDelivered):
    """All touches have left the tube, but some keys are parked, so their documents are not at the sink.

    Remedy: `pytube park list`.
    """


# --- backfills and jobs -----------------------------------------------------------------------


class BackfillBusy(UsageError, sqlstate="TU121"):
    """The table is being backfilled already, or another session works on the backfill.

    Remedy: wait, or `pytube backfill start --supersede`.
    """


class UnknownBackfill(UsageError, sqlstate="TU122"):
    """There is no such backfill.

    Remedy: `pytube backfill status`.
    """


class BackfillNotLocked(BackfillBusy, sqlstate="TU123"):
    """This session has not locked the backfill that it works on.

    Remedy: call `tube_backfill_lock` first.
    """


class BackfillEnded(UsageError, sqlstate="TU124"):
    """The backfill is finished, canceled, superseded, or failed, or past the requested step.

    Remedy: `pytube backfill status`.
    """


class JobConflict(UsageError, sqlstate="TU130"):
    """A job of that name was begun with another query, other tubes, or another way to publish.

    Remedy: choose another name.
    """


class UnknownJob(UsageError, sqlstate="TU131"):
    """There is no such job, or the backfill has none.

    Remedy: `pytube spark jobs`.
    """


class JobDone(UsageError, sqlstate="TU132"):
    """The job is done.

    Remedy: choose another name to run it again.
    """


# --- leadership -------------------------------------------------------------------------------


class NotLeader(PytubeError):
    """This worker does not lead that partition, or no longer."""


class Fenced(NotLeader, sqlstate="TU001"):
    """The term is over: another leader has acquired the partition, or it was released."""


class WrongPartitions(NotLeader, sqlstate="TU002"):
    """The tube has another number of partitions now."""


class EpochMoved(NotLeader, sqlstate="TU003"):
    """Another process acquired the partition after its epoch was read."""


class LeaseHeld(NotLeader, sqlstate="TU004"):
    """The lease of the partition has not run out."""


class ElectionConflict(PytubeError, sqlstate="TU005"):
    """The partition is led under the other kind of election.

    Remedy: give all workers the same `worker.election`.
    """

    exit_code = 2


class ClaimLost(NotLeader):
    """The election took the right to lead the partition away."""


# --- enrich -----------------------------------------------------------------------------------


class EnrichFailed(PytubeError):
    """The source can't be read: a missing grant, a wrong query. The worker waits; nothing is lost.

    Remedy: follow the reason: a GRANT, or a corrected query.
    """

    exit_code = 2


class EnrichTimeout(EnrichFailed):
    """The query reached `statement_timeout` or `answer_timeout`; for fewer ids it may not.

    Remedy: make the query faster, or raise the timeout.
    """

    exit_code = 3


class EnrichDataError(PytubeError):
    """The data of some row makes the query fail; smaller batches find it, and it is parked.

    Remedy: correct the row or the query, then `pytube park retry`.
    """


# --- sinks ------------------------------------------------------------------------------------


class SinkError(PytubeError):
    """A sink failed on a whole batch; which document is at fault is not known."""


class SinkUnavailable(SinkError):
    """The sink is down: it took nothing of the batch. The worker waits; no attempt is used up.

    Remedy: bring the sink up.
    """


class SinkTimeout(SinkError):
    """The sink did not answer in time: whether it took the batch is not known.

    Remedy: relieve the sink, or raise `request_timeout`.
    """


OUTAGES = (SinkUnavailable, SinkTimeout)
"""What a sink raises on purpose while its server is down or slow: no fault of anybody's code."""


class SinkContract(SinkError):
    """The sink broke its contract, such as fewer results than documents.

    Remedy: correct the sink; `pytube sink check` tests it.
    """


class FencedBySink(NotLeader):
    """The sink holds a write with a newer token, of another term: this term is over."""

    def __init__(self, newer: Token) -> None:
        super().__init__(f"the sink holds a write of epoch {newer.epoch}, which another term has made since")
        self.newer = newer


class SinkAhead(SinkError):
    """The sink holds a token above any that this database has issued, as after a restore.

    Remedy: `pytube tube rebase`, as in the runbook.
    """
