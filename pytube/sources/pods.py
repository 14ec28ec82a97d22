"""The pods of one partition, as its leader takes and gives them. Each call is fenced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from psycopg.types.json import Jsonb

from pytube.db.arrays import Int8Array
from pytube.model import Id, Key, KeyType, Pod, PodClass
from pytube.sources import queries
from pytube.sources.floors import Floors
from pytube.sources.session import Session
from pytube.sources.terms import Term

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
    """Mark, purge, reset, park for one term over one session.

    All raise `Fenced` or `WrongPartitions` when the term is over, and `DatabaseUnavailable`. An
    answer that was lost leaves pods marked that nobody works on: so the term ends with its session.
    """

    def __init__(self, session: Session, term: Term) -> None:
        self._session = session
        self._arguments = term.arguments
        self._keys = term.keys
        self._mark = _MARK if term.keys is KeyType.BIGINT else _MARK_KEYS
        self.floors = Floors()

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

    async def park(self, items: Iterable[ParkItem]) -> int:
        """Set keys aside with their error."""
        return int(
            await self._session.value(
                queries.PARK, self._arguments | {"items": Jsonb([item.as_json() for item in items])}
            )
        )

    async def unpark(self, keys: Iterable[Key]) -> int:
        """Forget the parked entries of keys that were delivered after all."""
        keys = list(keys)
        return int(
            await self._session.value(
                queries.UNPARK,
                self._arguments
                | {"shards": [shard for shard, _ in keys], "ids": [str(key) for _, key in keys]},
            )
        )

    async def parked(self, limit: int) -> set[Key]:
        """The keys of this partition that are parked, or `limit` of them."""
        rows = await self._session.rows(queries.PARKED_KEYS, self._arguments | {"limit": limit})
        if self._keys is KeyType.BIGINT:
            return {(shard, int(key)) for shard, key in rows}
        return set(rows)
