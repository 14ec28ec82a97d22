"""Where one key of a tube is now: waiting, in flight, parked, at the sink; and whether that is right."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, LiteralString, TypeVar
from uuid import UUID

from pytube.clock import for_people
from pytube.comparison import Difference, decode, equal
from pytube.config import Config
from pytube.counts import say_count
from pytube.db.session import SessionPool
from pytube.enrich.statements import Roots
from pytube.errors import PytubeError, UsageError
from pytube.model import Id, Key, KeyType, partition_of, shard_of
from pytube.sinks import Reading, Sink, Stored, why_no_read
from pytube.sinks.base import HOLDS_NOTHING, held_forms
from pytube.verify.compare import difference
from pytube.verify.sides import Source, chosen, open_to_read, opened

T = TypeVar("T")

_PODS = """
    SELECT seq, op, extract(epoch FROM clock_timestamp() - ts)::float8, marked_by, looked_at
    FROM tube_pods_of(%(tube)s, %(shard)s, %(id)s, %(most)s)
"""
_MOST = 100_000
_LEADER = """
    SELECT leader_id, client_id, epoch, lost,
        sink_down, extract(epoch FROM clock_timestamp() - sink_down_since)::float8 AS sink_down_for,
        source_down, extract(epoch FROM clock_timestamp() - source_down_since)::float8 AS source_down_for
    FROM tube_leaders(%(tube)s)
    WHERE partition = %(partition)s
"""
_PARKED = """
    SELECT error, attempts, parked_at FROM tube_parked
    WHERE tube = %(tube)s AND shard = %(shard)s AND md5(id) = md5(%(id)s) AND id = %(id)s
"""
_FAILURE = """
    SELECT error, attempts, extract(epoch FROM next_at - clock_timestamp())::float8 FROM tube_attempt
    WHERE tube = %(tube)s AND shard = %(shard)s AND md5(id) = md5(%(id)s) AND id = %(id)s
"""
_PAUSE = "SELECT reason, until FROM tube_pause_list(%(tube)s) WHERE partition = %(partition)s"
_TERM = """
    SELECT client_id, partition, acquired_at, ended_at, outcome FROM tube_terms(%(tube)s)
    WHERE epoch = %(epoch)s
"""
_LAST_EPOCH = "SELECT last_epoch FROM tube_registry WHERE tube = %(tube)s"


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that the key waits in."""

    seq: int
    op: str
    waits: float
    """Seconds since its insert."""
    marked_by: UUID | None
    """The term that has taken it."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads the key's partition."""

    leader_id: UUID
    client_id: str
    epoch: int
    lost: bool
    sink_down: str | None
    sink_down_for: float | None
    source_down: str | None
    source_down_for: float | None


@dataclass(frozen=True, slots=True)
class Parked:
    """Why the key is parked."""

    error: str
    attempts: int
    parked_at: datetime


@dataclass(frozen=True, slots=True)
class Failure:
    """Why its document was not taken so far; it is sent again."""

    error: str
    attempts: int
    next_in: float
    """Seconds until it is sent again; less than 0 when it is due."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Why nothing of the key's partition is delivered."""

    reason: str
    until: datetime | None
    """None: until somebody resumes it."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The term that has written what the sink holds."""

    client_id: str
    partition: int
    acquired_at: datetime
    ended_at: datetime | None
    outcome: str | None


@dataclass(slots=True)
class Side:
    """What one side has of the key."""

    exists: bool | None = None
    """None: that could not be found out."""
    document: Any = None
    unknown: str | None = None
    """Why it could not be found out."""


