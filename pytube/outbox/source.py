"""The records of one partition of an outbox, as its leader marks, purges, resets and parks them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from psycopg.types.json import Jsonb

from pytube.db.arrays import Int8Array
from pytube.db.session import Queries
from pytube.errors import UnknownTube
from pytube.outbox import source_queries as queries
from pytube.outbox.records import EarlierTerm, Letter, Record, Sent
from pytube.sources.pods import Floor, storable
from pytube.sources.queries import MARK_BEGIN, MARK_COMMIT
from pytube.sources.settled import Settled
from pytube.sources.terms import Term

_MARK = (MARK_BEGIN, queries.MARK_DECLARE, MARK_COMMIT, queries.MARK_FETCH, queries.MARK_CLOSE)


class OutboxSource:
    """Mark, purge, reset and park records for one term.

    All calls raise `Fenced` or `WrongPartitions` when the term is over, and `DatabaseUnavailable`. Whether
    a call whose answer was lost had an effect is unknown, so the term has to end.
    """

    def __init__(self, session: Queries, term: Term) -> None:
        self._session = session
        self._name = term.tube
        self._arguments = term.arguments
        self._floor = Floor()
        self._version = 0
        self._adopted = False
        self.earlier: Sequence[EarlierTerm] = ()
        """Terms that may have left records of this partition at Kafka and not purged."""
        self.wakes = False
        """Whether writers wake a worker that sleeps."""
        self.returned_all_retried = False
        """Whether the last mark returned all records that operators had told to send again before it."""

    async def load(self) -> None:
        """Learn what kind of table it is, and of earlier terms; to be called before the first mark."""
        row = await self._session.row(queries.OUTBOX, self._arguments)
        if row is None:
            raise UnknownTube(f"there is no outbox {self._name!r}; create it with `pytube outbox create`")
        self._adopted, self.wakes, earlier = row
        self.earlier = [EarlierTerm(*term) for term in earlier]

    async def mark(self, limit: int, settled: Settled | None, done: Sequence[int] = ()) -> list[Record]:
        """Mark up to `limit` records, by id; the records of `done` are purged in the same transaction.

        Records that operators have told to send again come first.

        Args:
            limit: the number.
            settled: as it was before the call; None when it is not known.
            done: ids of records.
        """
        seq, provisional = (0, 0) if settled is None else (settled.seq, settled.provisional)
        if settled is not None and settled.provisional_version != self._version:
            self._version = settled.provisional_version
            self._floor.fall_back()
        rows = await self._session.held_rows(
            _MARK,
            self._arguments | {"limit": limit, "floor": self._floor.value, "ids": Int8Array(done)},
            before=(queries.PURGE,) if done else (),
        )
        records = list(map(tuple.__new__, repeat(Record), rows))  # as Record._make, in a third of the time
        retried = sum(record.retried for record in records) if records and records[0].retried else 0
        self.returned_all_retried = retried < limit
        if not self._adopted and self.returned_all_retried:  # the ids of others are not drawn as ours are
            last = None if len(records) < limit else records[-1].id
            self._floor.advance(last, seq, max(seq, provisional))
        return records

    async def purge(self, ids: Sequence[int]) -> int:
        """Delete records that are done, on the disk too when this returns; how many there were."""
        return int(await self._session.value(queries.PURGE, self._arguments | {"ids": Int8Array(ids)}))

    async def purge_sent(self, sent: Sent) -> None:
        """Delete what is in this partition of records that an earlier term has sent, on the disk too."""
        arguments = {"ids": Int8Array(sorted(sent.ids)), "until": sent.until}
        await self._session.value(queries.PURGE_SENT, self._arguments | arguments)

    async def reset(self, ids: Sequence[int]) -> int:
        """Give back records that are not done; how many there were."""
        count = int(await self._session.value(queries.RESET, self._arguments | {"ids": Int8Array(ids)}))
        if ids:
            self._floor.lower(ids)
        return count

    async def park(self, letters: Iterable[Letter], *, hold: bool) -> list[int]:
        """Set records aside; the ids of those that were.

        Left out is one that was to be parked behind another, which an operator has told to send again.
        """
        items = [
            {
                "id": letter.record.id,
                "error": storable(letter.reason),
                "attempts": letter.attempts,
                "behind": letter.behind,
            }
            for letter in letters
        ]
        answer: list[int] = await self._session.value(
            queries.PARK, self._arguments | {"items": Jsonb(items), "hold": hold}
        )
        return answer
