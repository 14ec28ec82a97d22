"""The pods of one partition, as its leader marks, purges, resets and parks them. Each call is fenced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from psycopg.types.json import Jsonb

from pytube.db.arrays import Int8Array, array_of
from pytube.db.session import Queries
from pytube.model import Id, Key, KeyType, Pod, PodClass
from pytube.sources import queries
from pytube.sources.floors import Floors
from pytube.sources.terms import Term

MOST_KNOWN = 100_000
"""Parked keys that are remembered; with more, every delivery asks the database."""

_FETCH = (queries.MARK_COMMIT, queries.MARK_FETCH, queries.MARK_CLOSE)
_MARK = (queries.MARK_BEGIN, queries.MARK_DECLARE, *_FETCH)
_MARK_KEYS = (queries.MARK_BEGIN, queries.MARK_KEYS_DECLARE, *_FETCH)


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

    def as_json(self) -> dict[str, object]:
        """As `tube_pods_park` wants it."""
        return {
            "shard": self.shard,
            "id": None if self.id is None else str(self.id),
            "op": self.op,
            "seq": self.seq,
            "error": self.error,
            "attempts": self.attempts,
            "payload": self.payload,
        }


class TubeSource:
    """Mark, purge, reset and park pods, and handle control pods, for one term.

    All calls raise `Fenced` or `WrongPartitions` when the term is over, and `DatabaseUnavailable`. Whether
    a call whose answer was lost had an effect is unknown, and pods may be marked that nobody works on; so
    the term has to end.
    """

    def __init__(self, session: Queries, term: Term) -> None:
        self._session = session
        self._arguments = term.arguments
        self._mark = _MARK if term.keys is KeyType.BIGINT else _MARK_KEYS
        self.keys = term.keys
        self.floors = Floors()
        self._parked: set[Key] | None = None
        """The keys that are parked; None when there are too many to be remembered."""

    async def mark(
        self,
        limit: int,
        settled: int,
        *,
        with_backfill: bool = True,
        provisional: int = 0,
        provisional_version: int = 0,
        done: Sequence[int] = (),
    ) -> list[Pod]:
        """Mark up to `limit` pods, incremental first; `settled` and `provisional` were known before the call.

        The pods of `done` are purged in the same transaction.
        """
        self.floors.expire_provisional(provisional_version)
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
            before=(queries.PURGE,) if done else (),
        )
        pods = list(map(tuple.__new__, repeat(Pod), rows))  # as Pod._make, in a third of the time
        self.floors.advance(pods, limit, settled, with_backfill=with_backfill, provisional=provisional)
        return pods

    async def purge(self, seqs: Sequence[int]) -> int:
        """Delete pods that are done; how many there were."""
        return int(await self._session.value(queries.PURGE, self._arguments | {"seqs": Int8Array(seqs)}))

    async def reset(self, seqs: Sequence[int]) -> int:
        """Give back pods that are not done; how many there were. Its cost is theirs, not the backlog's."""
        count = int(await self._session.value(queries.RESET, self._arguments | {"seqs": list(seqs)}))
        self.floors.lower(seqs)
        return count

    # --- parked keys ----------------------------------------------------------------------

    async def load_parked(self) -> None:
        """Learn which keys are parked already, so that `unpark` need not ask about the others."""
        rows = await self._session.rows(queries.PARKED_KEYS, self._arguments | {"limit": MOST_KNOWN + 1})
        is_number = self.keys is KeyType.BIGINT
        self._remember({(shard, int(key) if is_number else key) for shard, key in rows})

    async def park(self, items: Iterable[ParkItem]) -> int:
        """Set keys aside with their error."""
        items = list(items)
        arguments = self._arguments | {"items": Jsonb([item.as_json() for item in items])}
        count = int(await self._session.value(queries.PARK, arguments))
        if self._parked is not None:
            self._remember(self._parked | {(item.shard, item.id) for item in items if item.id is not None})
        return count

    async def unpark(self, groups: Mapping[int, Iterable[Id]]) -> None:
        """Forget the parked entries of keys, given as ids by shard, that were delivered after all."""
        if self._parked is not None and not self._parked:
            return  # as nearly always
        keys = {(shard, key) for shard, ids in groups.items() for key in ids}
        if self._parked is not None:
            keys &= self._parked
        if keys:
            shards, ids = zip(*keys, strict=True)
            arguments = self._arguments | {"shards": list(shards), "ids": list(map(str, ids))}
            await self._session.value(queries.UNPARK, arguments)
            if self._parked is not None:
                self._parked -= keys

    def _remember(self, keys: set[Key]) -> None:
        self._parked = keys if len(keys) <= MOST_KNOWN else None

    # --- control pods ---------------------------------------------------------------------

    async def take_backfill(self, pod: Pod) -> int | None:
        """Replace a `backfill_schedule` pod by a backfill; its number, None when that was done before.

        Raises:
            BackfillBusy: the table is being backfilled.
            UsageError: the pod names no attached table, or no column of it.
        """
        number = await self._session.value(queries.BACKFILL_TAKE, self._of(pod))
        return None if number is None else int(number)

    async def may_sweep(self, pod: Pod) -> bool:
        """Whether all earlier backfill pods of the shard are done."""
        return bool(await self._session.value(queries.SWEEP_READY, self._of(pod)))

    async def count_backfill(self, most: int) -> int:
        """How many backfill pods wait in the tube; no need to count on beyond `most`."""
        return int(await self._session.value(queries.SWEEP_BACKLOG, self._arguments | {"most": most}))

    async def touch(self, shard: int, ids: Sequence[Id]) -> int:
        """Touch what a scan of the sink has found; the number of pods."""
        arguments = self._arguments | {"shard": shard, "ids": array_of(self.keys, ids)}
        return int(await self._session.value(queries.SWEEP_TOUCH, arguments))

    async def end_sweep(self, pod: Pod) -> bool:
        """Delete the control pod of a sweep that is done; whether it was there."""
        return bool(await self._session.value(queries.SWEEP_END, self._of(pod)))

    def _of(self, pod: Pod) -> dict[str, object]:
        return self._arguments | {"shard": pod.shard, "seq": pod.seq}
