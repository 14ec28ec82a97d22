"""The pods of one partition, as its leader marks, purges, resets and parks them. Each call is fenced.

Floors are where the next scan of a partition may start, per class of pods. A floor spares a mark the dead
rows of purged pods. It may pass a pod only when the pod is held, is done, or can never appear any more. The
settled seq decides: all pods at or below it that will ever exist are visible to a mark that begins after
the seq was known.

Long-running transactions that may have drawn pods hold the settled seq back. So there is also a provisional
seq: settled, except for the pods of those transactions. Floors follow it until one of those transactions
ends, which gives the provisional seq a new version. Then scans restart from the settled floors, which
follow the settled seq only, and so find what the transaction wrote.

The payloads of control pods. Roles that may touch can put anything there, so reading one never fails.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from psycopg.types.json import Jsonb

from pytube.db.arrays import Int8Array, array_of
from pytube.db.session import Queries
from pytube.model import Id, Key, KeyType, Pod, PodClass
from pytube.sources import queries
from pytube.sources.settled import Settled
from pytube.sources.terms import Term


class Floor:
    """Where the next scan of one class of rows may start."""

    def __init__(self) -> None:
        self.settled = 0
        """No row that is yet to be found lies at or below it."""
        self.value = 0
        """Where the next scan may start. Only long writers can have such rows up to it."""

    def fall_back(self) -> None:
        """The provisional seq has a new version."""
        self.value = self.settled

    def advance(self, last: int | None, settled: int, provisional: int) -> None:
        """Raise the floor after a mark.

        `last`: the last seq that it returned; None: it returned less than it could. `settled`, `provisional`:
        as they were known *before* it began.
        """
        # A scan that began above the settled floor says nothing about the rows in between.
        if self.settled == self.value:
            self.settled = max(self.settled, settled if last is None else min(settled, last))
        floor = provisional if last is None else min(provisional, last)
        self.value = max(self.value, floor)

    def lower(self, seqs: Sequence[int]) -> None:
        """Lower the floor so that the next scan finds these, which were given back; at least one."""
        lowest = min(seqs) - 1
        self.settled = min(self.settled, lowest)
        self.value = min(self.value, lowest)


class Floors:
    """The floors of one term. A new term, connection or partition count starts new ones."""

    def __init__(self) -> None:
        self._floors = {pod_class: Floor() for pod_class in PodClass}
        self._version = 0

    def __getitem__(self, pod_class: PodClass) -> int:
        return self._floors[pod_class].value

    def expire_provisional(self, provisional_version: int) -> None:
        """Call before a mark: if the provisional seq has a new version, fall back to the settled floors."""
        if provisional_version != self._version:
            self._version = provisional_version
            for floor in self._floors.values():
                floor.fall_back()

    def advance(
        self, pods: Sequence[Pod], limit: int, settled: int, *, with_backfill: bool, provisional: int = 0
    ) -> None:
        """Raise the floors after a mark that has returned `pods`, incremental first.

        `limit`: how many it could return, of both classes together; `with_backfill`: whether it looked for
        backfill pods at all; `settled`, `provisional`: as they were known *before* it began.
        """
        provisional = max(settled, provisional)
        split = next((i for i, pod in enumerate(pods) if pod.op == "B"), len(pods))
        incremental, backfill, room = pods[:split], pods[split:], limit - split
        last = None if len(incremental) < limit else incremental[-1].seq
        self._floors[PodClass.INCREMENTAL].advance(last, settled, provisional)
        if with_backfill and room > 0:
            last = None if len(backfill) < room else backfill[-1].seq
            self._floors[PodClass.BACKFILL].advance(last, settled, provisional)

    def lower(self, seqs: Sequence[int]) -> None:
        if seqs:
            for floor in self._floors.values():
                floor.lower(seqs)


MOST_KNOWN = 100_000
"""Keys that failed that are remembered; with more, every delivery asks the database."""
_LARGEST_KEPT = 1 << 20
"""Bytes of a document that is kept with its parked key."""

_FETCH = (queries.MARK_COMMIT, queries.MARK_FETCH, queries.MARK_CLOSE)
_MARK = (queries.MARK_BEGIN, queries.MARK_DECLARE, *_FETCH)
_MARK_KEYS = (queries.MARK_BEGIN, queries.MARK_KEYS_DECLARE, *_FETCH)


def storable(text: str) -> str:
    """`text` as Postgres stores it, which takes neither a NUL nor half of a surrogate pair."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class ParkItem:
    """A key, or a control pod (no id), to be set aside."""

    shard: int
    id: Id | None
    op: str
    seq: int
    error: str
    attempts: int
    payload: object = None
    document: bytes | None = None
    """The document that was sent, if it is to be kept."""

    def as_json(self) -> dict[str, object]:
        kept = self.document if self.document is not None and len(self.document) <= _LARGEST_KEPT else None
        return {
            "shard": self.shard,
            "id": None if self.id is None else str(self.id),
            "op": self.op,
            "seq": self.seq,
            "error": storable(self.error),
            "attempts": self.attempts,
            "payload": self.payload,
            "document": None if kept is None else b64encode(kept).decode(),
        }


