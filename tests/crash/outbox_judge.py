"""What is stashed in outboxes, written down in the same transaction, and the judge at the consumer."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, MutableMapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from tests.helpers.outbox import Seen, check_exactly_once, check_windowed

WINDOW: Final = 20
STRICT, WINDOWED, TRANSACTIONS = MODES = ("strict", "windowed", "transactions")
_REPEATS = {STRICT: 1, WINDOWED: WINDOW}

JOURNAL: Final = """
CREATE TABLE public.stashed (
    outbox text, id bigint, key text,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    snapshot pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
    PRIMARY KEY (outbox, id)
)
"""

READ: Final = (
    "SELECT id, key, xid::text::bigint, snapshot::text FROM public.stashed WHERE outbox = %s ORDER BY id"
)
"""The rows of `Stashed`."""


def stash(
    connection: psycopg.Connection[Any],
    outbox: str,
    keys: Sequence[str | None],
    *,
    topic: str,
    size: int = 10,
    table: sql.Identifier | None = None,
    judged: bool = True,
) -> list[int]:
    """Stash a record of each key, in this order; their ids.

    Args:
        connection: in whose transaction.
        outbox: its name.
        keys: of the records.
        topic: where they go.
        size: bytes of each value.
        table: that of the outbox, where it is adopted.
        judged: whether they are written down.
    """
    statement = sql.SQL(
        "INSERT INTO {} (kafka_topic, kafka_key, kafka_value) SELECT %s, key, repeat('x', %s)"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS k (key, n) ORDER BY n RETURNING id, kafka_key"
    ).format(table or sql.Identifier("tube", outbox))
    if judged:
        statement = sql.SQL(
            "WITH s AS ({}) INSERT INTO public.stashed (outbox, id, key) SELECT {}, id, kafka_key FROM s"
            " RETURNING id"
        ).format(statement, outbox)
    return [row[0] for row in connection.execute(statement, (topic, size, list(keys)))]


class Stashed(NamedTuple):
    """A record that was committed."""

    id: int
    key: str | None
    xid: int
    """Of its transaction."""
    snapshot: str
    """Of the statement that stashed it, as Postgres writes it: `xmin:xmax:those between that were open`."""

    def sees_any(self, xids: Sequence[int]) -> bool:
        """Whether one of these transactions, in order, was committed when this one was stashed.

        All of them were committed some time.
        """
        first, end, between = self.snapshot.split(":")
        if xids and xids[0] < int(first):
            return True
        below = set(xids[: bisect_left(xids, int(end))])
        return not below <= {self.xid, *map(int, filter(None, between.split(",")))}

    def came_before(self, other: Stashed) -> bool:
        """Whether it was stashed earlier in the same transaction, or committed when the other was stashed."""
        return other.sees_any([self.xid]) if self.xid != other.xid else self.id < other.id


class Judge:
    """Takes what a consumer finds of one outbox, at once or piece by piece, each when all is delivered."""

    def __init__(self, mode: str) -> None:
        """`mode`: one of `MODES`."""
        self._mode = mode
        self._known: set[int] = set()
        """The records of earlier pieces."""
        self._epochs: dict[str | None, int] = {}
        self._was_overdue = False

    def take(self, seen: Sequence[Seen], stashed: Sequence[Stashed], *, overdue: bool) -> int:
        """Check the next piece against the promises of the mode; how many records came late.

        Late is a record of a term after one of a later term: a stopped leader went on. In transactions there
        must be none; else a consumer that drops repeats by id has all in order, with them and without.

        Where a worker has told that the broker answered too late, it has given its producer up, and what that
        one had on the wire comes in between what the next one sends: then only the order of first occurrences
        is looked at in windowed mode. Many workers at once are enough for that.

        Args:
            seen: by partition and offset.
            stashed: what was committed since the last piece, by id.
            overdue: whether a worker has told that the broker did not answer in time.

        Raises:
            AssertionError: says what is wrong.
        """
        timely, lates = split_late(seen, self._epochs)
        again = [one for one in timely if one.id in self._known]
        for found in (seen, timely):
            check_delivered([one for one in found if one.id not in self._known], stashed)
        if self._mode == TRANSACTIONS:
            assert not lates, f"came late: {lates[:5]}"
            assert not again, f"came again: {again[:5]}"
            check_exactly_once(seen)
        elif self._mode == STRICT or not overdue:
            assert not again or self._was_overdue, f"came again after all was delivered: {again[:5]}"
            overlapping = keys_that_overlap(stashed)
            # A key whose transactions overlap has no order of all its records: no place to come again from.
            check_windowed([one for one in timely if one.key not in overlapping], _REPEATS[self._mode])
        self._known.update(one.id for one in stashed)
        self._was_overdue = overdue
        return len(lates)


def split_late(
    seen: Sequence[Seen], epochs: MutableMapping[str | None, int]
) -> tuple[list[Seen], list[Seen]]:
    """Records of a topic that came in their time, and those that came late, in the order of each partition.

    Each key is brought by one partition of the outbox at a time, so its epochs fall by a zombie only.

    Args:
        seen: by partition and offset.
        epochs: the latest of each key before them; brought up to date.
    """
    timely: list[Seen] = []
    lates: list[Seen] = []
    for one in seen:
        if one.key is not None and one.epoch < epochs.get(one.key, 0):
            lates.append(one)
            continue
        epochs[one.key] = one.epoch
        timely.append(one)
    return timely, lates


def check_delivered(seen: Iterable[Seen], stashed: Sequence[Stashed]) -> None:
    """Each record was written, and no other; of a key, what was committed before a record comes before it."""
    wanted = {one.id: one for one in stashed}
    found: dict[int, Seen] = {}
    for one in seen:
        found.setdefault(one.id, one)
    missing, strange = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    assert not missing, f"are missing: {[wanted[number] for number in sorted(missing)[:5]]}"
    assert not strange, f"were never committed: {[found[number] for number in sorted(strange)[:5]]}"
    of_keys: dict[str | None, list[Stashed]] = defaultdict(list)
    for number, one in found.items():
        assert one.key == wanted[number].key, f"its key is another one: {one}"
        of_keys[one.key].append(wanted[number])
    for key, first_occurrences in of_keys.items():
        if key is not None:
            _check_order(first_occurrences)


def _check_order(records: Sequence[Stashed]) -> None:
    """Check first occurrences of one key."""
    later: list[int] = []
    """The transactions of those that come later, in order."""
    least: dict[int, int] = {}
    """The least id of each of them."""
    for one in reversed(records):
        if one.id > least.get(one.xid, one.id) or one.sees_any(later):
            behind = [other for other in records[records.index(one) :] if other.came_before(one)]
            raise AssertionError(f"{one} is in front of what was committed before it: {behind[:5]}")
        if one.xid not in least:
            insort(later, one.xid)
        least[one.xid] = one.id


def keys_that_overlap(stashed: Iterable[Stashed]) -> set[str | None]:
    """The keys of which two transactions were open at once."""
    of_keys: dict[str | None, list[Stashed]] = defaultdict(list)
    for one in stashed:
        of_keys[one.key].append(one)
    return {
        key
        for key, records in of_keys.items()
        if any(not before.came_before(after) for before, after in pairwise(sorted(records)))
    }
