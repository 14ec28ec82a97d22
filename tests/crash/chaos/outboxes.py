"""The outboxes of a run: their tables and topics, and what their judges are given at a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import sql

from tests.crash.chaos.invariants import Invariant, Violation
from tests.crash.outbox_judge import (
    JOURNAL,
    READ,
    STRICT,
    TRANSACTIONS,
    WINDOWED,
    Judge,
    Stashed,
    stash,
)
from tests.crash.outboxes import MOST_BYTES, settings_of
from tests.helpers.outbox import create_topic, read

PARTITIONS = 2
_TOPIC_PARTITIONS = 3

_ADOPTED = """
CREATE TABLE public.adopted (
    id bigserial PRIMARY KEY,
    create_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    kafka_topic varchar(249) NOT NULL,
    kafka_key varchar(100) NOT NULL,
    kafka_value varchar(10000),
    kafka_header_keys text[] NOT NULL DEFAULT '{}',
    kafka_header_values text[] NOT NULL DEFAULT '{}',
    leader_id uuid
)
"""
"""As goharvest makes it, but for the defaults."""


@dataclass(frozen=True, slots=True)
class Outbox:
    """One outbox. Its topic has its name."""

    name: str
    mode: str
    election: str
    schema: str = "tube"

    @property
    def table(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def is_adopted(self) -> bool:
        """Whether it is over a table that was there."""
        return self.schema != "tube"

    @property
    def settings(self) -> str:
        """Its section of the workers' configuration."""
        return settings_of(self.name, self.mode)

    def stash(self, connection: psycopg.Connection[Any], keys: list[str]) -> int:
        """Stash a record of each key; how many."""
        return len(stash(connection, self.name, keys, topic=self.name, table=self.table))


OUTBOXES: Final = (
    Outbox("strict", STRICT, "neli"),
    Outbox("windowed", WINDOWED, "neli"),
    Outbox("transactions", TRANSACTIONS, "neli"),
    Outbox("adopted", WINDOWED, "lease", schema="public"),
)

(TRANSACTIONAL,) = (outbox for outbox in OUTBOXES if outbox.mode == TRANSACTIONS)


def make(connection: psycopg.Connection[Any]) -> None:
    """Make the tables."""
    connection.execute(JOURNAL)
    connection.execute(_ADOPTED)
    for outbox in OUTBOXES:
        if outbox.is_adopted:
            connection.execute(
                "SELECT outbox_adopt(%s, %s, wake => true)", (outbox.name, outbox.table.as_string())
            )
        else:
            connection.execute("SELECT outbox_ensure_exists(%s, %s)", (outbox.name, PARTITIONS))


def make_topics(bootstrap: str) -> None:
    """Make the topics, at a real broker."""
    for outbox in OUTBOXES:
        create_topic(bootstrap, outbox.name, _TOPIC_PARTITIONS, max_message_bytes=MOST_BYTES)


@dataclass
class Consumer:
    """Reads what has come to the topics since the last checkpoint, and has it judged."""

    bootstrap: str
    stashed: int = 0
    """Records that were committed."""
    found: int = 0
    """Records at Kafka, those that came again too."""
    late: int = 0
    """Records of a term that came after those of a later one."""
    repeats: Counter[str] = field(default_factory=Counter)
    """Of each outbox, how many records came again."""
    _judges: dict[str, Judge] = field(default_factory=lambda: {one.name: Judge(one.mode) for one in OUTBOXES})
    _places: dict[str, dict[int, int]] = field(default_factory=lambda: {one.name: {} for one in OUTBOXES})
    """Of each topic, where the next read of each partition begins."""

    def take(self, connection: psycopg.Connection[Any], overdue: Container[str]) -> Iterator[Violation]:
        """Judge what is new, when all is delivered.

        Args:
            connection: to the database, whose journal is emptied by `forget`.
            overdue: the outboxes of which a worker has told that the broker did not answer in time.
        """
        for outbox in OUTBOXES:
            yield from parked(connection, outbox)
            places = self._places[outbox.name]
            stashed = [Stashed(*row) for row in connection.execute(READ, (outbox.name,))]
            try:
                committed = outbox.mode == TRANSACTIONS
                seen = read(self.bootstrap, outbox.name, committed=committed, start=places)
                late = self._judges[outbox.name].take(seen, stashed, overdue=outbox.name in overdue)
            except AssertionError as wrong:
                yield Violation(Invariant.DELIVERED, f"{outbox.name}: {wrong}")
                continue
            places |= {one.partition: one.offset + 1 for one in seen}
            self.late += late
            self.stashed += len(stashed)
            self.found += len(seen)
            self.repeats[outbox.name] += len(seen) - len(stashed)


def parked(connection: psycopg.Connection[Any], outbox: Outbox) -> Iterator[Violation]:
    """The first records that are parked: none has to be."""
    rows = connection.execute("SELECT id, error FROM outbox_parked(%s, 5)", (outbox.name,)).fetchall()
    if rows:
        yield Violation(Invariant.SENDABLE, f"{outbox.name}: {rows}")


LEFT: Final = sql.SQL("SELECT count(*), min(id), count(leader_id) FROM {}")
"""What is in a table: how many, the first, and how many of them are marked."""


def left(connection: psycopg.Connection[Any]) -> int:
    """How many records are in the outboxes, parked ones aside."""
    count = sql.SQL(
        "SELECT count(*) FROM {} AS r WHERE NOT EXISTS"
        " (SELECT FROM tube_outbox_parked AS p WHERE p.outbox = {} AND p.id = r.id)"
    )
    found = [connection.execute(count.format(one.table, one.name)).fetchone() for one in OUTBOXES]
    return sum(row[0] for row in found if row)


def forget(connection: psycopg.Connection[Any]) -> None:
    """Empty the journal."""
    connection.execute("TRUNCATE public.stashed")