@dataclass(frozen=True, slots=True)
class FailedKey:
    """A key whose document failed alone, and is to be sent again."""

    shard: int
    id: Id
    error: str
    attempts: int
    """How many are used up."""
    delay: float = 0.0
    """Seconds until the next one."""

    def as_json(self) -> dict[str, object]:
        return {
            "shard": self.shard,
            "id": str(self.id),
            "error": storable(self.error),
            "attempts": self.attempts,
            "delay": self.delay,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One key of one pod that an operator wants delivered."""

    number: int
    seq: int
    ts: float
    shard: int
    id: Id


class TubeSource:
    """Mark, purge, reset and park pods, and handle control pods, for one term.

    All calls raise `Fenced` or `WrongPartitions` when the term is over, and `DatabaseUnavailable`. Whether
    a call whose answer was lost had an effect is unknown, and pods may be marked that no flight has; so
    the term has to end, unless the call only reads (`still_parked`).
    """

    def __init__(self, session: Queries, term: Term) -> None:
        self._session = session
        self._arguments = term.arguments
        self._mark = _MARK if term.keys is KeyType.BIGINT else _MARK_KEYS
        self.keys = term.keys
        self.floors = Floors()
        self._failed: set[Key] | None = None
        """The keys that are parked, or failed and are to be sent again; an operator may have dropped some of
        them since. None when there are too many to be remembered."""

    async def _value(self, statement: str, **arguments: object) -> Any:
        return await self._session.value(statement, self._arguments | arguments)

    async def mark(
        self, limit: int, settled: Settled | None, *, with_backfill: bool = True, done: Sequence[int] = ()
    ) -> list[Pod]:
        """Mark up to `limit` pods, incremental first; the same transaction purges the pods of `done`."""
        # Before the question: a seq that is settled later says nothing about the answer.
        seq, provisional, version = 0, 0, 0
        if settled is not None:
            seq, provisional, version = settled.seq, settled.provisional, settled.provisional_version
        self.floors.expire_provisional(version)
        rows = await self._session.held_rows(
            self._mark,
            self._arguments
            | {
                "limit": limit,
                "floor": self.floors[PodClass.INCREMENTAL],
                "backfill_floor": self.floors[PodClass.BACKFILL],
                "exclude_backfill": not with_backfill,
                "seqs": Int8Array(done),
            },
        )
        pods = list(map(tuple.__new__, repeat(Pod), rows))  # as Pod._make, in a third of the time
        self.floors.advance(pods, limit, seq, with_backfill=with_backfill, provisional=provisional)
        return pods

    async def purge(self, seqs: Sequence[int]) -> int:
        return int(await self._value(queries.PURGE, seqs=Int8Array(seqs)))

    async def reset(self, seqs: Sequence[int]) -> int:
        """Give back pods that are not done; how many there were. Its cost is theirs, not the backlog's."""
        count = int(await self._value(queries.RESET, seqs=list(seqs)))
        self.floors.lower(seqs)
        return count

    # --- keys that failed -----------------------------------------------------------------

    async def load_failed(self) -> dict[Key, tuple[int, float]]:
        """Learn which keys have failed already, so that `unpark` need not ask about the others.

        Returns:
            Those to be sent again: the attempts that are used up, and the seconds until the next one.
        """
        rows = await self._session.rows(queries.FAILED_KEYS, self._arguments | {"limit": MOST_KNOWN + 1})
        keys = [(shard, self._id(key)) for shard, key, _, _ in rows]
        self._remember(set(keys))
        return {
            key: (attempts, delay)
            for key, (_, _, attempts, delay) in zip(keys, rows, strict=True)
            if attempts is not None
        }

    async def fail(self, items: Sequence[FailedKey]) -> None:
        await self._value(queries.FAIL, items=_json(items))
        self._note(items)

    async def park(self, items: Iterable[ParkItem], most: int | None = None) -> int:
        """Set keys aside with their error; raises `ParkLimitReached`, and parks none, if more than `most`
        would be parked of the tube.
        """
        items = list(items)
        count = int(await self._value(queries.PARK, items=_json(items), most=most))
        self._note(items)
        return count

    async def stop(self, why: str, reason: str, items: Sequence[FailedKey]) -> bool:
        """Stop the whole tube, and keep the failures of these keys; whether it was not stopped yet."""
        return bool(await self._value(queries.STOP, why=why, reason=storable(reason), items=_json(items)))

    async def unpark(self, groups: Mapping[int, Iterable[Id]]) -> None:
        """Forget the failures of keys, given as ids by shard, that were delivered after all."""
        if keys := self._known(groups):
            await self._value(queries.UNPARK, **_arrays(keys))
            if self._failed is not None:
                self._failed -= keys

    async def still_parked(self, groups: Mapping[int, Iterable[Id]]) -> set[Key]:
        """The keys, of these ids by shard, that are parked and were not retried since."""
        if not (keys := self._known(groups)):
            return set()
        rows = await self._session.rows(queries.STILL_PARKED, self._arguments | _arrays(keys))
        return {(shard, self._id(key)) for shard, key in rows}

    def _known(self, groups: Mapping[int, Iterable[Id]]) -> set[Key]:
        if self._failed is not None and not self._failed:
            return set()  # as nearly always
        keys = {(shard, key) for shard, ids in groups.items() for key in ids}
        return keys if self._failed is None else keys & self._failed

    def _id(self, key: str) -> Id:
        return int(key) if self.keys is KeyType.BIGINT else key

    def _note(self, items: Iterable[ParkItem | FailedKey]) -> None:
        if self._failed is not None:
            self._remember(self._failed | {(item.shard, item.id) for item in items if item.id is not None})

    def _remember(self, keys: set[Key]) -> None:
        self._failed = keys if len(keys) <= MOST_KNOWN else None

    # --- steps ----------------------------------------------------------------------------

    async def take_step(self, number: int) -> Step | None:
        """Take a step that an operator asks for, and mark its pod; None when it is not wanted any more."""
        row = await self._session.row(queries.STEP_TAKE, self._arguments | {"step": number})
        if row is None:
            return None
        seq, ts, shard, key = row
        return Step(number, seq, ts, shard, self._id(key))

    async def end_step(self, step: Step, outcome: str, error: str | None) -> None:
        """Say what became of it; a key that is done leaves its pod."""
        error = None if error is None else storable(error)
        await self._value(queries.STEP_END, step=step.number, outcome=outcome, error=error)

    # --- control pods ---------------------------------------------------------------------

    async def take_backfill(self, pod: Pod) -> int | None:
        """Replace a `backfill_schedule` pod by a backfill; its number, None when that was done before.

        Raises:
            BackfillBusy: the table is being backfilled.
            UsageError: the pod names no attached table, or no column of it.
        """
        number = await self._value(queries.BACKFILL_TAKE, shard=pod.shard, seq=pod.seq)
        return None if number is None else int(number)

    async def may_sweep(self, pod: Pod) -> bool:
        """Whether all earlier backfill pods of the shard are done."""
        return bool(await self._value(queries.SWEEP_READY, shard=pod.shard, seq=pod.seq))

    async def count_backfill(self, most: int) -> int:
        """How many backfill pods wait in the tube; no need to count on beyond `most`."""
        return int(await self._value(queries.SWEEP_BACKLOG, most=most))

    async def touch(self, shard: int, ids: Sequence[Id]) -> int:
        return int(await self._value(queries.SWEEP_TOUCH, shard=shard, ids=array_of(self.keys, ids)))

    async def end_sweep(self, pod: Pod) -> bool:
        return bool(await self._value(queries.SWEEP_END, shard=pod.shard, seq=pod.seq))


def _json(items: Iterable[ParkItem | FailedKey]) -> Jsonb:
    return Jsonb([item.as_json() for item in items])


def _arrays(keys: Iterable[Key]) -> dict[str, object]:
    shards, ids = zip(*keys, strict=True)
    return {"shards": list(shards), "ids": list(map(str, ids))}


# --- control pods --------------------------------------------------------------------------------


_GREATEST = 2**63 - 1


def type_of(pod: Pod) -> object:
    return _get(pod, "type")


def start_seq_of(pod: Pod) -> int | None:
    """The start seq of a backfill's control pod; None when it has none that is a seq."""
    return _natural(_get(pod, "start_seq"))


def is_end(pod: Pod) -> bool:
    """Whether all that the end of a backfill says can be understood, here and in SQL."""
    backfill = _get(pod, "backfill")
    return start_seq_of(pod) is not None and (backfill is None or _natural(backfill) is not None)


def asks_for_sweep(pod: Pod) -> bool:
    """Whether the end of this backfill is to be followed by a sweep: it was one of a root table."""
    return _get(pod, "sweep") is not False


def _get(pod: Pod, name: str) -> Any:
    payload: Any = pod.payload
    return payload.get(name) if isinstance(payload, Mapping) else None


def _natural(value: object) -> int | None:
    """A `bigint` that is not negative, as a number or as its digits; None when it is something else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    return value if type(value) is int and 0 <= value <= _GREATEST else None