@dataclass(slots=True)
class Explanation:
    """All that is known of one key."""

    tube: str
    shard: int
    id: Id
    partition: int
    pods: list[WaitingPod] = field(default_factory=list)
    all_pods_seen: bool = True
    """False: more pods wait in the partition than were looked at."""
    leader: Leader | None = None
    pause: Pause | None = None
    failure: Failure | None = None
    parked: Parked | None = None
    source: Side = field(default_factory=Side)
    sink: Side = field(default_factory=Side)
    held: Any = None
    """The source's document in the sink's form, which is what is compared; None where there is none."""
    token: str | None = None
    epoch: int | None = None
    counter: int | None = None
    seq: int | None = None
    writer: Writer | None = None
    is_ahead: bool = False
    """Whether the sink holds an epoch that this database has never issued."""
    difference: Difference | None = None
    fields: list[str] = field(default_factory=list)
    """The top-level fields that differ."""

    @property
    def is_settled(self) -> bool:
        """Whether the sink is known to hold what the source would send now, and nothing is on its way."""
        known = self.source.unknown is None and self.sink.unknown is None and self.all_pods_seen
        return known and self.difference is None and not self.pods and self.parked is None

    @property
    def sentences(self) -> list[str]:
        """What it means, and what to do, in plain words."""
        return [
            *self._of_waiting(),
            *self._of_pause(),
            *self._of_failure(),
            *self._of_parking(),
            *self._of_sink(),
            *self._of_source(),
            self._verdict(),
        ]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "is_settled": self.is_settled, "sentences": self.sentences}

    def _of_waiting(self) -> list[str]:
        said = []
        if not self.pods:
            where = "in the tube" if self.all_pods_seen else f"in those pods of partition {self.partition}"
            said.append(f"No touch of it waits {where}.")
        else:
            first = self.pods[0]
            said.append(
                f"It waits in {say_count(len(self.pods), 'pod')} of partition {self.partition}; the next is "
                f"seq {first.seq} (op {first.op}), {first.waits:.1f} s old."
            )
            said += [self._of_mark(pod) for pod in self.pods if pod.marked_by is not None][:1]
        if not self.all_pods_seen:
            command = (
                f"pytube pods list --tube {self.tube} --shard {self.shard} --key {shlex.quote(str(self.id))}"
            )
            said.insert(
                0,
                f"Only the first {_MOST} pods of partition {self.partition} were looked at: "
                f"`{command}` reads all.",
            )
        if self.pods:
            said.append(self._of_leader())
        return said

    def _of_mark(self, pod: WaitingPod) -> str:
        if self.leader is not None and pod.marked_by == self.leader.leader_id:
            return f"Pod {pod.seq} is in flight: the worker {self.leader.client_id} has taken it."
        return f"Pod {pod.seq} was taken by a term that is over; the next leader takes it again."

    def _of_leader(self) -> str:
        leader = self.leader
        if leader is None:
            return f"Nobody leads partition {self.partition}: start a worker (`pytube worker`)."
        if leader.lost:
            return f"Its leader {leader.client_id} renews its term no more: any other worker takes over."
        if leader.sink_down:
            return (
                f"The sink is down{_long(leader.sink_down_for)}, says {leader.client_id}: {leader.sink_down}"
            )
        if leader.source_down:
            since = _long(leader.source_down_for)
            return f"The source can't be read{since}, says {leader.client_id}: {leader.source_down}"
        return f"Partition {self.partition} is led by {leader.client_id}, which is at work."

    def _of_pause(self) -> list[str]:
        if self.pause is None:
            return []
        until = "until it is resumed"
        if self.pause.until is not None:
            until = f"until {self.pause.until:%Y-%m-%d %H:%M:%S%z}"
        command = f"pytube resume --tube {self.tube}"
        return [f"Partition {self.partition} is paused {until}, {self.pause.reason} (`{command}`)."]

    def _of_failure(self) -> list[str]:
        if self.failure is None:
            return []
        again = f"in {self.failure.next_in:.0f} s" if self.failure.next_in > 0 else "now"
        tries = f"It has failed {say_count(self.failure.attempts, 'time')} and is to be sent again {again}"
        return [f"{tries}; the last error: {self.failure.error}"]

    def _of_parking(self) -> list[str]:
        if self.parked is None:
            return []
        since = f"{self.parked.parked_at:%Y-%m-%d %H:%M:%S%z}"
        tries = say_count(self.parked.attempts, "attempt")
        return [f"It is parked since {since}, after {tries}: {self.parked.error}"]

    def _of_sink(self) -> list[str]:
        if self.sink.unknown is not None:
            return [f"What the sink holds is not known: {self.sink.unknown}"]
        said = ["The sink holds a document." if self.sink.exists else "The sink holds no document."]
        if self.epoch is not None:
            of = "its document" if self.sink.exists else "the delete"
            by = "a term that is no more on record (they are kept for a day at least)"
            if self.writer is not None:
                by = f"the worker {self.writer.client_id}, which led partition {self.writer.partition}"
                by += _until(self.writer)
            if self.is_ahead:
                by = (
                    "no term of this database: the sink is ahead, as after a restore from a backup "
                    f"(`pytube tube rebase {self.tube} --epoch {self.epoch}`)"
                )
            seq = "" if self.seq is None else f", stamped with seq {self.seq}"
            token = f"{self.token} (epoch {self.epoch}, counter {self.counter}{seq})"
            said.append(f"The token of {of} is {token}: by {by}.")
        return said

    def _of_source(self) -> list[str]:
        if self.source.unknown is not None:
            return [f"What the source holds is not known: {self.source.unknown}"]
        if self.source.exists:
            return ["The source has a document for it."]
        return [
            "The source has no document for it: no such row, or the predicate or the query leaves it out."
        ]

    def _verdict(self) -> str:
        if self.sink.unknown is not None or self.source.unknown is not None:
            return "So the two can't be compared."
        if self.difference is None:
            waits = " What waits brings nothing new." if self.pods else ""
            parked = " It is parked all the same: retry or drop it (`pytube park`)." if self.parked else ""
            return f"The sink holds what the source would send now.{waits}{parked}"
        what = {
            Difference.MISSING: "The document is missing at the sink",
            Difference.EXTRA: "The sink still holds a document that the source does not have",
            Difference.DIFFERENT: f"The two differ, in {', '.join(self.fields) or 'their whole value'}",
        }[self.difference]
        if self.parked is not None:
            return (
                f"{what}, because the key is parked: mend what the error says, then retry it "
                f"(`pytube park retry --tube {self.tube}`)."
            )
        if self.pods:
            pause = " and its partition is paused" if self.pause is not None else ""
            return f"{what}, because the change was not delivered yet{pause}."
        if not self.all_pods_seen:
            return f"{what}; whether the change is on its way is not known, as not all pods were looked at."
        return (
            f"{what}, and nothing is on its way: touch the key (`pytube verify --tube {self.tube} --repair` "
            "touches all that differ). A change that made no touch is one cause: triggers disabled, or a "
            "table that the query joins and that is not attached."
        )


