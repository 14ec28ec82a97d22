"""What a worker does about control pods, in the database. Each call is fenced."""

from __future__ import annotations

from collections.abc import Sequence

from pytube.db.arrays import array_of
from pytube.model import Id, Pod
from pytube.sources import queries
from pytube.sources.session import Session
from pytube.sources.terms import Term


class ControlSource:
    """Over the session of a partition's worker; errors as for `TubeSource`."""

    def __init__(self, session: Session, term: Term) -> None:
        self._session = session
        self._arguments = term.arguments
        self.keys = term.keys

    async def take_backfill(self, pod: Pod) -> int | None:
        """The scheduled backfill takes the place of its pod; its number, None when that was done before.

        Raises:
            BackfillBusy: the table is being backfilled.
            UsageError: it names no attached table, or no column of it.
        """
        number = await self._session.value(queries.BACKFILL_TAKE, self._of(pod))
        return None if number is None else int(number)

    async def may_sweep(self, pod: Pod) -> bool:
        """Whether all earlier backfill pods of the shard are done."""
        return bool(await self._session.value(queries.SWEEP_READY, self._of(pod)))

    async def backlog(self, most: int) -> int:
        """How many backfill pods wait in the tube; no need to count on beyond `most`."""
        return int(await self._session.value(queries.SWEEP_BACKLOG, self._arguments | {"most": most}))

    async def touch(self, shard: int, ids: Sequence[Id]) -> int:
        """Touch what a scan has found; the number of pods."""
        arguments = self._arguments | {"shard": shard, "ids": array_of(self.keys, ids)}
        return int(await self._session.value(queries.SWEEP_TOUCH, arguments))

    async def end(self, pod: Pod) -> bool:
        """The backfill_end was acted upon: it goes. Whether it was there."""
        return bool(await self._session.value(queries.SWEEP_END, self._of(pod)))

    def _of(self, pod: Pod) -> dict[str, object]:
        return self._arguments | {"shard": pod.shard, "seq": pod.seq}
