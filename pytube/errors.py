"""Every error that a caller can meet, each a type that names the thing, the cause and the remedy.

SQLSTATEs of class TU are raised by pytube's SQL; `SQLSTATES` maps them to types, here and nowhere else.
"""

from __future__ import annotations

from pytube.collision import DISTRIBUTION, refuse_collision
from pytube.model import Token

refuse_collision()


def how_to_install(extra: str) -> str:
    """The command to run if a package of one of pytube's extras is missing."""
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a clone: '.[{extra}]')"


class PytubeError(Exception):
    """Base of all errors of pytube. `exit_code` is what the command line exits with."""

    exit_code = 1


class ConfigError(PytubeError):
    """The configuration is wrong: the message names file, key and the expected value."""

    exit_code = 2


class UsageError(PytubeError):
    """The request is wrong; a subclass says in what. Nothing was changed."""

    exit_code = 2


class DatabaseUnavailable(PytubeError):
    """Postgres can't be reached, or went away."""

    exit_code = 3


class PooledSession(DatabaseUnavailable):
    """A pooler before Postgres gives no dedicated session; no session was changed.

    A worker that runs retries as if Postgres were down. A starting worker ends, since a retry changes
    nothing.
    """

    exit_code = 2


class SequenceWentBack(DatabaseUnavailable):
    """`tube_seq` is behind the seqs drawn from it: the database was restored under an open session."""


class StatementFailed(PytubeError):
    """Postgres refused a statement of pytube for an external reason (a time-out, a full disk)."""

    @property
    def is_lasting(self) -> bool:
        """Whether it is refused again if nothing changes: for its data (class 22), or as it stands (42)."""
        state = getattr(self.__cause__, "sqlstate", None) or ""
        return state[:2] in ("22", "42")


class BrokerUnavailable(PytubeError):
    """Kafka can't be reached, or went away."""

    exit_code = 3


class Rebalancing(BrokerUnavailable):
    """The broker answers, but the group is counting its members again: none is confirmed yet."""


class SchemaMismatch(PytubeError):
    """This version needs another version of the SQL than is installed."""

    exit_code = 4


RECOVERABLE = (DatabaseUnavailable, SchemaMismatch, StatementFailed, UsageError)
"""Errors that a worker survives and retries: a server comes back, an upgrade ends, a tube is recreated."""


# --- tubes and tables -------------------------------------------------------------------------


class InvalidTubeName(UsageError):
    """The name can't be a tube's or an outbox's. TU101."""


class UnknownTube(UsageError):
    """There is no such tube or outbox. TU102."""


class InvalidPartition(UsageError):
    """There is no such partition, or no tube or outbox can have that number of partitions. TU103."""


class NoUsableKey(UsageError):
    """The table has no column that can be the key of its documents. TU104."""


class PredicateRefused(UsageError):
    """The predicate is not allowed, or does not fit an attached table. TU105."""


class InvalidShard(UsageError):
    """There can be no such shard, or the id belongs to another one. TU106."""


class TableNotAttachable(UsageError):
    """Relations of this kind can't be attached to a tube, or adopted as an outbox. TU107."""


class UnknownTable(UsageError):
    """There is no such table, or it is not attached to the tube. TU108."""


class TubesNotEmpty(UsageError):
    """Tables are attached, or tubes hold pods, or outboxes records, so nothing was taken away. TU109."""


class KeysWouldChange(UsageError):
    """The rows of an attached table would have documents under other keys, and it was not forced."""


class RelatedTables(UsageError):
    """Other tables are related to a root table that is to be detached: one of them would take its place."""


class SequenceAltered(UsageError):
    """`tube_seq` no longer has the settings that the settled seq relies on. TU110."""


class WrongKind(UsageError):
    """The name belongs to an outbox where a tube is meant, or the other way round. TU111."""


class CompanionConflict(UsageError):
    """The tube is a companion of another one, or can't become one of this tube's. TU112."""


class TubeHasWorkers(UsageError):
    """Workers lead the tube, so no stream may purge it. TU133."""


# --- operators --------------------------------------------------------------------------------


class ParkLimitReached(UsageError):
    """More keys of the tube would be parked than its `park_limit` allows; none is. TU141."""


class PodsInFlight(UsageError):
    """A worker has the pods in flight: pause the tube or the partition first. TU142."""


class NotPaused(UsageError):
    """The partition is not paused, or no worker has come to rest there, so nothing can be stepped. TU143."""


class StepBusy(UsageError):
    """Another step of the partition is under way. TU144."""


class PodGone(UsageError):
    """The pod is gone, or does not have the key. TU145."""