def _long(seconds: float | None) -> str:
    return "" if seconds is None else f", for {for_people(seconds)}"


def _until(writer: Writer) -> str:
    if writer.ended_at is None:
        return f" since {writer.acquired_at:%Y-%m-%d %H:%M:%S%z} and still does"
    return f" from {writer.acquired_at:%Y-%m-%d %H:%M:%S%z} to {writer.ended_at:%H:%M:%S%z}"


async def explain(
    config: Config, tube: str, key: str, *, shard: int | None = None, table: str | None = None
) -> Explanation:
    """Find out all that is known of a key. Changes nothing.

    Args:
        config: the worker's.
        tube: configured there.
        key: the id, as text.
        shard: of the key; by default that of the only root table.
        table: the root table of the key, in place of a shard.

    Raises:
        UsageError: no such tube or table; no id of this tube's type; several tables, and none named.
        DatabaseUnavailable: Postgres can't be reached.
    """
    async with opened(config, tube, "explain") as (source, sink), _opening(sink) as opening:
        roots = await source.roots()
        id_ = parsed(roots.keys, key)
        where = _shard(roots, tube, id_, shard, table)
        partition = partition_of(where, await source.partitions())
        found = Explanation(tube, where, id_, partition)
        # The queue is looked at in one session: opening more takes longer than what they are asked.
        _, (body, stored) = await asyncio.gather(
            _look_at_queue(source.pool, found), _look_at_both(source, found, opening)
        )
        await _compare(source.pool, found, body, stored)
    return found


def parsed(keys: KeyType, text: str) -> Id:
    """The id that a text names in a tube of such keys; `UsageError` when it names none."""
    value: Id = text
    with suppress(ValueError):
        if keys is KeyType.BIGINT:
            value = int(text)
        elif keys is KeyType.UUID:
            value = str(UUID(text))
    if not keys.has(value):
        raise UsageError(f"{text!r} is no id of this tube, whose keys are {keys.value}")
    return value


def _shard(roots: Roots, tube: str, key: Id, shard: int | None, table: str | None) -> int:
    if shard is not None:
        if table is not None:
            raise UsageError("give a shard or a table, not both")
        if not 0 <= shard < 2**31:
            raise UsageError(f"{shard} is no shard; one is 0 or more")
        return shard
    found = chosen(roots, tube, [] if table is None else [table])
    if len(found) > 1:
        names = ", ".join(root.name for root in found)
        raise UsageError(f"which of the tables of tube {tube!r}? Give --table ({names}), or --shard")
    return shard_of(key, found[0].shard, found[0].shards)


