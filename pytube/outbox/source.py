"""The records of one partition of an outbox, as its leader marks, purges, resets and parks them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from psycopg.errors import LockNotAvailable
from psycopg.types.json import Jsonb

from pytube.db.arrays import Int8Array
from pytube.db.session import Queries
from pytube.errors import StatementFailed, UnknownTube
from pytube.outbox.records import EarlierTerm, Letter, Record, Rest, Sent
from pytube.sources.pods import Floor, storable
from pytube.sources.queries import MARK_BEGIN, MARK_COMMIT
from pytube.sources.settled import Settled
from pytube.sources.terms import Term

# --- statements -----------------------------------------------------------------------------------
# Sessions have pytube's schema first in their search path, so nothing is qualified here.

# With the terms that had records of this partition, also of another number of partitions: p1 of P1 shares
# records with p2 of P2 exactly when p1 = p2 modulo gcd(P1, P2). Released terms, too: the next term releases
# a term that lost its session, and the lost term has not purged the records it had sent.
OUTBOX: Final = """
    SELECT adopted, wakes, (
        SELECT coalesce(array_agg(ARRAY[
            t.partitions, t.partition, t.epoch, extract(epoch FROM t.renewed_at + t.hold)]::float8[]), '{}')
        FROM tube_terms(%(tube)s) AS t
        WHERE t.ended_at IS NOT NULL
            AND mod(t.partition - %(partition)s, gcd(t.partitions, %(partitions)s)) = 0),
        outbox_identity(outbox)
    FROM outbox_list() WHERE outbox = %(tube)s
"""

# Sent as one message, as marks of tubes are: see pytube/sources/queries.py. Most records have no headers: a
# NULL is read in no time, an empty array takes as long as all else of a record.
_DECLARE: Final = """
    DECLARE marked_records BINARY NO SCROLL CURSOR WITH HOLD FOR
    SELECT id, date_part('epoch', create_time), kafka_topic, kafka_key, kafka_value,
        nullif(kafka_header_keys, '{}'), nullif(kafka_header_values, '{}'), partition_key, retried, held"""
MARK_DECLARE: Final = f"""{_DECLARE}
    FROM outbox_records_mark(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(limit)s, %(floor)s,
        %(settled_floor)s, %(long_writers)s::xid8[])
"""
MARK_AROUND_DECLARE: Final = f"""{_DECLARE}, locked
    FROM outbox_records_mark_around(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(limit)s, %(ids)s)
"""
MARK_FETCH: Final = "FETCH ALL FROM marked_records"
MARK_CLOSE: Final = "CLOSE marked_records"

# Commits of the worker's sessions do not wait for the disk. This one does: a record that is back after a
# crash of Postgres would be sent again, beyond what a mode promises.
DURABLY: Final = "SELECT set_config('synchronous_commit', 'on', true)"
PURGE: Final = """
    SELECT outbox_records_purge(%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(ids)s)
    FROM set_config('synchronous_commit', 'on', true)
"""

PURGE_SENT: Final = """
    SELECT outbox_records_purge_sent(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(ids)s, to_timestamp(%(until)s))
    FROM set_config('synchronous_commit', 'on', true)
"""

RESET: Final = """
    SELECT outbox_records_reset(%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(ids)s)
"""

PARK: Final = """
    SELECT outbox_records_park(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(items)s, %(hold)s)
"""

TOPICS_REST: Final = """
    SELECT topic
    FROM outbox_topics_rest(%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(topics)s) AS topic
    WHERE topic IS NOT NULL
"""

PARK_TOPIC: Final = """
    SELECT outbox_records_park_topic(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(topic)s, %(error)s, %(ids)s,
        %(hold)s, %(limit)s)
