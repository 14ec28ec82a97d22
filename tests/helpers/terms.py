"""Terms, marks and pods for tests that speak to the SQL itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from tests.helpers.capture import open_session

Conn = psycopg.Connection[Any]
TUBE = "queue"


@dataclass(frozen=True)
class Term:
    """One term: the first four arguments of all that is done under it, and its epoch."""

    tube: str
    partitions: int
    partition: int
    leader_id: uuid.UUID
    instance_id: uuid.UUID
    epoch: int

    @property
    def args(self) -> tuple[str, int, int, uuid.UUID]:
        return self.tube, self.partitions, self.partition, self.leader_id


@dataclass(frozen=True)
class Marked:
    """A row of tube_pods_mark."""

    seq: int
    op: str
    shard: int
    ids: list[int]
    keys: list[str] | None
    payload: dict[str, Any] | None
    ts: datetime


@dataclass(frozen=True)
class Claim:
    """What tube_leader_acquire is asked; `expected` None means the present epoch."""

    tube: str = TUBE
    partitions: int = 1
    partition: int = 0
    election: str = "neli"
    hold: str = "15 seconds"
    lease: str | None = None
    expected: int | None = None
    leader_id: uuid.UUID = field(default_factory=uuid.uuid4)
    instance_id: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def statement(self) -> str:
        return (
            "SELECT tube_leader_acquire(%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s,"
            " %(instance_id)s, 'a client', coalesce(%(expected)s, (SELECT epoch FROM tube_leader"
            " WHERE tube = %(tube)s AND partition = %(partition)s)),"
            " %(election)s, %(hold)s::interval, %(lease)s::interval)"
        )

    @property
    def params(self) -> dict[str, Any]:
        return dict(vars(self))


def make_tube(conn: Conn, tube: str = TUBE, partitions: int = 1) -> None:
    conn.execute("SELECT tube_ensure_exists(%s, %s)", (tube, partitions))


def with_tube(dsn: str) -> None:
    """A tube of one partition, as a test's database begins with it: for `preparing`."""
    with open_session(dsn) as conn:
        make_tube(conn)


def with_tube_of_two(dsn: str) -> None:
    """As `with_tube`, of two partitions."""
    with open_session(dsn) as conn:
        make_tube(conn, partitions=2)


def epoch_of(conn: Conn, tube: str = TUBE, partitions: int = 1, partition: int = 0) -> int:
    return int(scalar(conn, "SELECT tube_leader_epoch(%s, %s, %s)", (tube, partitions, partition)))


def acquire(conn: Conn, claim: Claim | None = None) -> Term:
    """Begin a term."""
    claim = claim or Claim()
    epoch = scalar(conn, claim.statement, claim.params)
    return Term(claim.tube, claim.partitions, claim.partition, claim.leader_id, claim.instance_id, epoch)


def release(conn: Conn, term: Term) -> bool:
    return bool(scalar(conn, "SELECT tube_leader_release(%s, %s, %s, %s)", term.args))


def renew(conn: Conn, term: Term) -> int:
    return int(scalar(conn, "SELECT tube_leader_renew(%s, %s, %s, %s)", term.args))


def touch(conn: Conn, shard: int = 0, ids: Iterable[int] = (1,), op: str = "U", tube: str = TUBE) -> int:
    """Put one pod into the tube; its seq."""
    statement = sql.SQL("INSERT INTO tube.{} (op, shard, ids) VALUES (%s, %s, %s) RETURNING seq")
    return int(scalar(conn, statement.format(_name(tube)), (op, shard, list(ids))))


def fill(conn: Conn, pods: int, op: str = "U", shards: int = 1, tube: str = TUBE) -> None:
    """Put many pods of one id into the tube, spread over the shards from 0 on."""
    statement = sql.SQL(
        "INSERT INTO tube.{} (op, shard, ids) SELECT %s, g %% %s, ARRAY[g] FROM generate_series(1, %s) AS g"
    )
    conn.execute(statement.format(_name(tube)), (op, shards, pods))


def mark(
    conn: Conn,
    term: Term,
    limit: int = 1000,
    floors: Sequence[int] = (0, 0),
    *,
    exclude_backfill: bool = False,
) -> list[Marked]:
    with conn.cursor(row_factory=class_row(Marked)) as cursor:
        return cursor.execute(
            "SELECT * FROM tube_pods_mark(%s, %s, %s, %s, %s, %s, %s, %s)",
            (*term.args, limit, *floors, exclude_backfill),
        ).fetchall()


def marked_seqs(conn: Conn, term: Term, limit: int = 1000, floors: Sequence[int] = (0, 0)) -> list[int]:
    return [pod.seq for pod in mark(conn, term, limit, floors)]


def purge(conn: Conn, term: Term, seqs: Sequence[int]) -> int:
    return int(scalar(conn, "SELECT tube_pods_purge(%s, %s, %s, %s, %s)", (*term.args, list(seqs))))


def reset(conn: Conn, term: Term, seqs: Sequence[int] | None = None) -> int:
    given = None if seqs is None else list(seqs)
    return int(scalar(conn, "SELECT tube_pods_reset(%s, %s, %s, %s, %s)", (*term.args, given)))


def park(conn: Conn, term: Term, *items: dict[str, Any]) -> int:
    return int(scalar(conn, "SELECT tube_pods_park(%s, %s, %s, %s, %s)", (*term.args, json.dumps(items))))


def park_item(key: int | None = 7, shard: int = 0, seq: int = 1, **more: Any) -> dict[str, Any]:
    """An item for tube_pods_park."""
    return {
        "shard": shard,
        "id": None if key is None else str(key),
        "op": "U",
        "seq": seq,
        "payload": None,
        "error": "too bad",
        "attempts": 3,
        **more,
    }


def pods(conn: Conn, tube: str = TUBE) -> dict[int, uuid.UUID | None]:
    """All pods: seq to leader_id, by seq."""
    statement = sql.SQL("SELECT seq, leader_id FROM tube.{} ORDER BY seq").format(_name(tube))
    return dict(conn.execute(statement, ()).fetchall())


def _name(tube: str) -> sql.Identifier:
    # In a statement with parameters a % is doubled wherever it stands.
    return sql.Identifier(tube.replace("%", "%%"))


def scalar(conn: Conn, statement: str | sql.Composed, params: Any = None) -> Any:
    """The one value that a statement gives."""
    row = conn.execute(statement, params).fetchone()
    assert row is not None
    return row[0]