async def _look_at_queue(pool: SessionPool, found: Explanation) -> None:
    where: Mapping[str, Any] = {"tube": found.tube, "shard": found.shard, "id": str(found.id)}
    rows = await pool.rows(_PODS, {**where, "most": _MOST})
    found.pods = [WaitingPod(*row[:4]) for row in rows if row[0] is not None]
    found.all_pods_seen = rows[0][4] < _MOST
    partition = {"tube": found.tube, "partition": found.partition}
    found.leader = await _one(pool, Leader, _LEADER, partition)
    found.pause = await _one(pool, Pause, _PAUSE, partition)
    found.failure = await _one(pool, Failure, _FAILURE, where)
    found.parked = await _one(pool, Parked, _PARKED, where)


async def _one(
    pool: SessionPool, kind: Callable[..., T], query: LiteralString, where: Mapping[str, Any]
) -> T | None:
    row = await pool.row(query, where)
    return None if row is None else kind(*row)


@asynccontextmanager
async def _opening(sink: Sink) -> AsyncIterator[asyncio.Task[Reading | str]]:
    """Open the sink while other things are asked; what is to be read, or why it can't be."""

    async def open_it() -> Reading | str:
        why = why_no_read(sink)
        if why is not None:
            return why
        try:
            return await open_to_read(sink)
        except PytubeError as error:
            return str(error)

    task = asyncio.create_task(open_it())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _look_at_both(
    source: Source, found: Explanation, opening: asyncio.Task[Reading | str]
) -> tuple[bytes | None, Stored]:
    """The document as it would be sent now, in the sink's form, and what the sink holds."""
    key = found.shard, found.id
    body, stored = await asyncio.gather(_of_source(source, found.source, key), _of_sink(found, key, opening))
    sink = await opening
    if body is not None and not isinstance(sink, str) and found.sink.unknown is None:
        (held,) = await held_forms(sink, [body])
        if held is None:
            found.source.unknown = "the sink would reject the document"
        if held == HOLDS_NOTHING:  # as a transform's DELETE: there is nothing to be sent
            held, found.source.exists = None, False
        body = held
        found.held = None if held is None else decode(held)
    return body, stored


async def _of_source(source: Source, side: Side, key: Key) -> bytes | None:
    try:
        now = await source.now([key])
    except PytubeError as error:
        side.unknown = str(error)
        return None
    if key in now.bodies:
        body = now.bodies[key]
        side.exists = body is not None
        side.document = None if body is None else decode(body)
        return body
    if now.orphans:
        side.unknown = f"no attached table has shard {key[0]}"
    else:
        side.unknown = now.unsendable.get(key, "a transform lets nothing be sent of it")
    return None


async def _of_sink(found: Explanation, key: Key, opening: asyncio.Task[Reading | str]) -> Stored:
    side = found.sink
    sink = await opening
    if isinstance(sink, str):
        side.unknown = sink
        return Stored()
    try:
        stored = (await sink.read(found.tube, [key]))[key]
    except PytubeError as error:
        side.unknown = str(error)
        return Stored()
    side.exists = stored.exists
    try:
        side.document = stored.value
    except ValueError:
        side.document = "(no JSON)"
    found.seq = stored.seq
    if stored.token is not None:
        found.token, (found.epoch, found.counter) = str(stored.token), stored.token
    return stored


async def _compare(pool: SessionPool, found: Explanation, body: bytes | None, stored: Stored) -> None:
    if found.epoch is not None:
        found.writer = await _one(pool, Writer, _TERM, {"tube": found.tube, "epoch": found.epoch})
        found.is_ahead = found.epoch > int(await pool.value(_LAST_EPOCH, {"tube": found.tube}) or 0)
    if found.source.unknown is None and found.sink.unknown is None:
        found.difference = difference(body, stored)
        if found.difference is Difference.DIFFERENT and body is not None:
            found.fields = _differing(decode(body), found.sink.document)


def _differing(one: Any, other: Any) -> list[str]:
    """The names of the top-level fields that differ."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return []
    return sorted(
        name
        for name in one.keys() | other.keys()
        if name not in one or name not in other or not equal(one[name], other[name])
    )