"""


# --- the records ----------------------------------------------------------------------------------


_MARK = (MARK_BEGIN, MARK_DECLARE, MARK_COMMIT, MARK_FETCH, MARK_CLOSE)
_MARK_AROUND = (MARK_BEGIN, MARK_AROUND_DECLARE, *_MARK[2:])

_MOST_LOCKED = 3
"""Letters that are found locked one by one before the others of a park wait with them."""


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
        self.greatest_id = 0
        """Of the records marked; 0 of an adopted table, whose ids are of another sequence."""
        self.identity = ""
        """What the records' headers name the outbox by."""
        self.earlier: Sequence[EarlierTerm] = ()
        """Terms that may have left records of this partition at Kafka and not purged."""
        self.wakes = False
        """Whether writers wake a worker that sleeps."""
        self.returned_all_retried = False
        """Whether the last mark returned all records that operators had retried before it."""
        self.is_held_up = False
        """Whether the last mark met records that others have locked, or anything a table that they have."""
        self.locked: str | None = None
        """The first record that others have locked, for people; None: it is the table, or nothing."""
        self.unpurged: frozenset[int] = frozenset()
        """The records of the last purge that others have locked: they still exist."""
        self._known_locked: set[int] = set()
        """All that could not be purged."""

    async def load(self) -> None:
        """Learn what kind of table it is, and of earlier terms; to be called before the first mark."""
        row = await self._session.row(OUTBOX, self._arguments)
        if row is None:
            raise UnknownTube(f"there is no outbox {self._name!r}; create it with `pytube outbox create`")
        self._adopted, self.wakes, earlier, self.identity = row
        self.earlier = [EarlierTerm(int(p), int(q), int(epoch), until) for p, q, epoch, until in earlier]

    def look_everywhere(self) -> None:
        """Have the next mark look for records whose ids were chosen, too, below the drawn ids."""
        self._floor.lower((1,))

    async def mark(self, limit: int, settled: Settled | None, done: Sequence[int] = ()) -> list[Record]:
        """Mark up to `limit` records, by id; the records of `done` are purged in the same transaction.

        Retried records come first. A record that another session has locked waits, and so do later records of
        its key; the others do not: see `is_held_up`.

        No other record comes before the records of its key that were committed before it. Where the floor has
        passed long writers, Postgres decides by the mark's own snapshot whether to scan from there, or, since
        one of them has ended, from the settled floor.

        `settled`: as it was before the call; None when it is not known.
        """
        seq, provisional, version = 0, 0, 0
        long_writers: list[str] = []
        if settled is not None:
            seq, provisional = settled.seq, settled.provisional
            version, long_writers = settled.provisional_version, settled.long_writer_xids
        if version != self._version:  # with other long writers, or it is not known any more which there are
            self._version = version
            self._floor.fall_back()
        if self.is_held_up or not self._known_locked.isdisjoint(done):
            return await self._go_around(limit, done)
        floors = {
            "floor": self._floor.value,
            "settled_floor": self._floor.settled,
            "long_writers": long_writers,
        }
        try:
            rows = await self._session.held_rows(
                _MARK,
                self._arguments | floors | {"limit": limit, "ids": Int8Array(done)},
                before=(PURGE,) if done else (),
            )
        except StatementFailed as error:
            _check_is_lock(error)
            return await self._go_around(limit, done)
        self.unpurged = frozenset()
        records = list(map(tuple.__new__, repeat(Record), rows))  # as Record._make, in a third of the time
        retried = sum(record.retried for record in records) if records and records[0].retried else 0
        self.returned_all_retried = retried < limit
        self._note_greatest(records)
        if not self._adopted and self.returned_all_retried:  # other sequences draw otherwise
            last = None if len(records) < limit else records[-1].id
            self._floor.advance(last, seq, max(seq, provisional))
        return records

    async def purge(self, ids: Sequence[int]) -> int:
        """Delete records that are done, on the disk too when this returns; how many there were."""
        if not self.is_held_up and self._known_locked.isdisjoint(ids):
            try:
                count = await self._session.value(PURGE, self._arguments | {"ids": Int8Array(ids)})
            except StatementFailed as error:
                _check_is_lock(error)
            else:
                self.unpurged = frozenset()
                return int(count)
        await self._go_around(0, ids)
        return len(ids) - len(self.unpurged)

    async def _go_around(self, limit: int, done: Sequence[int]) -> list[Record]:
        """Purge and mark records that are not locked; also note whether any still are."""
        self.returned_all_retried = False
        try:
            rows = await self._session.held_rows(
                _MARK_AROUND,
                self._arguments | {"limit": limit, "ids": Int8Array(done)},
                before=(DURABLY,),
            )
        except StatementFailed as error:
            _check_is_lock(error)
            self.is_held_up, self.unpurged, self.locked = True, frozenset(done), None
            return []
        self.locked = min(((row[0], _named(row)) for row in rows if row[-1]), default=(0, None))[1]
        locked = {row[0] for row in rows if row[-1]}
        self.unpurged = frozenset(locked.intersection(done))
        self._known_locked = self._known_locked.difference(done) | self.unpurged
        if limit:  # a purge alone says nothing of records to mark
            self.is_held_up = locked != self.unpurged
        records = [Record(*row[:-1]) for row in rows if not row[-1]]
        self._note_greatest(records)
        return records

    def _note_greatest(self, records: Sequence[Record]) -> None:
        if records and not self._adopted:
            self.greatest_id = max(self.greatest_id, records[-1].id)

    async def purge_sent(self, sent: Sent) -> bool:
        """Delete the records in this partition that an earlier term has sent, on the disk too.

        False if another session has locked one of them: nothing is deleted then.
        """
        arguments = {"ids": Int8Array(sorted(sent.ids)), "until": sent.until}
        try:
            await self._session.value(PURGE_SENT, self._arguments | arguments)
        except StatementFailed as error:
            _check_is_lock(error)
            return False
        return True

    async def reset(self, ids: Sequence[int]) -> int:
        """Give back records that are not done; how many existed and were not locked."""
        count = int(await self._session.value(RESET, self._arguments | {"ids": Int8Array(ids)}))
        if ids:
            self._floor.lower(ids)
        return count

    async def park(self, letters: Sequence[Letter], *, hold: bool) -> tuple[list[int], Sequence[Letter]]:
        """Set records aside; returns the ids of the parked ones, and the letters that wait for a lock.

        A record is left out if it was to be parked behind a retried one.
        """
        try:
            return await self._park(letters, hold=hold), ()
        except StatementFailed as error:
            _check_is_lock(error)
        if len(letters) == 1:
            return [], letters
        parked: list[int] = []
        locked: list[Letter] = []
        for index, letter in enumerate(letters):
            ids, left = await self.park([letter], hold=hold)
            parked += ids
            locked += left
            if len(locked) == _MOST_LOCKED:  # perhaps all are: each costs a time-out
                locked += letters[index + 1 :]
                break
        return parked, locked

    async def _park(self, letters: Iterable[Letter], *, hold: bool) -> list[int]:
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
            PARK, self._arguments | {"items": Jsonb(items), "hold": hold}
        )
        return answer

    # --- topics that rest -----------------------------------------------------------------

    async def tell_rests(self, rests: Sequence[Rest], now: float) -> list[str]:
        """Report which topics rest, and only these; returns the topics whose records are to be parked."""
        topics = [
            {
                "topic": one.topic,
                "reason": storable(one.reason),
                "records": one.records,
                "seconds": now - one.since,
                "left": max(0.0, one.until - now),
            }
            for one in rests
        ]
        rows = await self._session.rows(TOPICS_REST, self._arguments | {"topics": Jsonb(topics)})
        return [topic for (topic,) in rows]

    async def park_topic(
        self, topic: str, reason: str, ids: Sequence[int], *, hold: bool, limit: int
    ) -> list[int]:
        """Set aside up to `limit` records of a topic: of `ids`, and of records not marked by this term.

        Returns:
            Their ids: none while another session has locked something that is needed for it.
        """
        arguments = {"topic": topic, "error": storable(reason), "ids": Int8Array(ids), "hold": hold}
        try:
            parked: list[int] = await self._session.value(
                PARK_TOPIC, self._arguments | arguments | {"limit": limit}
            )
        except StatementFailed as error:
            _check_is_lock(error)
            return []
        return parked


def _named(row: Sequence[Any]) -> str:
    """A locked record by its id, topic and key, of `outbox_records_mark_around`."""
    number, _, topic, key, *_ = row
    return f"record {number} (topic {topic}, {'no key' if key is None else f'key {key[:100]}'})"


def _check_is_lock(error: StatementFailed) -> None:
    """Raise the error again unless a lock was not to be had."""
    if not isinstance(error.__cause__, LockNotAvailable):
        raise error
