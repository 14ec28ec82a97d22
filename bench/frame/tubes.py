"""Tubes as a scenario needs them: filled, led, drained through the public procedures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import psycopg

_FILL = """
    INSERT INTO tube.{tube} (op, shard, ids)
    SELECT 'U', 0, array_agg(g ORDER BY g) FROM generate_series(0, {count} * {ids}::bigint - 1) AS g
    GROUP BY g / {ids}
    ORDER BY g / {ids}
"""
_FILL_ONES = (
    "INSERT INTO tube.{tube} (op, shard, ids) SELECT 'U', 0, ARRAY[g] FROM generate_series(1, {count}) AS g"
)


def fill(connection: psycopg.Connection, tube: str, count: int, ids: int = 1) -> None:
    """Put `count` pods of `ids` distinct ids each, from 1 (of one id) or 0 on, into an emptied tube."""
    connection.execute(f"TRUNCATE tube.{tube}")
    connection.execute((_FILL_ONES if ids == 1 else _FILL).format(tube=tube, count=count, ids=ids))
    connection.execute(f"VACUUM ANALYZE tube.{tube}")


def array(numbers: Sequence[int]) -> str:
    """An array as Postgres writes it: psycopg would look at each element of a list, and take longer."""
    return "{" + ",".join(map(str, numbers)) + "}"


@dataclass
class Term:
    """A term over partition 0, held by this process, and the statements that a worker sends."""

    connection: psycopg.Connection
    tube: str
    partitions: int = 1
    leader_id: UUID = field(default_factory=uuid4)
    floor: int = 0

    def __post_init__(self) -> None:
        """Acquire it."""
        self.connection.execute(
            "SELECT tube_leader_acquire(%s, %s, 0, %s, %s, 'bench', tube_leader_epoch(%s, %s, 0), 'neli')",
            [self.tube, self.partitions, self.leader_id, uuid4(), self.tube, self.partitions],
        )

    def mark(self, limit: int = 1000) -> list[int]:
        """Mark pods beyond the floor, which moves on, by the worker's own recipe; their seqs."""
        cursor = psycopg.ClientCursor(self.connection)
        cursor.execute(
            "BEGIN; DECLARE marked_pods BINARY NO SCROLL CURSOR WITH HOLD FOR "
            "SELECT seq, op, shard, ids, payload, ts FROM tube_pods_mark(%s, %s, 0, %s, %s, %s, 0, false);"
            "COMMIT; FETCH ALL FROM marked_pods; CLOSE marked_pods",
            [self.tube, self.partitions, self.leader_id, limit, self.floor],
        )
        while not (cursor.statusmessage or "").startswith("FETCH"):
            cursor.nextset()
        seqs = [row[0] for row in cursor.fetchall()]
        self.floor = seqs[-1] if seqs else self.floor
        return seqs

    def purge(self, seqs: list[int]) -> None:
        """Delete pods that are done."""
        self.connection.execute(
            "SELECT tube_pods_purge(%s, %s, 0, %s, %s::bigint[])",
            [self.tube, self.partitions, self.leader_id, array(seqs)],
        )

    def drain(self, count: int) -> float:
        """Mark and purge about `count` pods; how many there were."""
        done = 0
        while done < count:
            seqs = self.mark()
            if not seqs:
                break
            self.purge(seqs)
            done += len(seqs)
        return done