# --- waiting and looking ----------------------------------------------------------------------


class NotDelivered(PytubeError):
    """The awaited changes are not at the sink."""


class WaitTimeout(NotDelivered):
    """Touches still wait in the tube after the time limit."""


class KeysParked(NotDelivered):
    """All touches have left the tube, but some keys are parked, so their documents are not at the sink."""


# --- backfills and jobs -----------------------------------------------------------------------


class BackfillBusy(UsageError):
    """The table is being backfilled already, or another session works on the backfill. TU121."""


class UnknownBackfill(UsageError):
    """There is no such backfill. TU122."""


class BackfillNotLocked(BackfillBusy):
    """This session has not locked the backfill that it works on. TU123."""


class BackfillEnded(UsageError):
    """The backfill is finished, cancelled, superseded or failed, or past the step requested. TU124."""


class JobConflict(UsageError):
    """A job of that name was begun with another query, other tubes or another way to publish. TU130."""


class UnknownJob(UsageError):
    """There is no such job, or the backfill has none. TU131."""


class JobDone(UsageError):
    """The job is done. TU132."""


# --- leadership -------------------------------------------------------------------------------


class NotLeader(PytubeError):
    """Base of: this worker does not lead that partition (any more)."""


class Fenced(NotLeader):
    """The term is over: another leader has acquired the partition, or it was released. TU001."""


class WrongPartitions(NotLeader):
    """The tube has another number of partitions now: start new terms. TU002."""


class EpochMoved(NotLeader):
    """Another process acquired the partition after its epoch was read: read, prove and try again. TU003."""


class LeaseHeld(NotLeader):
    """The lease of the partition has not run out. TU004."""


class ElectionConflict(PytubeError):
    """The partition is led under the other kind of election; all workers must use one. TU005."""

    exit_code = 2


class ClaimLost(NotLeader):
    """The election took the right to lead the partition away."""


# --- enrich -----------------------------------------------------------------------------------


class EnrichFailed(PytubeError):
    """The source can't be read (a missing grant, a wrong query). The worker waits; nothing is lost."""


class EnrichTimeout(EnrichFailed):
    """The enriching query reached `statement_timeout` or `answer_timeout`; for fewer ids it may not."""


class EnrichDataError(PytubeError):
    """The data of some row makes the enriching query fail; smaller batches show which."""


# --- sinks ------------------------------------------------------------------------------------


class SinkError(PytubeError):
    """A sink failed on a whole batch; which document is at fault is not known."""


class SinkUnavailable(SinkError):
    """The sink is down: nothing of the batch was taken. The worker waits; no attempt is used up."""


class SinkTimeout(SinkError):
    """The sink did not answer in time: whether it took the batch is not known."""


OUTAGES = (SinkUnavailable, SinkTimeout)
"""What a sink raises on purpose while its server is down or slow: no fault of anybody's code."""


class SinkContract(SinkError):
    """The sink broke its contract, e.g. answered fewer results than documents."""


class FencedBySink(NotLeader):
    """The sink holds a write with the token `newer`, of another term: this term is over."""

    def __init__(self, newer: Token) -> None:
        super().__init__(f"the sink holds a write of epoch {newer.epoch}, which another term has made since")
        self.newer = newer


class SinkAhead(SinkError):
    """The sink holds a token above any that this database has issued (a restored backup)."""


SQLSTATES: dict[str, type[PytubeError]] = {
    "TU001": Fenced,
    "TU002": WrongPartitions,
    "TU003": EpochMoved,
    "TU004": LeaseHeld,
    "TU005": ElectionConflict,
    "TU101": InvalidTubeName,
    "TU102": UnknownTube,
    "TU103": InvalidPartition,
    "TU104": NoUsableKey,
    "TU105": PredicateRefused,
    "TU106": InvalidShard,
    "TU107": TableNotAttachable,
    "TU108": UnknownTable,
    "TU109": TubesNotEmpty,
    "TU110": SequenceAltered,
    "TU111": WrongKind,
    "TU112": CompanionConflict,
    "TU121": BackfillBusy,
    "TU122": UnknownBackfill,
    "TU123": BackfillNotLocked,
    "TU124": BackfillEnded,
    "TU130": JobConflict,
    "TU131": UnknownJob,
    "TU132": JobDone,
    "TU133": TubeHasWorkers,
    "TU141": ParkLimitReached,
    "TU142": PodsInFlight,
    "TU143": NotPaused,
    "TU144": StepBusy,
    "TU145": PodGone,
}
"""SQLSTATE to the type that it is raised as in Python."""
