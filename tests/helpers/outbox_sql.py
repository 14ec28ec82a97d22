"""Outboxes for tests that speak to the SQL itself: records, and what a term does with them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row

from tests.helpers.terms import Claim, Conn, Term, acquire, scalar

OUTBOX = "orders"
ADOPTED = "public.outbox"

GOHARVEST_TABLE = f"""
    CREATE TABLE IF NOT EXISTS {ADOPTED} (
        id                  BIGSERIAL PRIMARY KEY,
        create_time         TIMESTAMP WITH TIME ZONE NOT NULL,
        kafka_topic         VARCHAR(249) NOT NULL,
        kafka_key           VARCHAR(100) NOT NULL,
        kafka_value         VARCHAR(10000),
        kafka_header_keys   TEXT[] NOT NULL,
        kafka_header_values TEXT[] NOT NULL,
        leader_id           UUID
    )
"""
"""As goharvest's documentation makes it."""


@dataclass(frozen=True)
class Record:
    """A row of outbox_records_mark."""

    id: int
    create_time: datetime
    kafka_topic: str
    kafka_key: str | None
    kafka_value: bytes | None
    kafka_header_keys: list[str]
    kafka_header_values: list[str | None]
    partition_key: str | None
    retried: bool
    held: bool


def make_outbox(conn: Conn, outbox: str = OUTBOX, partitions: int = 1, value_type: str | None = None) -> None:
    conn.execute("SELECT outbox_ensure_exists(%s, %s, %s::regtype)", (outbox, partitions, value_type))


def adopt(conn: Conn, outbox: str = OUTBOX, partitions: int = 1, *, wake: bool = False) -> None:
    """Make a table as goharvest does, and adopt it."""
    conn.execute(GOHARVEST_TABLE)
    conn.execute("SELECT outbox_adopt(%s, %s, %s, %s)", (outbox, ADOPTED, partitions, wake))


def lead(conn: Conn, partition: int = 0, partitions: int = 1, outbox: str = OUTBOX) -> Term:
    """Begin a term over a partition."""
    return acquire(conn, Claim(outbox, partitions, partition, leader_id=uuid.uuid4()))


def stash(conn: Conn, key: str | None = "k", value: str | None = "v", topic: str = "t", **more: Any) -> int:
    """Put one message into the outbox; its id."""
    named = "".join(f", {name} => %({name})s" for name in more)
    statement = f"SELECT outbox_stash('{OUTBOX}', %(topic)s, %(key)s, %(value)s{named})"
    return int(scalar(conn, statement, {"topic": topic, "key": key, "value": value, **more}))


def mark(conn: Conn, term: Term, limit: int = 1000, floor: int = 0) -> list[Record]:
    with conn.cursor(row_factory=class_row(Record)) as cursor:
        return cursor.execute(
            "SELECT * FROM outbox_records_mark(%s, %s, %s, %s, %s, %s)", (*term.args, limit, floor)
        ).fetchall()


def marked_ids(conn: Conn, term: Term, limit: int = 1000, floor: int = 0) -> list[int]:
    return [record.id for record in mark(conn, term, limit, floor)]


def purge(conn: Conn, term: Term, ids: Iterable[int]) -> int:
    return int(scalar(conn, "SELECT outbox_records_purge(%s, %s, %s, %s, %s)", (*term.args, list(ids))))


def purge_sent(conn: Conn, term: Term, ids: Iterable[int], until: str = "infinity") -> int:
    statement = "SELECT outbox_records_purge_sent(%s, %s, %s, %s, %s, %s)"
    return int(scalar(conn, statement, (*term.args, list(ids), until)))


def reset(conn: Conn, term: Term, ids: Sequence[int] | None = None) -> int:
    given = None if ids is None else list(ids)
    return int(scalar(conn, "SELECT outbox_records_reset(%s, %s, %s, %s, %s)", (*term.args, given)))


def park(conn: Conn, term: Term, *ids: int, behind: bool = False, hold: bool = False) -> list[int]:
    """Park records; the ids that were parked."""
    items = [{"id": id_, "error": "too bad", "attempts": 3, "behind": behind} for id_ in ids]
    statement = "SELECT outbox_records_park(%s, %s, %s, %s, %s, %s)"
    return list(scalar(conn, statement, (*term.args, json.dumps(items), hold)))


def retry(conn: Conn, ids: Sequence[int] | None = None, **which: str) -> int:
    named = "".join(f", {name} => %({name})s" for name in which)
    statement = f"SELECT outbox_retry('{OUTBOX}', %(ids)s::bigint[]{named})"
    return int(scalar(conn, statement, {"ids": None if ids is None else list(ids), **which}))


def drop_parked(conn: Conn, *ids: int) -> int:
    return int(scalar(conn, "SELECT outbox_parked_drop(%s, %s)", (OUTBOX, list(ids))))


def parked_ids(conn: Conn) -> list[int]:
    rows = conn.execute("SELECT id FROM outbox_parked(%s) ORDER BY id", (OUTBOX,)).fetchall()
    return [id_ for (id_,) in rows]


def waiting_ids(conn: Conn, table: str = f"tube.{OUTBOX}") -> list[int]:
    """The ids of all records in a table."""
    return [id_ for (id_,) in conn.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()]
